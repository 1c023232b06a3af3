"""What the benchmarks share: commands in fresh processes, one after the other, with wall time and peak memory."""

import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import NamedTuple

import psutil

STDLIB = sysconfig.get_path("stdlib")
GRISTMILL = os.path.join(os.path.dirname(sys.executable), "gristmill")


class Measured(NamedTuple):
    seconds: float
    peak_mb: float


def seconds_of(command: Sequence[str]) -> float:
    """From the start of the interpreter to its end."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def peak_mb_of(command: Sequence[str]) -> float:
    """Over all its processes, shared pages counted once. Looking slows it down: never the run that is timed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    watched = psutil.Process(process.pid)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _pss(watched))
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"{command[0]} failed with {process.returncode}")
    return peak / 1e6


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}, {versions}"


def _pss(process: psutil.Process) -> int:
    total = 0
    for one in [process, *_children(process)]:
        try:
            memory = one.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
        except psutil.Error:
            continue
    return total


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []
