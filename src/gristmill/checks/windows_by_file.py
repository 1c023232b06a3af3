"""Compare the runs of each file with the row of the file in files.jsonl, and all runs with the manifest.

These are the parts of the checks `files_table`, `windows`, `fresh` and `duplicates` that need more than one row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.checks.file_rows import FileKey, FilesTable, KeptFile
from gristmill.checks.findings import Faults, value_text
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import END, FORM, FRESH, IS_ENDED, KEY, NUM_IDS, ROW, START, Run, RunKey
from gristmill.checks.windows import (
    Draw,
    ExpectedWindows,
    Shape,
    draw_window_indices,
    expected_windows,
    find_draw_fault,
    find_fresh_fault,
    find_line_fault,
    find_position_fault,
    find_repeat_faults,
    find_span_fault,
)
from gristmill.core.layout import FILES, MANIFEST
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import Split

NUM_SHARE_DIGITS = 6


class RunEntry(NamedTuple):
    """A run with its data file and split."""

    run: Run
    file: str
    """Name of the data file."""
    split: Split


RepoKey = tuple[Split, str]
"""Split and repository name."""


class Segment(NamedTuple):
    """Part of a file in a packed row: a window, or with --pack repo any range of tokens."""

    path: str
    start: int
    """Position in the file of the segment's first token."""
    file: str
    """Name of the data file."""
    row: int
    segment_id: int
    """Value in the column `segment_ids`. Adjacent segments of one repository in a row have the same value."""


class PackedCounts(NamedTuple):
    """Counts of packed rows."""

    num_rows: int
    num_ids: int
    num_ends: int
    """Number of end tokens outside of the windows."""

    def plus(self, num_rows: int, num_ids: int, num_ends: int) -> "PackedCounts":
        return PackedCounts(self.num_rows + num_rows, self.num_ids + num_ids, self.num_ends + num_ends)


class Rows(NamedTuple):
    """Rows of all data files, grouped by source file."""

    by_file: dict[FileKey, list[RunEntry]]
    """Runs of each file, one per repeat. Runs of variants are in `variants`."""
    variants: dict[FileKey, list[RunEntry]]
    """Runs of the variants of each file."""
    num_rows: int
    num_ids: int
    packed: dict[Split, PackedCounts] | None = None
    """Counts of packed rows, or None if each row is one window."""
    layouts: dict[RepoKey, list[Segment]] = {}  # noqa: RUF012 - never changed
    """Segments of each repository in reading order. Empty without --pack repo."""

    @classmethod
    def of(cls, runs: Iterable[RunEntry], num_rows: int) -> "Rows":
        by_file: dict[FileKey, list[RunEntry]] = {}
        variants: dict[FileKey, list[RunEntry]] = {}
        num_ids = 0
        for entry in runs:
            key = entry.run.key
            (by_file if key.variant is None else variants).setdefault((key.repo, key.path), []).append(entry)
            num_ids += int(entry.run.windows[:, NUM_IDS].sum())
        return cls(by_file, variants, num_rows, num_ids)


def check_rows_against_table(rows: Rows, table: FilesTable, faults: Faults) -> None:
    """Check that each row, except rows of variants, belongs to a kept file of its split, and that no row is missing."""
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        for entry in runs:
            if file is None:
                state = "records it as dropped" if key in table.dropped else "does not list it"
                _add_fault("files_table", 0, f"the file has rows, but {FILES} {state}", entry, faults)
            elif file.split is not entry.split:
                _add_fault(
                    "files_table", 0, f"the row is in {entry.split}, but {FILES} records {file.split}", entry, faults
                )
            elif file.language != entry.run.language:
                message = f"language is {entry.run.language!r}, but {FILES} records {file.language!r}"
                _add_fault("schema", 0, message, entry, faults)
    for key, file in table.kept.items():
        num_windows = sum(len(entry.run.windows) for entry in rows.by_file.get(key, ()))
        if num_windows != file.windows:
            message = f"windows is {file.windows}, but the rows contain {counted(num_windows, 'window')} of the file"
            faults.add("files_table", message, file=FILES, path=file.name)


def check_order(rows: Rows, faults: Faults) -> None:
    """Check that the files of each split are in path order."""
    last: dict[Split, FileKey] = {}
    for key, runs in rows.by_file.items():
        previous_key = last.setdefault(runs[0].split, key)
        if key < previous_key:
            _add_fault(
                "windows",
                0,
                f"the file follows {'/'.join(previous_key)}, which is later in path order",
                runs[0],
                faults,
            )
        last[runs[0].split] = key


def check_windows(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> int:
    """Check positions and fresh tokens of all windows. Return the number of tokens that --tail drop removes.

    The fresh tokens of a window are the tokens that no earlier window of the file contains.
    """
    shape, seed, drops_touched = settings.shape, settings.sampling.seed, settings.decontaminate == "drop"
    for key, runs in rows.by_file.items():
        copies = Counter(entry.run.key for entry in runs)
        for entry in runs:
            if copies[entry.run.key] > 1:
                _add_fault("windows", 0, "the rows of the file are not contiguous", entry, faults)
        file = table.kept.get(key)
        for entry in runs:
            _add_fault_if_any(
                "fresh", find_fresh_fault(entry.run.windows, is_repeat=entry.run.repeat > 0), entry, faults
            )
            if file is not None and settings.is_packed_by_repo:
                _add_fault_if_any("windows", find_span_fault(entry.run, file.tokens, file.cuts), entry, faults)
            elif file is not None and file.is_rewritten:
                _check_rewritten(entry, runs[0], file, seed, faults)
            elif file is not None and copies[entry.run.key] == 1:
                _check_run(entry, file, _expected_windows(file, shape, drops_touched=drops_touched), seed, faults)
    if shape.tail != "drop":
        return 0
    plain = (file for file in table.kept.values() if not file.is_rewritten)
    expected = (_expected_windows(file, shape, drops_touched=drops_touched) for file in plain)
    return sum(one.num_tail_tokens_dropped for one in expected)


def _expected_windows(file: KeptFile, shape: Shape, *, drops_touched: bool) -> ExpectedWindows:
    is_dropped = drops_touched and file.split is not Split.TRAIN
    return expected_windows(file.tokens, file.cuts, shape, drops_touched=is_dropped)


def _check_run(entry: RunEntry, file: KeptFile, expected: ExpectedWindows, seed: int, faults: Faults) -> None:
    """Check one run of a file.

    Each of the first `passes` runs contains all windows. A further run contains only the drawn windows.
    """
    windows = entry.run.windows
    passes, num_drawn = file.draw or (1, 0)
    _add_fault_if_any("windows", find_line_fault(windows, file.lines), entry, faults)
    if entry.run.repeat < passes:
        _add_fault_if_any("windows", find_position_fault(windows, expected), entry, faults)
    else:
        _add_fault_if_any("windows", find_draw_fault(windows, expected, Draw(num_drawn, seed, file.key)), entry, faults)
    num_fresh, num_expected = int(windows[:, FRESH].sum()), file.covered_tokens - expected.num_tail_tokens_dropped
    if entry.run.repeat == 0 and num_fresh != num_expected:
        count = counted(num_fresh, "fresh token")
        message = f"the rows have {count}, expected {num_expected}: tokens - cut_tokens - left_tokens - dropped tails"
        faults.add("fresh", message, file=FILES, path=file.name)


def _check_rewritten(entry: RunEntry, first: RunEntry, file: KeptFile, seed: int, faults: Faults) -> None:
    """Check the windows of a file that is rewritten for fill-in-the-middle. They must not overlap.

    If all windows are used, together they must contain each token of the file.
    """
    windows = entry.run.windows
    passes, num_drawn = file.draw or (1, 0)
    _add_fault_if_any("windows", find_line_fault(windows, file.lines), entry, faults)
    if entry.run.repeat:
        if entry.run.repeat == passes:
            all_windows = [(start, end) for start, end in first.run.windows[:, [START, END]].tolist()]
            drawn_indices = draw_window_indices(len(all_windows), num_drawn, seed, file.key)
            if windows[:, START].tolist() != [all_windows[index][0] for index in drawn_indices]:
                _add_fault("windows", 0, "the drawn windows do not match the seed", entry, faults)
        return
    starts, ends = windows[:, START], windows[:, END]
    previous_ends = np.concatenate(([0], ends[:-1]))
    is_wrong = (starts < previous_ends) | (ends <= starts) | (ends > file.tokens)
    if passes:
        is_wrong |= starts != previous_ends
        is_wrong[-1] |= ends[-1] != file.tokens
    elif len(windows) != num_drawn:
        _add_fault("windows", 0, f"{counted(len(windows), 'window')} drawn, expected {num_drawn}", entry, faults)
    for index in np.flatnonzero(is_wrong)[:1].tolist():
        message = (
            f"the window has tokens {starts[index]} to {ends[index]} of {file.tokens}: "
            "they overlap the previous window, leave a gap, or are out of range"
        )
        _add_fault("windows", index, message, entry, faults)
    num_fresh = int(windows[:, FRESH].sum())
    if num_fresh != file.covered_tokens:
        count = counted(num_fresh, "fresh token")
        message = f"the rows have {count}, expected {file.covered_tokens}: tokens - cut_tokens - left_tokens"
        _add_fault("fresh", 0, message, entry, faults)


def check_repeats(rows: Rows, table: FilesTable, max_epochs: int, faults: Faults) -> None:
    """Check that each file is repeated as often as recorded and allowed, and that repeated windows are equal."""
    for kept in table.kept.values():
        for message in find_repeat_faults(kept, max_epochs):
            faults.add("windows", message, file=FILES, path=kept.name)
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        passes, num_drawn = (file and file.draw) or (1, 0)
        repeats = [entry.run.repeat for entry in runs]
        if file is not None and repeats != list(range(passes + (num_drawn > 0))):
            expected = range(passes + (num_drawn > 0))
            message = f"repeats are {value_text(repeats)}, expected {value_text(list(expected))}"
            _add_fault("windows", 0, message, runs[0], faults)
        if file is not None and any(entry.run.key.weight not in {None, file.weight} for entry in runs):
            _add_fault(
                "schema", 0, f"weight is {runs[0].run.key.weight}, but {FILES} records {file.weight:g}", runs[0], faults
            )
        key_by_start = dict(runs[0].run.windows[:, [START, KEY]].tolist())
        for entry in runs[1:]:
            for index, (start, window_key) in enumerate(entry.run.windows[:, [START, KEY]].tolist()):
                if passes and key_by_start.get(start) != window_key:
                    _add_fault("windows", index, "the window differs from the window that it repeats", entry, faults)


def check_ends(
    rows: Rows, table: FilesTable, settings: Settings, orders: Mapping[RepoKey, Sequence[str]], faults: Faults
) -> None:
    """Check that end tokens are at the ends of documents or, with --pack repo, of repositories, and nowhere else.

    `orders` contains the paths of each repository in the expected order.
    """
    end_id = settings.manifest.tokenizer.end_id
    if end_id is None or not (settings.is_packed_by_repo or settings.rules.closing):
        return
    last_of_repo = {key: (key[1], paths[-1]) for key, paths in orders.items() if paths}
    for entry in (one for runs in (*rows.by_file.values(), *rows.variants.values()) for one in runs):
        windows, file = entry.run.windows, table.kept.get(entry.run.key.file)
        num_tokens = _num_tokens(entry.run.key, file)
        if file is None or num_tokens is None:
            continue
        closes = settings.rules.fim is not None and settings.rules.fim.closes
        is_end = (windows[:, END] == num_tokens) & (not entry.run.key.has_independent_windows)
        is_end = np.where(windows[:, FORM] > 0, closes, is_end)
        if settings.is_packed_by_repo:  # an end token may be missing here, because it may be alone in the next row
            is_end = windows[:, END] == windows[:, END].max()
            is_end &= last_of_repo.get((file.split, file.repo)) == file.key
            is_wrong = (windows[:, IS_ENDED] == 1) & ~is_end
        else:
            is_wrong = (windows[:, IS_ENDED] == 1) != is_end
        for index in np.flatnonzero(is_wrong)[:1].tolist():
            where = "unexpected after" if windows[index, IS_ENDED] else "missing after"
            message = f"the end token {end_id} is {where} token {windows[index, END]} of {num_tokens}"
            _add_fault("special_tokens", index, message, entry, faults)
    for split, packed in (rows.packed or {}).items():
        num_repos = sum(one is split for one, _ in last_of_repo)
        if settings.is_packed_by_repo and packed.num_ends != num_repos:
            ends, repos = counted(packed.num_ends, "end token"), counted(num_repos, "repository", "repositories")
            faults.add("special_tokens", f"{split} has {ends} for {repos}, expected one for each")


def _num_tokens(key: RunKey, file: KeptFile | None) -> int | None:
    """Return the recorded number of tokens of the file or of its variant, or None if there is no record."""
    if file is None or key.variant is None:
        return None if file is None else file.tokens
    return next((row.tokens for row in file.variants if (row.kind, row.seed) == (key.variant, key.seed)), None)


def _add_fault_if_any(check: str, fault: tuple[int, str] | None, entry: RunEntry, faults: Faults) -> None:
    if fault is not None:
        _add_fault(check, *fault, entry, faults)


def _add_fault(check: str, index: int, message: str, entry: RunEntry, faults: Faults) -> None:
    row = int(entry.run.windows[index, ROW])
    faults.add(check, message, file=entry.file, row=row, path=entry.run.key.name)


def check_split_facts(rows: Rows, table: FilesTable, manifest: Manifest, num_tail_tokens: int, faults: Faults) -> None:
    """Compare the facts about each split in the manifest with the rows and files.jsonl."""
    num_windows, num_ids = dict.fromkeys(Split, 0), dict.fromkeys(Split, 0)
    for runs in (*rows.by_file.values(), *rows.variants.values()):
        for entry in runs:
            num_windows[entry.split] += len(entry.run.windows)
            num_ids[entry.split] += int(entry.run.windows[:, NUM_IDS].sum())
    if rows.packed is not None:
        num_windows = {split: one.num_rows for split, one in rows.packed.items()}
        num_ids = {split: one.num_ids for split, one in rows.packed.items()}
    num_all_tokens = sum(file.covered_tokens for file in table.kept.values())
    for split in Split:
        recorded = manifest.splits.get(split)
        files = [file for file in table.kept.values() if file.split is split]
        used = [file for file in files if file.key in rows.by_file or file.key in rows.variants]
        num_tokens = sum(file.covered_tokens for file in files)
        found: Mapping[str, float] = {
            "files": len(used),
            "groups": len({file.group for file in used}),
            "windows": num_windows[split],
            "tokens": num_tokens,
            "emitted_tokens": num_ids[split],
            "share": round(num_tokens / max(num_all_tokens, 1), NUM_SHARE_DIGITS),
        }
        for name, count in found.items():
            if getattr(recorded, name, None) != count:
                message = f"splits.{split}.{name} is {getattr(recorded, name, None)}, expected {count}"
                faults.add("fresh", message, file=MANIFEST)
    _check_row_counts(manifest, num_windows, is_packed=rows.packed is not None, faults=faults)
    recorded_tail = manifest.counts.tail_tokens_dropped
    if recorded_tail != num_tail_tokens:
        faults.add("fresh", f"counts.tail_tokens_dropped is {recorded_tail}, expected {num_tail_tokens}", file=MANIFEST)


def _check_row_counts(manifest: Manifest, num_rows: dict[Split, int], *, is_packed: bool, faults: Faults) -> None:
    for split, shards in manifest.shards.items():
        recorded = manifest.splits.get(split)
        if recorded is None or sum(shards) != recorded.windows:
            faults.add(
                "fresh",
                f"shards.{split} adds up to {counted(sum(shards), 'row')}, which differs from splits.{split}.windows",
                file=MANIFEST,
            )
    recorded_rows = None if manifest.packing is None else {split: one.rows for split, one in manifest.packing.items()}
    expected_rows = num_rows if is_packed else None
    if recorded_rows != expected_rows:
        message = f"the row counts in packing are {value_text(recorded_rows)}, expected {value_text(expected_rows)}"
        faults.add("fresh", message, file=MANIFEST)


def check_duplicates(rows: Rows, faults: Faults) -> int:
    """Check that no file has a window twice. Return the number of windows that repeat a window of another file."""
    for runs in rows.by_file.values():
        if len(runs) == 1 and (np.diff(runs[0].run.windows[:, START]) > 0).all():
            continue
        seen: set[tuple[RunKey, int]] = set()
        for entry in runs:
            for row, start in entry.run.windows[:, [ROW, START]].tolist():
                if (entry.run.key, start) in seen:
                    message = f"the file has a second window that starts at token {start}"
                    faults.add("duplicates", message, file=entry.file, row=row, path=entry.run.key.name)
                seen.add((entry.run.key, start))
    keys = [np.unique(np.concatenate([entry.run.windows[:, KEY] for entry in runs])) for runs in rows.by_file.values()]
    all_keys = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]))
    return int(np.count_nonzero(all_keys[1:] == all_keys[:-1]))
