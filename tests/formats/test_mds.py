"""MDS: bytes as the library writes them, rows as the library reads them, and nothing believed that a file says."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DatasetError, OutputError
from gristmill.core.records import Split
from gristmill.formats import mds
from gristmill.formats.batch import Ragged, WindowBatch, between
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import batch_of_lines, lines_of
from gristmill.formats.mds import MDS
from support.builds_read_back import Built
from support.chunked_batches import EVERY, PACKED, batches, cut, many, require_same, schema_of, schemas
from support.library_readers import ask

LIMIT = 20_000


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(mds, "CHUNK_BYTES", LIMIT)


def written(folder, schema, *parts, split=Split.TRAIN):
    return MDS.write(iter(parts), Target(folder, split, schema))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_come_back_as_they_were_however_they_are_cut(tmp_path_factory, data):
    schema = data.draw(schemas)
    batch = data.draw(batches(schema, min_ids=0))
    folders = [tmp_path_factory.mktemp("mds") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mds, "CHUNK_BYTES", data.draw(st.sampled_from([1, 700, 4000])))
        names = written(folders[0], schema, batch)
        written(folders[1], schema, *cut(batch, data.draw(st.lists(st.integers(0, 9)))))
        assert contents(folders[0]) == contents(folders[1])
        assert names == [f"train/{name}" for name in contents(folders[0])]
        reader = MDS.open(folders[0], Split.TRAIN, schema)
        assert len(reader) == len(batch)
        require_same(reader.read(0, len(batch)), batch)
        start = data.draw(st.integers(0, len(batch)))
        stop = data.draw(st.integers(start, len(batch)))
        require_same(reader.read(start, stop), between(batch, start, stop))


def test_a_split_without_rows_has_nothing_there(tmp_path):
    assert written(tmp_path, schema_of()) == []
    assert contents(tmp_path) == {}
    reader = MDS.open(tmp_path, Split.TRAIN, schema_of())
    assert len(reader) == 0
    assert len(reader.read(0, 1)) == 0


CASES = {
    "plain": schema_of(),
    "large-vocabulary": schema_of(vocab_size=200_000),
    "padded": schema_of(EVERY, pad_id=1),
    "packed": schema_of(PACKED),
}


def test_bytes_are_those_of_the_library_and_it_reads_every_column(tmp_path, small_shards):
    jobs = []
    for name, schema in CASES.items():
        folder, rows, read = (tmp_path / name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}-read.jsonl")
        folder.mkdir()
        written(folder, schema, many(schema, 100))
        rows.write_bytes(b"".join(lines_of(many(schema, 100), schema)))
        shard = json.loads((folder / "train/index.json").read_bytes())["shards"][0]
        columns = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
        told = {"rows": rows, "folder": tmp_path / "library" / name, "columns": columns, "size_limit": LIMIT}
        jobs += [{"do": "write_mds", **told}, {"do": "read_mds", "folder": folder / "train", "rows": read}]
    ask(*jobs)
    for name, schema in CASES.items():
        found = contents(tmp_path / name / "train")
        assert len(found) > 3
        assert found == contents(tmp_path / "library" / name)
        rows = tmp_path.joinpath(f"{name}-read.jsonl").read_bytes().splitlines()
        require_same(batch_of_lines(rows, schema), many(schema, 100))


def test_the_library_reads_the_same_content(tmp_path, small_shards):
    built = Built.of_tests(tmp_path / "built")
    built.write(MDS, tmp_path)
    built.require_read(MDS, tmp_path)
    # It reads arrays without numbers, though it would not write them.
    schema = schema_of(EVERY)
    batch = many(schema, 2)
    batch.columns["labels"] = Ragged.of([[], [5]])
    (tmp_path / "empty").mkdir()
    written(tmp_path / "empty", schema, batch)
    folders = {**{split: tmp_path / split for split in built.rows}, "empty": tmp_path / "empty/train"}
    ask(*({"do": "read_mds", "folder": folder, "rows": tmp_path / f"{name}.jsonl"} for name, folder in folders.items()))
    built.require_rows(tmp_path)
    require_same(batch_of_lines((tmp_path / "empty.jsonl").read_bytes().splitlines(), schema), batch)


def test_an_id_that_is_not_of_the_vocabulary_is_not_wrapped(tmp_path):
    schema = schema_of()
    batch = many(schema, 3)
    ids = Ragged(batch.ids.values.astype(np.uint32) + (1 << 16), batch.ids.offsets)
    with pytest.raises(OutputError, match="'input_ids' does not fit uint16"):
        written(tmp_path, schema, WindowBatch(ids, batch.columns))


class Damage:
    """Each changes what is there; the reader is to say so, whatever it is."""

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
    "no index": lambda folder: (folder / "train/index.json").unlink(),
    "index is a folder": lambda folder: ((folder / "train/index.json").unlink(), (folder / "train/index.json").mkdir()),
    "index is no JSON": lambda folder: (folder / "train/index.json").write_text("{"),
    "index is deep": lambda folder: (folder / "train/index.json").write_text("[" * 100_000),
    "index is a list": Damage.index(lambda index, shard: [index]),
    "no shards": Damage.index(lambda index, shard: {"version": 2}),
    "shard is a number": Damage.index(lambda index, shard: {**index, "shards": [1]}),
    "other version": Damage.index(lambda index, shard: index.update(version=3)),
    "other columns": Damage.index(lambda index, shard: shard.update(column_names=["a"])),
    "pickles": Damage.index(lambda index, shard: shard.update(column_encodings=["pkl"] * 7)),
    "compressed": Damage.index(lambda index, shard: shard.update(compression="zstd")),
    "name above": Damage.index(lambda index, shard: shard["raw_data"].update(basename="../secret")),
    "name from the root": Damage.index(lambda index, shard: shard["raw_data"].update(basename="/etc/passwd")),
    "more rows": Damage.index(lambda index, shard: shard.update(samples=4)),
    "endless rows": Damage.index(lambda index, shard: shard.update(samples=1 << 62)),
    "rows beyond numbers": Damage.index(lambda index, shard: shard.update(samples=1 << 90)),
    "negative rows": Damage.index(lambda index, shard: shard.update(samples=-1)),
    "more bytes": Damage.index(lambda index, shard: shard["raw_data"].update(bytes=1 << 40)),
    "a shard more": Damage.index(lambda index, shard: index["shards"].append(shard)),
    "no shard": lambda folder: (folder / "train/shard.00000.mds").unlink(),
    "empty shard": lambda folder: (folder / "train/shard.00000.mds").write_bytes(b""),
    "cut shard": Damage.shard(lambda content: content[:-1]),
    "other count": Damage.shard(set_count(0, 4)),
    "row before rows": Damage.shard(set_count(4, 0)),
    "row beyond the file": Damage.shard(set_count(16, 0xFFFFFFFF)),
    "rows backwards": Damage.shard(set_count(8, 0xFFFFFF)),
    "other head": Damage.shard(lambda content: content.replace(b'"format": "mds"', b'"format": "abc"')),
    "size of a field": Damage.shard(
        lambda content: set_count(int.from_bytes(content[4:8], "little"), 0xFFFFFFFF)(content)
    ),
    "text is no text": Damage.shard(lambda content: content.replace("naïve".encode(), b"na\xff\xffve")),
    "shape": Damage.shard(lambda content: content.replace(b"\x04\x02", b"\x04\x03")),
    "dimensions": Damage.shard(lambda content: content.replace(b"\x04\x02", b"\x08\x02")),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told(tmp_path, damage):
    schema = schema_of()
    written(tmp_path, schema, many(schema, 3))
    damage(tmp_path)
    with pytest.raises(DatasetError, match="Build the dataset again"):
        MDS.open(tmp_path, Split.TRAIN, schema).read(0, 3)


@pytest.mark.parametrize("schema", CASES.values(), ids=CASES)
def test_no_byte_that_changes_ends_in_anything_but_rows_or_damage(tmp_path, schema):
    """A byte at a time, all over the file."""
    written(tmp_path, schema, many(schema, 2))
    path = tmp_path / "train/shard.00000.mds"
    content = path.read_bytes()
    random = np.random.default_rng(3)
    num_damaged = 0
    for place in random.integers(0, len(content), 400):
        path.write_bytes(content[:place] + bytes([random.integers(256)]) + content[place + 1 :])
        try:
            assert len(MDS.open(tmp_path, Split.TRAIN, schema).read(0, 2)) == 2
        except DatasetError:
            num_damaged += 1
    assert num_damaged > 10
