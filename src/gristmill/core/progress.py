"""Progress of a command: bars on a terminal, lines in a log, and the seconds of each phase.

with progress.phase("prepare", total=1349, unit="files") as step:
    step.advance(16)
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from gristmill.core.names import counted_units

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 5.0

MapFunction = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]
"""The map method of a runner. Results are in the order of the tasks."""


class Step:
    """A running phase. This class prints nothing, its subclasses do."""

    def __init__(self, name: str, total: int, unit: str) -> None:
        self.name, self.total, self.unit, self.done = name, total, unit, 0
        self.started_at = time.perf_counter()

    def advance(self, count: int) -> None:
        self.done += count

    def set_total(self, total: int, unit: str) -> None:
        """Set the total and unit of a phase that started without them."""
        self.total, self.unit = total, unit

    def finish(self) -> None:
        pass

    def count_results(self, map_function: MapFunction) -> MapFunction:
        """Return a map function that advances this phase by one for each result."""

        def map_and_count(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
            for result in map_function(function, tasks):
                self.advance(1)
                yield result

        return map_and_count


class _LineStep(Step):
    """Phase that prints a line every few seconds, and one at its end if it took over a second. For logs."""

    def __init__(self, name: str, total: int, unit: str, stream: TextIO) -> None:
        super().__init__(name, total, unit)
        self._stream, self._last_line_at = stream, self.started_at

    def advance(self, count: int) -> None:
        super().advance(count)
        now = time.perf_counter()
        if now - self._last_line_at >= SECONDS_BETWEEN_LINES:
            self._last_line_at = now
            rate = self.done / (now - self.started_at)
            left = f", {(self.total - self.done) / rate:.0f} s left" if self.total and rate else ""
            of = f"{self.done:,} of " if self.total else ""
            print(
                f"{self.name}: {of}{counted_units(self.total or self.done, self.unit)}{left}",
                file=self._stream,
                flush=True,
            )

    def finish(self) -> None:
        seconds = time.perf_counter() - self.started_at
        if seconds >= 1:
            done = counted_units(self.done, self.unit) if self.done else "done"
            print(f"{self.name}: {done} in {seconds:.1f} s", file=self._stream, flush=True)


class _BarStep(Step):
    """Phase with a progress bar. For terminals."""

    def __init__(self, name: str, total: int, unit: str, bars: "RichProgress") -> None:
        super().__init__(name, total, unit)
        self._bars = bars
        self._task: TaskID = bars.add_task(name, total=total or None, unit=unit, rate="")

    def advance(self, count: int) -> None:
        super().advance(count)
        rate = self.done / max(time.perf_counter() - self.started_at, 1e-9)
        self._bars.update(self._task, completed=self.done, rate=f"{rate:,.0f} {self.unit}/s")

    def set_total(self, total: int, unit: str) -> None:
        super().set_total(total, unit)
        self._bars.update(self._task, total=total or None, unit=unit)

    def finish(self) -> None:
        self._bars.update(self._task, completed=self.done, total=max(self.done, 1))
        self._bars.stop()


class Progress:
    """Progress of all phases of a command."""

    def __init__(self, *, quiet: bool = True, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, total: int = 0, unit: str = "files") -> Iterator[Step]:
        """Run one phase and add its time to `seconds`. A total of 0 means unknown."""
        step = self._step(name, total, unit)
        try:
            yield step
        finally:
            step.finish()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - step.started_at

    def note(self, text: str) -> None:
        """Print a note of one line."""
        if not self._quiet:
            print(f"gristmill: note: {text}", file=self._stream, flush=True)

    def _step(self, name: str, total: int, unit: str) -> Step:
        if self._quiet:
            return Step(name, total, unit)
        if not self._stream.isatty():
            return _LineStep(name, total, unit, self._stream)
        return _BarStep(name, total, unit, _bars(self._stream))


def _bars(stream: TextIO) -> "RichProgress":
    from rich.console import Console  # noqa: PLC0415 - needed on a terminal only
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    bars = RichProgress(
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
    bars.start()
    return bars
