"""What the manifest tells of sampling, variants and epochs, against files.jsonl and the rows (`files_table`)."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gristmill.checking.files import Rows
from gristmill.checking.result import Faults
from gristmill.checking.settings import Settings
from gristmill.checking.tables import CHECK, FilesTable
from gristmill.layout import MANIFEST
from gristmill.records import Split

NUM_DIGITS = 6
ROUNDING = 2e-6


def check_told(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> None:
    manifest = settings.manifest
    for name, said, found in (*_variants(table, settings), *_sampling(rows, settings)):
        if said != found:
            faults.add(CHECK, f"{name} is {said}, and it should be {found}", file=MANIFEST)
    epochs = manifest.epochs
    if epochs is not None:
        effective = epochs.shown + epochs.variant_worth * epochs.varied
        if abs(effective - epochs.effective) > ROUNDING or epochs.most < 0:
            faults.add(CHECK, f"epochs.effective is {epochs.effective}, and not {effective:.6f}", file=MANIFEST)


def _variants(table: FilesTable, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    said = settings.manifest.variants
    rows = [row for file in table.kept.values() for row in file.variants]
    yield "variants", sorted(said), sorted(settings.variants.rates)
    for kind, facts in said.items():
        own = [row for row in rows if row.kind == kind]
        made = [row for row in own if row.missing is None]
        yield f"variants.{kind}.made", facts.made, len(made)
        yield f"variants.{kind}.windows", facts.windows, sum(row.windows for row in made)
        yield f"variants.{kind}.missing", facts.missing, dict(Counter(row.missing for row in own if row.missing))
        yield f"variants.{kind}.chosen", facts.chosen, len(own)


def _sampling(rows: Rows, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    facts = settings.manifest.sampling
    if facts is None:
        return
    windows = dict.fromkeys(Split, 0)
    largest = 0
    for runs in rows.by_file.values():
        for placed in runs:
            windows[placed.split] += len(placed.run.windows)
            largest = max(largest, placed.run.repeat)
    yield "sampling.windows", facts.windows, windows
    if facts.groups:
        yield "sampling.groups: windows", sum(one.windows for one in facts.groups), windows[Split.TRAIN]
        yield "sampling.groups: largest_repeat", max(one.largest_repeat for one in facts.groups), largest
        total = sum(one.realised_share for one in facts.groups)
        is_whole = abs(total - 1) < NUM_DIGITS * len(facts.groups) * ROUNDING or not windows[Split.TRAIN]
        yield "sampling.groups: shares", is_whole, True
