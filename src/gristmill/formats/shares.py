"""Rows into one of a dataset's formats: its files, what is known of each, and a digest of every row on the way."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from gristmill.core.errors import GristmillError
from gristmill.core.manifest import FileFacts, facts_of
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import Content, row_digests
from gristmill.formats.format import Target, folder_of, format_named, name_in


class Share(NamedTuple):
    """A split's rows in one format, or those of one of its files where the format has several."""

    format: str
    split: Split
    num_rows: int
    shard: int = 0
    num_shards: int = 1


class ShareTask(Protocol):
    @property
    def share(self) -> Share: ...


class WrittenFiles(msgspec.Struct, frozen=True):
    facts: dict[str, FileFacts]
    content: bytes
    """The digest of each row."""


def shares_of(name: str, split: Split, num_rows: list[int]) -> list[Share]:
    """`num_rows`: of each of the split's files, where the format has several."""
    if not sum(num_rows):
        return []
    if not format_named(name).is_sharded:
        return [Share(name, split, sum(num_rows))]
    return [Share(name, split, count, number, len(num_rows)) for number, count in enumerate(num_rows)]


def write_share(
    share: Share, dataset: Path, schema: Schema, batches: Iterable[WindowBatch], compressed_at: int | None = None
) -> WrittenFiles:
    """Into the format's folder in the dataset's."""
    way, folder = format_named(share.format), folder_of(dataset, share.format)
    digests: list[bytes] = []
    target = Target(
        folder=folder,
        split=share.split,
        schema=schema,
        shard=share.shard,
        num_shards=share.num_shards,
        compressed_at=compressed_at,
    )
    names = way.write(_digested(batches, share.split, digests), target)
    more = {"split": share.split, "format": share.format, "rows": share.num_rows if way.is_sharded else None}
    facts = {
        name_in(share.format, name): msgspec.structs.replace(facts_of(folder / name), **more) for name in sorted(names)
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

    def add(self, share: Share, written: WrittenFiles) -> None:
        self.facts |= written.facts
        self.add_content(share.format, share.split, written.content)

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
