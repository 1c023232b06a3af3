"""Which way of using the cores is fastest at which size: this process, local processes, or gigatoken's own threads?

python benchmarks/workers.py [--runs 5]     # prints benchmarks/workers.md
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from measure import STDLIB, cold_build, machine, medians

SIZES_MB = (0.25, 1, 2, 4, 8, 16, 32)
# Tokenizing alone, from bytes in memory: one thread, gigatoken's threads, and Python threads.
TOKENIZE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import gigatoken, gristmill
how, folder = sys.argv[1:]
definition = gristmill.load_tokenizer().definition
texts = [path.read_bytes() for path in sorted(Path(folder).rglob("*.py"))]
tokenizer = gigatoken.Tokenizer.from_json(definition.plain_json())
started = time.perf_counter()
if how == "one":
    for text in texts: tokenizer.encode(text)
elif how == "gigatoken":
    tokenizer.encode_batch(texts)
else:
    with ThreadPoolExecutor(2) as pool: list(pool.map(tokenizer.encode, texts))
print(sum(map(len, texts)) / 1e6 / (time.perf_counter() - started))
"""


def corpus(folder: Path, megabytes: float) -> Path:
    """The first so many MB of the standard library's files, in an order that mixes large and small."""
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


def tokenizing_rate(how: str, folder: Path) -> float:
    import subprocess  # noqa: PLC0415

    answer = subprocess.run(
        [sys.executable, "-c", TOKENIZE, how, str(folder)], capture_output=True, text=True, check=True
    )
    return float(answer.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    workers = sorted({1, 2, os.cpu_count() or 1})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("# Which way of using the cores\n")
        print(f"`python benchmarks/workers.py --runs {options.runs}`. {machine('gristmill', 'gigatoken')}.\n")
        print("Whole builds of a part of the standard library, seconds, medians:\n")
        print(f"| MB of source | {' | '.join(f'{count} worker' for count in workers)} | auto |")
        print("| --- |" + " --- |" * (len(workers) + 1))
        for megabytes in SIZES_MB:
            source = str(corpus(folder, megabytes))
            builds = {
                str(count): cold_build(f"{name}/out", source, "--workers", str(count)) for count in (*workers, "auto")
            }
            measured = medians(builds, options.runs)
            print(f"| {megabytes:g} | {' | '.join(f'{one.seconds:.2f}' for one in measured.values())} |")
        source_path = corpus(folder, SIZES_MB[-1])
        print("\nTokenizing alone, from bytes in memory, MB/s, best of three:\n")
        print("| how | MB/s |")
        print("| --- | --- |")
        ways = {
            "one": "`encode` per file, one thread (what a worker does)",
            "gigatoken": "`encode_batch`, gigatoken's own threads, with the import of awkward that it needs",
            "python": "`encode` per file from two Python threads",
        }
        for how, text in ways.items():
            print(f"| {text} | {max(tokenizing_rate(how, source_path) for _ in range(3)):.0f} |")


if __name__ == "__main__":
    main()
