"""A run deletes its temporary folder when it ends, and the temporary folders of killed runs, but no other folder."""

import os
import shutil
import signal
import tempfile
from functools import partial

import pytest

import gristmill
from gristmill.checks import rebuild
from gristmill.lab.bench import bench as bench_module
from gristmill.lab.bench.bench import BenchOptions
from gristmill.lab.vocabulary import corpus as corpus_module
from gristmill.pipeline import work_folder as work_folder_module
from gristmill.pipeline.work_folder import TEMPORARY, temporary_folder
from gristmill.planning import plan as plan_module
from support.builds import in_a_process, kill_this_process, make, run_until_killed, started, wait_for
from support.source_trees import write_tree


def in_a_temporary_folder(parent, name, function):
    with temporary_folder("gristmill-test-", parent) as folder:
        (folder / "inner").mkdir()
        (folder / "inner/large").write_text("large")
        (folder / "name").write_text(str(folder))
        (folder / "name").rename(parent / name)  # a waiting test never finds an empty file
        function()


def wait_until_killed():
    signal.pause()


def test_temporary_folder_is_deleted_at_the_end(tmp_path):
    with temporary_folder("gristmill-test-", tmp_path) as folder:
        assert folder.stat().st_mode & 0o077 == 0
        (folder / "file").touch()
    with pytest.raises(KeyboardInterrupt), temporary_folder("gristmill-test-", tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_next_run_deletes_the_folder_of_a_killed_run_but_not_of_a_running_one(tmp_path):
    run_until_killed(in_a_temporary_folder, tmp_path, "dead", kill_this_process)
    with started(in_a_temporary_folder, tmp_path, "alive", wait_until_killed):
        wait_for(tmp_path / "alive")
        dead, alive = ((tmp_path / name).read_text() for name in ("dead", "alive"))
        assert not os.path.exists(dead)
        for _ in range(2):
            with temporary_folder("gristmill-test-", tmp_path):
                assert os.path.exists(f"{alive}/inner/large")
    with temporary_folder("gristmill-test-", tmp_path):
        assert not os.path.exists(alive)


def test_other_folders_are_kept(tmp_path):
    run_until_killed(in_a_temporary_folder, tmp_path, "dead", kill_this_process)
    dead = (tmp_path / "dead").read_text()
    write_tree(
        tmp_path, {"gristmill-test-notes/mine": "mine", f"gristmill-other-1/{TEMPORARY}": "", "gristmill-test-a": ""}
    )
    shutil.copytree(dead, tmp_path / "theirs")
    (tmp_path / "gristmill-test-link").symlink_to(tmp_path / "theirs")
    other_names = {"gristmill-test-notes", "gristmill-other-1", "gristmill-test-a", "gristmill-test-link", "theirs"}
    if os.geteuid() == 0:
        shutil.copytree(dead, tmp_path / "gristmill-test-of-another-user")
        os.chown(tmp_path / "gristmill-test-of-another-user", 65534, 65534)
        other_names.add("gristmill-test-of-another-user")
    with temporary_folder("gristmill-test-", tmp_path):
        assert not os.path.exists(dead)
    assert {path.name for path in tmp_path.iterdir()} == {"dead", *other_names}


def test_folder_that_cannot_be_deleted_is_found_by_a_later_run(tmp_path, monkeypatch):
    run_until_killed(in_a_temporary_folder, tmp_path, "dead", kill_this_process)
    dead = (tmp_path / "dead").read_text()
    monkeypatch.setattr(work_folder_module.shutil, "rmtree", lambda *_, **__: None)
    work_folder_module.delete_abandoned_folders("gristmill-test-", tmp_path)
    assert sorted(os.listdir(dead)) == [TEMPORARY, "inner"]
    monkeypatch.undo()
    work_folder_module.delete_abandoned_folders("gristmill-test-", tmp_path)
    assert not os.path.exists(dead)


def run_once(command, source, folder, is_killed):
    """Run a command that makes temporary folders. If `is_killed`, kill the process in the middle of the command."""
    tempfile.tempdir = str(folder)
    config = gristmill.Config(sources=[str(source)], out=str(folder / "out"))
    module, step, run = {
        "plan": (plan_module, "read_inputs", partial(gristmill.plan, config)),
        "tokenizer": (corpus_module, "read_inputs", partial(gristmill.train_tokenizer, config, 300)),
        "bench": (bench_module, "gather", partial(bench_module.bench, str(source), BenchOptions(only=["floor"]))),
        "bench --keep": (
            bench_module,
            "gather",
            partial(bench_module.bench, str(source), BenchOptions(only=["floor"], keep=str(folder / "kept"))),
        ),
        "check --against-clean": (
            rebuild,
            "build_excluding",
            partial(rebuild.compare_with_clean_build, folder / "out"),
        ),
    }[command]
    if is_killed:
        setattr(module, step, lambda *_, **__: kill_this_process())
    run()


@pytest.mark.parametrize(
    ("command", "remaining_names"),
    [
        ("plan", []),
        ("tokenizer", ["out"]),
        ("bench", []),
        ("bench --keep", ["kept"]),
        ("check --against-clean", ["out", "out.work"]),
    ],
)
def test_next_command_deletes_the_folders_of_a_killed_command(command, remaining_names, tmp_path):
    words = (f"def f_{number}(x):\n    return x + {number}\n" for number in range(40))
    source, folder = write_tree(tmp_path / "repo", {"a.py": "".join(words), "b.py": "x = 1\n"}), tmp_path / "here"
    folder.mkdir()
    if command == "check --against-clean":
        make(source, folder / "out")
    before = {path.name for path in folder.iterdir()}
    run_until_killed(run_once, command, source, folder, True)
    assert [path for path in folder.rglob(TEMPORARY) if path.parent != folder]
    in_a_process(run_once, command, source, folder, False)
    assert sorted(path.name for path in folder.iterdir()) == remaining_names
    assert not list(folder.rglob(TEMPORARY))
    assert before <= set(remaining_names)
