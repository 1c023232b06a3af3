"""Step 2, once, and the only one that looks at more than one document: duplicates · groups · splits · places."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig
from gristmill.core.errors import InputError
from gristmill.core.layout import FILES, data_file_name
from gristmill.core.manifest import NearDuplicates, PreviousSplits
from gristmill.core.partition import neighbours, steady_neighbours
from gristmill.core.plain_files import read_plain
from gristmill.core.progress import MapFunction
from gristmill.core.records import Drop, DropReason, FileKey, NoVariant, PreparedDocument, Split
from gristmill.dedup.clusters import MIN_JACCARD, Cluster, exact_duplicates
from gristmill.dedup.signatures import NUM_BANDS
from gristmill.formats.jsonl import piece_bytes
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import PartReader
from gristmill.pipeline.similarity import clusters_of
from gristmill.splits.assign import NOTHING_BEFORE, PreviousSplit, assign_splits, make_groups


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one split's documents, in path order, and its place in the output."""

    split: Split
    file: str
    offset: int
    num_bytes: int
    """Of rows; compressed they take less, and then the offset counts for nothing."""
    documents: list[PreparedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        """In a message to another process: there are thousands of documents, and pickle takes longer for them."""
        return _unpacked, (msgspec.msgpack.encode(self),)


def _unpacked(packed: bytes) -> Piece:
    return msgspec.msgpack.decode(packed, type=Piece)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    kept: list[PreparedDocument]
    """In path order, each with its group and split."""
    drops: list[Drop]
    """Documents that were prepared and are not kept."""
    previous: PreviousSplits | None
    near_duplicates: NearDuplicates
    cut_away: Sequence[PreparedDocument] = ()
    """Dropped because no window of them is left; with another overlap one might be."""
    variants: Sequence[PreparedDocument] = ()
    """In the order of their files."""
    no_variants: Sequence[NoVariant] = ()
    """Of files that were chosen for one."""
    variant_parts: Sequence[str] = ()
    model: str | None = None
    """That has rewritten files, by the name it goes by at its endpoint."""

    def shown(self) -> Iterator[PreparedDocument]:
        """Files, each with its variants behind it."""
        behind: dict[FileKey, list[PreparedDocument]] = {}
        for one in self.variants:
            behind.setdefault(one.key, []).append(one)
        for document in self.kept:
            yield document
            yield from behind.get(document.key, ())


class _PreviousRow(msgspec.Struct, frozen=True):
    repo: str
    path: str
    split: Split | None = None
    text_sha256: str | None = None


def decide(context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction) -> Decision:
    """Duplicates, groups and splits; `documents` in path order."""
    config = context.config
    distinct, copies = exact_duplicates(documents)
    clusters = [] if config.duplicates.near == "keep" else _clusters(context, distinct, map_tasks)
    near_twins = _to_drop(clusters) if config.duplicates.near == "drop" else {}
    members = [(cluster.first, *(twin.member for twin in cluster.others)) for cluster in clusters]
    groups = make_groups(distinct, members, near_twins, config.split.by, copies)
    before, digest = read_previous_splits(config)
    split_of_group = assign_splits(
        groups, config.split.fractions(), config.split.seed, before, train_wins=config.duplicates.near == "group"
    )
    placed: dict[FileKey, PreparedDocument] = {}
    for group in groups:
        for document in (*group.documents, *group.dropped):
            placed[document.key] = _placed(document, group.name, split_of_group[group.name], before)

    def drop(document: PreparedDocument, twin: PreparedDocument, reason: DropReason, detail: str, like: float) -> Drop:
        return Drop.of(placed[document.key], reason, detail, twin=twin.name, similarity=round(like, 6))

    drops = [
        drop(copy, document, DropReason.EXACT_DUPLICATE, f"same text as {document.name}", 1.0)
        for document in distinct
        for copy in copies.get(document.key, ())
    ]
    for number, (first, jaccard) in near_twins.items():
        detail = f"similarity of {jaccard:.3f} to {distinct[first].name}, limit {MIN_JACCARD}"
        drops.append(drop(distinct[number], distinct[first], DropReason.NEAR_DUPLICATE, detail, jaccard))
    kept = [placed[document.key] for number, document in enumerate(distinct) if number not in near_twins]
    moved = [document for document in placed.values() if document.moved_from]
    was = [document for document in kept if before.of(document)]
    return Decision(
        kept=kept,
        drops=drops,
        previous=PreviousSplits(
            sha256=digest,
            num_files_kept_in_place=sum(document.moved_from is None for document in was),
            num_files_moved=len(moved),
        )
        if digest
        else None,
        near_duplicates=NearDuplicates(clusters=len(clusters), files=sum(map(len, members)), dropped=len(near_twins)),
    )


def _placed(document: PreparedDocument, group: str, split: Split, before: PreviousSplit) -> PreparedDocument:
    was = before.of(document)
    moved_from = was if was is not split else None
    return msgspec.structs.replace(document, group=group, split=split, moved_from=moved_from)


def _to_drop(clusters: Iterable[Cluster]) -> dict[int, tuple[int, float]]:
    """Those that are near enough to the first of their cluster, by number: that one, and how near."""
    twins = ((cluster.first, twin) for cluster in clusters for twin in cluster.others)
    return {twin.member: (first, twin.jaccard) for first, twin in twins if twin.jaccard >= MIN_JACCARD}


def _clusters(context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction) -> list[Cluster]:
    """Near-duplicates, by their number among the documents."""
    path = context.scratch / "bands"
    _write_columns(path, context, documents)
    bands = (np.fromfile(path, np.uint64, len(documents), offset=at) for at in _band_offsets(documents))
    return clusters_of(context, documents, bands, map_tasks)


def _write_columns(path: Path, context: Context, documents: Sequence[PreparedDocument]) -> None:
    """Keys lie by document in the parts, and are wanted band by band, one in memory at a time."""
    first = 0
    with path.open("wb") as stream:
        for part, group in groupby(documents, key=lambda document: document.part):
            rows = PartReader(context.prepared, part).bands()[[document.part_row for document in group]]
            for offset, column in zip(_band_offsets(documents), rows.T, strict=True):
                stream.seek(offset + first * rows.itemsize)
                stream.write(column.tobytes())
            first += len(rows)


def _band_offsets(documents: Sequence[PreparedDocument]) -> range:
    num_bytes = 8 * len(documents)
    return range(0, NUM_BANDS * num_bytes, num_bytes)


def read_previous_splits(config: Config) -> tuple[PreviousSplit, str | None]:
    """The earlier build's files.jsonl as an input, and its digest; nothing where there is none or it is not wanted."""
    path = previous_file(config)
    if path is None:
        return NOTHING_BEFORE, None
    try:
        content = read_plain(path)
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
    by_text = {row.text_sha256: row.split for row in rows if row.text_sha256 and row.split}
    return PreviousSplit(by_key, by_text), hashlib.sha256(content).hexdigest()


def previous_file(config: Config) -> Path | None:
    if config.split.fresh:
        return None
    if config.split.previous is not None:
        named = Path(os.path.expanduser(config.split.previous))
        return named / FILES if named.is_dir() else named
    path = Path(config.out) / FILES
    return path if path.is_file() else None


def lay_out(documents: Iterable[PreparedDocument], config: OutputConfig) -> Iterator[Piece]:
    """Pieces depend on the documents alone, not on batches or workers, and so do the bytes written."""
    by_split: dict[Split, list[PreparedDocument]] = {split: [] for split in Split}
    for document in documents:
        if document.num_windows:
            by_split[document.in_split].append(document)
    for split, members in by_split.items():
        runs = steady_neighbours(
            members, lambda one: one.path, lambda one: one.num_row_bytes, piece_bytes(config.shard_bytes)
        )
        files = list(neighbours(runs, _num_bytes, config.shard_bytes))
        for index, file_runs in enumerate(files):
            name = data_file_name(split, index, len(files), compressed=config.compress == "zstd")
            offset = 0
            for run in file_runs:
                num_bytes = _num_bytes(run)
                yield Piece(split=split, file=name, offset=offset, num_bytes=num_bytes, documents=run)
                offset += num_bytes


def _num_bytes(documents: Sequence[PreparedDocument]) -> int:
    return sum(document.num_row_bytes for document in documents)
