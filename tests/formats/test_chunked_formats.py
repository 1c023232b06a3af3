"""What MDS and LitData share: rows in chunks with an index beside them, and nothing believed that a file says."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DatasetError
from gristmill.core.records import Split
from gristmill.formats import litdata, mds
from gristmill.formats.batch import between
from gristmill.formats.format import Format, Target
from support.chunked_batches import EVERY, PACKED, batches, cut, many, require_same, schema_of, schemas


class Chunked(NamedTuple):
    form: Format
    module: Any
    first: str
    """The name of the first chunk."""
    chunks: str
    """The key of all chunks in the index, and below it those of a chunk's rows."""
    num_rows: str

    def written(self, folder, schema, *parts):
        return self.form.write(iter(parts), Target(folder, Split.TRAIN, schema))

    def read(self, folder, schema, num_rows):
        return self.form.open(folder, Split.TRAIN, schema).read(0, num_rows)


every_format = pytest.mark.parametrize(
    "chunked",
    [
        Chunked(mds.MDS, mds, "shard.00000.mds", "shards", "samples"),
        Chunked(litdata.LITDATA, litdata, "chunk-0-0.bin", "chunks", "chunk_size"),
    ],
    ids=["mds", "litdata"],
)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@every_format
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_come_back_as_they_were_however_they_are_cut(tmp_path_factory, chunked, data):
    schema = data.draw(schemas)
    batch = data.draw(batches(schema, min_ids=0))
    folders = [tmp_path_factory.mktemp("chunks") for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked.module, "CHUNK_BYTES", data.draw(st.sampled_from([1, 700, 4000])))
        names = chunked.written(folders[0], schema, batch)
        chunked.written(folders[1], schema, *cut(batch, data.draw(st.lists(st.integers(0, 9)))))
        assert contents(folders[0]) == contents(folders[1])
        assert sorted(names) == sorted(f"train/{name}" for name in contents(folders[0]))
        reader = chunked.form.open(folders[0], Split.TRAIN, schema)
        assert len(reader) == len(batch)
        require_same(reader.read(0, len(batch)), batch)
        start = data.draw(st.integers(0, len(batch)))
        stop = data.draw(st.integers(start, len(batch)))
        require_same(reader.read(start, stop), between(batch, start, stop))


@every_format
def test_a_split_without_rows_has_nothing_there(tmp_path, chunked):
    assert chunked.written(tmp_path, schema_of()) == []
    assert contents(tmp_path) == {}
    reader = chunked.form.open(tmp_path, Split.TRAIN, schema_of())
    assert len(reader) == 0
    assert len(reader.read(0, 1)) == 0


def changed_index(change):
    """`change` is given the index, all chunks in it and the key of a chunk's rows; it may give another index."""

    def damage(folder, chunked):
        index = json.loads((folder / "index.json").read_bytes())
        another = change(index, index[chunked.chunks], chunked)
        (folder / "index.json").write_text(json.dumps(index if another is None else another))

    return damage


def changed_rows(num_rows):
    return changed_index(lambda index, chunks, chunked: chunks[0].update({chunked.num_rows: num_rows}))


def changed_chunk(change):
    def damage(folder, chunked):
        content = bytearray((folder / chunked.first).read_bytes())
        (folder / chunked.first).write_bytes(change(content) or content)

    return damage


def set_count(at, value):
    return changed_chunk(lambda content: content.__setitem__(slice(at, at + 4), value.to_bytes(4, "little")))


DAMAGES = {
    "no index": lambda folder, chunked: (folder / "index.json").unlink(),
    "index is a folder": lambda folder, chunked: (
        (folder / "index.json").unlink(),
        (folder / "index.json").mkdir(),
    ),
    "index is no JSON": lambda folder, chunked: (folder / "index.json").write_text("{"),
    "index is deep": lambda folder, chunked: (folder / "index.json").write_text("[" * 100_000),
    "index is a list": changed_index(lambda index, chunks, chunked: [index]),
    "chunk is a number": changed_index(lambda index, chunks, chunked: {**index, chunked.chunks: [1]}),
    "more rows": changed_rows(4),
    "endless rows": changed_rows(1 << 62),
    "rows beyond numbers": changed_rows(1 << 90),
    "negative rows": changed_rows(-1),
    "a chunk more": changed_index(lambda index, chunks, chunked: chunks.append(chunks[0])),
    "no chunk": lambda folder, chunked: (folder / chunked.first).unlink(),
    "empty chunk": lambda folder, chunked: (folder / chunked.first).write_bytes(b""),
    "cut chunk": changed_chunk(lambda content: content[:-1]),
    "other count": set_count(0, 4),
    "row before rows": set_count(4, 0),
    "row beyond the file": set_count(16, 0xFFFFFFFF),
    "rows backwards": set_count(8, 0xFFFFFF),
    "text is no text": changed_chunk(lambda content: content.replace("naïve".encode(), b"na\xff\xffve")),
}


@every_format
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_told(tmp_path, chunked, damage):
    schema = schema_of()
    chunked.written(tmp_path, schema, many(schema, 3))
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
def test_no_byte_that_changes_ends_in_anything_but_rows_or_damage(tmp_path, chunked, schema):
    """A byte at a time, all over the file and once more at its beginning, where the counts and sizes are."""
    chunked.written(tmp_path, schema, many(schema, 2))
    path = tmp_path / "train" / chunked.first
    content = path.read_bytes()
    random = np.random.default_rng(3)
    num_damaged = 0
    for place in [*random.integers(0, len(content), 200), *random.integers(0, min(len(content), 200), 100)]:
        path.write_bytes(content[:place] + bytes([random.integers(256)]) + content[place + 1 :])
        try:
            assert len(chunked.read(tmp_path, schema, 2)) == 2
        except DatasetError:
            num_damaged += 1
    assert num_damaged > 10
