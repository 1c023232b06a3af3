"""Compare one process, several worker processes and several threads, for different amounts of source code.

python benchmarks/workers.py [--runs 5]     # prints the contents of benchmarks/workers.md
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import STDLIB, cold_build, machine_text, measure_medians

SIZES_MB = (0.25, 1, 2, 4, 8, 16, 32)
TOKENIZE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import gigatoken, gristmill
method, folder = sys.argv[1:]
definition = gristmill.load_tokenizer().definition
texts = [path.read_bytes() for path in sorted(Path(folder).rglob("*.py"))]
tokenizer = gigatoken.Tokenizer.from_json(definition.plain_json())
started = time.perf_counter()
if method == "one":
    for text in texts: tokenizer.encode(text)
elif method == "gigatoken":
    tokenizer.encode_batch(texts)
else:
    with ThreadPoolExecutor(2) as pool: list(pool.map(tokenizer.encode, texts))
print(sum(map(len, texts)) / 1e6 / (time.perf_counter() - started))
"""
"""Script that tokenizes texts in memory with one thread, gigatoken's threads or Python threads, and prints MB/s."""


def copy_library(folder: Path, megabytes: float) -> Path:
    """Copy files of the standard library until they have this size, in an order that mixes large and small files."""
    root = folder / f"{megabytes:g}"
    size = 0
    files = sorted(Path(STDLIB).rglob("*.py"), key=lambda path: (path.name[-4:], path.name))
    for file in files:
        if "site-packages" in file.parts or size >= megabytes * 1e6:
            continue
        target = root / file.relative_to(STDLIB)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        size += file.stat().st_size
    return root


def tokenizing_rate(method: str, folder: Path) -> float:
    """Tokenize all files in a new process and return the rate in MB/s."""
    import subprocess  # noqa: PLC0415

    process = subprocess.run(
        [sys.executable, "-c", TOKENIZE, method, str(folder)], capture_output=True, text=True, check=True
    )
    return float(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    workers = sorted({1, 2, os.cpu_count() or 1})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("# Ways to use several cores\n")
        print(f"`python benchmarks/workers.py --runs {options.runs}`. {machine_text('gristmill', 'gigatoken')}.\n")
        print("Median seconds of complete builds of a part of the standard library:\n")
        print(f"| MB of source | {' | '.join(f'`--workers {count}`' for count in workers)} | `--workers auto` |")
        print("| --- |" + " --- |" * (len(workers) + 1))
        for megabytes in SIZES_MB:
            source = str(copy_library(folder, megabytes))
            builds = {
                str(count): cold_build(f"{name}/out", source, "--workers", str(count)) for count in (*workers, "auto")
            }
            measured = measure_medians(builds, options.runs)
            print(f"| {megabytes:g} | {' | '.join(f'{one.seconds:.2f}' for one in measured.values())} |")
        source_path = copy_library(folder, SIZES_MB[-1])
        print("\nTokenizing only, from bytes in memory, best of three:\n")
        print("| method | MB/s |")
        print("| --- | --- |")
        methods = {
            "one": "`encode` per file, one thread (as in a worker)",
            "gigatoken": "`encode_batch` with gigatoken's threads, including the import of the awkward library",
            "python": "`encode` per file, two Python threads",
        }
        for method, text in methods.items():
            print(f"| {text} | {max(tokenizing_rate(method, source_path) for _ in range(3)):.0f} |")


if __name__ == "__main__":
    main()
