"""A finished comparison as a table for people and as JSON for scripts (comparison_markdown.py has the page)."""

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import table_text
from gristmill.lab.comparison.comparison import Comparison, DatasetFacts, scores_of
from gristmill.lab.comparison.frozen import MIN_TOKENS, FrozenFacts
from gristmill.lab.comparison.statistics import CONFIDENCE, Interval, interval_text

WHOLE_FROM = 100
NOT_KNOWN = "-"
HEADINGS = ("dataset", "windows", "padding", "epochs", "at the end", "at best validation", "own validation", "off by")
SEVERAL_PAIRS = 2


def comparison_json(comparison: Comparison) -> str:
    datasets = [
        {**msgspec.to_builtins(facts), "scores": msgspec.to_builtins(scores_of(comparison, facts.name))}
        for facts in comparison.datasets
    ]
    return msgspec.json.encode({**msgspec.to_builtins(comparison), "datasets": datasets}).decode()


def comparison_text(comparison: Comparison) -> str:
    lines = [
        f"model   {printable(comparison.model)}, {budget_text(comparison)}",
        f"test    {frozen_text(comparison.frozen)}",
        *(f"        {line}" for line in against_lines(comparison.frozen)),
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
        f"{counted(epochs_text(comparison.datasets[0].epochs), 'epoch')} of its own"
        if tokens is None
        else counted(tokens, "token")
    )
    return f"{budget} a run, {counted(count, 'seed')}"


def frozen_text(facts: FrozenFacts) -> str:
    whence = "held out by all" if facts.source is None else f"test of {printable(facts.source)}"
    windows = f"{counted(facts.windows, 'window')} of {facts.window_length}"
    tokens = f"{counted(facts.tokens, 'token')} of {counted(facts.files, 'file')}"
    return f"{tokens} ({whence}), {windows}, sha256 {facts.sha256[:12]}"


def against_lines(facts: FrozenFacts) -> list[str]:
    """What was taken out of it, by whose train has it; nothing where nothing was."""
    taken = facts.tokens_before - facts.tokens
    if not taken:
        return []
    lines = [f"{taken:,} of {counted(facts.tokens_before, 'token')} taken out, for what a train split has too:"]
    for one in facts.against:
        twins = (
            f", and near-duplicates of {one.near_duplicate_files:,} of the files" if one.near_duplicate_files else ""
        )
        if one.span_tokens or twins:
            lines.append(f"  {printable(one.name)} has {one.span_tokens:,} in spans of 50 and more{twins}")
    return lines


def dataset_cells(facts: DatasetFacts, comparison: Comparison) -> list[str]:
    scores = scores_of(comparison, facts.name)
    return [
        printable(facts.name),
        f"{facts.windows:,}",
        f"{facts.padding:.1%}",
        epochs_text(facts.epochs),
        interval_text(scores.end),
        _told(scores.at_best_validation),
        _told(scores.own_validation),
        _signed(scores.off_by),
    ]


def epochs_text(epochs: float) -> str:
    return f"{epochs:,.0f}" if epochs >= WHOLE_FROM else f"{epochs:.2f}"


def _told(interval: Interval | None) -> str:
    return NOT_KNOWN if interval is None else interval_text(interval)


def _signed(interval: Interval | None) -> str:
    if interval is None:
        return NOT_KNOWN
    return f"{'+' if interval.mean > 0 else ''}{interval_text(interval)}"


def notes(comparison: Comparison) -> list[str]:
    """What the columns and verdicts mean."""
    lines = [f"scores are {comparison.unit} on the frozen test set, lower is better; {_spread(comparison)}"]
    lines += few_tokens(comparison.frozen)
    if any(run.off_by is not None for run in comparison.runs):
        lines.append("off by: own validation less the frozen score; far below 0, it promises more than there is")
    if comparison.frozen.source is None:
        lines.append("held out by all means validation too: `at best validation` has chosen by some of these files")
    if len(comparison.verdicts) >= SEVERAL_PAIRS:
        each = comparison.verdicts[0].confidence
        count = len(comparison.verdicts)
        lines.append(
            f"{counted(count, 'pair')}: each verdict at {each:.1%}, so that all of a kind hold at {CONFIDENCE:.0%}"
        )
    if any(verdict.files is not None for verdict in comparison.verdicts):
        lines.append("verdicts at the end hold over seeds and over files like the test set's; the others over seeds")
    elif comparison.verdicts and len(comparison.seeds) > 1:
        lines.append("verdicts hold over seeds, for just these files of the test set")
    return lines


def few_tokens(facts: FrozenFacts) -> list[str]:
    """Say so where the test set is smaller than it should be."""
    if facts.tokens >= MIN_TOKENS:
        return []
    found = f"{counted(facts.tokens, 'token')} of {counted(facts.files, 'file')}, fewer than {MIN_TOKENS:,}"
    return [f"the test set has {found}: intervals are wide, and a small difference does not show"]


def _spread(comparison: Comparison) -> str:
    if len(comparison.seeds) == 1:
        return "one seed, so no intervals"
    return f"±: {CONFIDENCE:.0%} of Student's t over {counted(len(comparison.seeds), 'seed')}"
