"""Tests of gristmill export: in every format, an export writes the same windows as a build."""

import fcntl
import hashlib
import json
import os
import shutil
from contextlib import suppress

import pytest

import gristmill
from gristmill import (
    Config,
    ConfigError,
    DatasetError,
    OutputConfig,
    OutputError,
    RunConfig,
    SamplingConfig,
    VariantsConfig,
    WindowConfig,
    build,
    export,
    open_dataset,
)
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.cli.main import run
from gristmill.core.layout import CARDS
from gristmill.core.output_formats import FORMATS
from gristmill.formats import format as formats
from gristmill.publish.export import _exclusive_access
from support.builds import copy_with_work

WITHOUT_EXTRAS = ("npy", "bin", "megatron")


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("exported") / "repo"
    for package in ("json", "logging", "concurrent"):
        shutil.copytree(corpus / package, root / package)
    return str(root)


@pytest.fixture(scope="module")
def make_dataset(tmp_path_factory, source):
    """Return a function that copies a dataset and its work folder. Each combination of settings is built only once."""
    folder = tmp_path_factory.mktemp("made")
    built = {}

    def copy(out, **output):
        key = str(sorted(output.items()))
        if key not in built:
            original = folder / str(len(built))
            built[key] = original, build(Config(sources=[source], out=str(original), output=OutputConfig(**output)))
        copy_with_work(built[key][0], out)
        return built[key][1]

    return copy


def file_contents(folder, manifest):
    return {name: (folder / name).read_bytes() for name in manifest.files}


@pytest.mark.parametrize(
    "output",
    [{}, {"pad": True, "with_text": True}, {"shard_bytes": 150_000}, {"compress": "zstd", "shard_bytes": 150_000}],
)
def test_format_is_the_same_from_a_build_and_from_an_export(make_dataset, tmp_path, output):
    at_once = make_dataset(tmp_path / "at-once", formats=["jsonl", *WITHOUT_EXTRAS], **output)
    make_dataset(tmp_path / "later", **output)
    later = export(tmp_path / "later", WITHOUT_EXTRAS)
    assert file_contents(tmp_path / "later", later) == file_contents(tmp_path / "at-once", at_once)
    assert (later.formats, later.content_sha256) == (at_once.formats, at_once.content_sha256)
    assert gristmill.check(tmp_path / "later").ok
    assert compare_with_clean_build(tmp_path / "later") == []


@pytest.mark.parametrize("sections", [{}, {"window": WindowConfig(pack="best-fit")}])
def test_many_tasks_write_the_same_files_as_one_task(source, tmp_path, monkeypatch, sections):
    names = [name for name in FORMATS if name != "jsonl"]
    joined = {name for name in names if formats.get_format(name).has_own_writer}

    def build_files(out, workers, formats):
        output, run = OutputConfig(formats=formats), RunConfig(workers=workers)
        return build(Config(sources=[source], out=str(tmp_path / out), output=output, run=run, **sections)).files

    def joined_digests(files):
        return {name: facts.sha256 for name, facts in files.items() if facts.format in joined}

    single = build_files("whole", 1, names)
    for name, num_ids in (("PIECE_IDS", 1 << 13), ("FILE_IDS", 1 << 15)):
        monkeypatch.setattr(formats, name, num_ids)
    files = build_files("one", 1, names)
    assert joined_digests(files) == joined_digests(single)
    assert sum(name.startswith("parquet/train-") for name in files) > 1
    assert build_files("two", 3, names) == files
    build_files("later", 1, ["jsonl"])
    exported = export(tmp_path / "later", names, workers=2).files
    assert files.items() <= exported.items()
    assert not list(tmp_path.glob("*/*/*.tmp"))
    assert gristmill.check(tmp_path / "two").ok


@pytest.mark.parametrize("compress", ["none", "zstd"])
@pytest.mark.parametrize("start", WITHOUT_EXTRAS)
def test_jsonl_is_restored_byte_for_byte(source, make_dataset, tmp_path, start, compress):
    output = {"shard_bytes": 150_000 if start == "bin" else 512 << 20, "compress": compress}
    original = make_dataset(tmp_path / "plain", **output)
    make_dataset(tmp_path / "other", formats=[start], **output)
    assert not list((tmp_path / "other").glob("train*.jsonl*"))
    assert gristmill.check(tmp_path / "other", [source]).ok
    restored = export(tmp_path / "other", "jsonl")
    assert restored.formats == ["jsonl", start]
    for name, facts in original.files.items():
        assert restored.files[name].sha256 == facts.sha256


@pytest.mark.parametrize(
    ("package", "sections"),
    [
        (".", {"sampling": SamplingConfig(weights={"json/**": 3}, target_windows=60)}),
        (".", {"sampling": SamplingConfig(weights={"json/**": 3}, weights_only=True)}),
        ("json", {"variants": VariantsConfig(rates={"rename": 1, "noise": 1}), "output": OutputConfig(pad=True)}),
    ],
)
def test_every_column_is_exported_with_the_windows(source, tmp_path, package, sections):
    build(Config(sources=[os.path.join(source, package)], out=str(tmp_path / "out"), **sections))
    rows = {split: list(split_rows) for split, split_rows in open_dataset(tmp_path / "out").items()}
    export(tmp_path / "out", "bin")
    stored = open_dataset(tmp_path / "out").stored_split("bin", "train")
    assert [json.loads(line) for line in stored] == rows["train"] != []
    assert gristmill.check(tmp_path / "out").ok


def test_rows_are_read_from_any_format(make_dataset, tmp_path):
    make_dataset(tmp_path / "jsonl")
    make_dataset(tmp_path / "bin", formats="bin")
    jsonl, stream = open_dataset(tmp_path / "jsonl"), open_dataset(tmp_path / "bin")
    assert list(jsonl["train"]) == list(stream["train"])
    assert jsonl["train"][17] == stream["train"][17]
    assert jsonl["test"][-1] == stream["test"][-1]
    windows = [dataset.torch("train")[3]["input_ids"].tolist() for dataset in (jsonl, stream)]
    assert windows[0] == windows[1]


def test_existing_formats_are_not_changed(make_dataset, tmp_path, capsys):
    before = make_dataset(tmp_path / "out", formats=["jsonl", "bin"])
    assert run(["export", str(tmp_path / "out"), "--format", "bin,npy", "--quiet"]) == 0
    assert run(["export", str(tmp_path / "out"), "--format", "bin"]) == 0
    out = capsys.readouterr().out
    assert "the format bin already exists and was not changed" in out
    assert f"content  sha256 {before.content_sha256}" in out
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl", "npy", "bin"]


def test_damaged_dataset_is_not_exported(make_dataset, tmp_path):
    make_dataset(tmp_path / "out")
    path = tmp_path / "out/train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"start":0', b'"start":1', 1))
    with pytest.raises(DatasetError, match="its rows do not match the content digest in its manifest"):
        export(tmp_path / "out", "bin")
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == []
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl"]


def test_folder_of_the_user_is_not_overwritten(make_dataset, tmp_path):
    make_dataset(tmp_path / "out")
    (tmp_path / "out/bin").mkdir()
    (tmp_path / "out/bin/mine").write_text("mine")
    with pytest.raises(OutputError, match="already exists and is not part of the dataset"):
        export(tmp_path / "out", "bin")
    assert (tmp_path / "out/bin/mine").read_text() == "mine"


def test_concurrent_export_is_refused(make_dataset, tmp_path):
    make_dataset(tmp_path / "out")
    with _exclusive_access(tmp_path / "out"), pytest.raises(OutputError, match="another export"):
        export(tmp_path / "out", "bin")


def test_unknown_or_missing_format_is_reported(make_dataset, tmp_path):
    make_dataset(tmp_path / "out")
    with pytest.raises(ConfigError, match="--format must be one of jsonl, parquet"):
        export(tmp_path / "out", "xml")
    with pytest.raises(ConfigError, match=r"output.formats must be one or several of jsonl, .* got xml"):
        OutputConfig(formats=["xml"])
    with pytest.raises(DatasetError, match=r"format bin, only jsonl\. Run gristmill export .*out --format bin"):
        open_dataset(tmp_path / "out").stored_split("bin", "train")[0]
    assert run(["export", str(tmp_path / "out")]) == 2
    assert OutputConfig(formats=["bin", "jsonl", "bin"]).formats == ["jsonl", "bin"]


def test_check_finds_different_windows_in_one_format(make_dataset, tmp_path):
    make_dataset(tmp_path / "out", formats=["jsonl", "bin"])
    path = tmp_path / "out/bin/train.bin"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    report = gristmill.check(tmp_path / "out")
    failed = {check.name: check.examples for check in report.checks if check.status == "failed"}
    assert set(failed) == {"digests", "formats"}
    assert failed["formats"][0] == "bin: the windows do not match content_sha256 in the manifest"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "jsonl"])
def test_check_finds_unlisted_file_in_the_folder_of_a_format(make_dataset, tmp_path, name):
    make_dataset(tmp_path / "out")
    (tmp_path / "out" / name).mkdir()
    (tmp_path / "out" / name / "train-more").write_text("unlisted rows")
    report = gristmill.check(tmp_path / "out")
    failed = {one.name: one.examples for one in report.checks if one.status == "failed"}
    assert failed == {"digests": [f"{name}/train-more: the file is not listed in the manifest"]}


def check_with_content(folder, name, content):
    """Replace a file, record its new digest in the manifest, and return the failed checks with their examples."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for card in CARDS:
        (folder / card).unlink(missing_ok=True)
    return {check.name: check.examples for check in gristmill.check(folder).checks if check.status == "failed"}


@pytest.mark.parametrize("name", ["bin/train.bin", "bin/train.ends.npy", "bin/test.stream.json", "megatron/train.idx"])
def test_check_finds_faults_outside_the_windows_of_a_stream(make_dataset, tmp_path, name):
    make_dataset(tmp_path / "out", formats=["jsonl", "bin", "megatron"])
    content = bytearray((tmp_path / "out" / name).read_bytes())
    if name.endswith(".bin"):
        content += bytes(1000)
    else:
        content[-9] ^= 1
    assert list(check_with_content(tmp_path / "out", name, bytes(content))) == ["formats"]


def test_check_finds_different_text_in_one_format(make_dataset, tmp_path):
    import pyarrow.parquet

    make_dataset(tmp_path / "out", formats=["jsonl", "parquet"], with_text=True)
    path = tmp_path / "out/parquet/test.parquet"
    table = pyarrow.parquet.read_table(path)
    texts = pyarrow.array(["ghp_" + "x" * 36] * len(table))
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("text"), "text", texts), tmp_path / "x")
    failed = check_with_content(tmp_path / "out", "parquet/test.parquet", (tmp_path / "x").read_bytes())
    assert failed == {"formats": ["parquet: the rows differ from those of jsonl"]}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["parquet/test.parquet", "bin/test.bin", "bin/test.rows.jsonl", "arrow/test/state.json"]
)
def test_named_pipe_instead_of_a_file_does_not_block(make_dataset, tmp_path, name):
    make_dataset(tmp_path / "out", formats=["parquet", "arrow", "bin"])
    (tmp_path / "out" / name).unlink()
    os.mkfifo(tmp_path / "out" / name)
    report = gristmill.check(tmp_path / "out")
    assert "not a regular file" in str([check.examples for check in report.checks if check.status == "failed"])


def test_linked_folder_is_not_followed(make_dataset, tmp_path):
    make_dataset(tmp_path / "out", formats=["jsonl", "bin"])
    shutil.move(tmp_path / "out/bin", tmp_path / "elsewhere")
    (tmp_path / "out/bin").symlink_to(tmp_path / "elsewhere")
    failed = {check.name for check in gristmill.check(tmp_path / "out").checks if check.status == "failed"}
    assert {"digests", "formats"} <= failed


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["splits"]["train"].update(windows=10**15),
        lambda manifest: manifest["splits"]["train"].update(windows=-5),
        lambda manifest: manifest["tokenizer"].update(prefix=[10**30]),
        lambda manifest: manifest["tokenizer"].update(pad_id=-1),
        lambda manifest: manifest["columns"].append("more"),
        lambda manifest: manifest["formats"].append("parquet"),
        lambda manifest: manifest["shards"].update(train=[-5, 10**18]),
    ],
)
@pytest.mark.timeout(60)
def test_check_finds_a_false_manifest_without_delay(make_dataset, tmp_path, change):
    make_dataset(tmp_path / "out", formats=["parquet"])
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    change(manifest)
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    with suppress(DatasetError):
        assert not gristmill.check(tmp_path / "out").ok


def test_check_finds_wrong_padding(make_dataset, tmp_path):
    import pyarrow.parquet

    make_dataset(tmp_path / "out", formats=["parquet"], pad=True)
    path = tmp_path / "out/parquet/test.parquet"
    rows = pyarrow.parquet.read_table(path)
    ids = [[*row[:-1], 7] for row in rows.column("input_ids").to_pylist()]
    changed = rows.set_column(0, "input_ids", pyarrow.array(ids, rows.schema.field("input_ids").type))
    pyarrow.parquet.write_table(changed, tmp_path / "x")
    assert "the padding of a row differs from the padding that a build writes" in str(
        check_with_content(tmp_path / "out", "parquet/test.parquet", (tmp_path / "x").read_bytes())
    )


def test_interrupted_export_is_rolled_back(make_dataset, tmp_path, monkeypatch):
    make_dataset(tmp_path / "out")
    before = {path.name for path in (tmp_path / "out").iterdir()}

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("gristmill.publish.export.write_manifest", die)
        patch.setattr("gristmill.publish.export._roll_back", lambda *_: None)
        export(tmp_path / "out", "bin")
    leftovers = {path.name for path in (tmp_path / "out").iterdir()} - before
    assert "bin" in leftovers
    assert len(leftovers) == 2
    assert export(tmp_path / "out", ["bin", "npy"]).formats == ["jsonl", "npy", "bin"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == before | {"bin", "npy"}


def test_nothing_is_written_if_one_file_already_exists(make_dataset, tmp_path):
    make_dataset(tmp_path / "out", formats=["bin"])
    (tmp_path / "out/train.jsonl").write_text("my notes")
    (tmp_path / "out/parquet").mkdir()
    for requested in ("jsonl", ["arrow", "parquet"]):
        with pytest.raises(OutputError, match="is not part of the dataset"):
            export(tmp_path / "out", requested)
    assert (tmp_path / "out/train.jsonl").read_text() == "my notes"
    assert not (tmp_path / "out/arrow").exists()


def test_export_during_a_build_is_refused(make_dataset, tmp_path):
    make_dataset(tmp_path / "out")
    with (tmp_path / "out.work/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="a build into"):
            export(tmp_path / "out", "bin")
