"""What is drawn: points make lines, lines make a panel, and the panels of a chart share one style per name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gristmill.core.errors import GristmillError
from gristmill.core.names import counted
from gristmill.views.theme import Style


class Point(NamedTuple):
    x: float
    y: float
    """A value that is not finite, or not above zero on a log scale, is a gap."""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    """Lines of one name look alike in every panel, and the name is told once."""
    points: Sequence[Point]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """The edges of a band around the line, one for each point."""
    faint: bool = False
    dashed: bool = False

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise GristmillError(f"A band of line {self.name!r} has one edge; give both low and high, or neither.")
        for edge in (self.low, self.high):
            if edge is not None and len(edge) != len(self.points):
                counts = f"{counted(len(self.points), 'point')} and a band of {len(edge)}"
                raise GristmillError(f"Line {self.name!r} has {counts}; give each point a low and a high.")

    def band(self) -> Iterator[tuple[float, float, float]]:
        """Each x with its low and high; nothing for a line without a band."""
        if self.low is not None and self.high is not None:
            for point, low, high in zip(self.points, self.low, self.high, strict=True):
                yield point.x, low, high


class Mark(NamedTuple):
    """A straight line through the whole panel: `Mark("best, epoch 31", 31)` stands, `Mark("chance", 0.5, "y")` lies."""

    name: str
    at: float
    axis: Literal["x", "y"] = "x"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_y: bool = False
    log_x: bool = False
    marks: Sequence[Mark] = ()


def styles_of(panels: Sequence[Panel]) -> dict[str, Style]:
    """By name, in the order in which names first come."""
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return {name: Style(number) for number, name in enumerate(names)}
