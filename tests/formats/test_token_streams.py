"""Formats npy, bin and megatron: one stream of tokens per split, from which every row can be read back."""

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
from gristmill.checks.formats import STREAMS, find_stream_fault
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, WindowBatch, concat_batches, equals_previous, slice_batch
from gristmill.formats.content_digest import row_digests
from gristmill.formats.format import Target
from gristmill.formats.jsonl_rows import format_lines, parse_lines
from gristmill.formats.megatron import MEGATRON
from gristmill.formats.token_streams import BIN, NPY
from support.codebert_with import FIM, codebert_with
from support.format_roundtrip import content_of
from support.made_code import made_module
from support.megatron_index import parsed_idx

EACH_FORMAT = pytest.mark.parametrize("format_", [BIN, NPY, MEGATRON], ids=lambda format_: format_.name)
COLUMNS = ("input_ids", "path", "repo", "language", "lines", "start", "fresh")
SCHEMA = Schema(COLUMNS, length=12, vocab_size=100, prefix=(1, 1), suffix=(2,), pad_id=None, end_id=3)


def row(ids, *, path="a.py", start=0, **more):
    plain = {"input_ids": ids, "path": path, "repo": "r", "language": "python", "lines": [1, 2], "start": start}
    return {**plain, "fresh": 1, **more}


def framed(content, schema=SCHEMA):
    return [*schema.prefix, *content, *schema.suffix]


def to_batch(rows, schema=SCHEMA):
    return parse_lines([json.dumps(one).encode() for one in rows], schema)


def to_rows(batch, schema):
    """Return the rows of a batch as dicts, without padding."""
    return [
        json.loads(line)
        for line in format_lines(batch, schema._replace(pad_id=None, columns=("input_ids", *schema.batch_columns)))
    ]


def write(format_, folder, batches, schema=SCHEMA):
    folder.mkdir(parents=True, exist_ok=True)
    return format_.write(iter(batches), Target(folder, Split.TRAIN, schema))


def write_rows(format_, folder, rows, schema=SCHEMA):
    write(format_, folder, [to_batch(rows, schema)], schema)
    return format_.open(folder, Split.TRAIN, schema)


def read_files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def reference_stream(rows, schema):
    """Return the stream, the ends of documents, and (offset, count, is_framed) of each row. Slow, obvious reference.

    `is_framed` is true if the stream stores the row without its special ids.
    """
    documents, windows, last = [], [], None
    for one in rows:
        ids = one["input_ids"]
        content = ids[len(schema.prefix) : len(ids) - len(schema.suffix)]
        is_framed = ids == framed(content, schema) and "segments" not in one
        content = content if is_framed else ids
        start, end = one["start"], one["start"] + len(content)
        key = [one.get(name) for name in ("repo", "path", "variant", "variant_seed", "repeat")]
        is_separate = not is_framed or one.get("variant") == "noise" or bool(one.get("fim"))
        is_continued = False
        if last is not None and not is_separate and last["key"] == key:
            is_continued = last["start"] <= start <= last["end"] <= end
            is_continued = is_continued and last["ids"][start - last["start"] :] == content[: last["end"] - start]
        if is_continued:
            documents[-1] += content[last["end"] - start :]
        else:
            documents.append(list(content))
        windows.append((len(documents) - 1, len(documents[-1]) - len(content), len(content), is_framed))
        last = None if is_separate else {"key": key, "start": start, "end": end, "ids": content}
    ended = [document + ([] if schema.end_id is None else [schema.end_id]) for document in documents]
    ends = np.cumsum([0, *map(len, ended)]).tolist()
    return (
        list(chain.from_iterable(ended)),
        ends[1:],
        [(ends[number] + at, count, int(is_framed)) for number, at, count, is_framed in windows],
    )


CONTENTS = st.lists(st.integers(0, 5), max_size=9)


@st.composite
def any_rows(draw):
    """Generate windows of two files. Most windows continue the previous window, and some contain special ids."""
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


def stream_and_ends(format_, folder):
    """Read the stream and the ends of documents without gristmill."""
    kind = json.loads((folder / "train.stream.json").read_bytes())["dtype"]
    if format_ is MEGATRON:
        code_kind, lengths, pointers, documents = parsed_idx((folder / "train.idx").read_bytes())
        assert np.dtype(code_kind) == kind
        stream = np.fromfile(folder / "train.bin", code_kind)
        assert list(documents) == list(range(len(lengths) + 1))
        assert list(pointers) == [stream.itemsize * at for at in np.cumsum([0, *lengths])[:-1]]
        return stream.tolist(), np.cumsum(lengths).tolist()
    stream = np.fromfile(folder / "train.bin", kind) if format_ is BIN else np.load(folder / "train.npy", mmap_mode="r")
    assert stream.dtype == kind
    return stream.tolist(), np.load(folder / "train.ends.npy").tolist()


@EACH_FORMAT
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=any_rows(), data=st.data())
def test_stream_matches_the_reference_and_every_row_is_read_back(format_, tmp_path, case, data):
    rows, schema = case
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    reader = write_rows(format_, tmp_path / "out", rows, schema)
    stream, ends, windows = reference_stream(rows, schema)
    assert stream_and_ends(format_, tmp_path / "out") == (stream, ends)
    assert [tuple(one) for one in np.load(tmp_path / "out/train.windows.npy").tolist()] == windows
    assert len(reader) == len(rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    some = reader.read(start, stop)
    assert some.ids.values.dtype == schema.id_type
    assert to_rows(some, schema) == rows[start:stop]


@EACH_FORMAT
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=any_rows(), data=st.data())
def test_bytes_do_not_depend_on_batches(format_, tmp_path, case, data):
    rows, schema = case
    batch = to_batch(rows, schema)
    edges = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=5)))
    edges = [0, *edges, len(rows)]
    parts = [slice_batch(batch, start, stop) for start, stop in pairwise(edges)]
    write(format_, tmp_path / "whole", [batch], schema)
    write(format_, tmp_path / "parts", parts, schema)
    assert read_files(tmp_path / "whole") == read_files(tmp_path / "parts")


@EACH_FORMAT
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=any_rows(), is_edge=st.lists(st.booleans(), min_size=12, max_size=12))
def test_joined_pieces_equal_the_files_of_one_task(format_, tmp_path, case, is_edge):
    rows, schema = case
    batch = to_batch(rows, schema)
    edges = [row + 1 for row in np.flatnonzero(~equals_previous(batch)).tolist() if is_edge[row]] if rows else []
    pieces = []
    for number, (start, stop) in enumerate(pairwise([0, *edges, len(rows)])):
        pieces.append(tmp_path / f"piece-{number}")
        write(format_, pieces[-1], [slice_batch(batch, start, stop)], schema)
    write(format_, tmp_path / "whole", [batch], schema)
    (tmp_path / "joined").mkdir(exist_ok=True)
    names = format_.join(iter(pieces), Target(tmp_path / "joined", Split.TRAIN, schema))
    assert sorted(names) == list(read_files(tmp_path / "joined"))
    assert read_files(tmp_path / "joined") == read_files(tmp_path / "whole")


@EACH_FORMAT
def test_write_returns_the_names_of_all_files(format_, tmp_path):
    assert sorted(write(format_, tmp_path / "out", [to_batch([row(framed([5]))])])) == sorted(
        read_files(tmp_path / "out")
    )


@EACH_FORMAT
@pytest.mark.parametrize("batches", [[], [to_batch([])]], ids=["no batch", "an empty batch"])
def test_split_without_rows_is_read_even_if_its_files_are_missing(format_, tmp_path, batches):
    write(format_, tmp_path / "out", batches)
    assert stream_and_ends(format_, tmp_path / "out") == ([], [])
    for split in (Split.TRAIN, Split.TEST):  # no files were written for the test split
        reader = format_.open(tmp_path / "out", split, SCHEMA)
        assert len(reader) == 0
        batch = reader.read(0, 0)
        assert len(batch) == 0
        assert to_rows(batch, SCHEMA) == []


@EACH_FORMAT
@pytest.mark.parametrize("is_framed", [True, False], ids=["with special ids", "without special ids"])
def test_packed_row_is_stored_as_one_document(format_, tmp_path, is_framed):
    """A packed row already contains the end tokens of its files, so the writer adds no end token."""
    segments = [{"repo": "r", "path": "a.py", "start": 0}, {"repo": "r", "path": "b.py", "start": 4}]
    ids = framed([5, 2, 1, 1, 6]) if is_framed else [5, 6, 3, 7, 8, 9, 9, 9]
    rows = [
        {"input_ids": ids, "segments": segments, "segment_ids": [0, 0, 0, 0, 1, 1, 1, 1]},
        {"input_ids": [7, 3], "segments": segments[1:], "segment_ids": [1, 1]},
        {"input_ids": ids, "segments": segments, "segment_ids": [0, 0, 0, 0, 1, 1, 1, 1]},
    ]
    schema = SCHEMA._replace(columns=tuple(rows[0]))
    reader = write_rows(format_, tmp_path / "out", rows, schema)
    stream, ends = stream_and_ends(format_, tmp_path / "out")
    assert stream == [*ids, 7, 3, *ids]
    assert ends == [8, 10, 18]
    assert to_rows(reader.read(0, 3), schema) == rows
    assert row_digests(Split.TRAIN, reader.read(0, 3)) == row_digests(Split.TRAIN, to_batch(rows, schema))


def test_document_can_span_several_batches(tmp_path):
    ids = list(range(4, 94))
    rows = [row(framed(ids[start : start + 9]), start=start) for start in range(0, 82, 4)]
    write(BIN, tmp_path / "out", [to_batch([one]) for one in rows])
    assert stream_and_ends(BIN, tmp_path / "out") == ([*ids[:89], 3], [90])


def test_batch_can_be_a_view_into_another_batch(tmp_path):
    rows = [row(framed([number]), path=str(number)) for number in range(5)]
    whole = to_batch(rows)
    part = WindowBatch(Ragged(whole.ids.values, whole.ids.offsets[1:4]), slice_batch(whole, 1, 3).columns)
    write(BIN, tmp_path / "out", [part])
    assert to_rows(BIN.open(tmp_path / "out", Split.TRAIN, SCHEMA).read(0, 2), SCHEMA) == rows[1:3]


@EACH_FORMAT
def test_ids_that_do_not_fit_are_refused(format_, tmp_path):
    batch = to_batch([row(framed([5]))])
    for bad_value in (70_000, -1):
        values = batch.ids.values.astype(np.int64)
        values[2] = bad_value
        with pytest.raises(OutputError, match=f"{bad_value} does not fit in uint16"):
            write(format_, tmp_path / "out", [WindowBatch(Ragged(values, batch.ids.offsets), batch.columns)])
    with pytest.raises(OutputError, match="70000 does not fit in uint16"):
        write(format_, tmp_path / "out", [batch], SCHEMA._replace(end_id=70_000))
    with pytest.raises(OutputError, match="13 ids, but windows have at most 12"):
        write(format_, tmp_path / "out", [to_batch([row(framed(range(10)))])])


def test_megatron_refuses_ids_beyond_int32(tmp_path):
    schema = SCHEMA._replace(vocab_size=2**32)
    rows = [row(framed([2**31 - 1]))]
    assert to_rows(write_rows(MEGATRON, tmp_path / "out", rows, schema).read(0, 1), schema) == rows
    with pytest.raises(OutputError, match="2147483648 does not fit in int32"):
        write_rows(MEGATRON, tmp_path / "out", [row(framed([2**31]))], schema)
    rows = [row(framed([2**32 - 1]))]
    assert to_rows(write_rows(BIN, tmp_path / "bin", rows, schema).read(0, 1), schema) == rows


def test_npy_files_equal_those_of_numpy(tmp_path):
    write(NPY, tmp_path / "out", [to_batch([row(framed([5, 6])), row(framed([7]), path="b.py")])])
    for path in (tmp_path / "out").glob("*.npy"):
        np.save(tmp_path / "again.npy", np.load(path))
        assert path.read_bytes() == (tmp_path / "again.npy").read_bytes()


@EACH_FORMAT
def test_reader_is_pickled_without_its_memory_maps(format_, tmp_path):
    rows = [row(framed([5])) for _ in range(3)]
    reader = write_rows(format_, tmp_path / "out", rows)
    reader.read(0, 1)
    packed = pickle.dumps(reader)
    assert len(packed) < 1500
    assert to_rows(pickle.loads(packed).read(0, 3), SCHEMA) == rows


def read_all(format_, folder):
    reader = format_.open(folder, Split.TRAIN, SCHEMA)
    return reader.read(0, len(reader))


@EACH_FORMAT
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
def test_positions_outside_the_stream_are_reported(format_, tmp_path, column, value):
    write_rows(format_, tmp_path / "out", [row(framed(range(4, 10)))])
    windows = np.load(tmp_path / "out/train.windows.npy", mmap_mode="r+")
    windows[column] = value
    windows.flush()
    with pytest.raises(
        DatasetError, match=r"'.*train.windows.npy' is damaged: the record of row 0 .* in a stream of 7 ids"
    ):
        read_all(format_, tmp_path / "out")


@EACH_FORMAT
def test_mixed_files_of_different_builds_are_reported(format_, tmp_path):
    write_rows(format_, tmp_path / "one", [row(framed([5])), row(framed([6]), path="b.py")])
    write_rows(format_, tmp_path / "other", [row(framed([5, 5, 5, 5]))])
    for name in read_files(tmp_path / "one"):
        shutil.rmtree(tmp_path / "mixed", ignore_errors=True)
        shutil.copytree(tmp_path / "one", tmp_path / "mixed")
        shutil.copy(tmp_path / "other" / name, tmp_path / "mixed")
        if name == "train.stream.json":  # gristmill never reads this file
            assert len(read_all(format_, tmp_path / "mixed")) == 2
            continue
        with pytest.raises(DatasetError, match="is damaged"):
            read_all(format_, tmp_path / "mixed")
        (tmp_path / "mixed" / name).unlink()
        with pytest.raises(DatasetError, match="No such file"):
            read_all(format_, tmp_path / "mixed")


@EACH_FORMAT
def test_truncated_or_extended_files_are_reported(format_, tmp_path):
    write_rows(format_, tmp_path / "out", [row(framed([5])), row(framed([6]), path="b.py")])
    for name, content in read_files(tmp_path / "out").items():
        if name == "train.stream.json":
            continue
        for other in (
            b"",
            *(content[:-count] for count in (1, 2, 3, 4, 8, 13, 26, 40)),
            *(content + b" " * count for count in (1, 2, 4, 8, 13)),
        ):
            (tmp_path / "out" / name).write_bytes(other)
            with pytest.raises(DatasetError, match="is damaged"):
                read_all(format_, tmp_path / "out")
        (tmp_path / "out" / name).write_bytes(content)


@EACH_FORMAT
def test_changed_byte_gives_rows_or_dataset_error(format_, tmp_path):
    write_rows(format_, tmp_path / "out", [row(framed([5, 6]))], SCHEMA)
    for name, content in read_files(tmp_path / "out").items():
        for key in range(0, len(content), 5):
            for other in (content[key] ^ 1, 0xFF):
                (tmp_path / "out" / name).write_bytes(content[:key] + bytes([other]) + content[key + 1 :])
                try:
                    batch = read_all(format_, tmp_path / "out")
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
def test_columns_of_the_wrong_type_are_reported(tmp_path, column, value):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    path = tmp_path / "out/train.rows.jsonl"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {column: value}) + "\n")
    with pytest.raises(DatasetError, match=r"'.*train.rows.jsonl' is damaged"):
        read_all(BIN, tmp_path / "out")


@pytest.mark.parametrize("line", ["", "{}", "null", "[]", "{", "[" * 100_000, '{"path": "a"}\r'])
def test_lines_that_are_not_rows_are_reported(tmp_path, line):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    (tmp_path / "out/train.rows.jsonl").write_text(line + "\n")
    with pytest.raises(DatasetError, match=r"'.*train.rows.jsonl' is damaged"):
        read_all(BIN, tmp_path / "out")


def test_negative_ids_are_reported(tmp_path):
    schema = SCHEMA._replace(vocab_size=100_000)
    write_rows(MEGATRON, tmp_path / "out", [row(framed([5]))], schema)
    (tmp_path / "out/train.bin").write_bytes(np.array([-1, 3], "<i4").tobytes())
    with pytest.raises(DatasetError, match="an id is negative"):
        MEGATRON.open(tmp_path / "out", Split.TRAIN, schema).read(0, 1)


def test_impossible_special_ids_or_columns_are_reported(tmp_path):
    write_rows(BIN, tmp_path / "out", [row(framed([5]))])
    for bad_value in ({"prefix": (2**70,)}, {"suffix": (-1,)}, {"columns": ("input_ids", "other")}):
        with pytest.raises(DatasetError, match="is damaged"):
            BIN.open(tmp_path / "out", Split.TRAIN, SCHEMA._replace(**bad_value))


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


BUILDS = {
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


@pytest.fixture(scope="module", params=BUILDS)
def dataset(request, source, with_fim, tmp_path_factory):
    out = tmp_path_factory.mktemp("dataset") / request.param
    more = {"tokenizer": with_fim} if request.param in {"varied", "rewritten"} else {}
    build(Config(sources=[str(source)], out=str(out), **BUILDS[request.param], **more))
    return out


@EACH_FORMAT
def test_rows_of_a_dataset_are_read_back_with_the_same_digest(format_, dataset, tmp_path):
    manifest = read_manifest(dataset)
    schema = Schema.of(manifest)
    digests = {}
    for split in Split:
        path = dataset / f"{split}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        batches = [parse_lines(lines[at : at + 37], schema) for at in range(0, len(lines), 37)]
        format_.write(iter(batches), Target(tmp_path, split, schema))
        reader = format_.open(tmp_path, split, schema)
        read = [reader.read(at, min(at + 50, len(lines))) for at in range(0, len(lines), 50)]
        assert len(reader) == len(lines)
        assert [line for batch in read for line in format_lines(batch, schema)] == lines
        digests[split] = [row_digests(split, batch) for batch in read]
    assert content_of(digests) == manifest.content_sha256


@EACH_FORMAT
def test_check_accepts_a_stream_and_finds_every_changed_id_between_rows(format_, dataset, tmp_path):
    """Only ids between rows are changed, because the checks of rows cover the other ids."""
    manifest, out = read_manifest(dataset), tmp_path / "out"
    schema, folder = Schema.of(manifest), out / format_.name
    folder.mkdir(parents=True)
    for split in Split:
        path = dataset / f"{split}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        format_.write([parse_lines(lines, schema)], Target(folder, split, schema))
        assert find_stream_fault(out, manifest, (format_.name, split)) is None
    path = folder / f"train{STREAMS[format_.name][0]}"
    stream, ends = stream_and_ends(format_, folder)
    content, width = (
        path.read_bytes(),
        np.dtype(json.loads((folder / "train.stream.json").read_bytes())["dtype"]).itemsize,
    )
    for end in ends[:3]:
        at = len(content) - (len(stream) - end + 1) * width
        path.write_bytes(content[:at] + b"\x09\0\0\0"[:width] + content[at + width :])
        found = find_stream_fault(out, manifest, (format_.name, Split.TRAIN))
        assert found == f"train: the id at position {end - 1} is 9, expected the end token {schema.end_id}"
    path.write_bytes(content)
    index = folder / "train.rows.jsonl"
    rows = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(rows[:-1]))
    assert "rows, but the stream has" in find_stream_fault(out, manifest, (format_.name, Split.TRAIN))


def test_stream_has_each_file_once_with_its_end_token(source, tmp_path):
    """Read the stream with np.memmap, as nanoGPT does."""
    out = tmp_path / "dataset"
    manifest = build(Config(sources=[str(source)], out=str(out), split=SplitConfig(decontaminate="off")))
    schema, tokenizer = Schema.of(manifest), load_tokenizer()
    found = []
    for split in Split:
        path = out / f"{split}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        if not lines:
            continue
        BIN.write([concat_batches([parse_lines(lines, schema)])], Target(tmp_path, split, schema))
        stream = np.memmap(tmp_path / f"{split}.bin", dtype=np.uint16, mode="r")
        starts = np.concatenate(([0], np.load(tmp_path / f"{split}.ends.npy")))
        for start, end in pairwise(starts):
            assert stream[end - 1] == tokenizer.definition.end_id
            found.append(tokenizer.decode(stream[start : end - 1]))
    assert sorted(found) == sorted(path.read_bytes() for path in source.iterdir())
