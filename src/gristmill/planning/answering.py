"""What was counted -> a plan: pure arithmetic, for all files or for a sample of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gristmill.config import Config
from gristmill.pipeline import Judged
from gristmill.planning.budget import Wanted, pick
from gristmill.planning.overlaps import BYTES, CONTENT, FRESH, IDS, WINDOWS, Counts, Sizes
from gristmill.planning.result import Budget, OverlapPlan, Plan, Portion, Removed, Sample
from gristmill.planning.sampling import Drawn, Estimate, TakenOut, estimate
from gristmill.records import DropReason, PreparedDocument
from gristmill.runners.local import num_workers


class Counted(NamedTuple):
    overlaps: list[int]
    documents: list[PreparedDocument]
    """Train first."""
    counts: Counts
    num_train: int
    sizes: list[Sizes]
    """By overlap, of some of the documents."""


class Gathered(NamedTuple):
    config: Config
    drawn: Drawn
    judged: Judged
    dropped_by_name: Counter[DropReason]
    """By the scan, which has seen all files."""
    counted: Counted
    seconds: Mapping[str, float]
    workers: int


def answer(gathered: Gathered, wanted: Wanted) -> Plan:
    config, drawn, decision = gathered.config, gathered.drawn, gathered.judged.decision
    counted, length = gathered.counted, config.window.length
    grown = _estimate(gathered)
    budget = wanted.budget(length)
    overlaps = [_overlap_plan(gathered, column, grown, budget, wanted) for column in range(len(counted.overlaps))]
    num_kept = round(sum(drawn.files_weight(document.size) for document in decision.kept))
    removed = _removed(gathered)
    cut = sum(gathered.judged.decontamination.tokens_cut.values())
    return Plan(
        sources=list(config.sources),
        found=num_kept + sum(one.files for one in removed),
        kept=num_kept,
        tokens=round(sum(num_tokens for _, num_tokens in _weighted_tokens(gathered, grown))),
        cut_tokens=round(cut * drawn.growth),
        one_window_files=round(
            sum(
                drawn.files_weight(document.size)
                for document, num_windows in zip(counted.documents, counted.counts[:, 0, WINDOWS], strict=True)
                if num_windows == 1
            )
        ),
        window=length,
        batch_size=wanted.batch_size,
        budget=budget,
        overlaps=overlaps,
        languages=_portions(gathered, grown, lambda document: document.language),
        folders=_portions(gathered, grown, _top_folder),
        removed=removed,
        pick=pick(overlaps, budget, length),
        sample=None
        if drawn.is_all
        else Sample(files=len(drawn.files), of=drawn.num_files, error=round(grown.error, 4)),
        workers=gathered.workers,
        seconds=0.0,
    )


def _estimate(gathered: Gathered) -> Estimate:
    """By the windows at the configured overlap."""
    column = gathered.counted.overlaps.index(gathered.config.window.overlap)
    windows: Counter[int] = Counter()
    for document, count in zip(gathered.counted.documents, gathered.counted.counts[:, column, WINDOWS], strict=True):
        windows[document.size] += int(count)
    judged = gathered.judged
    twins = [drop for drop in judged.drops if drop.reason is DropReason.NEAR_DUPLICATE]
    facts = judged.decontamination
    num_gone = sum(drop.num_tokens or 0 for drop in twins) + sum(facts.tokens_cut.values())
    num_files = len(twins) + sum(facts.files_cut.values())
    share = num_gone / (num_gone + _num_tokens(judged.decision.kept))
    return estimate(gathered.drawn, windows, TakenOut(num_files, share))


def _overlap_plan(
    gathered: Gathered, column: int, grown: Estimate, budget: Budget | None, wanted: Wanted
) -> OverlapPlan:
    counted = gathered.counted
    counts, sizes = counted.counts[:, column], counted.sizes[column]
    weights = np.array([gathered.drawn.bytes_weight(document.size) for document in counted.documents]) * grown.scale
    total = (weights @ counts).tolist()
    train = (weights[: counted.num_train] @ counts[: counted.num_train]).tolist()
    growth = total[BYTES] / sizes.jsonl_bytes
    train_tokens = round(train[IDS])
    return OverlapPlan(
        overlap=counted.overlaps[column],
        windows=round(total[WINDOWS]),
        train_windows=round(train[WINDOWS]),
        tokens=round(total[IDS]),
        train_tokens=train_tokens,
        redundancy=round(total[CONTENT] / total[FRESH], 4),
        jsonl_bytes=round(total[BYTES]),
        jsonl_zst_bytes=round(sizes.jsonl_zst_bytes * growth),
        parquet_bytes=None if sizes.parquet_bytes is None else round(sizes.parquet_bytes * growth),
        seconds=round(_seconds(gathered, sizes, growth), 2),
        steps=-(-round(train[WINDOWS]) // wanted.batch_size),
        epochs=round(budget.tokens / train_tokens, 2) if budget and train_tokens else None,
    )


def _seconds(gathered: Gathered, sizes: Sizes, growth: float) -> float:
    """What the steps before took in this run, and rows at the rate of those that were made for a try."""
    drawn, seconds = gathered.drawn, gathered.seconds
    workers = num_workers(gathered.config.run.workers, drawn.num_bytes)
    before = sum(seconds[phase] for phase in ("prepare", "decide", "compare"))
    before *= drawn.growth * gathered.workers / workers
    # Workers format and write, the parent takes digests meanwhile: the slower of the two decides.
    rows = growth * max(sizes.seconds_in_worker / workers, sizes.seconds_in_parent)
    return seconds["load"] + seconds["scan"] + before + rows


def _removed(gathered: Gathered) -> list[Removed]:
    """Most files first. The scan has seen every file; of the others a sample has."""
    drawn = gathered.drawn
    files: dict[DropReason, float] = {DropReason.EMPTY: drawn.num_empty} if drawn.num_empty else {}
    num_bytes: dict[DropReason, float] = dict.fromkeys(files, 0.0)
    for drop in gathered.judged.drops:
        of_all = drop.reason in gathered.dropped_by_name
        files[drop.reason] = files.get(drop.reason, 0) + (1.0 if of_all else drawn.files_weight(drop.size))
        size = (drop.size or 0) * (1.0 if of_all else drawn.bytes_weight(drop.size))
        num_bytes[drop.reason] = num_bytes.get(drop.reason, 0.0) + size
    return [
        Removed(reason=reason, files=round(count), bytes=round(num_bytes[reason]))
        for reason, count in sorted(files.items(), key=lambda item: (-item[1], item[0]))
    ]


def _portions(gathered: Gathered, grown: Estimate, name_of: Callable[[PreparedDocument], str]) -> list[Portion]:
    """Most tokens first."""
    files: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for document, num_tokens in _weighted_tokens(gathered, grown):
        name = name_of(document)
        files[name] = files.get(name, 0.0) + gathered.drawn.files_weight(document.size)
        tokens[name] = tokens.get(name, 0.0) + num_tokens
    total = sum(tokens.values())
    return [
        Portion(name=name, files=round(files[name]), tokens=round(count), share=round(count / total, 4))
        for name, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]


def _weighted_tokens(gathered: Gathered, grown: Estimate) -> list[tuple[PreparedDocument, float]]:
    drawn = gathered.drawn
    return [
        (document, document.num_uncut_tokens * drawn.bytes_weight(document.size) * grown.scale)
        for document in gathered.judged.decision.kept
    ]


def _top_folder(document: PreparedDocument) -> str:
    """`python3.11/email/`; `python3.11/` for what lies in no folder."""
    folder, slash, _ = document.path.partition("/")
    return f"{document.repo}/{folder}/" if slash else f"{document.repo}/"


def _num_tokens(documents: Iterable[PreparedDocument]) -> int:
    return sum(document.num_uncut_tokens for document in documents)
