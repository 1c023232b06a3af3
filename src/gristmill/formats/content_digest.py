"""Digest of the content of a dataset, over the split, repository, path, start and ids of every window.

The digest is the same in every format. If rows are documents, it covers their text instead of ids.

Rows are hashed separately, so that several processes can share the work. A row hash is the first 16 bytes of a SHA-256.
The digest of a split is the SHA-256 of its row hashes in row order, and the digest of the dataset is the SHA-256 of the
digests of its splits.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gristmill.core.columns import SEGMENTS, TEXT
from gristmill.core.errors import DatasetError
from gristmill.core.records import Split
from gristmill.formats.batch import WindowBatch

ROW_HASH_BYTES = 16


def row_digests(split: Split, batch: WindowBatch) -> bytes:
    """Return the concatenated row hashes, of ROW_HASH_BYTES bytes each.

    The hash of a packed row covers the repository, path and start of each segment.
    """
    if SEGMENTS in batch.columns:
        keys = list(map(segments_key, batch.columns[SEGMENTS]))
    else:
        columns = batch.columns
        keys = [
            window_key(repo, path, start)
            for repo, path, start in zip(columns["repo"], columns["path"], columns["start"].tolist(), strict=True)
        ]
    if not batch.has_ids:
        texts = zip(keys, batch.columns[TEXT], strict=True)
        return b"".join(row_digest(split, key, text.encode()) for key, text in texts)
    ids = batch.ids.values.astype("<u4").tobytes()
    ends = (4 * batch.ids.offsets).tolist()
    return b"".join(
        row_digest(split, key, ids[start:end]) for key, start, end in zip(keys, ends, ends[1:], strict=False)
    )


def segments_key(segments: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode the repository, path and start of each segment of a packed row."""
    try:
        return b"".join(window_key(one["repo"], one["path"], one["start"]) for one in segments)
    except (LookupError, TypeError, AttributeError):
        raise DatasetError(
            "a packed row is damaged: one of its segments has no valid repo, path or start. Build the dataset again."
        ) from None


def window_key(repo: str, path: str, start: int) -> bytes:
    """Encode the repository, path and start of a window."""
    return b"%b\0%b\0%d\0" % (repo.encode(), path.encode(), start)


def document_key(split: Split, repo: str, path: str) -> bytes:
    """Return the bytes with which the hash input of each row of a document begins. The column `start` follows."""
    return b"%b\0%b\0%b\0" % (split.encode(), repo.encode(), path.encode())


def row_digest(split: Split, key: bytes, content: bytes) -> bytes:
    """Hash one row.

    `content` is the ids as little-endian uint32, with special tokens and without padding, or the text as UTF-8.
    """
    return hash_rows([(split.encode(), b"\0", key, content)])


def hash_rows(rows: Iterable[tuple[bytes | memoryview, ...]]) -> bytes:
    """Hash rows, each given as a tuple of byte strings, and concatenate the hashes."""
    sha256, join = hashlib.sha256, b"".join
    return join([sha256(join(parts)).digest()[:ROW_HASH_BYTES] for parts in rows])


def line_digest(line: bytes) -> bytes:
    """Hash all columns of a row, given as a JSON line without the line feed."""
    return hashlib.sha256(line).digest()[:ROW_HASH_BYTES]


class ContentDigest:
    """Computes the digest of a dataset. The caller adds row hashes in the row order of each split."""

    def __init__(self) -> None:
        self._splits = {split: hashlib.sha256() for split in Split}

    def add(self, split: Split, digests: bytes) -> None:
        self._splits[split].update(digests)

    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self._splits[split].digest() for split in Split)).hexdigest()
