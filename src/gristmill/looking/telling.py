"""What is said of a row beside its text, wherever it is shown: its facts, and what its marks mean."""

from collections.abc import Iterator

from gristmill.looking.row import AFTER, BEFORE, ODD, SPECIAL, RowLook, WindowLook
from gristmill.looking.windows import Window
from gristmill.naming import printable
from gristmill.records import BY_THEMSELVES


def _row_name(look: RowLook) -> str:
    """What `--row` takes."""
    return f"{look.split}:{look.row}"


def row_facts(look: RowLook) -> list[str]:
    several = [f"{len(look.windows):,} windows share it"] if len(look.windows) != 1 else []
    return [
        f"row {_row_name(look)} of {look.num_rows:,}",
        f"{look.num_ids:,} ids of at most {look.num_room:,}",
        *several,
    ]


def window_name(window: WindowLook) -> str:
    return printable(f"{window.repo}/{window.path}")


def window_facts(window: WindowLook) -> list[str]:
    first, last = window.lines
    lines = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    own = " of its own" if _has_text_of_its_own(window) else ""
    return [
        lines + own,
        *([printable(window.language)] if window.language else []),
        f"{window.length:,} tokens from {window.start:,} on",
        f"{window.fresh:,} fresh",
        *([f"variant {printable(window.variant)}"] if window.variant else []),
        *([f"shown {window.repeat:,} times before"] if window.repeat else []),
    ]


def _has_text_of_its_own(window: WindowLook) -> bool:
    """It is of a variant with other lines and tokens than the file's."""
    return bool(window.variant) and window.variant not in BY_THEMSELVES


def has_lines(window: Window) -> bool:
    """Its text is a stretch of lines as they are, of the file or of a variant, and which is known."""
    return window.lines[0] > 0 and window.variant not in BY_THEMSELVES


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
    """For each mark of an overlap that is there, its flag and what it says."""
    before = sum(window.shared_before for window in look.windows)
    after = sum(window.shared_after for window in look.windows)
    if before:
        yield BEFORE, f"{before:,} tokens that the window before shows too"
    if after:
        yield AFTER, f"{after:,} tokens that the window after shows too"


def has_special(look: RowLook) -> bool:
    return any(flags & SPECIAL for _, flags in look.tokens)


def has_odd(look: RowLook) -> bool:
    return any(stroke.kind == ODD for stroke in look.strokes)
