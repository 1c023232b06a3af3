"""Measure the cost of syncing a dataset to disk before it replaces an earlier dataset.

python benchmarks/sync.py     # prints the contents of benchmarks/sync.md; builds on the disk of the current folder

Builds with and without syncing alternate. Each build runs in a separate process and replaces an earlier dataset in the
same folder. Pending writes are flushed before each build, so that no build waits for writes of the previous build.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measure import STDLIB, machine_text

import gristmill
from gristmill import Config, OutputConfig, RunConfig
from gristmill.pipeline import work_folder

TURNS = 5
CASES = {"none": OutputConfig(), "zstd": OutputConfig(compress="zstd")}


class Seconds(NamedTuple):
    build: float
    syncs: float
    """Part of `build` that was spent in syncs."""


def main() -> None:
    print("# Syncing a dataset\n")
    print(f"`python benchmarks/sync.py`. {machine_text('gristmill')}.\n")
    print("Seconds to build the standard library from scratch, replacing an earlier dataset. Builds with and without")
    print(
        f"syncing alternate. All values are medians of {TURNS} turns. `ratio` is `with` / `without` in the same turn."
    )
    print("`sync` is the part of `with` that was spent waiting for the disk.\n")
    print("| `--compress` | MB | with | without | ratio | sync |\n| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            _measure(case, folder, "with")
            turns = [(_measure(case, folder, "with"), _measure(case, folder, "without")) for _ in range(TURNS)]
            num_bytes = sum(path.stat().st_size for path in Path(folder, "out").rglob("*") if path.is_file())
        synced, unsynced = (median(one.build for one in side) for side in zip(*turns, strict=True))
        ratio = median(one.build / other.build for one, other in turns)
        sync_seconds = median(one.syncs for one, _ in turns)
        print(
            f"| {case} | {num_bytes / 1e6:,.0f} | {synced:.2f} | {unsynced:.2f} | {ratio:.2f} | {sync_seconds:.2f} |",
            flush=True,
        )


def _measure(case: str, folder: str, mode: str) -> Seconds:
    """Build in a new process and return the seconds. `mode` is "with" or "without" syncing."""
    command = [sys.executable, __file__, case, folder, mode]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Seconds(*map(float, output.split()))


def _build(case: str, folder: str, mode: str) -> None:
    """Build, and print the seconds of the build and of its syncs."""
    seconds = 0.0

    def timed_or_skipped(sync: Callable[[Path], None]) -> Callable[[Path], None]:
        def call(path: Path) -> None:
            nonlocal seconds
            started = time.perf_counter()
            sync(path)
            seconds += time.perf_counter() - started

        return call if mode == "with" else lambda _: None

    for name in ("sync_tree", "sync_folder"):
        setattr(work_folder, name, timed_or_skipped(getattr(work_folder, name)))
    config = Config(sources=[STDLIB], out=f"{folder}/out", output=CASES[case], run=RunConfig(cache_bytes=0))
    os.sync()
    started = time.perf_counter()
    gristmill.build(config)
    print(time.perf_counter() - started, seconds)


if __name__ == "__main__":
    _build(*sys.argv[1:]) if len(sys.argv) > 1 else main()
