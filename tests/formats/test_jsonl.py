import json

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig
from gristmill.core.columns import COLUMNS, DECIDED_LATER, When, window_columns
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.records import Variant, VariantKind
from gristmill.core.schema import Schema
from gristmill.formats.document_columns import (
    FILLERS,
    DocumentRows,
    DocumentText,
    Labels,
    batch_of_documents,
    num_emitted,
    window_schema,
)
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.jsonl_rows import batch_of_lines, document_lines, document_sizes, num_more_bytes, num_row_bytes
from gristmill.formats.jsonl_rows import lines_of as lines_of_batch
from gristmill.tokenizers.definition import Definition
from gristmill.windows.cut import WindowShape, cut, lines_of


@st.composite
def schemas(draw):
    met = {When.ALWAYS, *draw(st.sets(st.sampled_from(sorted(set(When) - {When.PACK}))))}
    return Schema(
        columns=window_columns(met),
        length=24,
        vocab_size=1 << 21,
        prefix=draw(st.sampled_from([(), (0,), (0, 50264)])),
        suffix=draw(st.sampled_from([(), (2,), (2, 1000)])),
        pad_id=draw(st.sampled_from([1, 50000])) if When.PAD in met else None,
        end_id=None,
    )


@st.composite
def documents(draw):
    """Random texts with their bytes cut into random tokens, also in the middle of a character."""
    schema = draw(schemas())
    utf8 = draw(st.text(min_size=1, max_size=150)).encode()
    cuts = sorted({0, *draw(st.lists(st.integers(0, len(utf8) - 1), max_size=60)), len(utf8)})
    num_tokens = len(cuts) - 1
    largest = draw(st.sampled_from([9, 65_535, 1 << 20]))
    ids = np.array(draw(st.lists(st.integers(0, largest), min_size=num_tokens, max_size=num_tokens)), np.uint32)
    newlines = [index for index in range(num_tokens) for _ in range(utf8[cuts[index] : cuts[index + 1]].count(b"\n"))]
    content = schema.length - len(schema.prefix) - len(schema.suffix)
    overlap = draw(st.integers(0, content - 1))
    windows = cut(num_tokens, WindowShape(content, overlap, draw(st.sampled_from(["keep", "shift", "drop"])), 3))
    text = (
        DocumentText(utf8, np.array(cuts, np.int64)) if any(COLUMNS[one].needs_text for one in schema.columns) else None
    )
    path = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
    rows = DocumentRows("repo", path, "python", ids, np.array(newlines, np.int32), windows, text)
    if draw(st.booleans()):
        repeats = draw(st.lists(st.integers(0, 1200), min_size=len(windows), max_size=len(windows)))
        rows = rows._replace(repeats=np.array(repeats, np.int64), weight=draw(st.floats(0, 100)))
    if draw(st.booleans()):
        rows = rows._replace(variant=Variant(draw(st.sampled_from(VariantKind)), draw(st.integers(0, 1 << 31))))
    if draw(st.booleans()):
        rows = rows._replace(labels=Labels(ids[::-1].copy(), windows))
    return schema, rows, utf8


@settings(max_examples=400, deadline=None)
@given(documents())
def test_rows_say_what_the_windows_are_and_sizes_are_known_before(made):
    schema, rows, utf8 = made
    formatted = document_lines(rows, schema)
    assert num_row_bytes(rows, schema) == sum(map(len, formatted))
    parsed = [json.loads(row) for row in formatted]
    first, last = lines_of(rows.windows, rows.newline_tokens)
    num_ids = 0
    for index, row in enumerate(parsed):
        start, end = int(rows.windows.starts[index]), int(rows.windows.ends[index])
        ids = [*schema.prefix, *rows.ids[start:end].tolist(), *schema.suffix]
        padding = 0 if schema.pad_id is None else schema.length - len(ids)
        assert row["input_ids"] == ids + [schema.pad_id] * padding
        assert row.get("attention_mask") == (None if schema.pad_id is None else [1] * len(ids) + [0] * padding)
        assert (row["path"], row["repo"], row["language"]) == (rows.path, "repo", "python")
        assert row["lines"] == [first[index], last[index]]
        assert (row["start"], row["fresh"]) == (start, rows.windows.fresh[index])
        assert tuple(row) == schema.columns
        assert None not in row.values()
        clean = [*schema.prefix, *rows.clean.ids[start:end].tolist(), *schema.suffix] + [-100] * padding
        assert row.get("labels", clean) == clean
        assert row.get("repeat", 0) == (
            rows.repeats[index] if "repeat" in schema.columns and rows.repeats is not None else 0
        )
        assert row.get("weight", 1) == (rows.weight if "weight" in schema.columns else 1)
        kind, seed = (rows.variant.kind, rows.variant.seed) if rows.variant else ("", 0)
        assert (row.get("variant", kind), row.get("variant_seed", seed)) == (kind, seed)
        num_ids += len(row["input_ids"])
    assert num_emitted(rows.windows, schema) == num_ids
    if (
        "text" in schema.columns
        and rows.windows.num_tail_tokens_dropped == 0
        and (rows.windows.starts[1:] == rows.windows.ends[:-1]).all()
    ):
        assert "".join(row["text"] for row in parsed).encode() == utf8


@settings(max_examples=200, deadline=None)
@given(documents())
def test_rows_are_one_compact_line(made):
    schema, rows, _ = made
    for row in document_lines(rows, schema):
        assert row.endswith(b"}\n")
        assert row.count(b"\n") == 1
        # orjson, as Python's own module spells a small weight another way: 1e-07, not 1e-7.
        assert orjson.dumps(orjson.loads(row)) + b"\n" == row or b"\x7f" in row or b"\\u" in row


@settings(max_examples=200, deadline=None)
@given(documents())
def test_windows_by_column_are_those_of_the_rows(made):
    schema, rows, _ = made
    lines = 2 * document_lines(rows, schema)
    batch = batch_of_documents([rows, rows], schema)
    assert lines_of_batch(batch, schema) == lines
    read = batch_of_lines(lines, schema)
    assert list(batch.columns) == list(read.columns)
    assert batch.ids.values.dtype == read.ids.values.dtype


@settings(max_examples=200, deadline=None)
@given(documents())
def test_what_step_two_adds_to_rows_is_known_before(made):
    schema, rows, _ = made
    rows = rows._replace(repeats=None, weight=1.0, variant=None)
    plain = document_sizes(rows, schema.plain)
    assert [len(line) for line in document_lines(rows, schema)] == (plain + num_more_bytes(schema)).tolist()
    assert not {COLUMNS[name].when for name in schema.plain.columns} & DECIDED_LATER


def test_every_column_of_a_window_is_filled():
    of_window = {name for name, column in COLUMNS.items() if column.is_of_window}
    assert {"input_ids", *of_window} == set(FILLERS), "add what fills the column to FILLERS"


def test_padding_needs_a_padding_token():
    definition = Definition(name="bare", json=b'{"model": {"vocab": {"a": 0}}}', config=b"{}")
    with pytest.raises(ConfigError, match="'bare' has no padding token"):
        window_schema(Config(sources=["a"], out="b", output=OutputConfig(pad=True)), definition, 1)


def test_rows_are_found_by_number(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [f'{{"n":{number}}}\n'.encode() for number in range(1000)]
    path.write_bytes(b"".join(lines))
    file = JsonlFile(path, 1000)
    assert [file[999], file[0], file[500]] == [lines[999], lines[0], lines[500]]
    assert list(file) == lines


def test_a_file_of_another_length_is_damaged(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n{}\n")
    with pytest.raises(DatasetError, match="damaged: 2 rows, the manifest says 3"):
        JsonlFile(path, 3)[0]
