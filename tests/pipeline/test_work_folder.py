"""Work folders: publishing and replacing datasets, kills, locks and signals."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.core.errors import DatasetError, InputError, OutputError
from gristmill.core.layout import REPORT, REPORT_MARK
from gristmill.core.manifest import MANIFEST_VERSION, read_manifest
from gristmill.pipeline import work_folder
from gristmill.pipeline.work_folder import Workspace
from support.builds import count_changes, in_a_process, run_until_killed

MANIFEST = {
    "format": MANIFEST_VERSION,
    "gristmill": "0",
    "fingerprint": "",
    "settings": {},
    "versions": {},
    "tokenizer": {
        "name": "",
        "sha256": "",
        "revision": None,
        "vocab_size": 1,
        "engine": "",
        "prefix": [],
        "suffix": [],
        "pad_id": None,
        "end_id": None,
    },
    "sources": [],
    "previous_splits": None,
    "near_duplicates": {"clusters": 0, "files": 0, "dropped": 0},
    "decontamination": {"how": "off", "files_cut": {}, "tokens_before": {}, "tokens_cut": {}, "against": []},
    "sampling": None,
    "fim": None,
    "variants": {},
    "epochs": {"shown": 1.0, "varied": 0.0, "effective": 1.0, "variant_worth": 0.5, "most": 1.0, "most_in": ""},
    "columns": [],
    "segment_columns": [],
    "formats": ["jsonl"],
    "content_sha256": "",
    "shards": {},
    "counts": {
        "found": 0,
        "kept": 0,
        "dropped": 0,
        "dropped_by_reason": {},
        "tail_tokens_dropped": 0,
        "redactions": {},
        "licenses": {},
    },
    "splits": {},
    "packing": None,
    "tokens_by_language": {},
    "files": {"train.jsonl": {"bytes": 0, "sha256": ""}},
    "warnings": [],
    "run": {"started_at": "", "seconds": {}, "workers": 1, "source_bytes": 0, "python": "", "platform": ""},
}


def fill(folder, text):
    """Write a dataset whose fingerprint is `text`."""
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "fingerprint": text}))
    (folder / "train.jsonl").write_text(text)


def fingerprint_of(folder):
    return read_manifest(folder).fingerprint


def test_dataset_is_published_by_rename(tmp_path):
    with Workspace(str(tmp_path / "out")) as work:
        fill(work.dataset, "new")
        assert not (tmp_path / "out").exists()
        work.publish()
    assert fingerprint_of(tmp_path / "out") == "new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_earlier_dataset_is_replaced_and_user_files_are_kept(tmp_path, monkeypatch, can_exchange):
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    (out / "notes.txt").write_text("mine")
    if not can_exchange:
        monkeypatch.setattr(work_folder.sys, "platform", "another")
    with Workspace(str(out)) as work:
        fill(work.dataset, "new")
        work.publish()
    assert fingerprint_of(out) == "new"
    assert (out / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["out"]


def test_failed_build_leaves_only_the_earlier_dataset(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with pytest.raises(RuntimeError), Workspace(str(out)) as work:
        fill(work.dataset, "new")
        raise RuntimeError
    assert fingerprint_of(out) == "old"
    assert os.listdir(tmp_path) == ["out"]


@pytest.fixture
def killed_at(tmp_path):
    """Return a function that replaces a dataset in a process that is killed at a given point.

    The folder of the dataset also contains a file of the user.
    """
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    (out / "notes.txt").write_text("mine")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    fill(fresh, "new")

    def run(point, **patches):
        code = (
            "import os, shutil, sys\n"
            "from gristmill.pipeline import work_folder\n"
            f"{patches.get('before', '')}\n"
            f"original = {point}\n"
            f"left = [{patches.get('calls', 1)}]\n"
            "def die(*a, **k):\n"
            "    left[0] -= 1\n"
            f"    answer = {'original(*a, **k)' if patches.get('after', True) else 'None'}\n"
            "    if left[0] == 0: os.kill(os.getpid(), 9)\n"
            "    return answer\n"
            f"{point} = die\n"
            "with work_folder.Workspace(sys.argv[1]) as work:\n"
            "    shutil.copytree(sys.argv[2], work.dataset, dirs_exist_ok=True)\n"
            "    work.publish()\n"
        )
        assert subprocess.run([sys.executable, "-c", code, str(out), str(fresh)], check=False).returncode == -9
        shutil.rmtree(fresh)
        return out

    return run


@pytest.mark.parametrize(
    ("point", "patches", "expected"),
    [
        ("work_folder.Workspace.publish", {"after": False}, "old"),
        ("work_folder.Workspace._exchange", {}, "new"),
        ("work_folder.Workspace._retire", {"after": False}, "new"),
        ("os.rename", {"before": "work_folder.sys.platform = 'another'"}, "old"),
        ("os.rename", {"before": "work_folder.sys.platform = 'another'", "calls": 2}, "new"),
        ("os.rename", {"before": "work_folder.sys.platform = 'another'", "calls": 3}, "new"),
        ("os.rename", {"before": "work_folder.sys.platform = 'another'", "calls": 4}, "new"),
        ("work_folder.foreign_names", {}, "old"),
    ],
)
def test_build_killed_while_publishing_loses_nothing(killed_at, tmp_path, point, patches, expected):
    out = killed_at(point, **patches)
    with Workspace(str(out)) as work:
        assert [entry.name for entry in work.dataset.iterdir()] == [".growing"]
    assert fingerprint_of(out) == expected
    assert (out / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["out"]


def replace_dataset(out, can_exchange):
    """Publish a dataset of several files and a folder, and write a log."""
    if not can_exchange:
        work_folder.sys = type("sys", (), {"platform": "another"})
    with Workspace(str(out)) as work:
        write_dataset(work.dataset, "new")
        work.log.write_text("pieces")
        work.publish()


DATASET_FILES = ("files.jsonl", "train.jsonl", "parquet/train.parquet")


def write_dataset(folder, text):
    (folder / "parquet").mkdir(exist_ok=True)
    for name in DATASET_FILES:
        (folder / name).write_text(text)
    files = {name: {"bytes": len(text), "sha256": ""} for name in DATASET_FILES}
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "fingerprint": text, "files": files}))


def fingerprint_of_complete(out):
    """Assert that all files of the dataset and of the user are present. Return the fingerprint of the dataset."""
    text = fingerprint_of(out)
    assert {(out / name).read_text() for name in DATASET_FILES} == {text}
    assert [(out / name).read_text() for name in ("notes.txt", "parquet/notes.txt")] == ["mine", "mine"]
    return text


@pytest.mark.parametrize("can_exchange", [True, False])
def test_build_killed_at_any_change_can_be_followed_by_build_or_clean(tmp_path, can_exchange):
    def write_earlier(name):
        out = tmp_path / name / "out"
        out.mkdir(parents=True)
        write_dataset(out, "old")
        (out / "notes.txt").write_text("mine")
        (out / "parquet/notes.txt").write_text("mine")
        return out

    def replace_arguments(out, kill_before):
        return (count_changes, out.parent, kill_before, replace_dataset, out, can_exchange)

    num_steps = in_a_process(*replace_arguments(write_earlier("counted"), None))
    assert num_steps > 30
    for step in range(1, num_steps + 1):
        out = write_earlier(f"{step}-cleaned")
        run_until_killed(*replace_arguments(out, step))
        built = Path(shutil.copytree(out.parent, tmp_path / f"{step}-built"), "out")
        Workspace(str(out)).clean()
        assert fingerprint_of_complete(out) in {"old", "new"}
        replace_dataset(built, can_exchange=True)
        assert fingerprint_of_complete(built) == "new"
        assert os.listdir(out.parent) == os.listdir(built.parent) == ["out"]


def test_user_folders_with_the_name_of_discarded_data_are_kept(tmp_path):
    """The build recognizes data to be deleted only by its location in the work folder."""
    out = tmp_path / "out"
    for name in ("discarded", "out.discarded"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    for _ in range(2):
        replace_dataset(out, can_exchange=True)
    assert sorted(os.listdir(tmp_path)) == ["discarded", "out", "out.discarded"]


def test_foreign_work_folder_is_refused(tmp_path):
    (tmp_path / "out.work/dataset").mkdir(parents=True)
    (tmp_path / "out.work/dataset/mine.csv").write_text("x")
    with pytest.raises(DatasetError, match="not a work folder"), Workspace(str(tmp_path / "out")):
        pass
    assert (tmp_path / "out.work/dataset/mine.csv").exists()


@pytest.mark.parametrize("content", ['{"manifest_version": 3}', "nonsense", '{"gristmill": "0", "format": 1}'])
def test_folder_with_a_manifest_of_another_program_is_refused(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/manifest.json").write_text(content)
    with pytest.raises(DatasetError, match="Name a new folder"), Workspace(str(tmp_path / "out")):
        pass
    assert (tmp_path / "out/manifest.json").read_text() == content


def test_conflicting_user_file_is_named(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    (out / "test.jsonl").write_text("mine")
    with (
        pytest.raises(OutputError, match=r"test\.jsonl.*has the name of a dataset file"),
        Workspace(str(out)) as work,
    ):
        fill(work.dataset, "new")
        (work.dataset / "test.jsonl").write_text("new")
        work.publish()
    assert fingerprint_of(out) == "old"
    assert (out / "test.jsonl").read_text() == "mine"
    assert os.listdir(tmp_path) == ["out"]


def test_permissions_of_the_folder_are_kept(tmp_path):
    out = tmp_path / "out"
    out.mkdir(mode=0o700)
    with Workspace(str(out)) as work:
        fill(work.dataset, "new")
        work.publish()
    assert out.stat().st_mode & 0o777 == 0o700


def test_sources_inside_the_output_are_refused(tmp_path):
    work = Workspace(str(tmp_path / "out"))
    for name in ("out", "out/sub", "out.work", "out.work/dataset"):
        with pytest.raises(InputError, match="a folder that the build replaces"):
            work.refuse_sources([str(tmp_path / name)])
    work.refuse_sources([str(tmp_path), str(tmp_path / "output")])


def test_root_directory_is_refused_as_output():
    with pytest.raises(DatasetError, match="cannot be a dataset folder"):
        Workspace("/")


def test_empty_folder_is_accepted_as_output(tmp_path):
    (tmp_path / "out").mkdir()
    with Workspace(str(tmp_path / "out")) as work:
        fill(work.dataset, "new")
        work.publish()
    assert (tmp_path / "out/manifest.json").exists()


def test_output_symlink_is_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Workspace(str(tmp_path / "link")) as work:
        fill(work.dataset, "new")
        work.publish()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/manifest.json").exists()


def test_foreign_folder_or_file_is_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/me.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("photos", "file"):
        with pytest.raises(DatasetError, match="Name a new folder"), Workspace(str(tmp_path / name)):
            pass
    assert sorted(os.listdir(tmp_path)) == ["file", "photos"]


def test_second_build_is_refused_while_the_first_runs(tmp_path):
    out = str(tmp_path / "out")
    code = "import sys; from gristmill.pipeline.work_folder import Workspace\nwith Workspace(sys.argv[1]): print('in')"
    with Workspace(out):
        with pytest.raises(OutputError, match="another build"), Workspace(out):
            pass
        other = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=False)
        assert "another build" in other.stderr
    assert "in" in subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=True).stdout


def test_unwritable_location_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write beside"), Workspace(str(tmp_path / "file/out")):
        pass


def test_lack_of_disk_space_is_reported_before_writing(tmp_path):
    with Workspace(str(tmp_path / "out")) as work, pytest.raises(OutputError, match=r"needs .* MB, but only"):
        work.require_space(1 << 60)


@pytest.mark.parametrize("page", [f"<!doctype html>{REPORT_MARK}", "<!doctype html>mine"])
def test_report_is_deleted_with_its_dataset_but_a_page_of_the_user_is_kept(tmp_path, page):
    for text in ("old", "new"):
        with Workspace(str(tmp_path / "out")) as work:
            fill(work.dataset, text)
            work.publish()
        if text == "old":
            (tmp_path / "out" / REPORT).write_text(page)
    assert (tmp_path / "out" / REPORT).exists() == ("mine" in page)


def test_check_result_is_deleted_with_its_dataset(tmp_path):
    for text in ("old", "new"):
        with Workspace(str(tmp_path / "out")) as work:
            fill(work.dataset, text)
            work.publish()
        if text == "old":
            (tmp_path / "out/check.json").write_text("{}")
            (tmp_path / "out/notes.txt").write_text("mine")
    assert (tmp_path / "out/notes.txt").exists()
    assert not (tmp_path / "out/check.json").exists()


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def interrupted_in(request, monkeypatch):
    """Return a function that patches a function so that a signal arrives just before the next call."""

    def raise_interrupt(*_):
        raise KeyboardInterrupt

    def patch(where, name):
        plain = getattr(where, name)

        def first_interrupted(*arguments, **options):
            monkeypatch.setattr(where, name, plain)
            signal.raise_signal(request.param)
            return plain(*arguments, **options)

        monkeypatch.setattr(where, name, first_interrupted)

    handler = signal.signal(request.param, raise_interrupt)
    yield patch
    signal.signal(request.param, handler)


@pytest.mark.parametrize(("where", "step"), [(shutil, "rmtree"), (os, "close")])
def test_interrupt_waits_until_the_work_folder_is_deleted(tmp_path, interrupted_in, where, step):
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path / "out") as work:
        work.publish()
        interrupted_in(where, step)
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("step", ["mkdir", "open"])
def test_interrupt_waits_until_the_work_folder_is_created(tmp_path, interrupted_in, step):
    interrupted_in(os, step)
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path / "out"):
        raise AssertionError
    assert not any(tmp_path.iterdir())


def test_format_folder_is_replaced_and_user_files_in_it_are_kept(tmp_path):
    files = {"files": {"parquet/train.parquet": {"bytes": 0, "sha256": ""}}}
    for text in ("old", "new"):
        with Workspace(str(tmp_path / "out")) as work:
            (work.dataset / "parquet").mkdir(exist_ok=True)
            (work.dataset / "parquet/train.parquet").write_text(text)
            (work.dataset / "manifest.json").write_text(json.dumps({**MANIFEST, **files}))
            work.publish()
        assert (tmp_path / "out/parquet/train.parquet").read_text() == text
        (tmp_path / "out/parquet/notes.txt").write_text("mine")
    assert (tmp_path / "out/parquet/notes.txt").read_text() == "mine"
