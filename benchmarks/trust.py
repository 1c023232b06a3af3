"""What clean data gives, and what parts of it cost: rules, leaks by way of splitting, recall of near-duplicates.

What each step adds to a build is in bench.md.

python benchmarks/trust.py [SOURCE] [--runs 5]     # prints benchmarks/trust.md
"""

import argparse
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from measure import GRISTMILL, STDLIB, cold_build, machine, medians, peak_mb_of, seconds_of

import gristmill
from gristmill.checks.spans import shared_with_train
from gristmill.cleaning.pages import Page
from gristmill.cleaning.rules import Limits, judge
from gristmill.config.settings import RulesConfig
from gristmill.dedup.clusters import GramSets, find_clusters, groups_of
from gristmill.dedup.signatures import GRAM_TOKENS, Ids, band_keys, end_to_end

PLAIN = Path(__file__).with_name("plain.toml")
WAYS = {
    "windows at random, overlap 256": None,
    "whole files": ["--near-duplicates", "keep", "--decontaminate", "off"],
    "whole files, near-duplicates together": ["--near-duplicates", "group", "--decontaminate", "off"],
    "whole files, near-duplicates dropped": ["--decontaminate", "off"],
    "spans cut out of held-out files (default)": [],
    "held-out windows that touch a span dropped": ["--decontaminate", "drop"],
    "spans cut out of train": ["--decontaminate", "train"],
}
JACCARDS = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("# What clean data gives\n")
    print(
        f"`python benchmarks/trust.py --runs {options.runs}`. {machine('gristmill', 'rensa', 'google-re2', 'numpy')}.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        rules(options.source)
        leaks(options.source, folder)
        checking(options.source, folder, options.runs)
        recall()
        many_files(folder)


def rules(source: str) -> None:
    pages = []
    for path in sorted(Path(source).rglob("*.py")):
        text = path.read_bytes()
        if text and "site-packages" not in path.parts:
            pages.append((str(path), text))
    limits = Limits(RulesConfig())
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        for path_text, text in pages:
            judge(Page(path_text, "python", text), limits)
        seconds.append(time.perf_counter() - started)
    megabytes = sum(len(text) for _, text in pages) / 1e6
    print(f"All rules together: {megabytes / min(seconds):.0f} MB/s on one core ({megabytes:.1f} MB, best of 5).")
    print("Secrets: [find_secrets.md](find_secrets.md).")


def leaks(source: str, folder: str) -> None:
    """L50 as `gristmill check` measures it."""
    print("\nHeld-out tokens that lie in a span of 50 or more that train has too (L50), by `gristmill check`:\n")
    print("| how the split is made | validation | test | held-out tokens left |")
    print("| --- | --- | --- | --- |")
    out = f"{folder}/leaks"
    for name, arguments in WAYS.items():
        if arguments is None:
            seconds_of([GRISTMILL, "build", source, "--quiet", "--fresh-splits", "--config", str(PLAIN), "--out", out])
            shares, left = shares_of_shuffled_windows(out), 1.0
        else:
            seconds_of([GRISTMILL, "build", source, "--quiet", "--fresh-splits", "--out", out, *arguments])
            report = gristmill.check(out, workers="auto")
            facts = next(result.facts for result in report.checks if result.name == "leakage")
            shares = [facts[split]["l50"] for split in ("validation", "test")]
            left = share_left(out)
        print(f"| {name} | {shares[0]:.1%} | {shares[1]:.1%} | {left:.0%} |", flush=True)


def share_left(out: str) -> float:
    facts = gristmill.open_dataset(out).manifest.decontamination
    held_out = [split for split in facts.tokens_before if split != "train"]
    before = sum(facts.tokens_before[split] for split in held_out)
    return 1 - sum(facts.tokens_cut[split] for split in held_out) / before


def shares_of_shuffled_windows(out: str) -> list[float]:
    """What most scripts do: rows of all files, shuffled, 85/10/5."""
    dataset = gristmill.open_dataset(out)
    windows = [np.array(row["input_ids"][1:-1], np.uint16) for split in dataset.values() for row in split]
    random.Random(0).shuffle(windows)
    edges = [int(len(windows) * share) for share in (0.85, 0.95)]
    train, validation, test = windows[: edges[0]], windows[edges[0] : edges[1]], windows[edges[1] :]
    return [leaked_share(held_out, train) for held_out in (validation, test)]


def leaked_share(held_out: list[Ids], train: list[Ids]) -> float:
    num_leaked = sum(shared.num_span_tokens for shared in shared_with_train(held_out, train))
    return num_leaked / sum(map(len, held_out))


def checking(source: str, folder: str, runs: int) -> None:
    dataset = Path(folder, "default")
    seconds_of([GRISTMILL, "build", source, "--quiet", "--out", str(dataset)])
    size = sum(path.stat().st_size for path in dataset.glob("*.jsonl")) / 1e6
    seconds = medians({"check": [GRISTMILL, "check", str(dataset), "--quiet"]}, runs)["check"].seconds
    print(f"\n`gristmill check` reads the default's {size:.0f} MB in {seconds:.1f} s: {size / seconds:.0f} MB/s.")


def recall() -> None:
    """Random texts and mutants of them with some tokens changed."""
    rng = random.Random(0)
    texts: list[list[int]] = []
    pairs: list[tuple[int, float]] = []
    for _ in range(6000):
        original = [rng.randrange(50_000) for _ in range(rng.randrange(60, 1000))]
        mutant = list(original)
        for _ in range(max(1, int(len(mutant) * rng.uniform(0.002, 0.09)))):
            mutant[rng.randrange(len(mutant))] = rng.randrange(50_000)
        pairs.append((len(texts), jaccard(original, mutant)))
        texts += [original, mutant]
    arrays = [np.array(ids, np.uint16) for ids in texts]
    grams = GramSets(arrays.__getitem__)
    clusters = find_clusters(
        groups_of(band_keys(*end_to_end(arrays)).T), len(arrays), lambda pair: grams.jaccard(*pair)
    )
    found = {cluster.first for cluster in clusters}
    print("\nNear-duplicates: 6,000 random texts, each with a mutant of it (seed 0).\n")
    print("| Jaccard of the two | pairs | found |")
    print("| --- | --- | --- |")
    for low, high in pairwise(JACCARDS):
        there = [first for first, similarity in pairs if low <= similarity < high]
        share = sum(first in found for first in there) / len(there)
        print(f"| {low:g} to {high:g} | {len(there):,} | {share:.2%} |")


def jaccard(one: list[int], other: list[int]) -> float:
    left, right = (
        {tuple(ids[at : at + GRAM_TOKENS]) for at in range(len(ids) - GRAM_TOKENS + 1)} for ids in (one, other)
    )
    return len(left & right) / len(left | right)


def many_files(folder: str) -> None:
    """Pieces of the standard library's lines, so that names, words and repeats are real ones."""
    print(
        "\nMany files: each some 40 lines drawn from the standard library (seed 0), so the more there are, the more of"
    )
    print("them are near-duplicates: the hard case.\n")
    print("| files | source | seconds | microseconds a file | peak memory, all processes |")
    print("| --- | --- | --- | --- | --- |")
    lines = [
        line for path in sorted(Path(STDLIB).glob("*.py")) for line in path.read_text(errors="replace").splitlines()
    ]
    rng = random.Random(0)
    root = Path(folder, "many")
    num_written = num_bytes = 0
    for count in (10_000, 30_000, 100_000):
        for number in range(num_written, count):
            start = rng.randrange(len(lines) - 60)
            text = "\n".join(lines[start : start + rng.randrange(10, 60)]) + f"\n# {number}\n"
            place = root / f"{number % 100:02d}" / f"{number}.py"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            num_bytes += len(text)
        num_written = count
        command = cold_build(f"{folder}/many-out", str(root))
        seconds = seconds_of(command)
        peak = peak_mb_of(command)
        print(
            f"| {count:,} | {num_bytes / 1e6:.0f} MB | {seconds:.1f} | {seconds / count * 1e6:.0f} | {peak:.0f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
