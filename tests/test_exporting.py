"""A dataset in further formats: the same windows, whichever way they came there."""

import json
import shutil

import pytest

import gristmill
from gristmill import (
    Config,
    ConfigError,
    DatasetError,
    OutputConfig,
    OutputError,
    SamplingConfig,
    VariantsConfig,
    build,
    export,
    open_dataset,
)
from gristmill.cli import run
from gristmill.exporting import _alone_in
from gristmill.rebuilding import against_clean
from gristmill.records import FORMATS

NEED_NOTHING = ("npy", "bin", "megatron")


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("exported") / "repo"
    for package in ("json", "logging", "concurrent"):
        shutil.copytree(corpus / package, root / package)
    return str(root)


def made(source, out, **output):
    return build(Config(sources=[source], out=str(out), output=OutputConfig(**output)))


def files_of(folder, manifest):
    return {name: (folder / name).read_bytes() for name in manifest.files}


@pytest.mark.parametrize(
    "output",
    [{}, {"pad": True, "with_text": True}, {"shard_bytes": 150_000}, {"compress": "zstd", "shard_bytes": 150_000}],
)
def test_a_format_is_the_same_from_a_build_and_from_an_export(source, tmp_path, output):
    at_once = made(source, tmp_path / "at-once", formats=["jsonl", *NEED_NOTHING], **output)
    made(source, tmp_path / "later", **output)
    later = export(tmp_path / "later", NEED_NOTHING)
    assert files_of(tmp_path / "later", later) == files_of(tmp_path / "at-once", at_once)
    assert (later.formats, later.content_sha256) == (at_once.formats, at_once.content_sha256)
    assert gristmill.check(tmp_path / "later").ok
    assert against_clean(tmp_path / "later") == []


@pytest.mark.parametrize("start", NEED_NOTHING)
def test_jsonl_comes_back_byte_for_byte(source, tmp_path, start):
    plain = made(source, tmp_path / "plain", shard_bytes=150_000)
    made(source, tmp_path / "other", formats=[start], shard_bytes=150_000)
    assert not list((tmp_path / "other").glob("train*.jsonl"))
    assert gristmill.check(tmp_path / "other", [source]).ok
    back = export(tmp_path / "other", "jsonl")
    assert back.formats == ["jsonl", start]
    for name, facts in plain.files.items():
        assert back.files[name].sha256 == facts.sha256


@pytest.mark.parametrize(
    "sections",
    [
        {"sampling": SamplingConfig(weights={"json/**": 3}, target_windows=60)},
        {"sampling": SamplingConfig(weights={"json/**": 3}, weights_only=True)},
        {"variants": VariantsConfig(rates={"rename": 1, "noise": 1}), "output": OutputConfig(pad=True)},
    ],
)
def test_every_column_goes_with_the_windows(source, tmp_path, sections):
    build(Config(sources=[source], out=str(tmp_path / "out"), **sections))
    rows = {split: list(own) for split, own in open_dataset(tmp_path / "out").items()}
    export(tmp_path / "out", "bin")
    stored = open_dataset(tmp_path / "out").stored("bin", "train")
    assert [json.loads(line) for line in stored] == rows["train"]
    assert gristmill.check(tmp_path / "out").ok


def test_rows_are_read_from_whichever_format_is_there(source, tmp_path):
    made(source, tmp_path / "jsonl")
    made(source, tmp_path / "bin", formats="bin")
    jsonl, stream = open_dataset(tmp_path / "jsonl"), open_dataset(tmp_path / "bin")
    assert list(jsonl["train"]) == list(stream["train"])
    assert jsonl["train"][17] == stream["train"][17]
    assert jsonl["test"][-1] == stream["test"][-1]
    windows = [dataset.torch("train")[3]["input_ids"].tolist() for dataset in (jsonl, stream)]
    assert windows[0] == windows[1]


def test_what_is_there_already_stays(source, tmp_path, capsys):
    before = made(source, tmp_path / "out", formats=["jsonl", "bin"])
    assert run(["export", str(tmp_path / "out"), "--format", "bin,npy", "--quiet"]) == 0
    assert run(["export", str(tmp_path / "out"), "--format", "bin"]) == 0
    out = capsys.readouterr().out
    assert "bin was there already, and stays as it is" in out
    assert f"content  sha256 {before.content_sha256}" in out
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl", "npy", "bin"]


def test_a_damaged_dataset_is_not_exported(source, tmp_path):
    made(source, tmp_path / "out")
    path = tmp_path / "out/train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"start":0', b'"start":1', 1))
    with pytest.raises(DatasetError, match="its rows are not those that its manifest was written for"):
        export(tmp_path / "out", "bin")
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == []
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl"]


def test_a_folder_of_the_users_stays_where_it_is(source, tmp_path):
    made(source, tmp_path / "out")
    (tmp_path / "out/bin").mkdir()
    (tmp_path / "out/bin/mine").write_text("mine")
    with pytest.raises(OutputError, match="is not of the dataset, and stands in its way"):
        export(tmp_path / "out", "bin")
    assert (tmp_path / "out/bin/mine").read_text() == "mine"


def test_two_exports_at_once_do_not_meet(source, tmp_path):
    made(source, tmp_path / "out")
    with _alone_in(tmp_path / "out"), pytest.raises(OutputError, match="another export"):
        export(tmp_path / "out", "bin")


def test_a_format_that_is_none_is_said(source, tmp_path):
    made(source, tmp_path / "out")
    with pytest.raises(ConfigError, match="--format takes jsonl, parquet"):
        export(tmp_path / "out", "xml")
    with pytest.raises(ConfigError, match=r"output.formats must be of jsonl, .* got xml"):
        OutputConfig(formats=["xml"])
    with pytest.raises(DatasetError, match=r"has jsonl and no bin\. Try gristmill export --format bin"):
        open_dataset(tmp_path / "out").stored("bin", "train")[0]
    assert run(["export", str(tmp_path / "out")]) == 2
    assert OutputConfig(formats=["bin", "jsonl", "bin"]).formats == ["jsonl", "bin"]


def test_windows_that_are_others_in_one_format_are_found(source, tmp_path):
    made(source, tmp_path / "out", formats=["jsonl", "bin"])
    path = tmp_path / "out/bin/train.bin"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    report = gristmill.check(tmp_path / "out")
    failed = {one.name: one.examples for one in report.checks if one.status == "failed"}
    assert set(failed) == {"digests", "formats"}
    assert failed["formats"] == ["bin: its windows are not those of content_sha256 in the manifest"]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "jsonl"])
def test_a_file_that_no_manifest_names_is_told_in_a_formats_folder(source, tmp_path, name):
    made(source, tmp_path / "out")
    (tmp_path / "out" / name).mkdir()
    (tmp_path / "out" / name / "train-more").write_text("rows of nobody")
    report = gristmill.check(tmp_path / "out")
    failed = {one.name: one.examples for one in report.checks if one.status == "failed"}
    assert failed == {"digests": [f"{name}/train-more: the manifest does not name it"]}
