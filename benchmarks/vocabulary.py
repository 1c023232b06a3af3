"""Compare trained vocabularies of several sizes and patterns with CodeBERT's: bytes per token, windows and seconds.

python benchmarks/vocabulary.py > benchmarks/vocabulary.md
"""

import argparse
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from measure import GRISTMILL, STDLIB, machine_text, measure_peak_mb, time_command

import gristmill
from gristmill import Config
from gristmill.core.records import Split
from gristmill.lab.vocabulary.vocabulary_text import TokenizerCounts, TokenizerTable

SIZES = (8_000, 16_000, 32_000, 50_265)
PATTERNS = ("cl100k", "qwen2", "gpt2")
DEFAULT_PATTERN, DEFAULT_SIZE = "cl100k", 32_000
PACKAGES = ("numpy", "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    source = parser.parse_args().source
    packages = [os.path.join(sysconfig.get_path("purelib"), name) for name in PACKAGES]
    with tempfile.TemporaryDirectory() as folder:
        variants = [(size, DEFAULT_PATTERN) for size in SIZES]
        variants += [(DEFAULT_SIZE, pattern) for pattern in PATTERNS if pattern != DEFAULT_PATTERN]
        seconds = {}
        for size, pattern in variants:
            out = os.path.join(folder, f"{pattern}-{size}")
            command = [GRISTMILL, "tokenizer", "train", source, "--out", out, "--size", str(size), "--quiet"]
            seconds[out] = time_command([*command, "--pattern", pattern])
            print(f"  {os.path.basename(out)}: {seconds[out]:.1f} s", file=sys.stderr, flush=True)
        second_run = os.path.join(folder, "again")
        peak_mb = measure_peak_mb([GRISTMILL, "tokenizer", "train", source, "--out", second_run, "--quiet"])
        names = ["codebert", *seconds]
        library = gristmill.compare_tokenizers(Config(sources=[source], out=os.path.join(folder, "none")), names)
        other_packages = gristmill.compare_tokenizers(Config(sources=packages, out=os.path.join(folder, "none")), names)
        repeated = Path(second_run, "tokenizer.json").read_bytes()
        assert repeated == Path(folder, f"{DEFAULT_PATTERN}-{DEFAULT_SIZE}", "tokenizer.json").read_bytes()
    print("# Training your own vocabulary\n")
    print(f"`python benchmarks/vocabulary.py`. {machine_text('gristmill', 'gigatoken', 'tokenizers')}.\n")
    print_table(library, other_packages, list(seconds.values()))
    print(
        f"\nTraining {DEFAULT_SIZE:,} ids takes at most {peak_mb:.0f} MB of memory in all processes together. A "
        "second run wrote"
    )
    print("the same tokenizer.json, byte for byte.")


def print_table(library: TokenizerTable, other_packages: TokenizerTable, seconds: list[float]) -> None:
    sizes = {split: library.splits[split] for split in Split}
    train = sizes[Split.TRAIN]
    print(f"Each vocabulary was trained on the train split of the Python standard library: {train.files:,} files,")
    held_out = sum(sizes[split].bytes for split in Split if split is not Split.TRAIN) / 1e6
    other = sum(one.bytes for one in other_packages.splits.values()) / 1e6
    print(
        f"{train.bytes / 1e6:.1f} MB. `train`, `held out` and `other code` are bytes per token (more is better) on "
        "the train split, on"
    )
    print(
        f"{held_out:.1f} MB of held-out files, and on {other:.1f} MB of {' and '.join(PACKAGES)}. `windows` is the "
        "number of windows of 512"
    )
    print(
        "with overlap 256 for all text of the standard library. `seconds` is the time of one complete training process"
    )
    print("on a machine with other load, so only the order of magnitude is reliable.\n")
    print("| tokenizer | ids | train | held out | other code | windows | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    durations = ["", *(f"{one:.1f}" for one in seconds)]
    for one, other_code, duration in zip(library.tokenizers, other_packages.tokenizers, durations, strict=True):
        figures = bytes_per_token(library, one, [Split.TRAIN])
        figures += f" | {bytes_per_token(library, one, [Split.VALIDATION, Split.TEST])}"
        figures += f" | {other_code.bytes_per_token:.2f} | {one.windows:,} | {duration}"
        print(f"| {one.name.partition('-')[0]} | {one.vocab_size:,} | {figures} |")


def bytes_per_token(table: TokenizerTable, one: TokenizerCounts, splits: list[Split]) -> str:
    num_tokens = sum(one.tokens_by_split[split] for split in splits)
    return f"{sum(table.splits[split].bytes for split in splits) / num_tokens:.2f}"


if __name__ == "__main__":
    main()
