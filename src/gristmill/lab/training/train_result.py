"""How a training ended."""

import math
from pathlib import Path

import msgspec
import torch

from gristmill.core.errors import DatasetError
from gristmill.core.layout import sync_file, write_atomically
from gristmill.core.names import counted, printable
from gristmill.core.plain_files import read_plain
from gristmill.lab.training.metrics import METRICS, Metric, StopReason
from gristmill.lab.training.objectives import Score
from gristmill.lab.training.run_folder import RESULT

STOP_TEXTS: dict[StopReason, str] = {
    "budget": "the budget is spent",
    "no_improvement": "validation no longer improved; --no-early-stop spends the whole budget",
}


class FrozenScores(msgspec.Struct, frozen=True, kw_only=True):
    """By frozen window; a score is the sum of `totals` over that of `weights`."""

    totals: list[float]
    """Bits, or nats where there are no bytes."""
    weights: list[float]
    """Bytes, or tokens."""

    @classmethod
    def of(cls, score: Score) -> "FrozenScores":
        if score.bytes is None:
            return cls(totals=score.nats.tolist(), weights=score.tokens.tolist())
        return cls(totals=(score.nats / math.log(2)).tolist(), weights=score.bytes.tolist())


class Result(msgspec.Struct, frozen=True, kw_only=True):
    dataset: str
    model: str
    objective: str
    seed: int
    parameters: int
    """Weights of the model and of the adapter."""
    adapter_parameters: int | None = None
    """Weights of the LoRA adapter, which alone was trained and is kept; None without one."""
    device: str
    steps: int
    epochs: float
    tokens: int
    seconds: float
    tokens_per_second: float
    """While it learnt: evaluations apart."""
    last: Metric
    best: Metric
    """By validation: the model that is kept."""
    stop_reason: StopReason
    """The budget is spent, or validation no longer improved."""
    test: Metric | None
    """Of that model, once; None: there are no windows in test."""
    frozen: FrozenScores | None = None
    """At the end, if there were frozen windows."""


def write_result(result: Result, folder: Path) -> None:
    """Last: with it, there is no checkpoint to go on from any more."""
    sync_file(folder / METRICS)
    write_atomically(folder / RESULT, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(folder: Path) -> Result:
    try:
        return msgspec.json.decode(read_plain(folder / RESULT), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise DatasetError(f"{str(folder / RESULT)!r} cannot be read: {error}. Train into a new folder.") from None


def device_text(device: torch.device) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    )


def result_text(result: Result, folder: str) -> str:
    adapter = result.adapter_parameters
    of_adapter = "" if adapter is None else f" and a LoRA adapter of {adapter:,}"
    weights = f"{result.parameters - (adapter or 0):,} weights{of_adapter}"
    rows = [("model", f"{printable(result.model)}, {result.objective}: {weights}, on {result.device}")]
    trained = f"{counted(result.tokens, 'token')}, {counted(f'{result.epochs:.4g}', 'epoch')}"
    rows.append(("trained", f"{trained}, {counted(result.steps, 'step')}, seed {result.seed}"))
    rows.append(("stopped", STOP_TEXTS[result.stop_reason]))
    rate = f"{result.tokens_per_second:,.0f} tokens/s while it learnt"
    rows.append(("seconds", f"{result.seconds:,.1f}, evaluations included; {rate}"))
    what = "model" if adapter is None else "adapter"
    kept = f"{measured_text(result.best)} on validation, at epoch {result.best.epoch:.4g}: the {what} that is kept"
    rows.append(("best", kept))
    if result.last != result.best:
        rows.append(("last", f"{measured_text(result.last)} on validation"))
    if result.test is not None:
        rows.append(("test", f"{measured_text(result.test)}, of the best model"))
    rows.append(("run", f"{printable(folder)}: model/, curves.html, metrics.jsonl"))
    return "\n".join(f"{name:<8} {text}" for name, text in rows)


def measured_text(metric: Metric) -> str:
    bits = "" if metric.bits_per_byte is None else f", {metric.bits_per_byte:.4f} bits per byte"
    return f"{metric.loss:.4f} nats a token{bits}, accuracy {metric.accuracy:.1%}"
