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
from pyarrow import parquet

from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.records import Split
from gristmill.formats.batch import Ragged, WindowBatch, concat_batches, slice_batch
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import format_lines
from gristmill.formats.parquet import PARQUET
from support.made_batches import plain_batch, plain_schema, require_same, schemas_and_batches, split_batch_at


@settings(max_examples=40, deadline=None)
@given(schemas_and_batches())
def test_table_has_the_same_rows_as_json(case):
    schema, batch = case
    with tempfile.TemporaryDirectory() as name:
        PARQUET.write([batch], Target(Path(name), Split.TEST, schema))
        table = parquet.read_table(Path(name, "test.parquet"))
    assert table.column_names == list(schema.columns)
    assert table.to_pylist() == [json.loads(line) for line in format_lines(batch, schema)]


def test_columns_have_small_types(tmp_path):
    schema = plain_schema(columns=(*plain_schema().columns, "attention_mask"), pad_id=1)
    PARQUET.write([plain_batch(5)], Target(tmp_path, Split.TRAIN, schema))
    kinds = parquet.read_schema(tmp_path / "train.parquet")
    expected = {
        "input_ids": pa.list_(pa.uint16()),
        "path": pa.string(),
        "repo": pa.string(),
        "language": pa.string(),
        "lines": pa.list_(pa.int32()),
        "start": pa.int64(),
        "fresh": pa.int64(),
        "attention_mask": pa.list_(pa.int8()),
    }
    assert {name: kind for name, kind in zip(kinds.names, kinds.types, strict=True) if name in expected} == expected


def test_row_groups_are_small_and_ids_have_no_dictionary(tmp_path):
    PARQUET.write([plain_batch(2500)], Target(tmp_path, Split.TRAIN, plain_schema()))
    facts = parquet.read_metadata(tmp_path / "train.parquet")
    assert [facts.row_group(number).num_rows for number in range(facts.num_row_groups)] == [1000, 1000, 500]
    columns = {
        facts.row_group(0).column(number).path_in_schema: facts.row_group(0).column(number) for number in range(7)
    }
    ids, path = columns["input_ids.list.element"], columns["path"]
    assert ids.compression == path.compression == "ZSTD"
    assert (ids.has_dictionary_page, path.has_dictionary_page) == (False, True)
    assert (ids.is_stats_set, path.statistics.min) == (False, "src/0.py")
    assert ids.has_offset_index


def test_row_groups_of_long_windows_have_fewer_rows(tmp_path):
    schema = plain_schema(length=1 << 20)
    batch = slice_batch(plain_batch(10), 0, 10)
    PARQUET.write([batch], Target(tmp_path, Split.TRAIN, schema))
    assert parquet.read_metadata(tmp_path / "train.parquet").row_group(0).num_rows == 4
    require_same(PARQUET.open(tmp_path, Split.TRAIN, schema).read(3, 9), slice_batch(batch, 3, 9), schema)


def test_split_can_have_several_files(tmp_path):
    batch, schema = plain_batch(3300), plain_schema()
    parts = [slice_batch(batch, 0, 1200), slice_batch(batch, 1200, 1201), slice_batch(batch, 1201, 3300)]
    for shard, part in enumerate(parts):
        (name,) = PARQUET.write([part], Target(tmp_path, Split.TRAIN, schema, shard, 3))
        assert name == f"train-0000{shard}-of-00003.parquet"
    rows = pickle.loads(pickle.dumps(PARQUET.open(tmp_path, Split.TRAIN, schema)))
    assert len(rows) == 3300
    for start, stop in ((0, 3300), (1100, 2400), (1200, 1201), (0, 1), (3299, 3300), (7, 7), (2201, 3201)):
        require_same(rows.read(start, stop), slice_batch(batch, start, stop), schema)
    assert not len(PARQUET.open(tmp_path, Split.TEST, schema))
    (tmp_path / "train-00001-of-00003.parquet").rename(tmp_path / "other")
    with pytest.raises(DatasetError, match=r"train-00001-of-00003\.parquet is missing"):
        PARQUET.open(tmp_path, Split.TRAIN, schema)
    (tmp_path / "other").rename(tmp_path / "train.parquet")
    with pytest.raises(DatasetError, match="belong to different builds"):
        PARQUET.open(tmp_path, Split.TRAIN, schema)


def test_only_needed_row_groups_are_read(tmp_path):
    schema, batch = plain_schema(), plain_batch(3000)
    PARQUET.write([batch], Target(tmp_path, Split.TRAIN, schema))
    path = tmp_path / "train.parquet"
    first = parquet.read_metadata(path).row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[first + 200] ^= 0xFF
    path.write_bytes(content)
    rows = PARQUET.open(tmp_path, Split.TRAIN, schema)
    require_same(rows.read(500, 1000), slice_batch(batch, 500, 1000), schema)
    require_same(rows.read(2000, 2500), slice_batch(batch, 2000, 2500), schema)
    with pytest.raises(DatasetError, match=r"train\.parquet' is damaged"):
        rows.read(1000, 1001)


@settings(max_examples=80, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(0, 255))
def test_truncated_file_is_reported_and_changed_byte_does_not_crash(fraction, byte):
    schema, batch = plain_schema(), plain_batch(40)
    with tempfile.TemporaryDirectory() as name:
        PARQUET.write([batch], Target(Path(name), Split.TRAIN, schema))
        path = Path(name, "train.parquet")
        content = path.read_bytes()
        at = int(fraction * len(content))
        path.write_bytes(content[:at])
        with pytest.raises(DatasetError):
            PARQUET.open(Path(name), Split.TRAIN, schema)
        path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        with suppress(DatasetError):
            rows = PARQUET.open(Path(name), Split.TRAIN, schema)
            rows.read(0, len(rows))


def test_file_with_different_columns_is_refused(tmp_path):
    PARQUET.write([plain_batch(3)], Target(tmp_path, Split.TRAIN, plain_schema()))
    for schema in (plain_schema(vocab_size=1 << 20), plain_schema(columns=("input_ids", "path"))):
        with pytest.raises(DatasetError, match="its columns differ from those of the dataset"):
            PARQUET.open(tmp_path, Split.TRAIN, schema)


def test_null_values_are_refused(tmp_path):
    schema = plain_schema()
    PARQUET.write([plain_batch(3)], Target(tmp_path, Split.TRAIN, schema))
    table = parquet.read_table(tmp_path / "train.parquet")
    for name in schema.columns:
        index = table.schema.get_field_index(name)
        kind = table.schema.field(name).type
        columns_with_nulls = [pa.array([None, *table[name].to_pylist()[1:]], kind)]
        if pa.types.is_list(kind):
            columns_with_nulls.append(pa.array([[None], *table[name].to_pylist()[1:]], kind))
        for column in columns_with_nulls:
            parquet.write_table(table.set_column(index, name, column), tmp_path / "train.parquet")
            with pytest.raises(DatasetError, match="is damaged"):
                PARQUET.open(tmp_path, Split.TRAIN, schema).read(0, 3)


def test_values_that_do_not_fit_the_type_are_refused(tmp_path):
    batch = plain_batch(3)
    large = WindowBatch(Ragged(batch.ids.values.astype(np.int64) + 65_536, batch.ids.offsets), batch.columns)
    with pytest.raises(OutputError, match="does not fit in uint16"):
        PARQUET.write([large], Target(tmp_path, Split.TRAIN, plain_schema()))
    lines = WindowBatch(batch.ids, batch.columns | {"lines": Ragged.of([[1, 1 << 31]] * 3)})
    with pytest.raises(OutputError, match=r"column lines has a value that its type .* cannot hold"):
        PARQUET.write([lines], Target(tmp_path, Split.TRAIN, plain_schema()))
    surrogate = WindowBatch(batch.ids, batch.columns | {"path": ["\ud800"] * 3})
    with pytest.raises(OutputError, match=r"column path has a value that its type .* cannot hold"):
        PARQUET.write([surrogate], Target(tmp_path, Split.TRAIN, plain_schema()))
    assert not (tmp_path / "train.parquet").exists()


@pytest.mark.parametrize(
    "bad_segment", [{"repo": "r"}, {"repo": "r", "start": 1, "path": "p"}, {"repo": "r", "start": "x"}]
)
def test_segments_must_have_the_keys_of_the_first_segment(tmp_path, bad_segment):
    schema = plain_schema(columns=("input_ids", "segments"))
    rows = [[{"repo": "r", "start": 1}], [bad_segment]]
    with pytest.raises(
        OutputError, match=r"a segment does not have exactly the keys repo, start|column segments has a value"
    ):
        PARQUET.write(
            [WindowBatch(Ragged.of([[1], [2]], np.uint16), {"segments": rows})], Target(tmp_path, Split.TRAIN, schema)
        )


def test_unknown_segment_keys_are_refused(tmp_path):
    schema = plain_schema(columns=("input_ids", "segments"))
    batch = WindowBatch(Ragged.of([[1]], np.uint16), {"segments": [[{"mood": 1}]]})
    with pytest.raises(OutputError, match="a segment has unknown keys: mood"):
        PARQUET.write([batch], Target(tmp_path, Split.TRAIN, schema))


def test_datasets_reads_parquet(tmp_path):
    datasets = pytest.importorskip("datasets")
    schema, batch = plain_schema(), plain_batch(1500)
    for shard, part in enumerate((slice_batch(batch, 0, 700), slice_batch(batch, 700, 1500))):
        PARQUET.write([part], Target(tmp_path, Split.TRAIN, schema, shard, 2))
    files = {"train": str(tmp_path / "train-*.parquet")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))["train"]
    assert loaded.features["input_ids"].feature.dtype == "uint16"
    assert loaded[1203] == json.loads(format_lines(slice_batch(batch, 1203, 1204), schema)[0])
    assert loaded["input_ids"][:] == [ids.tolist() for ids in batch.ids.rows()]


def test_missing_pyarrow_is_reported_with_install_command(tmp_path):
    code = "import sys; sys.modules['pyarrow'] = None; from gristmill.formats.parquet import PARQUET; PARQUET.require()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtraError: Parquet needs pyarrow: pip install 'gristmill[parquet]'." in done.stderr


def test_many_small_batches_give_the_same_file(tmp_path):
    batch, schema = plain_batch(2300), plain_schema()
    PARQUET.write([batch], Target(tmp_path, Split.TRAIN, schema))
    PARQUET.write(split_batch_at(batch, range(0, 2300, 7)), Target(tmp_path, Split.TEST, schema))
    assert (tmp_path / "train.parquet").read_bytes() == (tmp_path / "test.parquet").read_bytes()
    rows = PARQUET.open(tmp_path, Split.TEST, schema)
    require_same(concat_batches([rows.read(at, min(at + 900, 2300)) for at in range(0, 2300, 900)]), batch, schema)
