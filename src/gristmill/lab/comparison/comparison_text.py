"""A finished comparison as text for the terminal and as JSON. comparison_markdown.py renders the page."""

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import table_text
from gristmill.lab.comparison.comparison import Comparison, DatasetFacts, score_intervals
from gristmill.lab.comparison.frozen import MIN_TOKENS, FrozenFacts
from gristmill.lab.comparison.statistics import CONFIDENCE, Interval, interval_text

MIN_EPOCHS_WITHOUT_DECIMALS = 100
UNKNOWN = "-"
HEADINGS = ("dataset", "windows", "padding", "epochs", "at the end", "at best validation", "own validation", "off by")
MIN_PAIRS_FOR_NOTE = 2


def comparison_json(comparison: Comparison) -> str:
    datasets = [
        {**msgspec.to_builtins(facts), "scores": msgspec.to_builtins(score_intervals(comparison, facts.name))}
        for facts in comparison.datasets
    ]
    return msgspec.json.encode({**msgspec.to_builtins(comparison), "datasets": datasets}).decode()


def comparison_text(comparison: Comparison) -> str:
    lines = [
        f"model   {printable(comparison.model)}, {budget_text(comparison)}",
        f"test    {frozen_text(comparison.frozen)}",
        *(f"        {line}" for line in overlap_lines(comparison.frozen)),
        "",
        table_text(HEADINGS, (dataset_cells(facts, comparison) for facts in comparison.datasets)),
        *(printable(line) for line in verdict_lines(comparison)),
        "",
        *notes(comparison),
    ]
    return "\n".join(lines)


def verdict_lines(comparison: Comparison) -> list[str]:
    return [
        *(f"at the end: {verdict.text}" for verdict in comparison.verdicts),
        *(f"at best validation: {verdict.text}" for verdict in comparison.verdicts_at_best),
    ]


def budget_text(comparison: Comparison) -> str:
    count = len(comparison.seeds)
    tokens = comparison.budget_tokens
    budget = (
        f"{counted(epochs_text(comparison.datasets[0].epochs), 'epoch')} of each dataset"
        if tokens is None
        else counted(tokens, "token")
    )
    return f"{budget} per run, {counted(count, 'seed')}"


def frozen_text(facts: FrozenFacts) -> str:
    origin = "held out by all datasets" if facts.source is None else f"test split of {printable(facts.source)}"
    windows = f"{counted(facts.windows, 'window')} of {facts.window_length} tokens"
    tokens = f"{counted(facts.tokens, 'token')} in {counted(facts.files, 'file')}"
    return f"{tokens} ({origin}), {windows}, sha256 {facts.sha256[:12]}"


def overlap_lines(facts: FrozenFacts) -> list[str]:
    """Describe the tokens that were removed from the test set, and the train splits that contain them, if any."""
    removed = facts.tokens_before - facts.tokens
    if not removed:
        return []
    lines = [
        f"{removed:,} of {counted(facts.tokens_before, 'token')} were removed, because a train split contains them:"
    ]
    for train in facts.against:
        near_duplicates = (
            f", and near-duplicates of {counted(train.near_duplicate_files, 'file')}"
            if train.near_duplicate_files
            else ""
        )
        if train.span_tokens or near_duplicates:
            lines.append(
                f"  {printable(train.name)} contains {train.span_tokens:,} tokens in spans of 50 or "
                f"more{near_duplicates}"
            )
    return lines


def dataset_cells(facts: DatasetFacts, comparison: Comparison) -> list[str]:
    scores = score_intervals(comparison, facts.name)
    return [
        printable(facts.name),
        f"{facts.windows:,}",
        f"{facts.padding:.1%}",
        epochs_text(facts.epochs),
        interval_text(scores.end),
        _interval_cell(scores.at_best_validation),
        _interval_cell(scores.own_validation),
        _signed(scores.off_by),
    ]


def epochs_text(epochs: float) -> str:
    return f"{epochs:,.0f}" if epochs >= MIN_EPOCHS_WITHOUT_DECIMALS else f"{epochs:.2f}"


def _interval_cell(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else interval_text(interval)


def _signed(interval: Interval | None) -> str:
    if interval is None:
        return UNKNOWN
    return f"{'+' if interval.mean > 0 else ''}{interval_text(interval)}"


def notes(comparison: Comparison) -> list[str]:
    """Explain the columns and verdicts."""
    lines = [f"scores are {comparison.unit} on the frozen test set, lower is better; {_interval_note(comparison)}"]
    lines += small_test_warnings(comparison.frozen)
    if any(run.off_by is not None for run in comparison.runs):
        lines.append(
            "off by: own validation minus the test score; if it is far below 0, own validation is too optimistic"
        )
    if comparison.frozen.source is None:
        lines.append(
            "at best validation: the test set includes validation files, which were also used to choose the model"
        )
    if len(comparison.verdicts) >= MIN_PAIRS_FOR_NOTE:
        confidence = comparison.verdicts[0].confidence
        count = len(comparison.verdicts)
        lines.append(
            f"{counted(count, 'pair')}: each verdict has {confidence:.1%} confidence, and all together have "
            f"{CONFIDENCE:.0%}"
        )
    if any(verdict.files is not None for verdict in comparison.verdicts):
        lines.append(
            "verdicts at the end also hold for other seeds and similar test files; verdicts at best "
            "validation hold for other seeds, but only for these test files"
        )
    elif comparison.verdicts and len(comparison.seeds) > 1:
        lines.append("verdicts also hold for other seeds, but only for these test files")
    return lines


def small_test_warnings(facts: FrozenFacts) -> list[str]:
    """Return a warning if the test set is smaller than MIN_TOKENS."""
    if facts.tokens >= MIN_TOKENS:
        return []
    size = f"{counted(facts.tokens, 'token')} in {counted(facts.files, 'file')}, fewer than {MIN_TOKENS:,} tokens"
    return [f"the test set has {size}: intervals are wide, and small differences are not detected"]


def _interval_note(comparison: Comparison) -> str:
    if len(comparison.seeds) == 1:
        return "there are no intervals, because there is only one seed"
    return f"±: {CONFIDENCE:.0%} interval of Student's t over {counted(len(comparison.seeds), 'seed')}"
