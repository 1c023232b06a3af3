"""Builds that read tables, remote repositories and remote storage, and builds that write to remote storage."""

import json
import subprocess

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import LicensesConfig, OutputConfig, RunConfig, SplitConfig, build, open_dataset
from gristmill.config.config import Config
from gristmill.core.errors import OutputError
from gristmill.core.layout import CARDS
from gristmill.core.records import DropReason

TEXTS = [f"def f{number}(x):\n    return x + {number}  # {'abc ' * number}\n" for number in range(12)]


def make(sources, out, **sections):
    run = sections.pop("run", RunConfig(workers=1))
    return build(Config(sources=sources, out=str(out), run=run, **sections))


def write_stack_table(path, texts, row_group_size=5):
    """Write a table with the columns of The Stack."""
    columns = {
        "content": texts,
        "max_stars_repo_name": [f"org/repo{number % 3}" for number in range(len(texts))],
        "max_stars_repo_path": [f"src/f{number}.py" for number in range(len(texts))],
        "max_stars_repo_licenses": [["MIT"] if number % 2 else ["Apache-2.0"] for number in range(len(texts))],
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return str(path)


def rows_of(out):
    return [row for split in open_dataset(out).values() for row in split]


def files_of(out):
    return [json.loads(line) for line in (out / "files.jsonl").read_text().splitlines()]


def names_at(prefix):
    storage = fsspec.filesystem("s3", use_listings_cache=False)
    return {name.rpartition("/")[2] for name in storage.ls(prefix, refresh=True)}


def test_table_columns_give_text_repo_path_and_license(tmp_path):
    table = write_stack_table(tmp_path / "data.parquet", [*TEXTS, None, ""])
    manifest = make([table], tmp_path / "out")
    assert manifest.counts.kept == 12
    assert manifest.counts.dropped_by_reason == {DropReason.BAD_ROW: 1, DropReason.EMPTY: 1}
    assert {row["repo"] for row in rows_of(tmp_path / "out")} == {"org/repo0", "org/repo1", "org/repo2"}
    assert [(source.repo, source.found) for source in manifest.sources] == [("data", 14)]
    kept = {row["path"]: row for row in files_of(tmp_path / "out") if row["status"] == "kept"}
    assert (kept["src/f1.py"]["license"], kept["src/f1.py"]["license_from"]) == ("MIT", "table")


def test_license_column_is_filtered_by_allowed_licenses(tmp_path):
    table = write_stack_table(tmp_path / "data.parquet", TEXTS)
    manifest = make([table], tmp_path / "out", licenses=LicensesConfig(allow=["MIT"]))
    assert manifest.counts.kept == 6
    assert manifest.counts.dropped_by_reason == {DropReason.LICENSE_NOT_ALLOWED: 6}


def test_split_by_repo_uses_the_repo_column(tmp_path):
    table = write_stack_table(tmp_path / "data.parquet", TEXTS)
    make([table], tmp_path / "out", split=SplitConfig(by="repo", shares="40/30/30"))
    splits = {}
    for row in files_of(tmp_path / "out"):
        splits.setdefault(row["repo"], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())


@pytest.mark.parametrize("workers", [1, 2])
def test_changed_table_is_unpacked_again(tmp_path, workers):
    run = RunConfig(workers=workers)
    table = write_stack_table(tmp_path / "data.parquet", TEXTS[:6])
    make([table], tmp_path / "out", run=run)
    write_stack_table(tmp_path / "data.parquet", TEXTS)
    assert make([table], tmp_path / "out", run=run).counts.kept == 12
    assert make([table], tmp_path / "out", run=run).counts.kept == 12


def test_remote_repository_is_cloned_and_updated(tmp_path):
    upstream = tmp_path / "upstream.git"
    upstream.mkdir()

    def git(*words):
        settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *words], cwd=upstream, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (upstream / "a.py").write_text(TEXTS[0])
    git("add", ".")
    git("commit", "-qm", "one")
    source = f"git+file://{upstream}"
    manifest = make([source], tmp_path / "out")
    assert manifest.counts.kept == 1
    assert [fact.repo for fact in manifest.sources] == ["upstream"]
    assert manifest.sources[0].commit
    (upstream / "b.py").write_text(TEXTS[5])
    git("add", ".")
    git("commit", "-qm", "two")
    assert make([source], tmp_path / "out").counts.kept == 2
    assert str(tmp_path) not in (tmp_path / "out/files.jsonl").read_text()


def test_build_reads_from_and_writes_to_storage(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_stack_table(tmp_path / "x.parquet", TEXTS)
    s3("data/one.parquet", (tmp_path / "x.parquet").read_bytes())
    s3("data/two.jsonl", json.dumps({"text": TEXTS[3] + "# more\n"}).encode() + b"\n")
    local = make(["s3://bucket/data/"], "here")
    uploaded = make(["s3://bucket/data/"], "s3://bucket/sets/one")
    assert uploaded.files == local.files
    assert not (tmp_path / "one").exists()
    # The uploaded files are a complete dataset. A second build into the same prefix is refused.
    from gristmill.sources.remote import download, list_files

    for file in list_files("s3://bucket/sets/one/"):
        download(file, tmp_path / "back" / file.name)
    assert len(rows_of(tmp_path / "back")) == len(rows_of(tmp_path / "here"))
    with pytest.raises(OutputError, match="already contains"):
        make(["s3://bucket/data/"], "s3://bucket/sets/one")


def test_interrupted_upload_can_be_resumed(s3, proxy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = write_stack_table(tmp_path / "x.parquet", TEXTS)
    proxy.refused = [b"/sets/two/train.jsonl"] * 99
    with pytest.raises(OutputError, match="cannot upload"):
        make([table], "s3://bucket/sets/two")
    proxy.refused = []
    uploaded = make([table], "s3://bucket/sets/two")
    assert uploaded.files == make([table], "here").files


def test_next_upload_deletes_files_of_an_interrupted_upload(s3, proxy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = write_stack_table(tmp_path / "x.parquet", TEXTS)
    proxy.refused = [b"/sets/three/validation.jsonl"] * 99
    with pytest.raises(OutputError, match="cannot upload"):
        make([table], "s3://bucket/sets/three")
    proxy.refused = []
    assert "train.jsonl" in names_at("bucket/sets/three")
    uploaded = make([table], "s3://bucket/sets/three", output=OutputConfig(compress="zstd"))
    assert names_at("bucket/sets/three") == {*uploaded.files, "manifest.json", *CARDS}
