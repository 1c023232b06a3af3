"""What an order by imports costs in a build with --pack repo, against the order by path.

python benchmarks/repo_order.py CORPUS [--runs 5]     # prints benchmarks/repo_order.md

CORPUS holds unpacked source distributions, each a repository:

python benchmarks/gather.py CORPUS --files 3000 --bytes 1e7
"""

import argparse
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import GRISTMILL, STDLIB, cold_build, machine, peak_mb_of, seconds_of

from gristmill.core.manifest import Manifest, read_manifest

ORDERS = {
    "path": ["--repo-order", "path"],
    "shuffle": ["--repo-order", "shuffle"],
    "imports": ["--repo-order", "imports"],
}
VOCABULARY = 16_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    packages = sorted(str(path) for path in options.corpus.iterdir() if path.is_dir())
    print("# The order of files in a repository\n")
    print(f"`python benchmarks/repo_order.py CORPUS --runs {options.runs}`. {machine('gristmill', 'google-re2')}.\n")
    print(f"Builds with `--pack repo` into a new folder, taking turns, best of {options.runs}. The corpus is the first")
    print(f"{len(packages)} packages of benchmarks/corpus.txt, each a repository: {', '.join(map(_name, packages))}.")
    print(
        "An import counts if it names a file of the same repository and split. Broken is one whose file stands behind"
    )
    print("the one that imports it, as both are in a cycle.\n")
    print(
        "CPU s: what all processes of a build took together. s in `pack`: time on the clock until rows are laid out.\n"
    )
    print("| source | files | MB | order | CPU s | times `path` | s in `pack` | peak MB | imports | broken |")
    print("| --- | --: | --: | --- | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = f"{folder}/tokenizer"
        train = [GRISTMILL, "tokenizer", "train", STDLIB, "--out", tokenizer, "--size", str(VOCABULARY)]
        subprocess.run([*train, "--template", "none", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        measure(folder, tokenizer, "standard library", [STDLIB], options.runs)
        measure(folder, tokenizer, "corpus", packages, options.runs)


def _name(package: str) -> str:
    return Path(package).name


def measure(folder: str, tokenizer: str, name: str, sources: Sequence[str], runs: int) -> None:
    build = [*sources, "--tokenizer", tokenizer, "--pack", "repo"]
    commands = {order: cold_build(f"{folder}/{order}", *build, *more) for order, more in ORDERS.items()}
    seconds: dict[str, list[float]] = {order: [] for order in ORDERS}
    packing: dict[str, list[float]] = {order: [] for order in ORDERS}
    for _ in range(runs):
        for order, command in commands.items():
            before = cpu_seconds()
            seconds_of(command)
            seconds[order].append(cpu_seconds() - before)
            packing[order].append(read_manifest(Path(folder, order)).run.seconds["pack"])
    for order, command in commands.items():
        manifest = read_manifest(Path(folder, order))
        best = min(seconds[order])
        cells = [
            *(name, f"{manifest.counts.kept:,}", f"{manifest.run.source_bytes / 1e6:.1f}", f"`{order}`"),
            *(f"{best:.2f}", f"{best / min(seconds['path']):.2f}", f"{min(packing[order]):.2f}"),
            *(f"{peak_mb_of(command):.0f}", *counts(manifest)),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def cpu_seconds() -> float:
    """Of all processes that have ended: others on the machine change it less than the time on the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def counts(manifest: Manifest) -> tuple[str, str]:
    orders = [facts.order for facts in (manifest.packing or {}).values() if facts.order is not None]
    if not orders:
        return "-", "-"
    return f"{sum(one.imports for one in orders):,}", f"{sum(one.broken for one in orders):,}"


if __name__ == "__main__":
    main()
