"""Rows of any benchmark method are read, measured as a slow reference measures them, and kept as a dataset."""

import json
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Config, DatasetError, OutputError, build, check, open_dataset
from gristmill.core.files_table import FileRow
from gristmill.core.layout import FILES
from gristmill.core.manifest import read_manifest, write_manifest
from gristmill.core.records import DropReason, Split
from gristmill.dataset.foreign import read_foreign_rows
from gristmill.formats.zstd import compress_rows, encode_table
from gristmill.lab.bench.bench import keep_as_dataset
from gristmill.lab.bench.job import Job, JobFile
from gristmill.lab.bench.quality import measure_quality
from support.builds import called

PREFIX, SUFFIX, PAD = (0,), (2,), 1
NUM_CONTENT, STRIDE, LENGTH = 80, 50, 82


def job_for(files, repo="r"):
    members = [
        JobFile(location=f"/x/{path}", path=path, repo=repo, language="python", num_bytes=len(ids), num_tokens=len(ids))
        for path, ids in files.items()
    ]
    return Job(
        files=members,
        root="/x",
        tokenizer="tokenizer.json",
        prefix=PREFIX,
        suffix=SUFFIX,
        pad_id=PAD,
        out="out",
        workers=1,
        expand_to=None,
    )


def row_of(path, start, content, *, pad_to=None, copy=None):
    ids = [*PREFIX, *content, *SUFFIX]
    padding = max(0, (pad_to or 0) - len(ids))
    row = {"input_ids": ids + [PAD] * padding}
    if pad_to is not None:
        row["attention_mask"] = [1] * len(ids) + [0] * padding
    row |= {"path": path, "repo": "r", "language": "python", "start": start}
    return row if copy is None else {**row, "copy": copy}


def write_rows(out, split, rows, file_format):
    out.mkdir(exist_ok=True)
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    if file_format == "json":
        with (out / f"{split}.json").open("w") as stream:
            json.dump(rows, stream, indent=2)
    elif file_format == "jsonl":
        (out / f"{split}.jsonl").write_bytes(b"".join(lines))
    elif rows:
        compressed, frames = compress_rows(lines)
        (out / f"{split}.jsonl.zst").write_bytes(compressed + encode_table(frames))


# --- damage ---

GOOD = row_of("a.py", 0, range(5, 9), pad_to=8)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.json", json.dumps([GOOD, GOOD], indent=2)[:-20]),
        ("train.json", json.dumps([GOOD, GOOD])),
        ("train.json", ""),
        ("train.json", "{}"),
        ("train.json", "[\n  {},\n  {}\n]"),
        ("train.json", json.dumps([GOOD], indent=2).replace("5", "five")),
        ("train.jsonl", "{\n"),
        ("train.jsonl", json.dumps({**GOOD, "path": 3})),
        ("train.jsonl", json.dumps({**GOOD, "start": -1})),
        ("train.jsonl", json.dumps({**GOOD, "attention_mask": [1]})),
        ("train.jsonl", json.dumps({**GOOD, "input_ids": [-1] * 8})),
        ("train.jsonl", json.dumps({**GOOD, "input_ids": [0], "attention_mask": [1]})),
        ("train.jsonl", "\udcff" * 3),
        ("train.jsonl.zst", "no frames"),
    ],
)
def test_damaged_rows_are_a_one_line_error(name, content, tmp_path):
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DatasetError, match=r"damaged") as caught:
        measure_quality(tmp_path, job_for({"a.py": [1]}))
    assert "\n" not in str(caught.value)


# --- measuring ---


def starts_of(num_tokens):
    starts = [0]
    while starts[-1] + NUM_CONTENT < num_tokens:
        starts.append(starts[-1] + STRIDE)
    return starts


SHARED_SPANS = [
    [(7 * number + 13 * position + position * position) % 997 + 5 for position in range(60)] for number in range(4)
] + [[9, 8] * 40]


@st.composite
def texts(draw):
    """Generate files of spans that other files may contain too, with unique tokens between the spans."""
    files = {}
    for number in range(draw(st.integers(1, 5))):
        ids = []
        for span_index in draw(st.lists(st.integers(0, len(SHARED_SPANS) - 1), max_size=4)):
            num_unique = draw(st.integers(0, 20))
            ids += SHARED_SPANS[span_index] + [
                70_000 * (num_unique % 2) + 2000 + 100 * number + position for position in range(num_unique)
            ]
        files[f"{number}.py"] = ids
    return files


@st.composite
def outputs(draw, files):
    """Generate the windows of files in random splits. Some windows are missing, and some are copied."""
    rows = {split: [] for split in Split}
    splits = draw(st.sampled_from([[Split.TRAIN], list(Split), [Split.VALIDATION]]))
    pad_to = draw(st.sampled_from([None, LENGTH]))
    for path, ids in files.items():
        for start in starts_of(len(ids)):
            for copy in range(draw(st.integers(0, 3))):
                content = ids[start : start + NUM_CONTENT]
                row = row_of(path, start, content, pad_to=pad_to, copy=copy if pad_to else None)
                rows[draw(st.sampled_from(splits))].append(row)
    return rows


def content_of(row):
    num_ids = sum(row.get("attention_mask", [1] * len(row["input_ids"])))
    return row["input_ids"][1 : num_ids - 1]


def leaked_positions(content, grams):
    """Return the positions in runs of adjacent 50-grams that occur in train. A run has at least 8 distinct ids."""
    starts = [position for position in range(len(content) - 49) if tuple(content[position : position + 50]) in grams]
    runs = []
    for start in starts:
        if runs and runs[-1][-1] == start - 1:
            runs[-1].append(start)
        else:
            runs.append([start])
    spans = [range(run[0], run[-1] + 50) for run in runs]
    return {position for span in spans if len({content[position] for position in span}) >= 8 for position in span}


def reference(rows, files):
    all_rows = [row for members in rows.values() for row in members]
    covered = {path: set() for path in files}
    for row in all_rows:
        covered[row["path"]] |= set(range(row["start"], row["start"] + len(content_of(row))))
    grams = set()
    for content in map(content_of, rows[Split.TRAIN]):
        grams |= {tuple(content[position : position + 50]) for position in range(len(content) - 49)}
    held_out = [content_of(row) for split in (Split.VALIDATION, Split.TEST) for row in rows[split]]
    num_held_out = sum(map(len, held_out))
    num_content = sum(len(content_of(row)) for row in all_rows)
    num_covered = sum(map(len, covered.values()))
    num_ids = sum(len(row["input_ids"]) for row in all_rows)
    num_padding = sum(row.get("attention_mask", []).count(0) for row in all_rows)
    return {
        "windows": len(all_rows),
        "places": len({(row["path"], row["start"]) for row in all_rows}),
        "distinct": len({tuple(content_of(row)) for row in all_rows}) / len(all_rows) if all_rows else 0.0,
        "redundancy": num_content / num_covered if num_covered else 0.0,
        "padding": num_padding / num_ids if num_ids else 0.0,
        "lost": {path: len(ids) - len(covered[path]) for path, ids in files.items()},
        "l50": sum(len(leaked_positions(one, grams)) for one in held_out) / num_held_out if num_held_out else None,
    }


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), files=texts(), file_format=st.sampled_from(["json", "jsonl"]))
def test_quality_equals_the_reference(data, files, file_format):
    rows = data.draw(outputs(files))
    with tempfile.TemporaryDirectory() as folder:
        for split, members in rows.items():
            write_rows(Path(folder), split, members, file_format)
        measured = msgspec.structs.asdict(measure_quality(Path(folder), job_for(files)))
    expected = reference(rows, files)
    lost = sum(expected.pop("lost").values())
    assert measured == {**expected, "tokens_lost": lost, "tokens_left_out": 0}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    (folder / "r").mkdir()
    for number in range(12):
        lines = [f"def function_{number}_{line}(x): return x + {line * number}\n" for line in range(60)]
        (folder / "r" / f"{number}.py").write_text("".join(lines))
    build(Config(sources=[str(folder / "r")], out=str(folder / "out")))
    return folder / "out"


def file_row(path, status, tokens, cut):
    defaults = {"repo": "r", "path": path, "status": status, "tokens": tokens, "cut_tokens": cut}
    defaults |= dict.fromkeys(("redactions", "respellings", "cuts", "variants"), ())
    defaults |= {"reason": None if status == "kept" else DropReason.EXCLUDED}
    names = [field.name for field in msgspec.structs.fields(FileRow)]
    return FileRow(**{name: defaults.get(name) for name in names})


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data(), files=texts(), num_tail=st.integers(0, 30))
def test_tokens_left_out_by_a_build_do_not_count_as_lost(built, data, files, num_tail):
    rows = data.draw(outputs(files))
    lost, left_out, table = 0, num_tail, []
    missing = reference(rows, files)["lost"]
    for path, ids in files.items():
        status = data.draw(st.sampled_from(["kept", "dropped", "no row"]))
        cut = data.draw(st.integers(0, missing[path])) if status == "kept" else 0
        if status != "no row":
            table.append(file_row(path, status, len(ids), cut))
        lost += {"kept": missing[path] - cut, "dropped": 0, "no row": len(ids)}[status]
        left_out += {"kept": cut, "dropped": len(ids), "no row": 0}[status]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for split, members in rows.items():
            write_rows(out, split, members, "zst")
        (out / FILES).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in table))
        manifest = read_manifest(built)
        counts = msgspec.structs.replace(manifest.counts, tail_tokens_dropped=num_tail)
        write_manifest(msgspec.structs.replace(manifest, counts=counts), out)
        measured = measure_quality(out, job_for(files))
    assert (measured.tokens_lost, measured.tokens_left_out) == (max(0, lost - num_tail), left_out)
    assert measured.l50 == reference(rows, files)["l50"]


def test_planted_leak_is_measured_exactly_and_counted_per_occurrence(tmp_path):
    shared = list(range(100, 160))
    files = {"a.py": [*range(1000, 1010), *shared], "b.py": [*shared, *range(2000, 2040)], "c.py": list(range(20))}
    write_rows(tmp_path, "train", [row_of("a.py", 0, files["a.py"])], "jsonl")
    write_rows(tmp_path, "validation", [row_of("b.py", 0, files["b.py"])] * 3, "jsonl")
    write_rows(tmp_path, "test", [row_of("c.py", 0, files["c.py"])], "jsonl")
    measured = measure_quality(tmp_path, job_for(files))
    assert measured.l50 == 3 * 60 / (3 * 100 + 20)
    assert (measured.windows, measured.places, measured.distinct) == (5, 3, 3 / 5)


def test_quality_of_a_build_agrees_with_its_manifest_and_check(built):
    manifest = read_manifest(built)
    rows = [msgspec.json.decode(line, type=FileRow) for line in (built / FILES).read_bytes().splitlines()]
    files = {row.path: range(row.tokens or 100) for row in rows}
    measured = measure_quality(built, job_for(files))
    assert measured.windows == measured.places == sum(facts.windows for facts in manifest.splits.values())
    assert (measured.tokens_lost, measured.l50, measured.padding) == (0, 0.0, 0.0)
    dropped = sum(len(files[row.path]) for row in rows if row.status == "dropped")
    assert measured.tokens_left_out == dropped + sum(row.cut_tokens or 0 for row in rows)


def test_no_rows_give_zero_quality(tmp_path):
    measured = measure_quality(tmp_path, job_for({"a.py": [5, 6, 7]}))
    assert (measured.windows, measured.distinct, measured.redundancy, measured.padding) == (0, 0.0, 0.0, 0.0)
    assert (measured.tokens_lost, measured.l50) == (3, None)


# --- keeping ---


def full_rows(tokenizer, *, pad, stride):
    """Return windows as the methods cut them, and all ids of the text."""
    ids = tokenizer.encode(
        b"".join(b"name_%d = %d\n" % (position, position * position) for position in range(400))
    ).ids.tolist()
    rows = []
    for start in range(0, len(ids), stride):
        rows.append(row_of("é\n{|}.py", start, ids[start : start + 510], pad_to=512 if pad else None))
        if start + 510 >= len(ids):
            break
    return rows, ids


@pytest.mark.parametrize("made", [("json", True, 128), ("jsonl", True, 128), ("jsonl", False, 256)])
def test_kept_baseline_opens_as_a_dataset(made, codebert, tmp_path, monkeypatch):
    file_format, pad, overlap = made
    rows, _ = full_rows(codebert, pad=pad, stride=510 - overlap)
    out, target = tmp_path / "out", tmp_path / "kept" / "original"
    members = {Split.TRAIN: rows[:-2], Split.VALIDATION: rows[-2:], Split.TEST: []}
    for split, part in members.items():
        write_rows(out, split, part, file_format)
    keep_as_dataset(out, target, "original", codebert.definition)
    dataset = open_dataset(target)
    for split, part in members.items():
        assert len(dataset[split]) == len(part)
        assert list(dataset[split]) == part
    assert dataset["train"][-1] == rows[-3]
    padded = dataset["validation"].padded()[1]
    assert len(padded["input_ids"]) == len(padded["attention_mask"]) == 512
    assert dataset.tokenizer.definition.sha256 == codebert.definition.sha256
    with pytest.raises(
        DatasetError, match="was made by the method 'original' of gristmill bench, not by gristmill build"
    ):
        assert dataset.manifest
    record = dataset.record
    assert record.window_length == 512
    assert record.columns == list(rows[0])
    assert record.splits[Split.TRAIN].windows == len(rows) - 2
    assert record.splits[Split.TRAIN].tokens == rows[-3]["start"] + 510
    assert record.splits[Split.TRAIN].emitted_tokens == sum(len(row["input_ids"]) for row in rows[:-2])
    assert record.splits[Split.TRAIN].files == 1
    assert "original" in dataset._repr_html_()
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["original"]
    assert not (target / "test.jsonl").exists()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    loaded = datasets.load_dataset(str(target), cache_dir=str(tmp_path / "cache"))
    assert {split: len(part) for split, part in loaded.items()} == {"train": len(rows) - 2, "validation": 2}
    assert loaded["train"][0]["input_ids"] == rows[0]["input_ids"]


def test_check_of_a_kept_baseline_fails_without_a_traceback(codebert, tmp_path):
    rows, _ = full_rows(codebert, pad=True, stride=382)
    write_rows(tmp_path / "out", "train", rows, "jsonl")
    keep_as_dataset(tmp_path / "out", tmp_path / "kept", "floor", codebert.definition)
    for words in (("check", tmp_path / "kept"), ("explain", tmp_path / "kept", "a.py")):
        ran = called(*words)
        assert ran.returncode == 4
        assert "the method 'floor' of gristmill bench" in ran.stderr
        assert ran.stderr.count("\n") == 1


def test_kept_build_is_unchanged(built, codebert, tmp_path):
    shutil.copytree(built, tmp_path / "out")
    (tmp_path / "out" / "check.json").unlink(missing_ok=True)
    keep_as_dataset(tmp_path / "out", tmp_path / "kept", "gristmill", codebert.definition)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == {
        path.name: path.read_bytes() for path in built.iterdir() if path.name != "check.json"
    }
    assert check(tmp_path / "kept").ok


def test_existing_files_are_kept_and_refused(codebert, tmp_path):
    write_rows(tmp_path / "out", "train", [], "json")
    for name in ("kept", "other.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
        with pytest.raises(OutputError, match=name):
            target = tmp_path / name.removesuffix(".part")
            keep_as_dataset(tmp_path / "out", target, "original", codebert.definition)
        assert (tmp_path / name / "mine").exists()


def test_damaged_rows_leave_no_folder(codebert, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train.json").write_text(json.dumps([GOOD, GOOD], indent=2)[:-9])
    with pytest.raises(DatasetError):
        keep_as_dataset(tmp_path / "out", tmp_path / "kept", "original", codebert.definition)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_output_without_rows_is_kept_as_an_empty_dataset(codebert, tmp_path):
    write_rows(tmp_path / "out", "train", [], "json")
    keep_as_dataset(tmp_path / "out", tmp_path / "kept", "original", codebert.definition)
    dataset = open_dataset(tmp_path / "kept")
    assert [len(rows) for rows in dataset.values()] == [0, 0, 0]
    assert list(read_foreign_rows(tmp_path / "kept", Split.TRAIN)) == []
