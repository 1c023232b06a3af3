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
"""Type of a runner's map method. Results are in the order of the tasks."""


class Step:
    """A running phase of a command. This class prints nothing. Its subclasses print bars or lines."""

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
    """Phase in a log: prints a line every five seconds, and a line at the end of a phase that took over a second."""

    def __init__(self, name: str, total: int, unit: str, stream: TextIO) -> None:
        super().__init__(name, total, unit)
        self._stream, self._last_line_at = stream, self.started_at

    def advance(self, count: int) -> None:
        super().advance(count)
        now = time.perf_counter()
        if now - self._last_line_at >= SECONDS_BETWEEN_LINES:
            self._last_line_at = now
            rate = self.done / (now - self.started_at)
            time_left = f", {(self.total - self.done) / rate:.0f} s left" if self.total and rate else ""
            done_of = f"{self.done:,} of " if self.total else ""
            print(
                f"{self.name}: {done_of}{counted_units(self.total or self.done, self.unit)}{time_left}",
                file=self._stream,
                flush=True,
            )

    def finish(self) -> None:
        seconds = time.perf_counter() - self.started_at
        if seconds >= 1:
            done = counted_units(self.done, self.unit) if self.done else "done"
            print(f"{self.name}: {done} in {seconds:.1f} s", file=self._stream, flush=True)


class _BarStep(Step):
    """Phase on a terminal: shows a progress bar."""

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
    """Display of a long operation's progress, for functions such as `build` and `check`.

    `Progress(quiet=False)` shows bars on a terminal and prints lines to a log. The default prints nothing. `stream`
    defaults to stderr. After the operation, `seconds` has the time of each phase.
    """

    def __init__(self, *, quiet: bool = True, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream or sys.stderr
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, total: int = 0, unit: str = "files") -> Iterator[Step]:
        """Display and time one phase. A `total` of 0 means that the total is unknown."""
        step = self._step(name, total, unit)
        try:
            yield step
        finally:
            step.finish()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - step.started_at

    def note(self, text: str) -> None:
        """Print a one-line note, unless `quiet`."""
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
