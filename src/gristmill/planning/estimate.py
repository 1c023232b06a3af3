"""Compute a plan from measurements of all files or of a sample.

A file in a sample represents as many files as its weight (planning/sample.py).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config.config import Config
from gristmill.config.presets import preset_text
from gristmill.config.settings import SamplingConfig
from gristmill.core.manifest import FimFacts, PreviousSplits, SamplingFacts, SplitFacts, VariantFacts
from gristmill.core.names import path_text
from gristmill.core.records import Drop, DropReason, PlacedDocument, Split, VariantKind
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.facts import (
    fim_facts,
    fim_warnings,
    sampling_warnings,
    split_facts,
    split_warnings,
    variant_facts,
    variant_warnings,
)
from gristmill.planning.overlap_choice import FEW_PASSES, MANY_PASSES, PlanOptions, pick_overlap
from gristmill.planning.overlaps import BYTES, CONTENT, FRESH, IDS, TAIL, WINDOWS, TrialResult, UnsampledCounts
from gristmill.planning.plan_result import Budget, Contribution, OverlapPlan, Passes, Plan, Removed, Sample, SplitPlan
from gristmill.planning.sample import FileSample, PairLosses, estimate_error
from gristmill.runners.local import num_cores, num_workers
from gristmill.sources.trees import Scan

Totals = npt.NDArray[np.float64]
"""Array with the numbers of windows, content tokens, fresh tokens, ids and bytes of JSON rows."""


class PlanInputs(NamedTuple):
    """Facts that are the same at every overlap."""

    config: Config
    drawn: FileSample
    found: Scan
    dropped: list[Drop]
    """Sampled files that step 1 of a build drops, after reading them. Files that the scan dropped are in `found`."""
    previous_splits: PreviousSplits | None
    seconds: Mapping[str, float]
    workers: int
    is_packed: bool
    """True if windows are packed, so that rows are counted instead of windows."""
    has_mask: bool
    """True if the tokenizer has a mask token."""


class EstimatedBuild(NamedTuple):
    """Estimated result of a build with one overlap."""

    overlap: int
    by_split: dict[Split, Totals]
    windows_per_token: float
    is_cut_short: bool
    distinct_tokens: float
    cut_tokens: float
    languages: list[Contribution]
    folders: list[Contribution]
    removed: list[Removed]
    splits: list[SplitPlan]
    sampling: SamplingFacts | None
    fim: FimFacts | None
    variants: dict[VariantKind, VariantFacts]
    warnings: list[str]
    error: float
    """Maximum relative error. 0 if all files were read."""

    @property
    def total(self) -> list[float]:
        totals: list[float] = sum(self.by_split.values(), np.zeros(TAIL)).tolist()
        return totals


class Measurements(NamedTuple):
    """Counts and measured sizes of rows."""

    unsampled: UnsampledCounts
    builds: list[EstimatedBuild]
    """Estimated results, one per overlap."""
    trials: list[TrialResult]
    """Measurements of the formatted rows of some documents, one per overlap."""
    parquet_bytes: list[int | None]
    """Size of the same rows as Parquet, one entry per overlap. An entry is None if pyarrow is not installed."""
    seconds_to_decide: float
    """Time that a build needs to draw windows and create variants."""


def estimate_build(
    inputs: PlanInputs, context: Context, decided: Decided, unsampled: UnsampledCounts, column: int
) -> EstimatedBuild:
    """Estimate the result of a build with one overlap. `column` is the index of the overlap in the counts."""
    decision, drawn = decided.decision, inputs.drawn
    facts = split_facts(decision) if decision.kept else {}
    fim = fim_facts(decision, context.config.fim)
    variants = variant_facts(decision, context.config.variants)
    sampling = decided.sampling
    requested, available = (sampling.wanted_windows, sampling.natural_windows) if sampling else ({}, {})
    is_all = drawn.is_all
    return EstimatedBuild(
        overlap=context.config.window.num_overlap_tokens,
        by_split=_count_packed_rows(_totals(inputs, decision, unsampled, column), inputs),
        windows_per_token=_windows_per_token(drawn, unsampled, column),
        is_cut_short=any(requested[split] < available[split] for split in requested),
        distinct_tokens=sum(num_tokens for _, num_tokens in _weighted_tokens(drawn, decision)),
        cut_tokens=sum(num_tokens for _, num_tokens in _weighted_cuts(drawn, decision)),
        languages=_contributions(drawn, decision, lambda document: document.language),
        folders=_contributions(drawn, decision, _top_folder),
        removed=_removed(inputs, decision),
        splits=_splits(facts) if is_all else [],
        sampling=sampling if is_all else None,
        fim=fim if is_all else None,
        variants=variants if is_all else {},
        warnings=_warnings(inputs, decided, fim, variants) if is_all and facts else [],
        error=0.0 if is_all else _error(drawn, decision, unsampled, column),
    )


def _windows_per_token(drawn: FileSample, unsampled: UnsampledCounts, column: int) -> float:
    weights = np.array([drawn.bytes_weight(document.size) for document in unsampled.documents])
    content, fresh = (float(weights @ unsampled.counts[:, column, measure]) for measure in (CONTENT, FRESH))
    return content / max(1.0, fresh)


def _totals(inputs: PlanInputs, decision: Decision, unsampled: UnsampledCounts, column: int) -> dict[Split, Totals]:
    """Sum the counts by split.

    A sample is too small to be split like all files, so its total is divided in proportion to the configured shares.
    """
    drawn = inputs.drawn
    totals = dict.fromkeys(Split, np.zeros(TAIL))
    for document in decision.in_row_order():
        weight = drawn.bytes_weight(document.size)
        totals[document.split] = totals[document.split] + weight * np.array(_document_counts(document), np.float64)
    if drawn.is_all:
        return totals
    available = dict.fromkeys(Split, np.zeros(TAIL))
    for document, counts in zip(unsampled.documents, unsampled.counts[:, column, :TAIL], strict=True):
        available[document.split] = available[document.split] + drawn.bytes_weight(document.size) * counts
    total = sum(available.values(), np.zeros(TAIL))
    return {
        split: share * total * np.divide(totals[split], available[split], out=np.ones(TAIL), where=available[split] > 0)
        for split, share in inputs.config.split.fractions().items()
    }


def _count_packed_rows(totals: dict[Split, Totals], inputs: PlanInputs) -> dict[Split, Totals]:
    """With --pack, replace the number of windows with the number of rows that the ids fill.

    The estimate ignores empty space, which is less than 1% of the rows.
    """
    if not inputs.is_packed:
        return totals
    rows = {split: one.copy() for split, one in totals.items()}
    for one in rows.values():
        one[WINDOWS] = math.ceil(one[IDS] / inputs.config.window.length)
    return rows


def _document_counts(document: PlacedDocument) -> tuple[int, ...]:
    fresh = document.num_uncut_tokens - document.num_tail_tokens_dropped
    content, ids = document.num_window_tokens, document.num_emitted_tokens
    return document.num_windows, content, fresh, ids, document.num_row_bytes


def make_plan(inputs: PlanInputs, measurements: Measurements, options: PlanOptions, seconds: float) -> Plan:
    """Compute the plan, and pick the overlap."""
    drawn, length = inputs.drawn, inputs.config.window.length
    budget = options.budget(length)
    overlaps = [
        _overlap_plan(inputs, measurements, column, budget, options) for column in range(len(measurements.builds))
    ]
    picked = pick_overlap(overlaps, budget, length)
    build = next(build for build in measurements.builds if build.overlap == picked.overlap)
    num_found = drawn.num_files + drawn.num_empty + len(inputs.found.drops)
    unsampled = measurements.unsampled
    small_documents = (
        one for one, counts in zip(unsampled.documents, unsampled.counts[:, 0], strict=True) if counts[WINDOWS] == 1
    )
    return Plan(
        sources=[path_text(source) for source in inputs.config.sources],
        found=num_found,
        kept=num_found - sum(one.files for one in build.removed),
        distinct_tokens=round(build.distinct_tokens),
        cut_tokens=round(build.cut_tokens),
        one_window_files=round(sum(drawn.files_weight(document.size) for document in small_documents)),
        preset=preset_text(inputs.config.preset or "", has_mask=inputs.has_mask),
        is_packed=inputs.is_packed,
        has_documents=inputs.config.has_documents,
        window_length=length,
        batch_size=options.batch_size,
        budget=budget,
        overlaps=overlaps,
        languages=build.languages,
        folders=build.folders,
        removed=build.removed,
        splits=build.splits,
        previous_splits=inputs.previous_splits,
        sampling=build.sampling,
        fim=build.fim,
        variants=build.variants,
        passes=_passes(build, options),
        pick=picked,
        sample=None
        if drawn.is_all
        else Sample(files=len(drawn.files), of=drawn.num_files, error=round(build.error, 4)),
        warnings=build.warnings,
        workers=inputs.workers,
        seconds=round(seconds, 3),
    )


def _splits(facts: Mapping[Split, SplitFacts]) -> list[SplitPlan]:
    return [SplitPlan(split=split, files=one.files, tokens=one.tokens, share=one.share) for split, one in facts.items()]


def _warnings(
    inputs: PlanInputs,
    decided: Decided,
    fim: FimFacts | None,
    variants: Mapping[VariantKind, VariantFacts],
) -> list[str]:
    """Return the warnings in the order in which a build prints them."""
    config, decision = inputs.config, decided.decision
    return [
        *sampling_warnings(decided.sampling, config.sampling, has_variants=bool(decision.variants)),
        *fim_warnings(fim),
        *variant_warnings(variants, config.rewrite),
        *inputs.found.warnings,
        *split_warnings(config.split, decision, decided.decontamination),
    ]


def _passes(build: EstimatedBuild, options: PlanOptions) -> list[Passes]:
    """Convert passes over the tokens of train to epochs and steps."""
    train = build.by_split[Split.TRAIN].tolist()
    if not round(train[WINDOWS]):
        return []
    redundancy = train[CONTENT] / max(1.0, train[FRESH])
    epochs = {passes: passes / redundancy for passes in (FEW_PASSES, MANY_PASSES)}
    return [
        Passes(
            passes=passes, epochs=round(count, 2), steps=math.ceil(count * round(train[WINDOWS]) / options.batch_size)
        )
        for passes, count in epochs.items()
    ]


def _error(drawn: FileSample, decision: Decision, unsampled: UnsampledCounts, column: int) -> float:
    """Estimate the error of a sample from the windows at one overlap."""
    windows: Counter[int] = Counter()
    for document, count in zip(unsampled.documents, unsampled.counts[:, column, WINDOWS].tolist(), strict=True):
        windows[document.size] += count
    lost = [
        *((drop.num_tokens or 0) * drawn.bytes_weight(drop.size) for drop in _near_duplicates(decision)),
        *(num_tokens for _, num_tokens in _weighted_cuts(drawn, decision) if num_tokens),
    ]
    num_left = sum(num_tokens for _, num_tokens in _weighted_tokens(drawn, decision))
    return estimate_error(drawn, windows, PairLosses(len(lost), sum(lost) / (sum(lost) + num_left)))


def _overlap_plan(
    inputs: PlanInputs, measurements: Measurements, column: int, budget: Budget | None, options: PlanOptions
) -> OverlapPlan:
    build, trial, parquet_bytes = (
        measurements.builds[column],
        measurements.trials[column],
        measurements.parquet_bytes[column],
    )
    total, by_split = build.total, build.by_split
    scale = _Scale.of(inputs, measurements, column)
    train_windows, train_tokens = (round(by_split[Split.TRAIN][measure]) for measure in (WINDOWS, IDS))
    return OverlapPlan(
        overlap=build.overlap,
        windows=round(total[WINDOWS]),
        train_windows=train_windows,
        validation_windows=round(by_split[Split.VALIDATION][WINDOWS]),
        test_windows=round(by_split[Split.TEST][WINDOWS]),
        tokens=round(total[IDS]),
        train_tokens=train_tokens,
        redundancy=round(total[CONTENT] / max(1.0, total[FRESH]), 4),
        windows_per_token=round(build.windows_per_token, 4),
        is_cut_short=build.is_cut_short,
        jsonl_bytes=round(total[BYTES]),
        jsonl_zst_bytes=scale.num_bytes(measurements.trials[0].jsonl_zst_bytes, trial.jsonl_zst_bytes),
        parquet_bytes=None
        if parquet_bytes is None
        else scale.num_bytes(measurements.parquet_bytes[0] or 0, parquet_bytes),
        build_seconds=round(_build_seconds(inputs, measurements, total[BYTES]), 2),
        steps_per_epoch=-(-train_windows // options.batch_size),
        epochs_for_budget=budget.tokens / train_tokens if budget and train_tokens else None,
    )


class _Scale(NamedTuple):
    """Factors that scale the size of trial rows to the size of all rows."""

    per_byte: float
    """Factor for the size without overlap."""
    per_added: float
    """Factor for the size that overlap adds."""

    @classmethod
    def of(cls, inputs: PlanInputs, measurements: Measurements, column: int) -> "_Scale":
        no_overlap, with_overlap = measurements.trials[0], measurements.trials[column]
        total, total_without = measurements.builds[column].total, measurements.builds[0].total
        config = inputs.config
        if config.sampling != SamplingConfig() or config.variants.rates or config.fim.is_enabled:
            # Sampling, variants and fill-in-the-middle choose new windows at each overlap, so a larger overlap does not
            # simply add windows.
            per_byte = total[BYTES] / max(1, with_overlap.jsonl_bytes)
            return cls(per_byte, per_byte)
        per_byte = measurements.unsampled.ids_zst_bytes / max(1, no_overlap.ids_zst_bytes)
        if not inputs.drawn.is_all:  # the sample over-represents large files, but the trial documents do not
            per_byte = total[FRESH] / max(1, with_overlap.num_fresh)
        num_added = total[WINDOWS] - total_without[WINDOWS]
        num_added_in_trial = with_overlap.num_windows - no_overlap.num_windows
        return cls(per_byte, num_added / num_added_in_trial if num_added_in_trial > 0 else per_byte)

    def num_bytes(self, no_overlap: int, with_overlap: int) -> int:
        return round(no_overlap * self.per_byte + (with_overlap - no_overlap) * self.per_added)


def _build_seconds(inputs: PlanInputs, measurements: Measurements, num_bytes: float) -> float:
    """Estimate the duration of a build: the measured time of steps 1 and 2, plus the time to write the rows."""
    drawn, seconds, trials = inputs.drawn, inputs.seconds, measurements.trials
    workers = num_workers(inputs.config.run.workers, drawn.num_bytes)
    mapped = (seconds["prepare"] + seconds["compare"] + measurements.seconds_to_decide) * inputs.workers / workers
    # Workers format and write rows while the parent process computes digests. The slower of the two, or the number of
    # cores, limits the speed.
    in_worker, in_parent = sum(one.seconds_in_worker for one in trials), sum(one.seconds_in_parent for one in trials)
    per_trial = max(in_worker / workers, in_parent, (in_worker + in_parent) / num_cores())
    rows = per_trial * num_bytes / max(1, sum(one.jsonl_bytes for one in trials))
    return seconds["load"] + seconds["scan"] + drawn.growth * (mapped + seconds["decide"]) + rows


def _removed(inputs: PlanInputs, decision: Decision) -> list[Removed]:
    """Count dropped files by reason. The reason with the most files comes first."""
    drawn = inputs.drawn
    files: dict[DropReason, float] = {DropReason.EMPTY: drawn.num_empty} if drawn.num_empty else {}
    num_bytes: dict[DropReason, float] = dict.fromkeys(files, 0.0)
    weighted = [(drop, 1.0, 1.0) for drop in inputs.found.drops]
    weighted += [
        (drop, drawn.files_weight(drop.size), drawn.bytes_weight(drop.size))
        for drop in (*inputs.dropped, *decision.drops)
    ]
    for drop, files_weight, bytes_weight in weighted:
        files[drop.reason] = files.get(drop.reason, 0) + files_weight
        num_bytes[drop.reason] = num_bytes.get(drop.reason, 0.0) + (drop.size or 0) * bytes_weight
    return [
        Removed(reason=reason, files=round(count), bytes=round(num_bytes[reason]))
        for reason, count in sorted(files.items(), key=lambda item: (-item[1], item[0]))
    ]


def _contributions(
    drawn: FileSample, decision: Decision, name_of: Callable[[PlacedDocument], str]
) -> list[Contribution]:
    """Count kept files and their tokens by name. The name with the most tokens comes first."""
    files: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for document, num_tokens in _weighted_tokens(drawn, decision):
        name = name_of(document)
        files[name] = files.get(name, 0.0) + drawn.files_weight(document.size)
        tokens[name] = tokens.get(name, 0.0) + num_tokens
    total = sum(tokens.values())
    return [
        Contribution(name=name, files=round(files[name]), tokens=round(count), share=round(count / max(1.0, total), 4))
        for name, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]


def _weighted_tokens(drawn: FileSample, decision: Decision) -> Iterator[tuple[PlacedDocument, float]]:
    for document in decision.kept:
        yield document, document.num_uncut_tokens * drawn.bytes_weight(document.size)


def _weighted_cuts(drawn: FileSample, decision: Decision) -> Iterator[tuple[PlacedDocument, float]]:
    for document in decision.kept:
        yield document, document.num_cut_tokens * drawn.bytes_weight(document.size)
    for document in decision.cut_away:
        yield document, document.num_tokens * drawn.bytes_weight(document.size)


def _near_duplicates(decision: Decision) -> Iterator[Drop]:
    return (drop for drop in decision.drops if drop.reason is DropReason.NEAR_DUPLICATE)


def _top_folder(document: PlacedDocument) -> str:
    """Return the repo and the top-level folder, like `python3.11/email/`, or only the repo, like `python3.11/`."""
    folder, slash, _ = document.path.partition("/")
    return f"{document.repo}/{folder}/" if slash else f"{document.repo}/"
