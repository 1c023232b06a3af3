"""Compare the counts in the manifest with files.jsonl and the rows (check `files_table`)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gristmill.checks.file_rows import CHECK, FilesTable
from gristmill.checks.findings import Faults, value_text
from gristmill.checks.requirements import Settings
from gristmill.checks.windows_by_file import Rows
from gristmill.core.layout import MANIFEST
from gristmill.core.manifest import Manifest
from gristmill.core.records import DropReason, Split


def check_counts(table: FilesTable, manifest: Manifest, faults: Faults) -> None:
    """Compare the counts of files, tokens, sources and cuts in the manifest with files.jsonl."""
    for name, recorded, found in (*_count_facts(table, manifest), *_decontamination_facts(table, manifest)):
        if recorded != found:
            faults.add(CHECK, f"{name}: {_describe_difference(recorded, found)}", file=MANIFEST)


def _count_facts(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each count, its value in the manifest, and its value from files.jsonl."""
    kept, dropped, counts = table.kept.values(), table.dropped.values(), manifest.counts
    by_reason = _count_values(row.reason for row in dropped)
    by_language: dict[str, dict[Split, int]] = {}
    for file in kept:
        by_split = by_language.setdefault(file.language, dict.fromkeys(Split, 0))
        by_split[file.split] += file.covered_tokens
    num_near = by_reason.get(DropReason.NEAR_DUPLICATE, 0)
    yield "counts.found", counts.found, len(table)
    yield "counts.kept", counts.kept, len(kept)
    yield "counts.dropped", counts.dropped, len(dropped)
    yield "counts.dropped_by_reason", counts.dropped_by_reason, by_reason
    yield "counts.licenses", counts.licenses, _count_values(file.license or "" for file in kept)
    yield "counts.redactions", counts.redactions, _count_values(one.kind for file in kept for one in file.redactions)
    yield (
        "counts.respellings",
        counts.respellings,
        _count_values(one.spelling for file in kept for one in file.respellings),
    )
    yield "tokens_by_language", manifest.tokens_by_language, by_language
    yield from _source_facts(table, manifest)
    yield "near_duplicates.dropped", manifest.near_duplicates.dropped, num_near


def _decontamination_facts(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, recorded value and computed value of each fact about cut tokens and contaminated files."""
    recorded = manifest.decontamination
    tokens_before, tokens_cut, files_cut = (dict.fromkeys(Split, 0) for _ in range(3))
    for file in table.kept.values():
        tokens_before[file.split] += file.tokens
        tokens_cut[file.split] += file.cut_tokens
        files_cut[file.split] += file.cut_tokens > 0
    for row in table.dropped.values():
        if row.reason is DropReason.CONTAMINATED and row.split is not None:
            tokens_before[row.split] += row.tokens or 0
            tokens_cut[row.split] += row.tokens or 0
            files_cut[row.split] += 1
    yield "decontamination.how", recorded.how, manifest.settings["split"].get("decontaminate")
    yield "decontamination.tokens_before", recorded.tokens_before, tokens_before
    yield "decontamination.tokens_cut", recorded.tokens_cut, tokens_cut
    yield "decontamination.files_cut", recorded.files_cut, files_cut


def _count_values(names: Iterable[Any]) -> dict[Any, int]:
    return dict(Counter(names))


def _source_facts(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, recorded value and computed value of the number of files of each source.

    Sources that are tables are counted together, because their rows may name any repository.
    """
    found = _count_values(repo for repo, _ in (*table.kept, *table.dropped))
    trees = {one.repo: one.found for one in manifest.sources if not one.is_table}
    yield "sources", {repo: recorded for repo, recorded in trees.items() if recorded}, _select(found, trees)
    num_rows = sum(found.values()) - sum(_select(found, trees).values())
    yield (
        "the number of files from tables in sources",
        sum(one.found for one in manifest.sources if one.is_table),
        num_rows,
    )


def _select(counts: Mapping[str, int], names: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name in names}


def _describe_difference(recorded: Any, found: Any) -> str:
    if not isinstance(recorded, Mapping):
        return f"recorded as {value_text(recorded)}, expected {value_text(found)}"
    names = [name for name in dict.fromkeys((*recorded, *found)) if recorded.get(name) != found.get(name)]
    recorded_value, found_value = value_text(recorded.get(names[0])), value_text(found.get(names[0]))
    return f"{str(names[0])!r} is recorded as {recorded_value}, expected {found_value}"


NUM_DIGITS = 6
ROUNDING = 2e-6


def check_sampling_facts(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> None:
    """Compare the variants, sampling and epochs in the manifest with files.jsonl and the rows."""
    manifest = settings.manifest
    for name, recorded, found in (*_variant_facts(table, settings), *_sampling_facts(rows, settings)):
        if recorded != found:
            faults.add(CHECK, f"{name} is {value_text(recorded)}, expected {value_text(found)}", file=MANIFEST)
    epochs = manifest.epochs
    effective = epochs.shown + epochs.variant_worth * epochs.varied
    if abs(effective - epochs.effective) > ROUNDING:
        faults.add(CHECK, f"epochs.effective is {epochs.effective}, expected {effective:.6f}", file=MANIFEST)
    if epochs.most < 0:
        faults.add(CHECK, f"epochs.most is {epochs.most}, expected 0 or more", file=MANIFEST)


def _variant_facts(table: FilesTable, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    recorded = settings.manifest.variants
    rows = [row for file in table.kept.values() for row in file.variants]
    yield "variants", sorted(recorded), sorted(settings.variants.rates)
    for kind, facts in recorded.items():
        rows_of_kind = [row for row in rows if row.kind == kind]
        made = [row for row in rows_of_kind if row.missing is None]
        yield f"variants.{kind}.made", facts.made, len(made)
        yield f"variants.{kind}.windows", facts.windows, sum(row.windows for row in made)
        yield (
            f"variants.{kind}.missing",
            facts.missing,
            dict(Counter(row.missing for row in rows_of_kind if row.missing)),
        )
        yield f"variants.{kind}.chosen", facts.chosen, len(rows_of_kind)


def _sampling_facts(rows: Rows, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    facts = settings.manifest.sampling
    if facts is None:
        return
    windows = dict.fromkeys(Split, 0)
    max_repeat = 0
    for runs in rows.by_file.values():
        for entry in runs:
            windows[entry.split] += len(entry.run.windows)
            max_repeat = max(max_repeat, entry.run.repeat)
    yield "sampling.windows", facts.windows, windows
    if facts.groups:
        yield "the sum of windows in sampling.groups", sum(one.windows for one in facts.groups), windows[Split.TRAIN]
        yield (
            "the maximum of largest_repeat in sampling.groups",
            max(one.largest_repeat for one in facts.groups),
            max_repeat,
        )
        total = sum(one.realised_share for one in facts.groups)
        is_sum_one = abs(total - 1) < NUM_DIGITS * len(facts.groups) * ROUNDING or not windows[Split.TRAIN]
        yield "the sum of realised_share in sampling.groups", 1 if is_sum_one else total, 1
