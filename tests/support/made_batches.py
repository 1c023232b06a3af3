"""Hypothesis strategies for schemas and batches of windows, for tests of formats."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from gristmill.core.columns import COLUMNS, SEGMENT_POSITION_KEYS, Kind, When
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, WindowBatch, slice_batch
from gristmill.formats.jsonl_rows import format_lines

LENGTH = 12
NAMES = st.one_of(
    st.sampled_from(["a.py", "", "ä/ö ü.rs", "名前/🦀.py", 'quote".c', "line\nfeed\0"]), st.text(max_size=9)
)
TEXTS = st.one_of(st.just(""), st.text(max_size=20))
NUMBERS = st.integers(0, 1 << 40)
SMALL = st.integers(0, (1 << 31) - 1)
WEIGHTS = st.floats(0, 1e6)
VALUES = {
    Kind.TEXT: NAMES,
    Kind.NUMBER: NUMBERS,
    Kind.FRACTION: WEIGHTS,
    Kind.NUMBERS: st.lists(SMALL, min_size=2, max_size=2),
}
SEGMENT_VALUES = {
    **{name: VALUES[one.kind] for name, one in COLUMNS.items() if one.is_per_window and name != "labels"},
    **dict.fromkeys(SEGMENT_POSITION_KEYS, NUMBERS),
    "text": TEXTS,
}
ALWAYS = {When.ALWAYS, When.WINDOWS}
BASE = tuple(name for name, one in COLUMNS.items() if one.is_per_window and one.when in ALWAYS)
MORE = tuple(name for name, one in COLUMNS.items() if one.is_per_window and one.when not in {*ALWAYS, When.DOCUMENTS})
PACKED = tuple(name for name, one in COLUMNS.items() if one.when is When.PACK)


@st.composite
def schemas_and_batches(draw):
    """Draw a schema and a batch of rows with that schema."""
    is_padded, is_packed = draw(st.booleans()), draw(st.booleans())
    others = [*BASE, *(["attention_mask"] if is_padded else []), *(name for name in MORE if draw(st.booleans()))]
    if is_packed:
        others = list(PACKED)
    vocab_size = draw(st.sampled_from([100, 1 << 16, (1 << 16) + 1, 1 << 20]))
    pad_id = 1 if "attention_mask" in others else None
    schema = Schema(("input_ids", *others), LENGTH, vocab_size, (0,), (2,), pad_id, 2)
    return schema, draw(batches(schema))


@st.composite
def batches(draw, schema):
    sizes = draw(st.lists(st.integers(0, LENGTH), max_size=7))
    ids = Ragged.of([draw(lists(0, schema.vocab_size - 1, size)) for size in sizes], schema.id_type)
    keys = list(dict.fromkeys(["repo", "path", "start", *draw(st.lists(st.sampled_from(sorted(SEGMENT_VALUES))))]))
    values = st.tuples(*(SEGMENT_VALUES[key] for key in keys))
    segments = st.lists(values.map(lambda row: dict(zip(keys, row, strict=True))), min_size=1, max_size=3)
    columns = {name: column(draw, schema, name, sizes, segments) for name in schema.batch_columns}
    return WindowBatch(ids, columns)


def column(draw, schema, name, sizes, segments):
    kind = COLUMNS[name].kind
    if name == "lines":
        return Ragged.of([draw(lists(1, 1 << 20, 2)) for _ in sizes])
    if kind is Kind.NUMBERS:
        return Ragged.of([draw(lists(0, schema.vocab_size - 1, size)) for size in sizes])
    if kind is Kind.NUMBER:
        return np.array([draw(NUMBERS) for _ in sizes], np.int64)
    if kind is Kind.FRACTION:
        return np.array([draw(WEIGHTS) for _ in sizes], np.float64)
    return [draw(segments if kind is Kind.OBJECTS else TEXTS if name == "text" else NAMES) for _ in sizes]


def lists(min_value, max_value, size):
    return st.lists(st.integers(min_value, max_value), min_size=size, max_size=size)


def plain_schema(**changes):
    return Schema(("input_ids", *BASE), LENGTH, 50_265, (0,), (2,), None, 2)._replace(**changes)


def plain_batch(num_rows, schema=None):
    """Return a batch of many rows without hypothesis. Row `n` has n % schema.length + 1 ids."""
    schema = schema or plain_schema()
    rng = np.random.default_rng(0)
    sizes = np.arange(num_rows) % schema.length + 1
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    values = {Kind.TEXT: ["a"] * num_rows, Kind.NUMBER: np.arange(num_rows), Kind.FRACTION: np.ones(num_rows)}
    columns = {
        **{name: values.get(COLUMNS[name].kind) for name in BASE},
        "path": [f"src/{number // 10}.py" for number in range(num_rows)],
        "repo": ["r"] * num_rows,
        "language": ["python"] * num_rows,
        "lines": Ragged(np.arange(2 * num_rows), 2 * np.arange(num_rows + 1)),
        "start": np.arange(num_rows),
        "fresh": sizes,
    }
    return WindowBatch(Ragged(rng.integers(0, schema.vocab_size, offsets[-1]).astype(schema.id_type), offsets), columns)


def split_batch_at(batch, positions):
    """Split a batch at `positions` and return the batches. Some of them may be empty."""
    edges = [0, *sorted(position % (len(batch) + 1) for position in positions), len(batch)]
    return [slice_batch(batch, start, stop) for start, stop in pairwise(edges)]


def require_same(batch, expected, schema):
    """Assert that the array types are those of the schema and that both batches give the same bytes as JSON rows."""
    assert batch.ids.values.dtype == schema.id_type
    assert list(batch.columns) == list(schema.batch_columns)
    assert format_lines(batch, schema) == format_lines(expected, schema)


def bytes_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
