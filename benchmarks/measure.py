"""Run commands in new processes, one at a time, and measure their wall time and peak memory.

Most benchmarks use this module.
"""

import os
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import NamedTuple

from gristmill.core.progress import Progress
from gristmill.lab.bench.bench import this_machine
from gristmill.lab.bench.process import ProcessResult, run

STDLIB = sysconfig.get_path("stdlib")
GRISTMILL = os.path.join(os.path.dirname(sys.executable), "gristmill")


COLD_BUILD = 'rm -rf "$0" "$0.work"; exec "$@" --out "$0" --quiet'
"""Shell script that removes the dataset $0 and its work folder, then runs the command $@."""


class Measured(NamedTuple):
    seconds: float
    peak_mb: float


def cold_build(out: str, *arguments: str) -> list[str]:
    """Return a command that removes the results of earlier builds and then builds from scratch."""
    return ["sh", "-c", COLD_BUILD, out, GRISTMILL, "build", *arguments]


def time_command(command: Sequence[str]) -> float:
    """Run the command and return its wall seconds, including the start and exit of the interpreter."""
    return _run(command, watched=False).seconds


def measure_peak_mb(command: Sequence[str]) -> float:
    """Run the command and return the peak memory of all its processes, with shared pages counted once.

    Sampling memory slows the command down, so time and memory are measured in separate runs.
    """
    return _run(command, watched=True).peak_mb or 0.0


def measure_medians(commands: Mapping[str, Sequence[str]], runs: int) -> dict[str, Measured]:
    """Measure the median seconds of each command over `runs` runs, and its peak memory in one more run.

    The commands run alternately, so that a noisy minute affects all of them.
    """
    measured: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(runs):
        for name, command in commands.items():
            measured[name].append(time_command(command))
            print(f"  {turn + 1}/{runs} {name}: {measured[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: Measured(median(seconds), measure_peak_mb(commands[name])) for name, seconds in measured.items()}


def machine_text(*packages: str) -> str:
    """Describe this machine and the versions of Python and `packages`."""
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    here = this_machine()
    return f"{here.platform}, {here.cores} cores, Python {here.python}, {versions}"


def _run(command: Sequence[str], *, watched: bool) -> ProcessResult:
    return run(command[0], command, progress=Progress(), watched=watched)
