"""The surroundings of a test: the same for root and anybody, in any clone, shell, terminal or locale.

`settle()` fixes the environment and the umask for the process of the tests and all that it starts.
`default_signals()` and `without_privileges()` are for tests in which Ctrl-C or file permissions must count.
`start_no_monitor()` is for the process of the tests, `end_lasting_threads()` and `give_memory_back()` for the end of a
module.
"""

import asyncio
import ctypes
import gc
import os
import pwd
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from gristmill.tokenizers import tokenizer
from gristmill.tokenizers.locate import locate

KEPT = ("PATH", "PYTHONPATH", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "USER", "LOGNAME", "SHELL")
KEPT_BEGINNINGS = ("PYTEST_", "COV_", "COVERAGE_", "PIP_", "SSL_", "REQUESTS_", "LD_", "DYLD_", "CUDA_", "NVIDIA_")
KEPT_ENDINGS = ("_PROXY",)
"""All other variables go: a test that wants one sets it."""
FIXED = {
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm-256color",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "OMP_NUM_THREADS": "1",  # several tests run at once: each training takes one core
}
USER_HOME = pwd.getpwuid(os.getuid()).pw_dir
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1 << 1, 1 << 2
PR_SET_SECUREBITS, SECBIT_NOROOT = 28, 1
"""From Linux's capability.h, prctl.h and securebits.h."""


def settle() -> None:
    kept = {name: value for name, value in os.environ.items() if _is_kept(name.upper())}
    os.environ.clear()
    os.environ.update(kept, **FIXED, TMPDIR=os.path.realpath(tempfile.gettempdir()))
    os.umask(0o022)


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_BEGINNINGS) or name.endswith(KEPT_ENDINGS)


def start_no_monitor() -> None:
    """Of progress bars, by tqdm: a thread that stays. Beside any other thread a build spawns its workers.

    Each is an interpreter then, which takes twenty times as long as a fork.
    """
    with suppress(ImportError):
        from tqdm import tqdm

        tqdm.monitor_interval = 0


def end_lasting_threads() -> None:
    """End the one that fsspec starts once and keeps; it starts another where it is needed."""
    fsspec = sys.modules.get("fsspec.asyn")
    if fsspec is not None and fsspec.loop[0] is not None:
        _forget_instances(fsspec.AsyncFileSystem)
        gc.collect()  # what is left of them closes its connections, while the loop runs
        (loop,), (thread,) = fsspec.loop, fsspec.iothread
        asyncio.run_coroutine_threadsafe(_finish_all(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
        fsspec.loop[0] = fsspec.iothread[0] = None


def give_memory_back() -> None:
    """Forget all tokenizers but the bundled one: a process keeps each that it has loaded, some 100 MB for a large model.

    And give back what is free, where the C library can be asked to: glibc.
    """
    bundled = locate("codebert").key
    for key in tokenizer._loaded.keys() - {bundled}:
        del tokenizer._loaded[key]
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _forget_instances(file_system: Any) -> None:
    """Each is bound to the loop."""
    file_system.clear_instance_cache()
    for kind in file_system.__subclasses__():
        _forget_instances(kind)


async def _finish_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=20)
    await asyncio.get_running_loop().shutdown_default_executor()


@contextmanager
def default_signals() -> Iterator[None]:
    """SIGINT and SIGTERM end this process and the commands it starts in here, even if it inherited them ignored.

    A shell without job control ignores SIGINT in background jobs, and a child inherits that.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
    earlier = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def without_privileges(*, may_read: bool = False) -> Iterator[None]:
    """Permissions count in here, for this process and the commands it starts, also if it is root's.

    Root stays the owner of its files, so code in a closed home can be loaded. `may_read`: permissions count for
    writing only, so that code of another owner can be loaded too.
    """
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root may do everything here, whatever the permissions")
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _call("capget", header, sets)
    effective = sets[0]  # of the first 32 capabilities; what is permitted stays, so that they can be taken back
    _call("prctl", PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0, 0)  # else a command of root's has them all again
    try:
        sets[0] = effective & ~(CAP_DAC_OVERRIDE if may_read else CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH)
        _call("capset", header, sets)
        yield
    finally:
        sets[0] = effective
        _call("capset", header, sets)
        _call("prctl", PR_SET_SECUREBITS, 0, 0, 0, 0)


def _call(name: str, *arguments: Any) -> None:
    """A function of libc that answers with 0."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
