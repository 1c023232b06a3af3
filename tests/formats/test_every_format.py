"""What every format of the table must do: a format that forgets one of these fails here, by name."""

import json
import tempfile
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.columns import COLUMNS
from gristmill.core.manifest import facts_of
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.formats.batch import are_alike, between
from gristmill.formats.format import Target, folder_of, format_named
from gristmill.formats.jsonl_rows import lines_of
from gristmill.formats.shares import AllFiles, Share, write_share
from support.chunked_batches import EVERY, PACKED, many, schema_of
from support.library_readers import ask
from support.made_batches import bytes_in, cut_at, made, require_same
from support.megatron_index import parsed_idx
from support.source_trees import ROOT

PLACES = st.lists(st.integers(0, 10), max_size=3)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None)
@given(both=made(), cuts=st.tuples(PLACES, PLACES), start=st.integers(0, 8), stop=st.integers(0, 8))
def test_rows_come_back_and_bytes_do_not_depend_on_batches(name, both, cuts, start, stop):
    schema, batch = both
    places, others = cuts
    form = format_named(name)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as again:
        target = Target(Path(folder), Split.TRAIN, schema)
        names = form.write(cut_at(batch, places), target)
        assert sorted(names) == list(bytes_in(target.folder))
        form.write(cut_at(batch, others), target._replace(folder=Path(again)))
        form.write(cut_at(batch, others), target)  # over what is there
        assert bytes_in(Path(again)) == bytes_in(target.folder)
        rows = form.open(target.folder, Split.TRAIN, schema)
        assert len(rows) == len(batch)
        require_same(rows.read(0, len(rows)), batch, schema)
        stop = min(stop, len(batch))
        require_same(rows.read(min(start, stop), stop), between(batch, min(start, stop), stop), schema)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None)
@given(both=made(), places=PLACES)
def test_several_tasks_write_a_split_as_one_does(name, both, places):
    schema, batch = both
    form = format_named(name)
    documents = {0, *(np.flatnonzero(~are_alike(batch)) + 1).tolist(), len(batch)}
    edges = sorted({0, len(batch), *(place for place in places if place in documents)})
    shares = [
        Share(name, Split.TRAIN, stop - first, first, number, len(edges) - 1)
        for number, (first, stop) in enumerate(pairwise(edges))
    ]
    with tempfile.TemporaryDirectory() as together, tempfile.TemporaryDirectory() as alone:
        folder_of(Path(together), name).mkdir(exist_ok=True)
        files = AllFiles()
        batches = {share: [between(batch, share.first, share.stop)] for share in shares}
        written = ((share, write_share(share, Path(together), schema, batches[share])) for share in shares)
        files.add_all(written, Path(together), schema, map)
        assert sorted(files.facts) == list(bytes_in(Path(together)))
        assert all(facts.sha256 == facts_of(Path(together, file)).sha256 for file, facts in files.facts.items())
        rows = form.open(folder_of(Path(together), name), Split.TRAIN, schema)
        if len(batch):
            require_same(rows.read(0, len(rows)), batch, schema)
            form.write([batch], Target(Path(alone), Split.TRAIN, schema))
        if form.join is not None and form.is_all_ours:
            assert bytes_in(folder_of(Path(together), name)) == bytes_in(Path(alone))


def test_made_rows_have_every_column():
    assert {*EVERY, *PACKED, "attention_mask"} == set(COLUMNS) - {"tokens"}, "which only documents have"


def rows_of_jsonl(folder, _schema):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def rows_of_parquet(folder, _schema):
    from pyarrow import parquet

    return parquet.read_table(folder / "train.parquet").to_pylist()


def rows_of_arrow(folder, _schema):
    from datasets import load_from_disk

    return list(load_from_disk(str(folder / "train")))


def rows_of_stream(folder, schema, ids):
    rows = [json.loads(line) for line in (folder / "train.rows.jsonl").read_text().splitlines()]
    for row, (offset, count, is_framed) in zip(rows, np.load(folder / "train.windows.npy").tolist(), strict=True):
        own = ids[offset : offset + count].tolist()
        row["input_ids"] = [*schema.prefix, *own, *schema.suffix] if is_framed else own
    return rows


def rows_of_npy(folder, schema):
    return rows_of_stream(folder, schema, np.load(folder / "train.npy"))


def rows_of_bin(folder, schema):
    return rows_of_stream(folder, schema, np.fromfile(folder / "train.bin", "<u2"))


def rows_of_megatron(folder, schema):
    kind, lengths, pointers, _ = parsed_idx((folder / "train.idx").read_bytes())
    content = (folder / "train.bin").read_bytes()
    parts = [np.frombuffer(content, kind, size, at) for size, at in zip(lengths, pointers, strict=True)]
    return rows_of_stream(folder, schema, np.concatenate(parts))


def rows_of_library(folder, do):
    ask({"do": do, "folder": folder / "train", "rows": folder / "read.jsonl"})
    return [json.loads(line) for line in (folder / "read.jsonl").read_text().splitlines()]


READERS = {
    "jsonl": rows_of_jsonl,
    "parquet": rows_of_parquet,
    "arrow": rows_of_arrow,
    "npy": rows_of_npy,
    "bin": rows_of_bin,
    "megatron": rows_of_megatron,
    "mds": lambda folder, _schema: rows_of_library(folder, "read_mds"),
    "litdata": lambda folder, _schema: rows_of_library(folder, "read_litdata"),
}
"""Read the rows of train without any of our code: by the library that the format is for, or by hand."""


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_read_without_our_code(name, tmp_path):
    assert name in READERS, f"add a reader of {name} to READERS that uses none of our code"
    schema = schema_of(EVERY)
    batch = many(schema, 20)
    format_named(name).write([batch], Target(tmp_path, Split.TRAIN, schema))
    assert READERS[name](tmp_path, schema) == [json.loads(line) for line in lines_of(batch, schema)]


@pytest.mark.parametrize("name", FORMATS)
def test_the_card_has_lines_that_read_it(name):
    imports, line = FORMATS[name].snippet
    compile(imports, name, "exec")
    filled = line.format(split="train", id_type="uint16", files='{"train": []}', builder='"json"')
    compile(filled, name, "eval")
    assert FORMATS[name].datasets_builder or f'"DIR/{FORMATS[name].folder}' in line


@pytest.mark.parametrize("name", FORMATS)
def test_check_writes_it_again_where_no_package_has_a_say(name):
    assert format_named(name).is_all_ours == (FORMATS[name].extra is None and name != "jsonl")


@pytest.mark.parametrize("name", FORMATS)
def test_its_extra_can_be_installed(name):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert FORMATS[name].extra in {None, *extras}


@pytest.mark.parametrize("name", FORMATS)
def test_the_reference_says_what_it_is(name):
    rows = (ROOT / "docs/reference.md").read_text().partition("## Formats")[2].partition("\n## ")[0]
    assert f"| `{name}` |" in rows
    assert FORMATS[name].text in rows
