"""The legend: every name once, with its colour, marker and dash, for charts whose lines have no room for names."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.views.curves.labels import named_lines
from gristmill.views.curves.panel import Line, Panel, styles_of
from gristmill.views.svg import shortened, text_width, words
from gristmill.views.theme import DASHED, Style

ROW_HEIGHT = 20
SWATCH_WIDTH = 26
GAP = 18


class Entry(NamedTuple):
    line: Line
    style: Style


class PlacedEntry(NamedTuple):
    entry: Entry
    text: str
    left: float
    row: int


def entries_of(panels: Sequence[Panel]) -> list[Entry]:
    """In the order of the styles; what has nothing to show has no entry."""
    lines: dict[str, Line] = {}
    for panel in panels:
        for line in named_lines(panel):
            lines.setdefault(line.name, line)
    return [Entry(lines[name], style) for name, style in styles_of(panels).items() if name in lines]


def placed_entries(entries: Sequence[Entry], width: float) -> list[PlacedEntry]:
    """In rows, as many to a row as fit; a name is at most half as wide as all."""
    placed: list[PlacedEntry] = []
    left, row = 0.0, 0
    for entry in entries:
        text = shortened(entry.line.name, width / 2 - SWATCH_WIDTH - GAP)
        needed = SWATCH_WIDTH + text_width(text) + GAP
        if left and left + needed > width:
            left, row = 0.0, row + 1
        placed.append(PlacedEntry(entry, text, left, row))
        left += needed
    return placed


def height_of(placed: Sequence[PlacedEntry]) -> float:
    return ROW_HEIGHT * (placed[-1].row + 1) if placed else 0.0


def legend_parts(placed: Sequence[PlacedEntry], left: float, top: float) -> Iterator[str]:
    for one in placed:
        x, y = left + one.left, top + one.row * ROW_HEIGHT + ROW_HEIGHT / 2
        yield swatch(one.entry, x, y)
        yield words(x + SWATCH_WIDTH, y + 4, one.text)


def swatch(entry: Entry, x: float, y: float) -> str:
    """A piece of the line, with its marker on it."""
    line, style = entry
    dash = DASHED if line.dashed else style.dash
    pen = f'stroke-width="1.8"{f""" stroke-dasharray="{dash}" """.rstrip() if dash else ""}'
    piece = f'<path d="M{x:.1f} {y:.1f}h20" fill="none" stroke="currentColor" {pen}/>'
    marker = f'<path d="M{x + 10:.1f} {y:.1f}{style.marker}" fill="currentColor"/>'
    return f'<g class="line{style.place}" color="{style.colour}">{piece}{"" if line.faint else marker}</g>'
