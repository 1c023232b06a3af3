"""Every file that may come from elsewhere is opened by one function, which waits for nothing."""

import ast
import os
import socket
from functools import cache
from pathlib import Path

import pytest

import gristmill
from gristmill.core.plain_files import open_plain, read_plain, read_plain_text, require_plain, require_plain_files

ROOT = Path(gristmill.__file__).parent

OPENERS = {
    *("open", "read_bytes", "read_text", "load", "memmap", "fromfile", "memory_map", "ParquetFile", "read_table"),
    *("from_pretrained", "from_file", "open_stream"),
}
READ_MODES = {None, "r", "rb", "rt", "r+b", "r+"}

OURS = "part of the package"
WORK = "in the work folder of this build, or another that only gristmill writes"
GUARDED = "require_plain, require_plain_files or is_file stands before it"
BASELINE = "a method that the benchmark measures as people write it, on files that the scan has found"
MADE = "made by a descriptor, or a name of the system's own"
ALLOWED = {
    "core/plain_files.py": MADE,
    "runners/local.py": MADE,
    "runners/probe.py": WORK,
    "core/layout.py:write_atomically": MADE,
    "core/layout.py:sync_folder": "a folder, which is opened without waiting",
    "views/charts.py": OURS,
    "views/html.py": OURS,
    "pipeline/keys.py:code_digest": OURS,
    "variants/rename.py": OURS,
    "cleaning/language_kinds.py": OURS,
    "tokenizers/cuda/character_classes.py": OURS,
    "tokenizers/cuda/cupy_card.py": OURS,
    "tokenizers/locate.py:_bundled": OURS,
    "views/viewer/server.py": OURS,
    "pipeline/": WORK,
    "dedup/similarity.py": WORK,
    "splits/span_join.py": WORK,
    "pipeline/work_folder.py": WORK,
    "sources/table_cache.py": WORK,
    "sources/git.py:_let_go_on": "for writing, without waiting",
    "publish/export.py:_lock": WORK,
    "lab/vocabulary/location.py:staged": WORK,
    "lab/vocabulary/location.py:_clear_stages": "a folder, which is opened without waiting",
    "checks/formats.py:_read": GUARDED,
    "lab/bench/job.py": WORK,
    "lab/bench/methods.py": WORK,
    "lab/bench/scripts/original.py": BASELINE,
    "lab/bench/scripts/floor.py": BASELINE,
    "lab/bench/scripts/hf_datasets.py": BASELINE,
    "lab/training/run_folder.py:_lock_it": "for reading and writing, which waits for nothing",
    "lab/training/models.py:_trained_model": GUARDED,
    "lab/training/models.py:put_weights": GUARDED,
    "tokenizers/cuda/reader_process.py:read_files": GUARDED,
    "views/viewer/viewer_folder.py:alone": GUARDED,
    "formats/chunks.py:_content": "maps a stream of open_plain",
    "formats/arrays.py:map_part": "maps a stream of open_plain",
    "formats/arrow.py:_map_file": GUARDED,
    "formats/parquet.py:_open_file": GUARDED,
    "formats/parquet.py:_read_rows": GUARDED,
    "sources/tables.py:_open_parquet": GUARDED,
    "sources/benchmark_files.py:_parquet_rows": "reads bytes in memory",
}


def opening_calls(tree):
    """(the function that each stands in, its line)"""
    left = [(tree, "")]
    while left:
        node, around = left.pop()
        if isinstance(node, ast.Call) and opens(node):
            yield around, node.lineno
        around = node.name if isinstance(node, ast.FunctionDef) else around
        left += [(child, around) for child in ast.iter_child_nodes(node)]


def opens(call):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    if name not in OPENERS:
        return False
    if name == "load":
        return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") in {"np", "json", "torch"}
    if name != "open":
        return isinstance(call.func, ast.Attribute)
    if isinstance(call.func, ast.Name) or getattr(call.func.value, "id", "") in {"os", "io", "gzip"}:
        return not any(isinstance(one, ast.Constant) and one.value in {"w", "wb", "xb", "ab"} for one in call.args)
    modes = [one.value for one in call.args if isinstance(one, ast.Constant)]
    return len(modes) == len(call.args) and (modes[0] if modes else None) in READ_MODES


def place_of(module, function):
    known = (f"{module}:{function}", module, f"{module.partition('/')[0]}/")
    return next((place for place in known if place in ALLOWED), None)


@cache
def found_calls():
    return [
        (path.relative_to(ROOT).as_posix(), function, line)
        for path in sorted(ROOT.rglob("*.py"))
        for function, line in opening_calls(ast.parse(path.read_text("utf-8")))
    ]


def test_nothing_else_opens_what_may_come_from_elsewhere():
    unknown = [
        f"{module}:{line} in {function}" for module, function, line in found_calls() if not place_of(module, function)
    ]
    assert not unknown, "open these by gristmill.core.plain_files, or add the reason to ALLOWED"


def test_the_list_of_exceptions_has_only_what_is_there():
    assert {place_of(module, function) for module, function, _ in found_calls()} == set(ALLOWED)


@pytest.mark.parametrize(
    "source", ["open(p)", "p.open()", "p.open('rb')", "p.read_text()", "np.load(p)", "os.open(p, f)"]
)
def test_the_search_finds_what_opens(source):
    assert list(opening_calls(ast.parse(f"def f():\n    {source}"))) == [("f", 2)]


@pytest.fixture(params=["fifo", "folder", "socket", "device", "link to a fifo"])
def odd(request, tmp_path):
    path = tmp_path / "odd"
    match request.param:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "link to a fifo":
            os.mkfifo(tmp_path / "fifo")
            path.symlink_to("fifo")
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
                yield path
                return
    yield path


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opener", [open_plain, read_plain, read_plain_text, require_plain])
def test_what_is_no_ordinary_file_is_refused_at_once(odd, opener):
    with pytest.raises(OSError, match="not an ordinary file"):
        opener(odd)
    if not odd.is_dir():
        with pytest.raises(OSError, match="not an ordinary file"):
            require_plain_files(odd.parent)


def test_an_ordinary_file_is_read_also_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"a\r\nb")
    (tmp_path / "link").symlink_to("file")
    require_plain_files(tmp_path)
    for name in ("file", "link"):
        assert read_plain(tmp_path / name) == b"a\r\nb"
        assert read_plain_text(tmp_path / name) == "a\nb"
        with open_plain(tmp_path / name) as stream:
            assert os.get_blocking(stream.fileno())


@pytest.mark.parametrize("name", ["missing", "nul\0byte"])
def test_a_file_that_is_not_there_or_cannot_be_is_an_oserror(tmp_path, name):
    for opener in (open_plain, require_plain):
        with pytest.raises(OSError, match=r"No such file|no file can have this name"):
            opener(tmp_path / name)
