"""Plain-text tables and sizes for a terminal."""

from collections.abc import Iterable, Sequence

from gristmill.core.names import counted


def table_text(headings: Sequence[str], rows: Iterable[Sequence[str]], *, num_left_aligned: int = 1) -> str:
    """Format a table, with the first `num_left_aligned` columns aligned to the left and the others to the right.

    Rich can format tables too, but importing Rich takes 20 ms, a twentieth of a small build.
    """
    lines = [headings, *rows]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "".join(f"{_line(cells, widths, num_left_aligned)}\n" for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int], num_left_aligned: int) -> str:
    padded = []
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        spaces = " " * (width - _width(cell))
        padded.append(cell + spaces if index < num_left_aligned else spaces + cell)
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """Return the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - few texts need it

    return cell_len(text)


def size_text(num_bytes: float) -> str:
    """Format a size: `1.5 MB`, `300 bytes`."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.1f} {unit}"
    return counted(f"{num_bytes:.0f}", "byte")
