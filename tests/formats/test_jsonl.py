import json
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig
from gristmill.core.columns import COLUMNS, STEP_2_CONDITIONS, When, window_columns
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.records import FimForm, FimWindow, MiddleKind, Split, Variant, VariantKind
from gristmill.core.schema import Schema
from gristmill.formats.content_digest import row_digests
from gristmill.formats.document_columns import (
    FILLERS,
    DocumentText,
    FimColumns,
    Rows,
    Tokens,
    batch_from_rows,
    digest_rows,
    emitted_tokens_per_row,
    window_schema,
)
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.jsonl_rows import format_lines as lines_of_batch
from gristmill.formats.jsonl_rows import num_added_bytes, parse_lines, row_content, row_lines, row_sizes
from gristmill.tokenizers.definition import Definition
from gristmill.windows.cut import Windows, WindowShape, concatenate_windows, cut


@st.composite
def schemas(draw):
    always = draw(st.sampled_from([{When.WINDOWS}, {When.DOCUMENTS, When.TEXT}]))
    others = set(When) - {When.PACK, When.WINDOWS, When.DOCUMENTS}
    others -= {When.PAD, When.NOISE} if When.DOCUMENTS in always else set()
    met = {When.ALWAYS, *always, *draw(st.sets(st.sampled_from(sorted(others))))}
    has_ids = When.WINDOWS in met
    return Schema(
        columns=window_columns(met),
        length=24,
        vocab_size=1 << 21,
        prefix=draw(st.sampled_from([(), (0,), (0, 50264)])) if has_ids else (),
        suffix=draw(st.sampled_from([(), (2,), (2, 1000)])) if has_ids else (),
        closing=draw(st.sampled_from([(), (7,)])) if has_ids else (),
        pad_id=draw(st.sampled_from([1, 50000])) if When.PAD in met else None,
        end_id=None,
    )


class DocumentCase(NamedTuple):
    """A document, and the expected content of its rows."""

    document: SimpleNamespace
    utf8: bytes
    starts: list[int]
    """Byte offset of each token, followed by the length of the text."""
    ids: list[int]
    newline_tokens: list[int]
    windows: Windows
    repeats: list[int]
    clean_ids: list[int] | None
    fim: list[FimWindow]
    """One entry per window."""
    closes: list[bool]
    """One entry per window: True if the window ends its document."""


@st.composite
def documents(draw, schema):
    """Generate a random text, and cut the text into tokens at random bytes, even inside characters."""
    utf8 = draw(st.text(min_size=1, max_size=150)).encode()
    cuts = sorted({0, *draw(st.lists(st.integers(0, len(utf8) - 1), max_size=60)), len(utf8)})
    num_tokens = len(cuts) - 1
    largest = draw(st.sampled_from([9, 65_535, 1 << 20]))
    ids = draw(st.lists(st.integers(0, largest), min_size=num_tokens, max_size=num_tokens))
    newlines = [index for index in range(num_tokens) for _ in range(utf8[cuts[index] : cuts[index + 1]].count(b"\n"))]
    content = schema.length - schema.num_special
    overlap = draw(st.integers(0, content - 1))
    windows = cut(num_tokens, WindowShape(content, overlap, draw(st.sampled_from(["keep", "shift", "drop"])), 3))
    repeats = draw(st.lists(st.integers(0, 1200), min_size=len(windows), max_size=len(windows)))
    variant = (
        Variant(draw(st.sampled_from(VariantKind)), draw(st.integers(0, 1 << 31))) if draw(st.booleans()) else None
    )
    document = SimpleNamespace(
        repo="repo",
        path=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
        language=draw(st.sampled_from(["python", "go"])),
        weight=draw(st.floats(0, 100)),
        variant=variant,
    )
    clean_ids = ids[::-1] if draw(st.booleans()) else None
    plain = FimWindow(0, 1, 1)
    rewritten = FimWindow(0, 1, 1, FimForm.SPM, MiddleKind.LINES, 12)
    one_per_window = {"min_size": len(windows), "max_size": len(windows)}
    fim = draw(st.lists(st.sampled_from([plain, rewritten]), **one_per_window))
    closes = draw(st.lists(st.booleans(), **one_per_window))
    return DocumentCase(document, utf8, cuts, ids, newlines, windows, repeats, clean_ids, fim, closes)


@st.composite
def cases(draw):
    schema = draw(schemas())
    made = draw(st.lists(documents(schema), min_size=1, max_size=3))
    tokens = Tokens(
        ids=np.concatenate([np.array(one.ids, np.uint32) for one in made]),
        edges=np.cumsum([0, *(len(one.ids) for one in made)]),
        newline_tokens=np.concatenate([np.array(one.newline_tokens, np.int32) for one in made]),
        newline_edges=np.cumsum([0, *(len(one.newline_tokens) for one in made)]),
        texts=[DocumentText(one.utf8, np.array(one.starts, np.int64)) for one in made],
        clean_ids=[None if one.clean_ids is None else np.array(one.clean_ids, np.uint32) for one in made],
    )
    rows = Rows(
        documents=[one.document for one in made],
        tokens=tokens,
        document_index=np.repeat(np.arange(len(made)), [len(one.windows) for one in made]),
        windows=concatenate_windows([one.windows for one in made]),
        repeats=np.concatenate([np.array(one.repeats, np.int64) for one in made]),
        fim=FimColumns.of([window for one in made for window in one.fim]),
        ends_document=np.array([closes for one in made for closes in one.closes], np.bool_),
    )
    return schema, made, rows


def expected_rows(schema, made):
    """Yield the expected rows, with each column computed from its definition."""
    for one in made:
        ranges = zip(one.windows.starts.tolist(), one.windows.ends.tolist(), one.windows.fresh.tolist(), strict=True)
        for (start, end, fresh), repeat, fim, closes in zip(ranges, one.repeats, one.fim, one.closes, strict=True):
            suffix = [*schema.suffix, *(schema.closing if closes else ())]
            ids = [*schema.prefix, *one.ids[start:end], *suffix]
            clean = [*schema.prefix, *(one.clean_ids or one.ids)[start:end], *suffix]
            padding = 0 if schema.pad_id is None else schema.length - len(ids)
            lines = [1 + sum(token < at for token in one.newline_tokens) for at in (start, end - 1)]
            variant = one.document.variant
            row = {
                "input_ids": ids + [schema.pad_id] * padding,
                "attention_mask": [1] * len(ids) + [0] * padding,
                "labels": clean + [-100] * padding,
                "path": one.document.path,
                "repo": "repo",
                "language": one.document.language,
                "lines": lines,
                "start": start,
                "tokens": end - start,
                "fresh": fresh,
                "text": text_between(one, start, end),
                "repeat": repeat,
                "weight": one.document.weight,
                "variant": variant.kind if variant else "",
                "variant_seed": variant.seed if variant else 0,
                "fim": fim.form or "",
                "middle": fim.middle or "",
                "middle_tokens": fim.num_middle_tokens,
            }
            yield {name: row[name] for name in schema.columns}


def text_between(one, start, end):
    """Return the text of tokens `start` to `end`. A character split between two tokens belongs to the first of them."""
    at, to = one.starts[start], one.starts[end]
    while at < len(one.utf8) and one.utf8[at] & 0xC0 == 0x80:
        at += 1
    while to < len(one.utf8) and one.utf8[to] & 0xC0 == 0x80:
        to += 1
    return one.utf8[at:to].decode()


@settings(max_examples=400, deadline=None)
@given(cases())
def test_rows_describe_their_windows_and_sizes_are_computed_in_advance(made):
    schema, documents, rows = made
    lines = row_lines(rows, schema)
    assert row_sizes(rows, schema).tolist() == list(map(len, lines))
    assert row_content(rows, schema) == b"".join(lines)
    parsed = [json.loads(line) for line in lines]
    assert parsed == list(expected_rows(schema, documents))
    assert all(tuple(row) == schema.columns for row in parsed)
    assert emitted_tokens_per_row(rows, schema).tolist() == list(map(num_tokens, parsed))
    assert rows.sum_per_document(emitted_tokens_per_row(rows, schema)).tolist() == [
        sum(map(num_tokens, expected_rows(schema, [one]))) for one in documents
    ]


def num_tokens(row):
    return len(row["input_ids"]) if "input_ids" in row else row["tokens"]


@settings(max_examples=200, deadline=None)
@given(cases())
def test_each_row_is_one_compact_line(made):
    schema, _, rows = made
    for row in row_lines(rows, schema):
        assert row.endswith(b"}\n")
        assert row.count(b"\n") == 1
        # Use orjson because the json module writes a small weight differently: 1e-07 instead of 1e-7.
        assert orjson.dumps(orjson.loads(row)) + b"\n" == row or b"\x7f" in row or b"\\u" in row


@settings(max_examples=200, deadline=None)
@given(cases(), st.randoms(use_true_random=False))
def test_batches_have_the_same_values_as_rows(made, random):
    schema, _, rows = made
    numbers = random.choices(range(rows.num_rows), k=random.randrange(5)) if rows.num_rows else []
    for some in (rows, rows.select(np.array(numbers, np.int64))):
        lines = row_lines(some, schema)
        batch = batch_from_rows(some, schema)
        assert lines_of_batch(batch, schema) == lines
        read = parse_lines(lines, schema)
        assert list(batch.columns) == list(read.columns)
        assert batch.ids.values.dtype == read.ids.values.dtype
        assert digest_rows(some, schema, Split.TRAIN) == row_digests(Split.TRAIN, batch)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_bytes_that_step_two_adds_are_computed_in_advance(made):
    schema, documents, rows = made
    for one in documents:
        one.document.weight, one.document.variant = 1.0, None
    rows = rows._replace(repeats=None, fim=None)
    plain = row_sizes(rows, schema.without_step_2_columns)
    assert [len(line) for line in row_lines(rows, schema)] == (plain + num_added_bytes(schema)).tolist()
    assert not {COLUMNS[name].when for name in schema.without_step_2_columns.columns} & STEP_2_CONDITIONS


def test_every_window_column_has_a_filler():
    of_window = {name for name, column in COLUMNS.items() if column.is_per_window}
    assert {"input_ids", *of_window} == set(FILLERS), "add a function for the column to FILLERS"


def test_padding_requires_a_padding_token():
    definition = Definition(name="bare", json=b'{"model": {"vocab": {"a": 0}}}', config=b"{}")
    with pytest.raises(ConfigError, match="'bare' has no padding token"):
        window_schema(Config(sources=["a"], out="b", output=OutputConfig(pad=True)), definition, 1)


def test_rows_are_read_by_number(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [f'{{"n":{number}}}\n'.encode() for number in range(1000)]
    path.write_bytes(b"".join(lines))
    file = JsonlFile(path, 1000)
    assert [file[999], file[0], file[500]] == [lines[999], lines[0], lines[500]]
    assert list(file) == lines


def test_file_with_wrong_number_of_rows_is_reported(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n{}\n")
    with pytest.raises(DatasetError, match="damaged: it has 2 rows, but the manifest records 3"):
        JsonlFile(path, 3)[0]
