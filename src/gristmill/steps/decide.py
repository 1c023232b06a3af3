"""Step 2, once, and the only one that looks at more than one document: duplicates · groups · splits · places."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from gristmill.config import Config, OutputConfig
from gristmill.errors import InputError
from gristmill.grouping.duplicates import drop_exact_duplicates
from gristmill.grouping.splitting import NOTHING_BEFORE, FileKey, PreviousSplit, assign_splits, single_groups
from gristmill.layout import FILES, data_file_name
from gristmill.manifest import PreviousSplits
from gristmill.records import Drop, PreparedDocument, Split

PIECE_BYTES = 2 << 20
"""Rows that one task formats and writes; memory per worker is a few times this."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one split's documents, in path order, and its place in the output."""

    split: Split
    file: str
    offset: int
    num_bytes: int
    """Of rows; compressed they take less, and then the offset counts for nothing."""
    documents: list[PreparedDocument]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    kept: list[PreparedDocument]
    drops: list[Drop]
    group_of: dict[FileKey, str]
    split_of: dict[FileKey, Split]
    pieces: list[Piece]
    previous: PreviousSplits | None


class _PreviousRow(msgspec.Struct, frozen=True):
    repo: str
    path: str
    split: Split | None = None
    sha256: str | None = None


def decide(documents: Sequence[PreparedDocument], config: Config) -> Decision:
    """`documents` in path order."""
    kept, drops = drop_exact_duplicates(documents)
    groups = single_groups(kept)
    before, digest = read_previous_splits(config)
    split_of_group = assign_splits(groups, config.split.fractions(), config.split.seed, before)
    group_of = {document.key: group.name for group in groups for document in group.documents}
    split_of = {key: split_of_group[name] for key, name in group_of.items()}
    num_kept_in_place = sum(before.of(document) is not None for document in kept)
    return Decision(
        kept=kept,
        drops=drops,
        group_of=group_of,
        split_of=split_of,
        pieces=list(lay_out(kept, split_of, config.output)),
        previous=PreviousSplits(sha256=digest, num_files_kept_in_place=num_kept_in_place) if digest else None,
    )


def read_previous_splits(config: Config) -> tuple[PreviousSplit, str | None]:
    """The earlier build's files.jsonl as an input, and its digest; nothing where there is none or it is not wanted."""
    if config.split.fresh:
        return NOTHING_BEFORE, None
    path = Path(config.out) / FILES
    if config.split.previous is not None:
        named = Path(os.path.expanduser(config.split.previous))
        path = named / FILES if named.is_dir() else named
    if config.split.previous is None and not path.is_file():
        return NOTHING_BEFORE, None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the earlier splits {str(path)!r}: {error.strerror}.") from None
    decoder = msgspec.json.Decoder(_PreviousRow)
    try:
        rows = [row for row in decoder.decode_lines(content) if row.split is not None]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{str(path)!r} is no files.jsonl of an earlier build: {error}. Use --fresh-splits to do without."
        ) from None
    by_key = {(row.repo, row.path): row.split for row in rows if row.split}
    by_sha256 = {row.sha256: row.split for row in rows if row.sha256 and row.split}
    return PreviousSplit(by_key, by_sha256), hashlib.sha256(content).hexdigest()


def lay_out(
    documents: Iterable[PreparedDocument], split_of: Mapping[FileKey, Split], config: OutputConfig
) -> Iterator[Piece]:
    """Pieces depend on the documents alone, not on batches or workers, and so do the bytes written."""
    by_split: dict[Split, list[PreparedDocument]] = {split: [] for split in Split}
    for document in documents:
        by_split[split_of[document.key]].append(document)
    for split, members in by_split.items():
        runs = list(
            _runs(members, (document.num_row_bytes for document in members), min(PIECE_BYTES, config.shard_bytes))
        )
        files = list(_runs(runs, map(_num_bytes, runs), config.shard_bytes))
        for index, file_runs in enumerate(files):
            name = data_file_name(split, index, len(files), compressed=config.compress == "zstd")
            offset = 0
            for run in file_runs:
                num_bytes = _num_bytes(run)
                yield Piece(split=split, file=name, offset=offset, num_bytes=num_bytes, documents=run)
                offset += num_bytes


def _num_bytes(documents: Sequence[PreparedDocument]) -> int:
    return sum(document.num_row_bytes for document in documents)


Item = TypeVar("Item")


def _runs(items: Sequence[Item], sizes: Iterable[int], limit: int) -> Iterator[list[Item]]:
    """Neighbours together, up to so many bytes; what is larger by itself is a run of its own."""
    run: list[Item] = []
    run_bytes = 0
    for item, item_bytes in zip(items, sizes, strict=True):
        if run and run_bytes + item_bytes > limit:
            yield run
            run, run_bytes = [], 0
        run.append(item)
        run_bytes += item_bytes
    if run:
        yield run
