"""The runs of all data files, by file: each against its row in files.jsonl, and all of them against the manifest.

`files_table`, `windows`, `fresh` and `duplicates`, as far as they are about more than one row.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.checks.file_rows import FileKey, FilesTable, KeptFile
from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import END, FORM, FRESH, IS_ENDED, KEY, NUM_IDS, ROW, START, Run, RunKey
from gristmill.checks.windows import (
    Drawn,
    Expected,
    Shape,
    drawn_numbers,
    expected_windows,
    first_difference,
    wrong_draw,
    wrong_fresh,
    wrong_lines,
    wrong_shares,
    wrong_stretches,
)
from gristmill.core.layout import FILES, MANIFEST
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import Split

NUM_SHARE_DIGITS = 6


class PlacedRun(NamedTuple):
    run: Run
    file: str
    """The data file it is in."""
    split: Split


RepoKey = tuple[Split, str]
"""A repository's files in one split."""


class Segment(NamedTuple):
    """A place in a packed row."""

    path: str
    start: int
    file: str
    """The data file, and the row in it."""
    row: int
    group: int
    """Which of the stretches that share the row."""


class Packed(NamedTuple):
    """Rows of several files' windows."""

    num_rows: int
    num_ids: int
    num_ends: int
    """End tokens outside of the windows."""

    def plus(self, num_rows: int, num_ids: int, num_ends: int) -> "Packed":
        return Packed(self.num_rows + num_rows, self.num_ids + num_ids, self.num_ends + num_ends)


class Rows(NamedTuple):
    """What all data files hold."""

    by_file: dict[FileKey, list[PlacedRun]]
    variants: dict[FileKey, list[PlacedRun]]
    """Of these files."""
    num_rows: int
    num_ids: int
    packed: dict[Split, Packed] | None = None
    """None: each row is a window."""
    layouts: dict[RepoKey, list[Segment]] = {}  # noqa: RUF012 - never changed
    """With --pack repo: the segments of each repository, in the order in which they are read."""

    @classmethod
    def of(cls, runs: Iterable[PlacedRun], num_rows: int) -> "Rows":
        by_file: dict[FileKey, list[PlacedRun]] = {}
        variants: dict[FileKey, list[PlacedRun]] = {}
        num_ids = 0
        for placed in runs:
            key = placed.run.key
            (by_file if key.variant is None else variants).setdefault((key.repo, key.path), []).append(placed)
            num_ids += int(placed.run.windows[:, NUM_IDS].sum())
        return cls(by_file, variants, num_rows, num_ids)


def check_rows_against_table(rows: Rows, table: FilesTable, faults: Faults) -> None:
    """Every row belongs to a kept file of its split, and every kept file has its rows."""
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        for placed in runs:
            if file is None:
                what = "dropped" if key in table.dropped else "not there"
                _add("files_table", 0, f"has rows, but in {FILES} it is {what}", placed, faults)
            elif file.split is not placed.split:
                _add("files_table", 0, f"in {placed.split}, but {FILES} says {file.split}", placed, faults)
            elif file.language != placed.run.language:
                what = f"language {placed.run.language!r}, but {FILES} says {file.language!r}"
                _add("schema", 0, what, placed, faults)
    for key, file in table.kept.items():
        num_windows = sum(len(placed.run.windows) for placed in rows.by_file.get(key, ()))
        if num_windows != file.windows:
            faults.add(
                "files_table", f"windows is {file.windows}, and there are {num_windows}", file=FILES, path=file.name
            )


def check_order(rows: Rows, faults: Faults) -> None:
    """A split's files stand in path order."""
    last: dict[Split, FileKey] = {}
    for key, runs in rows.by_file.items():
        before = last.setdefault(runs[0].split, key)
        if key < before:
            _add("windows", 0, f"behind {'/'.join(before)}: not in path order", runs[0], faults)
        last[runs[0].split] = key


def check_windows(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> int:
    """Each kept file's windows lie where they must; the tokens that --tail drop left out of them."""
    shape, seed, drops_touched = settings.shape, settings.sampling.seed, settings.decontaminate == "drop"
    for key, runs in rows.by_file.items():
        copies = Counter(placed.run.key for placed in runs)
        for placed in runs:
            if copies[placed.run.key] > 1:
                _add("windows", 0, "its rows do not stand together", placed, faults)
        file = table.kept.get(key)
        for placed in runs:
            _add_if("fresh", wrong_fresh(placed.run.windows, is_again=placed.run.repeat > 0), placed, faults)
            if file is not None and settings.is_by_repo:
                _add_if("windows", wrong_stretches(placed.run, file.tokens, file.cuts), placed, faults)
            elif file is not None and file.is_rewritten:
                _check_rewritten(placed, runs[0], file, seed, faults)
            elif file is not None and copies[placed.run.key] == 1:
                _check_run(placed, file, _expected(file, shape, drops_touched=drops_touched), seed, faults)
    if shape.tail != "drop":
        return 0
    plain = (file for file in table.kept.values() if not file.is_rewritten)
    expected = (_expected(file, shape, drops_touched=drops_touched) for file in plain)
    return sum(one.num_tail_tokens_dropped for one in expected)


def _expected(file: KeptFile, shape: Shape, *, drops_touched: bool) -> Expected:
    is_dropping = drops_touched and file.split is not Split.TRAIN
    return expected_windows(file.tokens, file.cuts, shape, drops_touched=is_dropping)


def _check_run(placed: PlacedRun, file: KeptFile, expected: Expected, seed: int, faults: Faults) -> None:
    """All windows in the first `passes` runs of a file, as many as were drawn in the last."""
    windows = placed.run.windows
    passes, num_drawn = file.draw or (1, 0)
    _add_if("windows", wrong_lines(windows, file.lines), placed, faults)
    if placed.run.repeat < passes:
        _add_if("windows", first_difference(windows, expected), placed, faults)
    else:
        _add_if("windows", wrong_draw(windows, expected, Drawn(num_drawn, seed, file.key)), placed, faults)
    num_fresh, num_shown = int(windows[:, FRESH].sum()), file.shown_tokens - expected.num_tail_tokens_dropped
    if placed.run.repeat == 0 and num_fresh != num_shown:
        what = f"{counted(num_fresh, 'fresh token')} in its rows, {num_shown} by its tokens, cut_tokens and left_tokens"
        faults.add("fresh", what, file=FILES, path=file.name)


def _check_rewritten(placed: PlacedRun, first: PlacedRun, file: KeptFile, seed: int, faults: Faults) -> None:
    """Windows of fill in the middle follow one another: together they show the file once."""
    windows = placed.run.windows
    passes, num_drawn = file.draw or (1, 0)
    _add_if("windows", wrong_lines(windows, file.lines), placed, faults)
    if placed.run.repeat:
        if placed.run.repeat == passes:
            natural = [(start, end) for start, end in first.run.windows[:, [START, END]].tolist()]
            numbers = drawn_numbers(len(natural), num_drawn, seed, file.key)
            if windows[:, START].tolist() != [natural[number][0] for number in numbers]:
                _add("windows", 0, "other windows are drawn than the seed says", placed, faults)
        return
    starts, ends = windows[:, START], windows[:, END]
    before = np.concatenate(([0], ends[:-1]))
    is_wrong = (starts < before) | (ends <= starts) | (ends > file.tokens)
    if passes:
        is_wrong |= starts != before
        is_wrong[-1] |= ends[-1] != file.tokens
    elif len(windows) != num_drawn:
        _add("windows", 0, f"{counted(len(windows), 'window')} drawn, and {num_drawn} should be", placed, faults)
    for index in np.flatnonzero(is_wrong)[:1].tolist():
        what = f"tokens {starts[index]} to {ends[index]} of {file.tokens} do not follow those of the window before"
        _add("windows", index, what, placed, faults)
    num_fresh = int(windows[:, FRESH].sum())
    if num_fresh != file.shown_tokens:
        what = f"{counted(num_fresh, 'fresh token')} in its rows, {file.shown_tokens} by its tokens and left_tokens"
        _add("fresh", 0, what, placed, faults)


def check_repeats(rows: Rows, table: FilesTable, max_epochs: int, faults: Faults) -> None:
    """A file's windows are there as often as it says and may be, and again just as they were before."""
    for kept in table.kept.values():
        for what in wrong_shares(kept, max_epochs):
            faults.add("windows", what, file=FILES, path=kept.name)
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        passes, num_drawn = (file and file.draw) or (1, 0)
        repeats = [placed.run.repeat for placed in runs]
        if file is not None and repeats != list(range(passes + (num_drawn > 0))):
            what = f"repeats {repeats}, of a file shown {counted(passes, 'time')} and {counted(num_drawn, 'window')}"
            _add("windows", 0, what, runs[0], faults)
        if file is not None and any(placed.run.key.weight not in {None, file.weight} for placed in runs):
            _add("schema", 0, f"weight {runs[0].run.key.weight}, {FILES} has {file.weight:g}", runs[0], faults)
        ids_of = dict(runs[0].run.windows[:, [START, KEY]].tolist())
        for placed in runs[1:]:
            for index, (start, ids) in enumerate(placed.run.windows[:, [START, KEY]].tolist()):
                if passes and ids_of.get(start) != ids:
                    _add("windows", index, "not the window that it repeats", placed, faults)


def check_ends(
    rows: Rows, table: FilesTable, settings: Settings, orders: Mapping[RepoKey, Sequence[str]], faults: Faults
) -> None:
    """An end token stands where a document ends and nowhere else; with --pack repo, where a repository ends.

    `orders`: the files of each repository, as they must stand.
    """
    end_id = settings.manifest.tokenizer.end_id
    if end_id is None or not (settings.is_by_repo or settings.rules.closing):
        return
    last_of_repo = {key: (key[1], paths[-1]) for key, paths in orders.items() if paths}
    for placed in (one for runs in (*rows.by_file.values(), *rows.variants.values()) for one in runs):
        windows, file = placed.run.windows, table.kept.get(placed.run.key.file)
        num_tokens = _num_tokens(placed.run.key, file)
        if file is None or num_tokens is None:
            continue
        closes = settings.rules.fim is not None and settings.rules.fim.closes
        is_end = (windows[:, END] == num_tokens) & (not placed.run.key.is_by_windows)
        is_end = np.where(windows[:, FORM] > 0, closes, is_end)
        if settings.is_by_repo:  # the last end token may be in a row by itself
            is_end = windows[:, END] == windows[:, END].max()
            is_end &= last_of_repo.get((file.split, file.repo)) == file.key
            is_wrong = (windows[:, IS_ENDED] == 1) & ~is_end
        else:
            is_wrong = (windows[:, IS_ENDED] == 1) != is_end
        for index in np.flatnonzero(is_wrong)[:1].tolist():
            where = "behind" if windows[index, IS_ENDED] else "missing behind"
            what = f"the end token {end_id} is {where} token {windows[index, END]} of {num_tokens}"
            _add("special_tokens", index, what, placed, faults)
    for split, packed in (rows.packed or {}).items():
        num_repos = sum(one is split for one, _ in last_of_repo)
        if settings.is_by_repo and packed.num_ends != num_repos:
            ends, repos = counted(packed.num_ends, "end token"), counted(num_repos, "repository", "repositories")
            faults.add("special_tokens", f"{split} has {ends} for {repos}")


def _num_tokens(key: RunKey, file: KeptFile | None) -> int | None:
    """Number of tokens of the file or of its variant."""
    if file is None or key.variant is None:
        return None if file is None else file.tokens
    return next((row.tokens for row in file.variants if (row.kind, row.seed) == (key.variant, key.seed)), None)


def _add_if(check: str, fault: tuple[int, str] | None, placed: PlacedRun, faults: Faults) -> None:
    if fault is not None:
        _add(check, *fault, placed, faults)


def _add(check: str, index: int, what: str, placed: PlacedRun, faults: Faults) -> None:
    row = int(placed.run.windows[index, ROW])
    faults.add(check, what, file=placed.file, row=row, path=placed.run.key.name)


def check_split_facts(rows: Rows, table: FilesTable, manifest: Manifest, num_tail_tokens: int, faults: Faults) -> None:
    num_windows, num_ids = dict.fromkeys(Split, 0), dict.fromkeys(Split, 0)
    for runs in (*rows.by_file.values(), *rows.variants.values()):
        for placed in runs:
            num_windows[placed.split] += len(placed.run.windows)
            num_ids[placed.split] += int(placed.run.windows[:, NUM_IDS].sum())
    if rows.packed is not None:
        num_windows = {split: one.num_rows for split, one in rows.packed.items()}
        num_ids = {split: one.num_ids for split, one in rows.packed.items()}
    num_all_tokens = sum(file.shown_tokens for file in table.kept.values())
    for split in Split:
        said = manifest.splits.get(split)
        files = [file for file in table.kept.values() if file.split is split]
        shown = [file for file in files if file.key in rows.by_file or file.key in rows.variants]
        num_tokens = sum(file.shown_tokens for file in files)
        found: Mapping[str, float] = {
            "files": len(shown),
            "groups": len({file.group for file in shown}),
            "windows": num_windows[split],
            "tokens": num_tokens,
            "emitted_tokens": num_ids[split],
            "share": round(num_tokens / max(num_all_tokens, 1), NUM_SHARE_DIGITS),
        }
        for name, count in found.items():
            if getattr(said, name, None) != count:
                what = f"splits.{split}.{name} is {getattr(said, name, None)}, and it should be {count}"
                faults.add("fresh", what, file=MANIFEST)
    _check_row_counts(manifest, num_windows, is_packed=rows.packed is not None, faults=faults)
    said_tail = manifest.counts.tail_tokens_dropped
    if said_tail != num_tail_tokens:
        faults.add("fresh", f"counts.tail_tokens_dropped is {said_tail}, not {num_tail_tokens}", file=MANIFEST)


def _check_row_counts(manifest: Manifest, num_rows: dict[Split, int], *, is_packed: bool, faults: Faults) -> None:
    for split, shards in manifest.shards.items():
        said = manifest.splits.get(split)
        if said is None or sum(shards) != said.windows:
            faults.add(
                "fresh",
                f"shards.{split} has {counted(sum(shards), 'row')}, splits.{split}.windows others",
                file=MANIFEST,
            )
    told = None if manifest.packing is None else {split: one.rows for split, one in manifest.packing.items()}
    if told != (num_rows if is_packed else None):
        faults.add("fresh", f"packing tells of rows {told}, which there are not", file=MANIFEST)


def check_duplicates(rows: Rows, faults: Faults) -> int:
    """No window twice in a file; how many windows have the same ids as one of another file."""
    for runs in rows.by_file.values():
        if len(runs) == 1 and (np.diff(runs[0].run.windows[:, START]) > 0).all():
            continue
        seen: set[tuple[RunKey, int]] = set()
        for placed in runs:
            for row, start in placed.run.windows[:, [ROW, START]].tolist():
                if (placed.run.key, start) in seen:
                    what = f"a second window that starts at {start}"
                    faults.add("duplicates", what, file=placed.file, row=row, path=placed.run.key.name)
                seen.add((placed.run.key, start))
    keys = [
        np.unique(np.concatenate([placed.run.windows[:, KEY] for placed in runs])) for runs in rows.by_file.values()
    ]
    everywhere = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]))
    return int(np.count_nonzero(everywhere[1:] == everywhere[:-1]))
