"""One panel, drawn into its box."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gristmill.views.curves.frame import LEAST_RIGHT, Box, Frame, frame_of, frame_parts
from gristmill.views.curves.labels import Label, label_parts, labels_of, room_for_labels
from gristmill.views.curves.lines import line_parts
from gristmill.views.curves.marks import drawn_marks, height_of, level_parts, placed_names, upright_parts
from gristmill.views.curves.panel import Panel
from gristmill.views.theme import Style


class Plot(NamedTuple):
    panel: Panel
    box: Box
    right: float
    """Left free beside the plot, for labels."""
    above: float
    """And above it, for names of marks."""

    @property
    def frame(self) -> Frame:
        return frame_of(self.panel, self.box, right=self.right, above=self.above)


def plot_of(panel: Panel, box: Box, *, with_labels: bool) -> Plot:
    right = room_for_labels(panel, box.width) if with_labels else None
    plot = Plot(panel, box, right or LEAST_RIGHT, above=0.0)
    return plot._replace(above=height_of(placed_names(drawn_marks(panel, "x"), plot.frame)))


def aligned(plots: Sequence[Plot]) -> Iterator[Plot]:
    """Side by side, plots begin at the same height."""
    for plot in plots:
        yield plot._replace(above=max(other.above for other in plots if other.box.top == plot.box.top))


def labels_fit(panel: Panel, box: Box) -> bool:
    """Does every line have room for its name at its end?"""
    if room_for_labels(panel, box.width) is None:
        return False
    return labels_of(panel, plot_of(panel, box, with_labels=True).frame) is not None


def plot_parts(plot: Plot, styles: Mapping[str, Style], num_lines: int, *, with_labels: bool) -> Iterator[str]:
    """`num_lines` are those of the whole picture, which share its size."""
    panel, frame = plot.panel, plot.frame
    yield from frame_parts(panel, frame, plot.box)
    if frame.is_empty:
        return
    yield from upright_parts(placed_names(drawn_marks(panel, "x"), frame), frame)
    # Faint lines first: what matters lies on top.
    for line in sorted(panel.lines, key=lambda line: not line.faint):
        yield from line_parts(line, panel, frame, styles[line.name], num_lines)
    yield from level_parts(drawn_marks(panel, "y"), frame)
    if with_labels:
        yield from label_parts(_labels(panel, frame), frame, styles)


def _labels(panel: Panel, frame: Frame) -> Sequence[Label]:
    return labels_of(panel, frame) or ()
