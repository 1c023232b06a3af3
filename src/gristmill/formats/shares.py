"""Write the rows of a dataset in one format, and collect facts about the files and the hashes of the rows.

Each split is divided into shares, so that several tasks can write it at once. A piece is a share that is written to its
own folder and later joined with the other shares of its split.
"""

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
from gristmill.core.manifest import FileFacts, file_facts
from gristmill.core.progress import MapFunction
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import ContentDigest, row_digests
from gristmill.formats.format import Target, format_folder, get_format, path_in_dataset


class Share(NamedTuple):
    """Part of a split that one task writes in one format: complete documents, or packed rows."""

    format: str
    split: Split
    num_rows: int
    first: int = 0
    """Index of the first row of the share in its split, from 0."""
    number: int = 0
    """Index of the share in its split, from 0."""
    num_shares: int = 1
    """Number of shares that the split is divided into."""

    @property
    def stop(self) -> int:
        return self.first + self.num_rows

    @property
    def is_piece(self) -> bool:
        """True if the share is written to its own folder and later joined with the other shares of the split."""
        return self.num_shares > 1 and get_format(self.format).join is not None

    def folder_in(self, dataset: Path) -> Path:
        """Return the output folder: the folder of the format, or a temporary subfolder if the share is a piece."""
        folder = format_folder(dataset, self.format)
        return folder / f"{self.split}-{self.number:05d}{UNFINISHED}" if self.is_piece else folder


class ShareTask(Protocol):
    """Task that writes one share."""

    @property
    def share(self) -> Share: ...


class WrittenFiles(msgspec.Struct, frozen=True):
    """Result of writing one share."""

    facts: dict[str, FileFacts]
    """Facts about the files, keyed by path in the dataset. Empty if the share is a piece."""
    content: bytes
    """Concatenated hashes of all rows."""


def divide_into_shares(
    name: str, split: Split, schema: Schema, num_rows: Sequence[int], edge_at: Callable[[int], int]
) -> list[Share]:
    """Divide a split into shares. The same rows always give the same shares.

    `num_rows` has the number of rows in each JSONL file of the split. `edge_at(row)` returns the first row at or after
    `row` at which a share may begin. This is the first row of a document, or any packed row.
    """
    format_, total = get_format(name), sum(num_rows)
    files = [total] if format_.join is not None else num_rows
    edges = [0]
    for stop, count in zip(accumulate(files), files, strict=True):
        rows_per_share = count if format_.rows_per_task is None else format_.rows_per_task(schema, total)
        num_shares = max(1, round(count / max(1, rows_per_share)))
        for number in range(1, num_shares):
            row = stop - count + count * number // num_shares
            if row > edges[-1]:  # otherwise the previous share ends at or after this row
                edges.append(min(stop, edge_at(row)))
        edges.append(stop)
    edges = sorted(set(edges))
    return [
        Share(name, split, stop - first, first, number, len(edges) - 1)
        for number, (first, stop) in enumerate(pairwise(edges))
    ]


def divide_documents_into_shares(
    name: str, split: Split, schema: Schema, num_rows: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[Share, slice]]:
    """Yield each share of a split and the slice of its documents. `counts` has the number of rows of each document."""
    edges = np.cumsum([0, *counts])

    def document_at(row: int) -> int:
        return int(np.searchsorted(edges, row))

    for share in divide_into_shares(name, split, schema, num_rows, lambda row: int(edges[document_at(row)])):
        yield share, slice(document_at(share.first), document_at(share.stop))


def write_share(
    share: Share,
    dataset: Path,
    schema: Schema,
    batches: Iterable[WindowBatch],
    compressed_piece_bytes: int | None = None,
) -> WrittenFiles:
    """Write one share to its output folder."""
    format_, folder = get_format(share.format), share.folder_in(dataset)
    digests: list[bytes] = []
    target = Target(folder, share.split, schema, compressed_piece_bytes=compressed_piece_bytes)
    if share.is_piece:
        shutil.rmtree(folder, ignore_errors=True)  # left by a worker that was killed
        folder.mkdir()
    else:
        target = target._replace(shard=share.number, num_shards=share.num_shares)
    names = format_.write(_collect_digests(batches, share.split, digests), target)
    facts = {}
    if not share.is_piece:
        extra_facts = {
            "split": share.split,
            "format": share.format,
            "rows": share.num_rows if format_.join is None else None,
        }
        facts = {
            path_in_dataset(share.format, name): msgspec.structs.replace(file_facts(folder / name), **extra_facts)
            for name in sorted(names)
        }
    return WrittenFiles(facts, b"".join(digests))


def _collect_digests(batches: Iterable[WindowBatch], split: Split, digests: list[bytes]) -> Iterator[WindowBatch]:
    """Yield the batches, and append the hashes of their rows to `digests`."""
    for batch in batches:
        digests.append(row_digests(split, batch))
        yield batch


class WrittenDataset:
    """Facts about all written files, and the content digest of each format. All formats must have the same digest."""

    def __init__(self) -> None:
        self.facts: dict[str, FileFacts] = {}
        self._contents: dict[str, ContentDigest] = {}

    def add_all(
        self, written: Iterable[tuple[Share, WrittenFiles]], dataset: Path, schema: Schema, map_tasks: MapFunction
    ) -> None:
        """Add the results of all shares, in row order. Pieces are joined while workers write later pieces."""
        joined_files: dict[str, tuple[str, Split]] = {}
        keys = attrgetter("format", "split", "is_piece")
        for (format_name, split, is_piece), group in groupby(written, key=lambda one: keys(one[0])):
            pieces = self._add_shares(group, dataset)
            join = get_format(format_name).join
            if is_piece and join is not None:
                file_names = join(pieces, Target(format_folder(dataset, format_name), split, schema))
                joined_files |= {
                    path_in_dataset(format_name, file): (format_name, split) for file in sorted(file_names)
                }
            deque(pieces, maxlen=0)  # consume the shares that are not joined
        # Workers hash the joined files at the end, because the header of a .npy file is written last.
        for file, facts in zip(
            joined_files, map_tasks(file_facts, [dataset / file for file in joined_files]), strict=True
        ):
            format_name, split = joined_files[file]
            self.facts[file] = msgspec.structs.replace(facts, split=split, format=format_name)

    def _add_shares(self, written: Iterable[tuple[Share, WrittenFiles]], dataset: Path) -> Iterator[Path]:
        """Add shares and yield their folders. The folder of a piece is removed when the next folder is requested."""
        for share, one in written:
            self.facts |= one.facts
            self.add_content(share.format, share.split, one.content)
            folder = share.folder_in(dataset)
            yield folder
            if share.is_piece:
                shutil.rmtree(folder)

    def finish(self, format_names: Iterable[str], dataset: Path, schema: Schema) -> None:
        """Write the files of each format that cover all splits."""
        for name in format_names:
            format_, folder = get_format(name), format_folder(dataset, name)
            for file in format_.finish(folder, schema) if format_.finish is not None else ():
                self.facts[path_in_dataset(name, file)] = msgspec.structs.replace(
                    file_facts(folder / file), format=name
                )

    def add_content(self, name: str, split: Split, content: bytes) -> None:
        self._contents.setdefault(name, ContentDigest()).add(split, content)

    def content_sha256(self) -> str:
        """Return the content digest of the dataset. Raises GristmillError if the digests of the formats differ."""
        digests_by_format = {name: content.sha256() for name, content in self._contents.items()}
        if len(set(digests_by_format.values())) != 1:
            digests = ", ".join(f"{name} {digest[:12]}…" for name, digest in digests_by_format.items())
            raise GristmillError(
                f"the formats do not have the same rows: {digests}. Please report this bug in gristmill."
            )
        return next(iter(digests_by_format.values()))
