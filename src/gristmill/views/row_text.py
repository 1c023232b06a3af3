"""A row as text for a terminal: in colours, or with signs between the tokens where there are none.

Nothing of a file reaches the terminal but what can be printed: strokes hold nothing else.
"""

import textwrap
from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from gristmill.views.row import (
    AFTER,
    BEFORE,
    MIDDLE,
    SPECIAL,
    RowLook,
    Stroke,
    WindowLook,
    has_lines,
    has_middle,
    has_odd,
    has_special,
    row_facts,
    shared_words,
    window_edges,
    window_facts,
    window_name,
)

BETWEEN = "│"
"""Between two tokens, where there are no colours."""
SIGNS = {BEFORE: "«", AFTER: "»"}
"""Where what the window before shows ends, and where what the one after shows begins."""
MIDDLE_SIGNS = ("▸", "◂")
"""Around the middle of fill in the middle."""
FEED = "↵"
NARROWEST = 20
TAB = 4

# The terminal's own colours: readable on its own paper, whether that is light or dark.
BOLD, FAINT, UNDERLINED, REVERSED = "1", "2", "4", "7"
INKS = {
    "keyword": "1;35",
    "name": "34",
    "builtin": "36",
    "string": "32",
    "comment": "3",
    "number": "33",
    "odd": "7;31",
}


class _Inked(NamedTuple):
    """Text in one style: a line feed by itself, or none in it."""

    token: int
    style: str
    """As a terminal's escapes number them; empty: as it is."""
    text: str


class _Pen(NamedTuple):
    colour: bool
    width: int
    with_ids: bool

    def draw(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.colour and style and text else text

    def words(self, text: str, style: str = "") -> list[str]:
        return [self.draw(style, line) for line in textwrap.wrap(text, self.width)]


def row_text(look: RowLook, *, colour: bool, width: int, ids: bool = False) -> str:
    pen = _Pen(colour, max(width, NARROWEST), ids)
    lines = pen.words(", ".join(row_facts(look)))
    blocks = pairwise([0, *window_edges(look)[1:], len(look.tokens)])
    inked = _inked(look, pen)
    windows: list[WindowLook | None] = [*look.windows] or [None]
    for (_, end), window in zip(blocks, windows, strict=True):
        sheet = _Sheet(pen, window if window is not None and has_lines(window) and look.note is None else None)
        while inked and inked[0].token < end:
            sheet.write(inked.popleft())
        lines += ["", *(_head(window, pen) if window else []), *sheet.done()]
    return "\n".join([*lines, "", *_foot(look, pen)]) + "\n"


def _head(window: WindowLook, pen: _Pen) -> list[str]:
    return [*pen.words(window_name(window), BOLD), *pen.words(", ".join(window_facts(window)))]


def _foot(look: RowLook, pen: _Pen) -> list[str]:
    told = ["every second token is underlined"] if pen.colour else [f"{BETWEEN} between tokens"]
    told += [f"{FEED} a line feed", *(["⟨9⟩ the id of a token"] if pen.with_ids else [])]
    for flag, words in shared_words(look):
        where = ("up to" if flag == BEFORE else "from") + f" {SIGNS[flag]}"
        told.append(f"{where}{', faint' if pen.colour and flag == BEFORE else ''}: {words}")
    if has_middle(look):
        told.append(f"from {MIDDLE_SIGNS[0]} to {MIDDLE_SIGNS[1]}: the middle, which the model fills in")
    if has_special(look):
        told.append(f"{'reversed' if pen.colour else 'like <s>'}: a special token")
    if has_odd(look):
        told.append("like \\u202e: stands for what cannot be shown")
    return [*(pen.words(look.note) if look.note else []), *pen.words("; ".join(told) + ".", FAINT)]


def _inked(look: RowLook, pen: _Pen) -> deque[_Inked]:
    strokes = {token: list(own) for token, own in groupby(look.strokes, key=attrgetter("token"))}
    # Nothing stands between a head and what it is over.
    signs = {0: ""} | dict.fromkeys(window_edges(look), "") | _signs(look)
    inked: deque[_Inked] = deque()
    for token in range(len(look.tokens)):
        sign = signs.get(token, "" if pen.colour else BETWEEN)
        inked += [_Inked(token, FAINT, sign), *_token(look, token, strokes.get(token, []), pen)]
    return inked


def _token(look: RowLook, token: int, strokes: list[Stroke], pen: _Pen) -> list[_Inked]:
    """All of it, with its id before the line feed that may end it."""
    index, flags = look.tokens[token]
    inked = [_Inked(token, _style(stroke, token, flags), part) for stroke in strokes for part in _parts(stroke.text)]
    if pen.with_ids:
        at = len(inked) - (bool(inked) and inked[-1].text == "\n")
        inked.insert(at, _Inked(token, FAINT, f"⟨{index}⟩"))
    return inked


def _parts(text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n")):
        if number:
            yield "\n"
        if line:
            yield line


def _style(stroke: Stroke, token: int, flags: int) -> str:
    ink = f"{BOLD};{REVERSED}" if flags & SPECIAL else INKS.get(stroke.kind, "")
    styles = (ink, UNDERLINED if token % 2 else "", FAINT if flags & BEFORE else "")
    return ";".join(style for style in styles if style)


def _signs(look: RowLook) -> dict[int, str]:
    """By the token that each stands before."""
    signs: dict[int, str] = {}
    for window in look.windows:
        if window.shared_before:
            signs[window.at + window.shared_before] = SIGNS[BEFORE]
        if window.shared_after:
            at = window.at + window.length - window.shared_after
            signs[at] = signs.get(at, "") + SIGNS[AFTER]
    is_middle = [False, *(bool(flags & MIDDLE) for _, flags in look.tokens), False]
    for token, (before, after) in enumerate(pairwise(is_middle)):
        if before != after:
            signs[token] = signs.get(token, "") + MIDDLE_SIGNS[before]
    return signs


class _Sheet:
    """Lines no wider than the pen's, with the numbers of a window's lines before them."""

    def __init__(self, pen: _Pen, numbered: WindowLook | None) -> None:
        self._pen, self._numbered = pen, numbered
        self._number = numbered.lines[0] if numbered else 0
        self._margin = len(str(numbered.lines[1])) + 1 if numbered else 0
        self._lines: list[str] = []
        self._begin(f"{self._number} " if numbered else "")

    def write(self, inked: _Inked) -> None:
        if inked.text == "\n":
            self._put(FAINT, FEED)
            if self._numbered is not None and inked.token >= self._numbered.at:
                self._number += 1
            else:  # what stands before a window's first token is not of its lines
                self._parts[0] = " " * self._margin
            self._end_line(f"{self._number} " if self._numbered else "")
        else:
            self._put(inked.style, inked.text)

    def done(self) -> list[str]:
        if self._column > self._margin:
            self._end_line("")
        return self._lines

    def _put(self, style: str, text: str) -> None:
        piece = ""
        for character in text:
            shown, width = _cells(character)
            if self._column + width > self._pen.width:
                self._parts.append(self._pen.draw(style, piece))
                piece = ""
                self._end_line("")
            piece += shown
            self._column += width
        self._parts.append(self._pen.draw(style, piece))

    def _begin(self, number: str) -> None:
        self._parts, self._column = [self._pen.draw(FAINT, number.rjust(self._margin))], self._margin

    def _end_line(self, next_number: str) -> None:
        self._lines.append("".join(self._parts))
        self._begin(next_number)


@cache
def _cells(character: str) -> tuple[str, int]:
    """As it is drawn, and how wide: a tab takes four, whatever comes before it."""
    from rich.cells import cell_len  # noqa: PLC0415 - only where a row is shown

    return (" " * TAB, TAB) if character == "\t" else (character, cell_len(character))
