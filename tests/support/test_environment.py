"""Test that tests do not depend on the user, the machine, or the settings that their process inherits."""

import ast
import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import fsspec.asyn
import pytest
from tqdm import tqdm

from support.builds import running
from support.environment import stop_library_threads, without_privileges

TESTS = Path(__file__).parents[1]
SLEEPING_COMMAND = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_inherited_variables_and_umask_are_replaced():
    code = "import json, os; from support.environment import set_up_environment; set_up_environment(); print(json.dumps([dict(os.environ), os.umask(0)]))"
    removed = ("GRISTMILL_X", "HF_HOME", "NO_COLOR", "COLUMNS", "GIT_DIR", "LANG", "RANK", "DISPLAY", "AWS_PROFILE")
    given = {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "TERM": "dumb",
        "http_proxy": "x",
        **dict.fromkeys(removed, "x"),
    }
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, cwd=TESTS, env=given, umask=0o077, capture_output=True, check=True).stdout
    found, umask = json.loads(output)
    assert umask == 0o022
    assert not {*removed} & found.keys()
    assert (found["TERM"], found["http_proxy"], found["no_proxy"]) == ("xterm-256color", "x", "127.0.0.1,localhost")
    assert "HOME" not in found


def test_environment_of_these_tests_is_set_up(home):
    assert Path.home() == home
    assert "GIT_DIR" not in os.environ
    assert os.environ["LC_ALL"] == "C.UTF-8"


@pytest.fixture
def ignored_signals():
    """Ignore and block SIGINT and SIGTERM in this process."""
    earlier = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, earlier)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in earlier.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_is_interrupted_even_if_the_test_process_ignores_signals(ignored_signals, number):
    with running(SLEEPING_COMMAND, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == -number
    assert signal.getsignal(number) is signal.SIG_IGN


def test_failed_test_leaves_no_running_command():
    with pytest.raises(AssertionError), running(SLEEPING_COMMAND, stdout=subprocess.PIPE) as process:
        raise AssertionError
    assert process.returncode == -signal.SIGKILL


def test_background_commands_are_started_by_one_function():
    """Only `running` in builds.py starts background commands.

    `running` restores the default signal handlers for the command, and ends the command with the test.
    """
    calls = {
        path.name: ast.unparse(node.func)
        for path in sorted(TESTS.rglob("*.py"))
        if b"Popen" in path.read_bytes()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Popen")
    }
    assert calls == {"builds.py": "subprocess.Popen"}


def test_without_privileges_denies_writing_and_optionally_reading(tmp_path):
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/file").touch(mode=0o400)
    (tmp_path / "closed").chmod(0o500)
    with without_privileges(may_read=True):
        assert (tmp_path / "closed/file").read_bytes() == b""
        for name in ("file", "new"):
            with pytest.raises(PermissionError):
                (tmp_path / "closed" / name).write_bytes(b"x")
    (tmp_path / "closed/file").chmod(0)
    with without_privileges(), pytest.raises(PermissionError):
        (tmp_path / "closed/file").read_bytes()


def test_no_thread_of_a_library_is_left():
    for _ in range(2):
        assert list(tqdm(range(2), file=io.StringIO())) == [0, 1]
        assert fsspec.asyn.sync(fsspec.asyn.get_loop(), asyncio.sleep, 0, "done") == "done"
        stop_library_threads()
        assert not {"fsspecIO", "tqdm_monitor"} & {thread.name for thread in threading.enumerate()}
