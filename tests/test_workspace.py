import os
import subprocess
import sys

import pytest

from gristmill import workspace as workspaces
from gristmill.errors import DatasetError, OutputError
from gristmill.workspace import Workspace


def fill(folder, text):
    (folder / "manifest.json").write_text(text)


def test_the_dataset_takes_its_place_by_rename(tmp_path):
    with Workspace(str(tmp_path / "out")) as work:
        fill(work.dataset, "new")
        assert not (tmp_path / "out").exists()
        work.publish()
    assert (tmp_path / "out/manifest.json").read_text() == "new"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_earlier_dataset_is_replaced_and_what_lay_beside_it_stays(tmp_path, monkeypatch, can_exchange):
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    (out / "notes.txt").write_text("mine")
    if not can_exchange:
        monkeypatch.setattr(workspaces.sys, "platform", "another")
    with Workspace(str(out)) as work:
        fill(work.dataset, "new")
        work.publish()
    assert (out / "manifest.json").read_text() == "new"
    assert (out / "notes.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["out"]


def test_a_failed_build_leaves_the_earlier_dataset_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    fill(out, "old")
    with pytest.raises(RuntimeError), Workspace(str(out)) as work:
        fill(work.dataset, "new")
        raise RuntimeError
    assert (out / "manifest.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_what_a_killed_build_left_is_cleared(tmp_path):
    leftover = tmp_path / "out.work/dataset"
    leftover.mkdir(parents=True)
    (leftover / "train.jsonl").write_text("half")
    with Workspace(str(tmp_path / "out")) as work:
        assert list(work.dataset.iterdir()) == []


def test_an_empty_folder_may_be_built_into(tmp_path):
    (tmp_path / "out").mkdir()
    with Workspace(str(tmp_path / "out")) as work:
        fill(work.dataset, "new")
        work.publish()
    assert (tmp_path / "out/manifest.json").exists()


def test_a_link_is_followed_to_where_it_points(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Workspace(str(tmp_path / "link")) as work:
        fill(work.dataset, "new")
        work.publish()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/manifest.json").exists()


def test_somebody_elses_folder_or_file_is_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/me.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("photos", "file"):
        with pytest.raises(DatasetError, match="exists and is not a"), Workspace(str(tmp_path / name)):
            pass
    assert sorted(os.listdir(tmp_path)) == ["file", "photos"]


def test_a_second_build_refuses_while_the_first_runs(tmp_path):
    out = str(tmp_path / "out")
    code = "import sys; from gristmill.workspace import Workspace\nwith Workspace(sys.argv[1]): print('in')"
    with Workspace(out):
        with pytest.raises(OutputError, match="another build"), Workspace(out):
            pass
        other = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=False)
        assert "another build" in other.stderr
    assert "in" in subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=True).stdout


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="cannot write beside"), Workspace(str(tmp_path / "file/out")):
        pass


def test_too_little_space_is_said_before(tmp_path):
    with Workspace(str(tmp_path / "out")) as work, pytest.raises(OutputError, match=r"takes .* MB, but only"):
        work.require_space(1 << 60)
