"""Windows -> one stream of tokens: what windows of a document share stands in it once, and behind each its end token.

rows    <s> a b c </s>    <s> b c d </s>    <s> d e </s>     of one file, starts 0, 1, 3
stream  … a b c d e END …                                    and for each row where its content lies in it

Rows of a file that neither overlap nor touch are apart in the stream too, as two documents. A packed row has its end
tokens inside, where files end: it is laid as it is, and is one document whatever it ends in.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.columns import SEGMENTS, Schema
from gristmill.errors import OutputError
from gristmill.formats.batch import Ragged, WindowBatch, require_fitting
from gristmill.naming import counted
from gristmill.records import BY_THEMSELVES
from gristmill.shaping.windows import Indices

WINDOW = np.dtype([("offset", "<i8"), ("count", "<i4"), ("is_framed", "u1")])
"""Of each row: where in the stream its ids are, how many, and whether the special ids go around them."""
PLACE = ("repo", "path", "variant", "variant_seed", "repeat")
"""What the windows of one document have in common, as far as rows tell it."""

Place = tuple[Any, ...]


class Laid(NamedTuple):
    """What some rows add to a stream."""

    content: bytes
    windows: npt.NDArray[Any]
    """A WINDOW for each row."""
    ends: Indices
    """Of the documents that ended: where, end token included. One more may be open."""


class _Window(NamedTuple):
    place: Place | None
    """None: no other continues it."""
    start: int
    content: bytes


class StreamLaying:
    """Lays rows into a stream, batch by batch; a document may go on from one to the next."""

    def __init__(self, schema: Schema, kind: npt.DTypeLike) -> None:
        """`kind`: what ids are in the stream."""
        self._schema, self._kind = schema, np.dtype(kind)
        end_ids = [] if schema.end_id is None or schema.is_packed else [schema.end_id]
        self._end = bytes_of(end_ids, self._kind)
        self._num_bytes = 0
        self._last: _Window | None = None

    def lay(self, batch: WindowBatch) -> Laid:
        is_framed = _are_framed(batch, self._schema)
        content: list[bytes] = []
        offsets: list[int] = []
        ends: list[int] = []
        contents = self._contents(batch.ids, is_framed)
        for window in map(_Window, _places(batch, is_framed), _starts(batch), contents):
            num_shared = self._num_shared(window)
            if num_shared is None:
                if self._last is not None:
                    content.append(self._end)
                    ends.append(self._after(self._end))
                num_shared = 0
            offsets.append(self._num_bytes - num_shared)
            fresh = window.content[num_shared:]
            content.append(fresh)
            self._after(fresh)
            self._last = window
        windows = np.zeros(len(batch), WINDOW)
        windows["offset"] = np.array(offsets, np.int64) // self._kind.itemsize
        windows["count"] = batch.ids.sizes - is_framed * _num_around(self._schema)
        windows["is_framed"] = is_framed
        return Laid(b"".join(content), windows, np.array(ends, np.int64) // self._kind.itemsize)

    def finish(self) -> Laid:
        """Ends the last document."""
        content, ends = b"", []
        if self._last is not None:
            content = self._end
            ends = [self._after(content) // self._kind.itemsize]
            self._last = None
        return Laid(content, np.zeros(0, WINDOW), np.array(ends, np.int64))

    def _after(self, content: bytes) -> int:
        """How far the stream goes, with this at its end."""
        self._num_bytes += len(content)
        return self._num_bytes

    def _num_shared(self, window: _Window) -> int | None:
        """Bytes that the stream ends with, and the window begins with; None: it belongs to another document.

        A window that ends before the last one does would have to look further back. No build makes such.
        """
        last = self._last
        if last is None or window.place is None or window.place != last.place:
            return None
        before = (window.start - last.start) * self._kind.itemsize
        num_shared = len(last.content) - before
        if before < 0 or not 0 <= num_shared <= len(window.content):
            return None
        return num_shared if last.content[before:] == window.content[:num_shared] else None

    def _contents(self, ids: Ragged, is_framed: npt.NDArray[np.bool_]) -> list[bytes]:
        """Each row's ids as bytes, without the special ones around them."""
        longest = int(ids.sizes.max(initial=0))
        if longest > self._schema.length:
            raise OutputError(
                f"a row has {counted(longest, 'id')}, and windows have {self._schema.length} at most: it is not of "
                "this dataset. Check the dataset with gristmill check."
            )
        first, last = int(ids.offsets[0]), int(ids.offsets[-1])
        values = ids.values[first:last]
        require_fitting(values, self._kind)
        raw = values.astype(self._kind, copy=False).tobytes()
        starts = ids.offsets[:-1] - first + is_framed * len(self._schema.prefix)
        ends = ids.offsets[1:] - first - is_framed * len(self._schema.suffix)
        width = self._kind.itemsize
        return [raw[at:to] for at, to in zip((starts * width).tolist(), (ends * width).tolist(), strict=True)]


def bytes_of(ids: Sequence[int], kind: npt.DTypeLike) -> bytes:
    """Some ids as they are in a stream; OutputError where they cannot be."""
    values = np.array(ids, object)  # of any size: an id is not to wrap before it is looked at
    require_fitting(values, kind)
    return values.astype(kind).tobytes()


def _num_around(schema: Schema) -> int:
    return len(schema.prefix) + len(schema.suffix)


def _are_framed(batch: WindowBatch, schema: Schema) -> npt.NDArray[np.bool_]:
    """Which rows are one window between the special ids. A row of several files' windows is more than that."""
    if SEGMENTS in batch.columns:
        return np.zeros(len(batch), np.bool_)
    values, offsets, sizes = batch.ids.values, batch.ids.offsets, batch.ids.sizes
    is_framed: npt.NDArray[np.bool_] = sizes >= _num_around(schema)
    rows = np.flatnonzero(is_framed)
    for number, one in enumerate(schema.prefix):
        is_framed[rows] &= values[offsets[rows] + number] == one
    for number, one in enumerate(reversed(schema.suffix), 1):
        is_framed[rows] &= values[offsets[rows + 1] - number] == one
    return is_framed


def _places(batch: WindowBatch, is_framed: npt.NDArray[np.bool_]) -> list[Place | None]:
    columns = batch.columns
    if not {"path", "start"} <= columns.keys():
        return [None] * len(batch)
    told = (columns[name] for name in PLACE if name in columns)
    places = zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in told), strict=True)
    variants = columns.get("variant") or [""] * len(batch)
    return [
        place if framed and variant not in BY_THEMSELVES else None
        for place, variant, framed in zip(places, variants, is_framed.tolist(), strict=True)
    ]


def _starts(batch: WindowBatch) -> list[int]:
    return batch.columns["start"].tolist() if "start" in batch.columns else [0] * len(batch)
