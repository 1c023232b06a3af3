"""The formats npy, bin and megatron: one stream of tokens a split, and every row found again in it."""

import json
import pickle
import shutil
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import (
    Config,
    DatasetError,
    FimConfig,
    OutputConfig,
    OutputError,
    SamplingConfig,
    SplitConfig,
    VariantsConfig,
    WindowConfig,
    build,
    load_tokenizer,
)
from gristmill.checks.formats import STREAMS, stream_fault
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, WindowBatch, are_alike, between, joined
from gristmill.formats.content_digest import row_digests
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import batch_of_lines, lines_of
from gristmill.formats.megatron import MEGATRON
from gristmill.formats.token_streams import BIN, NPY
from support.codebert_with import FIM, codebert_with
from support.format_roundtrip import content_of
from support.made_code import made_module
from support.megatron_index import parsed_idx

FORMATS = pytest.mark.parametrize("form", [BIN, NPY, MEGATRON], ids=lambda form: form.name)
COLUMNS = ("input_ids", "path", "repo", "language", "lines", "start", "fresh")
SCHEMA = Schema(COLUMNS, length=12, vocab_size=100, prefix=(1, 1), suffix=(2,), pad_id=None, end_id=3)


def row(ids, *, path="a.py", start=0, **more):
    plain = {"input_ids": ids, "path": path, "repo": "r", "language": "python", "lines": [1, 2], "start": start}
    return {**plain, "fresh": 1, **more}


def framed(content, schema=SCHEMA):
    return [*schema.prefix, *content, *schema.suffix]


def batch_of(rows, schema=SCHEMA):
    return batch_of_lines([json.dumps(one).encode() for one in rows], schema)


def rows_of(batch, schema):
    """As they are told, and without padding."""
    return [
        json.loads(line)
        for line in lines_of(batch, schema._replace(pad_id=None, columns=("input_ids", *schema.natural)))
    ]


def write(form, folder, batches, schema=SCHEMA):
    folder.mkdir(parents=True, exist_ok=True)
    return form.write(iter(batches), Target(folder, Split.TRAIN, schema))


def write_rows(form, folder, rows, schema=SCHEMA):
    write(form, folder, [batch_of(rows, schema)], schema)
    return form.open(folder, Split.TRAIN, schema)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def as_told_by_the_slow_way(rows, schema):
    """Rows -> stream, ends of documents, and of each row (offset, count, is_framed)."""
    documents, windows, last = [], [], None
    for one in rows:
        ids = one["input_ids"]
        content = ids[len(schema.prefix) : len(ids) - len(schema.suffix)]
        is_framed = ids == framed(content, schema) and "segments" not in one
        content = content if is_framed else ids
        start, end = one["start"], one["start"] + len(content)
        place = [one.get(name) for name in ("repo", "path", "variant", "variant_seed", "repeat")]
        is_alone = not is_framed or one.get("variant") == "noise" or bool(one.get("fim"))
        goes_on = False
        if last is not None and not is_alone and last["place"] == place:
            goes_on = last["start"] <= start <= last["end"] <= end
            goes_on = goes_on and last["ids"][start - last["start"] :] == content[: last["end"] - start]
        if goes_on:
            documents[-1] += content[last["end"] - start :]
        else:
            documents.append(list(content))
        windows.append((len(documents) - 1, len(documents[-1]) - len(content), len(content), is_framed))
        last = None if is_alone else {"place": place, "start": start, "end": end, "ids": content}
    ended = [document + ([] if schema.end_id is None else [schema.end_id]) for document in documents]
    ends = np.cumsum([0, *map(len, ended)]).tolist()
    return (
        list(chain.from_iterable(ended)),
        ends[1:],
        [(ends[number] + at, count, int(around)) for number, at, count, around in windows],
    )


CONTENTS = st.lists(st.integers(0, 5), max_size=9)


@st.composite
def any_rows(draw):
    """Windows of two files, which mostly go on where the last one is; with ids that are special ones too."""
    names = draw(st.sets(st.sampled_from(["repeat", "variant", "labels", "text", "weight", "fim"])))
    files = [draw(st.lists(st.integers(0, 5), min_size=30, max_size=30)) for _ in range(2)]
    rows, start = [], 0
    for _ in range(draw(st.integers(0, 12))):
        number = draw(st.sampled_from([0, 0, 0, 1]))
        start = max(0, start + draw(st.integers(-1, 5)))
        content = files[number][start : start + draw(st.integers(0, 9))] if draw(st.integers(0, 5)) else draw(CONTENTS)
        ids = framed(content) if draw(st.integers(0, 6)) else draw(CONTENTS)
        more = {"repeat": draw(st.sampled_from([0, 0, 1]))} if "repeat" in names else {}
        more |= {"labels": draw(CONTENTS)} if "labels" in names else {}
        more |= {"text": draw(st.text(max_size=3))} if "text" in names else {}
        more |= {"weight": draw(st.sampled_from([1.0, 0.1, 2.5]))} if "weight" in names else {}
        more |= (
            {"variant": draw(st.sampled_from(["", "", "rename", "noise"])), "variant_seed": 7}
            if "variant" in names
            else {}
        )
        more |= {"fim": draw(st.sampled_from(["", "", "psm"]))} if "fim" in names else {}
        rows.append(row(ids, path=f"{number}.py", start=start, **more))
    columns = tuple(rows[0]) if rows else COLUMNS
    end_id = draw(st.sampled_from([3, None]))
    return rows, SCHEMA._replace(columns=columns, end_id=end_id, vocab_size=draw(st.sampled_from([100, 100_000])))


def stream_and_ends(form, folder):
    """As somebody reads them who knows nothing of gristmill."""
    kind = json.loads((folder / "train.stream.json").read_bytes())["dtype"]
    if form is MEGATRON:
        code_kind, lengths, pointers, documents = parsed_idx((folder / "train.idx").read_bytes())
        assert np.dtype(code_kind) == kind
        stream = np.fromfile(folder / "train.bin", code_kind)
        assert list(documents) == list(range(len(lengths) + 1))
        assert list(pointers) == [stream.itemsize * at for at in np.cumsum([0, *lengths])[:-1]]
        return stream.tolist(), np.cumsum(lengths).tolist()
    stream = np.fromfile(folder / "train.bin", kind) if form is BIN else np.load(folder / "train.npy", mmap_mode="r")
    assert stream.dtype == kind
    return stream.tolist(), np.load(folder / "train.ends.npy").tolist()


@FORMATS
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=any_rows(), data=st.data())
def test_the_stream_is_what_the_slow_way_makes_and_every_row_comes_back(form, tmp_path, made, data):
    rows, schema = made
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    reader = write_rows(form, tmp_path / "out", rows, schema)
    stream, ends, windows = as_told_by_the_slow_way(rows, schema)
    assert stream_and_ends(form, tmp_path / "out") == (stream, ends)
    assert [tuple(one) for one in np.load(tmp_path / "out/train.windows.npy").tolist()] == windows
    assert len(reader) == len(rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    some = reader.read(start, stop)
    assert some.ids.values.dtype == schema.id_type
    assert rows_of(some, schema) == rows[start:stop]


@FORMATS
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=any_rows(), data=st.data())
def test_the_same_bytes_however_rows_are_cut_into_batches(form, tmp_path, made, data):
    rows, schema = made
    batch = batch_of(rows, schema)
    edges = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *edges, len(rows)]
    parts = [between(batch, start, stop) for start, stop in pairwise(edges)]
    write(form, tmp_path / "whole", [batch], schema)
    write(form, tmp_path / "parts", parts, schema)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


@FORMATS
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=any_rows(), is_edge=st.lists(st.booleans(), min_size=12, max_size=12))
def test_pieces_are_joined_to_what_one_task_writes(form, tmp_path, made, is_edge):
    rows, schema = made
    batch = batch_of(rows, schema)
    edges = [row + 1 for row in np.flatnonzero(~are_alike(batch)).tolist() if is_edge[row]] if rows else []
    pieces = []
    for number, (start, stop) in enumerate(pairwise([0, *edges, len(rows)])):
        pieces.append(tmp_path / f"piece-{number}")
        write(form, pieces[-1], [between(batch, start, stop)], schema)
    write(form, tmp_path / "whole", [batch], schema)
    (tmp_path / "joined").mkdir(exist_ok=True)
    names = form.join(iter(pieces), Target(tmp_path / "joined", Split.TRAIN, schema))
    assert sorted(names) == list(contents(tmp_path / "joined"))
    assert contents(tmp_path / "joined") == contents(tmp_path / "whole")


@FORMATS
def test_names_of_the_files_are_told(form, tmp_path):
    assert sorted(write(form, tmp_path / "out", [batch_of([row(framed([5]))])])) == sorted(contents(tmp_path / "out"))


@FORMATS
@pytest.mark.parametrize("batches", [[], [batch_of([])]], ids=["no batch", "an empty batch"])
def test_a_split_without_rows_is_written_and_read_and_may_be_missing(form, tmp_path, batches):
    write(form, tmp_path / "out", batches)
    assert stream_and_ends(form, tmp_path / "out") == ([], [])
    for split in (Split.TRAIN, Split.TEST):  # of test nothing was written
        reader = form.open(tmp_path / "out", split, SCHEMA)
        assert len(reader) == 0
        batch = reader.read(0, 0)
        assert len(batch) == 0
        assert rows_of(batch, SCHEMA) == []


@FORMATS
@pytest.mark.parametrize("is_framed", [True, False], ids=["with special ids", "without"])
def test_a_row_of_several_files_is_a_document_as_it_is(form, tmp_path, is_framed):
    """Its end tokens are in it, where files end: none follows a row that ends in the middle of one."""
    segments = [{"repo": "r", "path": "a.py", "start": 0}, {"repo": "r", "path": "b.py", "start": 4}]
    ids = framed([5, 2, 1, 1, 6]) if is_framed else [5, 6, 3, 7, 8, 9, 9, 9]
    rows = [
        {"input_ids": ids, "segments": segments, "segment_ids": [0, 0, 0, 0, 1, 1, 1, 1]},
        {"input_ids": [7, 3], "segments": segments[1:], "segment_ids": [1, 1]},
        {"input_ids": ids, "segments": segments, "segment_ids": [0, 0, 0, 0, 1, 1, 1, 1]},
    ]
    schema = SCHEMA._replace(columns=tuple(rows[0]))
    reader = write_rows(form, tmp_path / "out", rows, schema)
    stream, ends = stream_and_ends(form, tmp_path / "out")
    assert stream == [*ids, 7, 3, *ids]
    assert ends == [8, 10, 18]
    assert rows_of(reader.read(0, 3), schema) == rows
    assert row_digests(Split.TRAIN, reader.read(0, 3)) == row_digests(Split.TRAIN, batch_of(rows, schema))


def test_a_document_may_be_longer_than_any_batch(tmp_path):
    ids = list(range(4, 94))
    rows = [row(framed(ids[start : start + 9]), start=start) for start in range(0, 82, 4)]
    write(BIN, tmp_path / "out", [batch_of([one]) for one in rows])
    assert stream_and_ends(BIN, tmp_path / "out") == ([*ids[:89], 3], [90])


def test_batches_that_are_views_into_others_are_taken_as_they_are(tmp_path):
    rows = [row(framed([number]), path=str(number)) for number in range(5)]
    whole = batch_of(rows)
    part = WindowBatch(Ragged(whole.ids.values, whole.ids.offsets[1:4]), between(whole, 1, 3).columns)
    write(BIN, tmp_path / "out", [part])
    assert rows_of(BIN.open(tmp_path / "out", Split.TRAIN, SCHEMA).read(0, 2), SCHEMA) == rows[1:3]


@FORMATS
def test_ids_that_do_not_fit_are_refused(form, tmp_path):
    batch = batch_of([row(framed([5]))])
    for wrong in (70_000, -1):
        values = batch.ids.values.astype(np.int64)
        values[2] = wrong
        with pytest.raises(OutputError, match=f"{wrong} does not fit uint16"):
            write(form, tmp_path / "out", [WindowBatch(Ragged(values, batch.ids.offsets), batch.columns)])
    with pytest.raises(OutputError, match="70000 does not fit uint16"):
        write(form, tmp_path / "out", [batch], SCHEMA._replace(end_id=70_000))
    with pytest.raises(OutputError, match="13 ids, and windows have 12"):
        write(form, tmp_path / "out", [batch_of([row(framed(range(10)))])])


def test_megatron_takes_no_ids_beyond_int32(tmp_path):
    schema = SCHEMA._replace(vocab_size=2**32)
    rows = [row(framed([2**31 - 1]))]
    assert rows_of(write_rows(MEGATRON, tmp_path / "out", rows, schema).read(0, 1), schema) == rows
    with pytest.raises(OutputError, match="2147483648 does not fit int32"):
        write_rows(MEGATRON, tmp_path / "out", [row(framed([2**31]))], schema)
    rows = [row(framed([2**32 - 1]))]
    assert rows_of(write_rows(BIN, tmp_path / "bin", rows, schema).read(0, 1), schema) == rows


def test_arrays_are_written_as_numpy_writes_them(tmp_path):
    write(NPY, tmp_path / "out", [batch_of([row(framed([5, 6])), row(framed([7]), path="b.py")])])
    for path in (tmp_path / "out").glob("*.npy"):
        np.save(tmp_path / "again.npy", np.load(path))
        assert path.read_bytes() == (tmp_path / "again.npy").read_bytes()


@FORMATS
def test_a_reader_travels_to_another_process_without_what_it_has_mapped(form, tmp_path):
    rows = [row(framed([5])) for _ in range(3)]
    reader = write_rows(form, tmp_path / "out", rows)
    reader.read(0, 1)
    packed = pickle.dumps(reader)
    assert len(packed) < 1500
    assert rows_of(pickle.loads(packed).read(0, 3), SCHEMA) == rows


def read_all(form, folder):
    reader = form.open(folder, Split.TRAIN, SCHEMA)
    return reader.read(0, len(reader))


@FORMATS
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("offset", -1),
        ("offset", 7),
        ("offset", 2**62),
        ("count", -1),
        ("count", 2**31 - 1),
        ("count", 10),
        ("frame", 3),
        ("frame", 255),
    ],
)
def test_places_outside_of_the_stream_are_no_rows(form, tmp_path, column, value):
    write_rows(form, tmp_path / "out", [row(framed(range(4, 10)))])
    windows = np.load(tmp_path / "out/train.windows.npy", mmap_mode="r+")
    windows[column] = value
    windows.flush()
    with pytest.raises(DatasetError, match=r"'.*train.windows.npy' is damaged: .* is no place in 7 ids. Build"):
        read_all(form, tmp_path / "out")


@FORMATS
def test_files_that_do_not_belong_together_are_damaged(form, tmp_path):
    write_rows(form, tmp_path / "one", [row(framed([5])), row(framed([6]), path="b.py")])
    write_rows(form, tmp_path / "other", [row(framed([5, 5, 5, 5]))])
    for name in contents(tmp_path / "one"):
        shutil.rmtree(tmp_path / "mixed", ignore_errors=True)
        shutil.copytree(tmp_path / "one", tmp_path / "mixed")
        shutil.copy(tmp_path / "other" / name, tmp_path / "mixed")
        if name == "train.stream.json":  # for people
            assert len(read_all(form, tmp_path / "mixed")) == 2
            continue
        with pytest.raises(DatasetError, match="is damaged"):
            read_all(form, tmp_path / "mixed")
        (tmp_path / "mixed" / name).unlink()
        with pytest.raises(DatasetError, match="No such file"):
            read_all(form, tmp_path / "mixed")


@FORMATS
def test_files_cut_short_or_with_more_behind_are_damaged(form, tmp_path):
    write_rows(form, tmp_path / "out", [row(framed([5])), row(framed([6]), path="b.py")])
    for name, content in contents(tmp_path / "out").items():
        if name == "train.stream.json":
            continue
        for other in (
            b"",
            *(content[:-count] for count in (1, 2, 3, 4, 8, 13, 26, 40)),
            *(content + b" " * count for count in (1, 2, 4, 8, 13)),
        ):
            (tmp_path / "out" / name).write_bytes(other)
            with pytest.raises(DatasetError, match="is damaged"):
                read_all(form, tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(content)


@FORMATS
def test_any_other_byte_gives_rows_or_says_what_is_damaged(form, tmp_path):
    write_rows(form, tmp_path / "out", [row(framed([5, 6]))], SCHEMA)
    for name, content in contents(tmp_path / "out").items():
        for place in range(0, len(content), 5):
            for other in (content[place] ^ 1, 0xFF):
                (tmp_path / "out" / name).write_bytes(content[:place] + bytes([other]) + content[place + 1 :])
                try:
                    batch = read_all(form, tmp_path / "out")
                    assert len(row_digests(Split.TRAIN, batch)) == 16
                except DatasetError:
                    pass
        (tmp_path / "out" / name).write_bytes(content)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("path", 5),
        ("path", "\ud800"),
        ("path", None),
        ("start", 1.5),
        ("start", "5"),
        ("start", 2**70),
        ("start", True),
        ("lines", 3),
        ("lines", [2**64]),
        ("lines", [None]),
    ],
)
def test_columns_of_another_kind_are_damaged(tmp_path, column, value):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    path = tmp_path / "out/train.rows.jsonl"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {column: value}) + "\n")
    with pytest.raises(DatasetError, match=r"'.*train.rows.jsonl' is damaged"):
        read_all(BIN, tmp_path / "out")


@pytest.mark.parametrize("line", ["", "{}", "null", "[]", "{", "[" * 100_000, '{"path": "a"}\r'])
def test_lines_that_are_no_rows_are_damaged(tmp_path, line):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    (tmp_path / "out/train.rows.jsonl").write_text(line + "\n")
    with pytest.raises(DatasetError, match=r"'.*train.rows.jsonl' is damaged"):
        read_all(BIN, tmp_path / "out")


def test_negative_ids_do_not_come_back_as_others(tmp_path):
    schema = SCHEMA._replace(vocab_size=100_000)
    write_rows(MEGATRON, tmp_path / "out", [row(framed([5]))], schema)
    (tmp_path / "out/train.bin").write_bytes(np.array([-1, 3], "<i4").tobytes())
    with pytest.raises(DatasetError, match="an id is negative"):
        MEGATRON.open(tmp_path / "out", Split.TRAIN, schema).read(0, 1)


def test_special_ids_or_columns_that_cannot_be_are_damaged(tmp_path):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    for wrong in ({"prefix": (2**70,)}, {"suffix": (-1,)}, {"columns": ("input_ids", "other")}):
        with pytest.raises(DatasetError, match="is damaged"):
            BIN.open(tmp_path / "out", Split.TRAIN, SCHEMA._replace(**wrong))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streamed") / "project"
    folder.mkdir()
    for name in ("argparse", "bisect", "calendar", "cmd", "copy", "csv", "heapq", "queue", "shlex", "textwrap"):
        (folder / f"{name}.py").write_text(made_module(f"{name}.py", 15_000))
    return folder


@pytest.fixture(scope="module")
def with_fim(tmp_path_factory):
    return codebert_with(FIM, tmp_path_factory.mktemp("tokenizer") / "with-fim")


WAYS = {
    "plain": {},
    "padded": {
        "output": OutputConfig(pad=True, with_text=True),
        "window": WindowConfig(length=128, overlap=100, tail="shift"),
    },
    "drawn": {
        "sampling": SamplingConfig(weights={"c*.py": 3}, target_windows=400),
        "window": WindowConfig(length=128, overlap=30),
    },
    "weighted": {
        "sampling": SamplingConfig(weights={"c*.py": 3}, weights_only=True),
        "window": WindowConfig(overlap=0),
    },
    "rewritten": {
        "fim": FimConfig(rate=0.6),
        "window": WindowConfig(length=128, overlap=0, pack="none"),
        "preset": "fim",
    },
    "varied": {
        "variants": VariantsConfig(rates={"rename": 1.0, "noise": 1.0}),
        "output": OutputConfig(pad=True),
    },
}


@pytest.fixture(scope="module", params=WAYS)
def dataset(request, source, with_fim, tmp_path_factory):
    out = tmp_path_factory.mktemp("dataset") / request.param
    more = {"tokenizer": with_fim} if request.param in {"varied", "rewritten"} else {}
    build(Config(sources=[str(source)], out=str(out), **WAYS[request.param], **more))
    return out


@FORMATS
def test_rows_of_a_dataset_come_back_and_are_known_by_their_digest(form, dataset, tmp_path):
    manifest = read_manifest(dataset)
    schema = Schema.of(manifest)
    digests = {}
    for split in Split:
        path = dataset / f"{split}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        batches = [batch_of_lines(lines[at : at + 37], schema) for at in range(0, len(lines), 37)]
        form.write(iter(batches), Target(tmp_path, split, schema))
        reader = form.open(tmp_path, split, schema)
        read = [reader.read(at, min(at + 50, len(lines))) for at in range(0, len(lines), 50)]
        assert len(reader) == len(lines)
        assert [line for batch in read for line in lines_of(batch, schema)] == lines
        digests[split] = [row_digests(split, batch) for batch in read]
    assert content_of(digests) == manifest.content_sha256


@FORMATS
def test_check_finds_nothing_in_a_stream_and_every_id_that_is_not_as_it_was(form, dataset, tmp_path):
    """Between rows, that is: ids inside them are checked as rows."""
    manifest, out = read_manifest(dataset), tmp_path / "out"
    schema, folder = Schema.of(manifest), out / form.name
    folder.mkdir(parents=True)
    for split in Split:
        path = dataset / f"{split}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        form.write([batch_of_lines(lines, schema)], Target(folder, split, schema))
        assert stream_fault(out, manifest, (form.name, split)) is None
    path = folder / f"train{STREAMS[form.name][0]}"
    stream, ends = stream_and_ends(form, folder)
    content, width = (
        path.read_bytes(),
        np.dtype(json.loads((folder / "train.stream.json").read_bytes())["dtype"]).itemsize,
    )
    for end in ends[:3]:
        at = len(content) - (len(stream) - end + 1) * width
        path.write_bytes(content[:at] + b"\x09\0\0\0"[:width] + content[at + width :])
        found = stream_fault(out, manifest, (form.name, Split.TRAIN))
        assert found == f"train: the id at position {end - 1} is 9, expected the end token {schema.end_id}"
    path.write_bytes(content)
    index = folder / "train.rows.jsonl"
    rows = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(rows[:-1]))
    assert "rows in train.rows.jsonl, but" in stream_fault(out, manifest, (form.name, Split.TRAIN))


def test_a_stream_holds_each_file_once_and_its_end_token(source, tmp_path):
    """As a training on nanoGPT's data reads it."""
    out = tmp_path / "dataset"
    manifest = build(Config(sources=[str(source)], out=str(out), split=SplitConfig(decontaminate="off")))
    schema, tokenizer = Schema.of(manifest), load_tokenizer()
    found = []
    for split in Split:
        path = out / f"{split}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        if not lines:
            continue
        BIN.write([joined([batch_of_lines(lines, schema)])], Target(tmp_path, split, schema))
        stream = np.memmap(tmp_path / f"{split}.bin", dtype=np.uint16, mode="r")
        starts = np.concatenate(([0], np.load(tmp_path / f"{split}.ends.npy")))
        for start, end in pairwise(starts):
            assert stream[end - 1] == tokenizer.definition.end_id
            found.append(tokenizer.decode(stream[start : end - 1]))
    assert sorted(found) == sorted(path.read_bytes() for path in source.iterdir())
