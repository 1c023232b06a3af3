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
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.views.charts import chart_scripts
from gristmill.views.html import page_style
from gristmill.views.report.gather import gather
from gristmill.views.report.page import report_html
from gristmill.views.report.section import Section
from gristmill.views.report.sections import page_of
from gristmill.views.report.two_datasets import compared_section
from gristmill.views.row import RowLook, look_at
from gristmill.views.row_html import ROW_STYLE, row_html

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
