"""Generated batches of windows that formats must write and read back unchanged."""

import itertools

import numpy as np
from hypothesis import strategies as st

from gristmill.core.columns import COLUMNS, MASK, Kind, When, row_columns
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, WindowBatch, slice_batch

PLAIN = row_columns({When.ALWAYS, When.WINDOWS})
EVERY = row_columns(set(When) - {When.PAD, When.PACK, When.DOCUMENTS})
PACKED = row_columns({When.ALWAYS, When.WINDOWS, When.PACK})
SEGMENT = {"repo": "r", "path": "ä/b.py", "language": "Python", "start": 0, "lines": [1, 2]}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
int64s = st.integers(-(2**63), 2**63 - 1)
segments = st.fixed_dictionaries({"repo": texts, "path": texts, "start": st.integers(0, 2**53)})


def schema_of(columns=PLAIN, length=300, vocab_size=50_265, pad_id=None):
    names = {*columns, *([] if pad_id is None else [MASK])}
    return Schema(tuple(name for name in COLUMNS if name in names), length, vocab_size, (0,), (2,), pad_id, 2)


schemas = st.builds(
    schema_of,
    columns=st.sampled_from([PLAIN, EVERY]),
    length=st.sampled_from([3, 300]),
    vocab_size=st.sampled_from([100, 1 << 16, (1 << 16) + 1, 1 << 31]),
    pad_id=st.sampled_from([None, 1]),
) | st.just(schema_of(PACKED))


@st.composite
def batches(draw, schema, min_ids=1, max_rows=6):
    num_rows = draw(st.integers(1, max_rows))
    sizes = st.integers(min_ids, schema.length)
    columns = {name: draw(_column(name, schema, num_rows, sizes)) for name in schema.batch_columns}
    return WindowBatch(draw(_numbers(num_rows, sizes, schema.vocab_size - 1, schema.id_type)), columns)


def _column(name, schema, num_rows, sizes):
    kind = COLUMNS[name].kind
    if kind is Kind.NUMBERS:
        return _numbers(num_rows, st.just(2) if name == "lines" else sizes, min(schema.vocab_size, 1 << 31) - 1)
    if kind is Kind.NUMBER:
        return st.lists(int64s, min_size=num_rows, max_size=num_rows).map(lambda values: np.array(values, np.int64))
    if kind is Kind.FRACTION:
        return st.lists(st.floats(0, 9), min_size=num_rows, max_size=num_rows).map(np.array)
    one = texts if kind is Kind.TEXT else st.lists(segments, max_size=2)
    return st.lists(one, min_size=num_rows, max_size=num_rows)


@st.composite
def _numbers(draw, num_rows, sizes, max_value, dtype=np.int64):
    """Draw lists of numbers. Only their lengths and a random seed are drawn, because drawing each value is slow."""
    lengths = draw(st.lists(sizes, min_size=num_rows, max_size=num_rows))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    values = random.integers(0, max_value, sum(lengths), endpoint=True).astype(dtype)
    values[:1] = max_value
    return Ragged(values, np.cumsum([0, *lengths]))


def make_batch(schema, num_rows, seed=1):
    """Return a batch like that of a build, with rows of varying lengths and repeated names."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, schema.length, num_rows, endpoint=True)
    make_column = {
        Kind.TEXT: lambda: [f"tests/naïve_{number // 3}.py" for number in range(num_rows)],
        Kind.NUMBER: lambda: random.integers(0, 1 << 40, num_rows),
        Kind.FRACTION: lambda: random.random(num_rows),
        Kind.NUMBERS: lambda: Ragged(random.integers(0, 1 << 15, sizes.sum()), np.cumsum([0, *sizes])),
        Kind.OBJECTS: lambda: [[SEGMENT] * (number % 3) for number in range(num_rows)],
    }
    ids = random.integers(0, schema.vocab_size, sizes.sum()).astype(schema.id_type)
    columns = {name: make_column[COLUMNS[name].kind]() for name in schema.batch_columns}
    if "lines" in columns:
        columns["lines"] = Ragged(np.arange(2 * num_rows), np.arange(num_rows + 1) * 2)
    return WindowBatch(Ragged(ids, np.cumsum([0, *sizes])), columns)


def split_batch(batch, edges):
    """Split a batch at `edges`, which are taken modulo its length, and return the batches."""
    bounds = sorted({0, len(batch), *(edge % len(batch) for edge in edges)})
    return [slice_batch(batch, start, stop) for start, stop in itertools.pairwise(bounds)]


def require_same(found, expected):
    assert found.ids.values.dtype == expected.ids.values.dtype
    assert list(found.columns) == list(expected.columns)
    for name, one, other in (("input_ids", found.ids, expected.ids), *_pairs(found, expected)):
        if isinstance(other, Ragged):
            assert np.array_equal(one.values, other.values), name
            assert np.array_equal(one.offsets, other.offsets), name
        else:
            assert np.array_equal(one, other) if isinstance(other, np.ndarray) else one == other, name


def _pairs(found, expected):
    return [(name, found.columns[name], column) for name, column in expected.columns.items()]
