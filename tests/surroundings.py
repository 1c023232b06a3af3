"""The surroundings of a test: the same for root and anybody, in any clone, shell, terminal or locale.

`settle()` fixes the environment and the umask for the process of the tests and all that it starts.
`default_signals()` and `without_privileges()` are for tests in which Ctrl-C or file permissions must count.
"""

import atexit
import ctypes
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

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
NOBODY = 65534
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION_3 = 0x20080522


def settle() -> None:
    home = tempfile.mkdtemp(prefix="home-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    kept = {name: value for name, value in os.environ.items() if _is_kept(name.upper())}
    os.environ.clear()
    os.environ.update(kept, **FIXED, HOME=home, TMPDIR=os.path.realpath(tempfile.gettempdir()))
    os.umask(0o022)


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_BEGINNINGS) or name.endswith(KEPT_ENDINGS)


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
    """As an ordinary user, for whom permissions count; root becomes one for as long.

    `may_read`: permissions count for writing only. For code that is loaded in here from a clone in root's closed home.
    """
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        if may_read and sys.platform == "linux":
            _take_capability(CAP_DAC_READ_SEARCH)
        yield
    finally:
        os.seteuid(0)  # and all capabilities are back


def _take_capability(number: int) -> None:
    """One that root had before it became somebody else, by capset(2)."""
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (libc.capget, libc.capset):
        if call(header, sets):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        sets[0] |= 1 << number  # the first of six: what counts, for numbers below 32
