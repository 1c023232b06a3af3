"""A plan as tables for people and as JSON for scripts."""

import math

import msgspec

from gristmill.config.settings import SamplingConfig
from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text
from gristmill.pipeline.summary import fim_lines, previous_lines, sampling_lines, variant_lines
from gristmill.planning.overlap_choice import FEW_PASSES
from gristmill.planning.plan_result import Plan, Portion

PORTIONS_SHOWN = 8
WHOLE_FROM = 10


def plan_json(plan: Plan, command: str) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(plan), "command": command}).decode()


def plan_text(plan: Plan, command: str, sampling: SamplingConfig | None = None) -> str:
    """`sampling`: what was asked for."""
    settings = msgspec.to_builtins(sampling or SamplingConfig())
    return "\n".join(
        (
            _overlaps(plan),
            *_sample_lines(plan),
            *_split_lines(plan),
            *sampling_lines(plan.sampling, settings),
            *fim_lines(plan.fim),
            *variant_lines(plan.variants),
            _portions("language", plan.languages),
            _portions("folder", plan.folders),
            *_file_lines(plan),
            f"preset   {plan.preset}",
            *previous_lines(plan.previous_splits),
            "",
            *_training_lines(plan),
            "",
            f"pick     overlap {plan.pick.overlap}{', compressed' if plan.pick.compress else ''}",
            *(f"         - {reason}" for reason in plan.pick.why),
            "",
            f"         {printable(command)}",
        )
    )


def _overlaps(plan: Plan) -> str:
    sizes = ("rows" if plan.is_packed else "windows", "ids", "times shown", "JSONL", "JSONL.zst", "Parquet")
    headings = ("overlap", *sizes, "build", "steps/epoch")
    about = "" if plan.sample is None else "≈"
    rows = [
        (
            f"{one.overlap}{' *' if one.overlap == plan.pick.overlap else '  '}",
            f"{about}{one.windows:,}",
            f"{about}{one.tokens:,}",
            f"{one.redundancy:.2f}",
            f"{about}{size_text(one.jsonl_bytes)}",
            f"{about}{size_text(one.jsonl_zst_bytes)}",
            "-" if one.parquet_bytes is None else f"{about}{size_text(one.parquet_bytes)}",
            f"≈{_seconds(one.build_seconds)} s",
            f"{about}{one.steps_per_epoch:,}",
            *(() if one.epochs_for_budget is None else (_epochs(one.epochs_for_budget),)),
        )
        for one in plan.overlaps
    ]
    has_epochs = any(one.epochs_for_budget is not None for one in plan.overlaps)
    return table_text((*headings, *(("epochs",) if has_epochs else ())), rows, left=0)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < WHOLE_FROM else f"{seconds:,.0f}"


def _epochs(epochs: float) -> str:
    return f"{epochs:.3f}" if epochs < 1 else f"{epochs:,.1f}"


def _sample_lines(plan: Plan) -> list[str]:
    lines = []
    if plan.sample is not None:
        files = f"{plan.sample.files:,} of {counted(plan.sample.of, 'file')}"
        lines += [
            f"≈ from {files} that were not left out by name: {_within(plan.sample.error)},",
            "  what a sample cannot show of near-duplicates included; languages, folders and reasons are rougher,",
            "  compressed sizes come out too large",
            "",
        ]
    if any(one.parquet_bytes is None for one in plan.overlaps):
        lines += ["Parquet needs pyarrow: pip install 'gristmill[parquet]'", ""]
    return lines


def _split_lines(plan: Plan) -> list[str]:
    if not plan.splits:
        return []
    picked = plan.at(plan.pick.overlap)
    windows = (picked.train_windows, picked.validation_windows, picked.test_windows)
    rows = [
        (str(one.split), f"{one.files:,}", f"{number:,}", f"{one.tokens:,}", f"{one.share:.1%}")
        for one, number in zip(plan.splits, windows, strict=True)
    ]
    return [table_text(("split", "files", f"windows at {picked.overlap}", "tokens", "share"), rows)]


def _within(error: float) -> str:
    if error >= 1:
        return "too few to say how far off windows, ids and JSONL are"
    return f"windows, ids and JSONL are within {error:.1%}"


def _portions(kind: str, portions: list[Portion]) -> str:
    shown, others = portions[:PORTIONS_SHOWN], portions[PORTIONS_SHOWN:]
    rows = [(printable(one.name), f"{one.files:,}", f"{one.tokens:,}", f"{one.share:.1%}") for one in shown]
    if others:
        files, tokens = sum(one.files for one in others), sum(one.tokens for one in others)
        rows.append(
            (counted(len(others), "other"), f"{files:,}", f"{tokens:,}", f"{sum(one.share for one in others):.1%}")
        )
    return table_text((kind, "files", "tokens", "share"), rows)


def _file_lines(plan: Plan) -> list[str]:
    dropped = sum(one.files for one in plan.removed)
    small = plan.one_window_files / plan.kept if plan.kept else 0
    lines = [f"files    {plan.found:,} found, {plan.kept:,} kept, {dropped:,} dropped; {small:.0%} fit into one window"]
    for one in plan.removed:
        size = f" ({size_text(one.bytes)})" if one.bytes else ""
        lines.append(f"{one.files:>15,} {one.reason}{size}: {one.reason.meaning}")
    cut = f", {plan.cut_tokens:,} cut: also in another split, or in a benchmark" if plan.cut_tokens else ""
    return [*lines, f"tokens   {plan.distinct_tokens:,} kept{cut}"]


def _training_lines(plan: Plan) -> list[str]:
    picked, budget = plan.at(plan.pick.overlap), plan.budget
    windows, ids = picked.train_windows, picked.train_tokens
    if not windows:
        return ["train    nothing: no file is in train"]
    steps = f"{counted(math.ceil(windows / plan.batch_size), 'step')} of {plan.batch_size:,}"
    lines = [
        f"train    one epoch at overlap {picked.overlap}: {counted(windows, 'window')}, {counted(ids, 'id')}, {steps}"
    ]
    for one in plan.passes:
        worth = "nearly as good as new data" if one.passes == FEW_PASSES else "more add little"
        told = f"{_epochs(one.epochs)} epochs, {counted(one.steps, 'step')}"
        lines.append(f"         {counted(one.passes, 'pass', 'passes')} over each token ({worth}): {told}")
    if budget is None or picked.epochs_for_budget is None:
        return lines
    told = counted(budget.tokens, "id")
    if budget.epochs is not None and budget.sequences is not None:
        epochs_asked = counted(f"{budget.epochs:g}", "epoch")
        told = f"{epochs_asked} x {counted(budget.sequences, 'sequence')} x {budget.length} ids = {told}"
    epochs = picked.epochs_for_budget
    num_steps = math.ceil(epochs * windows / plan.batch_size)
    return [
        *lines,
        f"budget   {told}",
        f"         the same here: {_epochs(epochs)} epochs, {counted(num_steps, 'step')}",
    ]
