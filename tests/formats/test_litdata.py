"""Tests of LitData: the litdata library writes the same bytes and reads the files. Damaged files are reported."""

import json

import pytest

from gristmill import DatasetError
from gristmill.core.records import Split
from gristmill.formats import litdata
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import format_lines, parse_lines
from gristmill.formats.litdata import LITDATA
from support.chunked_batches import EVERY, PACKED, make_batch, require_same, schema_of
from support.library_readers import run_jobs

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


def write(folder, schema, *parts):
    return LITDATA.write(iter(parts), Target(folder, Split.TRAIN, schema))


def read_files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_index(folder):
    return json.loads((folder / "train/index.json").read_bytes())


def test_bytes_match_the_library_which_reads_every_column(tmp_path, small_chunks):
    jobs = []
    for name, (schema, columns) in CASES.items():
        folder, rows, read = (tmp_path / name, tmp_path / f"{name}.jsonl", tmp_path / f"{name}-read.jsonl")
        folder.mkdir()
        write(folder, schema, make_batch(schema, 100))
        rows.write_bytes(b"".join(format_lines(make_batch(schema, 100), schema)))
        arguments = {
            "rows": rows,
            "folder": tmp_path / "library" / name / "train",
            "columns": columns,
            "chunk_bytes": LIMIT,
        }
        jobs += [{"do": "write_litdata", **arguments}, {"do": "read_litdata", "folder": folder / "train", "rows": read}]
    run_jobs(*jobs)
    for name, (schema, _) in CASES.items():
        found, library = read_files(tmp_path / name), read_files(tmp_path / "library" / name)
        assert len(found) > 3
        assert {**found, "index.json": b""} == {**library, "index.json": b""}
        ours, theirs = read_index(tmp_path / name), read_index(tmp_path / "library" / name)
        assert ours["chunks"] == theirs["chunks"]
        assert ours["config"] == {key: theirs["config"][key] for key in ours["config"]}
        rows = [json.loads(line) for line in tmp_path.joinpath(f"{name}-read.jsonl").read_bytes().splitlines()]
        for row in rows:
            row.update({key: json.loads(row[key]) for key in ("segments",) if key in row})
        require_same(parse_lines([json.dumps(row).encode() for row in rows], schema), make_batch(schema, 100))


def test_library_reads_the_same_content(tmp_path, built_tests, small_chunks):
    built_tests.write(LITDATA, tmp_path)
    built_tests.require_read(LITDATA, tmp_path)
    jobs = ({"folder": tmp_path / split, "rows": tmp_path / f"{split}.jsonl"} for split in built_tests.rows)
    padded = schema_of(pad_id=1)
    (tmp_path / "padded").mkdir()
    write(tmp_path / "padded", padded, make_batch(padded, 100))
    run_jobs(
        *({"do": "read_litdata", **job} for job in jobs), {"do": "collate_litdata", "folder": tmp_path / "padded/train"}
    )
    built_tests.require_rows(tmp_path)


def test_cache_key_depends_only_on_content(tmp_path):
    schema = schema_of()
    cache_keys = []
    for number, seed in enumerate((1, 1, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, schema, make_batch(schema, 3, seed))
        cache_keys.append(read_index(folder)["updated_at"])
    assert cache_keys[0] == cache_keys[1] != cache_keys[2]


def change_index(change):
    def damage(folder):
        index = read_index(folder)
        (folder / "train/index.json").write_text(json.dumps(change(index, index["chunks"][0]) or index))

    return damage


def change_chunk(change):
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
    "no config": change_index(lambda index, chunk: {"chunks": [chunk]}),
    "pickles": change_index(lambda index, chunk: index["config"].update(data_format=["pickle"] * 7)),
    "compressed": change_index(lambda index, chunk: index["config"].update(compression="zstd")),
    "name above": change_index(lambda index, chunk: chunk.update(filename="../secret")),
    "name from the root": change_index(lambda index, chunk: chunk.update(filename="/etc/passwd")),
    "more bytes": change_index(lambda index, chunk: chunk.update(chunk_bytes=1 << 40)),
    "size of the ids": change_chunk(set_first_size(0, 0xFFFFFFFF)),
    "size of a number": change_chunk(set_first_size(5, 0)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_raise_dataset_error(tmp_path, damage):
    schema = schema_of()
    write(tmp_path, schema, make_batch(schema, 3))
    damage(tmp_path)
    with pytest.raises(DatasetError, match="Build the dataset again"):
        LITDATA.open(tmp_path, Split.TRAIN, schema).read(0, 3)


def test_negative_id_is_refused(tmp_path):
    schema = schema_of(vocab_size=200_000)
    write(tmp_path, schema, make_batch(schema, 1))
    first_id = 4 * 3 + 4 * len(schema.columns)
    change_chunk(lambda content: content.__setitem__(slice(first_id, first_id + 4), b"\xff" * 4))(tmp_path)
    with pytest.raises(DatasetError, match="it has the negative id -1"):
        LITDATA.open(tmp_path, Split.TRAIN, schema).read(0, 1)
