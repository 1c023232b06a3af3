"""A dataset in further formats: the same windows, whichever way they came there."""

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
from gristmill.checks.rebuild import against_clean
from gristmill.cli.main import run
from gristmill.core.layout import CARDS
from gristmill.core.output_formats import FORMATS
from gristmill.formats import format as formats
from gristmill.publish.export import _alone_in
from support.builds import copy_with_work

NEED_NOTHING = ("npy", "bin", "megatron")


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("exported") / "repo"
    for package in ("json", "logging", "concurrent"):
        shutil.copytree(corpus / package, root / package)
    return str(root)


@pytest.fixture(scope="module")
def made(tmp_path_factory, source):
    """A dataset with its work folder: each kind is built once, and copied."""
    folder = tmp_path_factory.mktemp("made")
    built = {}

    def copy(out, **output):
        key = str(sorted(output.items()))
        if key not in built:
            own = folder / str(len(built))
            built[key] = own, build(Config(sources=[source], out=str(own), output=OutputConfig(**output)))
        copy_with_work(built[key][0], out)
        return built[key][1]

    return copy


def files_of(folder, manifest):
    return {name: (folder / name).read_bytes() for name in manifest.files}


@pytest.mark.parametrize(
    "output",
    [{}, {"pad": True, "with_text": True}, {"shard_bytes": 150_000}, {"compress": "zstd", "shard_bytes": 150_000}],
)
def test_a_format_is_the_same_from_a_build_and_from_an_export(made, tmp_path, output):
    at_once = made(tmp_path / "at-once", formats=["jsonl", *NEED_NOTHING], **output)
    made(tmp_path / "later", **output)
    later = export(tmp_path / "later", NEED_NOTHING)
    assert files_of(tmp_path / "later", later) == files_of(tmp_path / "at-once", at_once)
    assert (later.formats, later.content_sha256) == (at_once.formats, at_once.content_sha256)
    assert gristmill.check(tmp_path / "later").ok
    assert against_clean(tmp_path / "later") == []


@pytest.mark.parametrize("sections", [{}, {"window": WindowConfig(pack="best-fit")}])
def test_many_tasks_write_what_one_does(source, tmp_path, monkeypatch, sections):
    names = [name for name in FORMATS if name != "jsonl"]
    joined = {name for name in names if formats.format_named(name).is_all_ours}

    def made(out, workers, formats):
        output, run = OutputConfig(formats=formats), RunConfig(workers=workers)
        return build(Config(sources=[source], out=str(tmp_path / out), output=output, run=run, **sections)).files

    def same(files):
        return {name: facts.sha256 for name, facts in files.items() if facts.format in joined}

    whole = made("whole", 1, names)
    for name, num_ids in (("PIECE_IDS", 1 << 13), ("FILE_IDS", 1 << 15)):
        monkeypatch.setattr(formats, name, num_ids)
    files = made("one", 1, names)
    assert same(files) == same(whole)
    assert sum(name.startswith("parquet/train-") for name in files) > 1
    assert made("two", 3, names) == files
    made("later", 1, ["jsonl"])
    exported = export(tmp_path / "later", names, workers=2).files
    assert files.items() <= exported.items()
    assert not list(tmp_path.glob("*/*/*.tmp"))
    assert gristmill.check(tmp_path / "two").ok


@pytest.mark.parametrize("compress", ["none", "zstd"])
@pytest.mark.parametrize("start", NEED_NOTHING)
def test_jsonl_comes_back_byte_for_byte(source, made, tmp_path, start, compress):
    output = {"shard_bytes": 150_000 if start == "bin" else 512 << 20, "compress": compress}
    plain = made(tmp_path / "plain", **output)
    made(tmp_path / "other", formats=[start], **output)
    assert not list((tmp_path / "other").glob("train*.jsonl*"))
    assert gristmill.check(tmp_path / "other", [source]).ok
    back = export(tmp_path / "other", "jsonl")
    assert back.formats == ["jsonl", start]
    for name, facts in plain.files.items():
        assert back.files[name].sha256 == facts.sha256


@pytest.mark.parametrize(
    ("package", "sections"),
    [
        (".", {"sampling": SamplingConfig(weights={"json/**": 3}, target_windows=60)}),
        (".", {"sampling": SamplingConfig(weights={"json/**": 3}, weights_only=True)}),
        ("json", {"variants": VariantsConfig(rates={"rename": 1, "noise": 1}), "output": OutputConfig(pad=True)}),
    ],
)
def test_every_column_goes_with_the_windows(source, tmp_path, package, sections):
    build(Config(sources=[os.path.join(source, package)], out=str(tmp_path / "out"), **sections))
    rows = {split: list(own) for split, own in open_dataset(tmp_path / "out").items()}
    export(tmp_path / "out", "bin")
    stored = open_dataset(tmp_path / "out").stored("bin", "train")
    assert [json.loads(line) for line in stored] == rows["train"] != []
    assert gristmill.check(tmp_path / "out").ok


def test_rows_are_read_from_whichever_format_is_there(made, tmp_path):
    made(tmp_path / "jsonl")
    made(tmp_path / "bin", formats="bin")
    jsonl, stream = open_dataset(tmp_path / "jsonl"), open_dataset(tmp_path / "bin")
    assert list(jsonl["train"]) == list(stream["train"])
    assert jsonl["train"][17] == stream["train"][17]
    assert jsonl["test"][-1] == stream["test"][-1]
    windows = [dataset.torch("train")[3]["input_ids"].tolist() for dataset in (jsonl, stream)]
    assert windows[0] == windows[1]


def test_what_is_there_already_stays(made, tmp_path, capsys):
    before = made(tmp_path / "out", formats=["jsonl", "bin"])
    assert run(["export", str(tmp_path / "out"), "--format", "bin,npy", "--quiet"]) == 0
    assert run(["export", str(tmp_path / "out"), "--format", "bin"]) == 0
    out = capsys.readouterr().out
    assert "bin exists already and was not changed" in out
    assert f"content  sha256 {before.content_sha256}" in out
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl", "npy", "bin"]


def test_a_damaged_dataset_is_not_exported(made, tmp_path):
    made(tmp_path / "out")
    path = tmp_path / "out/train.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"start":0', b'"start":1', 1))
    with pytest.raises(DatasetError, match="its rows are not those that its manifest was written for"):
        export(tmp_path / "out", "bin")
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == []
    assert open_dataset(tmp_path / "out").manifest.formats == ["jsonl"]


def test_a_folder_of_the_users_stays_where_it_is(made, tmp_path):
    made(tmp_path / "out")
    (tmp_path / "out/bin").mkdir()
    (tmp_path / "out/bin/mine").write_text("mine")
    with pytest.raises(OutputError, match="is not of the dataset, and stands in its way"):
        export(tmp_path / "out", "bin")
    assert (tmp_path / "out/bin/mine").read_text() == "mine"


def test_two_exports_at_once_do_not_meet(made, tmp_path):
    made(tmp_path / "out")
    with _alone_in(tmp_path / "out"), pytest.raises(OutputError, match="another export"):
        export(tmp_path / "out", "bin")


def test_a_format_that_is_none_is_said(made, tmp_path):
    made(tmp_path / "out")
    with pytest.raises(ConfigError, match="--format takes jsonl, parquet"):
        export(tmp_path / "out", "xml")
    with pytest.raises(ConfigError, match=r"output.formats must be of jsonl, .* got xml"):
        OutputConfig(formats=["xml"])
    with pytest.raises(DatasetError, match=r"has jsonl and no bin\. Try gristmill export --format bin"):
        open_dataset(tmp_path / "out").stored("bin", "train")[0]
    assert run(["export", str(tmp_path / "out")]) == 2
    assert OutputConfig(formats=["bin", "jsonl", "bin"]).formats == ["jsonl", "bin"]


def test_windows_that_are_others_in_one_format_are_found(made, tmp_path):
    made(tmp_path / "out", formats=["jsonl", "bin"])
    path = tmp_path / "out/bin/train.bin"
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    report = gristmill.check(tmp_path / "out")
    failed = {one.name: one.examples for one in report.checks if one.status == "failed"}
    assert set(failed) == {"digests", "formats"}
    assert failed["formats"][0] == "bin: its windows are not those of content_sha256 in the manifest"


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "jsonl"])
def test_a_file_that_no_manifest_names_is_told_in_a_formats_folder(made, tmp_path, name):
    made(tmp_path / "out")
    (tmp_path / "out" / name).mkdir()
    (tmp_path / "out" / name / "train-more").write_text("rows of nobody")
    report = gristmill.check(tmp_path / "out")
    failed = {one.name: one.examples for one in report.checks if one.status == "failed"}
    assert failed == {"digests": [f"{name}/train-more: the manifest does not name it"]}


def redigested(folder, name, content):
    """A file with other bytes, and a manifest that says so."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for card in CARDS:
        (folder / card).unlink(missing_ok=True)
    return {one.name: one.examples for one in gristmill.check(folder).checks if one.status == "failed"}


@pytest.mark.parametrize("name", ["bin/train.bin", "bin/train.ends.npy", "bin/test.stream.json", "megatron/train.idx"])
def test_what_no_window_shows_is_found_in_a_stream(made, tmp_path, name):
    made(tmp_path / "out", formats=["jsonl", "bin", "megatron"])
    content = bytearray((tmp_path / "out" / name).read_bytes())
    if name.endswith(".bin"):
        content += bytes(1000)
    else:
        content[-9] ^= 1
    assert list(redigested(tmp_path / "out", name, bytes(content))) == ["formats"]


def test_a_text_that_is_another_in_one_format_is_found(made, tmp_path):
    import pyarrow.parquet

    made(tmp_path / "out", formats=["jsonl", "parquet"], with_text=True)
    path = tmp_path / "out/parquet/test.parquet"
    table = pyarrow.parquet.read_table(path)
    texts = pyarrow.array(["ghp_" + "x" * 36] * len(table))
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("text"), "text", texts), tmp_path / "x")
    failed = redigested(tmp_path / "out", "parquet/test.parquet", (tmp_path / "x").read_bytes())
    assert failed == {"formats": ["parquet: its rows tell something else than those of jsonl"]}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["parquet/test.parquet", "bin/test.bin", "bin/test.rows.jsonl", "arrow/test/state.json"]
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(made, tmp_path, name):
    made(tmp_path / "out", formats=["parquet", "arrow", "bin"])
    (tmp_path / "out" / name).unlink()
    os.mkfifo(tmp_path / "out" / name)
    report = gristmill.check(tmp_path / "out")
    assert "not an ordinary file" in str([one.examples for one in report.checks if one.status == "failed"])


def test_a_folder_that_is_a_link_is_not_followed(made, tmp_path):
    made(tmp_path / "out", formats=["jsonl", "bin"])
    shutil.move(tmp_path / "out/bin", tmp_path / "elsewhere")
    (tmp_path / "out/bin").symlink_to(tmp_path / "elsewhere")
    failed = {one.name for one in gristmill.check(tmp_path / "out").checks if one.status == "failed"}
    assert {"digests", "formats"} <= failed


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["splits"]["train"].update(windows=10**15),
        lambda told: told["splits"]["train"].update(windows=-5),
        lambda told: told["tokenizer"].update(prefix=[10**30]),
        lambda told: told["tokenizer"].update(pad_id=-1),
        lambda told: told["columns"].append("more"),
        lambda told: told["formats"].append("parquet"),
        lambda told: told["shards"].update(train=[-5, 10**18]),
    ],
)
@pytest.mark.timeout(60)
def test_a_manifest_that_lies_is_found_out_at_once(made, tmp_path, change):
    made(tmp_path / "out", formats=["parquet"])
    told = json.loads((tmp_path / "out/manifest.json").read_text())
    change(told)
    (tmp_path / "out/manifest.json").write_text(json.dumps(told))
    with suppress(DatasetError):
        assert not gristmill.check(tmp_path / "out").ok


def test_padding_that_is_none_is_found(made, tmp_path):
    import pyarrow.parquet

    made(tmp_path / "out", formats=["parquet"], pad=True)
    path = tmp_path / "out/parquet/test.parquet"
    rows = pyarrow.parquet.read_table(path)
    ids = [[*row[:-1], 7] for row in rows.column("input_ids").to_pylist()]
    changed = rows.set_column(0, "input_ids", pyarrow.array(ids, rows.schema.field("input_ids").type))
    pyarrow.parquet.write_table(changed, tmp_path / "x")
    assert "its padding is not what a build writes" in str(
        redigested(tmp_path / "out", "parquet/test.parquet", (tmp_path / "x").read_bytes())
    )


def test_an_export_that_broke_off_is_taken_back(made, tmp_path, monkeypatch):
    made(tmp_path / "out")
    before = {path.name for path in (tmp_path / "out").iterdir()}

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("gristmill.publish.export.write_manifest", die)
        patch.setattr("gristmill.publish.export._take_back", lambda *_: None)
        export(tmp_path / "out", "bin")
    left = {path.name for path in (tmp_path / "out").iterdir()} - before
    assert "bin" in left
    assert len(left) == 2
    assert export(tmp_path / "out", ["bin", "npy"]).formats == ["jsonl", "npy", "bin"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == before | {"bin", "npy"}


def test_nothing_is_moved_where_one_name_is_taken(made, tmp_path):
    made(tmp_path / "out", formats=["bin"])
    (tmp_path / "out/train.jsonl").write_text("my notes")
    (tmp_path / "out/parquet").mkdir()
    for wanted in ("jsonl", ["arrow", "parquet"]):
        with pytest.raises(OutputError, match="stands in its way"):
            export(tmp_path / "out", wanted)
    assert (tmp_path / "out/train.jsonl").read_text() == "my notes"
    assert not (tmp_path / "out/arrow").exists()


def test_an_export_waits_for_no_build(made, tmp_path):
    made(tmp_path / "out")
    with (tmp_path / "out.work/lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="a build into"):
            export(tmp_path / "out", "bin")
