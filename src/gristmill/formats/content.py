"""What makes two datasets the same, in whichever format: a digest over split, path, start and ids of every window.

Of each row 16 bytes of a sha256, so that rows can be digested anywhere; of these, in their order, one sha256 a split.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gristmill.errors import DatasetError
from gristmill.formats.batch import SEGMENTS, WindowBatch
from gristmill.records import Split

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
    return b"%b/%b\0%d\0" % (repo.encode(), path.encode(), start)


def row_digest(split: Split, place: bytes, ids: bytes) -> bytes:
    """`ids`: as little-endian uint32, special tokens in and padding out."""
    return hashlib.sha256(b"".join((split.encode(), b"\0", place, ids))).digest()[:ROW_BYTES]


def content_of(rows: Mapping[Split, Iterable[bytes]]) -> str:
    """The digests of all rows -> that of the dataset."""
    whole = hashlib.sha256()
    for split in Split:
        of_split = hashlib.sha256()
        for some in rows.get(split, ()):
            of_split.update(some)
        whole.update(of_split.digest())
    return whole.hexdigest()
