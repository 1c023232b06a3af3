"""The `lines` of windows and files against the line feeds in their tokens (`windows`).

A file's first stretch begins in line 1. One behind a cut begins where its first window says, and not before the end of
the stretch before it.
"""

import numpy as np

from gristmill.checking.runs import END, FIRST_LINE, LAST_LINE, ROW, START, Run, Stretch, Table
from gristmill.checking.spelling import Spelling
from gristmill.checking.tables import KeptFile

Fault = tuple[int, str]
"""The row, and what is wrong there."""


def wrong_line_feeds(run: Run, file: KeptFile, spelling: Spelling) -> Fault | None:
    line = 1
    for stretch in run.stretches:
        windows = _windows_of(run, stretch)
        if not len(windows):
            return None  # its windows are not where they should be, and said to be
        base = int(windows[0, FIRST_LINE]) if stretch.start else 1
        if base < line:
            return int(windows[0, ROW]), f"it begins in line {base}, and what stands before it ends in {line}"
        num_line_feeds = spelling.num_line_feeds(stretch.ids)
        fault = _wrong_window(windows, stretch, base + num_line_feeds.cumsum() - num_line_feeds)
        if fault is not None:
            return fault
        line = base + int(num_line_feeds.sum())
        if stretch.end == file.tokens:
            num_lines = line - spelling.tokenizer.decode(stretch.ids[-1:]).endswith(b"\n")
            if num_lines != file.lines:
                return int(windows[-1, ROW]), f"its file ends in line {num_lines}, not {file.lines}"
    return None


def _windows_of(run: Run, stretch: Stretch) -> Table:
    starts, ends = run.windows[:, START], run.windows[:, END]
    return run.windows[(starts >= stretch.start) & (ends <= stretch.end) & (starts < ends)]


def _wrong_window(windows: Table, stretch: Stretch, lines: Table) -> Fault | None:
    """`lines`: on which each token of the stretch begins."""
    first, last = lines[windows[:, START] - stretch.start], lines[windows[:, END] - 1 - stretch.start]
    is_wrong = (windows[:, FIRST_LINE] != first) | (windows[:, LAST_LINE] != last)
    if not is_wrong.any():
        return None
    at = int(np.argmax(is_wrong))
    said = windows[at, [FIRST_LINE, LAST_LINE]].tolist()
    return int(windows[at, ROW]), f"lines {said[0]} to {said[1]}, its line feeds say {first[at]} to {last[at]}"
