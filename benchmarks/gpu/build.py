"""Builds the same dataset with and without --device cuda, in turn, and writes what each took.

    python benchmarks/gpu/build.py FOLDER WORK PAGE [--copies 6] [--runs 3]

1. Copies FOLDER so often into WORK, each file with the copy's number in a last line, so that none is a duplicate.
2. `gristmill build` over all copies, without looking for near-duplicates and shared spans (all are both): with the GPU,
   without, with, … Each begins with nothing. The files are in the page cache after the first copy was made.
3. Compares the two datasets byte by byte, but for the manifest's account of the run.
4. Writes PAGE: seconds of each phase (medians), and what the card says it did.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from gristmill.lab.bench.bench import this_machine
from gristmill.views.table import Table, markdown_table

PHASES = ("load", "scan", "prepare", "decide", "compare", "shape", "finish", "total")
DEVICES = ("cpu", "cuda")
OPTIONS = ("--near-duplicates", "keep", "--decontaminate", "off", "--quiet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--copies", type=int, default=6)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    sources = [copied(given.folder, given.work / f"copy{number}", number) for number in range(given.copies)]
    runs: dict[str, list[dict[str, Any]]] = {device: [] for device in DEVICES}
    for turn in range(given.runs):
        for device in DEVICES:
            runs[device].append(built(sources, given.work / f"dataset-{device}", device))
            print(f"turn {turn + 1}, {device}: {runs[device][-1]['seconds']['total']:.1f} s", flush=True)
    refuse_different(*(given.work / f"dataset-{device}" for device in DEVICES))
    num_bytes = sum(path.stat().st_size for source in sources for path in source.rglob("*") if path.is_file())
    given.page.write_text(page(runs, given.copies, num_bytes), encoding="utf-8")


def copied(folder: Path, target: Path, number: int) -> Path:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            place = target / path.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes() + b"\n# copy %d\n" % number)
    return target


def built(sources: list[Path], out: Path, device: str) -> dict[str, Any]:
    """-> the manifest's account of the run."""
    for folder in (out, out.with_name(out.name + ".work")):
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "build", *map(str, sources), "--out", str(out), *OPTIONS]
    subprocess.run([*command, "--device", device], check=True)
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    run: dict[str, Any] = manifest["run"]
    return run


def refuse_different(first: Path, second: Path) -> None:
    contents = [
        {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
        for folder in (first, second)
    ]
    if contents[0] != contents[1]:
        raise SystemExit(f"{first} and {second} differ")


def page(runs: dict[str, list[dict[str, Any]]], copies: int, num_bytes: int) -> str:
    machine, one, gpu = this_machine(), runs["cpu"][-1], runs["cuda"][-1]["gpu"]
    seconds = {
        device: {phase: median(run["seconds"].get(phase, 0.0) for run in runs[device]) for phase in PHASES}
        for device in DEVICES
    }
    rows = [[phase, *(f"{seconds[device][phase]:.2f}" for device in DEVICES)] for phase in PHASES]
    kept = f"{one['source_bytes'] / 1e9:.2f} GB of code (kept of {num_bytes / 1e9:.2f} GB)"
    workers = f"{one['workers']} workers on {machine.cores} cores"
    busy = f"was busy for {gpu['seconds_busy']:.2f} of {gpu['seconds_ready']:.2f} s"
    card = f"The card tokenized {gpu['bytes'] / 1e9:.2f} GB in {gpu['documents']:,} documents"
    return f"""# A build with and without --device cuda

`python benchmarks/gpu/build.py files work build.md --copies {copies} --runs {len(runs["cpu"])}`

{kept} in {copies} copies of a corpus, {workers}; medians of {len(runs["cpu"])} builds each, in turn. The
datasets are equal byte by byte.

{markdown_table(Table("builds", ["seconds", *DEVICES], rows))}

{card} ({gpu["documents_on_cpu"]:,} of them on the CPU) and {busy}.
"""


if __name__ == "__main__":
    main()
