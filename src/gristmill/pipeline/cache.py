"""What the last build knows of files: by their stamps what is in them, unread; by what is in them, where they lie.

A file that has not been touched since need not be read. One changed file makes its batch a new one; the others in it
have been prepared before, and are found one by one in the earlier parts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import read_plain
from gristmill.core.records import DocumentFacts, Drop, SourceFile, TokenizedDocument
from gristmill.dedup.signatures import Keys
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import FileKeys, PartReader, is_whole
from gristmill.splits.shared_spans import Anchors, BlockKeys

# What a build found out and the next one need not: kept in the work folder, with a digest, under a key.

Value = TypeVar("Value")


def remember(path: Path, key: str, value: Any, *, is_private: bool = False) -> None:
    """`is_private`: for nobody else's eyes; settings may hold a salt, or an address with a password in it."""
    content = msgspec.msgpack.encode((key, value))
    mode = 0o600 if is_private else 0o666
    write_atomically(path, (hashlib.sha256(content).digest(), content), mode, is_synced=False)


def recall(path: Path, key: str, kind: type[Value]) -> Value | None:
    try:
        content = read_plain(path)
        digest, content = content[:32], content[32:]
        if hashlib.sha256(content).digest() != digest:
            return None
        kept_key, value = msgspec.msgpack.decode(content, type=tuple[str, msgspec.Raw])
        return msgspec.msgpack.decode(value, type=kind) if kept_key == key else None
    except (OSError, msgspec.MsgspecError):
        return None


INDEX = "files"
STAMPS = "stamps"
KEY_BYTES = 16
LEAD_BYTES = 8
NO_LEAD = 0
NOT_READ = bytes(KEY_BYTES)
PARTS_AT_HAND = 4


class Ready(NamedTuple):
    """A document with all that a part holds of it."""

    document: TokenizedDocument
    facts: DocumentFacts
    block: bytes
    bands: Keys
    """Its row; without one where near-duplicates are not looked for."""
    positions: npt.NDArray[np.uint32]
    keys: BlockKeys
    """Its anchors."""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """Sorted by the first bytes of the files' keys."""

    leads: bytes
    parts: bytes
    """Of each, the number of its part."""
    names: list[str]


def write_index(context: Context, parts: Sequence[str]) -> None:
    leads: list[bytes] = []
    numbers: list[int] = []
    for number, part in enumerate(parts):
        keys = PartReader(context.prepared, part).keys()
        leads += [key[:LEAD_BYTES] for key in (*keys.documents, *keys.drops)]
        numbers += [number] * (len(keys.documents) + len(keys.drops))
    found = np.frombuffer(b"".join(leads), np.uint64)
    order = np.argsort(found)
    index = Index(found[order].tobytes(), np.array(numbers, np.uint32)[order].tobytes(), list(parts))
    remember(context.folder / INDEX, context.prepare_key, index)


class EarlierFiles:
    """What the last build has prepared, by the keys of the files."""

    def __init__(self, path: Path, key: str, prepared: Path) -> None:
        index = recall(path, key, Index) or Index(b"", b"", [])
        self._folder = prepared
        self._leads = np.frombuffer(index.leads, np.uint64)
        self._parts = np.frombuffer(index.parts, np.uint32)
        self._names = index.names
        self._at_hand = lru_cache(PARTS_AT_HAND)(self._load)

    def find(self, key: bytes) -> Ready | Drop | None:
        lead = np.frombuffer(key[:LEAD_BYTES], np.uint64)[0]
        at = int(np.searchsorted(self._leads, lead))
        if at == len(self._leads) or self._leads[at] != lead:
            return None
        earlier = self._at_hand(self._names[self._parts[at]])
        return earlier.find(key) if earlier is not None else None

    def _load(self, name: str) -> "_EarlierPart | None":
        """As with a whole batch: not believed before its digest is."""
        return _EarlierPart(self._folder, name) if is_whole(self._folder / name) else None


class _EarlierPart:
    def __init__(self, folder: Path, name: str) -> None:
        reader = PartReader(folder, name)
        self._content = np.memmap(folder / name, np.uint8, "r")
        keys: FileKeys = reader.keys()
        self._rows = {key: row for row, key in enumerate(keys.documents)}
        self._drops = dict(zip(keys.drops, reader.drops(), strict=True))
        self._documents, self._facts = reader.documents(), reader.facts()
        self._offsets = np.cumsum([0, *(document.part_bytes for document in self._documents)]).tolist()
        self._bands, self._anchors = reader.bands(), reader.anchors()
        self._edges = np.concatenate(([0], np.cumsum(self._anchors.counts)))

    def find(self, key: bytes) -> Ready | Drop | None:
        row = self._rows.get(key)
        if row is None:
            return self._drops.get(key)
        document = self._documents[row]
        anchors: Anchors = self._anchors
        own = slice(self._edges[row], self._edges[row + 1]) if len(anchors.counts) else slice(0)
        return Ready(
            document,
            self._facts[row],
            self._content[self._offsets[row] : self._offsets[row + 1]].tobytes(),
            self._bands[row : row + 1],
            anchors.positions[own],
            anchors.keys[own],
        )


class Stamps(msgspec.Struct, frozen=True, array_like=True):
    """Sorted by what a file is called and its stamp: the key of what was in it."""

    leads: bytes
    keys: bytes


class StampLog:
    """Stamps of the files of a build, as their batches come in."""

    def __init__(self) -> None:
        self._leads, self._keys = bytearray(), bytearray()

    def add(self, leads: bytes, keys: bytes) -> None:
        self._leads += leads
        self._keys += keys

    def write(self, context: Context) -> None:
        leads = np.frombuffer(bytes(self._leads), np.uint64)
        keys = np.frombuffer(bytes(self._keys), f"V{KEY_BYTES}")
        is_of_use = (leads != NO_LEAD) & (keys != np.void(NOT_READ))
        order = np.flatnonzero(is_of_use)[np.argsort(leads[is_of_use])]
        stamps = Stamps(leads[order].tobytes(), keys[order].tobytes())
        remember(context.folder / STAMPS, context.prepare_key, stamps)


class KnownStamps:
    def __init__(self, path: Path, key: str) -> None:
        stamps = recall(path, key, Stamps) or Stamps(b"", b"")
        self._leads, self._keys = np.frombuffer(stamps.leads, np.uint64), stamps.keys

    def keys_of(self, leads: bytes) -> list[bytes | None]:
        wanted = np.frombuffer(leads, np.uint64)
        if not len(self._leads):
            return [None] * len(wanted)
        at = np.searchsorted(self._leads, wanted)
        at[at == len(self._leads)] = 0
        is_known = (self._leads[at] == wanted) & (wanted != NO_LEAD)
        return [
            self._keys[KEY_BYTES * place : KEY_BYTES * (place + 1)] if known else None
            for place, known in zip(at.tolist(), is_known.tolist(), strict=True)
        ]


def stamp_leads(files: Iterable[SourceFile]) -> bytes:
    """Of what each is called and its stamp, one after the other; NO_LEAD for one that has none."""
    return b"".join(map(_stamp_lead, files))


def _stamp_lead(file: SourceFile) -> bytes:
    if file.stamp is None:
        return bytes(LEAD_BYTES)
    what = f"{file.repo}\0{file.path}\0{file.license}\0{file.may_be_translation}\0{file.stamp}".encode()
    return hashlib.blake2b(what, digest_size=LEAD_BYTES).digest()


def known_stamps(context: Context) -> KnownStamps:
    path = context.folder / STAMPS
    return _opened_stamps(path, context.prepare_key, _stamp_of(path))


@lru_cache(1)
def _opened_stamps(path: Path, key: str, stamp: int) -> KnownStamps:  # noqa: ARG001 - with each file anew
    return KnownStamps(path, key)


def _stamp_of(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def earlier_files(context: Context) -> EarlierFiles:
    """Once per process and build."""
    path = context.folder / INDEX
    return _opened(path, context.prepare_key, context.prepared, _stamp_of(path))


@lru_cache(1)
def _opened(path: Path, key: str, prepared: Path, stamp: int) -> EarlierFiles:  # noqa: ARG001 - with each index anew
    return EarlierFiles(path, key, prepared)
