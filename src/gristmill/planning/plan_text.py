"""Format a plan as text for people and as JSON for scripts."""

import math

import msgspec

from gristmill.config.settings import SamplingConfig
from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text
from gristmill.pipeline.summary import fim_lines, previous_lines, sampling_lines, variant_lines
from gristmill.planning.overlap_choice import FEW_PASSES
from gristmill.planning.plan_result import Contribution, Plan

MAX_CONTRIBUTIONS = 8
NO_DECIMALS_FROM = 10


def plan_json(plan: Plan, command: str) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(plan), "command": command}).decode()


def plan_text(plan: Plan, command: str, sampling: SamplingConfig | None = None) -> str:
    """Format a plan as text. `command` is the build command, and `sampling` holds the configured weights and sizes."""
    settings = msgspec.to_builtins(sampling or SamplingConfig())
    return "\n".join(
        (
            _overlap_table(plan),
            *_sample_lines(plan),
            *_split_lines(plan),
            *sampling_lines(plan.sampling, settings),
            *fim_lines(plan.fim),
            *variant_lines(plan.variants),
            _contributions("language", plan.languages),
            _contributions("folder", plan.folders),
            *_file_lines(plan),
            f"preset   {plan.preset}",
            *previous_lines(plan.previous_splits),
            "",
            *_training_lines(plan),
            "",
            *_pick_lines(plan),
            f"build    {printable(command)}",
        )
    )


def _pick_lines(plan: Plan) -> list[str]:
    compressed = ["compressed"] if plan.pick.compress else []
    picked = ", ".join(compressed if plan.has_documents else [f"overlap {plan.pick.overlap}", *compressed])
    return [f"pick     {picked}", *(f"         - {reason}" for reason in plan.pick.why), ""] if picked else []


def _unit(plan: Plan) -> str:
    """Return the word for what the counts of windows in a plan count."""
    return "document" if plan.has_documents else "row" if plan.is_packed else "window"


def _overlap_table(plan: Plan) -> str:
    sizes = (
        f"{_unit(plan)}s",
        "tokens" if plan.has_documents else "ids",
        "redundancy",
        "JSONL",
        "JSONL.zst",
        "Parquet",
    )
    headings = ("rows" if plan.has_documents else "overlap", *sizes, "build", "steps/epoch")
    sign = "" if plan.sample is None else "≈"
    rows = [
        (
            "documents" if plan.has_documents else f"{one.overlap}{' *' if one.overlap == plan.pick.overlap else '  '}",
            f"{sign}{one.windows:,}",
            f"{sign}{one.tokens:,}",
            f"{one.redundancy:.2f}",
            f"{sign}{size_text(one.jsonl_bytes)}",
            f"{sign}{size_text(one.jsonl_zst_bytes)}",
            "-" if one.parquet_bytes is None else f"{sign}{size_text(one.parquet_bytes)}",
            f"≈{_seconds(one.build_seconds)} s",
            f"{sign}{one.steps_per_epoch:,}",
            *(() if one.epochs_for_budget is None else (_epochs(one.epochs_for_budget),)),
        )
        for one in plan.overlaps
    ]
    has_epochs = any(one.epochs_for_budget is not None for one in plan.overlaps)
    return table_text((*headings, *(("epochs",) if has_epochs else ())), rows, num_left_aligned=0)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < NO_DECIMALS_FROM else f"{seconds:,.0f}"


def _epochs(epochs: float) -> str:
    return f"{epochs:.3f}" if epochs < 1 else f"{epochs:,.1f}"


def _sample_lines(plan: Plan) -> list[str]:
    lines = []
    if plan.sample is not None:
        files = f"{plan.sample.files:,} of {counted(plan.sample.of, 'file')}"
        lines += [
            f"≈ estimated from {files}: {_within(plan.sample.error)}.",
            "  These files do not include empty files and files excluded by name.",
            "  The error allows for near-duplicates outside the sample. Counts by language, folder and reason are less",
            "  exact, and compressed sizes are overestimated.",
            "",
        ]
    if any(one.parquet_bytes is None for one in plan.overlaps):
        lines += ["Parquet sizes need pyarrow: pip install 'gristmill[parquet]'", ""]
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
    unit = f"{_unit(plan)}s" if plan.has_documents else f"{_unit(plan)}s at overlap {picked.overlap}"
    return [table_text(("split", "files", unit, "tokens", "share"), rows)]


def _within(error: float) -> str:
    if error >= 1:
        return "the sample is too small to state an error"
    return f"windows, ids and JSONL bytes are within {error:.1%}"


def _contributions(kind: str, contributions: list[Contribution]) -> str:
    listed, others = contributions[:MAX_CONTRIBUTIONS], contributions[MAX_CONTRIBUTIONS:]
    rows = [(printable(one.name), f"{one.files:,}", f"{one.tokens:,}", f"{one.share:.1%}") for one in listed]
    if others:
        files, tokens = sum(one.files for one in others), sum(one.tokens for one in others)
        rows.append(
            (counted(len(others), "other"), f"{files:,}", f"{tokens:,}", f"{sum(one.share for one in others):.1%}")
        )
    return table_text((kind, "files", "tokens", "share"), rows)


def _file_lines(plan: Plan) -> list[str]:
    dropped = sum(one.files for one in plan.removed)
    small_share = plan.one_window_files / plan.kept if plan.kept else 0
    fit = "" if plan.has_documents else f"; {small_share:.0%} of those kept fit into one window"
    lines = [f"files    {plan.found:,} found, {plan.kept:,} kept, {dropped:,} dropped{fit}"]
    for one in plan.removed:
        size = f" ({size_text(one.bytes)})" if one.bytes else ""
        lines.append(f"{one.files:>15,} {one.reason}{size}: {one.reason.meaning}")
    cut = (
        f", {plan.cut_tokens:,} cut because they are also in another split or in a benchmark" if plan.cut_tokens else ""
    )
    return [*lines, f"tokens   {plan.distinct_tokens:,} kept{cut}"]


def _training_lines(plan: Plan) -> list[str]:
    picked, budget = plan.at(plan.pick.overlap), plan.budget
    windows, ids = picked.train_windows, picked.train_tokens
    if not windows:
        return ["train    nothing to train on: no file is in train"]
    steps = f"{counted(math.ceil(windows / plan.batch_size), 'step')} at batch size {plan.batch_size:,}"
    epoch = f"one epoch at overlap {picked.overlap}: {counted(windows, _unit(plan))}, {counted(ids, 'id')}"
    if plan.has_documents:
        epoch = f"one epoch: {counted(windows, 'document')}, {counted(ids, 'token')}"
    lines = [f"train    {epoch}, {steps}"]
    for one in plan.passes:
        value = "nearly as good as new data" if one.passes == FEW_PASSES else "more passes add little"
        text = f"{_epochs(one.epochs)} epochs, {counted(one.steps, 'step')}"
        lines.append(f"         {counted(one.passes, 'pass', 'passes')} over each token ({value}): {text}")
    if budget is None or picked.epochs_for_budget is None:
        return lines
    text = counted(budget.tokens, "id")
    if budget.epochs is not None and budget.sequences is not None:
        epochs_text = counted(f"{budget.epochs:g}", "epoch")
        text = f"{epochs_text} x {counted(budget.sequences, 'sequence')} x {budget.length} ids = {text}"
    epochs = picked.epochs_for_budget
    num_steps = math.ceil(epochs * windows / plan.batch_size)
    return [
        *lines,
        f"budget   {text}",
        f"         equals {_epochs(epochs)} epochs of this dataset, {counted(num_steps, 'step')}",
    ]
