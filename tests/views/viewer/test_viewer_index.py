"""The index beside a dataset: made once, by whom it may be, and never trusted unless it is whole."""

import json
import os
import re
import shutil
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from gristmill import Config, WindowConfig, build, export
from gristmill.core.errors import OutputError
from gristmill.views.viewer import viewed_rows, window_index
from gristmill.views.viewer.opened import Opened
from gristmill.views.viewer.viewer_folder import Keeping, forget, view_folder
from support.builds import run
from support.environment import without_privileges
from support.foreign_datasets import made_foreign
from support.viewers import built, viewer


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return built(tmp_path_factory.mktemp("indexed"), "plain")


@pytest.fixture
def folder(original, tmp_path):
    return Path(shutil.copytree(original, tmp_path / "dataset"))


def indexes(folder):
    """By name: which folder each is, and of when its files are."""
    found = sorted(view_folder(folder).glob("index-*"))
    return {path.name: (path.stat().st_ino, (path / "row.npy").stat().st_mtime_ns) for path in found}


def look(folder):
    """Opens it, asks what takes the index -> the index after that."""
    with viewer(folder) as asking:
        asking.indexed()
        assert asking.found("/api/dataset")["index"] == {"is_ready": True, "share": 1.0, "error": None}
        assert asking.found("/api/windows", language="python")["total"] > 0
    return indexes(folder)


def test_a_folder_whose_name_is_not_utf8_is_told_by_its_bytes(original, tmp_path):
    folder = Path(shutil.copytree(original, tmp_path / os.fsdecode(b"caf\xe9")))
    with viewer(folder) as asking:
        assert asking.found("/api/dataset")["title"] == r"caf\xe9"


def test_it_is_made_once(folder):
    first = look(folder)
    assert len(first) == 1
    assert look(folder) == first


def test_the_first_page_needs_none(folder, monkeypatch):
    may_go_on = threading.Event()
    monkeypatch.setattr(window_index, "_write_block", lambda *_, **__: may_go_on.wait(20))
    with viewer(folder) as asking:
        try:
            assert asking.found("/api/windows")["rows"][0]["text"]
            assert asking.found("/api/windows", split="test")["rows"]
            assert asking.found("/api/row", split="train", row=3, language="python")["next"] == {
                "split": "train",
                "row": 4,
            }
            assert asking.found("/api/search", q="alpha")["hits"]
            status, answer = asking.get("/api/windows", language="python")
            assert status == 202
            assert answer["index"]["is_ready"] is False
            assert 0 <= answer["index"]["share"] < 1
            assert asking.get("/api/file", repo="repo", path="src/m01.js")[0] == 202
            while (files := asking.get("/api/files", status="dropped"))[0] == 202:  # they are indexed first
                time.sleep(0.01)
            assert files[1]["total"] > 0
        finally:
            may_go_on.set()


def test_rows_far_from_the_front_wait_for_it(folder, monkeypatch):
    monkeypatch.setattr(viewed_rows, "FRONT_BYTES", 4000)
    may_go_on = threading.Event()
    original = window_index._write_block
    monkeypatch.setattr(
        window_index, "_write_block", lambda *some, **more: may_go_on.wait(20) and original(*some, **more)
    )
    with viewer(folder) as asking:
        assert asking.found("/api/row", split="train", row=0)["look"]["row"] == 0
        assert asking.get("/api/row", split="train", row=90)[0] == 202
        assert asking.get("/api/windows", **{"from": 50})[0] == 202
        partial = asking.found("/api/search", q="nowhere at all")
        assert partial["searched"] > 0
        assert asking.get("/api/search", q="nowhere at all", after=partial["next"])[0] == 202
        may_go_on.set()
        asking.indexed()
        assert asking.found("/api/row", split="train", row=90)["look"]["row"] == 90
        assert asking.found("/api/search", q="nowhere at all", after=partial["next"])["next"] is None


def test_another_dataset_in_its_place_gets_another(folder):
    first = look(folder)
    build(Config(sources=[str(sources_of(folder))], out=str(folder), window=WindowConfig(length=48, overlap=8)))
    second = look(folder)
    assert len(second) == 1
    assert set(second) != set(first)


def sources_of(folder):
    source = folder.parent / "repo"
    source.mkdir()
    for number in range(12):
        (source / f"a{number}.py").write_text("".join(f"value{number} = call(name{line})\n" for line in range(60)))
    return source


def test_a_viewer_follows_a_build_into_the_same_place(folder):
    with viewer(folder) as asking:
        asking.indexed()
        before = asking.found("/api/dataset")
        build(Config(sources=[str(sources_of(folder))], out=str(folder), window=WindowConfig(length=48, overlap=8)))
        after = asking.found("/api/dataset")
        assert after["window_length"] == 48 != before["window_length"]
        asking.indexed()
        found = asking.found("/api/windows", path="a1.py")
        assert found["total"] > 0
        assert found["rows"][0]["windows"][0]["path"] == "a1.py"
    assert len(indexes(folder)) == 1


def test_touched_files_get_another(folder):
    first = look(folder)
    os.utime(folder / "train.jsonl", ns=(1, 1))
    assert set(look(folder)) != set(first)


def test_a_format_that_is_not_read_changes_nothing(folder):
    first = look(folder)
    export(folder, "bin", workers=1)
    assert look(folder) == first


@pytest.mark.parametrize("harm", ["cut", "flipped", "gone", "no sums", "sums of others", "a pipe"])
def test_a_damaged_one_is_made_anew(folder, harm):
    (name,) = look(folder)
    index = view_folder(folder) / name
    whole = {path.name: path.read_bytes() for path in index.iterdir()}
    array = index / "file.npy"
    match harm:
        case "cut":
            array.write_bytes(whole["file.npy"][:-3])
        case "flipped":
            array.write_bytes(whole["file.npy"][:-1] + bytes([whole["file.npy"][-1] ^ 1]))
        case "gone":
            array.unlink()
        case "no sums":
            (index / "sums.json").write_bytes(b"{")
        case "sums of others":
            np.save(index / "row.npy", np.arange(3))
        case "a pipe":
            (index / "sums.json").unlink()
            os.mkfifo(index / "sums.json")
    assert look(folder).keys() == {name}
    assert {path.name: path.read_bytes() for path in index.iterdir()} == whole


def test_what_a_killed_one_leaves_is_not_trusted(folder):
    (name,) = look(folder)
    kept = view_folder(folder)
    (kept / name).rename(kept / f"{name}.tmp")
    (kept / f"{name}.tmp" / "file.npy").write_bytes(b"half")
    (kept / "index-of-another.tmp").mkdir()
    assert look(folder).keys() == {name}
    assert sorted(path.name for path in kept.iterdir()) == sorted([".gitignore", "CACHEDIR.TAG", name, "key", "lock"])


def test_one_that_is_stopped_half_way_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(window_index, "ROWS_AT_ONCE", 1)
    original = window_index._write_block
    monkeypatch.setattr(window_index, "_write_block", lambda *some, **more: (time.sleep(0.01), original(*some, **more)))
    keeping = Keeping(folder)
    opened = Opened(folder, keeping)
    opened.start()
    while not indexes_growing(folder):
        time.sleep(0.01)
    opened.close()
    assert not list(view_folder(folder).glob("index-*"))


def indexes_growing(folder):
    return list(view_folder(folder).glob("index-*.tmp/row.npy"))


def test_two_at_once_make_one(folder, monkeypatch):
    made = []
    original = window_index.write_windows
    monkeypatch.setattr(
        "gristmill.views.viewer.index.write_windows", lambda *some: (made.append(1), time.sleep(0.2), original(*some))
    )
    with viewer(folder) as one, viewer(folder) as other:
        for asking in (one, other):
            asking.indexed()
            assert asking.found("/api/windows", language="python")["total"] > 0
        assert one.key == other.key
        assert other.ask("/api/dataset", **one.cookie)[0] == 200
    assert made == [1]


def test_beside_a_folder_that_cannot_be_written_it_is_elsewhere(original, tmp_path):
    parent = tmp_path / "closed"
    folder = Path(shutil.copytree(original, parent / "dataset"))
    parent.chmod(0o555)
    with without_privileges(may_read=True), viewer(folder) as asking:
        assert "cannot be written" in asking.note
        place = asking.opened.now().index._keeping.folder
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        asking.indexed()
        assert asking.found("/api/windows", language="python")["total"] > 0
        assert not view_folder(folder).exists()
    assert not place.exists()


@pytest.mark.parametrize("harm", ["foreign", "link"])
def test_what_is_somebody_elses_stays(folder, harm, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter").write_text("dear")
    if harm == "link":
        (theirs / "lock").touch()
        view_folder(folder).symlink_to(theirs)
    else:
        theirs.rename(view_folder(folder))
    with viewer(folder) as asking:
        assert "cannot be written" in asking.note
        asking.indexed()
    names = {path.name for path in view_folder(folder).iterdir()}
    assert names == {"letter"} | ({"lock"} if harm == "link" else set())
    assert forget(folder) == 0
    assert {path.name for path in view_folder(folder).iterdir()} == names


@pytest.mark.parametrize("name", ["lock", "key", ".gitignore", "CACHEDIR.TAG"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_through_what_came_with_a_dataset_nothing_is_written(folder, name, kind, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("dear")
    view_folder(folder).mkdir()
    (view_folder(folder) / "lock").touch()
    (view_folder(folder) / name).unlink(missing_ok=True)
    if kind == "link":
        (view_folder(folder) / name).symlink_to(theirs)
    else:
        os.mkfifo(view_folder(folder) / name)
    keeping = Keeping(folder)
    assert "no viewer's" in keeping.note
    assert keeping.key()
    with keeping.alone(wait=pytest.fail):
        pass
    keeping.close()
    assert theirs.read_text() == "dear"


def test_a_key_is_read_no_further_than_one_is_long(folder):
    keeping = Keeping(folder)
    first = keeping.key()
    with (keeping.folder / "key").open("r+b") as stream:
        stream.truncate(1 << 40)
    assert keeping.key() != first
    assert (keeping.folder / "key").stat().st_size == len(first)


def test_the_key_outlives_a_restart_unless_others_can_read_it(folder):
    with viewer(folder) as asking:
        key, port, cookie = asking.key, asking.port, asking.cookie
    with viewer(folder, port) as asking:
        assert asking.key == key
        assert asking.ask("/api/dataset", **cookie)[0] == 200
    (view_folder(folder) / "key").chmod(0o644)
    with viewer(folder) as asking:
        assert asking.key != key
        assert asking.ask("/api/dataset", **cookie)[0] == 403


def test_clean_deletes_it_and_what_is_not_its_own_stays(folder):
    look(folder)
    (view_folder(folder) / "notes.txt").write_text("mine")
    done = run("clean", folder)
    assert done.returncode == 0
    assert "dataset.view" in done.stdout
    assert [path.name for path in view_folder(folder).iterdir()] == ["notes.txt"]
    assert look_again(folder)


def look_again(folder):
    shutil.rmtree(view_folder(folder))
    look(folder)
    assert run("clean", folder, "--quiet").returncode == 0
    return not view_folder(folder).exists() and (folder / "manifest.json").exists()


def test_clean_waits_for_no_index_that_is_being_made(folder):
    look(folder)
    keeping = Keeping(folder)
    with keeping.alone(wait=pytest.fail), pytest.raises(OutputError, match="making its index"):
        forget(folder)


def test_a_name_without_end_is_found_by_its_end_in_no_time(folder):
    lines = (folder / "files.jsonl").read_bytes().splitlines(keepends=True)
    names = [json.dumps("a/" * 200_000 + f"{number}é.py").encode() for number in range(40)]
    more = [re.sub(rb'"path":"[^"]*"', lambda _, name=name: b'"path":' + name, lines[0]) for name in names]
    (folder / "files.jsonl").write_bytes(b"".join([*lines, *more]))
    with viewer(folder) as asking:
        asking.indexed()
        started_at = time.monotonic()
        assert asking.found("/api/files", path="*a*a*b*c")["total"] == 0
        assert asking.found("/api/files", path="7É.p?")["total"] == 1
        assert asking.found("/api/files", path="/7é.py")["total"] == 1
        assert time.monotonic() - started_at < 10


def test_a_dataset_without_a_record_of_files_is_shown_and_not_filtered(folder, monkeypatch):
    made_foreign(folder)
    monkeypatch.setattr(viewed_rows, "FRONT_BYTES", 4000)
    may_go_on = threading.Event()
    original = viewed_rows.PlainJsonl.__iter__
    monkeypatch.setattr(
        viewed_rows.PlainJsonl, "__iter__", lambda file: original(file) if may_go_on.wait(20) else iter(())
    )
    with viewer(folder) as asking:
        assert asking.get("/api/row", split="train", row=90) == (
            202,
            {"index": {"is_ready": False, "share": 0.0, "error": None}},
        )
        may_go_on.set()
        asking.indexed()
        told = asking.found("/api/dataset")
        assert "keeps no record of files" in told["index"]["error"]
        assert asking.found("/api/windows")["rows"]
        assert asking.found("/api/row", split="train", row=90)["next"]["row"] == 91
        assert asking.found("/api/search", q="alpha")["hits"]
        assert asking.get("/api/windows", language="python")[0] == 409
        assert asking.get("/api/files")[0] == 409
