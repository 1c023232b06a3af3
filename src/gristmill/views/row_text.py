"""A row as text for a terminal, in color or with separators between the tokens.

Strokes contain only printable text, line feeds and tabs, so a file cannot control the terminal.
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
    RowView,
    Stroke,
    WindowView,
    has_lines,
    has_middle,
    has_special,
    has_unprintable,
    overlap_notes,
    row_facts,
    window_facts,
    window_name,
    window_starts,
)

TOKEN_SEPARATOR = "│"
"""Separates two tokens in output without color."""
SIGNS = {BEFORE: "«", AFTER: "»"}
"""Marks after the tokens shared with the previous window, and before the tokens shared with the next window."""
MIDDLE_SIGNS = ("▸", "◂")
"""Marks at the start and the end of the middle in a fill-in-the-middle window."""
LINE_FEED = "↵"
MIN_WIDTH = 20
TAB_WIDTH = 4

# ANSI styles use the palette of the terminal, so that text is readable on the terminal's background.
BOLD, FAINT, UNDERLINED, REVERSED = "1", "2", "4", "7"
SYNTAX_STYLES = {
    "keyword": "1;35",
    "name": "34",
    "builtin": "36",
    "string": "32",
    "comment": "3",
    "number": "33",
    "odd": "7;31",
}


class _StyledText(NamedTuple):
    """Text in one style. A line feed is always a separate item."""

    token: int
    style: str
    """ANSI style numbers, or empty for plain text."""
    text: str


class _Terminal(NamedTuple):
    color: bool
    width: int
    with_ids: bool

    def apply_style(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color and style and text else text

    def wrap(self, text: str, style: str = "") -> list[str]:
        return [self.apply_style(style, line) for line in textwrap.wrap(text, self.width)]


def row_text(view: RowView, *, color: bool, width: int, ids: bool = False) -> str:
    """Return a row as text for a terminal of the given width. With `ids`, each token is followed by its id."""
    terminal = _Terminal(color, max(width, MIN_WIDTH), ids)
    lines = terminal.wrap(", ".join(row_facts(view)))
    blocks = pairwise([0, *window_starts(view)[1:], len(view.tokens)])
    pieces = _styled_texts(view, terminal)
    windows: list[WindowView | None] = [*view.windows] or [None]
    for (_, end), window in zip(blocks, windows, strict=True):
        writer = _LineWriter(
            terminal, window if window is not None and has_lines(window) and view.note is None else None
        )
        while pieces and pieces[0].token < end:
            writer.write(pieces.popleft())
        lines += ["", *(_window_head(window, terminal) if window else []), *writer.finish()]
    return "\n".join([*lines, "", *_legend(view, terminal)]) + "\n"


def _window_head(window: WindowView, terminal: _Terminal) -> list[str]:
    return [*terminal.wrap(window_name(window), BOLD), *terminal.wrap(", ".join(window_facts(window)))]


def _legend(view: RowView, terminal: _Terminal) -> list[str]:
    notes = ["every second token is underlined"] if terminal.color else [f"{TOKEN_SEPARATOR}: between two tokens"]
    notes += [f"{LINE_FEED}: a line feed", *(["⟨9⟩: the id of a token"] if terminal.with_ids else [])]
    for flag, note in overlap_notes(view):
        marked = ("up to" if flag == BEFORE else "from") + f" {SIGNS[flag]}"
        notes.append(f"{marked}{', faint' if terminal.color and flag == BEFORE else ''}: {note}")
    if has_middle(view):
        notes.append(f"from {MIDDLE_SIGNS[0]} to {MIDDLE_SIGNS[1]}: the middle that the model fills in")
    if has_special(view):
        notes.append("reversed: a special token" if terminal.color else "names such as <s>: special tokens")
    if has_unprintable(view):
        notes.append("escapes such as \\u202e: unprintable characters")
    return [*(terminal.wrap(view.note) if view.note else []), *terminal.wrap("; ".join(notes) + ".", FAINT)]


def _styled_texts(view: RowView, terminal: _Terminal) -> deque[_StyledText]:
    strokes = {token: list(group) for token, group in groupby(view.strokes, key=attrgetter("token"))}
    # The first token of a window has no separator before it.
    signs = {0: ""} | dict.fromkeys(window_starts(view), "") | _signs(view)
    pieces: deque[_StyledText] = deque()
    for token in range(len(view.tokens)):
        sign = signs.get(token, "" if terminal.color else TOKEN_SEPARATOR)
        pieces += [_StyledText(token, FAINT, sign), *_token_texts(view, token, strokes.get(token, []), terminal)]
    return pieces


def _token_texts(view: RowView, token: int, strokes: list[Stroke], terminal: _Terminal) -> list[_StyledText]:
    """Return the text of a token, with its id if requested. The id precedes a final line feed."""
    token_id, flags = view.tokens[token]
    pieces = [
        _StyledText(token, _style(stroke, token, flags), part) for stroke in strokes for part in _parts(stroke.text)
    ]
    if terminal.with_ids:
        at = len(pieces) - (bool(pieces) and pieces[-1].text == "\n")
        pieces.insert(at, _StyledText(token, FAINT, f"⟨{token_id}⟩"))
    return pieces


def _parts(text: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n")):
        if number:
            yield "\n"
        if line:
            yield line


def _style(stroke: Stroke, token: int, flags: int) -> str:
    syntax = f"{BOLD};{REVERSED}" if flags & SPECIAL else SYNTAX_STYLES.get(stroke.kind, "")
    styles = (syntax, UNDERLINED if token % 2 else "", FAINT if flags & BEFORE else "")
    return ";".join(style for style in styles if style)


def _signs(view: RowView) -> dict[int, str]:
    """Return overlap and middle marks, keyed by the index of the token that follows the mark."""
    signs: dict[int, str] = {}
    for window in view.windows:
        if window.shared_before:
            signs[window.at + window.shared_before] = SIGNS[BEFORE]
        if window.shared_after:
            at = window.at + window.length - window.shared_after
            signs[at] = signs.get(at, "") + SIGNS[AFTER]
    is_middle = [False, *(bool(flags & MIDDLE) for _, flags in view.tokens), False]
    for token, (before, after) in enumerate(pairwise(is_middle)):
        if before != after:
            signs[token] = signs.get(token, "") + MIDDLE_SIGNS[before]
    return signs


class _LineWriter:
    """Wraps styled text to the width of the terminal, with line numbers in the margin."""

    def __init__(self, terminal: _Terminal, numbered_window: WindowView | None) -> None:
        """`numbered_window` is the window whose lines are numbered, or None for text without line numbers."""
        self._terminal, self._numbered_window = terminal, numbered_window
        self._number = numbered_window.lines[0] if numbered_window else 0
        self._margin = len(str(numbered_window.lines[1])) + 1 if numbered_window else 0
        self._lines: list[str] = []
        self._begin(f"{self._number} " if numbered_window else "")

    def write(self, piece: _StyledText) -> None:
        if piece.text == "\n":
            self._append(FAINT, LINE_FEED)
            if self._numbered_window is not None and piece.token >= self._numbered_window.at:
                self._number += 1
            else:  # text before the first token of the window is not a line of the window
                self._parts[0] = " " * self._margin
            self._end_line(f"{self._number} " if self._numbered_window else "")
        else:
            self._append(piece.style, piece.text)

    def finish(self) -> list[str]:
        if self._column > self._margin:
            self._end_line("")
        return self._lines

    def _append(self, style: str, text: str) -> None:
        piece = ""
        for character in text:
            cells, width = _cells(character)
            if self._column + width > self._terminal.width:
                self._parts.append(self._terminal.apply_style(style, piece))
                piece = ""
                self._end_line("")
            piece += cells
            self._column += width
        self._parts.append(self._terminal.apply_style(style, piece))

    def _begin(self, number: str) -> None:
        self._parts, self._column = [self._terminal.apply_style(FAINT, number.rjust(self._margin))], self._margin

    def _end_line(self, next_number: str) -> None:
        self._lines.append("".join(self._parts))
        self._begin(next_number)


@cache
def _cells(character: str) -> tuple[str, int]:
    """Return the displayed text of a character and its width in terminal cells. A tab is always four spaces."""
    from rich.cells import cell_len  # noqa: PLC0415 - only needed to display a row

    return (" " * TAB_WIDTH, TAB_WIDTH) if character == "\t" else (character, cell_len(character))
