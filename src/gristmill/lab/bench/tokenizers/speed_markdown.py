"""Render the result of `bench --tokenizers` as a Markdown page: a chart, tables and notes."""

import os
from collections.abc import Sequence
from urllib.parse import quote

from gristmill.core.markdown import code, escape_markdown
from gristmill.lab.bench.tokenizers.speed_text import (
    STAGE_HEADINGS,
    TIME_HEADINGS,
    corpus_text,
    environment_text,
    note_lines,
    speed_headings,
    speed_rows,
    stage_rows,
    time_rows,
)
from gristmill.lab.bench.tokenizers.speeds import CASE_TITLES, Case, TokenizerBench
from gristmill.views.table import Table, markdown_table

HEADING = "# How fast each tokenizer is on the same bytes"
"""First line of the page. A later benchmark replaces only a file that begins with this line."""


def tokenizers_markdown(result: TokenizerBench, chart: str) -> str:
    """Render the page. `chart` is the path of the chart, relative to the page."""
    runs = max((speed.runs for speed in result.speeds), default=1)
    parts = [
        HEADING,
        code(result.command),
        f"{escape_markdown(environment_text(result))}.",
        f"Files: {escape_markdown(result.corpus.source)}, {escape_markdown(corpus_text(result.corpus))}.",
        f"![Source bytes per second of each tokenizer]({quote(os.fsencode(chart))})",
        *(
            part
            for case in Case
            for part in _section(CASE_TITLES[case], speed_headings(result), speed_rows(case, result))
        ),
        "\n".join(f"- {escape_markdown(note[0].upper() + note[1:])}." for note in note_lines(result)),
        *_section("Stages on the GPU", STAGE_HEADINGS, stage_rows(result) if result.stages else []),
        *_section(f"All times, medians of {runs} runs" if runs > 1 else "All times", TIME_HEADINGS, time_rows(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"## {title}", markdown_table(Table(title, heads, rows))] if rows else []
