"""Measure the cost of fill-in-the-middle: complete builds, and the choice of middles by syntax, lines or characters.

python benchmarks/fim.py [FOLDER] [--runs 5]     # prints the contents of benchmarks/fim.md

FOLDER contains source code and defaults to the standard library.
"""

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from measure import STDLIB, cold_build, machine_text, measure_medians

import gristmill
from gristmill.core.seeded_random import SeededRandom
from gristmill.sources.languages import language_of
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.middles import Middle, Shares, choose_middle, find_nodes

MAX_MEGABYTES = 8
"""Maximum amount of source code per language."""
MAX_FILE_BYTES = 1 << 18
PIECE_BYTES = 8_192
"""Approximate size of a row of 2,048 tokens."""
MAX_MIDDLE_BYTES = PIECE_BYTES // 2
SENTINELS = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>")
MIDDLE_KINDS = {"characters": Shares(0, 0, 1), "lines": Shares(0, 1, 0), "syntax": Shares(1, 0, 0)}


class Source(NamedTuple):
    language: str
    text: bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(STDLIB))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = "" if options.folder == Path(STDLIB) else " FOLDER"
    print("# Fill-in-the-middle\n")
    print(f"`python benchmarks/fim.py{folder} --runs {options.runs}`. {machine_text('gristmill', 'tree-sitter')}.\n")
    print_builds(options.folder, options.runs)
    print("## Middles\n")
    print(
        f"Milliseconds per MB of source on one core, best of {options.runs}, for one middle of up to "
        f"{MAX_MIDDLE_BYTES:,} bytes"
    )
    print(f"per piece of {PIECE_BYTES:,} bytes. `syntax` includes parsing, finding the nodes and choosing a middle.\n")
    print("| language | files | MB | characters | lines | parse | nodes | syntax | middles that are nodes |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for language, sources in sources_by_language(options.folder).items():
        print(language_row(language, sources, options.runs), flush=True)


def print_builds(folder: Path, runs: int) -> None:
    """Compare builds that rewrite all documents of the train split with a build that rewrites none."""
    print(
        "Each build uses --preset fim --window 2048 and writes to a new folder. The cases are built alternately, and "
        f"seconds are medians of {runs}.\nThe tokenizer is that of CodeBERT with the control tokens of StarCoder 2 "
        "added. --fim 1 rewrites all documents of the train split.\n"
    )
    options = {"`--fim 0`": ["--fim", "0"]} | {
        f"`--fim 1 --fim-middles {kind}`": ["--fim", "1", "--fim-middles", kind] for kind in MIDDLE_KINDS
    }
    with tempfile.TemporaryDirectory() as work:
        tokenizer = tokenizer_with_sentinels(Path(work))
        shared = ["--preset", "fim", "--window", "2048", "--tokenizer", tokenizer]
        commands = {name: cold_build(f"{work}/out", str(folder), *shared, *fim) for name, fim in options.items()}
        measured = measure_medians(commands, runs)
    baseline = measured["`--fim 0`"].seconds
    print("| build | seconds | relative to `--fim 0` | peak MB |")
    print("| --- | --: | --: | --: |")
    for name, one in measured.items():
        print(f"| {name} | {one.seconds:.2f} | {one.seconds / baseline:.2f} | {one.peak_mb:.0f} |")
    print()


def tokenizer_with_sentinels(folder: Path) -> str:
    """Write CodeBERT's tokenizer with added fill-in-the-middle sentinels, and return the folder."""
    definition = gristmill.load_tokenizer().definition
    tree = json.loads(definition.json)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": index, "content": name, "special": True, **flags} for index, name in enumerate(SENTINELS, 50_265)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    (folder / "tokenizer_config.json").write_bytes(definition.config)
    return str(folder)


def sources_by_language(folder: Path) -> dict[str, list[Source]]:
    """Return the UTF-8 files of each language, in the order of GRAMMARS."""
    found: dict[str, list[Source]] = {language: [] for language in GRAMMARS}
    sizes: Counter[str] = Counter()
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - {"site-packages"})
        for name in sorted(names):
            language, path = language_of(name, b""), Path(parent, name)
            if language not in found or sizes[language] >= MAX_MEGABYTES * 1_000_000 or not path.is_file():
                continue
            text = path.read_bytes()
            if 0 < len(text) <= MAX_FILE_BYTES and is_utf8(text):
                found[language].append(Source(language, text))
                sizes[language] += len(text)
    return {language: sources for language, sources in found.items() if sources}


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def language_row(language: str, sources: Sequence[Source], runs: int) -> str:
    megabytes = sum(len(source.text) for source in sources) / 1e6
    parsed = [parse(source.text, language) for source in sources]
    measured_steps: dict[str, Callable[[], object]] = {
        "characters": lambda: choose_middles(sources, "characters"),
        "lines": lambda: choose_middles(sources, "lines"),
        "parse": lambda: [parse(source.text, language) for source in sources],
        "nodes": lambda: [find_nodes(one) for one in parsed],
        "syntax": lambda: choose_middles(sources, "syntax"),
    }
    cells = [f"{best_seconds(step, runs) * 1000 / megabytes:.1f}" for step in measured_steps.values()]
    middles = choose_middles(sources, "syntax")
    share = sum(middle.kind not in MIDDLE_KINDS for middle in middles) / max(len(middles), 1)
    return f"| {language} | {len(sources):,} | {megabytes:.1f} | {' | '.join(cells)} | {share:.0%} |"


def choose_middles(sources: Sequence[Source], kind: str) -> list[Middle]:
    """Choose a middle of this kind for each piece of PIECE_BYTES in the sources."""
    rng, shares = SeededRandom(0), MIDDLE_KINDS[kind]
    chosen = []
    for language, text in sources:
        nodes = find_nodes(parse(text, language)) if shares.syntax else None
        for start in range(0, len(text), PIECE_BYTES):
            piece = (start, min(start + PIECE_BYTES, len(text)))
            chosen.append(choose_middle(text, piece, nodes, shares, MAX_MIDDLE_BYTES, rng))
    return [middle for middle in chosen if middle is not None]


def best_seconds(step: Callable[[], object], runs: int) -> float:
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
