"""What is said of a row beside its text, wherever it is shown: its facts, and what its marks mean."""

from collections.abc import Iterator

from gristmill.core.names import counted, printable
from gristmill.core.records import BY_THEMSELVES
from gristmill.dataset.row_windows import Window
from gristmill.views.row import AFTER, BEFORE, ODD, SPECIAL, RowLook, WindowLook


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
        *([f"shown {counted(window.repeat, 'time')} before"] if window.repeat else []),
    ]


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
    return _is_told(window) and window.variant not in BY_THEMSELVES


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


def has_special(look: RowLook) -> bool:
    return any(flags & SPECIAL for _, flags in look.tokens)


def has_odd(look: RowLook) -> bool:
    return any(stroke.kind == ODD for stroke in look.strokes)
