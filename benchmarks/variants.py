"""What variants and weights cost: MB/s on one core by language and kind, and builds side by side.

python benchmarks/variants.py [--corpus DIR] [--runs 5]     # prints benchmarks/variants.md

Python is measured on the standard library; the other languages on the files that benchmarks/gather.py leaves in DIR.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measure import STDLIB, cold_build, machine, medians

import gristmill
from gristmill.core.seeded_random import Dice
from gristmill.sources.languages import language_of
from gristmill.variants.code_layout import lay_out_again
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import GRAMMARS, Parsed, parse
from gristmill.variants.noise import Noise
from gristmill.variants.rename import rename

MEGABYTES = 8
"""Of each language, at most."""
LARGEST_FILE = 1 << 18
BY_GRAMMAR: dict[str, Callable[[Parsed, Dice], bytes | None]] = {
    "rename": rename,
    "comments": vary_comments,
    "format": lay_out_again,
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
    print(f"`{command}`. {machine('gristmill', 'tree-sitter')}.\n")
    by_grammar(options.corpus)
    by_tokens()
    builds(options.runs)


def by_grammar(corpus: Path | None) -> None:
    print(
        "MB of source a second on one core, best of 3, parsing included; `parse` is tree-sitter alone. In brackets is"
    )
    print(
        "the share of files that have such a variant. Before one counts it is parsed once more, which is not in these"
    )
    print("figures; but for a rename, whose tree cannot be another.\n")
    print("| language | files | MB | parse | rename | comments | format |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for language in GRAMMARS:
        texts = texts_of(Path(STDLIB) if language == "python" else corpus, language)
        if not texts:
            continue
        megabytes = sum(map(len, texts)) / 1e6
        parsing = min(_seconds(partial(_parsed, texts, language)))
        parsed = _parsed(texts, language)
        cells = [f"{megabytes / parsing:.1f}"]
        for vary in BY_GRAMMAR.values():
            timed = varied(parsed, vary)
            cells.append(f"{megabytes / (parsing + timed.seconds):.1f} ({timed.num_made / len(texts):.0%})")
        print(f"| {language} | {len(texts):,} | {megabytes:.1f} | {' | '.join(cells)} |", flush=True)


def _parsed(texts: Sequence[bytes], language: str) -> list[Parsed]:
    return [parse(text, language) for text in texts]


def texts_of(folder: Path | None, language: str) -> list[bytes]:
    texts: list[bytes] = []
    size = 0
    for place, folders, names in os.walk(folder or ""):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if "site-packages" in path.parts or language_of(name, b"") != language or not path.is_file():
                continue
            text = path.read_bytes()
            if 0 < len(text) <= LARGEST_FILE and size < MEGABYTES * 1_000_000:
                texts.append(text)
                size += len(text)
    return texts


def varied(parsed: Sequence[Parsed], vary: Callable[[Parsed, Dice], bytes | None]) -> Timed:
    made: list[bytes | None] = []

    def once() -> None:
        made[:] = [vary(one, Dice(number)) for number, one in enumerate(parsed)]

    return Timed(min(_seconds(once)), sum(one is not None for one in made))


def _seconds(function: Callable[[], Any]) -> list[float]:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return seconds


def by_tokens() -> None:
    """Noise needs no grammar."""
    tokenizer = gristmill.load_tokenizer()
    texts = texts_of(Path(STDLIB), "python")
    megabytes = sum(map(len, texts)) / 1e6
    ids = [tokenizer.encode(text).ids for text in texts]
    noise = Noise(50_264, 0.15, 3.0, 0.05)

    def add_noise() -> None:
        for number, own in enumerate(ids):
            for start in range(0, len(own), 254):
                noise.corrupt(own[start : start + 510], Dice(number))

    print(f"\n`noise`, windows of 512 with overlap 256: {megabytes / min(_seconds(add_noise)):.1f} MB/s.")
    print()


def builds(runs: int) -> None:
    print(f"Builds of the standard library into a new folder, taking turns, medians of {runs}:\n")
    ways = {
        "natural": [],
        "`--max-windows 20000`": ["--max-windows", "20000"],
        "`--weights code`": ["--weights", "code"],
        "`--weights code --weights-only`": ["--weights", "code", "--weights-only"],
        "`--variants rename`": ["--variants", "rename"],
        "`--variants rename,comments,format,noise`": ["--variants", "rename,comments,format,noise"],
    }
    with tempfile.TemporaryDirectory() as folder:
        commands = {name: cold_build(f"{folder}/out", STDLIB, *more) for name, more in ways.items()}
        measured = medians(commands, runs)
    first = measured["natural"].seconds
    print("| build | seconds | times the natural one | peak MB |")
    print("| --- | --: | --: | --: |")
    for name, one in measured.items():
        print(f"| {name} | {one.seconds:.2f} | {one.seconds / first:.2f} | {one.peak_mb:.0f} |")


if __name__ == "__main__":
    main()
