"""Tests of what MDS and LitData share: rows are in chunks with an index, and damaged files are reported."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DatasetError
from gristmill.core.records import Split
from gristmill.formats import litdata, mds
from gristmill.formats.batch import slice_batch
from gristmill.formats.format import Format, Target
from support.chunked_batches import EVERY, PACKED, batches, make_batch, require_same, schema_of, schemas, split_batch


class ChunkedFormat(NamedTuple):
    format_: Format
    module: Any
    first_chunk: str
    """File name of the first chunk."""
    chunks: str
    """Key of the list of chunks in the index."""
    num_rows: str
    """Key of the number of rows in the index entry of a chunk."""

    def write(self, folder, schema, *parts):
        return self.format_.write(iter(parts), Target(folder, Split.TRAIN, schema))

    def read(self, folder, schema, num_rows):
        return self.format_.open(folder, Split.TRAIN, schema).read(0, num_rows)


every_format = pytest.mark.parametrize(
    "chunked",
    [
        ChunkedFormat(mds.MDS, mds, "shard.00000.mds", "shards", "samples"),
        ChunkedFormat(litdata.LITDATA, litdata, "chunk-0-0.bin", "chunks", "chunk_size"),
    ],
    ids=["mds", "litdata"],
)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@every_format
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_are_read_back_unchanged_and_bytes_do_not_depend_on_batches(tmp_path_factory, chunked, data):
    schema = data.draw(schemas)
    batch = data.draw(batches(schema, min_ids=0))
    folders = [tmp_path_factory.mktemp("chunks") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked.module, "CHUNK_BYTES", data.draw(st.sampled_from([1, 700, 4000])))
        names = chunked.write(folders[0], schema, batch)
        chunked.write(folders[1], schema, *split_batch(batch, data.draw(st.lists(st.integers(0, 9)))))
        assert contents(folders[0]) == contents(folders[1])
        assert sorted(names) == sorted(f"train/{name}" for name in contents(folders[0]))
        reader = chunked.format_.open(folders[0], Split.TRAIN, schema)
        assert len(reader) == len(batch)
        require_same(reader.read(0, len(batch)), batch)
        start = data.draw(st.integers(0, len(batch)))
        stop = data.draw(st.integers(start, len(batch)))
        require_same(reader.read(start, stop), slice_batch(batch, start, stop))


@every_format
def test_split_without_rows_has_no_files(tmp_path, chunked):
    assert chunked.write(tmp_path, schema_of()) == []
    assert contents(tmp_path) == {}
    reader = chunked.format_.open(tmp_path, Split.TRAIN, schema_of())
    assert len(reader) == 0
    assert len(reader.read(0, 1)) == 0


def change_index(change):
    """Return a function that damages the index of a split.

    `change` is called with the index, its list of chunks and the format. It changes the index or returns a new index.
    """

    def damage(folder, chunked):
        index = json.loads((folder / "index.json").read_bytes())
        changed = change(index, index[chunked.chunks], chunked)
        (folder / "index.json").write_text(json.dumps(index if changed is None else changed))

    return damage


def change_num_rows(num_rows):
    return change_index(lambda index, chunks, chunked: chunks[0].update({chunked.num_rows: num_rows}))


def change_chunk(change):
    def damage(folder, chunked):
        content = bytearray((folder / chunked.first_chunk).read_bytes())
        (folder / chunked.first_chunk).write_bytes(change(content) or content)

    return damage


def set_count(at, value):
    return change_chunk(lambda content: content.__setitem__(slice(at, at + 4), value.to_bytes(4, "little")))


DAMAGES = {
    "no index": lambda folder, chunked: (folder / "index.json").unlink(),
    "index is a folder": lambda folder, chunked: (
        (folder / "index.json").unlink(),
        (folder / "index.json").mkdir(),
    ),
    "index is not JSON": lambda folder, chunked: (folder / "index.json").write_text("{"),
    "index is deeply nested": lambda folder, chunked: (folder / "index.json").write_text("[" * 100_000),
    "index is a list": change_index(lambda index, chunks, chunked: [index]),
    "chunk is a number": change_index(lambda index, chunks, chunked: {**index, chunked.chunks: [1]}),
    "more rows": change_num_rows(4),
    "very many rows": change_num_rows(1 << 62),
    "number of rows beyond int64": change_num_rows(1 << 90),
    "negative rows": change_num_rows(-1),
    "extra chunk": change_index(lambda index, chunks, chunked: chunks.append(chunks[0])),
    "no chunk": lambda folder, chunked: (folder / chunked.first_chunk).unlink(),
    "empty chunk": lambda folder, chunked: (folder / chunked.first_chunk).write_bytes(b""),
    "truncated chunk": change_chunk(lambda content: content[:-1]),
    "other count": set_count(0, 4),
    "row before the first row": set_count(4, 0),
    "row beyond the file": set_count(16, 0xFFFFFFFF),
    "rows out of order": set_count(8, 0xFFFFFF),
    "text is not UTF-8": change_chunk(lambda content: content.replace("naïve".encode(), b"na\xff\xffve")),
}


@every_format
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_files_raise_dataset_error(tmp_path, chunked, damage):
    schema = schema_of()
    chunked.write(tmp_path, schema, make_batch(schema, 3))
    damage(tmp_path / "train", chunked)
    with pytest.raises(DatasetError, match="Build the dataset again"):
        chunked.read(tmp_path, schema, 3)


SCHEMAS = {
    "plain": schema_of(),
    "large-vocabulary": schema_of(vocab_size=200_000),
    "padded": schema_of(EVERY, pad_id=1),
    "packed": schema_of(PACKED),
}


@every_format
@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_changed_byte_gives_rows_or_dataset_error(tmp_path, chunked, schema):
    """Change one byte at a time: first anywhere in the file, then in its first 200 bytes, with counts and sizes."""
    chunked.write(tmp_path, schema, make_batch(schema, 2))
    path = tmp_path / "train" / chunked.first_chunk
    content = path.read_bytes()
    random = np.random.default_rng(3)
    num_damaged = 0
    for position in [*random.integers(0, len(content), 200), *random.integers(0, min(len(content), 200), 100)]:
        path.write_bytes(content[:position] + bytes([random.integers(256)]) + content[position + 1 :])
        try:
            assert len(chunked.read(tmp_path, schema, 2)) == 2
        except DatasetError:
            num_damaged += 1
    assert num_damaged > 10
