"""What the benchmarks share: commands in fresh processes, one after the other, with wall time and peak memory."""

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import NamedTuple

from gristmill.core.progress import Progress
from gristmill.lab.bench.bench import this_machine
from gristmill.lab.bench.process import Ran, run

STDLIB = sysconfig.get_path("stdlib")
GRISTMILL = os.path.join(os.path.dirname(sys.executable), "gristmill")


CLEARED = 'rm -rf "$0" "$0.work"; exec "$@" --out "$0" --quiet'


class Measured(NamedTuple):
    seconds: float
    peak_mb: float


def cold_build(out: str, *arguments: str) -> list[str]:
    """Command of a build that finds nothing of an earlier one, however often it runs."""
    return ["sh", "-c", CLEARED, out, GRISTMILL, "build", *arguments]


def seconds_of(command: Sequence[str]) -> float:
    """From the start of the interpreter to its end."""
    return _run(command, watched=False).seconds


def peak_mb_of(command: Sequence[str]) -> float:
    """Over all its processes, shared pages counted once. Looking slows it down: never the run that is timed."""
    return _run(command, watched=True).peak_mb or 0.0


def medians(commands: Mapping[str, Sequence[str]], runs: int) -> dict[str, Measured]:
    """Taking turns, so that a noisy minute hits all of them."""
    measured: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs):
        for name, command in commands.items():
            measured[name].append(seconds_of(command))
            print(f"  {turn + 1}/{runs} {name}: {measured[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: Measured(median(seconds), peak_mb_of(commands[name])) for name, seconds in measured.items()}


def machine(*packages: str) -> str:
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    here = this_machine()
    return f"{here.platform}, {here.cores} cores, Python {here.python}, {versions}"


def _run(command: Sequence[str], *, watched: bool) -> Ran:
    return run(command[0], command, progress=Progress(), watched=watched)
