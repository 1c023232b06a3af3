"""metrics.jsonl: a line per measurement, added while the training runs; whoever reads it sees whole lines only."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import read_plain

METRICS = "metrics.jsonl"
LEAST_GAIN = 0.001
"""Of the loss on validation: less is no improvement."""
StopReason = Literal["budget", "no_improvement"]


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    step: int
    epoch: float
    tokens: int
    """Ids gone through, padding apart."""
    seconds: float
    """Since the start; time between a stop and going on does not count."""
    split: Literal["train", "validation", "test", "frozen"]
    loss: float
    """Nats a token; of train, the mean since the line before."""
    accuracy: float | None = None
    bits_per_byte: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    stop_reason: StopReason | None = None
    """On the last evaluation: the budget is spent, or validation no longer improves."""


class Metrics:
    """All of a run, in memory and in the file."""

    def __init__(self, folder: Path, checkpoint: Path | None = None, *, is_writer: bool = True) -> None:
        """Those that a checkpoint has seen; what came after is done again. One process writes."""
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
        """The evaluation with the lowest loss on validation; the first of several."""
        return min(self.of("validation"), key=lambda line: line.loss, default=None)

    @property
    def tokens_per_second(self) -> float:
        """While it learnt: the median of what lines of train say."""
        rates = sorted(line.tokens_per_second for line in self.of("train") if line.tokens_per_second is not None)
        return rates[len(rates) // 2] if rates else 0.0

    @property
    def stop_reason(self) -> StopReason | None:
        """Why there is no further evaluation; None: the training goes on."""
        evaluations = self.of("validation")
        return evaluations[-1].stop_reason if evaluations else None


def evaluations_without_gain(evaluations: Sequence[Metric], warmup_steps: int) -> int:
    """Count the evaluations since the last that lowered the loss by LEAST_GAIN; none of the warm-up.

    Small gains add up: each loss is held against that of the last gain, not against the one before it.
    """
    lowest, count = math.inf, 0
    for line in evaluations:
        if line.loss < lowest * (1 - LEAST_GAIN):
            lowest, count = line.loss, 0
        elif line.step > warmup_steps:
            count += 1
    return count


def read_metrics(folder: Path) -> list[Metric]:
    """A last line that was cut off is left out."""
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
