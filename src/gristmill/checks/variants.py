"""Check `variants`: each variant belongs to a kept train file, matches files.jsonl, and has the expected windows.

A variant with its own text is cut into windows like a file. In a variant with noise, the labels of each window must be
the ids of the file's original window at the same position.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gristmill.checks.file_rows import FilesTable
from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import FORM, KEY, LABEL_KEY, ROW, START
from gristmill.checks.tokens import key_of_ids
from gristmill.checks.windows import Draw, expected_windows, find_draw_fault, find_fresh_fault, find_position_fault
from gristmill.checks.windows_by_file import Rows, RunEntry
from gristmill.core.files_table import VariantRow
from gristmill.core.layout import FILES
from gristmill.core.names import counted
from gristmill.core.records import LABELED_KINDS, Split, VariantKind

CHECK = "variants"
Fault = tuple[int, str]
"""Index of a window in its run, and a fault message."""


def check_variants(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> int:
    """Check all variants and return their number."""
    recorded = {
        (file.key, row.kind): row for file in table.kept.values() for row in file.variants if row.missing is None
    }
    for key, runs in rows.variants.items():
        for entry in runs:
            row = recorded.pop((key, entry.run.key.variant), None)
            for index, message in _find_faults(entry, row, rows, settings):
                number = int(entry.run.windows[index, ROW])
                faults.add(CHECK, message, file=entry.file, row=number, path=entry.run.key.name)
    _check_texts(table, faults)
    if "labels" in settings.rules.columns:
        _check_clean_labels(rows, faults)
    for (key, kind), row in recorded.items():
        faults.add(
            CHECK,
            f"the {kind} variant is recorded with {counted(row.windows, 'window')}, but has no rows",
            file=FILES,
            path="/".join(key),
        )
    return sum(map(len, rows.variants.values()))


def _check_texts(table: FilesTable, faults: Faults) -> None:
    """Check that no variant has the text of a file or of another variant."""
    seen = {file.text_sha256 for file in table.kept.values()}
    seen |= {row.text_sha256 for row in table.dropped.values() if row.text_sha256 is not None}
    for file in table.kept.values():
        for row in file.variants:
            if row.text_sha256 in seen:
                faults.add(
                    CHECK,
                    f"the {row.kind} variant has the same text as a file or another variant",
                    file=FILES,
                    path=file.name,
                )
            if row.text_sha256 is not None:
                seen.add(row.text_sha256)


def _check_clean_labels(rows: Rows, faults: Faults) -> None:
    """Check that the labels of windows without noise equal their ids."""
    for runs in (*rows.by_file.values(), *rows.variants.values()):
        for entry in runs:
            windows = entry.run.windows
            is_wrong = windows[:, KEY] != windows[:, LABEL_KEY]
            if entry.run.key.variant not in LABELED_KINDS and is_wrong.any():
                number = int(windows[is_wrong.argmax(), ROW])
                faults.add(
                    CHECK,
                    "labels differ from the ids, although the row has no noise",
                    file=entry.file,
                    row=number,
                    path=entry.run.key.name,
                )


def _find_faults(entry: RunEntry, row: VariantRow | None, rows: Rows, settings: Settings) -> Iterator[Fault]:
    run, kind = entry.run, entry.run.key.variant
    if entry.split is not Split.TRAIN:
        yield 0, f"the variant is in {entry.split}, but only train may have variants"
    if row is None:
        yield 0, f"{FILES} records no {kind} variant of this file, or the rows contain more than one"
        return
    if row.seed != run.key.seed:
        yield 0, f"variant_seed is {run.key.seed}, but {FILES} records {row.seed}"
    if row.windows != len(run.windows):
        yield 0, f"the variant has {counted(len(run.windows), 'window')}, but {FILES} records {row.windows}"
    if kind in INDEPENDENT_WINDOW_CHECKS:
        yield from INDEPENDENT_WINDOW_CHECKS[VariantKind(kind)](entry, rows, settings)
    else:
        yield from _find_window_faults(entry, row, settings)
        yield from _find_copies(entry, rows)
        fault = find_fresh_fault(run.windows, is_repeat=False)
        yield from [fault] if fault is not None else []


def _find_window_faults(entry: RunEntry, row: VariantRow, settings: Settings) -> Iterator[Fault]:
    expected = expected_windows(row.tokens, (), settings.shape, drops_touched=False)
    expected = expected._replace(omitted_indices=frozenset(row.own_windows))
    windows = entry.run.windows
    draw = None if row.draw is None else Draw(row.draw[1], settings.sampling.seed, entry.run.key.file)
    fault = find_position_fault(windows, expected) if draw is None else find_draw_fault(windows, expected, draw)
    if fault is not None:
        yield fault


def _find_copies(entry: RunEntry, rows: Rows) -> Iterator[Fault]:
    """Yield a fault if a window of a variant equals the original window at the same position."""
    originals = {
        (start, window_key)
        for one in rows.by_file.get(entry.run.key.file, ())
        for start, window_key in one.run.windows[:, [START, KEY]].tolist()
    }
    for index, (start, window_key) in enumerate(entry.run.windows[:, [START, KEY]].tolist()):
        if (start, window_key) in originals:
            yield index, "the window has the same ids as the original window"
            return


def _find_label_faults(entry: RunEntry, rows: Rows, settings: Settings) -> Iterator[Fault]:
    """Yield a fault if the labels of a window differ from the original ids, or are the same as its noisy ids."""
    originals = dict(_original_windows(rows.by_file.get(entry.run.key.file, ()), settings))
    for index, (start, window_key, label_key) in enumerate(entry.run.windows[:, [START, KEY, LABEL_KEY]].tolist()):
        if originals.get(start, label_key) != label_key:
            yield index, f"labels differ from the original window at token {start}"
            return
        if window_key == label_key:
            yield index, "labels equal the ids, so there is no noise"
            return


def _original_windows(runs: Iterable[RunEntry], settings: Settings) -> Iterator[tuple[int, int]]:
    """Yield the start and hash of each window of a file, as cut from the text before any fill-in-the-middle rewrite."""
    for entry in runs:
        windows = entry.run.windows
        if not windows[:, FORM].any():
            yield from map(tuple, windows[:, [START, KEY]].tolist())
            continue
        for span in entry.run.spans:
            expected = expected_windows(len(span.ids), (), settings.shape, drops_touched=False)
            for start, end in expected.windows(len(span.ids)):
                yield span.start + start, key_of_ids(np.ascontiguousarray(span.ids[start:end]))


INDEPENDENT_WINDOW_CHECKS: dict[VariantKind, Callable[[RunEntry, Rows, Settings], Iterator[Fault]]] = {
    VariantKind.NOISE: _find_label_faults,
}
"""Check function for each kind of variant whose windows are independent of each other."""
