"""What `bench --tokenizers` found, as a page to commit: the chart, tables, and what was timed."""

import os
from collections.abc import Sequence
from urllib.parse import quote

from gristmill.core.markdown import code, plain_text
from gristmill.lab.bench.tokenizers.speed_text import (
    STAGE_HEADS,
    TIME_HEADS,
    ids_text,
    notes_of,
    place_text,
    speed_heads,
    speed_rows,
    stage_rows,
    time_rows,
)
from gristmill.lab.bench.tokenizers.speeds import CASE_TITLES, Case, TokenizerBench
from gristmill.views.table import Table, markdown_table

HEADING = "# How fast each tokenizer is on the same bytes"
"""The first line: by it a page is known as one of these."""


def tokenizers_markdown(result: TokenizerBench, chart: str) -> str:
    """`chart` is where the picture lies, seen from the page."""
    runs = max((speed.runs for speed in result.speeds), default=1)
    parts = [
        HEADING,
        code(result.command),
        f"{plain_text(place_text(result))}.",
        f"The files: {plain_text(result.corpus.source)}, {plain_text(ids_text(result.corpus))}.",
        f"![Source bytes per second of each tokenizer]({quote(os.fsencode(chart))})",
        *(part for case in Case for part in _section(CASE_TITLES[case], speed_heads(result), speed_rows(case, result))),
        "\n".join(f"- {plain_text(note[0].upper() + note[1:])}." for note in notes_of(result)),
        *_section("On the GPU by itself", STAGE_HEADS, stage_rows(result) if result.stages else []),
        *_section(f"All times, medians of {runs}" if runs > 1 else "All times", TIME_HEADS, time_rows(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"## {title}", markdown_table(Table(title, heads, rows))] if rows else []
