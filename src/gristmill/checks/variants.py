"""`variants`: each is of a train file that is kept, as files.jsonl tells it, and shows what it must.

Another text is cut into windows like any file. With noise, the labels of each window are the file's own window there.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from gristmill.checks.file_rows import FilesTable
from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import FORM, KEY, LABEL_KEY, ROW, START
from gristmill.checks.tokens import key_of_ids
from gristmill.checks.windows import Drawn, expected_windows, first_difference, wrong_draw, wrong_fresh
from gristmill.checks.windows_by_file import PlacedRun, Rows
from gristmill.core.files_table import VariantRow
from gristmill.core.layout import FILES
from gristmill.core.names import counted
from gristmill.core.records import WITH_LABELS, Split, VariantKind

CHECK = "variants"
Fault = tuple[int, str]


def check_variants(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> int:
    """How many there are."""
    said = {(file.key, row.kind): row for file in table.kept.values() for row in file.variants if row.missing is None}
    for key, runs in rows.variants.items():
        for placed in runs:
            row = said.pop((key, placed.run.key.variant), None)
            for index, what in _wrong(placed, row, rows, settings):
                number = int(placed.run.windows[index, ROW])
                faults.add(CHECK, what, file=placed.file, row=number, path=placed.run.key.name)
    _check_texts(table, faults)
    if "labels" in settings.rules.columns:
        _check_clean_labels(rows, faults)
    for (key, kind), row in said.items():
        faults.add(
            CHECK, f"{kind} has {counted(row.windows, 'window')}, and there are none", file=FILES, path="/".join(key)
        )
    return sum(map(len, rows.variants.values()))


def _check_texts(table: FilesTable, faults: Faults) -> None:
    """No variant is the text of a file, or of another variant."""
    known = {file.text_sha256 for file in table.kept.values()}
    known |= {row.text_sha256 for row in table.dropped.values() if row.text_sha256 is not None}
    for file in table.kept.values():
        for row in file.variants:
            if row.text_sha256 in known:
                faults.add(CHECK, f"its {row.kind} is the text of another, or its own", file=FILES, path=file.name)
            if row.text_sha256 is not None:
                known.add(row.text_sha256)


def _check_clean_labels(rows: Rows, faults: Faults) -> None:
    """Where there is no noise, the labels are the ids."""
    for runs in (*rows.by_file.values(), *rows.variants.values()):
        for placed in runs:
            windows = placed.run.windows
            is_wrong = windows[:, KEY] != windows[:, LABEL_KEY]
            if placed.run.key.variant not in WITH_LABELS and is_wrong.any():
                number = int(windows[is_wrong.argmax(), ROW])
                faults.add(CHECK, "its labels are not its ids", file=placed.file, row=number, path=placed.run.key.name)


def _wrong(placed: PlacedRun, row: VariantRow | None, rows: Rows, settings: Settings) -> Iterator[Fault]:
    run, kind = placed.run, placed.run.key.variant
    if placed.split is not Split.TRAIN:
        yield 0, f"a variant in {placed.split}"
    if row is None:
        yield 0, f"{FILES} has no {kind} of this file, or only one"
        return
    if row.seed != run.key.seed:
        yield 0, f"variant_seed is {run.key.seed}, {FILES} has {row.seed}"
    if row.windows != len(run.windows):
        yield 0, f"{counted(len(run.windows), 'window')}, {FILES} has {row.windows}"
    if kind in CHECKS_BY_THEMSELVES:
        yield from CHECKS_BY_THEMSELVES[VariantKind(kind)](placed, rows, settings)
    else:
        yield from _wrong_windows(placed, row, settings)
        yield from _copies(placed, rows)
        fault = wrong_fresh(run.windows, is_again=False)
        yield from [fault] if fault is not None else []


def _wrong_windows(placed: PlacedRun, row: VariantRow, settings: Settings) -> Iterator[Fault]:
    expected = expected_windows(row.tokens, (), settings.shape, drops_touched=False)
    expected = expected._replace(left_out=frozenset(row.own_windows))
    windows = placed.run.windows
    drawn = None if row.draw is None else Drawn(row.draw[1], settings.sampling.seed, placed.run.key.file)
    fault = first_difference(windows, expected) if drawn is None else wrong_draw(windows, expected, drawn)
    if fault is not None:
        yield fault


def _copies(placed: PlacedRun, rows: Rows) -> Iterator[Fault]:
    own = {
        (start, ids)
        for one in rows.by_file.get(placed.run.key.file, ())
        for start, ids in one.run.windows[:, [START, KEY]].tolist()
    }
    for index, (start, ids) in enumerate(placed.run.windows[:, [START, KEY]].tolist()):
        if (start, ids) in own:
            yield index, "a copy of the file's own window"
            return


def _wrong_labels(placed: PlacedRun, rows: Rows, settings: Settings) -> Iterator[Fault]:
    own = dict(_own_windows(rows.by_file.get(placed.run.key.file, ()), settings))
    for index, (start, ids, labels) in enumerate(placed.run.windows[:, [START, KEY, LABEL_KEY]].tolist()):
        if own.get(start, labels) != labels:
            yield index, f"its labels are not the file's window at {start}"
            return
        if ids == labels:
            yield index, "its labels are its ids: there is no noise"
            return


def _own_windows(runs: Iterable[PlacedRun], settings: Settings) -> Iterator[tuple[int, int]]:
    """Start and key of each window of a file; of one that is rewritten for fill in the middle, as it was before."""
    for placed in runs:
        windows = placed.run.windows
        if not windows[:, FORM].any():
            yield from map(tuple, windows[:, [START, KEY]].tolist())
            continue
        for stretch in placed.run.stretches:
            expected = expected_windows(len(stretch.ids), (), settings.shape, drops_touched=False)
            for start, end in expected.windows(len(stretch.ids)):
                yield stretch.start + start, key_of_ids(np.ascontiguousarray(stretch.ids[start:end]))


CHECKS_BY_THEMSELVES: dict[VariantKind, Callable[[PlacedRun, Rows, Settings], Iterator[Fault]]] = {
    VariantKind.NOISE: _wrong_labels,
}
"""For each kind of variant whose windows are by themselves, what they must show."""
