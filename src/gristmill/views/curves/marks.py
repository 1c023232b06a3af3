"""Marks: straight lines through a panel, with their names where they cover no curve."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.views.curves.frame import TICK_SIZE, Frame
from gristmill.views.curves.panel import Mark, Panel
from gristmill.views.curves.scale import is_drawable
from gristmill.views.svg import shortened, text_width, words
from gristmill.views.theme import BACKGROUND, FAINT_INK

ROW_HEIGHT = 14
GAP = 8
MOST_ROWS = 4
"""Of names over a plot; a mark that has no room in these is drawn without its name."""
WIDEST = 0.6
"""Of the plot: a longer name is shortened."""


class Placed(NamedTuple):
    mark: Mark
    text: str
    left: float
    row: int


def drawn_marks(panel: Panel, axis: str) -> list[Mark]:
    log = panel.log_x if axis == "x" else panel.log_y
    return [mark for mark in panel.marks if mark.axis == axis and is_drawable(mark.at, log=log)]


def placed_names(marks: Sequence[Mark], frame: Frame) -> list[Placed]:
    """Names of upright marks, each in the lowest row over the plot where it has room."""
    ends: list[float] = []
    placed = []
    for mark in sorted(marks, key=lambda mark: mark.at):
        text = shortened(mark.name, frame.box.width * WIDEST, TICK_SIZE)
        width = text_width(text, TICK_SIZE)
        at = frame.x.scale.at(mark.at)
        left = min(max(at - width / 2, frame.box.left), frame.box.left + frame.box.width - width)
        row = next((row for row, end in enumerate(ends) if end + GAP <= left), len(ends))
        has_room = row < MOST_ROWS
        if has_room:
            ends[row : row + 1] = [left + width]
        placed.append(Placed(mark, text, left, row) if has_room else Placed(mark, "", left, 0))
    return placed


def height_of(placed: Sequence[Placed]) -> float:
    return ROW_HEIGHT * (1 + max((one.row for one in placed), default=-1))


def upright_parts(placed: Sequence[Placed], frame: Frame) -> Iterator[str]:
    bottom = frame.box.top + frame.box.height
    tops = [frame.box.top - ROW_HEIGHT * one.row for one in placed]
    for one, top in zip(placed, tops, strict=True):
        yield _stroke(f"M{frame.x.scale.at(one.mark.at):.1f} {bottom:.1f}V{top:.1f}")
    for one, top in zip(placed, tops, strict=True):
        yield _name(one.left, top - 3, one.text)


def level_parts(marks: Sequence[Mark], frame: Frame) -> Iterator[str]:
    """Names stand on their line, at the left."""
    left, _, width, _ = frame.box
    for mark in marks:
        at = frame.y.scale.at(mark.at)
        yield _stroke(f"M{left:.1f} {at:.1f}H{left + width:.1f}")
        yield _name(left + 4, at - 4, shortened(mark.name, width * WIDEST, TICK_SIZE))


def _name(x: float, y: float, text: str) -> str:
    """With a rim in the colour of the ground, which keeps it apart from what runs behind it."""
    rim = f'class="rim" stroke="{BACKGROUND}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f"<g {rim}>{words(x, y, text, faint=True, size=TICK_SIZE)}</g>"


def _stroke(path: str) -> str:
    return f'<path class="axis" d="{path}" stroke="{FAINT_INK}" stroke-dasharray="3 3" fill="none"/>'
