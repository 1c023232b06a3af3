"""Measure the cost of ordering files by imports in a build with --pack repo, compared with ordering them by path.

python benchmarks/repo_order.py CORPUS [--runs 5]     # prints the contents of benchmarks/repo_order.md

CORPUS contains unpacked source distributions. Each distribution is treated as a repository. This command downloads the
corpus:

python benchmarks/gather.py CORPUS --files 3000 --bytes 1e7
"""

import argparse
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import GRISTMILL, STDLIB, cold_build, machine_text, measure_peak_mb, time_command

from gristmill.core.manifest import Manifest, read_manifest

ORDERS = {
    "path": ["--repo-order", "path"],
    "shuffle": ["--repo-order", "shuffle"],
    "imports": ["--repo-order", "imports"],
}
VOCAB_SIZE = 16_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    packages = sorted(str(path) for path in options.corpus.iterdir() if path.is_dir())
    print("# The order of files in a repository\n")
    print(
        f"`python benchmarks/repo_order.py CORPUS --runs {options.runs}`. {machine_text('gristmill', 'google-re2')}.\n"
    )
    print(
        "Each build uses `--pack repo` and writes to a new folder. The three orders are built alternately, and each "
        f"time is the best of {options.runs} runs."
    )
    print(f"The corpus is the first {len(packages)} packages of benchmarks/corpus.txt. Each package is a repository:")
    print(f"{', '.join(map(_name, packages))}.\n")
    print(
        "`imports` is the number of imports of a file in the same repository and split. An import is broken if the "
        "imported"
    )
    print("file comes after the importing file. This happens only in import cycles.\n")
    print(
        "`CPU s` is the CPU time of all processes. `s in pack` is the wall time of the phase that assigns files to "
        "rows.\n"
    )
    print("| source | files | MB | order | CPU s | relative to `path` | s in pack | peak MB | imports | broken |")
    print("| --- | --: | --: | --- | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = f"{folder}/tokenizer"
        train = [GRISTMILL, "tokenizer", "train", STDLIB, "--out", tokenizer, "--size", str(VOCAB_SIZE)]
        subprocess.run([*train, "--template", "none", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        print_rows(folder, tokenizer, "standard library", [STDLIB], options.runs)
        print_rows(folder, tokenizer, "corpus", packages, options.runs)


def _name(package: str) -> str:
    return Path(package).name


def print_rows(folder: str, tokenizer: str, name: str, sources: Sequence[str], runs: int) -> None:
    build = [*sources, "--tokenizer", tokenizer, "--pack", "repo"]
    commands = {order: cold_build(f"{folder}/{order}", *build, *options) for order, options in ORDERS.items()}
    cpu: dict[str, list[float]] = {order: [] for order in ORDERS}
    pack_seconds: dict[str, list[float]] = {order: [] for order in ORDERS}
    for _ in range(runs):
        for order, command in commands.items():
            before = cpu_seconds()
            time_command(command)
            cpu[order].append(cpu_seconds() - before)
            pack_seconds[order].append(read_manifest(Path(folder, order)).run.seconds["pack"])
    for order, command in commands.items():
        manifest = read_manifest(Path(folder, order))
        best = min(cpu[order])
        cells = [
            *(name, f"{manifest.counts.kept:,}", f"{manifest.run.source_bytes / 1e6:.1f}", f"`{order}`"),
            *(f"{best:.2f}", f"{best / min(cpu['path']):.2f}", f"{min(pack_seconds[order]):.2f}"),
            *(f"{measure_peak_mb(command):.0f}", *import_counts(manifest)),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def cpu_seconds() -> float:
    """Return the CPU seconds of all finished child processes.

    Other load on the machine affects CPU time less than wall time.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_counts(manifest: Manifest) -> tuple[str, str]:
    """Return the numbers of imports and of broken imports, or dashes if files are not ordered by imports."""
    orders = [facts.order for facts in (manifest.packing or {}).values() if facts.order is not None]
    if not orders:
        return "-", "-"
    return f"{sum(one.imports for one in orders):,}", f"{sum(one.broken for one in orders):,}"


if __name__ == "__main__":
    main()
