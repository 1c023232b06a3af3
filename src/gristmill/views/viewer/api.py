"""The endpoints under /api. Each answers with JSON from the dataset and its index."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text, printable
from gristmill.core.records import DropReason, Split
from gristmill.dataset.row_windows import Window, WindowWithIds, join_windows, read_row
from gristmill.planning.explain import status_text
from gristmill.views.row import has_lines, view_row, view_tokens
from gristmill.views.viewer.current_dataset import LoadedDataset
from gristmill.views.viewer.filters import FIM, Filters, MatchingRows, require_files, require_tables
from gristmill.views.viewer.request import Query, bad_request, not_found
from gristmill.views.viewer.search import Cursor, Matcher, NearestHit, Scope, SearchResult, find_nearest, search
from gristmill.views.viewer.viewer_dataset import EXCERPT_IDS, NotIndexedError, decode_text
from gristmill.views.viewer.window_index import FIM_FORMS, VARIANT_KINDS, WindowTable

MAX_WINDOWS = 5000
MAX_TOKENS = 40_000
"""The text of a file page ends with the window that reaches this number of tokens, so that a browser can draw it. A
file of 150 KB has about as many tokens."""


# The page of one file: its line in files.jsonl, its windows, and its text, which is joined from the windows.


class JoinedText(NamedTuple):
    """The tokens of a file that are in windows. Each token is included once."""

    ids: list[int]
    starts: list[tuple[int, int, int]]
    """For each window: the index in `ids` of its first token, the index of its row in the split, and its first line."""
    gaps: list[tuple[int, int]]
    """For each gap: the index in `ids` of the token after the gap, and the number of missing tokens."""


def file_page(loaded: LoadedDataset, number: int) -> dict[str, Any]:
    """Return the facts, windows and text of one file."""
    files, windows = require_tables(loaded.index)
    row = files.row(number)
    window_indexes = np.flatnonzero(windows.file == number)
    joined = _joined_text(loaded, row, windows, window_indexes)
    tokens, strokes = view_tokens(joined.ids, loaded.dataset.tokenizer, row.language or "", row.path)
    commits = {source.repo: source.commit for source in loaded.dataset.manifest.sources}
    return {
        "file": row,
        "commit": commits.get(row.repo),
        "status_text": status_text(row),
        "windows": [_indexed_window(loaded, windows, index) for index in window_indexes[:MAX_WINDOWS].tolist()],
        "tokens": tokens,
        "strokes": strokes,
        "starts": joined.starts,
        "gaps": joined.gaps,
        "num_tokens_left_out": max((row.tokens or 0) - len(joined.ids), 0) if row.status == "kept" else 0,
        "note": _note(loaded, row, joined, len(window_indexes)),
    }


def _indexed_window(loaded: LoadedDataset, windows: WindowTable, index: int) -> dict[str, Any]:
    split, row = loaded.dataset.row_numbers.split_and_row(int(windows.row[index]))
    numbers = {name: int(getattr(windows, name)[index]) for name in ("start", "fresh", "num_ids", "repeat")}
    lines = int(windows.first_line[index]), int(windows.last_line[index])
    return {
        "split": split,
        "row": row,
        "lines": lines,
        "variant": VARIANT_KINDS[windows.variant[index]],
        "fim": FIM_FORMS[windows.form[index]],
        **numbers,
    }


def _joined_text(
    loaded: LoadedDataset, file: FileRow, windows: WindowTable, window_indexes: np.ndarray[Any, Any]
) -> JoinedText:
    """Join the windows of a file until MAX_TOKENS is reached. Skip windows of variants and repeated windows."""
    originals = window_indexes[(windows.variant[window_indexes] == 0) & (windows.repeat[window_indexes] == 0)]
    read: list[tuple[WindowWithIds, int, int]] = []
    end = num_tokens = 0
    for index in originals[np.argsort(windows.start[originals], kind="stable")].tolist():
        if num_tokens >= MAX_TOKENS:
            break
        split, row = loaded.dataset.row_numbers.split_and_row(int(windows.row[index]))
        one = _read_window(loaded, file, split, row, int(windows.start[index]))
        read.append((one, row, int(windows.first_line[index])))
        num_tokens += max(0, one.window.end - max(end, one.window.start))
        end = max(end, one.window.end)
    return _join(loaded, read, file)


def _join(loaded: LoadedDataset, windows: list[tuple[WindowWithIds, int, int]], file: FileRow) -> JoinedText:
    """Join windows, which are sorted by start. Each window is given with the index of its row and its first line."""
    spans = join_windows(loaded.dataset, [one for one, _, _ in windows])
    if spans is None:
        raise DatasetError(
            f"two windows of {file.name} have different tokens at the same position. "
            "Run gristmill check DIR for details."
        )
    joined, end = JoinedText([], [], []), 0
    for span in spans:
        if span.start > end:
            joined.gaps.append((len(joined.ids), span.start - end))
        end = span.end
        joined.starts.extend(
            (len(joined.ids) + one.window.start - span.start, row, line)
            for one, row, line in windows
            if span.start <= one.window.start < span.end
        )
        joined.ids.extend(span.ids.tolist())
    return joined


def _read_window(loaded: LoadedDataset, file: FileRow, split: Split, row: int, start: int) -> WindowWithIds:
    read = read_row(loaded.dataset, split, row)
    for window in read.windows:
        if (window.file, window.start, window.variant, window.repeat) == (file.key, start, "", 0):
            return read.with_ids(window)
    raise DatasetError(f"row {split}:{row} has changed since the index was built. Restart the viewer.")


def _note(loaded: LoadedDataset, file: FileRow, joined: JoinedText, num_windows: int) -> str | None:
    notes = []
    if file.status == "kept" and len(joined.ids) >= MAX_TOKENS < (file.tokens or 0):
        notes.append(f"Only the first {counted(len(joined.ids), 'token')} of the text are displayed.")
    elif joined.gaps:
        notes.append("Tokens that are in no row are not displayed. The build cut them or did not sample them.")
    if num_windows > MAX_WINDOWS:
        notes.append(f"Only the first {MAX_WINDOWS:,} of {counted(num_windows, 'window')} are listed.")
    if joined.ids and not loaded.dataset.tokenizer.decodes_exactly:
        notes.append("The tokenizer is not lossless, so the text may differ from the file.")
    return " ".join(notes) or None


DEFAULT_ROWS, MAX_ROWS = 50, 200
DEFAULT_FILES, MAX_FILES = 100, 500
MAX_EXCERPT = 200
FILE_COLUMNS = ("repo", "path", "reason", "detail", "twin", "language", "bytes")

Answer = dict[str, Any] | SearchResult | NearestHit

NO_BUILD_FACTS: dict[str, Any] = {
    "preset": None,
    "overlap": None,
    "languages": [],
    "licenses": [],
    "variants": [],
    "reasons": [],
    "kept": 0,
    "dropped": 0,
}
"""Values of the build facts for a dataset that `gristmill build` did not make."""


def dataset(loaded: LoadedDataset, _: Query) -> Answer:
    """Return the facts of the dataset, the choices for filters, and the state of the index."""
    record = loaded.dataset.record
    return {
        "title": path_text(loaded.dataset.folder.resolve().name),
        "fingerprint": record.fingerprint,
        "tokenizer": record.tokenizer.name,
        "window_length": None if record.has_documents else record.window_length,
        "formats": record.formats,
        "splits": {split: facts.windows for split, facts in record.splits.items()},
        **(_build_facts(record) if isinstance(record, Manifest) else NO_BUILD_FACTS),
        "index": loaded.index.state,
    }


def _build_facts(manifest: Manifest) -> dict[str, Any]:
    counts = manifest.counts
    return {
        "preset": manifest.preset,
        "overlap": manifest.settings["window"].get("overlap"),
        "languages": _languages_by_tokens(manifest),
        "licenses": sorted(counts.licenses, key=lambda name: (-counts.licenses[name], name)),
        "variants": [*([FIM] if manifest.fim is not None else []), *manifest.variants],
        "reasons": [
            {"reason": reason, "meaning": reason.meaning, "files": files}
            for reason, files in sorted(counts.dropped_by_reason.items(), key=lambda one: (-one[1], one[0]))
        ],
        "kept": counts.kept,
        "dropped": counts.dropped,
    }


def _languages_by_tokens(manifest: Manifest) -> list[str]:
    tokens = {name: sum(counts.values()) for name, counts in manifest.tokens_by_language.items()}
    return sorted(tokens, key=lambda name: (-tokens[name], name))


def windows(loaded: LoadedDataset, query: Query) -> Answer:
    """Return a page of the rows that match the filters."""
    first = query.number("from", 0)
    count = query.number("count", DEFAULT_ROWS, MAX_ROWS)
    matching = loaded.filter_cache.apply(Filters.from_query(query))
    rows = [_listed_row(loaded, number) for number in matching.page(first, count)]
    return {"total": len(matching), "from": first, "rows": rows}


def _listed_row(loaded: LoadedDataset, number: int) -> dict[str, Any]:
    split, row = loaded.dataset.row_numbers.split_and_row(number)
    read = read_row(loaded.dataset, split, row)
    first = read.content(read.windows[0])[:EXCERPT_IDS] if read.windows else read.ids[:0]
    return {
        "split": split,
        "row": row,
        "num_ids": len(read.ids),
        "windows": [_listed_window(loaded, window) for window in read.windows],
        "text": _excerpt(decode_text(first, loaded.dataset.tokenizer, f"{split}:{row}")),
    }


def _listed_window(loaded: LoadedDataset, window: Window) -> dict[str, Any]:
    return {**msgspec.structs.asdict(window), "license": _license(loaded, window.repo, window.path)}


def _license(loaded: LoadedDataset, repo: str, path: str) -> str | None:
    """Return the license of a file, or None if the file has none or while files.jsonl is not indexed."""
    files = loaded.index.files
    return None if files is None else files.license_of(repo, path)


def _excerpt(text: str) -> str:
    """Return the start of a text. Unprintable characters are escaped, except line feeds and tabs."""
    lines = text[:MAX_EXCERPT].replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def row(loaded: LoadedDataset, query: Query) -> Answer:
    """Return one row prepared for display, and its neighbors among the rows that match the filters.

    Until the index is built, only the filter by split applies.
    """
    filters = Filters.from_query(query)
    if filters.split is None:
        raise bad_request("split is missing.")
    number = query.number("row")
    view = view_row(loaded.dataset, filters.split, number)
    try:
        matching = loaded.filter_cache.apply(filters)
    except NotIndexedError:
        matching = loaded.filter_cache.apply(Filters(split=filters.split))
    return {
        "view": view,
        "licenses": [_license(loaded, window.repo, window.path) for window in view.windows],
        "have_lines": [has_lines(window) for window in view.windows],
        **_neighbors(loaded, matching, filters.split, number),
    }


def _neighbors(loaded: LoadedDataset, matching: MatchingRows, split: Split, row: int) -> dict[str, Any]:
    row_numbers = loaded.dataset.row_numbers
    numbers = matching.neighbors(row_numbers.number(split, row))
    rows = [
        None if one is None else dict(zip(("split", "row"), row_numbers.split_and_row(one), strict=True))
        for one in numbers
    ]
    return dict(zip(("previous", "next"), rows, strict=True))


def file(loaded: LoadedDataset, query: Query) -> Answer:
    """Return the page of the file with a given name."""
    files = require_files(loaded.index)
    repo, path = query.required("repo"), query.required("path")
    number = files.find(repo, path)
    if number is None:
        raise not_found(f"the build of this dataset found no file {printable(f'{repo}/{path}')}.")
    return file_page(loaded, number)


def files(loaded: LoadedDataset, query: Query) -> Answer:
    """Return a page of files, filtered by status, drop reason and path."""
    table = require_files(loaded.index)
    first = query.number("from", 0)
    count = query.number("count", DEFAULT_FILES, MAX_FILES)
    masks = [np.ones(len(table), np.bool_)]
    if status := query.choice("status", ("kept", "dropped")):
        masks.append(table.with_status(status))
    if reason := query.choice("reason", list(DropReason)):
        masks.append(table.with_value("reason", reason))
    if path := query.text("path"):
        masks.append(table.with_name(path))
    found = np.flatnonzero(np.logical_and.reduce(masks))
    rows = [table.row(number) for number in found[first : first + count].tolist()]
    return {
        "total": len(found),
        "from": first,
        "files": [{name: getattr(row, name) for name in FILE_COLUMNS} for row in rows],
    }


def search_rows(loaded: LoadedDataset, query: Query) -> Answer:
    """Search for a text in the rows that match the filters."""
    after = query.text("after")
    return search(*_search_arguments(loaded, query), None if after is None else Cursor.parse(after))


def nearest(loaded: LoadedDataset, query: Query) -> Answer:
    """Find the next or previous row with a hit."""
    is_back = query.choice("back", ("0", "1")) == "1"
    return find_nearest(*_search_arguments(loaded, query), Cursor.parse(query.required("cursor")), is_back=is_back)


def _search_arguments(loaded: LoadedDataset, query: Query) -> tuple[Scope, Matcher]:
    matcher = Matcher(query.required("q"), is_exact=query.choice("case", ("0", "1")) == "1")
    matching = loaded.filter_cache.apply(Filters.from_query(query))
    return Scope(loaded.dataset, matching, loaded.index.windows), matcher


ENDPOINTS: dict[str, Callable[[LoadedDataset, Query], Answer]] = {
    "dataset": dataset,
    "windows": windows,
    "row": row,
    "file": file,
    "files": files,
    "search": search_rows,
    "nearest": nearest,
}
