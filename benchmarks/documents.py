"""Compare builds with `--rows documents` and builds of windows, and measure the search for the text of control tokens.

python benchmarks/documents.py [--runs 5]     # prints the contents of benchmarks/documents.md
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import STDLIB, cold_build, machine_text, measure_medians

from gristmill.checks.documents import find_control_tokens
from gristmill.cleaning.control_spellings import Spellings, indices_with_spellings, respell
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Respelling
from gristmill.sources.decode import Decoded, decode
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from gristmill.tokenizers.tokenizer import load_tokenizer

BATCH_BYTES = 1 << 20
CASES = {
    "windows of 512, overlap 256": "",
    "windows of 512, overlap 0": "--overlap 0",
    "windows with their text": "--overlap 0 --with-text",
    "documents": "--rows documents",
    "documents, `--control-spellings keep`": "--rows documents --control-spellings keep",
    "windows of 512, overlap 0, `--compress zstd`": "--overlap 0 --compress zstd",
    "documents, `--compress zstd`": "--rows documents --compress zstd",
    "windows of 512, overlap 0, `--format parquet`": "--overlap 0 --format parquet",
    "documents, `--format parquet`": "--rows documents --format parquet",
}
# Texts that are slow to search. Each text is repeated until it fills a megabyte.
SLOW_TEXTS = (
    b"<",
    b"<|",
    b"<|a",
    b"<|endoftext|>",
    b"<|end<|endoftext|>oftext|>",
    "▁<PRE>".encode(),
    b"[INST]",
    b"<|a|",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print("# Rows of documents\n")
    print(f"`python benchmarks/documents.py`. {machine_text('gristmill', 'google-re2', 'pyarrow')}.\n")
    _print_builds(runs)
    _print_spellings(runs)


def _print_builds(runs: int) -> None:
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        out = {name: os.path.join(folder, str(number)) for number, name in enumerate(CASES)}
        measured = measure_medians({name: cold_build(out[name], STDLIB, *CASES[name].split()) for name in CASES}, runs)
        print(
            "Each build is of the standard library, from scratch. Seconds are medians and include the start and "
            "exit of the"
        )
        print(
            f"interpreter. The cases are built alternately, {runs} times each. `tokens` is the number of tokens in all "
            "rows. `peak MB` is the peak memory of all processes.\n"
        )
        print("| kind of rows | rows | tokens | MB | seconds | peak MB |\n| --- | --- | --- | --- | --- | --- |")
        for name, one in measured.items():
            manifest = read_manifest(Path(out[name]))
            num_rows = sum(facts.windows for facts in manifest.splits.values())
            num_tokens = sum(facts.emitted_tokens for facts in manifest.splits.values())
            size = sum(facts.bytes for facts in manifest.files.values() if facts.format is not None) / 1e6
            values = f"{num_rows:,} | {num_tokens:,} | {size:,.1f} | {one.seconds:.2f} | {one.peak_mb:,.0f}"
            print(f"| {name} | {values} |", flush=True)


def _print_spellings(runs: int) -> None:
    names = tuple(sorted({*KNOWN_SPELLINGS, *load_tokenizer("codebert").definition.control_spellings}))
    spellings = Spellings(names, SPELLING_SHAPES)
    texts = [one.text for one in map(_decode_source, sorted(Path(STDLIB).rglob("*.py"))) if one is not None]
    num_bytes = sum(map(len, texts))
    batches = _batches(texts)
    found = Counter(one.spelling for text in texts for one in _respellings(text, spellings))
    seconds = _min_seconds(lambda: [indices_with_spellings(batch, spellings) for batch in batches], runs)
    seconds_in_check = _min_seconds(lambda: [list(find_control_tokens(text, names)) for text in texts], runs)
    print(
        f"\nSearch for the text of control tokens ({len(names)} names and {len(SPELLING_SHAPES)} patterns) in the "
        "Python"
    )
    print(
        f"files of the standard library: {len(texts):,} texts, {num_bytes / 1e6:.1f} MB. CPU time of one core, best of "
        f"{runs}.\n"
    )
    print("| search in | MB/s |\n| --- | --- |")
    print(f"| a build | {num_bytes / 1e6 / seconds:.0f} |")
    print(f"| `gristmill check` | {num_bytes / 1e6 / seconds_in_check:.0f} |\n")
    counts = ", ".join(f"{count} `{name}`" for name, count in found.most_common())
    print(f"Found, including the control tokens of CodeBERT: {counts}.\n")
    print(
        "Seconds to insert spaces into the text of control tokens until no control token is left, for texts that "
        "are slow to search:\n"
    )
    print("| one megabyte of | spaces | seconds |\n| --- | --- | --- |")
    for piece in SLOW_TEXTS:
        text = (piece * (1_000_000 // len(piece) + 1))[:1_000_000]
        seconds = _min_seconds(partial(respell, text, spellings), 1)
        done = respell(text, spellings)
        print(f"| `{piece.decode()}` | {0 if done is None else len(done.respellings):,} | {seconds:.2f} |")


def _respellings(text: bytes, spellings: Spellings) -> tuple[Respelling, ...]:
    done = respell(text, spellings)
    return () if done is None else done.respellings


def _decode_source(path: Path) -> Decoded | None:
    if "site-packages" in path.parts:
        return None
    found = decode(path.read_bytes())
    return found if isinstance(found, Decoded) else None


def _batches(texts: list[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = [[]]
    for text in texts:
        if sum(map(len, batches[-1])) > BATCH_BYTES:
            batches.append([])
        batches[-1].append(text)
    return batches


def _min_seconds(work: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    main()
