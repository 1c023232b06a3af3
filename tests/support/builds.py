"""Commands in this process and in their own, builds that end badly, and what they leave."""

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
from support.source_trees import ROOT
from support.surroundings import default_signals

KILLED = -signal.SIGKILL
PROGRESS = re.compile(r"[\w ]+: (done|[\d,]+( of [\d,]+)? \w+)( in \d+\.\d s|(, \d+ s left)?)")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "gristmill", *map(str, words)]


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120, check=False)


def called(*words: object) -> "subprocess.CompletedProcess[str]":
    """The same answer as `run`, without a new interpreter: for tests of what a command does, not of how it starts."""
    arguments = [str(word) for word in words]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = main.run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


@contextmanager
def running(words: Iterable[object], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """A command that Ctrl-C interrupts, whatever this process inherited; killed at the end at the latest."""
    with default_signals():
        process = subprocess.Popen([*map(str, words)], **options)
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(stderr: str) -> list[str]:
    """Its lines, without those on steps that take a second or more: those are there if the machine is slow."""
    return [line for line in stderr.splitlines() if not PROGRESS.fullmatch(line)]


def refusal(done: "subprocess.CompletedProcess[str]") -> tuple[int, str]:
    """The exit code, and the one line that says why."""
    assert not done.stdout
    (line,) = said(done.stderr)
    return done.returncode, line.removeprefix("gristmill: ")


def everything(folder: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """A digest of every file but the manifest, and the manifest but for how the build went, with the cards told by it."""
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


def work_of(out: Path) -> Path:
    return out.with_name(out.name + ".work")


def copy_with_work(out: Path, to: Path) -> Path:
    """A dataset and its work folder, or those of the two that are there."""
    for folder, place in ((out, to), (work_of(out), work_of(to))):
        if folder.is_dir():
            shutil.copytree(folder, place)
    return to


def parts(out: Path) -> Mapping[str, tuple[int, int]]:
    """Those in the work folder: which file each is, and of when."""
    found = (work_of(out) / "prepared").glob("*.part")
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def in_a_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives or raises. No other thread runs there, so that workers are forked, with all it patches."""
    code, answer = _ended(function, arguments)
    assert code == 0
    if isinstance(answer, Exception):
        raise answer
    return answer


def killed(function: Callable[..., Any], *arguments: Any) -> None:
    """For a function that kills its process."""
    assert _ended(function, arguments) == (KILLED, None)


@contextmanager
def started(function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
    """The process, which is killed at the end at the latest."""
    process = _clean_processes().Process(target=function, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(60)


def _ended(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[int | None, Any]:
    near, far = _clean_processes().Pipe(duplex=False)
    process = _clean_processes().Process(target=_answer, args=(far, function, arguments))
    process.start()
    far.close()
    with near:
        try:
            answer = near.recv()
        except EOFError:
            answer = None
    process.join(60)
    return process.exitcode, answer


@cache
def _clean_processes() -> Any:
    """Forked from one that has loaded everything and does nothing: at once there, whatever threads run in this one."""
    processes = multiprocessing.get_context("forkserver")
    own = ["gristmill.pipeline.build", "gristmill.pipeline.by_hand", "gristmill.cli.main", "support.preloaded"]
    processes.set_forkserver_preload(["pytest", "hypothesis", *own])
    with pytest.MonkeyPatch.context() as patch:  # until Python 3.12.4 it has no path but by the environment
        patch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)
        forkserver.ensure_running()
    return processes


def _answer(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer = function(*arguments)
    except Exception as error:  # noqa: BLE001 - it is raised again
        answer = error
    pipe.send(answer)


def kill_here(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")


def in_steps(ours: Path, last: int | None, function: Callable[..., Any], *arguments: Any) -> int:
    """Call the function -> how many changes it makes to what is below a folder. It is killed before the last one."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == last:
            kill_here()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if (
                isinstance(arguments[2], int)
                and arguments[2] & (os.O_WRONLY | os.O_RDWR)
                and _is_in(ours, arguments[0])
            ):
                step()
        elif event in CHANGES and (_is_in(ours, arguments[0]) or arguments[-1] != -1):  # of a folder that is open
            step()

    exchange = Workspace._exchange

    def exchange_in_steps(work: Workspace) -> None:  # by a call that has no event
        step()
        exchange(work)
        step()

    Workspace._exchange = exchange_in_steps  # type: ignore[method-assign]
    sys.addaudithook(look)
    function(*arguments)
    return steps


def _is_in(folder: Path, path: Any) -> bool:
    return not isinstance(path, int) and os.fsdecode(path).startswith(str(folder))
