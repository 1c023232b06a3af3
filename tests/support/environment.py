"""A test environment that does not depend on the user, clone, shell, terminal or locale.

`set_up_environment()` sets the environment variables and the umask of the test process and of all processes that it
starts. `default_signals()` is for tests of Ctrl-C, and `without_privileges()` is for tests of file permissions.
`disable_tqdm_monitor()` is called once per test process. `stop_library_threads()` and `release_memory()` are called at
the end of each test module.
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
KEPT_PREFIXES = ("PYTEST_", "COV_", "COVERAGE_", "PIP_", "SSL_", "REQUESTS_", "LD_", "DYLD_", "CUDA_", "NVIDIA_")
KEPT_SUFFIXES = ("_PROXY",)
"""Environment variables that match none of KEPT, KEPT_PREFIXES and KEPT_SUFFIXES are removed."""
FIXED = {
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm-256color",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "OMP_NUM_THREADS": "1",  # several tests run at once, so each training run uses one core
}
USER_HOME = pwd.getpwuid(os.getuid()).pw_dir
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1 << 1, 1 << 2
PR_SET_SECUREBITS, SECBIT_NOROOT = 28, 1
"""The constants from CAPABILITY_VERSION_3 on are from Linux's capability.h, prctl.h and securebits.h."""


def set_up_environment() -> None:
    kept = {name: value for name, value in os.environ.items() if _is_kept(name.upper())}
    os.environ.clear()
    os.environ.update(kept, **FIXED, TMPDIR=os.path.realpath(tempfile.gettempdir()))
    os.umask(0o022)


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_PREFIXES) or name.endswith(KEPT_SUFFIXES)


def disable_tqdm_monitor() -> None:
    """Stop tqdm from starting a thread that monitors progress bars and never ends.

    If a second thread runs, a build does not fork its workers, but starts a new interpreter for each worker, which
    takes 20 times as long.
    """
    with suppress(ImportError):
        from tqdm import tqdm

        tqdm.monitor_interval = 0


def stop_library_threads() -> None:
    """Stop the background thread of fsspec. fsspec starts a new thread when it needs one."""
    fsspec = sys.modules.get("fsspec.asyn")
    if fsspec is not None and fsspec.loop[0] is not None:
        _clear_instances(fsspec.AsyncFileSystem)
        gc.collect()  # deleted instances close their connections, which needs the running loop
        (loop,), (thread,) = fsspec.loop, fsspec.iothread
        asyncio.run_coroutine_threadsafe(_finish_tasks(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
        fsspec.loop[0] = fsspec.iothread[0] = None


def release_memory() -> None:
    """Unload all tokenizers except the bundled one, and return free memory to the system if the C library is glibc.

    A process keeps each tokenizer that it has loaded. The tokenizer of a large model takes about 100 MB.
    """
    bundled = locate("codebert").key
    for key in tokenizer._loaded.keys() - {bundled}:
        del tokenizer._loaded[key]
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _clear_instances(file_system: Any) -> None:
    """Clear the cached instances of a file system class and its subclasses. All instances use the event loop."""
    file_system.clear_instance_cache()
    for kind in file_system.__subclasses__():
        _clear_instances(kind)


async def _finish_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=20)
    await asyncio.get_running_loop().shutdown_default_executor()


@contextmanager
def default_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM end this process and the commands that it starts, even if it inherited ignored signals.

    A shell without job control ignores SIGINT in background jobs, and child processes inherit this setting.
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
    """Enforce file permissions for this process and the commands that it starts, even if this process runs as root.

    Root remains the owner of its files, so code in root's home directory can be loaded. With `may_read`, only write
    permissions are enforced, so that code of other owners can be loaded too.
    """
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("root ignores file permissions on this platform")
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _call("capget", header, sets)
    effective = sets[0]  # the first 32 capabilities, which stay permitted and can be enabled again
    _call(
        "prctl", PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0, 0
    )  # without this, a command started by root has all capabilities again
    try:
        sets[0] = effective & ~(CAP_DAC_OVERRIDE if may_read else CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH)
        _call("capset", header, sets)
        yield
    finally:
        sets[0] = effective
        _call("capset", header, sets)
        _call("prctl", PR_SET_SECUREBITS, 0, 0, 0, 0)


def _call(name: str, *arguments: Any) -> None:
    """Call a libc function that returns 0 on success."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
