import json
import pickle
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.records import Split
from gristmill.formats import arrow
from gristmill.formats.arrow import ARROW
from gristmill.formats.batch import Ragged, WindowBatch, slice_batch
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import format_lines
from support.made_batches import bytes_in, plain_batch, plain_schema, require_same, schemas_and_batches, split_batch_at

ONE_FILE = ["train/data-00000-of-00001.arrow", "train/dataset_info.json", "train/state.json"]


@settings(max_examples=25, deadline=None)
@given(schemas_and_batches())
def test_datasets_reads_the_same_rows_as_json(case):
    datasets = pytest.importorskip("datasets")
    schema, batch = case
    with tempfile.TemporaryDirectory() as name:
        ARROW.write([batch], Target(Path(name), Split.TEST, schema))
        assert ARROW.finish(Path(name), schema) == ["dataset_dict.json"]
        loaded = datasets.load_from_disk(name)
        assert list(loaded) == ["test"]
        assert loaded["test"].column_names == list(schema.columns)
        assert loaded["test"][:] == to_columns(
            [json.loads(line) for line in format_lines(batch, schema)], schema.columns
        )


def to_columns(rows, names):
    return {name: [row[name] for row in rows] for name in names}


def test_written_splits_are_listed_even_if_empty(tmp_path):
    datasets = pytest.importorskip("datasets")
    schema = plain_schema()
    for split, num_rows in ((Split.VALIDATION, 0), (Split.TRAIN, 1500)):
        ARROW.write([plain_batch(num_rows)], Target(tmp_path, split, schema))
    ARROW.finish(tmp_path, schema)
    loaded = datasets.load_from_disk(tmp_path)
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 1500, "validation": 0}
    assert str(loaded["train"].split) == "train"
    assert loaded["train"].features["input_ids"].feature.dtype == "uint16"
    assert loaded["train"].with_format("numpy")[1203]["input_ids"].tolist() == plain_batch(1500).ids[1203].tolist()
    assert not len(ARROW.open(tmp_path, Split.TEST, schema))
    assert not len(ARROW.open(tmp_path, Split.TEST, schema).read(0, 0))


def test_fingerprint_depends_only_on_content(tmp_path):
    def fingerprint(batch):
        ARROW.write([batch], Target(tmp_path, Split.TRAIN, plain_schema()))
        return json.loads((tmp_path / "train/state.json").read_text())["_fingerprint"]

    batch = plain_batch(1500)
    first = fingerprint(batch)
    batch.ids.values[-1] ^= 1
    assert len(first) == 16
    assert fingerprint(batch) != first
    batch.ids.values[-1] ^= 1
    assert fingerprint(batch) == first


def test_large_split_is_written_to_several_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(arrow, "FILE_BYTES", 100_000)
    schema, batch = plain_schema(), plain_batch(5500)
    names = ARROW.write([batch], Target(tmp_path, Split.TRAIN, schema))
    assert names[:3] == [f"train/data-0000{number}-of-00003.arrow" for number in range(3)]
    assert sorted(bytes_in(tmp_path)) == sorted(names)
    rows = pickle.loads(pickle.dumps(ARROW.open(tmp_path, Split.TRAIN, schema)))
    for start, stop in ((0, 5500), (1900, 4100), (5499, 5500), (3, 3)):
        require_same(rows.read(start, stop), slice_batch(batch, start, stop), schema)
    ARROW.finish(tmp_path, schema)
    assert datasets.load_from_disk(tmp_path)["train"]["path"][:] == batch.columns["path"]
    content = bytes_in(tmp_path)
    ARROW.write(split_batch_at(batch, range(0, 5500, 37)), Target(tmp_path, Split.TRAIN, schema))
    assert bytes_in(tmp_path) == content
    (tmp_path / names[1]).unlink()
    with pytest.raises(DatasetError, match=r"data-00001-of-00003\.arrow is missing"):
        ARROW.open(tmp_path, Split.TRAIN, schema)


def test_no_empty_file_follows_a_file_filled_by_the_last_row(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "FILE_BYTES", 1)
    names = ARROW.write([plain_batch(2000)], Target(tmp_path, Split.TRAIN, plain_schema()))
    assert [name for name in names if name.endswith(".arrow")] == [
        f"train/data-0000{number}-of-00002.arrow" for number in range(2)
    ]


@settings(max_examples=150, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 255))
def test_truncated_file_is_reported_and_changed_byte_does_not_crash(fraction, byte):
    schema, batch = plain_schema(), plain_batch(40)
    with tempfile.TemporaryDirectory() as name:
        ARROW.write([batch], Target(Path(name), Split.TRAIN, schema))
        path = Path(name, ONE_FILE[0])
        content = path.read_bytes()
        at = int(fraction * len(content))
        path.write_bytes(content[:at])
        with pytest.raises(DatasetError):
            ARROW.open(Path(name), Split.TRAIN, schema)
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        with suppress(DatasetError):
            rows = ARROW.open(Path(name), Split.TRAIN, schema)
            rows.read(0, len(rows))


def test_file_without_end_marker_is_reported(tmp_path):
    schema = plain_schema()
    ARROW.write([plain_batch(3)], Target(tmp_path, Split.TRAIN, schema))
    path = tmp_path / ONE_FILE[0]
    path.write_bytes(path.read_bytes()[: -len(arrow.END_MARKER)])
    assert len(pa.ipc.open_stream(path.read_bytes()).read_all()) == 3
    with pytest.raises(DatasetError, match="its end marker is missing"):
        ARROW.open(tmp_path, Split.TRAIN, schema)


def test_file_with_different_columns_is_refused(tmp_path):
    ARROW.write([plain_batch(3)], Target(tmp_path, Split.TRAIN, plain_schema()))
    for schema in (plain_schema(vocab_size=1 << 20), plain_schema(columns=("input_ids", "path"))):
        with pytest.raises(DatasetError, match="its columns differ from those of the dataset"):
            ARROW.open(tmp_path, Split.TRAIN, schema)


def test_ids_that_do_not_fit_the_type_are_refused(tmp_path):
    batch = plain_batch(3)
    large = WindowBatch(Ragged(batch.ids.values.astype(np.int64) - 65_536, batch.ids.offsets), batch.columns)
    with pytest.raises(OutputError, match="does not fit in uint16"):
        ARROW.write([large], Target(tmp_path, Split.TRAIN, plain_schema()))
    assert not (tmp_path / "train/state.json").exists()


def test_missing_pyarrow_is_reported_with_install_command():
    code = "import sys; sys.modules['pyarrow'] = None; from gristmill.formats.arrow import ARROW; ARROW.require()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError: Arrow needs pyarrow: pip install 'gristmill[arrow]'." in done.stderr
