"""Run and kill commands and builds, in this process or in a separate process, and read the files that they write."""

import hashlib
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from gristmill import Config, build
from gristmill.cli import main
from gristmill.core.layout import CARDS
from gristmill.pipeline.work_folder import Workspace
from support.environment import default_signals
from support.source_trees import ROOT

KILLED = -signal.SIGKILL
PROGRESS = re.compile(r"[\w ]+: (done|[\d,]+( of [\d,]+)? \w+)( in \d+\.\d s|(, \d+ s left)?)")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "gristmill", *map(str, words)]


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False)


def called(*words: object) -> "subprocess.CompletedProcess[str]":
    """Run a gristmill command in this process, for tests that need no new process. Return the same as `run`."""
    arguments = [str(word) for word in words]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = main.run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


@contextmanager
def running(words: Iterable[object], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """Run a command that Ctrl-C interrupts even if this process ignores Ctrl-C. Kill the command at the end."""
    with default_signals():
        process = subprocess.Popen([*map(str, words)], **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


def messages(stderr: str) -> list[str]:
    """Return the lines of stderr without progress lines, which appear only if a step takes a second or more."""
    return [line for line in stderr.splitlines() if not PROGRESS.fullmatch(line)]


def refusal(done: "subprocess.CompletedProcess[str]") -> tuple[int, str]:
    """Return the exit code and the error message, which must be a single line."""
    assert not done.stdout
    (line,) = messages(done.stderr)
    return done.returncode, line.removeprefix("gristmill: ")


def everything(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the digests of the data files, and the manifest without the section `run`.

    The cards contain parts of the manifest, so their digests are returned as part of the manifest, under `cards`.
    """
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    manifest = json.loads(files.pop("manifest.json"))
    manifest.pop("run")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest["cards"] = {name: digests.pop(name) for name in CARDS}
    return digests, manifest


def files_table(folder: Path) -> dict[str, dict[str, Any]]:
    rows = (json.loads(line) for line in (folder / "files.jsonl").read_bytes().splitlines())
    return {row["path"]: row for row in rows}


def make(source: Path, out: Path, **sections: Any) -> Any:
    return build(Config(sources=[str(source)], out=str(out), **sections))


def work_folder_of(out: Path) -> Path:
    return out.with_name(out.name + ".work")


def copy_with_work(out: Path, to: Path) -> Path:
    """Copy a dataset and its work folder, if they exist, and return the new folder of the dataset."""
    for folder, target in ((out, to), (work_folder_of(out), work_folder_of(to))):
        if folder.is_dir():
            shutil.copytree(folder, target)
    return to


def parts(out: Path) -> Mapping[str, tuple[int, int]]:
    """Return the inode and the modification time of each part in the work folder, keyed by the name of the part."""
    found = (work_folder_of(out) / "prepared").glob("*.part")
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not exist after 60 s"
        time.sleep(0.01)


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a separate process, and return its result or raise its exception.

    The process has a single thread, so a build forks its workers, and the workers inherit patches that the function
    makes.
    """
    code, result = _exit_code_and_result(function, arguments)
    assert code == 0
    if isinstance(result, Exception):
        raise result
    return result


def run_until_killed(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in a separate process, and assert that the function kills that process."""
    assert _exit_code_and_result(function, arguments) == (KILLED, None)


@contextmanager
def started(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """Start the function in a separate process, and yield the process. Kill the process at the end if it still runs."""
    process = _forkserver().Process(target=function, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(60)


def _exit_code_and_result(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int | None, Any]:
    receiver, sender = _forkserver().Pipe(duplex=False)
    process = _forkserver().Process(target=_send_result, args=(sender, function, arguments))
    process.start()
    sender.close()
    with receiver:
        try:
            result = receiver.recv()
        except EOFError:
            result = None
    process.join(60)
    return process.exitcode, result


@cache
def _forkserver() -> Any:
    """Return a multiprocessing context that forks processes from a server process with all modules loaded.

    Such processes start immediately, even if this process has other threads.
    """
    context = multiprocessing.get_context("forkserver")
    modules = ["gristmill.pipeline.build", "gristmill.pipeline.separate_steps", "gristmill.cli.main", "support.preload"]
    context.set_forkserver_preload(["pytest", "hypothesis", *modules])
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # before Python 3.12.4 the server gets sys.path only from the environment
        patch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


def _send_result(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = function(*arguments)
    except Exception as error:  # noqa: BLE001 - the caller raises it again
        result = error
    pipe.send(result)


def kill_this_process(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CHANGE_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


def count_changes(folder: Path, kill_before: int | None, function: Callable[..., Any], *arguments: Any) -> int:
    """Call the function and return the number of changes that it makes to files and folders below `folder`.

    If `kill_before` is given, kill the process before the change with that number. The first change has number 1.
    """
    num_changes = 0

    def count_change() -> None:
        nonlocal num_changes
        num_changes += 1
        if num_changes == kill_before:
            kill_this_process()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if (
                isinstance(arguments[2], int)
                and arguments[2] & (os.O_WRONLY | os.O_RDWR)
                and _is_in(folder, arguments[0])
            ):
                count_change()
        elif event in CHANGE_EVENTS and (
            _is_in(folder, arguments[0]) or arguments[-1] != -1
        ):  # the path is relative to an open folder
            count_change()

    exchange = Workspace._exchange

    def counted_exchange(work: Workspace) -> None:  # the system call of an exchange has no audit event
        count_change()
        exchange(work)
        count_change()

    Workspace._exchange = counted_exchange  # type: ignore[method-assign]
    sys.addaudithook(audit)
    function(*arguments)
    return num_changes


def _is_in(folder: Path, path: Any) -> bool:
    return not isinstance(path, int) and os.fsdecode(path).startswith(str(folder))
