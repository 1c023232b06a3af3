"""What was counted -> a plan: pure arithmetic, for all files or for a sample of them.

Of a sample, each file stands for as many as its weight says (planning/sampling.py).
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
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.facts import (
    fim_facts,
    fim_warnings,
    sampling_warnings,
    split_facts,
    split_warnings,
    variant_facts,
    variant_warnings,
)
from gristmill.planning.overlap_choice import FEW_PASSES, MANY_PASSES, PlanOptions, pick
from gristmill.planning.overlaps import BYTES, CONTENT, FRESH, IDS, TAIL, WINDOWS, Natural, RowsTried
from gristmill.planning.plan_result import Budget, OverlapPlan, Passes, Plan, Portion, Removed, Sample, SplitPlan
from gristmill.planning.sample import Drawn, TakenOut, error_of
from gristmill.runners.local import num_cores, num_workers
from gristmill.sources.trees import Scan

Totals = npt.NDArray[np.float64]
"""Windows, content tokens in them, how many of these are fresh, ids, bytes of JSON rows."""


class Gathered(NamedTuple):
    """What holds at every overlap."""

    config: Config
    drawn: Drawn
    found: Scan
    dropped: list[Drop]
    """Of the files drawn, before any was compared with another; the scan has its own, and has seen all files."""
    previous_splits: PreviousSplits | None
    seconds: Mapping[str, float]
    workers: int
    is_packed: bool
    """Windows are counted by the rows that they fill."""
    has_mask: bool
    """The tokenizer has a mask token."""


class Build(NamedTuple):
    """What a build with one overlap gives."""

    overlap: int
    by_split: dict[Split, Totals]
    windows_per_token: float
    is_cut_short: bool
    distinct_tokens: float
    cut_tokens: float
    languages: list[Portion]
    folders: list[Portion]
    removed: list[Removed]
    splits: list[SplitPlan]
    sampling: SamplingFacts | None
    fim: FimFacts | None
    variants: dict[VariantKind, VariantFacts]
    warnings: list[str]
    error: float
    """Of a sample."""

    @property
    def total(self) -> list[float]:
        totals: list[float] = sum(self.by_split.values(), np.zeros(TAIL)).tolist()
        return totals


class Counted(NamedTuple):
    natural: Natural
    builds: list[Build]
    """By overlap."""
    tried: list[RowsTried]
    """By overlap, rows of some of the documents."""
    parquet_bytes: list[int | None]
    """The same rows by overlap as Parquet; None: the library is not there."""
    seconds_to_show: float
    """That a build takes to draw windows and make variants."""


def build_at(gathered: Gathered, context: Context, judged: Judged, natural: Natural, column: int) -> Build:
    decision, drawn = judged.decision, gathered.drawn
    facts = split_facts(decision) if decision.kept else {}
    fim = fim_facts(decision, context.config.fim)
    variants = variant_facts(decision, context.config.variants)
    sampling = judged.sampling
    wanted, there = (sampling.wanted_windows, sampling.natural_windows) if sampling else ({}, {})
    is_all = drawn.is_all
    return Build(
        overlap=context.config.window.num_shared,
        by_split=_in_rows(_totals(gathered, decision, natural, column), gathered),
        windows_per_token=_windows_per_token(drawn, natural, column),
        is_cut_short=any(wanted[split] < there[split] for split in wanted),
        distinct_tokens=sum(num_tokens for _, num_tokens in _weighted_tokens(drawn, decision)),
        cut_tokens=sum(num_tokens for _, num_tokens in _weighted_cuts(drawn, decision)),
        languages=_portions(drawn, decision, lambda document: document.language),
        folders=_portions(drawn, decision, _top_folder),
        removed=_removed(gathered, decision),
        splits=_splits(facts) if is_all else [],
        sampling=sampling if is_all else None,
        fim=fim if is_all else None,
        variants=variants if is_all else {},
        warnings=_warnings(gathered, judged, fim, variants) if is_all and facts else [],
        error=0.0 if is_all else _error(drawn, decision, natural, column),
    )


def _windows_per_token(drawn: Drawn, natural: Natural, column: int) -> float:
    weights = np.array([drawn.bytes_weight(document.size) for document in natural.documents])
    content, fresh = (float(weights @ natural.counts[:, column, of]) for of in (CONTENT, FRESH))
    return content / max(1.0, fresh)


def _totals(gathered: Gathered, decision: Decision, natural: Natural, column: int) -> dict[Split, Totals]:
    """By split. A sample is too small to be dealt out as the whole would be: of it, what is asked for says more."""
    drawn = gathered.drawn
    shown = dict.fromkeys(Split, np.zeros(TAIL))
    for document in decision.shown():
        weight = drawn.bytes_weight(document.size)
        shown[document.split] = shown[document.split] + weight * np.array(_counts_of(document), np.float64)
    if drawn.is_all:
        return shown
    there = dict.fromkeys(Split, np.zeros(TAIL))
    for document, counts in zip(natural.documents, natural.counts[:, column, :TAIL], strict=True):
        there[document.split] = there[document.split] + drawn.bytes_weight(document.size) * counts
    whole = sum(there.values(), np.zeros(TAIL))
    return {
        split: share * whole * np.divide(shown[split], there[split], out=np.ones(TAIL), where=there[split] > 0)
        for split, share in gathered.config.split.fractions().items()
    }


def _in_rows(totals: dict[Split, Totals], gathered: Gathered) -> dict[Split, Totals]:
    """With --pack, the rows that the ids fill in place of windows: best fit leaves less than 1 % of them empty."""
    if not gathered.is_packed:
        return totals
    rows = {split: one.copy() for split, one in totals.items()}
    for one in rows.values():
        one[WINDOWS] = math.ceil(one[IDS] / gathered.config.window.length)
    return rows


def _counts_of(document: PlacedDocument) -> tuple[int, ...]:
    fresh = document.num_uncut_tokens - document.num_tail_tokens_dropped
    shown, ids = document.num_shown_tokens, document.num_emitted_tokens
    return document.num_windows, shown, fresh, ids, document.num_row_bytes


def answer(gathered: Gathered, counted: Counted, wanted: PlanOptions, seconds: float) -> Plan:
    drawn, length = gathered.drawn, gathered.config.window.length
    budget = wanted.budget(length)
    overlaps = [_overlap_plan(gathered, counted, column, budget, wanted) for column in range(len(counted.builds))]
    picked = pick(overlaps, budget, length)
    build = next(build for build in counted.builds if build.overlap == picked.overlap)
    num_found = drawn.num_files + drawn.num_empty + len(gathered.found.drops)
    natural = counted.natural
    one_window = (
        one for one, counts in zip(natural.documents, natural.counts[:, 0], strict=True) if counts[WINDOWS] == 1
    )
    return Plan(
        sources=[path_text(source) for source in gathered.config.sources],
        found=num_found,
        kept=num_found - sum(one.files for one in build.removed),
        distinct_tokens=round(build.distinct_tokens),
        cut_tokens=round(build.cut_tokens),
        one_window_files=round(sum(drawn.files_weight(document.size) for document in one_window)),
        preset=preset_text(gathered.config.preset or "", has_mask=gathered.has_mask),
        is_packed=gathered.is_packed,
        has_documents=gathered.config.has_documents,
        window_length=length,
        batch_size=wanted.batch_size,
        budget=budget,
        overlaps=overlaps,
        languages=build.languages,
        folders=build.folders,
        removed=build.removed,
        splits=build.splits,
        previous_splits=gathered.previous_splits,
        sampling=build.sampling,
        fim=build.fim,
        variants=build.variants,
        passes=_passes(build, wanted),
        pick=picked,
        sample=None
        if drawn.is_all
        else Sample(files=len(drawn.files), of=drawn.num_files, error=round(build.error, 4)),
        warnings=build.warnings,
        workers=gathered.workers,
        seconds=round(seconds, 3),
    )


def _splits(facts: Mapping[Split, SplitFacts]) -> list[SplitPlan]:
    return [SplitPlan(split=split, files=one.files, tokens=one.tokens, share=one.share) for split, one in facts.items()]


def _warnings(
    gathered: Gathered,
    judged: Judged,
    fim: FimFacts | None,
    variants: Mapping[VariantKind, VariantFacts],
) -> list[str]:
    """Those of a build, in its order."""
    config, decision = gathered.config, judged.decision
    return [
        *sampling_warnings(judged.sampling, config.sampling, has_variants=bool(decision.variants)),
        *fim_warnings(fim),
        *variant_warnings(variants, config.rewrite),
        *gathered.found.warnings,
        *split_warnings(config.split, decision, judged.decontamination),
    ]


def _passes(build: Build, wanted: PlanOptions) -> list[Passes]:
    """Over train, as often as one epoch shows its tokens."""
    train = build.by_split[Split.TRAIN].tolist()
    if not round(train[WINDOWS]):
        return []
    redundancy = train[CONTENT] / max(1.0, train[FRESH])
    epochs = {passes: passes / redundancy for passes in (FEW_PASSES, MANY_PASSES)}
    return [
        Passes(
            passes=passes, epochs=round(count, 2), steps=math.ceil(count * round(train[WINDOWS]) / wanted.batch_size)
        )
        for passes, count in epochs.items()
    ]


def _error(drawn: Drawn, decision: Decision, natural: Natural, column: int) -> float:
    """By the windows there are at that overlap."""
    windows: Counter[int] = Counter()
    for document, count in zip(natural.documents, natural.counts[:, column, WINDOWS].tolist(), strict=True):
        windows[document.size] += count
    gone = [
        *((drop.num_tokens or 0) * drawn.bytes_weight(drop.size) for drop in _near_duplicates(decision)),
        *(num_tokens for _, num_tokens in _weighted_cuts(drawn, decision) if num_tokens),
    ]
    left = sum(num_tokens for _, num_tokens in _weighted_tokens(drawn, decision))
    return error_of(drawn, windows, TakenOut(len(gone), sum(gone) / (sum(gone) + left)))


def _overlap_plan(
    gathered: Gathered, counted: Counted, column: int, budget: Budget | None, wanted: PlanOptions
) -> OverlapPlan:
    build, tried, parquet_bytes = counted.builds[column], counted.tried[column], counted.parquet_bytes[column]
    total, by_split = build.total, build.by_split
    grown = _Grown.of(gathered, counted, column)
    train_windows, train_tokens = (round(by_split[Split.TRAIN][of]) for of in (WINDOWS, IDS))
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
        jsonl_zst_bytes=grown.num_bytes(counted.tried[0].jsonl_zst_bytes, tried.jsonl_zst_bytes),
        parquet_bytes=None if parquet_bytes is None else grown.num_bytes(counted.parquet_bytes[0] or 0, parquet_bytes),
        build_seconds=round(_build_seconds(gathered, counted, total[BYTES]), 2),
        steps_per_epoch=-(-train_windows // wanted.batch_size),
        epochs_for_budget=budget.tokens / train_tokens if budget and train_tokens else None,
    )


class _Grown(NamedTuple):
    """How rows that were tried become those of all documents."""

    per_byte: float
    """For what they take without overlap."""
    per_added: float
    """For what they take more with it."""

    @classmethod
    def of(cls, gathered: Gathered, counted: Counted, column: int) -> "_Grown":
        without, here = counted.tried[0], counted.tried[column]
        total, total_without = counted.builds[column].total, counted.builds[0].total
        config = gathered.config
        if config.sampling != SamplingConfig() or config.variants.rates or config.fim.is_on:
            # Each overlap shows other windows: what they take is not that of the first, and more.
            per_byte = total[BYTES] / max(1, here.jsonl_bytes)
            return cls(per_byte, per_byte)
        per_byte = counted.natural.packed_bytes / max(1, without.packed_bytes)
        if not gathered.drawn.is_all:  # its documents are not as those of the whole: those tried are
            per_byte = total[FRESH] / max(1, here.num_fresh)
        num_added = total[WINDOWS] - total_without[WINDOWS]
        num_tried = here.num_windows - without.num_windows
        return cls(per_byte, num_added / num_tried if num_tried > 0 else per_byte)

    def num_bytes(self, without: int, here: int) -> int:
        return round(without * self.per_byte + (here - without) * self.per_added)


def _build_seconds(gathered: Gathered, counted: Counted, num_bytes: float) -> float:
    """What the steps before took in this run, and rows at the rate of those that were made for a try."""
    drawn, seconds, tried = gathered.drawn, gathered.seconds, counted.tried
    workers = num_workers(gathered.config.run.workers, drawn.num_bytes)
    mapped = (seconds["prepare"] + seconds["compare"] + counted.seconds_to_show) * gathered.workers / workers
    # Workers format and write, the parent takes digests meanwhile: the slower decides, or the cores they share.
    in_worker, in_parent = sum(one.seconds_in_worker for one in tried), sum(one.seconds_in_parent for one in tried)
    per_tried = max(in_worker / workers, in_parent, (in_worker + in_parent) / num_cores())
    rows = per_tried * num_bytes / max(1, sum(one.jsonl_bytes for one in tried))
    return seconds["load"] + seconds["scan"] + drawn.growth * (mapped + seconds["decide"]) + rows


def _removed(gathered: Gathered, decision: Decision) -> list[Removed]:
    """Most files first."""
    drawn = gathered.drawn
    files: dict[DropReason, float] = {DropReason.EMPTY: drawn.num_empty} if drawn.num_empty else {}
    num_bytes: dict[DropReason, float] = dict.fromkeys(files, 0.0)
    weighted = [(drop, 1.0, 1.0) for drop in gathered.found.drops]
    weighted += [
        (drop, drawn.files_weight(drop.size), drawn.bytes_weight(drop.size))
        for drop in (*gathered.dropped, *decision.drops)
    ]
    for drop, files_weight, bytes_weight in weighted:
        files[drop.reason] = files.get(drop.reason, 0) + files_weight
        num_bytes[drop.reason] = num_bytes.get(drop.reason, 0.0) + (drop.size or 0) * bytes_weight
    return [
        Removed(reason=reason, files=round(count), bytes=round(num_bytes[reason]))
        for reason, count in sorted(files.items(), key=lambda item: (-item[1], item[0]))
    ]


def _portions(drawn: Drawn, decision: Decision, name_of: Callable[[PlacedDocument], str]) -> list[Portion]:
    """Most tokens first."""
    files: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for document, num_tokens in _weighted_tokens(drawn, decision):
        name = name_of(document)
        files[name] = files.get(name, 0.0) + drawn.files_weight(document.size)
        tokens[name] = tokens.get(name, 0.0) + num_tokens
    total = sum(tokens.values())
    return [
        Portion(name=name, files=round(files[name]), tokens=round(count), share=round(count / max(1.0, total), 4))
        for name, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]


def _weighted_tokens(drawn: Drawn, decision: Decision) -> Iterator[tuple[PlacedDocument, float]]:
    for document in decision.kept:
        yield document, document.num_uncut_tokens * drawn.bytes_weight(document.size)


def _weighted_cuts(drawn: Drawn, decision: Decision) -> Iterator[tuple[PlacedDocument, float]]:
    for document in decision.kept:
        yield document, document.num_cut_tokens * drawn.bytes_weight(document.size)
    for document in decision.cut_away:
        yield document, document.num_tokens * drawn.bytes_weight(document.size)


def _near_duplicates(decision: Decision) -> Iterator[Drop]:
    return (drop for drop in decision.drops if drop.reason is DropReason.NEAR_DUPLICATE)


def _top_folder(document: PlacedDocument) -> str:
    """`python3.11/email/`; `python3.11/` for what lies in no folder."""
    folder, slash, _ = document.path.partition("/")
    return f"{document.repo}/{folder}/" if slash else f"{document.repo}/"
