"""What does it cost that a dataset is on the disk before it takes its place?

python benchmarks/sync.py     # prints benchmarks/sync.md; builds on the disk of the current folder

Builds with and without syncing take turns, each in a process of its own, over an earlier dataset in the same folder.
Before each, all that waits to be written is written, so that no build pays for another.
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

from measure import STDLIB, machine

import gristmill
from gristmill import Config, OutputConfig, RunConfig
from gristmill.pipeline import work_folder

TURNS = 5
CASES = {"none": OutputConfig(), "zstd": OutputConfig(compress="zstd")}


class Seconds(NamedTuple):
    build: float
    syncs: float
    """Of these, until all was on the disk."""


def main() -> None:
    print("# Syncing a dataset\n")
    print(f"`python benchmarks/sync.py`. {machine('gristmill')}.\n")
    print("Seconds of a build of the standard library over an earlier dataset, from scratch. Builds with and without")
    print(f"syncing take turns: medians of {TURNS}, the ratio that of each turn. `waits`: until all was on the disk.\n")
    print("| `--compress` | MB | with | without | ratio | waits |\n| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            _measured(case, folder, "with")
            turns = [(_measured(case, folder, "with"), _measured(case, folder, "without")) for _ in range(TURNS)]
            num_bytes = sum(path.stat().st_size for path in Path(folder, "out").rglob("*") if path.is_file())
        synced, plain = (median(one.build for one in side) for side in zip(*turns, strict=True))
        ratio = median(one.build / other.build for one, other in turns)
        waits = median(one.syncs for one, _ in turns)
        print(
            f"| {case} | {num_bytes / 1e6:,.0f} | {synced:.2f} | {plain:.2f} | {ratio:.2f} | {waits:.2f} |", flush=True
        )


def _measured(case: str, folder: str, how: str) -> Seconds:
    command = [sys.executable, __file__, case, folder, how]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Seconds(*map(float, told.split()))


def _build(case: str, folder: str, how: str) -> None:
    seconds = 0.0

    def timed(sync: Callable[[Path], None]) -> Callable[[Path], None]:
        def call(path: Path) -> None:
            nonlocal seconds
            started = time.perf_counter()
            sync(path)
            seconds += time.perf_counter() - started

        return call if how == "with" else lambda _: None

    for name in ("sync_tree", "sync_folder"):
        setattr(work_folder, name, timed(getattr(work_folder, name)))
    config = Config(sources=[STDLIB], out=f"{folder}/out", output=CASES[case], run=RunConfig(cache_bytes=0))
    os.sync()
    started = time.perf_counter()
    gristmill.build(config)
    print(time.perf_counter() - started, seconds)


if __name__ == "__main__":
    _build(*sys.argv[1:]) if len(sys.argv) > 1 else main()
