"""Progress of a training run: a printed line per evaluation, metrics.jsonl, curves and TensorBoard."""

import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gristmill.core.errors import MissingExtraError
from gristmill.core.extras import require_curves
from gristmill.core.layout import write_atomically
from gristmill.core.names import counted, printable
from gristmill.lab.training.metrics import Metric, Metrics
from gristmill.lab.training.objectives import Score
from gristmill.lab.training.run_folder import CURVES_HTML, CURVES_SVG, TENSORBOARD
from gristmill.lab.training.train_config import Budget
from gristmill.views.curves import Line, Mark, Panel, Point
from gristmill.views.curves_html import curves_html
from gristmill.views.curves_svg import curves_svg
from gristmill.views.table import Table

# Measurements of a run as curves and as a table.

MAX_TABLE_ROWS = 300
SPLIT_LABELS = {"train": "train", "validation": "validation", "frozen": "frozen test"}


def make_panels(lines: Sequence[Metric], best: Metric | None) -> list[Panel]:
    """Return a panel for each measured value: loss, bits per byte if measured, and accuracy."""
    marks = () if best is None else (Mark(f"best, epoch {best.epoch:.3g}", best.epoch),)
    panels = [_panel("Loss", "nats per token", lines, "loss", marks)]
    if any(line.bits_per_byte is not None for line in lines):
        panels.append(_panel("Bits per byte", "bits", lines, "bits_per_byte", marks))
    panels.append(_panel("Accuracy", "share of tokens predicted correctly", lines, "accuracy", marks))
    return panels


def _panel(title: str, unit: str, lines: Sequence[Metric], name: str, marks: Sequence[Mark]) -> Panel:
    curves = []
    for split, label in SPLIT_LABELS.items():
        points = [
            Point(line.epoch, value)
            for line in lines
            if line.split == split and (value := getattr(line, name)) is not None
        ]
        if points:
            curves.append(Line(label, points, faint=split == "train"))
    return Panel(title, "epochs", unit, curves, marks=tuple(marks))


def make_table(lines: Sequence[Metric]) -> Table:
    """Return a table of the last MAX_TABLE_ROWS measurements. metrics.jsonl has all measurements."""
    rows = [
        (
            f"{line.epoch:.2f}",
            f"{line.step:,}",
            f"{line.tokens:,}",
            line.split,
            f"{line.loss:.4f}",
            "" if line.bits_per_byte is None else f"{line.bits_per_byte:.4f}",
            "" if line.accuracy is None else f"{line.accuracy:.1%}",
        )
        for line in lines[-MAX_TABLE_ROWS:]
    ]
    return Table("Measurements", ("epoch", "step", "tokens", "split", "loss", "bits/byte", "accuracy"), rows)


SECONDS_BETWEEN_REFRESHES = 10
SECONDS_BETWEEN_BEATS = 10
TIMED_STEPS, TIMED_SECONDS = 20, 5
"""The first estimate of the duration is logged after 20 timed steps, or earlier, after 5 seconds of timed steps."""
Item = TypeVar("Item")
MINUTE, HOUR = 60, 3600
DRAWING_SHARE = 0.05
"""Maximum share of the run time for drawing. Without this limit, a run with thousands of evaluations would spend most
of its time on drawing."""
Log = Callable[[str], None]
"""Callback that receives the progress lines."""


class Heartbeat:
    """Logs progress during long work, at most once every SECONDS_BETWEEN_BEATS."""

    def __init__(self, log: Log) -> None:
        self._log, self._last_at = log, time.perf_counter()

    def beat(self, text: str) -> None:
        now = time.perf_counter()
        if now - self._last_at >= SECONDS_BETWEEN_BEATS:
            self._last_at = now
            self._log(f"{'':>8} {text}")

    def over(self, items: Sequence[Item], text: str) -> Iterator[Item]:
        """Yield the items. Now and then, log the number of the current item, counted from 1."""
        for number, item in enumerate(items, 1):
            self.beat(f"{text} {number:,} of {len(items):,}")
            yield item


class RunMonitor:
    """Records, logs and draws the measurements of one run."""

    def __init__(
        self,
        folder: Path,
        metrics: Metrics,
        budget: Budget,
        facts: Sequence[tuple[str, str]],
        log: Log,
        *,
        is_writer: bool,
    ) -> None:
        """Start a monitor. `facts` are shown in curves.html. Only the process with `is_writer` writes files."""
        self._is_writer = is_writer
        self._folder, self._metrics, self._budget, self._facts, self._log = folder, metrics, budget, facts, log
        self._seconds_before = max((line.seconds for line in metrics.lines), default=0.0)
        self._started_at = self._evaluated_at = time.perf_counter()
        self._last_step = 0
        self._tensorboard = _open_tensorboard(folder, metrics) if is_writer else None
        self._has_header = self._has_logged_estimate = False
        self._stepped_at: float | None = None
        self._timed_steps, self._step_seconds, self._evaluation_seconds = 0, 0.0, 0.0
        self._drawn_at, self._drawing_seconds = self._started_at, 0.0
        self._is_drawing = is_writer and self._can_draw()

    def start(self, step: int) -> None:
        """Start timing the training steps. Call this after the setup and the first evaluation."""
        self._last_step = step
        self._evaluated_at = time.perf_counter()
        self._stepped_at = None

    def record_step(self, step: int) -> str | None:
        """Record the end of a step and return the remaining time, or None if no step has been timed yet.

        Also logs the remaining time once, as soon as enough steps are timed.
        """
        now = time.perf_counter()
        if self._stepped_at is not None:  # the first step is not timed, because it includes compiling
            self._timed_steps += 1
            self._step_seconds += now - self._stepped_at
        self._stepped_at = now
        if not self._timed_steps:
            return None
        if not self._has_logged_estimate and (self._timed_steps >= TIMED_STEPS or self._step_seconds >= TIMED_SECONDS):
            self._has_logged_estimate = True
            self._log_first_estimate(step)
        return self._time_left(step)

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started_at

    def make_metric(self, step: int, split: Any, score: Score) -> Metric:
        return Metric(
            **self._progress_fields(step),
            split=split,
            loss=score.loss,
            accuracy=score.accuracy,
            bits_per_byte=score.bits_per_byte,
        )

    def record_train_loss(self, step: int, loss: float, learning_rate: float) -> None:
        """Record the mean training loss since the previous call."""
        now = time.perf_counter()
        tokens = self._tokens_at(step) - self._tokens_at(self._last_step)
        rate = tokens / (now - self._evaluated_at) if step > self._last_step else None
        line = Metric(
            **self._progress_fields(step), split="train", loss=loss, learning_rate=learning_rate, tokens_per_second=rate
        )
        self._metrics.add(line)
        self._write_tensorboard([line])

    def record_evaluation(self, step: int, lines: Sequence[Metric]) -> None:
        self._metrics.add(*lines)
        self._write_tensorboard(lines)
        self._log_evaluation(step)
        now = time.perf_counter()
        if self._drawing_seconds <= DRAWING_SHARE * (now - self._drawn_at):
            self.draw(is_running=step < self._budget.steps)
            self._drawn_at, self._drawing_seconds = time.perf_counter(), time.perf_counter() - now

    def restart_clock(self, step: int, evaluation_seconds: float) -> None:
        """Restart the timing after an evaluation, so that tokens/s does not include evaluating and saving."""
        self._last_step, self._evaluated_at = step, time.perf_counter()
        self._evaluation_seconds = evaluation_seconds
        if self._stepped_at is not None:
            self._stepped_at = self._evaluated_at

    def _can_draw(self) -> bool:
        """Return True if matplotlib is installed. Training works without it, and metrics.jsonl has the same data."""
        try:
            require_curves()
        except MissingExtraError as error:
            self._log(f"no curves: {error}")
            return False
        return True

    def draw(self, *, is_running: bool) -> None:
        if not self._is_drawing:
            return
        lines = self._metrics.lines
        panels, name = make_panels(lines, self._metrics.best), f"{printable(self._folder.name)}"
        facts = [*self._facts, *self._progress(is_running=is_running)]
        refresh = SECONDS_BETWEEN_REFRESHES if is_running else None
        page = curves_html(name, facts, panels, [make_table(lines)], refresh)
        write_atomically(self._folder / CURVES_HTML, page.encode())
        subtitle = ", ".join(text for _, text in self._facts[:3])
        write_atomically(self._folder / CURVES_SVG, curves_svg(name, subtitle, panels).encode())

    def close(self) -> None:
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _progress_fields(self, step: int) -> dict[str, Any]:
        return {
            "step": step,
            "epoch": round(self._budget.epoch_at(step), 6),
            "tokens": self._tokens_at(step),
            "seconds": round(self.seconds, 3),
        }

    def _tokens_at(self, step: int) -> int:
        return round(self._budget.epoch_at(step) * self._budget.ids_per_epoch)

    def _progress(self, *, is_running: bool) -> list[tuple[str, str]]:
        if not self._metrics.lines:
            return []
        last = self._metrics.lines[-1]
        time_fact = [("left", self._time_left(last.step))] if is_running else [("took", time_text(self.seconds))]
        done = f"{last.epoch:.4g} of {counted(f'{self._budget.epochs:.4g}', 'epoch')}, {counted(last.tokens, 'token')}"
        return [("done", done), *time_fact]

    def _time_left(self, step: int) -> str:
        """Estimate the remaining time from the mean time per step and the duration of the last evaluation."""
        if not self._timed_steps:
            return "-"
        steps_left = self._budget.steps - step
        evaluations = self._budget.num_evaluations * steps_left / self._budget.steps
        return time_text(steps_left * self._step_seconds / self._timed_steps + evaluations * self._evaluation_seconds)

    def _log_first_estimate(self, step: int) -> None:
        pace = f"{self._step_seconds / self._timed_steps:.2g} s per step"
        scoring = f", {self._evaluation_seconds:.2g} s per evaluation" if self._evaluation_seconds else ""
        less = "" if self._budget.patience is None else "; less if validation stops improving earlier"
        steps = counted(self._budget.steps - step, "step")
        self._log(f"{'':>8} about {self._time_left(step)} left for {steps}: {pace}{scoring}{less}")
        self.draw(is_running=True)

    def _log_evaluation(self, step: int) -> None:
        train = next((line for line in reversed(self._metrics.lines) if line.split == "train"), None)
        validation = next((line for line in reversed(self._metrics.lines) if line.split == "validation"), None)
        if validation is None or not self._is_writer:
            return
        self._has_logged_estimate = self._has_logged_estimate or self._timed_steps > 0
        if not self._has_header:
            self._has_header = True
            self._log(
                _row("epoch", "step", "tokens", "train", "validation", "bits/byte", "accuracy", "tokens/s", "left")
            )
        rate = None if train is None or train.step != step else train.tokens_per_second
        self._log(
            _row(
                f"{validation.epoch:.2f}",
                f"{step:,}",
                f"{validation.tokens:,}",
                "-" if train is None else f"{train.loss:.4f}",
                f"{validation.loss:.4f}",
                "-" if validation.bits_per_byte is None else f"{validation.bits_per_byte:.4f}",
                f"{validation.accuracy:.1%}",
                "-" if rate is None else f"{rate:,.0f}",
                self._time_left(step),
            )
        )

    def _write_tensorboard(self, lines: Sequence[Metric]) -> None:
        if self._tensorboard is None:
            return
        for line in lines:
            for name in ("loss", "accuracy", "bits_per_byte", "learning_rate"):
                value = getattr(line, name)
                if value is not None:
                    self._tensorboard.add_scalar(f"{name}/{line.split}", value, line.step)
        self._tensorboard.flush()


def _row(*cells: str) -> str:
    widths = (8, 9, 14, 8, 11, 10, 9, 11, 9)
    return " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def time_text(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.0f} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.1f} h"


def _open_tensorboard(folder: Path, metrics: Metrics) -> Any:
    """Open a TensorBoard writer, or return None if TensorBoard is not installed.

    For a resumed run, the writer discards events after the checkpoint, because the run records these events again.
    """
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional

    last = max((line.step for line in metrics.lines), default=None)
    return SummaryWriter(str(folder / TENSORBOARD), purge_step=None if last is None else last + 1)
