"""Measure the quality of a method's rows: repeated, padded, lost and leaked tokens.

All rows are read once. Windows with the same ids are stored once in memory, with two bytes per id if possible.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.checks.spans import measure_overlap
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow, decode_lines
from gristmill.core.layout import FILES
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.dataset.foreign import Coverage, ForeignRow, read_foreign_rows
from gristmill.lab.bench.bench_result import Quality
from gristmill.lab.bench.job import Job
from gristmill.runners.local import num_cores

DIGEST_BYTES = 16
NUM_UINT16_IDS = 1 << 16


class _Window(msgspec.Struct):
    """A distinct window, with the number of times that it occurs in train and in the held-out splits."""

    content: npt.NDArray[Any]
    num_train: int = 0
    num_held_out: int = 0


class _RowTotals:
    """Totals over all rows of a method."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.coverage = Coverage()
        self.windows: dict[bytes, _Window] = {}
        self.num_windows = self.num_ids = self.num_padding = self.num_content = 0

    def add(self, row: ForeignRow, split: Split) -> None:
        ids = row.window()
        start, end = len(self._job.prefix), len(ids) - len(self._job.suffix)
        if end < start:
            raise DatasetError(
                f"a window of {row.path!r} is damaged: it is shorter than its special tokens. Run the benchmark again."
            )
        digest = hashlib.blake2b(ids.data, digest_size=DIGEST_BYTES).digest()
        window = self.windows.get(digest)
        if window is None:
            window = self.windows[digest] = _Window(_compact(ids[start:end]))
        if split is Split.TRAIN:
            window.num_train += 1
        else:
            window.num_held_out += 1
        self.coverage.add(row.key, row.start, end - start)
        self.num_windows += 1
        self.num_ids += len(row.input_ids)
        self.num_padding += len(row.input_ids) - len(ids)
        self.num_content += end - start

    def l50(self) -> float | None:
        """Return the share of held-out tokens in spans that also occur in train.

        Identical windows are compared once, but each of them is counted.
        """
        train = [window.content for window in self.windows.values() if window.num_train]
        held_out = [window for window in self.windows.values() if window.num_held_out]
        num_tokens = sum(len(window.content) * window.num_held_out for window in held_out)
        if not num_tokens:
            return None
        overlaps = measure_overlap([window.content for window in held_out], train, num_cores())
        pairs = zip(held_out, overlaps, strict=True)
        return sum(overlap.num_span_tokens * window.num_held_out for window, overlap in pairs) / num_tokens


def measure_quality(out: Path, job: Job) -> Quality:
    """Measure the quality of the rows in the output folder of a method."""
    totals = _RowTotals(job)
    for split in Split:
        for row in read_foreign_rows(out, split):
            totals.add(row, split)
    coverage = totals.coverage
    has_reasons = (out / FILES).is_file()
    num_lost, num_left_out = _count_with_reasons(out, job, coverage) if has_reasons else (_count_lost(job, coverage), 0)
    return Quality(
        windows=totals.num_windows,
        places=coverage.num_ranges(),
        distinct=_ratio(len(totals.windows), totals.num_windows),
        redundancy=_ratio(totals.num_content, sum(map(coverage.num_tokens, coverage.files()))),
        padding=_ratio(totals.num_padding, totals.num_ids),
        tokens_lost=num_lost,
        tokens_left_out=num_left_out,
        l50=totals.l50(),
    )


def _count_lost(job: Job, coverage: Coverage) -> int:
    """Count the source tokens that no window contains."""
    return sum(max(0, file.num_tokens - coverage.num_tokens((file.repo, file.path))) for file in job.files)


def _count_with_reasons(out: Path, job: Job, coverage: Coverage) -> tuple[int, int]:
    """Return the number of tokens lost, and the number left out for a reason in files.jsonl or by --tail drop."""
    table = {row.key: row for _, row in decode_lines(out / FILES, FileRow)}
    num_tail = read_manifest(out).counts.tail_tokens_dropped
    num_uncovered, num_left_out = 0, num_tail
    for file in job.files:
        row = table.get((file.repo, file.path))
        if row is None:
            num_uncovered += file.num_tokens
        elif row.status == "dropped":
            num_left_out += file.num_tokens
        else:
            num_cut = row.cut_tokens or 0
            num_uncovered += max(0, (row.tokens or 0) - num_cut - coverage.num_tokens(row.key))
            num_left_out += num_cut
    return max(0, num_uncovered - num_tail), num_left_out


def _compact(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Copy the ids to the smallest integer type that fits, so that the memory of the row can be freed."""
    return ids.astype(np.uint16 if not len(ids) or int(ids.max()) < NUM_UINT16_IDS else np.uint32)


def _ratio(count: float, total: float) -> float:
    return count / total if total else 0.0
