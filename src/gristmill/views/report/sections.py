"""The sections of a report, in order, and what stands above them."""

from collections.abc import Sequence

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.views.report.build_sections import repeat_section, seconds_section
from gristmill.views.report.facts import Facts
from gristmill.views.report.file_sections import files_section, twins_section
from gristmill.views.report.page import Headline, Page, row_headline
from gristmill.views.report.section import Section, listed, share_text, short_number
from gristmill.views.report.split_sections import secrets_section, splits_section, variants_section
from gristmill.views.report.token_sections import tokens_section, windows_section

MOST_NOTES = 20
MOST_NAMED = 3


def page_of(facts: Facts, compared: Section | None, rows: Section) -> Page:
    """`compared`: with an earlier dataset; `rows`: what a model sees."""
    return Page(
        title=facts.title,
        lead=_lead_of(facts),
        headlines=_headlines_of(facts),
        notes=_notes(facts.warnings),
        sections=[
            *([compared] if compared else []),
            files_section(facts),
            tokens_section(facts),
            windows_section(facts),
            twins_section(facts),
            splits_section(facts),
            secrets_section(facts),
            variants_section(facts),
            seconds_section(facts),
            rows,
            repeat_section(facts),
        ],
        footer=f"Made by gristmill {facts.provenance.gristmill} from the dataset with the fingerprint "
        f"{facts.provenance.fingerprint[:16]}….",
    )


def _lead_of(facts: Facts) -> str:
    made = facts.provenance
    sources = [source.repo for source in made.sources]
    overlap = f", neighbours sharing {facts.overlap:,}" if facts.overlap else ""
    tokenizer = next((value for name, value in made.tokenizer if name == "name"), "")
    by = f" of the tokenizer {tokenizer}" if tokenizer else ""
    rows = "rows" if facts.is_packed else "windows"
    return (
        f"A training dataset from {_sources(sources)}: {rows} of {facts.window_length:,} ids{by}{overlap}, "
        f"as {listed(facts.formats)}. Built {made.started_at[:10]}."
    )


def _notes(warnings: list[str]) -> list[str]:
    num_more = len(warnings) - MOST_NOTES
    return warnings if num_more <= 0 else [*warnings[:MOST_NOTES], f"{num_more:,} more are in the manifest."]


def _sources(names: Sequence[str]) -> str:
    return listed(names) if len(names) <= MOST_NAMED else counted(len(names), "source")


def _headlines_of(facts: Facts) -> list[Headline]:
    return [
        Headline("files found", f"{facts.found:,}", size_text(facts.source_bytes)),
        Headline("files kept", f"{facts.kept:,}", f"{share_text(facts.kept, facts.found)} of those found"),
        row_headline(facts.rows, facts.windows if facts.is_packed else None, facts.window_length),
        Headline("tokens", short_number(facts.tokens), f"{short_number(facts.emitted)} ids in the rows"),
        Headline("size", size_text(facts.data_bytes), listed(facts.formats)),
        Headline(
            "time", f"{facts.total_seconds:,.1f} s", f"with {counted(facts.provenance.workers, 'process', 'processes')}"
        ),
    ]
