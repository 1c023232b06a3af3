"""report(): facts of a dataset -> a page of charts and tables -> one HTML file.

report("dataset")            the report of a dataset, in its folder
report("old", "new")         that of new, held against old
"""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gristmill.core.errors import OutputError
from gristmill.core.extras import require_report
from gristmill.core.layout import REPORT, can_hold_files, is_report, write_atomically
from gristmill.core.manifest import Edition, read_manifest
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.text import size_text
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.views.charts import chart_scripts
from gristmill.views.html import page_style
from gristmill.views.report.build_sections import (
    fim_section,
    repeat_section,
    seconds_section,
    secrets_section,
    splits_section,
    variants_section,
)
from gristmill.views.report.facts import Facts
from gristmill.views.report.file_sections import files_section, twins_section
from gristmill.views.report.gather import gather
from gristmill.views.report.page import (
    Headline,
    Page,
    Section,
    listed,
    report_html,
    row_headline,
    share_text,
    short_number,
)
from gristmill.views.report.token_sections import ids_word, tokens_section, windows_section
from gristmill.views.report.two_datasets import compared_section
from gristmill.views.row import RowLook, look_at
from gristmill.views.row_html import ROW_STYLE, row_html

MOST_NOTES = 20
MOST_NAMED = 3


def page_of(facts: Facts, compared: Section | None, rows: Section) -> Page:
    """`compared`: with an earlier dataset; `rows`: what a model sees."""
    fim = fim_section(facts)
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
            *([fim] if fim is not None else []),
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
    rows = f"{'rows' if facts.is_packed else 'windows'} of {facts.window_length:,} ids{by}"
    if facts.has_documents:
        rows = f"a text for each file, with tokens{by}"
    return (
        f"A training dataset from {_sources(sources)}: {rows}{overlap}, "
        f"as {listed(facts.formats)}, with the preset {facts.preset}. Built {made.started_at[:10]}."
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
        Headline("tokens", short_number(facts.tokens), f"{short_number(facts.emitted)} {ids_word(facts)} in the rows"),
        Headline("size", size_text(facts.data_bytes), listed(facts.formats)),
        Headline(
            "time", f"{facts.total_seconds:,.1f} s", f"with {counted(facts.provenance.workers, 'process', 'processes')}"
        ),
    ]


# What a model sees: a row of each split, token by token.

MOST_TOKENS = 1024
"""Of a row, as each is an element of the page."""


def rows_section(dataset: Dataset) -> Section:
    splits = [split for split in Split if len(dataset[split])]
    if not splits:
        return Section("rows", "What a model sees", "There are no rows.")
    told = "The row in the middle of each split: where tokens begin and end, and what neighbouring windows show too."
    tokenizer = dataset.tokenizer
    looks = (look_at(dataset, split, len(dataset[split]) // 2, tokenizer) for split in splits)
    return Section("rows", "What a model sees", told, (), [row_html(shortened(look)) for look in looks])


def shortened(look: RowLook, most: int = MOST_TOKENS) -> RowLook:
    """A long row's first tokens."""
    if len(look.tokens) <= most:
        return look
    note = f"These are the first {most:,} of its {counted(len(look.tokens), 'token')}."
    return msgspec.structs.replace(
        look,
        tokens=look.tokens[:most],
        strokes=[stroke for stroke in look.strokes if stroke.token < most],
        windows=[window for window in look.windows if window.at < most],
        note=f"{look.note} {note}" if look.note else note,
    )


def report(
    folder: str | os.PathLike[str],
    other: str | os.PathLike[str] | None = None,
    *,
    sources: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """With `other`, the report of that one, held against `folder`. `sources`: where near-duplicates are read from."""
    require_report()
    scripts = chart_scripts()
    folders = [Path(os.path.expanduser(one)) for one in (folder, other) if one is not None]
    for one in folders:  # before any of them is read through
        read_manifest(one)
    subject = folders[-1]
    path = subject / REPORT if out is None else Path(os.path.expanduser(out))
    _require_place(path)
    with Edition(subject).reading(), Edition(folders[0]).reading():
        facts = gather(subject, sources, progress)
        compared = None if other is None else compared_section(folders[0], subject, facts, progress)
        page = page_of(facts, compared, rows_section(open_dataset(subject)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, report_html(page, page_style() + ROW_STYLE, scripts))
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}. Name another place with --out.") from None
    return path


def _require_place(path: Path) -> None:
    """What is there already is replaced only if it is a report: a wrong name must not cost anybody a file."""
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder. Name a file, like {str(path / REPORT)!r}.")
    if not can_hold_files(path.parent):
        raise OutputError(f"cannot write into {str(path.parent)!r}. Name another place with --out.")
    if not path.exists():
        return
    if not path.is_file():
        raise OutputError(f"{str(path)!r} is not an ordinary file. Name another place with --out.")
    try:
        is_ours = is_report(path)
    except OSError as error:
        raise OutputError(f"cannot read {str(path)!r}: {error.strerror}. Name another place with --out.") from None
    if not is_ours:
        raise OutputError(f"{str(path)!r} is there already and is no report. Name another file with --out.")
