"""Compare builds of the same dataset with and without --device cuda, and write the seconds of each phase.

    python benchmarks/gpu/build.py FOLDER WORK PAGE [--copies 6] [--runs 3]

1. Copy FOLDER several times into WORK. The number of the copy is appended to each file, so that no two copies of a
   file are equal.
2. Build all copies from scratch, alternating between GPU and CPU. The search for near-duplicates and shared spans is
   off, because all copies would match. The files are in the page cache, because they have just been copied.
3. Compare the two datasets byte by byte, except for the manifests.
4. Write PAGE with the median seconds of each phase and the number of bytes that the GPU tokenized.
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
    sources = [copy_corpus(given.folder, given.work / f"copy{number}", number) for number in range(given.copies)]
    runs: dict[str, list[dict[str, Any]]] = {device: [] for device in DEVICES}
    for turn in range(given.runs):
        for device in DEVICES:
            runs[device].append(build(sources, given.work / f"dataset-{device}", device))
            print(f"turn {turn + 1}, {device}: {runs[device][-1]['seconds']['total']:.1f} s", flush=True)
    require_equal(*(given.work / f"dataset-{device}" for device in DEVICES))
    num_bytes = sum(path.stat().st_size for source in sources for path in source.rglob("*") if path.is_file())
    given.page.write_text(page_text(runs, given.copies, num_bytes), encoding="utf-8")


def copy_corpus(folder: Path, target: Path, number: int) -> Path:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes() + b"\n# copy %d\n" % number)
    return target


def build(sources: list[Path], out: Path, device: str) -> dict[str, Any]:
    """Build from scratch and return the field `run` of the manifest."""
    for folder in (out, out.with_name(out.name + ".work")):
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "gristmill", "build", *map(str, sources), "--out", str(out), *OPTIONS]
    subprocess.run([*command, "--device", device], check=True)
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    run: dict[str, Any] = manifest["run"]
    return run


def require_equal(first: Path, second: Path) -> None:
    contents = [
        {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
        for folder in (first, second)
    ]
    if contents[0] != contents[1]:
        raise SystemExit(f"{first} and {second} contain different data, but must be equal.")


def page_text(runs: dict[str, list[dict[str, Any]]], copies: int, num_bytes: int) -> str:
    machine, cpu_run, gpu = this_machine(), runs["cpu"][-1], runs["cuda"][-1]["gpu"]
    seconds = {
        device: {phase: median(run["seconds"].get(phase, 0.0) for run in runs[device]) for phase in PHASES}
        for device in DEVICES
    }
    rows = [[phase, *(f"{seconds[device][phase]:.2f}" for device in DEVICES)] for phase in PHASES]
    kept = f"{cpu_run['source_bytes'] / 1e9:.2f} GB of code (kept from {num_bytes / 1e9:.2f} GB)"
    workers = f"{cpu_run['workers']} workers on {machine.cores} cores"
    busy = f"was busy for {gpu['seconds_busy']:.2f} of the {gpu['seconds_ready']:.2f} s in which it was ready"
    tokenized = f"The GPU tokenized {gpu['bytes'] / 1e9:.2f} GB in {gpu['documents']:,} documents"
    return f"""# A build with and without --device cuda

`python benchmarks/gpu/build.py files work build.md --copies {copies} --runs {len(runs["cpu"])}`

The source is {kept}, in {copies} copies of a corpus. Builds with and without the GPU alternated,
with {workers}. Seconds are medians of {len(runs["cpu"])} builds each. The datasets are equal byte by byte.

{markdown_table(Table("builds", ["seconds", *DEVICES], rows))}

{tokenized} ({gpu["documents_on_cpu"]:,} of these documents on the CPU) and {busy}.
"""


if __name__ == "__main__":
    main()
