"""The index beside a dataset: when it is built, reused, rebuilt and deleted."""

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
from gristmill.views.viewer import viewer_dataset, window_index
from gristmill.views.viewer.current_dataset import CurrentDataset
from gristmill.views.viewer.viewer_folder import ViewerFolder, delete_viewer_folder, viewer_folder_path
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
    """Return inode and modification time of each index, keyed by name."""
    found = sorted(viewer_folder_path(folder).glob("index-*"))
    return {path.name: (path.stat().st_ino, (path / "row.npy").stat().st_mtime_ns) for path in found}


def open_and_close(folder):
    """Open a dataset, send a request that needs the index, and return the indexes."""
    with viewer(folder) as client:
        client.indexed()
        assert client.found("/api/dataset")["index"] == {"is_ready": True, "fraction_done": 1.0, "error": None}
        assert client.found("/api/windows", language="python")["total"] > 0
    return indexes(folder)


def test_title_escapes_bytes_that_are_not_utf8(original, tmp_path):
    folder = Path(shutil.copytree(original, tmp_path / os.fsdecode(b"caf\xe9")))
    with viewer(folder) as client:
        assert client.found("/api/dataset")["title"] == r"caf\xe9"


def test_index_is_built_once(folder):
    first = open_and_close(folder)
    assert len(first) == 1
    assert open_and_close(folder) == first


def test_first_page_needs_no_index(folder, monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(window_index, "_write_block", lambda *_, **__: released.wait(20))
    with viewer(folder) as client:
        try:
            assert client.found("/api/windows")["rows"][0]["text"]
            assert client.found("/api/windows", split="test")["rows"]
            assert client.found("/api/row", split="train", row=3, language="python")["next"] == {
                "split": "train",
                "row": 4,
            }
            assert client.found("/api/search", q="alpha")["hits"]
            status, answer = client.get("/api/windows", language="python")
            assert status == 202
            assert answer["index"]["is_ready"] is False
            assert 0 <= answer["index"]["fraction_done"] < 1
            assert client.get("/api/file", repo="repo", path="src/m01.js")[0] == 202
            while (files := client.get("/api/files", status="dropped"))[0] == 202:  # files are indexed before windows
                time.sleep(0.01)
            assert files[1]["total"] > 0
        finally:
            released.set()


def test_rows_beyond_the_first_bytes_of_a_file_wait_for_the_index(folder, monkeypatch):
    monkeypatch.setattr(viewer_dataset, "FRONT_BYTES", 4000)
    released = threading.Event()
    original = window_index._write_block
    monkeypatch.setattr(
        window_index, "_write_block", lambda *args, **options: released.wait(20) and original(*args, **options)
    )
    with viewer(folder) as client:
        assert client.found("/api/row", split="train", row=0)["view"]["row"] == 0
        assert client.get("/api/row", split="train", row=90)[0] == 202
        assert client.get("/api/windows", **{"from": 50})[0] == 202
        partial = client.found("/api/search", q="nowhere at all")
        assert partial["searched"] > 0
        assert client.get("/api/search", q="nowhere at all", after=partial["next"])[0] == 202
        released.set()
        client.indexed()
        assert client.found("/api/row", split="train", row=90)["view"]["row"] == 90
        assert client.found("/api/search", q="nowhere at all", after=partial["next"])["next"] is None


def test_rebuilt_dataset_gets_a_new_index(folder):
    first = open_and_close(folder)
    build(Config(sources=[str(write_sources(folder))], out=str(folder), window=WindowConfig(length=48, overlap=8)))
    second = open_and_close(folder)
    assert len(second) == 1
    assert set(second) != set(first)


def write_sources(folder):
    source = folder.parent / "repo"
    source.mkdir()
    for number in range(12):
        (source / f"a{number}.py").write_text("".join(f"value{number} = call(name{line})\n" for line in range(60)))
    return source


def test_running_viewer_opens_a_rebuilt_dataset(folder):
    with viewer(folder) as client:
        client.indexed()
        before = client.found("/api/dataset")
        build(Config(sources=[str(write_sources(folder))], out=str(folder), window=WindowConfig(length=48, overlap=8)))
        after = client.found("/api/dataset")
        assert after["window_length"] == 48 != before["window_length"]
        client.indexed()
        found = client.found("/api/windows", path="a1.py")
        assert found["total"] > 0
        assert found["rows"][0]["windows"][0]["path"] == "a1.py"
    assert len(indexes(folder)) == 1


def test_modified_files_get_a_new_index(folder):
    first = open_and_close(folder)
    os.utime(folder / "train.jsonl", ns=(1, 1))
    assert set(open_and_close(folder)) != set(first)


def test_exported_format_does_not_change_the_index(folder):
    first = open_and_close(folder)
    export(folder, "bin", workers=1)
    assert open_and_close(folder) == first


@pytest.mark.parametrize("damage", ["truncated", "flipped bit", "missing", "bad checksums", "other array", "FIFO"])
def test_damaged_index_is_built_again(folder, damage):
    (name,) = open_and_close(folder)
    index = viewer_folder_path(folder) / name
    contents = {path.name: path.read_bytes() for path in index.iterdir()}
    array = index / "file.npy"
    match damage:
        case "truncated":
            array.write_bytes(contents["file.npy"][:-3])
        case "flipped bit":
            array.write_bytes(contents["file.npy"][:-1] + bytes([contents["file.npy"][-1] ^ 1]))
        case "missing":
            array.unlink()
        case "bad checksums":
            (index / "sums.json").write_bytes(b"{")
        case "other array":
            np.save(index / "row.npy", np.arange(3))
        case "FIFO":
            (index / "sums.json").unlink()
            os.mkfifo(index / "sums.json")
    assert open_and_close(folder).keys() == {name}
    assert {path.name: path.read_bytes() for path in index.iterdir()} == contents


def test_unfinished_index_of_a_killed_viewer_is_deleted(folder):
    (name,) = open_and_close(folder)
    parent = viewer_folder_path(folder)
    (parent / name).rename(parent / f"{name}.tmp")
    (parent / f"{name}.tmp" / "file.npy").write_bytes(b"half")
    (parent / "index-of-another.tmp").mkdir()
    assert open_and_close(folder).keys() == {name}
    assert sorted(path.name for path in parent.iterdir()) == sorted([".gitignore", "CACHEDIR.TAG", name, "key", "lock"])


def test_stopped_viewer_deletes_its_unfinished_index(folder, monkeypatch):
    monkeypatch.setattr(window_index, "ROWS_PER_BLOCK", 1)
    original = window_index._write_block
    monkeypatch.setattr(
        window_index, "_write_block", lambda *args, **options: (time.sleep(0.01), original(*args, **options))
    )
    viewer_folder = ViewerFolder(folder)
    current = CurrentDataset(folder, viewer_folder)
    current.start()
    while not unfinished_indexes(folder):
        time.sleep(0.01)
    current.close()
    assert not list(viewer_folder_path(folder).glob("index-*"))


def unfinished_indexes(folder):
    return list(viewer_folder_path(folder).glob("index-*.tmp/row.npy"))


def test_two_viewers_build_one_index(folder, monkeypatch):
    builds = []
    original = window_index.write_window_index
    monkeypatch.setattr(
        "gristmill.views.viewer.index.write_window_index",
        lambda *args: (builds.append(1), time.sleep(0.2), original(*args)),
    )
    with viewer(folder) as one, viewer(folder) as other:
        for client in (one, other):
            client.indexed()
            assert client.found("/api/windows", language="python")["total"] > 0
        assert one.key == other.key
        assert other.ask("/api/dataset", **one.cookie)[0] == 200
    assert builds == [1]


def test_index_is_temporary_in_a_read_only_folder(original, tmp_path):
    parent = tmp_path / "closed"
    folder = Path(shutil.copytree(original, parent / "dataset"))
    parent.chmod(0o555)
    with without_privileges(may_read=True), viewer(folder) as client:
        assert "cannot be written" in client.note
        temporary = client.current.get().index._viewer_folder.folder
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
        client.indexed()
        assert client.found("/api/windows", language="python")["total"] > 0
        assert not viewer_folder_path(folder).exists()
    assert not temporary.exists()


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_foreign_folder_is_not_changed(folder, kind, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter").write_text("dear")
    if kind == "link":
        (foreign / "lock").touch()
        viewer_folder_path(folder).symlink_to(foreign)
    else:
        foreign.rename(viewer_folder_path(folder))
    with viewer(folder) as client:
        assert "cannot be written" in client.note
        client.indexed()
    names = {path.name for path in viewer_folder_path(folder).iterdir()}
    assert names == {"letter"} | ({"lock"} if kind == "link" else set())
    assert delete_viewer_folder(folder) == 0
    assert {path.name for path in viewer_folder_path(folder).iterdir()} == names


@pytest.mark.parametrize("name", ["lock", "key", ".gitignore", "CACHEDIR.TAG"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_links_and_fifos_in_the_viewer_folder_are_not_written_to(folder, name, kind, tmp_path):
    foreign = tmp_path / "foreign"
    foreign.write_text("dear")
    viewer_folder_path(folder).mkdir()
    (viewer_folder_path(folder) / "lock").touch()
    (viewer_folder_path(folder) / name).unlink(missing_ok=True)
    if kind == "link":
        (viewer_folder_path(folder) / name).symlink_to(foreign)
    else:
        os.mkfifo(viewer_folder_path(folder) / name)
    viewer_folder = ViewerFolder(folder)
    assert "not created by a viewer" in viewer_folder.note
    assert viewer_folder.load_or_create_key()
    with viewer_folder.hold_lock(on_wait=pytest.fail):
        pass
    viewer_folder.close()
    assert foreign.read_text() == "dear"


def test_oversized_key_file_is_replaced(folder):
    viewer_folder = ViewerFolder(folder)
    first = viewer_folder.load_or_create_key()
    with (viewer_folder.folder / "key").open("r+b") as stream:
        stream.truncate(1 << 40)
    assert viewer_folder.load_or_create_key() != first
    assert (viewer_folder.folder / "key").stat().st_size == len(first)


def test_key_survives_a_restart_unless_others_can_read_it(folder):
    with viewer(folder) as client:
        key, port, cookie = client.key, client.port, client.cookie
    with viewer(folder, port) as client:
        assert client.key == key
        assert client.ask("/api/dataset", **cookie)[0] == 200
    (viewer_folder_path(folder) / "key").chmod(0o644)
    with viewer(folder) as client:
        assert client.key != key
        assert client.ask("/api/dataset", **cookie)[0] == 403


def test_clean_deletes_the_index_and_keeps_other_files(folder):
    open_and_close(folder)
    (viewer_folder_path(folder) / "notes.txt").write_text("mine")
    done = run("clean", folder)
    assert done.returncode == 0
    assert "dataset.view" in done.stdout
    assert [path.name for path in viewer_folder_path(folder).iterdir()] == ["notes.txt"]
    assert index_and_clean(folder)


def index_and_clean(folder):
    shutil.rmtree(viewer_folder_path(folder))
    open_and_close(folder)
    assert run("clean", folder, "--quiet").returncode == 0
    return not viewer_folder_path(folder).exists() and (folder / "manifest.json").exists()


def test_clean_fails_while_an_index_is_built(folder):
    open_and_close(folder)
    viewer_folder = ViewerFolder(folder)
    with viewer_folder.hold_lock(on_wait=pytest.fail), pytest.raises(OutputError, match="building its index"):
        delete_viewer_folder(folder)


def test_very_long_names_are_found_by_their_end(folder):
    lines = (folder / "files.jsonl").read_bytes().splitlines(keepends=True)
    names = [json.dumps("a/" * 200_000 + f"{number}é.py").encode() for number in range(40)]
    more = [re.sub(rb'"path":"[^"]*"', lambda _, name=name: b'"path":' + name, lines[0]) for name in names]
    (folder / "files.jsonl").write_bytes(b"".join([*lines, *more]))
    with viewer(folder) as client:
        client.indexed()
        assert client.found("/api/files", path="*a*a*b*c")["total"] == 0
        assert client.found("/api/files", path="7É.p?")["total"] == 1
        assert client.found("/api/files", path="/7é.py")["total"] == 1


def test_dataset_without_files_jsonl_can_be_read_but_not_filtered(folder, monkeypatch):
    made_foreign(folder)
    monkeypatch.setattr(viewer_dataset, "FRONT_BYTES", 4000)
    released = threading.Event()
    original = viewer_dataset.PlainJsonl.__iter__
    monkeypatch.setattr(
        viewer_dataset.PlainJsonl, "__iter__", lambda file: original(file) if released.wait(20) else iter(())
    )
    with viewer(folder) as client:
        assert client.get("/api/row", split="train", row=90) == (
            202,
            {"index": {"is_ready": False, "fraction_done": 0.0, "error": None}},
        )
        released.set()
        client.indexed()
        answer = client.found("/api/dataset")
        assert "has no files.jsonl" in answer["index"]["error"]
        assert client.found("/api/windows")["rows"]
        assert client.found("/api/row", split="train", row=90)["next"]["row"] == 91
        assert client.found("/api/search", q="alpha")["hits"]
        assert client.get("/api/windows", language="python")[0] == 409
        assert client.get("/api/files")[0] == 409
