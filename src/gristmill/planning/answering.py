"""What was counted -> a plan: pure arithmetic, for all files or for a sample of them.

Of a sample, each file stands for as many as its weight says (planning/sampling.py).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config import Config
from gristmill.intake.trees import Scan
from gristmill.manifest import SplitFacts
from gristmill.naming import path_text
from gristmill.planning.budget import FEW_PASSES, MANY_PASSES, Wanted, pick
from gristmill.planning.overlaps import BYTES, CONTENT, FRESH, IDS, WINDOWS, Counts, RowsTried
from gristmill.planning.result import (
    Budget,
    OverlapPlan,
    Passes,
    Pick,
    Plan,
    Portion,
    Removed,
    Sample,
    SplitPlan,
    Taken,
)
from gristmill.planning.sampling import Drawn, TakenOut, error_of
from gristmill.records import Drop, DropReason, PreparedDocument, Split
from gristmill.runners.local import num_cores, num_workers
from gristmill.steps.finish import Judged, split_facts, warnings_of

Weights = npt.NDArray[np.float64]
"""By document: how much each stands for."""


class Counted(NamedTuple):
    overlaps: list[int]
    documents: list[PreparedDocument]
    splits: list[Split]
    """Of each of them."""
    counts: Counts
    packed_bytes: int
    """Their bare ids (and text, where it is wanted), compressed."""
    tried: list[RowsTried]
    """By overlap, rows of some of the documents."""
    parquet_bytes: list[int | None]
    """The same rows by overlap as Parquet; None: the library is not there."""


class Gathered(NamedTuple):
    config: Config
    drawn: Drawn
    judged: Judged
    dropped: list[Drop]
    """Of the files drawn; the scan has its own, and has seen all files."""
    found: Scan
    counted: Counted
    seconds: Mapping[str, float]
    workers: int


def answer(gathered: Gathered, wanted: Wanted, seconds: float) -> Plan:
    drawn, counted, length = gathered.drawn, gathered.counted, gathered.config.window.length
    budget = wanted.budget(length)
    weights = np.array([drawn.bytes_weight(document.size) for document in counted.documents])
    overlaps = [_overlap_plan(gathered, column, weights, budget, wanted) for column in range(len(counted.overlaps))]
    picked = pick(overlaps, budget, length)
    taken = _taken(overlaps, picked, gathered.config)
    facts = split_facts(gathered.judged.decision)
    removed = _removed(gathered)
    num_found = drawn.num_files + drawn.num_empty + len(gathered.found.drops)
    one_window = (
        one for one, counts in zip(counted.documents, counted.counts[:, 0], strict=True) if counts[WINDOWS] == 1
    )
    return Plan(
        sources=[path_text(source) for source in gathered.config.sources],
        found=num_found,
        kept=num_found - sum(one.files for one in removed),
        distinct_tokens=round(sum(num_tokens for _, num_tokens in _weighted_tokens(gathered))),
        cut_tokens=round(sum(num_tokens for _, num_tokens in _weighted_cuts(gathered))),
        one_window_files=round(sum(drawn.files_weight(document.size) for document in one_window)),
        window_length=length,
        batch_size=wanted.batch_size,
        budget=budget,
        overlaps=overlaps,
        languages=_portions(gathered, lambda document: document.language),
        folders=_portions(gathered, _top_folder),
        removed=removed,
        splits=_splits(facts) if drawn.is_all else [],
        previous_splits=gathered.judged.decision.previous,
        taken=taken,
        passes=_passes(overlaps, picked, taken, wanted),
        pick=picked,
        sample=_sample(gathered),
        warnings=_warnings(gathered) if drawn.is_all else [],
        workers=gathered.workers,
        seconds=round(seconds, 3),
    )


def _splits(facts: Mapping[Split, SplitFacts]) -> list[SplitPlan]:
    return [SplitPlan(split=split, files=one.files, tokens=one.tokens, share=one.share) for split, one in facts.items()]


def _warnings(gathered: Gathered) -> list[str]:
    judged = gathered.judged
    return [
        *gathered.found.warnings,
        *warnings_of(gathered.config.split, judged.decision, judged.decontamination),
    ]


def _taken(overlaps: list[OverlapPlan], picked: Pick, wanted: Config) -> Taken | None:
    config = wanted.sampling
    one = next(one for one in overlaps if one.overlap == picked.overlap)
    limit = min(config.max_windows or one.windows, one.windows)
    train = round(one.train_windows * limit / max(one.windows, 1))
    if config.target_windows is not None:
        train = min(config.target_windows, int(one.train_windows * config.max_epochs))
    why = [f"--max-windows {config.max_windows}"] if limit < one.windows else []
    if config.target_windows is not None:
        short = f", {config.target_windows - train:,} short: --max-epochs {config.max_epochs}"
        why.append(f"--target-windows {config.target_windows}{short if train < config.target_windows else ''}")
    held_out = round((one.windows - one.train_windows) * limit / max(one.windows, 1))
    variants = [f"{kind} ({rate:g})" for kind, rate in wanted.variants.rates.items()]
    return Taken(windows=train + held_out, train_windows=train, why=why, variants=variants) if why or variants else None


def _passes(overlaps: list[OverlapPlan], picked: Pick, taken: Taken | None, wanted: Wanted) -> list[Passes]:
    """Over what is taken: of a sample each token is shown less often."""
    one = next(one for one in overlaps if one.overlap == picked.overlap)
    windows = one.train_windows if taken is None else taken.train_windows
    if not windows or not one.train_windows:
        return []
    redundancy = max(1.0, one.redundancy * windows / one.train_windows)
    epochs = {passes: passes / redundancy for passes in (FEW_PASSES, MANY_PASSES)}
    return [
        Passes(passes=passes, epochs=round(count, 2), steps=math.ceil(count * windows / wanted.batch_size))
        for passes, count in epochs.items()
    ]


def _sample(gathered: Gathered) -> Sample | None:
    """Its error, by the windows at the configured overlap."""
    drawn, counted = gathered.drawn, gathered.counted
    if drawn.is_all:
        return None
    column = counted.overlaps.index(gathered.config.window.num_shared)
    windows: Counter[int] = Counter()
    for document, count in zip(counted.documents, counted.counts[:, column, WINDOWS], strict=True):
        windows[document.size] += int(count)
    gone = [
        *((drop.num_tokens or 0) * drawn.bytes_weight(drop.size) for drop in _near_duplicates(gathered)),
        *(num_tokens for document, num_tokens in _weighted_cuts(gathered) if num_tokens),
    ]
    left = sum(num_tokens for _, num_tokens in _weighted_tokens(gathered))
    error = error_of(drawn, windows, TakenOut(len(gone), sum(gone) / (sum(gone) + left)))
    return Sample(files=len(drawn.files), of=drawn.num_files, error=round(error, 4))


def _overlap_plan(
    gathered: Gathered, column: int, weights: Weights, budget: Budget | None, wanted: Wanted
) -> OverlapPlan:
    counted = gathered.counted
    counts, tried, parquet_bytes = counted.counts[:, column], counted.tried[column], counted.parquet_bytes[column]
    total: list[float] = (weights @ counts).tolist()
    by_split = {split: _of_split(gathered, split, weights, counts, total) for split in Split}
    train = by_split[Split.TRAIN]
    grown = _Grown.of(gathered, column, weights, total)
    train_windows, train_tokens = round(train[WINDOWS]), round(train[IDS])
    return OverlapPlan(
        overlap=counted.overlaps[column],
        windows=round(total[WINDOWS]),
        train_windows=train_windows,
        validation_windows=round(by_split[Split.VALIDATION][WINDOWS]),
        test_windows=round(by_split[Split.TEST][WINDOWS]),
        tokens=round(total[IDS]),
        train_tokens=train_tokens,
        redundancy=round(total[CONTENT] / max(1.0, total[FRESH]), 4),
        jsonl_bytes=round(total[BYTES]),
        jsonl_zst_bytes=grown.num_bytes(counted.tried[0].jsonl_zst_bytes, tried.jsonl_zst_bytes),
        parquet_bytes=None if parquet_bytes is None else grown.num_bytes(counted.parquet_bytes[0] or 0, parquet_bytes),
        build_seconds=round(_build_seconds(gathered, total[BYTES]), 2),
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
    def of(cls, gathered: Gathered, column: int, weights: Weights, total: list[float]) -> "_Grown":
        counted = gathered.counted
        without, here = counted.tried[0], counted.tried[column]
        per_byte = counted.packed_bytes / without.packed_bytes
        if not gathered.drawn.is_all:  # its documents are not as those of the whole: those tried are
            per_byte = total[FRESH] / max(1, here.num_fresh)
        num_added = total[WINDOWS] - float(weights @ counted.counts[:, 0, WINDOWS])
        num_tried = here.num_windows - without.num_windows
        return cls(per_byte, num_added / num_tried if num_tried > 0 else per_byte)

    def num_bytes(self, without: int, here: int) -> int:
        return round(without * self.per_byte + (here - without) * self.per_added)


def _of_split(gathered: Gathered, split: Split, weights: Weights, counts: Counts, total: list[float]) -> list[float]:
    """A sample is too small to be dealt out as the whole would be: of it, what is asked for says more."""
    if not gathered.drawn.is_all:
        share = gathered.config.split.fractions()[split]
        return [share * number for number in total]
    is_in = np.array([one is split for one in gathered.counted.splits])
    found: list[float] = (weights[is_in] @ counts[is_in]).tolist()
    return found


def _build_seconds(gathered: Gathered, num_bytes: float) -> float:
    """What the steps before took in this run, and rows at the rate of those that were made for a try."""
    drawn, seconds, tried = gathered.drawn, gathered.seconds, gathered.counted.tried
    workers = num_workers(gathered.config.run.workers, drawn.num_bytes)
    mapped = (seconds["prepare"] + seconds["compare"]) * gathered.workers / workers
    # Workers format and write, the parent takes digests meanwhile: the slower decides, or the cores they share.
    in_worker, in_parent = sum(one.seconds_in_worker for one in tried), sum(one.seconds_in_parent for one in tried)
    per_tried = max(in_worker / workers, in_parent, (in_worker + in_parent) / num_cores())
    rows = per_tried * num_bytes / max(1, sum(one.jsonl_bytes for one in tried))
    return seconds["load"] + seconds["scan"] + drawn.growth * (mapped + seconds["decide"]) + rows


def _removed(gathered: Gathered) -> list[Removed]:
    """Most files first."""
    drawn = gathered.drawn
    files: dict[DropReason, float] = {DropReason.EMPTY: drawn.num_empty} if drawn.num_empty else {}
    num_bytes: dict[DropReason, float] = dict.fromkeys(files, 0.0)
    weighted = [(drop, 1.0, 1.0) for drop in gathered.found.drops]
    weighted += [(drop, drawn.files_weight(drop.size), drawn.bytes_weight(drop.size)) for drop in gathered.dropped]
    for drop, files_weight, bytes_weight in weighted:
        files[drop.reason] = files.get(drop.reason, 0) + files_weight
        num_bytes[drop.reason] = num_bytes.get(drop.reason, 0.0) + (drop.size or 0) * bytes_weight
    return [
        Removed(reason=reason, files=round(count), bytes=round(num_bytes[reason]))
        for reason, count in sorted(files.items(), key=lambda item: (-item[1], item[0]))
    ]


def _portions(gathered: Gathered, name_of: Callable[[PreparedDocument], str]) -> list[Portion]:
    """Most tokens first."""
    files: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for document, num_tokens in _weighted_tokens(gathered):
        name = name_of(document)
        files[name] = files.get(name, 0.0) + gathered.drawn.files_weight(document.size)
        tokens[name] = tokens.get(name, 0.0) + num_tokens
    total = sum(tokens.values())
    return [
        Portion(name=name, files=round(files[name]), tokens=round(count), share=round(count / total, 4))
        for name, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]


def _weighted_tokens(gathered: Gathered) -> Iterator[tuple[PreparedDocument, float]]:
    for document in gathered.judged.decision.kept:
        yield document, document.num_uncut_tokens * gathered.drawn.bytes_weight(document.size)


def _weighted_cuts(gathered: Gathered) -> Iterator[tuple[PreparedDocument, float]]:
    decision = gathered.judged.decision
    for document in decision.kept:
        yield document, document.num_cut_tokens * gathered.drawn.bytes_weight(document.size)
    for document in decision.cut_away:
        yield document, document.num_tokens * gathered.drawn.bytes_weight(document.size)


def _near_duplicates(gathered: Gathered) -> Iterator[Drop]:
    return (drop for drop in gathered.judged.decision.drops if drop.reason is DropReason.NEAR_DUPLICATE)


def _top_folder(document: PreparedDocument) -> str:
    """`python3.11/email/`; `python3.11/` for what lies in no folder."""
    folder, slash, _ = document.path.partition("/")
    return f"{document.repo}/{folder}/" if slash else f"{document.repo}/"
