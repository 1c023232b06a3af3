"""Check that all nodes of a cluster see the same files as the driver, the machine that runs the build.

driver  make_probe           records the path of a file and a digest of its first bytes
node    check_probes         checks that the node sees all probes, and writes a file next to the first probe
driver  require_usable_node  raises if the node has a different gristmill version, does not see a file, cannot write, or
                             writes files that the driver does not see
node    require_probes       checks again once per process, because a node may join the cluster later
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
"""Time to wait for a file on shared storage, which may be slow to show new files."""
MUST_BE_SHARED = "sources and the work folder must be in folders that all machines share."


class Probe(NamedTuple):
    """A file that all machines must see."""

    path: str
    sha256: str
    """Digest of the first PROBED_BYTES of the file."""


class ProbeResult(NamedTuple):
    """Result of checking the probes on one node."""

    version: str
    """Version of gristmill on the node."""
    missing: str | None
    """Path of the first probe that the node does not see, or None if it sees all probes."""
    written: str | None
    """Path of an empty file that the node wrote next to the first probe, or None if it wrote no file."""
    write_error: str | None


def make_probe(path: str | os.PathLike[str]) -> Probe:
    """Make a probe for a file that exists on this machine."""
    absolute = os.path.abspath(path)  # a node may have a different current directory
    return Probe(absolute, _digest(absolute))


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read(PROBED_BYTES)).hexdigest()


def check_probes(probes: Sequence[Probe]) -> ProbeResult:
    """Check that this node sees all probes. If so, write a file next to the first probe."""
    missing = _first_missing(probes)
    written = write_error = None
    if probes and missing is None:
        written = os.path.join(os.path.dirname(probes[0].path), f".probe-{uuid.uuid4().hex}")
        try:
            with open(written, "xb"):
                pass
        except OSError as error:
            written, write_error = None, error.strerror
    return ProbeResult(__version__, missing, written, write_error)


def _first_missing(probes: Sequence[Probe]) -> str | None:
    for probe in probes:
        try:
            is_visible = _digest(probe.path) == probe.sha256
        except OSError:
            is_visible = False
        if not is_visible:
            return probe.path
    return None


def require_usable_node(result: ProbeResult, address: str, probes: Sequence[Probe]) -> None:
    """Remove the file that the node wrote, and raise if the node cannot be used."""
    is_visible_here = result.written is None or _wait_and_remove(result.written)
    if result.version != __version__:
        raise InputError(
            f"node {address} has gristmill {result.version}, but this machine has {__version__}. "
            "Install the same version on all machines."
        )
    if result.missing is not None:
        raise _not_visible_error(address, result.missing)
    if result.write_error is not None:
        folder = printable(os.path.dirname(probes[0].path))
        raise OutputError(f"node {address} cannot write to '{folder}': {result.write_error}.")
    if not is_visible_here:
        folder = printable(os.path.dirname(probes[0].path))
        raise OutputError(
            f"files that node {address} writes to '{folder}' are not visible on this machine: {MUST_BE_SHARED}"
        )


def _wait_and_remove(path: str) -> bool:
    """Wait for the file to appear, remove it, and return True if it appeared."""
    give_up_at = time.monotonic() + SECONDS_TO_APPEAR
    while not (exists := os.path.lexists(path)) and time.monotonic() < give_up_at:
        time.sleep(0.1)
    with suppress(OSError):
        os.unlink(path)
    return exists


_verified_probes: set[tuple[Probe, ...]] = set()
"""Probes that this process has already checked, as they were passed to `require_probes`."""


def require_probes(probes: tuple[Probe, ...], address: Callable[[], str]) -> None:
    """Raise if this node does not see a probe. `address` returns the address of the node for the message."""
    if probes not in _verified_probes:
        missing = _first_missing(probes)
        if missing is not None:
            raise _not_visible_error(address(), missing)
        _verified_probes.add(probes)


def _not_visible_error(address: str, path: str) -> InputError:
    return InputError(f"node {address} does not see '{printable(path)}': {MUST_BE_SHARED}")
