"""Whether another machine sees the files that this one sees.

here         probe_of      a file's name and the digest of its beginning
there        look          which of them it sees, and whether it can write beside the first
here         refuse        says in one line what is not as it should be
there        refuse_unseen the same again, once in every process: a machine may have come later
"""

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gristmill.core.errors import InputError, OutputError
from gristmill.core.names import printable
from gristmill.core.version import __version__

PROBED_BYTES = 1 << 16
SECONDS_TO_APPEAR = 3.0
"""A shared folder may be a little behind."""
MUST_BE_SHARED = "sources and the work folder must lie on a folder that all machines share."


class Probe(NamedTuple):
    """A file that all machines must see."""

    path: str
    sha256: str
    """Of its first PROBED_BYTES."""


class Sight(NamedTuple):
    """What a node sees of the probes."""

    version: str
    unseen: str | None
    written: str | None
    """A file beside the first probe."""
    write_error: str | None


def probe_of(path: str | os.PathLike[str]) -> Probe:
    absolute = os.path.abspath(path)  # elsewhere another folder is the current one
    return Probe(absolute, _digest(absolute))


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(PROBED_BYTES)).hexdigest()


def look(probes: Sequence[Probe]) -> Sight:
    unseen = _first_unseen(probes)
    written = write_error = None
    if probes and unseen is None:
        written = os.path.join(os.path.dirname(probes[0].path), f".probe-{uuid.uuid4().hex}")
        try:
            with open(written, "xb"):
                pass
        except OSError as error:
            written, write_error = None, error.strerror
    return Sight(__version__, unseen, written, write_error)


def _first_unseen(probes: Sequence[Probe]) -> str | None:
    for probe in probes:
        try:
            is_seen = _digest(probe.path) == probe.sha256
        except OSError:
            is_seen = False
        if not is_seen:
            return probe.path
    return None


def refuse(sight: Sight, address: str, probes: Sequence[Probe]) -> None:
    """Also takes away what the node has written."""
    is_written = sight.written is None or _is_taken_away(sight.written)
    if sight.version != __version__:
        raise InputError(
            f"node {address} has gristmill {sight.version}, this machine {__version__}: "
            "install the same version on all machines."
        )
    if sight.unseen is not None:
        raise _does_not_see(address, sight.unseen)
    if sight.write_error is not None:
        place = printable(os.path.dirname(probes[0].path))
        raise OutputError(f"node {address} cannot write to '{place}': {sight.write_error}.")
    if not is_written:
        place = printable(os.path.dirname(probes[0].path))
        raise OutputError(f"what node {address} writes to '{place}' is not seen here: {MUST_BE_SHARED}")


def _is_taken_away(path: str) -> bool:
    give_up_at = time.monotonic() + SECONDS_TO_APPEAR
    while not (is_there := os.path.lexists(path)) and time.monotonic() < give_up_at:
        time.sleep(0.1)
    with suppress(OSError):
        os.unlink(path)
    return is_there


_seen: set[tuple[Probe, ...]] = set()
"""By this process."""


def refuse_unseen(probes: tuple[Probe, ...], address: Callable[[], str]) -> None:
    if probes not in _seen:
        unseen = _first_unseen(probes)
        if unseen is not None:
            raise _does_not_see(address(), unseen)
        _seen.add(probes)


def _does_not_see(address: str, path: str) -> InputError:
    return InputError(f"node {address} does not see '{printable(path)}': {MUST_BE_SHARED}")
