"""One row as it can be drawn: its windows, its tokens, and strokes of text with a token and a kind of syntax each.

look = look_at(open_dataset("dataset"), "test", 12)
"".join(stroke.text for stroke in look.strokes)
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import msgspec

from gristmill.core.errors import InputError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, printable
from gristmill.core.records import BY_THEMSELVES, FimForm, Split
from gristmill.dataset.dataset import Dataset, Rows
from gristmill.dataset.row_windows import Window, read_row
from gristmill.tokenizers.tokenizer import Tokenizer
from gristmill.views.syntax import syntax_of
from gristmill.views.token_text import STAND_IN, Piece, note_on, pieces_of

SPECIAL, BEFORE, AFTER, MIDDLE = 1, 2, 4, 8
"""Flags of a token: it is special; the window before or after it, of the same file, shows it too; it is in the middle
of fill in the middle."""
ODD = "odd"
TokenFlags = tuple[int, int]
"""Id and flags."""


class Stroke(NamedTuple):
    """A piece of text; strokes are drawn one after the other."""

    token: int
    """Index into the tokens."""
    kind: str
    r"""Of syntax; or `odd`: a stand-in, like \u202e, for what cannot be shown."""
    text: str
    """Never unprintable but for line feeds and tabs."""


class WindowLook(Window, frozen=True, kw_only=True):
    shared_before: int
    """So many of its tokens, at its start, the window before it shows too."""
    shared_after: int
    """And at its end the window after it."""


class RowLook(msgspec.Struct, frozen=True, kw_only=True):
    split: str
    row: int
    num_rows: int
    """In the split."""
    num_ids: int
    """With special tokens, without padding."""
    num_room: int
    """Ids that a row takes at most."""
    num_windows: int
    """That share the row, or one."""
    windows: list[WindowLook]
    """All of them, unless the look is cut short."""
    tokens: list[TokenFlags]
    """Without padding."""
    strokes: list[Stroke]
    note: str | None
    """What to know of the text."""


def look_at(dataset: Dataset, split: str, row: int, tokenizer: Tokenizer | None = None) -> RowLook:
    """With the dataset's tokenizer, which takes longer to open than a row: who looks at many has it open."""
    with dataset.edition.reading():
        return _look_at(dataset, split, row, tokenizer)


def _look_at(dataset: Dataset, split: str, row: int, tokenizer: Tokenizer | None) -> RowLook:
    rows = _rows(dataset, split, row)
    ids, windows, _ = read_row(dataset, split, row)
    tokenizer = tokenizer or dataset.tokenizer
    pieces = pieces_of(ids, tokenizer)
    looks = [_window_look(window, _shared(dataset, split, row, window)) for window in windows]
    return RowLook(
        split=str(split),
        row=row,
        num_rows=len(rows),
        num_ids=len(ids),
        num_room=dataset.record.window_length,
        num_windows=len(looks),
        windows=looks,
        tokens=_flagged(pieces, looks),
        strokes=list(_row_strokes(pieces, looks)),
        note=note_on(tokenizer),
    )


def look_at_tokens(
    ids: Iterable[int], tokenizer: Tokenizer, language: str, path: str
) -> tuple[list[TokenFlags], list[Stroke]]:
    """The same for tokens of one file, wherever they are from."""
    pieces = pieces_of(ids, tokenizer)
    return _flagged(pieces, []), list(_strokes(pieces, 0, language, path))


def _rows(dataset: Dataset, split: str, row: int) -> Rows:
    if split not in list(Split):
        raise InputError(f"there is no split {split!r}: there are {', '.join(Split)}.")
    rows = dataset[split]
    if not 0 <= row < len(rows):
        there = f"{counted(len(rows), 'row')}, counted from 0" if len(rows) else "no rows"
        raise InputError(f"{split} has {there}: there is no row {row}.")
    return rows


def _shared(dataset: Dataset, split: str, row: int, window: Window) -> tuple[int, int]:
    """Tokens that the window before shows too, and the one after: builds have those of one file stand together."""
    if window.is_alone or not isinstance(dataset.record, Manifest):
        return 0, 0
    if dataset.record.packing is not None:
        # Its neighbours may be in any row. What is fresh tells of the one before, unless all of it was shown before.
        return (0, 0) if window.repeat else (window.length - min(max(window.fresh, 0), window.length), 0)
    before, after = (_neighbour(dataset, split, number, window) for number in (row - 1, row + 1))
    return _overlap(before, window), _overlap(window, after)


def _neighbour(dataset: Dataset, split: str, row: int, window: Window) -> Window | None:
    """The window in this row, if it is of the same text."""
    if not 0 <= row < len(dataset[split]):
        return None
    found = read_row(dataset, split, row).windows[0]
    names = ("repo", "path", "variant", "repeat", "is_alone")
    return found if all(getattr(found, name) == getattr(window, name) for name in names) else None


def _overlap(first: Window | None, second: Window | None) -> int:
    if first is None or second is None or first.start > second.start:
        return 0
    return max(min(first.end, second.end) - second.start, 0)


def _window_look(window: Window, shared: tuple[int, int]) -> WindowLook:
    return WindowLook(**msgspec.structs.asdict(window), shared_before=shared[0], shared_after=shared[1])


def _flagged(pieces: Sequence[Piece], windows: Iterable[WindowLook]) -> list[TokenFlags]:
    flags = [SPECIAL if piece.is_special else 0 for piece in pieces]
    for window in windows:
        end = window.at + window.length
        for index in range(window.at, window.at + window.shared_before):
            flags[index] |= BEFORE
        for index in range(end - window.shared_after, end):
            flags[index] |= AFTER
        while window.fim and end > window.at and flags[end - 1] & SPECIAL:  # an end token behind the middle
            end -= 1
        for index in range(max(window.at, end - window.middle_tokens), end):
            flags[index] |= MIDDLE
    return [(piece.id, flag) for piece, flag in zip(pieces, flags, strict=True)]


def _row_strokes(pieces: Sequence[Piece], windows: Iterable[WindowLook]) -> Iterator[Stroke]:
    """Each window with the syntax of its language; what lies between them has none."""
    done = 0
    for window in windows:
        end = window.at + window.length
        yield from _strokes(pieces[done : window.at], done, "", "")
        yield from _strokes(pieces[window.at : end], window.at, window.language, window.path)
        done = end
    yield from _strokes(pieces[done:], done, "", "")


def _strokes(pieces: Sequence[Piece], first: int, language: str, path: str) -> Iterator[Stroke]:
    """Cut wherever a token or a run of syntax ends."""
    runs = syntax_of("".join(piece.text for piece in pieces if not piece.is_special), language, path)
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
            yield from _drawn(token, runs[run][0], piece.text[at - start : stop - start])
            at = stop


def _drawn(token: int, kind: str, text: str) -> Iterator[Stroke]:
    for is_odd, characters in groupby(text, key=_is_odd):
        part = "".join(characters)
        yield Stroke(token, ODD, printable(part)) if is_odd else Stroke(token, kind, part)


def _is_odd(character: str) -> bool:
    return character == STAND_IN or not (character.isprintable() or character in "\n\t")


# What is said of a row beside its text, wherever it is shown: its facts, and what its marks mean.


def _row_name(look: RowLook) -> str:
    """What `--row` takes."""
    return f"{look.split}:{look.row}"


def row_facts(look: RowLook) -> list[str]:
    several = [f"{counted(look.num_windows, 'window')} share it"] if look.num_windows != 1 else []
    return [
        f"row {_row_name(look)} of {look.num_rows:,}",
        f"{counted(look.num_ids, 'id')} of at most {look.num_room:,}",
        *several,
    ]


def window_name(window: WindowLook) -> str:
    return printable(f"{window.repo}/{window.path}")


def window_facts(window: WindowLook) -> list[str]:
    return [
        *([_lines(window)] if _is_told(window) else []),
        *([printable(window.language)] if window.language else []),
        f"{counted(window.length, 'token')} from {window.start:,} on",
        *([f"{window.fresh:,} fresh"] if _is_told(window) else []),
        *([f"variant {printable(window.variant)}"] if window.variant else []),
        *([_fim(window)] if window.fim else []),
        *([f"shown {counted(window.repeat, 'time')} before"] if window.repeat else []),
    ]


def _fim(window: WindowLook) -> str:
    order = "suffix first" if window.fim == FimForm.SPM else "prefix first"
    middle = counted(window.middle_tokens, "token")
    return f"fill in the middle, {order}: {middle} of {printable(window.middle)} to fill in"


def _lines(window: WindowLook) -> str:
    first, last = window.lines
    own = " of its own" if _has_text_of_its_own(window) else ""
    return (f"line {first:,}" if first == last else f"lines {first:,} to {last:,}") + own


def _is_told(window: Window) -> bool:
    """Which lines it shows, and what of it is fresh: rows that no build has made do not say."""
    return window.lines[0] > 0


def _has_text_of_its_own(window: WindowLook) -> bool:
    """It is of a variant with other lines and tokens than the file's."""
    return bool(window.variant) and window.variant not in BY_THEMSELVES


def has_lines(window: Window) -> bool:
    """Its text is a stretch of lines as they are, of the file or of a variant, and which is known."""
    return _is_told(window) and not window.is_alone


def window_edges(look: RowLook) -> list[int]:
    """Of the windows that share a row, at which token each begins: what stands around it counts to it."""
    edges: list[int] = []
    end = 0
    for window in look.windows:
        between = look.tokens[end : window.at]
        ends_before = bool(edges) and bool(between) and all(flags & SPECIAL for _, flags in between[:2])
        edges.append(end + ends_before)
        end = window.at + window.length
    return edges


def shared_words(look: RowLook) -> Iterator[tuple[int, str]]:
    """For each mark of an overlap that is there to be seen, its flag and what it says."""
    marks = {flag for _, flags in look.tokens for flag in (BEFORE, AFTER) if flags & flag}
    before = sum(window.shared_before for window in look.windows)
    after = sum(window.shared_after for window in look.windows)
    if BEFORE in marks:
        yield BEFORE, f"{counted(before, 'token')} that the window before shows too"
    if AFTER in marks:
        yield AFTER, f"{counted(after, 'token')} that the window after shows too"


def has_middle(look: RowLook) -> bool:
    return any(flags & MIDDLE for _, flags in look.tokens)


def has_special(look: RowLook) -> bool:
    return any(flags & SPECIAL for _, flags in look.tokens)


def has_odd(look: RowLook) -> bool:
    return any(stroke.kind == ODD for stroke in look.strokes)
