"""Measure cleaning and splitting: speed of the rules, leakage by split method, and recall of near-duplicates.

For the cost of each step in a build, see bench.md.

python benchmarks/trust.py [SOURCE] [--runs 5]     # prints the contents of benchmarks/trust.md
"""

import argparse
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from measure import GRISTMILL, STDLIB, cold_build, machine_text, measure_medians, measure_peak_mb, time_command

import gristmill
from gristmill.checks.spans import measure_overlap
from gristmill.cleaning.pages import Page
from gristmill.cleaning.rules import Limits, apply_rules
from gristmill.config.settings import RulesConfig
from gristmill.dedup.clusters import GramSets, candidate_groups, find_clusters
from gristmill.dedup.signatures import GRAM_TOKENS, Ids, band_keys, concatenate_ids

PLAIN = Path(__file__).with_name("plain.toml")
SPLIT_METHODS = {
    "random split of windows, overlap 256": None,
    "complete files": ["--near-duplicates", "keep", "--decontaminate", "off"],
    "complete files, near-duplicates grouped": ["--near-duplicates", "group", "--decontaminate", "off"],
    "complete files, near-duplicates dropped": ["--decontaminate", "off"],
    "spans cut out of held-out files (default)": [],
    "held-out windows that touch a span dropped": ["--decontaminate", "drop"],
    "spans cut out of train": ["--decontaminate", "train"],
}
SIMILARITIES = (0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print("# Cleaning and splitting\n")
    print(
        f"`python benchmarks/trust.py --runs {options.runs}`. "
        f"{machine_text('gristmill', 'rensa', 'google-re2', 'numpy')}.\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        print_rule_speed(options.source)
        print_leakage(options.source, folder)
        print_check_speed(options.source, folder, options.runs)
        print_recall()
        print_many_files(folder)


def print_rule_speed(source: str) -> None:
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
            apply_rules(Page(path_text, "python", text), limits)
        seconds.append(time.perf_counter() - started)
    megabytes = sum(len(text) for _, text in pages) / 1e6
    print(f"All rules: {megabytes / min(seconds):.0f} MB/s on one core ({megabytes:.1f} MB, best of 5).")
    print("For secrets, see [find_secrets.md](find_secrets.md).")


def print_leakage(source: str, folder: str) -> None:
    """Print L50 for each split method. The text above the table defines L50."""
    print(
        "\nL50, the share of held-out tokens in spans of 50 or more tokens that also occur in train, from `gristmill "
        "check`:\n"
    )
    print("| split method | validation | test | held-out tokens kept |")
    print("| --- | --- | --- | --- |")
    out = f"{folder}/leaks"
    for name, arguments in SPLIT_METHODS.items():
        if arguments is None:
            time_command(
                [GRISTMILL, "build", source, "--quiet", "--fresh-splits", "--config", str(PLAIN), "--out", out]
            )
            shares, kept = leakage_of_shuffled_windows(out), 1.0
        else:
            time_command([GRISTMILL, "build", source, "--quiet", "--fresh-splits", "--out", out, *arguments])
            report = gristmill.check(out, workers="auto")
            facts = next(result.facts for result in report.checks if result.name == "leakage")
            shares = [facts[split]["l50"] for split in ("validation", "test")]
            kept = kept_share(out)
        print(f"| {name} | {shares[0]:.1%} | {shares[1]:.1%} | {kept:.0%} |", flush=True)


def kept_share(out: str) -> float:
    facts = gristmill.open_dataset(out).manifest.decontamination
    held_out = [split for split in facts.tokens_before if split != "train"]
    before = sum(facts.tokens_before[split] for split in held_out)
    return 1 - sum(facts.tokens_cut[split] for split in held_out) / before


def leakage_of_shuffled_windows(out: str) -> list[float]:
    """Return L50 for the split that most scripts use: the rows of all files are shuffled and split 85/10/5."""
    dataset = gristmill.open_dataset(out)
    windows = [np.array(row["input_ids"][1:-1], np.uint16) for split in dataset.values() for row in split]
    random.Random(0).shuffle(windows)
    edges = [int(len(windows) * share) for share in (0.85, 0.95)]
    train, validation, test = windows[: edges[0]], windows[edges[0] : edges[1]], windows[edges[1] :]
    return [leaked_share(held_out, train) for held_out in (validation, test)]


def leaked_share(held_out: list[Ids], train: list[Ids]) -> float:
    num_leaked = sum(shared.num_span_tokens for shared in measure_overlap(held_out, train))
    return num_leaked / sum(map(len, held_out))


def print_check_speed(source: str, folder: str, runs: int) -> None:
    dataset = Path(folder, "default")
    time_command([GRISTMILL, "build", source, "--quiet", "--out", str(dataset)])
    size = sum(path.stat().st_size for path in dataset.glob("*.jsonl")) / 1e6
    seconds = measure_medians({"check": [GRISTMILL, "check", str(dataset), "--quiet"]}, runs)["check"].seconds
    print(
        f"\n`gristmill check` reads the {size:.0f} MB of the default build in {seconds:.1f} s: {size / seconds:.0f} "
        "MB/s."
    )


def print_recall() -> None:
    """Print the share of near-duplicates that are found, by similarity, for random texts and changed copies of them."""
    rng = random.Random(0)
    texts: list[list[int]] = []
    pairs: list[tuple[int, float]] = []
    for _ in range(6000):
        original = [rng.randrange(50_000) for _ in range(rng.randrange(60, 1000))]
        changed = list(original)
        for _ in range(max(1, int(len(changed) * rng.uniform(0.002, 0.09)))):
            changed[rng.randrange(len(changed))] = rng.randrange(50_000)
        pairs.append((len(texts), jaccard(original, changed)))
        texts += [original, changed]
    arrays = [np.array(ids, np.uint16) for ids in texts]
    grams = GramSets(arrays.__getitem__)
    clusters = find_clusters(
        candidate_groups(band_keys(*concatenate_ids(arrays)).T), len(arrays), lambda pair: grams.jaccard(*pair)
    )
    found = {cluster.first for cluster in clusters}
    print("\nRecall of near-duplicates, for 6,000 random texts, each with a changed copy (seed 0):\n")
    print("| Jaccard similarity | pairs | found |")
    print("| --- | --- | --- |")
    for low, high in pairwise(SIMILARITIES):
        in_range = [first for first, similarity in pairs if low <= similarity < high]
        share = sum(first in found for first in in_range) / len(in_range)
        print(f"| {low:g} to {high:g} | {len(in_range):,} | {share:.2%} |")


def jaccard(one: list[int], other: list[int]) -> float:
    grams, other_grams = (
        {tuple(ids[start : start + GRAM_TOKENS]) for start in range(len(ids) - GRAM_TOKENS + 1)} for ids in (one, other)
    )
    return len(grams & other_grams) / len(grams | other_grams)


def print_many_files(folder: str) -> None:
    """Measure builds of many small files. The lines are from the standard library, so they repeat as in real code."""
    print(
        "\nBuilds of many files of about 40 lines, drawn from the standard library (seed 0). This is a hard case: "
        "the more files,"
    )
    print("the more near-duplicates they contain.\n")
    print("| files | source | seconds | microseconds per file | peak memory, all processes |")
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
            path = root / f"{number % 100:02d}" / f"{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            num_bytes += len(text)
        num_written = count
        command = cold_build(f"{folder}/many-out", str(root))
        seconds = time_command(command)
        peak = measure_peak_mb(command)
        print(
            f"| {count:,} | {num_bytes / 1e6:.0f} MB | {seconds:.1f} | {seconds / count * 1e6:.0f} | {peak:.0f} MB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
