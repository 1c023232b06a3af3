"""result.json: the result of a finished training run, and its summary for the terminal."""

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
    "no_improvement": "the validation loss no longer improved; --no-early-stop uses the complete budget",
}


class FrozenScores(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the windows in the frozen test set of a comparison.

    The total score is the sum of `totals` divided by the sum of `weights`.
    """

    totals: list[float]
    """Bits of each window, or nats if the number of bytes is unknown."""
    weights: list[float]
    """Number of bytes in each window, or number of tokens if the number of bytes is unknown."""

    @classmethod
    def of(cls, score: Score) -> "FrozenScores":
        if score.num_bytes is None:
            return cls(totals=score.nats.tolist(), weights=score.num_tokens.tolist())
        return cls(totals=(score.nats / math.log(2)).tolist(), weights=score.num_bytes.tolist())


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a finished training run."""

    dataset: str
    model: str
    objective: str
    seed: int
    parameters: int
    """Number of weights in the model and the adapter."""
    adapter_parameters: int | None = None
    """Number of weights in the LoRA adapter. Only these weights were trained and saved. None without an adapter."""
    device: str
    steps: int
    epochs: float
    tokens: int
    seconds: float
    tokens_per_second: float
    """Median training speed, without evaluations."""
    last: Metric
    """Last evaluation on validation."""
    best: Metric
    """Evaluation with the lowest validation loss. The saved model is from this step."""
    stop_reason: StopReason
    """`budget` if the budget is spent, `no_improvement` if validation no longer improved."""
    test: Metric | None
    """Score of the saved model on the test split. None if the test split has no windows or no model was saved."""
    frozen: FrozenScores | None = None
    """Scores on the frozen test set at the end of the run. None if the run is not part of a comparison."""


def write_result(result: Result, folder: Path) -> None:
    """Write result.json, which marks the run as finished. Call this before the checkpoints are deleted."""
    sync_file(folder / METRICS)
    write_atomically(folder / RESULT, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def read_result(folder: Path) -> Result:
    try:
        return msgspec.json.decode(read_plain(folder / RESULT), type=Result)
    except OSError as error:
        raise DatasetError(f"cannot read {str(folder / RESULT)!r}: {error.strerror or error}.") from None
    except msgspec.MsgspecError as error:
        raise DatasetError(f"{str(folder / RESULT)!r} is damaged: {error}. Train into a new folder.") from None


def device_text(device: torch.device) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    )


def result_text(result: Result, folder: str) -> str:
    adapter = result.adapter_parameters
    adapter_text = "" if adapter is None else f" and a LoRA adapter with {adapter:,} weights"
    weights = f"{result.parameters - (adapter or 0):,} weights{adapter_text}"
    rows = [("model", f"{printable(result.model)}, {result.objective}: {weights}, on {result.device}")]
    trained = f"{counted(result.tokens, 'token')}, {counted(f'{result.epochs:.4g}', 'epoch')}"
    rows.append(("trained", f"{trained}, {counted(result.steps, 'step')}, seed {result.seed}"))
    rows.append(("stopped", STOP_TEXTS[result.stop_reason]))
    rate = f"{result.tokens_per_second:,.0f} tokens/s in training"
    rows.append(("seconds", f"{result.seconds:,.1f}, evaluations included; {rate}"))
    saved = "model" if adapter is None else "adapter"
    best = f"{metric_text(result.best)} on validation, at epoch {result.best.epoch:.4g}: this {saved} was saved"
    rows.append(("best", best))
    if result.last != result.best:
        rows.append(("last", f"{metric_text(result.last)} on validation"))
    if result.test is not None:
        rows.append(("test", f"{metric_text(result.test)}, with the best model"))
    rows.append(("run", f"{printable(folder)}: model/, curves.html, metrics.jsonl"))
    return "\n".join(f"{name:<8} {text}" for name, text in rows)


def metric_text(metric: Metric) -> str:
    bits = "" if metric.bits_per_byte is None else f", {metric.bits_per_byte:.4f} bits per byte"
    return f"{metric.loss:.4f} nats per token{bits}, accuracy {metric.accuracy:.1%}"
