import hashlib
import os
import socket
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import Config, build
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import InputError
from gristmill.core.records import DropReason
from gristmill.sources import git as git_module
from gristmill.sources.trees import scan
from support.environment import without_privileges
from support.source_trees import git, write_tree


def scanned_paths(root, **config):
    return [file.path for file in scan([str(root)], ScanConfig(**config)).files]


def drop_reasons(root, **config):
    return {drop.path: drop.reason for drop in scan([str(root)], ScanConfig(**config)).drops}


def test_plain_folder_is_scanned_in_path_order_with_hidden_files(tree):
    root = tree({"b.py": "b", "a/z.py": "z", "a.py": "a", ".github/ci.yml": "c", "ä.py": "u"})
    assert scanned_paths(root) == [".github/ci.yml", "a.py", "a/z.py", "b.py", "ä.py"]


NAMES_AROUND_A_SLASH = ("lib!.py", "lib-x.py", "lib.py", "lib0.py", "lib\\y.py", "lib\udcff.py", "libä.py")


@pytest.mark.parametrize("is_git", [False, True])
@pytest.mark.parametrize("nested", [None, "lib", "lib/deep"])
def test_files_are_in_path_order_for_all_kinds_of_folders(tmp_path, is_git, nested):
    """The order is `lib-x.py`, `lib/x.py`, `lib0.py`, even if `lib` is a nested repository."""
    names = [f"{folder}{name}" for folder in ("", "lib/", "lib/deep/", "z/") for name in NAMES_AROUND_A_SLASH]
    root = write_tree(tmp_path / "root", dict.fromkeys(names, "x"))
    for folder in filter(None, (is_git and ".", nested)):
        git(root / folder, "init", "--quiet")
    found = scanned_paths(root)
    assert found == sorted(found)
    assert len(found) == len(names)


def test_ignore_files_apply_outside_git(tree):
    root = tree(
        {
            ".gitignore": "*.log\n/out.txt\nsecret/\n!keep.log\n",
            "a.log": "x",
            "keep.log": "x",
            "out.txt": "x",
            "sub/out.txt": "x",
            "secret/s.py": "x",
            "sub/.gitignore": "!a.log\nlocal.py\n",
            "sub/a.log": "x",
            "sub/local.py": "x",
            ".ignore": "*.tmp\n",
            "x.tmp": "x",
        }
    )
    assert scanned_paths(root) == [".gitignore", ".ignore", "keep.log", "sub/.gitignore", "sub/a.log", "sub/out.txt"]


def test_ignore_takes_precedence_over_gitignore(tree):
    root = tree({".gitignore": "a.py\n", ".ignore": "!a.py\nb.py\n", "a.py": "a", "b.py": "b"})
    assert "a.py" in scanned_paths(root)
    assert "b.py" not in scanned_paths(root)


NAMES = st.sampled_from(["a", "b", "a.py", "b.log", "foo", "bar.txt", "x y", "[z]", "#h", "!n"])
PATTERNS = st.sampled_from(
    ["a", "/a", "a/", "*.py", "!*.py", "foo/", "!foo/", "**/b.log", "foo/**", "a/*.py", "?oo", "[ab]", "\\#h", "\\!n",
     "# comment", "", "x y", "x\\ y", "*", "!a", "/foo/bar.txt", "!/foo/", "bar.*", "a/**/b.log", "  ", "b.log  "]
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8),
    st.lists(PATTERNS, max_size=5),
    st.lists(PATTERNS, max_size=3),
)
def test_walk_ignores_the_same_files_as_git(tmp_path_factory, names, top, inner):
    root = tmp_path_factory.mktemp("ignore") / "repo"
    root.mkdir()
    for name in names:
        path = root / name
        if not any(parent.is_file() for parent in path.parents) and not path.is_dir():
            write_tree(root, {name: "x"})
    (root / ".gitignore").write_text("\n".join(top) + "\n")
    if (root / "foo").is_dir():
        (root / "foo/.gitignore").write_text("\n".join(inner) + "\n")
    walked = set(scanned_paths(root, default_excludes=False))
    git(root, "init", "-q")
    expected = set(git(root, "ls-files", "-z", "--others", "--exclude-standard").decode().split("\0")) - {""}
    assert walked == expected


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "lines", [["[[:foo:]]", "[[:alpha:]"], [f"name{number}.py" for number in range(2_000)], ["**/a/" * 10 + "b"]]
)
def test_malformed_and_slow_ignore_files_are_handled(tmp_path, lines):
    root = write_tree(
        tmp_path / "repo", {".gitignore": "\n".join([*lines, "*.log"]), "x.log": "x", "a/" * 100 + "c": "c"}
    )
    assert scanned_paths(root) == [".gitignore", "a/" * 100 + "c"]


def test_oversized_ignore_file_is_skipped_with_a_warning(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "sub/.gitignore": "a.py\n" * 300_000, "sub/a.py": "a"})
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == ["a.py", "sub/.gitignore", "sub/a.py"]
    assert found.warnings == ["repo/sub/.gitignore: the file exceeds 1,048,576 bytes. Its patterns are not used."]


def test_scan_of_a_work_tree_finds_the_files_that_git_lists(tmp_path):
    root = write_tree(
        tmp_path / "repo", {"a.py": "a", "b.py": "b", ".gitignore": "b.py\n", "build/c.py": "c", "t/d.py": "d"}
    )
    git(root, "init", "-q")
    git(root, "add", "-f", "a.py", "build/c.py")
    assert scanned_paths(root) == [".gitignore", "a.py", "build/c.py", "t/d.py"]
    git(root, "commit", "-qm", "c")
    assert scan([str(root)], ScanConfig()).commits == {"repo": git(root, "rev-parse", "HEAD").decode().strip()}


def test_deleted_file_that_git_still_lists_is_dropped_as_vanished(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "b.py": "b"})
    git(root, "init", "-q")
    git(root, "add", ".")
    (root / "a.py").unlink()
    assert drop_reasons(root) == {"a.py": DropReason.VANISHED}


def test_submodules_and_nested_repositories_are_listed_by_git(tmp_path):
    library = write_tree(tmp_path / "library", {"lib.py": "l", ".gitignore": "*.log\n"})
    git(library, "init", "-q")
    git(library, "add", ".")
    git(library, "commit", "-qm", "c")
    root = write_tree(
        tmp_path / "repo", {"a.py": "a", "nested/n.py": "n", "nested/.gitignore": "x.py\n", "nested/x.py": "x"}
    )
    git(root, "init", "-q")
    git(root / "nested", "init", "-q")
    git(root, "submodule", "--quiet", "add", str(library), "sub")
    (root / "sub/x.log").write_text("ignored by the submodule's own rules")
    assert scanned_paths(root) == [
        ".gitmodules",
        "a.py",
        "nested/.gitignore",
        "nested/n.py",
        "sub/.gitignore",
        "sub/lib.py",
    ]
    # This command moves core.worktree to the file config.worktree.
    git(root / "sub", "sparse-checkout", "set", "--no-cone", "/*")
    assert scanned_paths(root / "sub") == [".gitignore", "lib.py"]
    git(root, "submodule", "--quiet", "deinit", "-f", "sub")
    assert drop_reasons(root) == {"sub": DropReason.NOT_A_FILE}


def test_repositories_in_a_plain_folder_are_listed_by_git(tmp_path):
    root = write_tree(
        tmp_path / "projects", {"one/a.py": "a", "one/.gitignore": "b.py\n", "one/b.py": "b", "c.py": "c"}
    )
    git(root / "one", "init", "-q")
    git(root / "one", "add", "-f", "b.py")
    assert scanned_paths(root) == ["c.py", "one/.gitignore", "one/a.py", "one/b.py"]


def test_empty_git_folder_is_skipped_as_in_git(tmp_path):
    root = write_tree(tmp_path / "repo", {"sub/a.py": "a", "sub/b.log": "b", ".gitignore": "*.log\n"})
    git(root, "init", "-q")
    (root / "sub/.git").mkdir()
    found = scan([str(root / "sub")], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    assert not found.warnings


@pytest.mark.timeout(30)
def test_cyclic_config_includes_terminate(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    git(root, "init", "-q")
    with (root / ".git/config").open("a") as stream:
        stream.write("[include]\n\tpath = config\n" * 9)
    found = scan([str(root)], ScanConfig())  # git refuses this configuration, so the folder is read without git
    assert [file.path for file in found.files] == ["a.py"]
    assert len(found.warnings) == 1


@pytest.mark.parametrize("name", [".git", ".git/HEAD", ".git/commondir"])
def test_oversized_git_files_are_not_read(tmp_path, name):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    if name != ".git":
        git(root, "init", "-q")
    with (root / name).open("wb") as stream:
        stream.truncate(1 << 36)  # a sparse file, which takes no disk space
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    assert "larger than 65,536 bytes" in found.warnings[0]


def test_missing_file_is_not_a_fifo(tmp_path):
    assert not git_module._is_fifo(str(tmp_path / "index.lock"))


def test_broken_repository_is_read_as_a_plain_folder_with_a_warning(tmp_path):
    root = write_tree(tmp_path / "repo", {".git/HEAD": "nonsense", "a.py": "a", "b.log": "b", ".gitignore": "*.log\n"})
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == [".gitignore", "a.py"]
    assert "read as a plain folder" in found.warnings[0]


def test_links_are_never_followed(tmp_path):
    outside = write_tree(tmp_path / "outside", {"secret.py": "s"})
    root = write_tree(tmp_path / "repo", {"a.py": "a", "real/b.py": "b"})
    (root / "file-link.py").symlink_to(outside / "secret.py")
    (root / "folder-link").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "inner").symlink_to("real")
    assert scanned_paths(root) == ["a.py", "real/b.py"]
    links = dict.fromkeys(["file-link.py", "folder-link", "loop", "inner"], DropReason.SYMLINK)
    assert drop_reasons(root) == links
    git(root, "init", "-q")
    git(root, "add", ".")
    assert scanned_paths(root) == ["a.py", "real/b.py"]
    assert drop_reasons(root) == links


def test_index_entry_below_a_link_is_dropped(tmp_path):
    outside = write_tree(tmp_path / "outside", {"b.py": "secret"})
    root = write_tree(tmp_path / "repo", {"a/b.py": "b"})
    git(root, "init", "-q")
    git(root, "add", ".")
    (root / "a/b.py").unlink()
    (root / "a").rmdir()
    (root / "a").symlink_to(outside)
    assert scanned_paths(root) == []
    assert drop_reasons(root)["a/b.py"] is DropReason.SYMLINK


def test_special_files_are_dropped(tmp_path):
    root = write_tree(tmp_path / "r", {"a.py": "a"})
    os.mkfifo(root / "pipe.py")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        assert drop_reasons(root) == {"pipe.py": DropReason.NOT_A_FILE, "s": DropReason.NOT_A_FILE}


def test_device_is_dropped(tmp_path):
    root = write_tree(tmp_path / "r", {"a.py": "a"})
    try:
        os.mknod(root / "null", 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")
    assert drop_reasons(root) == {"null": DropReason.NOT_A_FILE}


def test_excluded_folder_gives_one_drop(tree):
    root = tree({"a.py": "a", "node_modules/x/i.js": "x", "node_modules/y/i.js": "y"})
    assert drop_reasons(root) == {"node_modules/": DropReason.EXCLUDED}


def test_unreadable_folder_gives_a_drop(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "locked/b.py": "b"})
    (root / "locked").chmod(0)
    with without_privileges():
        assert drop_reasons(root) == {"locked/": DropReason.UNREADABLE}


def test_output_folder_inside_a_source_is_skipped(tree):
    root = tree({"a.py": "a", "dataset/train.jsonl": "{}", "dataset.work/x": "x"})
    found = scan([str(root)], ScanConfig(), leave_out=(root / "dataset", root / "dataset.work"))
    assert [file.path for file in found.files] == ["a.py"]
    assert not found.drops
    git(root, "init", "-q")
    found = scan([str(root)], ScanConfig(), leave_out=(root / "dataset", root / "dataset.work"))
    assert [file.path for file in found.files] == ["a.py"]


def test_single_files_ignore_default_excludes(tree):
    root = tree({"a.py": "a", "b.py": "b", "yarn.lock": "l"})
    found = scan([str(root / "a.py"), str(root / "yarn.lock")], ScanConfig())
    assert [(file.repo, file.path) for file in found.files] == [("repo", "a.py"), ("repo", "yarn.lock")]


def test_source_dot_has_the_name_of_its_folder(tree, monkeypatch):
    monkeypatch.chdir(tree({"a.py": "a"}))
    assert [file.repo for file in scan(["."], ScanConfig()).files] == ["repo"]


def test_unusual_file_names_are_kept(tree):
    root = tree({"a b.py": "1", "new\nline.py": "2", "\x1b[31m.py": "3", "n" * 252 + ".py": "4"})
    (root / os.fsdecode(b"caf\xe9.py")).write_text("5")
    expected = ["\x1b[31m.py", "a b.py", r"caf\xe9.py", "new\nline.py", "n" * 252 + ".py"]
    assert scanned_paths(root) == expected
    git(root, "init", "-q")
    assert scanned_paths(root) == expected


def crafted_index(entries):
    """Return a valid git index with the given paths, including paths that git itself would not write."""
    body = b""
    for path, mode in sorted((name.encode(), mode) for name, mode in entries.items()):
        entry = struct.pack(">10L20sH", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0, bytes(20), min(len(path), 0xFFF)) + path
        body += entry + bytes(8 - len(entry) % 8)
    content = b"DIRC" + struct.pack(">LL", 2, len(entries)) + body
    return content + hashlib.sha1(content).digest()


def test_crafted_index_does_not_leave_the_source(tmp_path):
    outside = write_tree(tmp_path / "outside", {"secret.py": "s", "repo/x.py": "x"})
    git(outside / "repo", "init", "-q")
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    git(root, "init", "-q")
    (root / "link").symlink_to(outside)
    names = {
        "../outside/secret.py": 0o100644,
        str(outside / "secret.py"): 0o100644,
        "../outside/repo": 0o160000,
        "link/repo": 0o160000,
        "link/secret.py": 0o100644,
        "a.py": 0o100644,
    }
    (root / ".git/index").write_bytes(crafted_index(names))
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    reasons = {drop.path: drop.reason for drop in found.drops}
    assert {reasons[name] for name in names if name.startswith(("..", "/"))} == {DropReason.OUTSIDE_SOURCE}
    assert reasons["link/repo"] is reasons["link/secret.py"] is DropReason.SYMLINK


def link_to_repository(root, other, method):
    """Make git in `root` use files of the repository `other`, as an unpacked archive could."""
    match method:
        case "gitdir":
            (root / ".git").write_text(f"gitdir: {other}/.git\n")
        case "link":
            (root / ".git").symlink_to(other / ".git")
        case "link to a linked tree":
            git(other, "commit", "-qm", "c")
            git(other, "worktree", "add", "-q", str(other.parent / "linked"))
            (root / ".git").symlink_to(other / ".git/worktrees/linked")
        case "core.worktree":
            git(root, "init", "-q")
            git(root, "config", "core.worktree", str(other))
        case "index":
            git(root, "init", "-q")
            (root / ".git/index").symlink_to(other / ".git/index")
        case "shared index":
            git(other, "update-index", "--split-index")
            git(root, "init", "-q")
            (root / ".git/index").write_bytes((other / ".git/index").read_bytes())
            (shared,) = (other / ".git").glob("sharedindex.*")
            (root / ".git" / shared.name).symlink_to(shared)
        case "commondir":
            git(root, "init", "-q")
            (root / ".git/commondir").write_text(f"{other}/.git\n")
        case "fake linked tree":
            fake = write_tree(root / ".x", {"HEAD": "ref: refs/heads/main\n", "commondir": f"{other}/.git\n"})
            (fake / "gitdir").write_text(f"{root}/.git\n")
            (fake / "index").write_bytes(b"")
            (fake / "index").unlink()
            (fake / "index").symlink_to(other / ".git/index")
            (root / ".git").write_text("gitdir: .x\n")
        case "fake submodule":
            git(root, "init", "-q", "--separate-git-dir", str(root / ".x"))
            git(root, "config", "core.worktree", "..")
            (root / ".x/commondir").write_text(f"{other}/.git\n")


@pytest.mark.parametrize(
    "method",
    [
        *("core.worktree", "gitdir", "link", "link to a linked tree", "index", "shared index", "commondir"),
        *("fake linked tree", "fake submodule"),
    ],
)
def test_repository_of_a_different_work_tree_is_not_used(tmp_path, method):
    other = write_tree(tmp_path / "other", {"private-name.py": "p"})
    git(other, "init", "-q")
    git(other, "add", ".")
    root = write_tree(tmp_path / "repo", {"a.py": "a", ".gitignore": ".x/\n.gitignore\n"})
    link_to_repository(root, other, method)
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    assert not found.drops
    assert "read as a plain folder" in found.warnings[0]
    assert str(tmp_path) not in found.warnings[0]


def test_linked_work_tree_is_listed_by_git(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", ".gitignore": "b.py\n"})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    write_tree(tmp_path / "linked", {"b.py": "b"})
    found = scan([str(tmp_path / "linked")], ScanConfig())
    assert [file.path for file in found.files] == [".gitignore", "a.py"]
    assert found.commits["linked"]


def test_separate_git_folder_that_points_back_is_used(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", ".gitignore": "b.py\n", "b.py": "b"})
    git(root, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"))
    git(root, "config", "core.worktree", str(root))
    assert scanned_paths(root) == [".gitignore", "a.py"]
    assert not scan([str(root)], ScanConfig()).warnings
    (root / ".git").unlink()
    (root / ".git").symlink_to("../elsewhere")
    assert scanned_paths(root) == [".gitignore", "a.py"]
    assert not scan([str(root)], ScanConfig()).warnings


def test_linked_work_tree_with_relative_paths_is_listed(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "linked/.git").write_text("gitdir: ../repo/.git/worktrees/linked\n")
    (root / ".git/worktrees/linked/gitdir").write_text("../../../../linked/.git\n")
    found = scan([str(tmp_path / "linked")], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    assert found.commits["linked"] or git(tmp_path / "linked", "status")


def test_repository_with_shared_objects_is_listed(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    git(tmp_path, "clone", "-q", "--shared", str(root), "shared")
    found = scan([str(tmp_path / "shared")], ScanConfig())
    assert [file.path for file in found.files] == ["a.py"]
    assert found.commits["shared"]
    assert not found.warnings


def test_folders_that_git_cannot_open_give_drops(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "one/b.py": "b", "two/c.py": "c"})
    git(root, "init", "-q")
    for name in ("one", "two"):
        (root / name).chmod(0)
    with without_privileges():
        assert drop_reasons(root) == {"one/": DropReason.UNREADABLE, "two/": DropReason.UNREADABLE}


def test_unreadable_source_is_reported(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    root.chmod(0)
    with without_privileges(), pytest.raises(InputError, match="cannot read the source"):
        scan([str(root)], ScanConfig())


def test_many_nested_repositories_cause_no_recursion_error(tmp_path):
    root = folder = tmp_path / "repo"
    for _ in range(60):
        folder = folder / "n"
        write_tree(folder, {".git": "gitdir: nowhere\n", "x.py": "x"})
    assert len(scanned_paths(root)) == 60


@pytest.mark.parametrize("exclude", [["t/", "!t/keep.py"], ["t/*", "!t/keep.py"]])
def test_patterns_match_the_same_with_and_without_git(tmp_path, exclude):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "t/keep.py": "k", "t/b.py": "b"})
    plain = scanned_paths(root, exclude=exclude)
    git(root, "init", "-q")
    assert scanned_paths(root, exclude=exclude) == plain


def test_fifo_as_ignore_file_does_not_block(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a"})
    os.mkfifo(root / ".gitignore")
    assert scanned_paths(root) == ["a.py"]


def test_earlier_dataset_in_a_source_is_excluded(tmp_path):
    root = write_tree(tmp_path / "repo", {"a.py": "a", "b.py": "b"})
    build(Config(sources=[str(root)], out=str(root / "old/dataset")))
    assert scanned_paths(root) == ["a.py", "b.py"]
    assert drop_reasons(root)["old/dataset/train.jsonl"] is DropReason.EXCLUDED
    git(root, "init", "-q")
    assert scanned_paths(root) == ["a.py", "b.py"]
