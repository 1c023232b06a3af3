"""Cache of the last build: content keys of files by their stamps, and prepared files by their content keys.

The stamp of a file is a hash of its inode, size and times. The content key of a file is a digest of its name and
content, and of the settings of step 1. A file whose stamp is the same as in the last build need not be read.

A part is a file with the results of step 1 for one batch of files. If one file of a batch has changed, the batch needs
a new part, but the results of its other files are copied from the parts of the last build.
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
from gristmill.pipeline.parts import FileKeys, PartReader, is_intact
from gristmill.splits.shared_spans import AnchorKeys, Anchors

# Values that a build computes and the next build reuses, stored in the work folder with a key and a digest.

Value = TypeVar("Value")


def write_cached(path: Path, key: str, value: Any, *, is_private: bool = False) -> None:
    """Store a value with its key and a digest.

    With `is_private`, only the user can read the file. Settings may contain a salt, or an address with a password.
    """
    content = msgspec.msgpack.encode((key, value))
    mode = 0o600 if is_private else 0o666
    write_atomically(path, (hashlib.sha256(content).digest(), content), mode, is_synced=False)


def read_cached(path: Path, key: str, kind: type[Value]) -> Value | None:
    """Return the value stored with this key, or None if the file is missing, damaged or has a different key."""
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
SHORT_KEY_BYTES = 8
"""Length of a stamp hash, and of the prefix of a content key in the index."""
NO_STAMP_HASH = 0
"""Value that replaces the stamp hash of a file without a stamp."""
NOT_READ = bytes(KEY_BYTES)
MAX_OPEN_EARLIER_PARTS = 4
"""Maximum number of earlier parts that are kept open."""


class PreparedFile(NamedTuple):
    """Everything that a part stores about one document."""

    document: TokenizedDocument
    facts: DocumentFacts
    block: bytes
    bands: Keys
    """The document's row of near-duplicate keys. Empty if the build does not look for near-duplicates."""
    positions: npt.NDArray[np.uint32]
    """Positions of the document's anchors (short sequences of tokens, see splits/shared_spans.py)."""
    keys: AnchorKeys
    """Keys of the document's anchors."""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """Content keys of the last build's files, in ascending order, and the part of each file."""

    short_keys: bytes
    """First bytes of the content keys."""
    parts: bytes
    """For each file, the index of its part in `names`."""
    names: list[str]
    """Names of the parts."""


def write_index(context: Context, parts: Sequence[str]) -> None:
    short_keys: list[bytes] = []
    part_indices: list[int] = []
    for index, part in enumerate(parts):
        keys = PartReader(context.prepared, part).keys()
        short_keys += [key[:SHORT_KEY_BYTES] for key in (*keys.documents, *keys.drops)]
        part_indices += [index] * (len(keys.documents) + len(keys.drops))
    unsorted = np.frombuffer(b"".join(short_keys), np.uint64)
    order = np.argsort(unsorted)
    stored = Index(unsorted[order].tobytes(), np.array(part_indices, np.uint32)[order].tobytes(), list(parts))
    write_cached(context.folder / INDEX, context.prepare_key, stored)


class EarlierFiles:
    """Files that the last build prepared, looked up by content key."""

    def __init__(self, path: Path, key: str, prepared: Path) -> None:
        stored = read_cached(path, key, Index) or Index(b"", b"", [])
        self._folder = prepared
        self._short_keys = np.frombuffer(stored.short_keys, np.uint64)
        self._parts = np.frombuffer(stored.parts, np.uint32)
        self._names = stored.names
        self._open_part = lru_cache(MAX_OPEN_EARLIER_PARTS)(self._load)

    def find(self, key: bytes) -> PreparedFile | Drop | None:
        short_key = np.frombuffer(key[:SHORT_KEY_BYTES], np.uint64)[0]
        index = int(np.searchsorted(self._short_keys, short_key))
        if index == len(self._short_keys) or self._short_keys[index] != short_key:
            return None
        earlier = self._open_part(self._names[self._parts[index]])
        return earlier.find(key) if earlier is not None else None

    def _load(self, name: str) -> "_EarlierPart | None":
        """Open a part. Return None if the part is missing or damaged."""
        return _EarlierPart(self._folder, name) if is_intact(self._folder / name) else None


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

    def find(self, key: bytes) -> PreparedFile | Drop | None:
        row = self._rows.get(key)
        if row is None:
            return self._drops.get(key)
        document = self._documents[row]
        anchors: Anchors = self._anchors
        anchor_slice = slice(self._edges[row], self._edges[row + 1]) if len(anchors.counts) else slice(0)
        return PreparedFile(
            document,
            self._facts[row],
            self._content[self._offsets[row] : self._offsets[row + 1]].tobytes(),
            self._bands[row : row + 1],
            anchors.positions[anchor_slice],
            anchors.keys[anchor_slice],
        )


class Stamps(msgspec.Struct, frozen=True, array_like=True):
    """Content keys of the last build's files, sorted by the hashes of their names and stamps."""

    hashes: bytes
    keys: bytes


class StampLog:
    """Collector of the stamps and content keys of a build's files, batch by batch."""

    def __init__(self) -> None:
        self._hashes, self._keys = bytearray(), bytearray()

    def add(self, hashes: bytes, keys: bytes) -> None:
        self._hashes += hashes
        self._keys += keys

    def write(self, context: Context) -> None:
        hashes = np.frombuffer(bytes(self._hashes), np.uint64)
        keys = np.frombuffer(bytes(self._keys), f"V{KEY_BYTES}")
        is_usable = (hashes != NO_STAMP_HASH) & (keys != np.void(NOT_READ))
        order = np.flatnonzero(is_usable)[np.argsort(hashes[is_usable])]
        stamps = Stamps(hashes[order].tobytes(), keys[order].tobytes())
        write_cached(context.folder / STAMPS, context.prepare_key, stamps)


class KnownStamps:
    """Content keys of the last build's files, looked up by stamp hash."""

    def __init__(self, path: Path, key: str) -> None:
        stamps = read_cached(path, key, Stamps) or Stamps(b"", b"")
        self._hashes, self._keys = np.frombuffer(stamps.hashes, np.uint64), stamps.keys

    def find_keys(self, hashes: bytes) -> list[bytes | None]:
        wanted = np.frombuffer(hashes, np.uint64)
        if not len(self._hashes):
            return [None] * len(wanted)
        indices = np.searchsorted(self._hashes, wanted)
        indices[indices == len(self._hashes)] = 0
        is_known = (self._hashes[indices] == wanted) & (wanted != NO_STAMP_HASH)
        return [
            self._keys[KEY_BYTES * index : KEY_BYTES * (index + 1)] if known else None
            for index, known in zip(indices.tolist(), is_known.tolist(), strict=True)
        ]


def hash_stamps(files: Iterable[SourceFile]) -> bytes:
    """Return one hash per file, concatenated. NO_STAMP_HASH stands for a file without a stamp.

    The hash covers the name, stamp and declared license of the file, and whether it may be a translation.
    """
    return b"".join(map(_hash_stamp, files))


def _hash_stamp(file: SourceFile) -> bytes:
    if file.stamp is None:
        return bytes(SHORT_KEY_BYTES)
    content = f"{file.repo}\0{file.path}\0{file.license}\0{file.may_be_translation}\0{file.stamp}".encode()
    return hashlib.blake2b(content, digest_size=SHORT_KEY_BYTES).digest()


def known_stamps(context: Context) -> KnownStamps:
    path = context.folder / STAMPS
    return _load_stamps(path, context.prepare_key, _mtime_ns(path))


@lru_cache(1)
def _load_stamps(path: Path, key: str, mtime_ns: int) -> KnownStamps:  # noqa: ARG001 - a changed file is loaded again
    return KnownStamps(path, key)


def _mtime_ns(path: Path) -> int:
    return path.stat().st_mtime_ns if path.is_file() else 0


def earlier_files(context: Context) -> EarlierFiles:
    """Return the files of the last build. Each process loads the index once per build."""
    path = context.folder / INDEX
    return _load_index(path, context.prepare_key, context.prepared, _mtime_ns(path))


@lru_cache(1)
def _load_index(path: Path, key: str, prepared: Path, mtime_ns: int) -> EarlierFiles:  # noqa: ARG001 - a changed index is loaded again
    return EarlierFiles(path, key, prepared)
