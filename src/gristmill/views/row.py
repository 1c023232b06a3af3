"""One row prepared for display: its windows, its tokens and its text.

The text is split into strokes. A stroke ends where a token ends or the syntax kind changes.

view = view_row(open_dataset("dataset"), "test", 12)
"".join(stroke.text for stroke in view.strokes)
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import msgspec

from gristmill.core.errors import InputError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, printable
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, FimForm, Split
from gristmill.dataset.dataset import Dataset, Rows
from gristmill.dataset.row_windows import Window, read_row
from gristmill.tokenizers.tokenizer import Tokenizer
from gristmill.views.syntax import highlight
from gristmill.views.token_text import REPLACEMENT, Piece, decode_pieces, tokenizer_note

SPECIAL, BEFORE, AFTER, MIDDLE = 1, 2, 4, 8
"""Bit flags of a token. SPECIAL marks special tokens. BEFORE marks tokens that are also in the previous window of the
file, and AFTER tokens that are also in the next window. MIDDLE marks the middle of a fill-in-the-middle window."""
UNPRINTABLE = "odd"
"""Stroke kind of escaped unprintable characters."""
TokenFlags = tuple[int, int]
"""Id and bit flags of a token."""


class Stroke(NamedTuple):
    """Characters of one token that have the same syntax kind. The joined strokes of a row are its displayed text."""

    token: int
    """Index into the tokens of the row."""
    kind: str
    r"""Syntax kind, or `odd` for an escape like \u202e that replaces an unprintable character."""
    text: str
    """Text that contains only printable characters, line feeds and tabs."""


class WindowView(Window, frozen=True, kw_only=True):
    """A window, and the sizes of its overlaps with the previous and the next window of the file."""

    shared_before: int
    """Number of tokens at the start of this window that are also in the previous window."""
    shared_after: int
    """Number of tokens at the end of this window that are also in the next window."""


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """A row prepared for display. `gristmill show --json` and the viewer encode it as JSON."""

    split: str
    row: int
    """Index of the row in its split, from 0."""
    num_rows: int
    """Number of rows in the split."""
    num_ids: int
    """Number of ids, including special tokens, excluding padding."""
    num_room: int | None
    """Maximum number of ids in a row. None if a row is a document of any length."""
    num_windows: int
    """Number of windows in the row. If windows are packed, a row may have several."""
    windows: list[WindowView]
    """The windows in their order in the row. Fewer than `num_windows` if the row is truncated for display."""
    tokens: list[TokenFlags]
    """Tokens without padding."""
    strokes: list[Stroke]
    note: str | None
    """Note on how the displayed text differs from the row, or None if it does not."""


def view_row(dataset: Dataset, split: str, row: int, tokenizer: Tokenizer | None = None) -> RowView:
    """Prepare one row for display.

    Pass `tokenizer` to reuse an open tokenizer. Opening a tokenizer takes longer than reading a row.
    """
    with dataset.edition.guard_reading():
        return _view_row(dataset, split, row, tokenizer)


def _view_row(dataset: Dataset, split: str, row: int, tokenizer: Tokenizer | None) -> RowView:
    rows = _rows(dataset, split, row)
    ids, windows, _ = read_row(dataset, split, row)
    tokenizer = tokenizer or dataset.tokenizer
    pieces = decode_pieces(ids, tokenizer)
    window_views = [_window_view(window, _shared_tokens(dataset, split, row, window)) for window in windows]
    return RowView(
        split=str(split),
        row=row,
        num_rows=len(rows),
        num_ids=len(ids),
        num_room=None if dataset.record.has_documents else dataset.record.window_length,
        num_windows=len(window_views),
        windows=window_views,
        tokens=_token_flags(pieces, window_views),
        strokes=list(_row_strokes(pieces, window_views)),
        note=tokenizer_note(tokenizer),
    )


def view_tokens(
    ids: Iterable[int], tokenizer: Tokenizer, language: str, path: str
) -> tuple[list[TokenFlags], list[Stroke]]:
    """Prepare the tokens of one file for display. Return the id and flags of each token, and all strokes."""
    pieces = decode_pieces(ids, tokenizer)
    return _token_flags(pieces, []), list(_strokes(pieces, 0, language, path))


def _rows(dataset: Dataset, split: str, row: int) -> Rows:
    if split not in list(Split):
        raise InputError(f"there is no split {split!r}. The splits are {', '.join(Split)}.")
    rows = dataset[split]
    if not 0 <= row < len(rows):
        found = f"{counted(len(rows), 'row')}, numbered from 0" if len(rows) else "no rows"
        raise InputError(f"row {row} does not exist: {split} has {found}.")
    return rows


def _shared_tokens(dataset: Dataset, split: str, row: int, window: Window) -> tuple[int, int]:
    """Return the number of tokens that the window shares with the previous and with the next window of its file.

    If windows are packed, the number for the next window is unknown and returned as 0. Otherwise, the previous and the
    next window are in the rows before and after.
    """
    if window.is_altered or not isinstance(dataset.record, Manifest):
        return 0, 0
    if dataset.record.packing is not None:
        # The neighbors may be in any row. But `fresh` is the number of tokens at the end of the window that are in no
        # earlier window, so all tokens before these are also in the previous window. In a repeat, `fresh` is always 0.
        return (0, 0) if window.repeat else (window.length - min(max(window.fresh, 0), window.length), 0)
    before, after = (_neighbor(dataset, split, number, window) for number in (row - 1, row + 1))
    return _overlap(before, window), _overlap(window, after)


def _neighbor(dataset: Dataset, split: str, row: int, window: Window) -> Window | None:
    """Return the first window of a row if it belongs to the same text as `window`, otherwise None."""
    if not 0 <= row < len(dataset[split]):
        return None
    found = read_row(dataset, split, row).windows[0]
    names = ("repo", "path", "variant", "repeat", "is_altered")
    return found if all(getattr(found, name) == getattr(window, name) for name in names) else None


def _overlap(first: Window | None, second: Window | None) -> int:
    if first is None or second is None or first.start > second.start:
        return 0
    return max(min(first.end, second.end) - second.start, 0)


def _window_view(window: Window, shared: tuple[int, int]) -> WindowView:
    return WindowView(**msgspec.structs.asdict(window), shared_before=shared[0], shared_after=shared[1])


def _token_flags(pieces: Sequence[Piece], windows: Iterable[WindowView]) -> list[TokenFlags]:
    flags = [SPECIAL if piece.is_special else 0 for piece in pieces]
    for window in windows:
        end = window.at + window.length
        for index in range(window.at, window.at + window.shared_before):
            flags[index] |= BEFORE
        for index in range(end - window.shared_after, end):
            flags[index] |= AFTER
        while window.fim and end > window.at and flags[end - 1] & SPECIAL:  # an end token follows the middle
            end -= 1
        for index in range(max(window.at, end - window.middle_tokens), end):
            flags[index] |= MIDDLE
    return [(piece.id, flag) for piece, flag in zip(pieces, flags, strict=True)]


def _row_strokes(pieces: Sequence[Piece], windows: Iterable[WindowView]) -> Iterator[Stroke]:
    """Yield the strokes of a row. Text in a window is highlighted in the window's language. Other text is plain."""
    done = 0
    for window in windows:
        end = window.at + window.length
        yield from _strokes(pieces[done : window.at], done, "", "")
        yield from _strokes(pieces[window.at : end], window.at, window.language, window.path)
        done = end
    yield from _strokes(pieces[done:], done, "", "")


def _strokes(pieces: Sequence[Piece], first: int, language: str, path: str) -> Iterator[Stroke]:
    """Split the text of tokens wherever a token ends or the syntax kind changes."""
    runs = highlight("".join(piece.text for piece in pieces if not piece.is_special), language, path)
    ends = list(accumulate(len(text) for _, text in runs))
    at = run = 0
    for token, piece in enumerate(pieces, first):
        if piece.is_special:
            yield Stroke(token, "", printable(piece.text))
            continue
        start, end = at, at + len(piece.text)
        while at < end:
            run += ends[run] <= at
            stop = min(end, ends[run])
            yield from _printable_strokes(token, runs[run][0], piece.text[at - start : stop - start])
            at = stop


def _printable_strokes(token: int, kind: str, text: str) -> Iterator[Stroke]:
    for is_unprintable, characters in groupby(text, key=_is_unprintable):
        part = "".join(characters)
        yield Stroke(token, UNPRINTABLE, printable(part)) if is_unprintable else Stroke(token, kind, part)


def _is_unprintable(character: str) -> bool:
    return character == REPLACEMENT or not (character.isprintable() or character in "\n\t")


# Descriptions of a row for text, HTML and notebooks: its facts, and the legend of its marks.


def _row_name(view: RowView) -> str:
    """Return the name of the row as `gristmill show` takes it, like `test:12`."""
    return f"{view.split}:{view.row}"


def row_facts(view: RowView) -> list[str]:
    windows = [counted(view.num_windows, "window")] if view.num_windows != 1 else []
    return [
        f"row {_row_name(view)} of {view.num_rows:,}",
        counted(view.num_ids, "token")
        if view.num_room is None
        else f"{counted(view.num_ids, 'id')} of at most {view.num_room:,}",
        *windows,
    ]


def window_name(window: WindowView) -> str:
    return printable(f"{window.repo}/{window.path}")


def window_facts(window: WindowView) -> list[str]:
    return [
        *([_lines_text(window)] if _has_build_facts(window) else []),
        *([printable(window.language)] if window.language else []),
        f"{counted(window.length, 'token')} from position {window.start:,}",
        *([f"{window.fresh:,} fresh"] if _has_build_facts(window) else []),
        *([f"variant {printable(window.variant)}"] if window.variant else []),
        *([_fim_text(window)] if window.fim else []),
        *([counted(window.repeat, "earlier occurrence")] if window.repeat else []),
    ]


def _fim_text(window: WindowView) -> str:
    order = "suffix first" if window.fim == FimForm.SPM else "prefix first"
    middle = counted(window.middle_tokens, "token")
    return f"fill-in-the-middle, {order}, middle of {middle} ({printable(window.middle)})"


def _lines_text(window: WindowView) -> str:
    first, last = window.lines
    suffix = " of the variant" if _has_own_text(window) else ""
    return (f"line {first:,}" if first == last else f"lines {first:,} to {last:,}") + suffix


def _has_build_facts(window: Window) -> bool:
    """Return True if the row records its lines and number of fresh tokens. Rows that no build wrote may lack both."""
    return window.lines[0] > 0


def _has_own_text(window: WindowView) -> bool:
    """Return True if the window is from a variant with a text of its own, so its lines are not those of the file."""
    return bool(window.variant) and window.variant not in INDEPENDENT_WINDOW_KINDS


def has_lines(window: Window) -> bool:
    """Return True if the window is an unaltered part of the file or of a variant, and its lines are recorded."""
    return _has_build_facts(window) and not window.is_altered


def window_starts(view: RowView) -> list[int]:
    """Return the token index at which each window begins for display.

    Special tokens and text before a window are displayed as part of it, but an end token as part of the window before.
    """
    starts: list[int] = []
    end = 0
    for window in view.windows:
        gap = view.tokens[end : window.at]
        # The first special token after a window is its end token, except if text follows, such as a file name.
        has_end_token = bool(starts) and bool(gap) and all(flags & SPECIAL for _, flags in gap[:2])
        starts.append(end + has_end_token)
        end = window.at + window.length
    return starts


def overlap_notes(view: RowView) -> Iterator[tuple[int, str]]:
    """Yield the flag and the explanation of each overlap mark that occurs in the row."""
    marks = {flag for _, flags in view.tokens for flag in (BEFORE, AFTER) if flags & flag}
    before = sum(window.shared_before for window in view.windows)
    after = sum(window.shared_after for window in view.windows)
    if BEFORE in marks:
        yield BEFORE, f"{counted(before, 'token')} shared with the previous window"
    if AFTER in marks:
        yield AFTER, f"{counted(after, 'token')} shared with the next window"


def has_middle(view: RowView) -> bool:
    return any(flags & MIDDLE for _, flags in view.tokens)


def has_special(view: RowView) -> bool:
    return any(flags & SPECIAL for _, flags in view.tokens)


def has_unprintable(view: RowView) -> bool:
    return any(stroke.kind == UNPRINTABLE for stroke in view.strokes)
