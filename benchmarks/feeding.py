"""Measure how many tokens per second a training loop gets from dataset files, in batches of 32 rows.

python benchmarks/feeding.py [--source DIR] [--runs 3]     # prints the contents of benchmarks/feeding.md
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
from measure import STDLIB, machine_text
from torch.utils.data import DataLoader

from gristmill import Config, OutputConfig, build, open_dataset
from gristmill.core.records import Split
from gristmill.dataset.collators import CausalCollator, MaskedCollator
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.torch_stream import WindowStream
from gristmill.dataset.torch_windows import WindowDataset

BATCH_SIZE = 32
NUM_BATCHES = 500
COMPRESSIONS: dict[str, Literal["none", "zstd"]] = {"jsonl": "none", "zst": "zstd"}
Reader = WindowDataset | WindowStream


def measure_rate(batches: Any) -> float:
    """Return the rate in million tokens per second after the first batch, including special tokens but not padding."""
    iterator = iter(batches)
    next(iterator)
    num_tokens = 0
    started = time.perf_counter()
    for batch in islice(iterator, NUM_BATCHES):
        num_tokens += int(batch["attention_mask"].numpy().sum())
    return num_tokens / (time.perf_counter() - started) / 1e6


def median_rates(cases: dict[str, Callable[[], float]], runs: int) -> dict[str, float]:
    """Return the median rate of each case. The cases run alternately, so that a noisy minute affects all of them."""
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(runs):
        for name, measure in cases.items():
            rates[name].append(measure())
            print(f"  {turn + 1}/{runs} {name}: {rates[name][-1]:.1f}", file=sys.stderr, flush=True)
    return {name: statistics.median(values) for name, values in rates.items()}


def collators(reader: Reader) -> dict[str, CausalCollator | MaskedCollator]:
    return {
        "causal": reader.causal_collator(),
        "masked": reader.masked_collator(),
        "whole identifiers": reader.masked_collator(whole_identifiers=True),
    }


def loader_cases(datasets: dict[str, Dataset]) -> dict[str, Callable[[], float]]:
    cases: dict[str, Callable[[], float]] = {}
    for compression, dataset in datasets.items():
        readers: dict[str, Reader] = {
            "random access": dataset.torch("train"),
            "stream": dataset.torch("train", streaming=True),
        }
        for access, reader in readers.items():
            for task, collate in collators(reader).items():
                for num_workers in (0, 1):
                    name = f"{access} | {compression} | {task} | {num_workers}"
                    cases[name] = lambda reader=reader, collate=collate, num_workers=num_workers: measure_rate(  # type: ignore[misc] # defaults bind the loop variables
                        reader.loader(BATCH_SIZE, collate, num_workers=num_workers)
                    )
    return cases


def transfer_cases(dataset: Dataset) -> dict[str, Callable[[], float]]:
    """Return measurements of two ways to pass batches from a worker: as one packed array, and the default of torch."""
    stream = dataset.torch("train", streaming=True)
    collate = stream.causal_collator()
    return {
        "one array per batch through a pipe": lambda: measure_rate(stream.loader(BATCH_SIZE, collate, num_workers=1)),
        "tensors through shared memory (default of torch)": lambda: measure_rate(
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
        for name, compress in COMPRESSIONS.items():
            out = str(Path(folder, name))
            build(Config(sources=[options.source], out=out, output=OutputConfig(compress=compress)))
            datasets[name] = open_dataset(out)
        facts = datasets["jsonl"].manifest.splits[Split.TRAIN]
        print("# Feeding a training loop\n")
        print(f"`python benchmarks/feeding.py`. {machine_text('gristmill', 'torch', 'numpy', 'orjson')}.\n")
        print(
            f"Million tokens per second, over {NUM_BATCHES} batches of {BATCH_SIZE} from {facts.windows:,} windows of "
            f"the standard library, medians of {options.runs} runs. With one worker, the worker makes the batches "
            "and the training process only receives them.\n"
        )
        rates = median_rates(loader_cases(datasets), options.runs)
        print("| access | files | task | no worker | one worker |")
        print("| --- | --- | --- | --: | --: |")
        for name in (name for name in rates if name.endswith("0")):
            print(f"| {name[:-4]} | {rates[name]:.1f} | {rates[name[:-1] + '1']:.1f} |")
        print(
            "\nTwo ways to pass batches from a worker to the training process, with causal batches from a jsonl "
            "stream:\n"
        )
        print("| transfer | one worker |")
        print("| --- | --: |")
        for name, rate in median_rates(transfer_cases(datasets["jsonl"]), options.runs).items():
            print(f"| {name} | {rate:.1f} |")
        print("\nSeconds to open the train split for random access. Reading a row afterwards takes microseconds:\n")
        print("| files | seconds |")
        print("| --- | --: |")
        for name, dataset in datasets.items():
            started = time.perf_counter()
            open_dataset(dataset.folder).torch("train")
            print(f"| {name} | {time.perf_counter() - started:.2f} |")


if __name__ == "__main__":
    main()
