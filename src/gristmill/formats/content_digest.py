"""What makes two datasets the same, in whichever format: a digest over split, path, start and ids of every window.

Of a document the text stands in the place of the ids.

Of each row 16 bytes of a sha256, so that rows can be digested anywhere; of these, in their order, one sha256 a split.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gristmill.core.columns import SEGMENTS, TEXT
from gristmill.core.errors import DatasetError
from gristmill.core.records import Split
from gristmill.formats.batch import WindowBatch

ROW_BYTES = 16


def row_digests(split: Split, batch: WindowBatch) -> bytes:
    """ROW_BYTES for each row. A row of several files' windows tells all of their places."""
    if SEGMENTS in batch.columns:
        places = list(map(places_of, batch.columns[SEGMENTS]))
    else:
        columns = batch.columns
        places = [
            place_of(repo, path, start)
            for repo, path, start in zip(columns["repo"], columns["path"], columns["start"].tolist(), strict=True)
        ]
    if not batch.has_ids:
        texts = zip(places, batch.columns[TEXT], strict=True)
        return b"".join(row_digest(split, place, text.encode()) for place, text in texts)
    ids = batch.ids.values.astype("<u4").tobytes()
    ends = (4 * batch.ids.offsets).tolist()
    return b"".join(
        row_digest(split, place, ids[start:end]) for place, start, end in zip(places, ends, ends[1:], strict=False)
    )


def places_of(segments: Sequence[Mapping[str, Any]]) -> bytes:
    try:
        return b"".join(place_of(one["repo"], one["path"], one["start"]) for one in segments)
    except (LookupError, TypeError, AttributeError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None


def place_of(repo: str, path: str, start: int) -> bytes:
    return b"%b\0%b\0%d\0" % (repo.encode(), path.encode(), start)


def place_in(split: Split, repo: str, path: str) -> bytes:
    """What the digests of a document's rows begin with; the start of each follows."""
    return b"%b\0%b\0%b\0" % (split.encode(), repo.encode(), path.encode())


def row_digest(split: Split, place: bytes, content: bytes) -> bytes:
    """`content`: ids as little-endian uint32, special tokens in and padding out; or a text as UTF-8."""
    return digests_of([(split.encode(), b"\0", place, content)])


def digests_of(rows: Iterable[tuple[bytes | memoryview, ...]]) -> bytes:
    """Of what each row is made of, one after the other."""
    sha256, join = hashlib.sha256, b"".join
    return join([sha256(join(parts)).digest()[:ROW_BYTES] for parts in rows])


def line_digest(line: bytes) -> bytes:
    """Of all that a row tells, as JSON without its line feed."""
    return hashlib.sha256(line).digest()[:ROW_BYTES]


class Content:
    """The digests of rows, as they come in, in the order of each split -> that of the dataset."""

    def __init__(self) -> None:
        self._splits = {split: hashlib.sha256() for split in Split}

    def add(self, split: Split, digests: bytes) -> None:
        self._splits[split].update(digests)

    def sha256(self) -> str:
        return hashlib.sha256(b"".join(self._splits[split].digest() for split in Split)).hexdigest()
