"""Measure training speed on a GPU: tokens per second, and the share of the GPU's peak rate for matrix products.

    gristmill build STDLIB --out speed --max-windows 6000 --compress zstd
    python benchmarks/training_speed.py speed [--out benchmarks/training/speed.md] [--batch-sizes 64,128]

The peak rate is measured in the same process, with products of two 8192 x 8192 matrices in bf16. Only operations that
the model needs are counted, with each weight used once forward and twice backward. The number of operations per token
is the sum of 6 for each weight of the layers, 12 * window * width for the attention of each layer, and, if the token is
predicted, 6 for each weight of the head.
"""

import argparse
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch

from gristmill.core.manifest import Manifest
from gristmill.dataset.dataset import open_dataset
from gristmill.lab.training.models import SIZES
from gristmill.lab.training.train import train
from gristmill.lab.training.train_config import TrainConfig
from gristmill.views.table import Table, markdown_table

SIDE = 8192
PRODUCTS = 30
MASKED_SHARE = 0.15
STEPS = {"tiny": 120, "small": 120, "base": 42}


class Measured(NamedTuple):
    model: str
    objective: str
    batch_size: int
    tokens_per_second: float
    operations_per_token: float

    @property
    def operations_per_second(self) -> float:
        return self.tokens_per_second * self.operations_per_token


def measure_peak() -> float:
    """Return the number of operations per second in matrix products, for the fastest of three rounds."""
    left, right = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for _ in range(3):
        torch.cuda.synchronize()
        started_at = time.perf_counter()
        for _ in range(PRODUCTS):
            left @ right
        torch.cuda.synchronize()
        rates.append(2 * SIDE**3 * PRODUCTS / (time.perf_counter() - started_at))
    return max(rates)


def operations(model: str, objective: str, manifest: Manifest) -> float:
    """Return the number of operations per token, forward and backward."""
    size, length = SIZES[model], int(manifest.settings["window"]["length"])
    layers = size.layers * (6 * 12 * size.width**2 + 12 * length * size.width)
    head = 6 * size.width * manifest.tokenizer.vocab_size
    if objective == "causal":
        # A token attends only to earlier tokens, which are half of the window on average.
        return layers - size.layers * 6 * length * size.width + head
    return layers + MASKED_SHARE * (head + 6 * size.width**2)


def measure(folder: str, model: str, objective: str, batch_size: int) -> Measured:
    manifest = open_dataset(folder).manifest
    facts = manifest.splits[next(iter(manifest.splits))]
    ids = facts.emitted_tokens / facts.windows
    steps = STEPS[model]
    config = TrainConfig(
        model=model,
        objective=objective,  # type: ignore[arg-type]
        tokens=int(steps * batch_size * ids),
        batch_size=batch_size,
        eval_every=steps // 6,
        workers=4,
    )
    with tempfile.TemporaryDirectory() as out:
        result = train(folder, Path(out) / "run", config, log=lambda text: print(text, flush=True))
    return Measured(model, objective, batch_size, result.tokens_per_second, operations(model, objective, manifest))


def page_text(found: list[Measured], peak_rate: float, folder: str) -> str:
    rows = [
        (
            one.model,
            one.objective,
            str(one.batch_size),
            f"{one.tokens_per_second:,.0f}",
            f"{one.operations_per_token / 1e9:.2f}",
            f"{one.operations_per_second / 1e12:.0f}",
            f"{one.operations_per_second / peak_rate:.0%}",
        )
        for one in found
    ]
    heads = ("model", "objective", "windows per step", "tokens/s", "GFLOP per token", "TFLOP/s", "share of peak")
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, transformers {version('transformers')}"
    return (
        f"# Training speed on a GPU\n\n`python benchmarks/training_speed.py {Path(folder).name}` on one {machine}, "
        f"windows of 512, bf16. The peak of the GPU, measured in the same process, is {peak_rate / 1e12:.0f} TFLOP/s "
        f"(matrices of {SIDE} x {SIDE}). `base` is compiled, the other models are not. The docstring of the script "
        "defines the counted operations. Speeds are medians over the intervals between evaluations, without the time "
        "of the evaluations.\n\n" + markdown_table(Table("", heads, rows)) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--out", default="benchmarks/training/speed.md")
    parser.add_argument("--batch-sizes", default="64,128")
    parser.add_argument("--only", default="base:mlm,base:causal,small:mlm,small:causal,tiny:causal")
    given = parser.parse_args()
    peak_rate = measure_peak()
    print(f"peak {peak_rate / 1e12:.0f} TFLOP/s", flush=True)
    found = []
    for name in given.only.split(","):
        model, objective = name.split(":")
        found += [measure(given.dataset, model, objective, int(size)) for size in given.batch_sizes.split(",")]
        Path(given.out).parent.mkdir(parents=True, exist_ok=True)
        Path(given.out).write_text(page_text(found, max(peak_rate, measure_peak()), given.dataset))
    print(Path(given.out).read_text())


if __name__ == "__main__":
    main()
