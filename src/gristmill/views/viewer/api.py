"""What each address under /api answers: JSON, from the dataset and its index."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text, printable
from gristmill.core.records import DropReason, Split
from gristmill.dataset.row_windows import ShownWindow, Window, join_windows, read_row
from gristmill.planning.explain import status_text
from gristmill.views.row import has_lines, look_at, look_at_tokens
from gristmill.views.viewer.filters import FIM, Filters, Passing, files_of, tables_of
from gristmill.views.viewer.opened import Viewed
from gristmill.views.viewer.request import Query, bad_request, not_found
from gristmill.views.viewer.search import Cursor, Found, Near, Scope, Search, search, search_near
from gristmill.views.viewer.viewed_rows import TEXT_IDS, NotIndexedError, text_of
from gristmill.views.viewer.window_index import FORMS, KINDS, WindowTable

MOST_WINDOWS = 5000
MOST_TOKENS = 40_000
"""What a browser still draws at once: of a file of 150 KB."""


# One file: its line in files.jsonl, its windows, and its text, stitched from them.


class Stitched(NamedTuple):
    """A file's tokens, each once, as far as windows show them."""

    ids: list[int]
    edges: list[tuple[int, int]]
    """Where among these each window begins, and its row."""
    gaps: list[tuple[int, int]]
    """Where tokens are missing, and how many."""


def file_page(viewed: Viewed, number: int) -> dict[str, Any]:
    files, windows = tables_of(viewed.index)
    row = files.row(number)
    own = np.flatnonzero(windows.file == number)
    stitched = _stitched(viewed, row, windows, own)
    tokens, strokes = look_at_tokens(stitched.ids, viewed.dataset.tokenizer, row.language or "", row.path)
    commits = {source.repo: source.commit for source in viewed.dataset.manifest.sources}
    return {
        "file": row,
        "commit": commits.get(row.repo),
        "told": status_text(row),
        "windows": [_window(viewed, windows, one) for one in own[:MOST_WINDOWS].tolist()],
        "tokens": tokens,
        "strokes": strokes,
        "edges": stitched.edges,
        "gaps": stitched.gaps,
        "num_tokens_left_out": max((row.tokens or 0) - len(stitched.ids), 0) if row.status == "kept" else 0,
        "note": _note(viewed, row, stitched, len(own)),
    }


def _window(viewed: Viewed, windows: WindowTable, number: int) -> dict[str, Any]:
    split, row = viewed.dataset.numbering.place(int(windows.row[number]))
    numbers = {name: int(getattr(windows, name)[number]) for name in ("start", "fresh", "num_ids", "repeat")}
    lines = int(windows.first_line[number]), int(windows.last_line[number])
    return {
        "split": split,
        "row": row,
        "lines": lines,
        "variant": KINDS[windows.variant[number]],
        "fim": FORMS[windows.form[number]],
        **numbers,
    }


def _stitched(viewed: Viewed, file: FileRow, windows: WindowTable, own: np.ndarray[Any, Any]) -> Stitched:
    """From windows of the file itself, where each is shown first."""
    firsts = own[(windows.variant[own] == 0) & (windows.repeat[own] == 0)]
    shown: list[tuple[ShownWindow, int]] = []
    end = num_tokens = 0
    for number in firsts[np.argsort(windows.start[firsts], kind="stable")].tolist():
        if num_tokens >= MOST_TOKENS:
            break
        split, row = viewed.dataset.numbering.place(int(windows.row[number]))
        one = _window_of(viewed, file, split, row, int(windows.start[number]))
        shown.append((one, row))
        num_tokens += max(0, one.window.end - max(end, one.window.start))
        end = max(end, one.window.end)
    return _joined(viewed, shown, file)


def _joined(viewed: Viewed, shown: list[tuple[ShownWindow, int]], file: FileRow) -> Stitched:
    """`shown`: windows by where they begin, each with its row."""
    stretches = join_windows(viewed.dataset, [one for one, _ in shown])
    if stretches is None:
        raise DatasetError(f"two windows of {file.name} contradict each other. `gristmill check` tells more.")
    stitched, end = Stitched([], [], []), 0
    for stretch in stretches:
        if stretch.start > end:
            stitched.gaps.append((len(stitched.ids), stretch.start - end))
        end = stretch.end
        stitched.edges.extend(
            (len(stitched.ids) + one.window.start - stretch.start, row)
            for one, row in shown
            if stretch.start <= one.window.start < stretch.end
        )
        stitched.ids.extend(stretch.ids.tolist())
    return stitched


def _window_of(viewed: Viewed, file: FileRow, split: Split, row: int, start: int) -> ShownWindow:
    read = read_row(viewed.dataset, split, row)
    for window in read.windows:
        if (window.file, window.start, window.variant, window.repeat) == (file.key, start, "", 0):
            return read.shown(window)
    raise DatasetError(f"row {split}:{row} is not what it was when the index was made. Start the viewer again.")


def _note(viewed: Viewed, file: FileRow, stitched: Stitched, num_windows: int) -> str | None:
    notes = []
    if file.status == "kept" and len(stitched.ids) >= MOST_TOKENS < (file.tokens or 0):
        notes.append(f"Of its text the first {counted(len(stitched.ids), 'token')} are shown.")
    elif stitched.gaps:
        notes.append("Tokens that are in no window are left out: they were cut, or not drawn.")
    if num_windows > MOST_WINDOWS:
        notes.append(f"Of its {counted(num_windows, 'window')} the first {MOST_WINDOWS:,} are listed.")
    if stitched.ids and not viewed.dataset.tokenizer.gives_text_back:
        notes.append("The tokenizer does not give the text back exactly.")
    return " ".join(notes) or None


ROWS_AT_ONCE, MOST_ROWS = 50, 200
FILES_AT_ONCE, MOST_FILES = 100, 500
MAX_TEXT = 200
FILE_COLUMNS = ("repo", "path", "reason", "detail", "twin", "language", "bytes")

Answer = dict[str, Any] | Found | Near

NO_BUILD: dict[str, Any] = {
    "preset": None,
    "overlap": None,
    "languages": [],
    "licenses": [],
    "variants": [],
    "reasons": [],
    "kept": 0,
    "dropped": 0,
}
"""Of rows that no build has made."""


def dataset(viewed: Viewed, _: Query) -> Answer:
    record = viewed.dataset.record
    return {
        "title": path_text(viewed.dataset.folder.resolve().name),
        "fingerprint": record.fingerprint,
        "tokenizer": record.tokenizer.name,
        "window_length": None if record.has_documents else record.window_length,
        "formats": record.formats,
        "splits": {split: facts.windows for split, facts in record.splits.items()},
        **(_build_facts(record) if isinstance(record, Manifest) else NO_BUILD),
        "index": viewed.index.state,
    }


def _build_facts(manifest: Manifest) -> dict[str, Any]:
    counts = manifest.counts
    return {
        "preset": manifest.preset,
        "overlap": manifest.settings["window"].get("overlap"),
        "languages": _by_tokens(manifest),
        "licenses": sorted(counts.licenses, key=lambda name: (-counts.licenses[name], name)),
        "variants": [*([FIM] if manifest.fim is not None else []), *manifest.variants],
        "reasons": [
            {"reason": reason, "told": reason.meaning, "files": files}
            for reason, files in sorted(counts.dropped_by_reason.items(), key=lambda one: (-one[1], one[0]))
        ],
        "kept": counts.kept,
        "dropped": counts.dropped,
    }


def _by_tokens(manifest: Manifest) -> list[str]:
    tokens = {name: sum(counts.values()) for name, counts in manifest.tokens_by_language.items()}
    return sorted(tokens, key=lambda name: (-tokens[name], name))


def windows(viewed: Viewed, query: Query) -> Answer:
    first = query.number("from", 0)
    count = query.number("count", ROWS_AT_ONCE, MOST_ROWS)
    passing = viewed.sieve.passing(Filters.of(query))
    rows = [_listed(viewed, number) for number in passing.page(first, count)]
    return {"total": len(passing), "from": first, "rows": rows}


def _listed(viewed: Viewed, number: int) -> dict[str, Any]:
    split, row = viewed.dataset.numbering.place(number)
    read = read_row(viewed.dataset, split, row)
    first = read.content(read.windows[0])[:TEXT_IDS] if read.windows else read.ids[:0]
    return {
        "split": split,
        "row": row,
        "num_ids": len(read.ids),
        "windows": [_told(viewed, window) for window in read.windows],
        "text": _excerpt(text_of(first, viewed.dataset.tokenizer)),
    }


def _told(viewed: Viewed, window: Window) -> dict[str, Any]:
    return {**msgspec.structs.asdict(window), "license": _license(viewed, window.repo, window.path)}


def _license(viewed: Viewed, repo: str, path: str) -> str | None:
    """As long as nobody knows: None."""
    files = viewed.index.files
    return None if files is None else files.license_of(repo, path)


def _excerpt(text: str) -> str:
    """Its start, with nothing in it but line feeds and tabs that cannot be seen."""
    lines = text[:MAX_TEXT].replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def row(viewed: Viewed, query: Query) -> Answer:
    filters = Filters.of(query)
    if filters.split is None:
        raise bad_request("split is missing.")
    number = query.number("row")
    look = look_at(viewed.dataset, filters.split, number)
    try:
        passing = viewed.sieve.passing(filters)
    except NotIndexedError:
        passing = viewed.sieve.passing(Filters(split=filters.split))
    return {
        "look": look,
        "licenses": [_license(viewed, window.repo, window.path) for window in look.windows],
        "have_lines": [has_lines(window) for window in look.windows],
        **_neighbours(viewed, passing, filters.split, number),
    }


def _neighbours(viewed: Viewed, passing: Passing, split: Split, number: int) -> dict[str, Any]:
    numbering = viewed.dataset.numbering
    found = passing.neighbours(numbering.number(split, number))
    places = [None if one is None else dict(zip(("split", "row"), numbering.place(one), strict=True)) for one in found]
    return dict(zip(("previous", "next"), places, strict=True))


def file(viewed: Viewed, query: Query) -> Answer:
    files = files_of(viewed.index)
    repo, path = query.required("repo"), query.required("path")
    number = files.number_of(repo, path)
    if number is None:
        raise not_found(f"no file {printable(f'{repo}/{path}')} was found when this dataset was built.")
    return file_page(viewed, number)


def files(viewed: Viewed, query: Query) -> Answer:
    table = files_of(viewed.index)
    first = query.number("from", 0)
    count = query.number("count", FILES_AT_ONCE, MOST_FILES)
    masks = [np.ones(len(table), np.bool_)]
    if status := query.choice("status", ("kept", "dropped")):
        masks.append(table.with_status(status))
    if reason := query.choice("reason", list(DropReason)):
        masks.append(table.having("reason", reason))
    if path := query.text("path"):
        masks.append(table.named(path))
    found = np.flatnonzero(np.logical_and.reduce(masks))
    rows = [table.row(number) for number in found[first : first + count].tolist()]
    return {
        "total": len(found),
        "from": first,
        "files": [{name: getattr(row, name) for name in FILE_COLUMNS} for row in rows],
    }


def searched(viewed: Viewed, query: Query) -> Answer:
    after = query.text("after")
    return search(*_search(viewed, query), None if after is None else Cursor.of(after))


def near(viewed: Viewed, query: Query) -> Answer:
    is_back = query.choice("back", ("0", "1")) == "1"
    return search_near(*_search(viewed, query), Cursor.of(query.required("beside")), is_back=is_back)


def _search(viewed: Viewed, query: Query) -> tuple[Scope, Search]:
    wanted = Search(query.required("q"), is_exact=query.choice("case", ("0", "1")) == "1")
    passing = viewed.sieve.passing(Filters.of(query))
    return Scope(viewed.dataset, passing, viewed.index.windows), wanted


ANSWERS: dict[str, Callable[[Viewed, Query], Answer]] = {
    "dataset": dataset,
    "windows": windows,
    "row": row,
    "file": file,
    "files": files,
    "search": searched,
    "near": near,
}
