"""Tables and counts, as a dataset card has them. Cells are ready: whoever fills them escapes."""

from collections.abc import Iterator, Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Nothing where there are no rows; an empty line at the end."""
    if not rows:
        return
    yield f"| {' | '.join(headings)} |"
    yield "|" + " --- |" * len(headings)
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def more(num: int, what: str) -> Iterator[str]:
    if num > 0:
        yield f"And {num:,} more {what}.\n"
