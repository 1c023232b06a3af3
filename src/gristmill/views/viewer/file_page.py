"""All there is to tell of one file: its line in files.jsonl, its windows, and its text, stitched from them."""

from typing import Any, NamedTuple

import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.dataset.row_windows import read_row
from gristmill.dataset.stretches import Stretch, join
from gristmill.planning.explain import status_text
from gristmill.views.row import look_at_tokens
from gristmill.views.viewer.filters import tables_of
from gristmill.views.viewer.opened import Viewed
from gristmill.views.viewer.window_index import KINDS, WindowTable

MOST_WINDOWS = 5000
MOST_TOKENS = 40_000
"""What a browser still draws at once: of a file of 150 KB."""


class Stitched(NamedTuple):
    """A file's tokens, each once, as far as windows show them."""

    ids: list[int]
    edges: list[tuple[int, int]]
    """Where among these each window begins, and its row."""
    gaps: list[tuple[int, int]]
    """Where tokens are missing, and how many."""


def file_page(viewed: Viewed, number: int) -> dict[str, Any]:
    files, windows = tables_of(viewed.index)
    row = files.row(number)
    own = np.flatnonzero(windows.file == number)
    stitched = _stitched(viewed, row, windows, own)
    tokens, strokes = look_at_tokens(stitched.ids, viewed.dataset.tokenizer, row.language or "", row.path)
    commits = {source.repo: source.commit for source in viewed.dataset.manifest.sources}
    return {
        "file": row,
        "commit": commits.get(row.repo),
        "told": status_text(row),
        "windows": [_window(viewed, windows, one) for one in own[:MOST_WINDOWS].tolist()],
        "tokens": tokens,
        "strokes": strokes,
        "edges": stitched.edges,
        "gaps": stitched.gaps,
        "num_tokens_left_out": max((row.tokens or 0) - len(stitched.ids), 0) if row.status == "kept" else 0,
        "note": _note(viewed, row, stitched, len(own)),
    }


def _window(viewed: Viewed, windows: WindowTable, number: int) -> dict[str, Any]:
    split, row = viewed.dataset.numbering.place(int(windows.row[number]))
    numbers = {name: int(getattr(windows, name)[number]) for name in ("start", "fresh", "num_ids", "repeat")}
    lines = int(windows.first_line[number]), int(windows.last_line[number])
    return {"split": split, "row": row, "lines": lines, "variant": KINDS[windows.variant[number]], **numbers}


def _stitched(viewed: Viewed, file: FileRow, windows: WindowTable, own: np.ndarray[Any, Any]) -> Stitched:
    """From windows of the file itself, where each is shown first."""
    firsts = own[(windows.variant[own] == 0) & (windows.repeat[own] == 0)]
    shown: list[tuple[Stretch, int]] = []
    end = num_tokens = 0
    for number in firsts[np.argsort(windows.start[firsts], kind="stable")].tolist():
        if num_tokens >= MOST_TOKENS:
            break
        split, row = viewed.dataset.numbering.place(int(windows.row[number]))
        window = _window_of(viewed, file, split, row, int(windows.start[number]))
        shown.append((window, row))
        num_tokens += max(0, window.end - max(end, window.start))
        end = max(end, window.end)
    return _joined(shown, file)


def _joined(shown: list[tuple[Stretch, int]], file: FileRow) -> Stitched:
    """`shown`: windows by where they begin, each with its row."""
    stretches = join(window for window, _ in shown)
    if stretches is None:
        raise DatasetError(f"two windows of {file.name} contradict each other. `gristmill check` tells more.")
    stitched, end = Stitched([], [], []), 0
    for stretch in stretches:
        if stretch.start > end:
            stitched.gaps.append((len(stitched.ids), stretch.start - end))
        end = stretch.end
        stitched.edges.extend(
            (len(stitched.ids) + window.start - stretch.start, row)
            for window, row in shown
            if stretch.start <= window.start < stretch.end
        )
        stitched.ids.extend(stretch.ids.tolist())
    return stitched


def _window_of(viewed: Viewed, file: FileRow, split: Split, row: int, start: int) -> Stretch:
    read = read_row(viewed.dataset, split, row)
    for window in read.windows:
        if (window.file, window.start, window.variant, window.repeat) == (file.key, start, "", 0):
            return read.stretch(window)
    raise DatasetError(f"row {split}:{row} is not what it was when the index was made. Start the viewer again.")


def _note(viewed: Viewed, file: FileRow, stitched: Stitched, num_windows: int) -> str | None:
    notes = []
    if file.status == "kept" and len(stitched.ids) >= MOST_TOKENS < (file.tokens or 0):
        notes.append(f"Of its text the first {counted(len(stitched.ids), 'token')} are shown.")
    elif stitched.gaps:
        notes.append("Tokens that are in no window are left out: they were cut, or not drawn.")
    if num_windows > MOST_WINDOWS:
        notes.append(f"Of its {counted(num_windows, 'window')} the first {MOST_WINDOWS:,} are listed.")
    if stitched.ids and not viewed.dataset.tokenizer.gives_text_back:
        notes.append("The tokenizer does not give the text back exactly.")
    return " ".join(notes) or None
