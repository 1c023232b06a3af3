"""Tests of MDS: the streaming library writes the same bytes and reads the files. Damaged files are reported."""

import json

import numpy as np
import pytest

from gristmill import DatasetError, OutputError
from gristmill.core.records import Split
from gristmill.formats import mds
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import format_lines, parse_lines
from gristmill.formats.mds import MDS
from support.chunked_batches import EVERY, PACKED, make_batch, require_same, schema_of
from support.library_readers import run_jobs

LIMIT = 20_000


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(mds, "CHUNK_BYTES", LIMIT)


def write(folder, schema, *parts, split=Split.TRAIN):
    return MDS.write(iter(parts), Target(folder, split, schema))


def read_files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


CASES = {
    "plain": schema_of(),
    "large-vocabulary": schema_of(vocab_size=200_000),
    "padded": schema_of(EVERY, pad_id=1),
    "packed": schema_of(PACKED),
}


def test_bytes_match_the_library_which_reads_every_column(tmp_path, small_shards):
    jobs = []
    for name, schema in CASES.items():
        folder, rows, read = (tmp_path / name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}-read.jsonl")
        folder.mkdir()
        names = write(folder, schema, make_batch(schema, 100))
        assert names == [f"train/{name}" for name in read_files(folder)]
        rows.write_bytes(b"".join(format_lines(make_batch(schema, 100), schema)))
        shard = json.loads((folder / "train/index.json").read_bytes())["shards"][0]
        columns = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
        arguments = {"rows": rows, "folder": tmp_path / "library" / name, "columns": columns, "size_limit": LIMIT}
        jobs += [{"do": "write_mds", **arguments}, {"do": "read_mds", "folder": folder / "train", "rows": read}]
    run_jobs(*jobs)
    for name, schema in CASES.items():
        found = read_files(tmp_path / name / "train")
        assert len(found) > 3
        assert found == read_files(tmp_path / "library" / name)
        rows = tmp_path.joinpath(f"{name}-read.jsonl").read_bytes().splitlines()
        require_same(parse_lines(rows, schema), make_batch(schema, 100))


def test_library_reads_the_same_content(tmp_path, built_tests, small_shards):
    built_tests.write(MDS, tmp_path)
    built_tests.require_read(MDS, tmp_path)
    # The library reads empty arrays, although it does not write them.
    schema = schema_of(EVERY)
    batch = make_batch(schema, 2)
    batch.columns["labels"] = Ragged.of([[], [5]])
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", schema, batch)
    folders = {**{split: tmp_path / split for split in built_tests.rows}, "empty": tmp_path / "empty/train"}
    run_jobs(
        *({"do": "read_mds", "folder": folder, "rows": tmp_path / f"{name}.jsonl"} for name, folder in folders.items())
    )
    built_tests.require_rows(tmp_path)
    require_same(parse_lines((tmp_path / "empty.jsonl").read_bytes().splitlines(), schema), batch)


def test_id_outside_the_vocabulary_is_refused(tmp_path):
    schema = schema_of()
    batch = make_batch(schema, 3)
    ids = Ragged(batch.ids.values.astype(np.uint32) + (1 << 16), batch.ids.offsets)
    with pytest.raises(OutputError, match="'input_ids' does not fit in uint16"):
        write(tmp_path, schema, WindowBatch(ids, batch.columns))


class Damage:
    """Factories of functions that damage the index or the first shard."""

    @staticmethod
    def index(change):
        def damage(folder):
            path = folder / "train/index.json"
            index = json.loads(path.read_bytes())
            path.write_text(json.dumps(change(index, index["shards"][0]) or index))

        return damage

    @staticmethod
    def shard(change):
        def damage(folder):
            path = folder / "train/shard.00000.mds"
            content = bytearray(path.read_bytes())
            path.write_bytes(change(content) or content)

        return damage


def set_count(at, value):
    return lambda content: content.__setitem__(slice(at, at + 4), value.to_bytes(4, "little"))


DAMAGES = {
    "no shards": Damage.index(lambda index, shard: {"version": 2}),
    "other version": Damage.index(lambda index, shard: index.update(version=3)),
    "other columns": Damage.index(lambda index, shard: shard.update(column_names=["a"])),
    "pickles": Damage.index(lambda index, shard: shard.update(column_encodings=["pkl"] * 7)),
    "compressed": Damage.index(lambda index, shard: shard.update(compression="zstd")),
    "name above": Damage.index(lambda index, shard: shard["raw_data"].update(basename="../secret")),
    "name from the root": Damage.index(lambda index, shard: shard["raw_data"].update(basename="/etc/passwd")),
    "more bytes": Damage.index(lambda index, shard: shard["raw_data"].update(bytes=1 << 40)),
    "other head": Damage.shard(lambda content: content.replace(b'"format": "mds"', b'"format": "abc"')),
    "size of a field": Damage.shard(
        lambda content: set_count(int.from_bytes(content[4:8], "little"), 0xFFFFFFFF)(content)
    ),
    "shape": Damage.shard(lambda content: content.replace(b"\x04\x02", b"\x04\x03")),
    "dimensions": Damage.shard(lambda content: content.replace(b"\x04\x02", b"\x08\x02")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_raise_dataset_error(tmp_path, damage):
    schema = schema_of()
    write(tmp_path, schema, make_batch(schema, 3))
    damage(tmp_path)
    with pytest.raises(DatasetError, match="Build the dataset again"):
        MDS.open(tmp_path, Split.TRAIN, schema).read(0, 3)
