"""Cost of fill in the middle: of choosing middles by syntax, by lines and by characters, and of whole builds.

python benchmarks/fim.py [FOLDER] [--runs 5]     # FOLDER: source code; default: the standard library
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

from measure import STDLIB, cold_build, machine, medians

import gristmill
from gristmill.core.seeded_random import Dice
from gristmill.sources.languages import language_of
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.middles import Middle, Shares, choose_middle, find_nodes

MEGABYTES = 8
"""Of each language, at most."""
LARGEST_FILE = 1 << 18
PIECE_BYTES = 8_192
"""A row of 2,048 tokens has about as many."""
MAX_BYTES = PIECE_BYTES // 2
ADDED = ("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>")
WAYS = {"characters": Shares(0, 0, 1), "lines": Shares(0, 1, 0), "syntax": Shares(1, 0, 0)}


class Source(NamedTuple):
    language: str
    text: bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(STDLIB))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = "" if options.folder == Path(STDLIB) else " FOLDER"
    print("# Fill in the middle\n")
    print(f"`python benchmarks/fim.py{folder} --runs {options.runs}`. {machine('gristmill', 'tree-sitter')}.\n")
    builds(options.folder, options.runs)
    print("## Middles\n")
    print(
        f"Milliseconds per MB of source on one core, best of {options.runs}; one middle of at most {MAX_BYTES:,} bytes"
    )
    print(f"per piece of {PIECE_BYTES:,} bytes. `syntax` is all of it: parsing, finding the nodes and choosing.\n")
    print("| language | files | MB | characters | lines | parse | nodes | syntax | middles that are nodes |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for language, sources in sources_by_language(options.folder).items():
        print(row_of(language, sources, options.runs), flush=True)


def builds(folder: Path, runs: int) -> None:
    """Build with every document of train rewritten, against none, all in packed rows of 2,048 ids."""
    print(
        f"Builds into a new folder with --preset fim --window 2048, taking turns, medians of {runs}. CodeBERT's\n"
        "vocabulary has the tokens of StarCoder 2 beside its own. --fim 1 rewrites all documents of train.\n"
    )
    ways = {"`--fim 0`": ["--fim", "0"]} | {
        f"`--fim 1 --fim-middles {way}`": ["--fim", "1", "--fim-middles", way] for way in WAYS
    }
    with tempfile.TemporaryDirectory() as place:
        tokenizer = tokenizer_with_sentinels(Path(place))
        more = ["--preset", "fim", "--window", "2048", "--tokenizer", tokenizer]
        commands = {name: cold_build(f"{place}/out", str(folder), *more, *way) for name, way in ways.items()}
        measured = medians(commands, runs)
    first = measured["`--fim 0`"].seconds
    print("| build | seconds | times the plain one | peak MB |")
    print("| --- | --: | --: | --: |")
    for name, one in measured.items():
        print(f"| {name} | {one.seconds:.2f} | {one.seconds / first:.2f} | {one.peak_mb:.0f} |")
    print()


def tokenizer_with_sentinels(folder: Path) -> str:
    definition = gristmill.load_tokenizer().definition
    tree = json.loads(definition.json)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": index, "content": name, "special": True, **flags} for index, name in enumerate(ADDED, 50_265)
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    (folder / "tokenizer_config.json").write_bytes(definition.config)
    return str(folder)


def sources_by_language(folder: Path) -> dict[str, list[Source]]:
    """Files that are UTF-8, in the order of GRAMMARS."""
    found: dict[str, list[Source]] = {language: [] for language in GRAMMARS}
    sizes: Counter[str] = Counter()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted({*folders} - {"site-packages"})
        for name in sorted(names):
            language, path = language_of(name, b""), Path(place, name)
            if language not in found or sizes[language] >= MEGABYTES * 1_000_000 or not path.is_file():
                continue
            text = path.read_bytes()
            if 0 < len(text) <= LARGEST_FILE and is_utf8(text):
                found[language].append(Source(language, text))
                sizes[language] += len(text)
    return {language: sources for language, sources in found.items() if sources}


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def row_of(language: str, sources: Sequence[Source], runs: int) -> str:
    megabytes = sum(len(source.text) for source in sources) / 1e6
    parsed = [parse(source.text, language) for source in sources]
    steps: dict[str, Callable[[], object]] = {
        "characters": lambda: middles_of(sources, "characters"),
        "lines": lambda: middles_of(sources, "lines"),
        "parse": lambda: [parse(source.text, language) for source in sources],
        "nodes": lambda: [find_nodes(one) for one in parsed],
        "syntax": lambda: middles_of(sources, "syntax"),
    }
    cells = [f"{best_seconds(step, runs) * 1000 / megabytes:.1f}" for step in steps.values()]
    middles = middles_of(sources, "syntax")
    share = sum(middle.kind not in WAYS for middle in middles) / max(len(middles), 1)
    return f"| {language} | {len(sources):,} | {megabytes:.1f} | {' | '.join(cells)} | {share:.0%} |"


def middles_of(sources: Sequence[Source], way: str) -> list[Middle]:
    dice, shares = Dice(0), WAYS[way]
    chosen = []
    for language, text in sources:
        nodes = find_nodes(parse(text, language)) if shares.syntax else None
        for start in range(0, len(text), PIECE_BYTES):
            piece = (start, min(start + PIECE_BYTES, len(text)))
            chosen.append(choose_middle(text, piece, nodes, shares, MAX_BYTES, dice))
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
