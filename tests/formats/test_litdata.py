"""LitData: chunks as the library writes them, rows as the library reads them, and nothing believed that a file says."""

import json

import pytest

from gristmill import DatasetError
from gristmill.core.records import Split
from gristmill.formats import litdata
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import batch_of_lines, lines_of
from gristmill.formats.litdata import LITDATA
from support.chunked_batches import EVERY, PACKED, many, require_same, schema_of
from support.library_readers import ask

LIMIT = 20_000
CASES = {
    "plain": (schema_of(), {"input_ids": "uint16", "lines": "int32"}),
    "large-vocabulary": (schema_of(vocab_size=200_000), {"input_ids": "int32", "lines": "int32"}),
    "padded": (
        schema_of(EVERY, pad_id=1),
        {"input_ids": "uint16", "lines": "int32", "labels": "int32", "attention_mask": "uint8"},
    ),
    "packed": (
        schema_of(PACKED),
        {"input_ids": "uint16", "segment_ids": "int32", "position_ids": "int32", "segments": "json"},
    ),
}


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(litdata, "CHUNK_BYTES", LIMIT)


def written(folder, schema, *parts):
    return LITDATA.write(iter(parts), Target(folder, Split.TRAIN, schema))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def index_of(folder):
    return json.loads((folder / "train/index.json").read_bytes())


def test_bytes_are_those_of_the_library_and_it_reads_every_column(tmp_path, small_chunks):
    jobs = []
    for name, (schema, columns) in CASES.items():
        folder, rows, read = (tmp_path / name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}-read.jsonl")
        folder.mkdir()
        written(folder, schema, many(schema, 100))
        rows.write_bytes(b"".join(lines_of(many(schema, 100), schema)))
        told = {"rows": rows, "folder": tmp_path / "library" / name / "train", "columns": columns, "chunk_bytes": LIMIT}
        jobs += [{"do": "write_litdata", **told}, {"do": "read_litdata", "folder": folder / "train", "rows": read}]
    ask(*jobs)
    for name, (schema, _) in CASES.items():
        found, library = contents(tmp_path / name), contents(tmp_path / "library" / name)
        assert len(found) > 3
        assert {**found, "index.json": b""} == {**library, "index.json": b""}
        ours, theirs = index_of(tmp_path / name), index_of(tmp_path / "library" / name)
        assert ours["chunks"] == theirs["chunks"]
        assert ours["config"] == {key: theirs["config"][key] for key in ours["config"]}
        rows = [json.loads(line) for line in tmp_path.joinpath(f"{name}-read.jsonl").read_bytes().splitlines()]
        for row in rows:
            row.update({key: json.loads(row[key]) for key in ("segments",) if key in row})
        require_same(batch_of_lines([json.dumps(row).encode() for row in rows], schema), many(schema, 100))


def test_the_library_reads_the_same_content(tmp_path, built_tests, small_chunks):
    built_tests.write(LITDATA, tmp_path)
    built_tests.require_read(LITDATA, tmp_path)
    jobs = ({"folder": tmp_path / split, "rows": tmp_path / f"{split}.jsonl"} for split in built_tests.rows)
    padded = schema_of(pad_id=1)
    (tmp_path / "padded").mkdir()
    written(tmp_path / "padded", padded, many(padded, 100))
    ask(
        *({"do": "read_litdata", **job} for job in jobs), {"do": "collate_litdata", "folder": tmp_path / "padded/train"}
    )
    built_tests.require_rows(tmp_path)


def test_what_litdata_keeps_its_cache_under_changes_with_the_content_alone(tmp_path):
    schema = schema_of()
    words = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        written(folder, schema, many(schema, 3, seed))
        words.append(index_of(folder)["updated_at"])
    assert words[0] == words[1] != words[2]


def changed_index(change):
    def damage(folder):
        index = index_of(folder)
        (folder / "train/index.json").write_text(json.dumps(change(index, index["chunks"][0]) or index))

    return damage


def changed_chunk(change):
    def damage(folder):
        path = folder / "train/chunk-0-0.bin"
        content = bytearray(path.read_bytes())
        path.write_bytes(change(content) or content)

    return damage


def set_count(at, value):
    return lambda content: content.__setitem__(slice(at, at + 4), value.to_bytes(4, "little"))


def set_first_size(field, value):
    return lambda content: set_count(int.from_bytes(content[4:8], "little") + 4 * field, value)(content)


DAMAGES = {
    "no config": changed_index(lambda index, chunk: {"chunks": [chunk]}),
    "pickles": changed_index(lambda index, chunk: index["config"].update(data_format=["pickle"] * 7)),
    "compressed": changed_index(lambda index, chunk: index["config"].update(compression="zstd")),
    "name above": changed_index(lambda index, chunk: chunk.update(filename="../secret")),
    "name from the root": changed_index(lambda index, chunk: chunk.update(filename="/etc/passwd")),
    "more bytes": changed_index(lambda index, chunk: chunk.update(chunk_bytes=1 << 40)),
    "size of the ids": changed_chunk(set_first_size(0, 0xFFFFFFFF)),
    "size of a number": changed_chunk(set_first_size(5, 0)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told(tmp_path, damage):
    schema = schema_of()
    written(tmp_path, schema, many(schema, 3))
    damage(tmp_path)
    with pytest.raises(DatasetError, match="Build the dataset again"):
        LITDATA.open(tmp_path, Split.TRAIN, schema).read(0, 3)


def test_a_negative_id_is_not_wrapped(tmp_path):
    schema = schema_of(vocab_size=200_000)
    written(tmp_path, schema, many(schema, 1))
    first_id = 4 * 3 + 4 * len(schema.columns)
    changed_chunk(lambda content: content.__setitem__(slice(first_id, first_id + 4), b"\xff" * 4))(tmp_path)
    with pytest.raises(DatasetError, match="the id -1"):
        LITDATA.open(tmp_path, Split.TRAIN, schema).read(0, 1)
