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
from statistics import median

from measure import STDLIB, machine

import gristmill
from gristmill import Config, OutputConfig, RunConfig, layout

TURNS = 5
CASES = {"plain": OutputConfig(), "zstd": OutputConfig(compress="zstd"), "mds": OutputConfig(formats=["jsonl", "mds"])}


def main() -> None:
    print("# Syncing a dataset\n")
    print(f"`python benchmarks/sync.py`. {machine('gristmill')}.\n")
    print(
        f"Seconds of a build of the standard library over an earlier dataset, from scratch, median of {TURNS}, "
        "with and without\nsyncing in turns; the ratio is the median of the turns' ratios.\n"
    )
    print("| dataset | MB | with | without | ratio |\n| --- | --- | --- | --- | --- |")
    for case in CASES:
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            _measured(case, folder, "with")
            pairs = [(_measured(case, folder, "with"), _measured(case, folder, "without")) for _ in range(TURNS)]
            num_bytes = sum(entry.stat().st_size for entry in os.scandir(f"{folder}/out") if entry.is_file())
        synced, plain = (median(seconds) for seconds in zip(*pairs, strict=True))
        ratio = median(one / other for one, other in pairs)
        print(f"| {case} | {num_bytes / 1e6:,.0f} | {synced:.2f} | {plain:.2f} | {ratio:.2f} |", flush=True)


def _measured(case: str, folder: str, how: str) -> float:
    command = [sys.executable, __file__, case, folder, how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _build(case: str, folder: str, how: str) -> None:
    if how == "without":
        layout._sync = lambda _: None  # noqa: SLF001
    config = Config(sources=[STDLIB], out=f"{folder}/out", output=CASES[case], run=RunConfig(cache_bytes=0))
    os.sync()
    started = time.perf_counter()
    gristmill.build(config)
    print(time.perf_counter() - started)


if __name__ == "__main__":
    _build(*sys.argv[1:]) if len(sys.argv) > 1 else main()
