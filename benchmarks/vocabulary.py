"""What a vocabulary of one's own saves: bytes per token, seconds and windows, by size and pattern.

python benchmarks/vocabulary.py > benchmarks/vocabulary.md
"""

import argparse
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from measure import GRISTMILL, STDLIB, machine, peak_mb_of, seconds_of

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
    others = [os.path.join(sysconfig.get_path("purelib"), name) for name in PACKAGES]
    with tempfile.TemporaryDirectory() as folder:
        wanted = [(size, DEFAULT_PATTERN) for size in SIZES]
        wanted += [(DEFAULT_SIZE, pattern) for pattern in PATTERNS if pattern != DEFAULT_PATTERN]
        seconds = {}
        for size, pattern in wanted:
            out = os.path.join(folder, f"{pattern}-{size}")
            command = [GRISTMILL, "tokenizer", "train", source, "--out", out, "--size", str(size), "--quiet"]
            seconds[out] = seconds_of([*command, "--pattern", pattern])
            print(f"  {os.path.basename(out)}: {seconds[out]:.1f} s", file=sys.stderr, flush=True)
        again = os.path.join(folder, "again")
        peak_mb = peak_mb_of([GRISTMILL, "tokenizer", "train", source, "--out", again, "--quiet"])
        names = ["codebert", *seconds]
        here = gristmill.compare_tokenizers(Config(sources=[source], out=os.path.join(folder, "none")), names)
        there = gristmill.compare_tokenizers(Config(sources=others, out=os.path.join(folder, "none")), names)
        first = Path(again, "tokenizer.json").read_bytes()
        assert first == Path(folder, f"{DEFAULT_PATTERN}-{DEFAULT_SIZE}", "tokenizer.json").read_bytes()
    print("# What a vocabulary of one's own saves\n")
    print(f"`python benchmarks/vocabulary.py`. {machine('gristmill', 'gigatoken', 'tokenizers')}.\n")
    tell(here, there, list(seconds.values()))
    print(
        f"\nPeak memory of the run with {DEFAULT_SIZE:,} ids, all processes: {peak_mb:.0f} MB. It was run twice, to the"
    )
    print("same bytes.")


def tell(here: TokenizerTable, there: TokenizerTable, seconds: list[float]) -> None:
    sizes = {split: here.splits[split] for split in Split}
    train = sizes[Split.TRAIN]
    print(
        f"The Python standard library: {train.files:,} files and {train.bytes / 1e6:.1f} MB in train, from which each"
    )
    held_out = sum(sizes[split].bytes for split in Split if split is not Split.TRAIN) / 1e6
    other = sum(one.bytes for one in there.splits.values()) / 1e6
    print(
        f"vocabulary was learnt, and {held_out:.1f} MB held out, which it has never seen; nor has it {other:.1f} MB of"
    )
    print(f"{' and '.join(PACKAGES)}. Bytes per token: more is better. Windows of 512 with overlap 256, of all text.")
    print("Seconds are those of a whole process, run once on a machine with other work: their order of size counts.\n")
    print("| tokenizer | ids | train | held out | other code | windows | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    took = ["", *(f"{one:.1f}" for one in seconds)]
    for one, other_code, told in zip(here.tokenizers, there.tokenizers, took, strict=True):
        figures = f"{per_token(here, one, [Split.TRAIN])} | {per_token(here, one, [Split.VALIDATION, Split.TEST])}"
        figures += f" | {other_code.bytes_per_token:.2f} | {one.windows:,} | {told}"
        print(f"| {one.name.partition('-')[0]} | {one.vocab_size:,} | {figures} |")


def per_token(table: TokenizerTable, one: TokenizerCounts, splits: list[Split]) -> str:
    num_tokens = sum(one.tokens_by_split[split] for split in splits)
    return f"{sum(table.splits[split].bytes for split in splits) / num_tokens:.2f}"


if __name__ == "__main__":
    main()
