"""Tests of the requirements that every format in the table FORMATS must meet."""

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
from gristmill.core.manifest import file_facts
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.formats.batch import equals_previous, slice_batch
from gristmill.formats.format import Target, format_folder, get_format
from gristmill.formats.jsonl_rows import format_lines
from gristmill.formats.shares import Share, WrittenDataset, write_share
from support.chunked_batches import EVERY, PACKED, make_batch, schema_of
from support.library_readers import run_jobs
from support.made_batches import bytes_in, require_same, schemas_and_batches, split_batch_at
from support.megatron_index import parsed_idx
from support.source_trees import ROOT

CUTS = st.lists(st.integers(0, 10), max_size=3)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None)
@given(case=schemas_and_batches(), both_cuts=st.tuples(CUTS, CUTS), start=st.integers(0, 8), stop=st.integers(0, 8))
def test_rows_are_read_back_and_bytes_do_not_depend_on_batches(name, case, both_cuts, start, stop):
    schema, batch = case
    cuts, other_cuts = both_cuts
    format_ = get_format(name)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as again:
        target = Target(Path(folder), Split.TRAIN, schema)
        names = format_.write(split_batch_at(batch, cuts), target)
        assert sorted(names) == list(bytes_in(target.folder))
        format_.write(split_batch_at(batch, other_cuts), target._replace(folder=Path(again)))
        format_.write(split_batch_at(batch, other_cuts), target)  # overwrites existing files
        assert bytes_in(Path(again)) == bytes_in(target.folder)
        rows = format_.open(target.folder, Split.TRAIN, schema)
        assert len(rows) == len(batch)
        require_same(rows.read(0, len(rows)), batch, schema)
        stop = min(stop, len(batch))
        require_same(rows.read(min(start, stop), stop), slice_batch(batch, min(start, stop), stop), schema)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=15, deadline=None)
@given(case=schemas_and_batches(), cuts=CUTS)
def test_several_tasks_write_the_same_split_as_one_task(name, case, cuts):
    schema, batch = case
    format_ = get_format(name)
    documents = {0, *(np.flatnonzero(~equals_previous(batch)) + 1).tolist(), len(batch)}
    edges = sorted({0, len(batch), *(cut for cut in cuts if cut in documents)})
    shares = [
        Share(name, Split.TRAIN, stop - first, first, number, len(edges) - 1)
        for number, (first, stop) in enumerate(pairwise(edges))
    ]
    with tempfile.TemporaryDirectory() as together, tempfile.TemporaryDirectory() as alone:
        format_folder(Path(together), name).mkdir(exist_ok=True)
        files = WrittenDataset()
        batches = {share: [slice_batch(batch, share.first, share.stop)] for share in shares}
        written = ((share, write_share(share, Path(together), schema, batches[share])) for share in shares)
        files.add_all(written, Path(together), schema, map)
        assert sorted(files.facts) == list(bytes_in(Path(together)))
        assert all(facts.sha256 == file_facts(Path(together, file)).sha256 for file, facts in files.facts.items())
        rows = format_.open(format_folder(Path(together), name), Split.TRAIN, schema)
        if len(batch):
            require_same(rows.read(0, len(rows)), batch, schema)
            format_.write([batch], Target(Path(alone), Split.TRAIN, schema))
        if format_.join is not None and format_.has_own_writer:
            assert bytes_in(format_folder(Path(together), name)) == bytes_in(Path(alone))


def test_generated_rows_have_every_column():
    assert {*EVERY, *PACKED, "attention_mask"} == set(COLUMNS) - {"tokens"}, (
        "EVERY and PACKED must contain every column except attention_mask and tokens"
    )


def read_jsonl(folder, _schema):
    return [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]


def read_parquet(folder, _schema):
    from pyarrow import parquet

    return parquet.read_table(folder / "train.parquet").to_pylist()


def read_arrow(folder, _schema):
    from datasets import load_from_disk

    return list(load_from_disk(str(folder / "train")))


def read_stream(folder, schema, ids):
    rows = [json.loads(line) for line in (folder / "train.rows.jsonl").read_text().splitlines()]
    for row, (offset, count, is_framed) in zip(rows, np.load(folder / "train.windows.npy").tolist(), strict=True):
        row_ids = ids[offset : offset + count].tolist()
        row["input_ids"] = [*schema.prefix, *row_ids, *schema.suffix] if is_framed else row_ids
    return rows


def read_npy(folder, schema):
    return read_stream(folder, schema, np.load(folder / "train.npy"))


def read_bin(folder, schema):
    return read_stream(folder, schema, np.fromfile(folder / "train.bin", "<u2"))


def read_megatron(folder, schema):
    kind, lengths, pointers, _ = parsed_idx((folder / "train.idx").read_bytes())
    content = (folder / "train.bin").read_bytes()
    parts = [np.frombuffer(content, kind, size, at) for size, at in zip(lengths, pointers, strict=True)]
    return read_stream(folder, schema, np.concatenate(parts))


def read_with_library(folder, do):
    run_jobs({"do": do, "folder": folder / "train", "rows": folder / "read.jsonl"})
    return [json.loads(line) for line in (folder / "read.jsonl").read_text().splitlines()]


READERS = {
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "npy": read_npy,
    "bin": read_bin,
    "megatron": read_megatron,
    "mds": lambda folder, _schema: read_with_library(folder, "read_mds"),
    "litdata": lambda folder, _schema: read_with_library(folder, "read_litdata"),
}
"""Functions that read the rows of the train split without the readers of gristmill."""


@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_readable_without_gristmill(name, tmp_path):
    assert name in READERS, f"add a reader of {name} to READERS that does not use gristmill"
    schema = schema_of(EVERY)
    batch = make_batch(schema, 20)
    get_format(name).write([batch], Target(tmp_path, Split.TRAIN, schema))
    assert READERS[name](tmp_path, schema) == [json.loads(line) for line in format_lines(batch, schema)]


@pytest.mark.parametrize("name", FORMATS)
def test_card_snippet_is_valid_python(name):
    imports, line = FORMATS[name].snippet
    compile(imports, name, "exec")
    filled = line.format(split="train", id_type="uint16", files='{"train": []}', builder='"json"')
    compile(filled, name, "eval")
    assert FORMATS[name].datasets_builder or f'"DIR/{FORMATS[name].folder}' in line


@pytest.mark.parametrize("name", FORMATS)
def test_check_rewrites_formats_that_no_other_package_writes(name):
    assert get_format(name).has_own_writer == (FORMATS[name].extra is None and name != "jsonl")


@pytest.mark.parametrize("name", FORMATS)
def test_extra_is_declared_in_pyproject(name):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert FORMATS[name].extra in {None, *extras}


@pytest.mark.parametrize("name", FORMATS)
def test_reference_describes_the_format(name):
    rows = (ROOT / "docs/reference.md").read_text().partition("## Formats")[2].partition("\n## ")[0]
    assert f"| `{name}` |" in rows
    assert FORMATS[name].text in rows
