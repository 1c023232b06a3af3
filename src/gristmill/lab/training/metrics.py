"""metrics.jsonl: one line per measurement, appended during a training run. Readers skip an incomplete last line."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import read_plain

METRICS = "metrics.jsonl"
MIN_GAIN = 0.001
"""Relative decrease of the validation loss that counts as a gain."""
StopReason = Literal["budget", "no_improvement"]


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement: one line of metrics.jsonl."""

    step: int
    epoch: float
    tokens: int
    """Number of token ids trained on so far, without padding."""
    seconds: float
    """Duration of the run so far, without the time between a stop and a resume."""
    split: Literal["train", "validation", "test", "frozen"]
    loss: float
    """Nats per token. For train, the mean since the previous train line."""
    accuracy: float | None = None
    bits_per_byte: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    stop_reason: StopReason | None = None
    """Set in the last evaluation: `budget` if the budget is spent, `no_improvement` if validation stopped improving."""


class Metrics:
    """Measurements of a run, in memory and in metrics.jsonl."""

    def __init__(self, folder: Path, checkpoint: Path | None = None, *, is_writer: bool = True) -> None:
        """Start with the measurements in the checkpoint, if any. Only the process with `is_writer` writes the file."""
        self._path, self._is_writer = folder / METRICS, is_writer
        self.lines: list[Metric] = []
        if checkpoint is not None:
            self.lines = read_metrics(checkpoint)
        if is_writer:
            write_atomically(self._path, _encoded(self.lines))

    def add(self, *lines: Metric) -> None:
        self.lines += lines
        if not self._is_writer:
            return
        with self._path.open("ab") as stream:
            stream.write(_encoded(lines))

    def copy_to(self, folder: Path) -> None:
        write_atomically(folder / METRICS, _encoded(self.lines))

    def of(self, split: str) -> list[Metric]:
        return [line for line in self.lines if line.split == split]

    @property
    def best(self) -> Metric | None:
        """First evaluation with the lowest validation loss."""
        return min(self.of("validation"), key=lambda line: line.loss, default=None)

    @property
    def tokens_per_second(self) -> float:
        """Median training speed, without evaluations."""
        rates = sorted(line.tokens_per_second for line in self.of("train") if line.tokens_per_second is not None)
        return rates[len(rates) // 2] if rates else 0.0

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason that the training ended. None if it has not ended."""
        evaluations = self.of("validation")
        return evaluations[-1].stop_reason if evaluations else None


def evaluations_without_gain(evaluations: Sequence[Metric], warmup_steps: int) -> int:
    """Count the evaluations since the last gain. Evaluations during the warm-up are not counted.

    An evaluation is a gain if its loss is more than MIN_GAIN below the loss at the previous gain, so several smaller
    decreases can add up to a gain.
    """
    lowest, count = math.inf, 0
    for line in evaluations:
        if line.loss < lowest * (1 - MIN_GAIN):
            lowest, count = line.loss, 0
        elif line.step > warmup_steps:
            count += 1
    return count


def read_metrics(folder: Path) -> list[Metric]:
    """Read metrics.jsonl from a folder, skipping an incomplete last line. Returns [] if the file does not exist."""
    path = folder / METRICS
    try:
        lines = read_plain(path).splitlines(keepends=True)
        return [msgspec.json.decode(line, type=Metric) for line in lines if line.endswith(b"\n")]
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}. Train into a new folder.") from None


def _encoded(lines: Sequence[Metric]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
