"""Markdown page of a finished comparison: verdicts, the table of datasets, the test set, the runs and the method."""

import os
from collections.abc import Iterable
from urllib.parse import quote

from gristmill.core.markdown import code, code_in_table, escape_markdown, numbers_table
from gristmill.lab.comparison.comparison import Comparison, RunResult
from gristmill.lab.comparison.comparison_text import (
    HEADINGS,
    UNKNOWN,
    budget_text,
    dataset_cells,
    frozen_text,
    notes,
    overlap_lines,
    verdict_lines,
)
from gristmill.lab.comparison.frozen import FrozenFacts

HEADING = "# Which dataset trains the better model"
"""First line of the page."""
RUN_HEADINGS = ("dataset", "seed", "at the end", "at best validation", "own validation", "seconds", "tokens/s")
METHOD = (
    "Every run has the same model, {budget}, schedule and test set. Runs differ in the dataset and the seed, and all "
    "datasets use the same seeds. The test set was frozen before training. It consists of the files that every dataset "
    "holds out (or of a separate test set), without near-duplicates of train files and without spans of 50 or more "
    "tokens that also occur in a train split. Two datasets are compared seed by seed."
)


def comparison_markdown(comparison: Comparison, chart: str | None = None) -> str:
    """Render the page. `chart` is the path of the curves, relative to the page."""
    parts = [
        HEADING,
        code(comparison.command),
        "\n".join(f"- {escape_markdown(line)}" for line in verdict_lines(comparison)),
        *([] if chart is None else [f"![Scores over the tokens trained on]({quote(os.fsencode(chart))})"]),
        numbers_table(HEADINGS, ([code_in_table(name), *cells] for name, *cells in _dataset_rows(comparison))),
        "\n".join(f"- {escape_markdown(note)}" for note in notes(comparison)),
        "## The test set",
        escape_markdown(_test_set(comparison.frozen)),
        "## The runs",
        f"{escape_markdown(comparison.model)}, {budget_text(comparison)}.",
        numbers_table(RUN_HEADINGS, map(_run_cells, comparison.runs)),
        "## Method",
        METHOD.format(budget="number of epochs" if comparison.budget_tokens is None else "token budget"),
        escape_markdown(
            ", ".join([comparison.device, *(f"{name} {number}" for name, number in comparison.versions.items())])
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _dataset_rows(comparison: Comparison) -> Iterable[list[str]]:
    return (dataset_cells(facts, comparison) for facts in comparison.datasets)


def _test_set(facts: FrozenFacts) -> str:
    lines = [line.strip() for line in overlap_lines(facts)]
    removed = f" {lines[0]} {'; '.join(lines[1:])}." if lines else ""
    return f"{frozen_text(facts)}.{removed}"


def _run_cells(run: RunResult) -> list[str]:
    return [
        code_in_table(run.dataset),
        str(run.seed),
        _score(run.end),
        _score(run.at_best_validation),
        _score(run.own_validation),
        f"{run.seconds:,.0f}",
        f"{run.tokens_per_second:,.0f}",
    ]


def _score(score: float | None) -> str:
    return UNKNOWN if score is None else f"{score:.4f}"
