"""Measure the cost of variants and weights: the speed of each kind of variant by language, and complete builds.

python benchmarks/variants.py [--corpus DIR] [--runs 5]     # prints the contents of benchmarks/variants.md

Python is measured on the standard library. The other languages are measured on DIR, from benchmarks/gather.py.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measure import STDLIB, cold_build, machine_text, measure_medians

import gristmill
from gristmill.core.seeded_random import SeededRandom
from gristmill.sources.languages import language_of
from gristmill.variants.code_layout import vary_layout
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import GRAMMARS, Parsed, parse
from gristmill.variants.noise import Noise
from gristmill.variants.rename import rename

MAX_MEGABYTES = 8
"""Maximum amount of source code per language."""
MAX_FILE_BYTES = 1 << 18
GRAMMAR_VARIANTS: dict[str, Callable[[Parsed, SeededRandom], bytes | None]] = {
    "rename": rename,
    "comments": vary_comments,
    "format": vary_layout,
}


class Timed(NamedTuple):
    seconds: float
    num_made: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("# Variants and weights\n")
    command = f"python benchmarks/variants.py --corpus DIR --runs {options.runs}"
    print(f"`{command}`. {machine_text('gristmill', 'tree-sitter')}.\n")
    print_grammar_speeds(options.corpus)
    print_noise_speed()
    print_builds(options.runs)


def print_grammar_speeds(corpus: Path | None) -> None:
    print(
        "MB of source code per second on one core, best of 3, including parsing. `parse` is parsing only. In "
        "parentheses is"
    )
    print("the share of files for which the variant exists. A build also parses each variant to check it, except for")
    print("renames, because they cannot change the syntax tree. The speeds do not include this check.\n")
    print("| language | files | MB | parse | rename | comments | format |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for language in GRAMMARS:
        texts = read_texts(Path(STDLIB) if language == "python" else corpus, language)
        if not texts:
            continue
        megabytes = sum(map(len, texts)) / 1e6
        parsing = min(_run_seconds(partial(_parse_all, texts, language)))
        parsed = _parse_all(texts, language)
        cells = [f"{megabytes / parsing:.1f}"]
        for vary in GRAMMAR_VARIANTS.values():
            timed = time_variants(parsed, vary)
            cells.append(f"{megabytes / (parsing + timed.seconds):.1f} ({timed.num_made / len(texts):.0%})")
        print(f"| {language} | {len(texts):,} | {megabytes:.1f} | {' | '.join(cells)} |", flush=True)


def _parse_all(texts: Sequence[bytes], language: str) -> list[Parsed]:
    return [parse(text, language) for text in texts]


def read_texts(folder: Path | None, language: str) -> list[bytes]:
    texts: list[bytes] = []
    size = 0
    for parent, folders, names in os.walk(folder or ""):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if "site-packages" in path.parts or language_of(name, b"") != language or not path.is_file():
                continue
            text = path.read_bytes()
            if 0 < len(text) <= MAX_FILE_BYTES and size < MAX_MEGABYTES * 1_000_000:
                texts.append(text)
                size += len(text)
    return texts


def time_variants(parsed: Sequence[Parsed], vary: Callable[[Parsed, SeededRandom], bytes | None]) -> Timed:
    made: list[bytes | None] = []

    def once() -> None:
        made[:] = [vary(one, SeededRandom(number)) for number, one in enumerate(parsed)]

    return Timed(min(_run_seconds(once)), sum(one is not None for one in made))


def _run_seconds(function: Callable[[], Any]) -> list[float]:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return seconds


def print_noise_speed() -> None:
    """Print the speed of the variant `noise`, which needs no grammar."""
    tokenizer = gristmill.load_tokenizer()
    texts = read_texts(Path(STDLIB), "python")
    megabytes = sum(map(len, texts)) / 1e6
    ids = [tokenizer.encode(text).ids for text in texts]
    noise = Noise(50_264, 0.15, 3.0, 0.05)

    def add_noise() -> None:
        for number, document in enumerate(ids):
            for start in range(0, len(document), 254):
                noise.corrupt(document[start : start + 510], SeededRandom(number))

    print(f"\n`noise`, windows of 512 with overlap 256: {megabytes / min(_run_seconds(add_noise)):.1f} MB/s.")
    print()


def print_builds(runs: int) -> None:
    print(
        f"Builds of the standard library into a new folder. The cases alternate, and seconds are medians of {runs} "
        "runs.\n"
    )
    cases = {
        "natural": [],
        "`--max-windows 20000`": ["--max-windows", "20000"],
        "`--weights code`": ["--weights", "code"],
        "`--weights code --weights-only`": ["--weights", "code", "--weights-only"],
        "`--variants rename`": ["--variants", "rename"],
        "`--variants rename,comments,format,noise`": ["--variants", "rename,comments,format,noise"],
    }
    with tempfile.TemporaryDirectory() as folder:
        commands = {name: cold_build(f"{folder}/out", STDLIB, *options) for name, options in cases.items()}
        measured = measure_medians(commands, runs)
    baseline = measured["natural"].seconds
    print("| build | seconds | relative to natural | peak MB |")
    print("| --- | --: | --: | --: |")
    for name, one in measured.items():
        print(f"| {name} | {one.seconds:.2f} | {one.seconds / baseline:.2f} | {one.peak_mb:.0f} |")


if __name__ == "__main__":
    main()
