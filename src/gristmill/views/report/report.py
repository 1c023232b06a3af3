"""Write the report on a dataset: one HTML file with charts and tables.

report("dataset")            write the report on a dataset into its folder
report("old", "new")         write the report on `new`, compared with `old`
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gristmill.core.errors import OutputError
from gristmill.core.extras import require_report
from gristmill.core.layout import REPORT, is_report, is_writable_folder, write_atomically
from gristmill.core.manifest import OpenedBuild, read_manifest
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.text import size_text
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.views.charts import chart_scripts
from gristmill.views.html import page_style
from gristmill.views.report.build_sections import (
    build_time_section,
    fim_section,
    reproduction_section,
    secrets_section,
    splits_section,
    variants_section,
)
from gristmill.views.report.facts import Facts
from gristmill.views.report.file_sections import duplicates_section, files_section
from gristmill.views.report.gather import gather
from gristmill.views.report.page import (
    Headline,
    Page,
    Section,
    join_words,
    report_html,
    row_headline,
    share_text,
    short_number,
)
from gristmill.views.report.token_sections import row_unit, tokens_section, windows_section
from gristmill.views.report.two_datasets import comparison_section
from gristmill.views.row import RowView, view_row
from gristmill.views.row_html import ROW_STYLE, row_html

MAX_NOTES = 20
MAX_NAMED_SOURCES = 3


def make_page(facts: Facts, comparison: Section | None, rows: Section) -> Page:
    """Return the page of a report. `comparison` is the section that compares two datasets, or None."""
    fim = fim_section(facts)
    return Page(
        title=facts.title,
        lead=_lead(facts),
        headlines=_headlines(facts),
        notes=_notes(facts.warnings),
        sections=[
            *([comparison] if comparison else []),
            files_section(facts),
            tokens_section(facts),
            windows_section(facts),
            duplicates_section(facts),
            splits_section(facts),
            secrets_section(facts),
            *([fim] if fim is not None else []),
            variants_section(facts),
            build_time_section(facts),
            rows,
            reproduction_section(facts),
        ],
        footer=f"Dataset built by gristmill {facts.provenance.gristmill}, fingerprint "
        f"{facts.provenance.fingerprint[:16]}….",
    )


def _lead(facts: Facts) -> str:
    provenance = facts.provenance
    sources = [source.repo for source in provenance.sources]
    overlap = f" with an overlap of {facts.overlap:,}" if facts.overlap else ""
    tokenizer = next((value for name, value in provenance.tokenizer if name == "name"), "")
    with_tokenizer = f", tokenized with {tokenizer}" if tokenizer else ""
    rows = f"{'rows' if facts.is_packed else 'windows'} of {facts.window_length:,} ids{overlap}{with_tokenizer}"
    if facts.has_documents:
        rows = f"one text per file{with_tokenizer}"
    return (
        f"A training dataset from {_sources(sources)}: {rows}. "
        f"{'Format' if len(facts.formats) == 1 else 'Formats'} {join_words(facts.formats)}, preset {facts.preset}, "
        f"built on {provenance.started_at[:10]}."
    )


def _notes(warnings: list[str]) -> list[str]:
    num_more = len(warnings) - MAX_NOTES
    return (
        warnings
        if num_more <= 0
        else [*warnings[:MAX_NOTES], f"The manifest lists {counted(num_more, 'more warning')}."]
    )


def _sources(names: Sequence[str]) -> str:
    return join_words(names) if len(names) <= MAX_NAMED_SOURCES else counted(len(names), "source")


def _headlines(facts: Facts) -> list[Headline]:
    return [
        Headline("files found", f"{facts.found:,}", size_text(facts.source_bytes)),
        Headline("files kept", f"{facts.kept:,}", f"{share_text(facts.kept, facts.found)} of files found"),
        row_headline(facts.rows, facts.windows if facts.is_packed else None, facts.window_length),
        Headline("tokens", short_number(facts.tokens), f"{short_number(facts.emitted)} {row_unit(facts)} in the rows"),
        Headline("size", size_text(facts.data_bytes), join_words(facts.formats)),
        Headline(
            "time", f"{facts.total_seconds:,.1f} s", f"with {counted(facts.provenance.workers, 'process', 'processes')}"
        ),
    ]


# Sample rows: one row of each split, token by token.

MAX_TOKENS = 1024
"""Maximum number of displayed tokens of a row. Each token is an element, so the limit keeps the page small."""


def rows_section(dataset: Dataset) -> Section:
    splits = [split for split in Split if len(dataset[split])]
    if not splits:
        return Section("rows", "Sample rows", "The dataset has no rows.")
    summary = "The middle row of each split, with its token boundaries and the overlap with neighboring windows."
    tokenizer = dataset.tokenizer
    views = (view_row(dataset, split, len(dataset[split]) // 2, tokenizer) for split in splits)
    return Section("rows", "Sample rows", summary, (), [row_html(truncate_row(view)) for view in views])


def truncate_row(view: RowView, max_tokens: int = MAX_TOKENS) -> RowView:
    """Return a row without the tokens after the first `max_tokens`."""
    if len(view.tokens) <= max_tokens:
        return view
    note = f"Only the first {max_tokens:,} of {counted(len(view.tokens), 'token')} are displayed."
    return msgspec.structs.replace(
        view,
        tokens=view.tokens[:max_tokens],
        strokes=[stroke for stroke in view.strokes if stroke.token < max_tokens],
        windows=[window for window in view.windows if window.at < max_tokens],
        note=f"{view.note} {note}" if view.note else note,
    )


def report(
    folder: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    *,
    sources: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write the report on a dataset and return its path.

    With `other`, the report is on `other`, compared with `folder`. Dropped near-duplicates are read from the folders
    `sources`, by default from the sources of the last build, if they still exist. `out` defaults to report.html in the
    folder of the dataset. Raise OutputError if `out` cannot be written, or if it exists and is not a report.
    """
    require_report()
    scripts = chart_scripts()
    folders = [Path(os.path.expanduser(one)) for one in (folder, other) if one is not None]
    for one in folders:  # fail before the datasets are read
        read_manifest(one)
    subject = folders[-1]
    path = subject / REPORT if out is None else Path(os.path.expanduser(out))
    _require_writable(path)
    with OpenedBuild(subject).guard_reading(), OpenedBuild(folders[0]).guard_reading():
        facts = gather(subject, sources, progress)
        comparison = None if other is None else comparison_section(folders[0], subject, facts, progress)
        page = make_page(facts, comparison, rows_section(open_dataset(subject)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, report_html(page, page_style() + ROW_STYLE, scripts))
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}. Choose another path with --out.") from None
    return path


def _require_writable(path: Path) -> None:
    """Raise OutputError if the path is not writable, or if it exists and is not a report."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder. Give a file name, like {str(path / REPORT)!r}.")
    if not is_writable_folder(path.parent):
        raise OutputError(f"cannot write into {str(path.parent)!r}. Choose another path with --out.")
    if not path.exists():
        return
    if not path.is_file():
        raise OutputError(f"{str(path)!r} is not a regular file. Choose another path with --out.")
    try:
        is_existing_report = is_report(path)
    except OSError as error:
        raise OutputError(f"cannot read {str(path)!r}: {error.strerror}. Choose another path with --out.") from None
    if not is_existing_report:
        raise OutputError(f"{str(path)!r} exists and is not a report. Choose another file with --out.")
