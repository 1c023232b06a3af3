"""How good the rows are that a method wrote: how often each token is shown, what is padding, lost, or leaked.

One pass over all rows; kept in memory is each distinct window once, at two bytes an id where that is enough.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.checks.spans import shared_with_train
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow, decoded_lines
from gristmill.core.layout import FILES
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.dataset.foreign import ForeignRow, Shown, rows_of
from gristmill.lab.bench.bench_result import Quality
from gristmill.lab.bench.job import Job
from gristmill.runners.local import num_cores

DIGEST_BYTES = 16
TWO_BYTES = 1 << 16


class _Window(msgspec.Struct):
    content: npt.NDArray[Any]
    num_train: int = 0
    num_held_out: int = 0


class _Measured:
    """Adds up rows."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.shown = Shown()
        self.windows: dict[bytes, _Window] = {}
        self.num_windows = self.num_ids = self.num_padding = self.num_content = 0

    def add(self, row: ForeignRow, split: Split) -> None:
        ids = row.window()
        start, end = len(self._job.prefix), len(ids) - len(self._job.suffix)
        if end < start:
            raise DatasetError(f"a window of {row.path!r} is damaged: it is shorter than its special tokens.")
        digest = hashlib.blake2b(ids.data, digest_size=DIGEST_BYTES).digest()
        window = self.windows.get(digest)
        if window is None:
            window = self.windows[digest] = _Window(_compact(ids[start:end]))
        if split is Split.TRAIN:
            window.num_train += 1
        else:
            window.num_held_out += 1
        self.shown.add(row.key, row.start, end - start)
        self.num_windows += 1
        self.num_ids += len(row.input_ids)
        self.num_padding += len(row.input_ids) - len(ids)
        self.num_content += end - start

    def l50(self) -> float | None:
        """Identical windows are compared once and count as often as they are there."""
        train = [window.content for window in self.windows.values() if window.num_train]
        held_out = [window for window in self.windows.values() if window.num_held_out]
        num_tokens = sum(len(window.content) * window.num_held_out for window in held_out)
        if not num_tokens:
            return None
        shared = shared_with_train([window.content for window in held_out], train, num_cores())
        counted = zip(held_out, shared, strict=True)
        return sum(one.num_span_tokens * window.num_held_out for window, one in counted) / num_tokens


def quality_of(out: Path, job: Job) -> Quality:
    """Of the folder that a method was given to write into."""
    measured = _Measured(job)
    for split in Split:
        for row in rows_of(out, split):
            measured.add(row, split)
    shown = measured.shown
    has_reasons = (out / FILES).is_file()
    num_lost, num_left_out = _with_reasons(out, job, shown) if has_reasons else (_without_reasons(job, shown), 0)
    return Quality(
        windows=measured.num_windows,
        places=shown.num_places(),
        distinct=_per(len(measured.windows), measured.num_windows),
        redundancy=_per(measured.num_content, sum(map(shown.num_tokens, shown.files()))),
        padding=_per(measured.num_padding, measured.num_ids),
        tokens_lost=num_lost,
        tokens_left_out=num_left_out,
        l50=measured.l50(),
    )


def _without_reasons(job: Job, shown: Shown) -> int:
    return sum(max(0, file.num_tokens - shown.num_tokens((file.repo, file.path))) for file in job.files)


def _with_reasons(out: Path, job: Job, shown: Shown) -> tuple[int, int]:
    """Tokens lost, and tokens that the files' table or a setting accounts for."""
    table = {row.key: row for _, row in decoded_lines(out / FILES, FileRow)}
    num_tail = read_manifest(out).counts.tail_tokens_dropped
    num_not_shown, num_left_out = 0, num_tail
    for file in job.files:
        row = table.get((file.repo, file.path))
        if row is None:
            num_not_shown += file.num_tokens
        elif row.status == "dropped":
            num_left_out += file.num_tokens
        else:
            num_cut = row.cut_tokens or 0
            num_not_shown += max(0, (row.tokens or 0) - num_cut - shown.num_tokens(row.key))
            num_left_out += num_cut
    return max(0, num_not_shown - num_tail), num_left_out


def _compact(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy: the row itself is not kept."""
    return ids.astype(np.uint16 if not len(ids) or int(ids.max()) < TWO_BYTES else np.uint32)


def _per(count: float, total: float) -> float:
    return count / total if total else 0.0
