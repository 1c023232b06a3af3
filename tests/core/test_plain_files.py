"""Files that other users may have created are opened only with `core.plain_files`, which does not block at a FIFO."""

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

PACKAGE = "part of the package"
WORK = "in a work folder of gristmill, or in a different folder that only gristmill writes"
GUARDED = "the caller first calls require_plain, require_plain_files or is_file"
BASELINE = "a script that gristmill bench compares with gristmill; it reads only files that the scan has found"
SYSTEM = "opened by descriptor, or a path of the operating system"
ALLOWED = {
    "core/plain_files.py": SYSTEM,
    "runners/local.py": SYSTEM,
    "runners/probe.py": WORK,
    "core/layout.py:write_atomically": SYSTEM,
    "core/layout.py:sync_folder": "a folder, which does not block",
    "views/charts.py": PACKAGE,
    "views/html.py": PACKAGE,
    "pipeline/keys.py:code_digest": PACKAGE,
    "variants/rename.py": PACKAGE,
    "cleaning/language_kinds.py": PACKAGE,
    "tokenizers/cuda/character_classes.py": PACKAGE,
    "tokenizers/cuda/cupy_gpu.py": PACKAGE,
    "tokenizers/locate.py:_bundled": PACKAGE,
    "views/viewer/server.py": PACKAGE,
    "pipeline/": WORK,
    "dedup/similarity.py": WORK,
    "splits/span_join.py": WORK,
    "pipeline/work_folder.py": WORK,
    "sources/table_cache.py": WORK,
    "sources/git.py:_unblock_reader": "opens a FIFO for writing, without blocking",
    "publish/export.py:_lock": WORK,
    "lab/vocabulary/location.py:staged": WORK,
    "lab/vocabulary/location.py:_clear_stages": "a folder, which does not block",
    "checks/formats.py:_open_stream": GUARDED,
    "lab/bench/job.py": WORK,
    "lab/bench/methods.py": WORK,
    "lab/bench/scripts/original.py": BASELINE,
    "lab/bench/scripts/floor.py": BASELINE,
    "lab/bench/scripts/hf_datasets.py": BASELINE,
    "lab/training/run_folder.py:_acquire_lock": "opens for reading and writing, which does not block",
    "lab/training/models.py:_load_pretrained": GUARDED,
    "lab/training/models.py:load_weights": GUARDED,
    "tokenizers/cuda/reader_process.py:read_files": GUARDED,
    "views/viewer/viewer_folder.py:hold_lock": GUARDED,
    "formats/chunks.py:_content": "maps a stream of open_plain",
    "formats/arrays.py:map_part": "maps a stream of open_plain",
    "formats/arrow.py:_map_file": GUARDED,
    "formats/parquet.py:_open_file": GUARDED,
    "formats/parquet.py:_read_rows": GUARDED,
    "sources/tables.py:_open_parquet": GUARDED,
    "sources/benchmark_files.py:_parquet_rows": "reads bytes in memory",
}
"""Modules and functions that may open files without `core.plain_files`, each with the reason."""


def opening_calls(tree):
    """Yield the enclosing function and the line of each call that opens a file."""
    pending = [(tree, "")]
    while pending:
        node, function = pending.pop()
        if isinstance(node, ast.Call) and is_opening_call(node):
            yield function, node.lineno
        function = node.name if isinstance(node, ast.FunctionDef) else function
        pending += [(child, function) for child in ast.iter_child_nodes(node)]


def is_opening_call(call):
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


def allowed_entry(module, function):
    candidates = (f"{module}:{function}", module, f"{module.partition('/')[0]}/")
    return next((entry for entry in candidates if entry in ALLOWED), None)


@cache
def found_calls():
    return [
        (path.relative_to(ROOT).as_posix(), function, line)
        for path in sorted(ROOT.rglob("*.py"))
        for function, line in opening_calls(ast.parse(path.read_text("utf-8")))
    ]


def test_only_allowed_code_opens_files_directly():
    forbidden_calls = [
        f"{module}:{line} in {function}"
        for module, function, line in found_calls()
        if not allowed_entry(module, function)
    ]
    assert not forbidden_calls, (
        "these calls must use gristmill.core.plain_files, or their reason must be added to ALLOWED"
    )


def test_every_allowed_entry_is_used():
    assert {allowed_entry(module, function) for module, function, _ in found_calls()} == set(ALLOWED)


@pytest.mark.parametrize(
    "source", ["open(p)", "p.open()", "p.open('rb')", "p.read_text()", "np.load(p)", "os.open(p, f)"]
)
def test_search_finds_opening_calls(source):
    assert list(opening_calls(ast.parse(f"def f():\n    {source}"))) == [("f", 2)]


@pytest.fixture(params=["fifo", "folder", "socket", "device", "link to a fifo"])
def special_file(request, tmp_path):
    path = tmp_path / "special"
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
def test_special_file_is_refused_without_blocking(special_file, opener):
    with pytest.raises(OSError, match="not a regular file"):
        opener(special_file)
    if not special_file.is_dir():
        with pytest.raises(OSError, match="not a regular file"):
            require_plain_files(special_file.parent)


def test_regular_file_is_read_directly_and_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"a\r\nb")
    (tmp_path / "link").symlink_to("file")
    require_plain_files(tmp_path)
    for name in ("file", "link"):
        assert read_plain(tmp_path / name) == b"a\r\nb"
        assert read_plain_text(tmp_path / name) == "a\nb"
        with open_plain(tmp_path / name) as stream:
            assert os.get_blocking(stream.fileno())


@pytest.mark.parametrize("name", ["missing", "nul\0byte"])
def test_missing_file_or_impossible_name_raises_oserror(tmp_path, name):
    for opener in (open_plain, require_plain):
        with pytest.raises(OSError, match=r"No such file|no file can have this name"):
            opener(tmp_path / name)
