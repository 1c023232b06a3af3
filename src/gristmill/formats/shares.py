"""Rows into one of a dataset's formats: its files, what is known of each, and a digest of every row on the way."""

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from gristmill.core.errors import GristmillError
from gristmill.core.layout import UNFINISHED
from gristmill.core.manifest import FileFacts, facts_of
from gristmill.core.progress import MapFunction
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import Content, row_digests
from gristmill.formats.format import Target, folder_of, format_named, name_in


class Share(NamedTuple):
    """What one task writes of a split in one format: some of its rows, none of a document whose others it leaves."""

    format: str
    split: Split
    num_rows: int
    first: int = 0
    """Of its rows, in the split."""
    number: int = 0
    num_shares: int = 1
    """Of the split."""

    @property
    def stop(self) -> int:
        return self.first + self.num_rows

    @property
    def is_piece(self) -> bool:
        """It is joined with the others."""
        return self.num_shares > 1 and format_named(self.format).join is not None

    def folder_in(self, dataset: Path) -> Path:
        """Where it is written: the format's, or one in there that is gone in the end."""
        folder = folder_of(dataset, self.format)
        return folder / f"{self.split}-{self.number:05d}{UNFINISHED}" if self.is_piece else folder


class ShareTask(Protocol):
    @property
    def share(self) -> Share: ...


class WrittenFiles(msgspec.Struct, frozen=True):
    facts: dict[str, FileFacts]
    """None of a piece."""
    content: bytes
    """The digest of each row."""


def shares_of(
    name: str, split: Split, schema: Schema, num_rows: Sequence[int], edge_at: Callable[[int], int]
) -> list[Share]:
    """The same rows are cut alike, whoever writes them.

    `num_rows`: of each of the split's files in JSONL. `edge_at`: the row itself, if a document begins there, else the
    next at which one does.
    """
    form, total = format_named(name), sum(num_rows)
    files = [total] if form.join is not None else num_rows
    edges = [0]
    for stop, count in zip(accumulate(files), files, strict=True):
        about = count if form.rows_per_task is None else form.rows_per_task(schema, total)
        num_shares = max(1, round(count / max(1, about)))
        for number in range(1, num_shares):
            row = stop - count + count * number // num_shares
            if row > edges[-1]:  # else a document goes on past it
                edges.append(min(stop, edge_at(row)))
        edges.append(stop)
    edges = sorted(set(edges))
    return [
        Share(name, split, stop - first, first, number, len(edges) - 1)
        for number, (first, stop) in enumerate(pairwise(edges))
    ]


def shares_of_documents(
    name: str, split: Split, schema: Schema, num_rows: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[Share, slice]]:
    """And which of the split's documents each has. `counts`: the rows of each document."""
    edges = np.cumsum([0, *counts])

    def number_of(row: int) -> int:
        return int(np.searchsorted(edges, row))

    for share in shares_of(name, split, schema, num_rows, lambda row: int(edges[number_of(row)])):
        yield share, slice(number_of(share.first), number_of(share.stop))


def write_share(
    share: Share, dataset: Path, schema: Schema, batches: Iterable[WindowBatch], compressed_at: int | None = None
) -> WrittenFiles:
    """Into the format's folder in the dataset's."""
    way, folder = format_named(share.format), share.folder_in(dataset)
    digests: list[bytes] = []
    target = Target(folder, share.split, schema, compressed_at=compressed_at)
    if share.is_piece:
        shutil.rmtree(folder, ignore_errors=True)  # of a worker that was killed
        folder.mkdir()
    else:
        target = target._replace(shard=share.number, num_shards=share.num_shares)
    names = way.write(_digested(batches, share.split, digests), target)
    facts = {}
    if not share.is_piece:
        more = {"split": share.split, "format": share.format, "rows": share.num_rows if way.join is None else None}
        facts = {
            name_in(share.format, name): msgspec.structs.replace(facts_of(folder / name), **more)
            for name in sorted(names)
        }
    return WrittenFiles(facts, b"".join(digests))


def _digested(batches: Iterable[WindowBatch], split: Split, digests: list[bytes]) -> Iterator[WindowBatch]:
    for batch in batches:
        digests.append(row_digests(split, batch))
        yield batch


class AllFiles:
    """What was written, share by share; each format must turn out to hold the same."""

    def __init__(self) -> None:
        self.facts: dict[str, FileFacts] = {}
        self._contents: dict[str, Content] = {}

    def add_all(
        self, written: Iterable[tuple[Share, WrittenFiles]], dataset: Path, schema: Schema, map_tasks: MapFunction
    ) -> None:
        """In order; pieces are joined while the next ones are written."""
        made: dict[str, tuple[str, Split]] = {}
        keys = attrgetter("format", "split", "is_piece")
        for (name, split, is_piece), own in groupby(written, key=lambda one: keys(one[0])):
            pieces = self._add(own, dataset)
            join = format_named(name).join
            if is_piece and join is not None:
                names = join(pieces, Target(folder_of(dataset, name), split, schema))
                made |= {name_in(name, file): (name, split) for file in sorted(names)}
            deque(pieces, maxlen=0)  # what nobody joins is added all the same
        # Workers take their digests, all at once: the beginning of a .npy or chunk is known only at its end.
        for file, facts in zip(made, map_tasks(facts_of, [dataset / file for file in made]), strict=True):
            name, split = made[file]
            self.facts[file] = msgspec.structs.replace(facts, split=split, format=name)

    def _add(self, written: Iterable[tuple[Share, WrittenFiles]], dataset: Path) -> Iterator[Path]:
        """The folder of each, which is removed behind it if it is that of a piece."""
        for share, one in written:
            self.facts |= one.facts
            self.add_content(share.format, share.split, one.content)
            folder = share.folder_in(dataset)
            yield folder
            if share.is_piece:
                shutil.rmtree(folder)

    def finish(self, names: Iterable[str], dataset: Path, schema: Schema) -> None:
        """What a format says of all its splits together."""
        for name in names:
            way, folder = format_named(name), folder_of(dataset, name)
            for file in way.finish(folder, schema) if way.finish is not None else ():
                self.facts[name_in(name, file)] = msgspec.structs.replace(facts_of(folder / file), format=name)

    def add_content(self, name: str, split: Split, content: bytes) -> None:
        self._contents.setdefault(name, Content()).add(split, content)

    def content_sha256(self) -> str:
        found = {name: content.sha256() for name, content in self._contents.items()}
        if len(set(found.values())) != 1:
            told = ", ".join(f"{name} {digest[:12]}…" for name, digest in found.items())
            raise GristmillError(
                f"the formats do not hold the same rows: {told}. Please report this fault of gristmill."
            )
        return next(iter(found.values()))
