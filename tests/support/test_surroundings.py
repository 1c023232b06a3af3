"""Tests give the same for anybody, anywhere: what they inherit does not reach them."""

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
from support.surroundings import end_lasting_threads, without_privileges

HERE = Path(__file__).parents[1]
WAITS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


def test_inherited_variables_and_umask_are_gone():
    code = "import json, os; from support.surroundings import settle; settle(); print(json.dumps([dict(os.environ), os.umask(0)]))"
    odd = ("GRISTMILL_X", "HF_HOME", "NO_COLOR", "COLUMNS", "GIT_DIR", "LANG", "RANK", "DISPLAY", "AWS_PROFILE")
    given = {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "TERM": "dumb",
        "http_proxy": "x",
        **dict.fromkeys(odd, "x"),
    }
    words = [sys.executable, "-c", code]
    answer = subprocess.run(words, cwd=HERE, env=given, umask=0o077, capture_output=True, check=True).stdout
    found, umask = json.loads(answer)
    assert umask == 0o022
    assert not {*odd} & found.keys()
    assert (found["TERM"], found["http_proxy"], found["no_proxy"]) == ("xterm-256color", "x", "127.0.0.1,localhost")
    assert "HOME" not in found


def test_these_tests_are_settled(home):
    assert Path.home() == home
    assert "GIT_DIR" not in os.environ
    assert os.environ["LC_ALL"] == "C.UTF-8"


@pytest.fixture
def ignoring():
    earlier = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, earlier)
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in earlier.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_is_interrupted_though_the_tests_ignore_it(ignoring, number):
    with running(WAITS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == -number
    assert signal.getsignal(number) is signal.SIG_IGN


def test_no_command_outlives_a_test_that_fails():
    with pytest.raises(AssertionError), running(WAITS, stdout=subprocess.PIPE) as process:
        raise AssertionError
    assert process.returncode == -signal.SIGKILL


def test_commands_that_run_beside_a_test_are_started_in_one_place():
    """By `running` of builds.py, which sees to signals and to their end."""
    calls = {
        path.name: ast.unparse(node.func)
        for path in sorted(HERE.rglob("*.py"))
        if b"Popen" in path.read_bytes()
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Popen")
    }
    assert calls == {"builds.py": "subprocess.Popen"}


def test_nobody_may_write_and_read_only_where_asked(tmp_path):
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


def test_no_thread_of_a_library_stays():
    for _ in range(2):
        assert list(tqdm(range(2), file=io.StringIO())) == [0, 1]
        assert fsspec.asyn.sync(fsspec.asyn.get_loop(), asyncio.sleep, 0, "done") == "done"
        end_lasting_threads()
        assert not {"fsspecIO", "tqdm_monitor"} & {thread.name for thread in threading.enumerate()}
