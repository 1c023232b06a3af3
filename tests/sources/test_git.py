import os
import subprocess

import pytest

from gristmill.core.errors import InputError
from gristmill.sources.git import list_files
from support.source_trees import git, write_tree


@pytest.fixture
def repository(tmp_path):
    root = write_tree(
        tmp_path / "repo",
        {".gitignore": "*.log\n/ignored/\n", "a.py": "a", "sub/b.py": "b", "x.log": "x", "ignored/c.py": "c"},
    )
    git(root, "init", "-q")
    git(root, "add", "a.py", ".gitignore")
    git(root, "commit", "-qm", "first")
    return root


def listed(folder):
    return {entry.path for entry in list_files(str(folder)).entries}


def listed_by_git(folder):
    output = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return set(os.fsdecode(output).split("\0")) - {""}


def test_listing_equals_git_ls_files(repository):
    assert listed(repository) == listed_by_git(repository) == {".gitignore", "a.py", "sub/b.py"}
    assert listed(repository / "sub") == {"b.py"}


def test_listing_contains_tracked_files_and_the_commit(repository):
    listing = list_files(str(repository))
    assert {entry.path for entry in listing.entries if entry.is_tracked} == {".gitignore", "a.py"}
    assert listing.commit == git(repository, "rev-parse", "HEAD").decode().strip()


def test_names_with_newlines_and_bad_bytes_are_listed(repository):
    for name in (b"new\nline.py", b"caf\xe9.py", b"a b.py"):
        with open(os.path.join(os.fsencode(repository), name), "w") as stream:
            stream.write("x")
    assert {"new\nline.py", os.fsdecode(b"caf\xe9.py"), "a b.py"} <= listed(repository)


def test_file_with_a_merge_conflict_is_listed_once(repository):
    git(repository, "checkout", "-qb", "other")
    (repository / "a.py").write_text("other")
    git(repository, "commit", "-qam", "other")
    git(repository, "checkout", "-q", "-")
    (repository / "a.py").write_text("this")
    git(repository, "commit", "-qam", "this")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    assert [entry.path for entry in list_files(str(repository)).entries].count("a.py") == 1


def test_configured_programs_of_the_repository_do_not_run(repository, tmp_path):
    marker = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", f"'{program}'")
    git(repository, "config", "core.hooksPath", str(tmp_path))
    git(repository, "config", "core.pager", f"'{program}'")
    git(repository, "config", "protocol.ext.allow", "always")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.url", f"ext::{str(program).replace(' ', '% ')}")
    git(repository, "ls-files", "--others")
    assert marker.exists(), "the test must plant a command that git runs by default"
    marker.unlink()
    assert listed(repository) == {".gitignore", "a.py", "sub/b.py"}
    assert not marker.exists()


def test_plain_folder_has_no_listing(tmp_path):
    assert list_files(str(tmp_path)) is None


def test_folder_ignored_by_its_work_tree_has_no_listing(repository):
    assert list_files(str(repository / "ignored")) is None


def test_git_variables_of_the_environment_are_ignored(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere/index"))
    assert "a.py" in listed(repository)


def test_broken_repository_is_reported(tmp_path):
    write_tree(tmp_path / "repo", {".git/HEAD": "nonsense", "a.py": "a"})
    with pytest.raises(InputError, match="git cannot read this repository"):
        list_files(str(tmp_path / "repo"))


def test_without_git_there_is_no_listing(repository, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert list_files(str(repository)) is None
