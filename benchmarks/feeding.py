"""How many tokens a second reach a training, from the files to batches of 32?

python benchmarks/feeding.py [--source DIR] [--runs 3]     # prints benchmarks/feeding.md
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from measure import STDLIB, machine
from torch.utils.data import DataLoader

from gristmill import Config, OutputConfig, build, open_dataset
from gristmill.core.records import Split
from gristmill.dataset.collators import CausalCollator, MaskedCollator
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.torch_stream import WindowStream
from gristmill.dataset.torch_windows import WindowDataset

BATCH_SIZE = 32
NUM_BATCHES = 500
COMPRESSION: dict[str, Literal["none", "zstd"]] = {"jsonl": "none", "zst": "zstd"}
Fed = WindowDataset | WindowStream


def rate_of(batches: Any) -> float:
    """Million tokens a second, special ones and not padding, from the first batch on."""
    iterator = iter(batches)
    next(iterator)
    num_tokens = 0
    started = time.perf_counter()
    for batch in islice(iterator, NUM_BATCHES):
        num_tokens += int(batch["attention_mask"].numpy().sum())
    return num_tokens / (time.perf_counter() - started) / 1e6


def median_rates(ways: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Taking turns, so that a noisy minute hits all of them."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(runs):
        for name, measure in ways.items():
            rates[name].append(measure())
            print(f"  {turn + 1}/{runs} {name}: {rates[name][-1]:.1f}", file=sys.stderr, flush=True)
    return {name: statistics.median(found) for name, found in rates.items()}


def collators(fed: Fed) -> dict[str, CausalCollator | MaskedCollator]:
    return {
        "causal": fed.causal_collator(),
        "masked": fed.masked_collator(),
        "whole identifiers": fed.masked_collator(whole_identifiers=True),
    }


def ways_of(datasets: dict[str, Dataset]) -> dict[str, Callable[[], float]]:
    ways: dict[str, Callable[[], float]] = {}
    for form, dataset in datasets.items():
        feds: dict[str, Fed] = {
            "by number": dataset.torch("train"),
            "stream": dataset.torch("train", streaming=True),
        }
        for how, fed in feds.items():
            for task, collate in collators(fed).items():
                for num_workers in (0, 1):
                    name = f"{how} | {form} | {task} | {num_workers}"
                    ways[name] = lambda fed=fed, collate=collate, num_workers=num_workers: rate_of(  # type: ignore[misc] # the defaults bind them
                        fed.loader(BATCH_SIZE, collate, num_workers=num_workers)
                    )
    return ways


def handing_over_ways(dataset: Dataset) -> dict[str, Callable[[], float]]:
    """Packed by us, and as torch does it."""
    stream = dataset.torch("train", streaming=True)
    collate = stream.causal_collator()
    return {
        "each batch as one array through the pipe": lambda: rate_of(stream.loader(BATCH_SIZE, collate, num_workers=1)),
        "its tensors through shared memory": lambda: rate_of(
            DataLoader(stream, batch_size=BATCH_SIZE, collate_fn=collate, num_workers=1)
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default=STDLIB)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        datasets = {}
        for form, compress in COMPRESSION.items():
            out = str(Path(folder, form))
            build(Config(sources=[options.source], out=out, output=OutputConfig(compress=compress)))
            datasets[form] = open_dataset(out)
        facts = datasets["jsonl"].manifest.splits[Split.TRAIN]
        print("# Feeding a training\n")
        print(f"`python benchmarks/feeding.py`. {machine('gristmill', 'torch', 'numpy', 'orjson')}.\n")
        print(
            f"Million tokens a second, in {NUM_BATCHES} batches of {BATCH_SIZE} from {facts.windows:,} windows of the "
            f"standard library, medians of {options.runs}. With a worker the process that trains only receives.\n"
        )
        rates = median_rates(ways_of(datasets), options.runs)
        print("| windows | files | task | no worker | one worker |")
        print("| --- | --- | --- | --: | --: |")
        for name in (name for name in rates if name.endswith("0")):
            print(f"| {name[:-4]} | {rates[name]:.1f} | {rates[name[:-1] + '1']:.1f} |")
        print("\nHow a worker hands over its batches, causal from jsonl in a stream:\n")
        print("| how | one worker |")
        print("| --- | --: |")
        for name, rate in median_rates(handing_over_ways(datasets["jsonl"]), options.runs).items():
            print(f"| {name} | {rate:.1f} |")
        print("\nOpening train for windows by number, in seconds; after that a row takes microseconds:\n")
        print("| files | seconds |")
        print("| --- | --: |")
        for form, dataset in datasets.items():
            started = time.perf_counter()
            open_dataset(dataset.folder).torch("train")
            print(f"| {form} | {time.perf_counter() - started:.2f} |")


if __name__ == "__main__":
    main()
