"""What each address under /api answers: JSON, from the dataset and its index."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from gristmill.core.manifest import Manifest
from gristmill.core.names import path_text, printable
from gristmill.core.records import DropReason, Split
from gristmill.dataset.row_windows import Window, read_row
from gristmill.views.row import look_at
from gristmill.views.row_facts import has_lines
from gristmill.views.viewer.file_page import file_page
from gristmill.views.viewer.filters import Filters, Passing, files_of
from gristmill.views.viewer.opened import Viewed
from gristmill.views.viewer.query import Query, bad_request, not_found
from gristmill.views.viewer.search import Cursor, Found, Near, Scope, Search, search, search_near
from gristmill.views.viewer.viewed_rows import TEXT_IDS, NotIndexedError, text_of

ROWS_AT_ONCE, MOST_ROWS = 50, 200
FILES_AT_ONCE, MOST_FILES = 100, 500
MAX_TEXT = 200
FILE_COLUMNS = ("repo", "path", "reason", "detail", "twin", "language", "bytes")

Answer = dict[str, Any] | Found | Near

NO_BUILD: dict[str, Any] = {
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
        "window_length": record.window_length,
        "formats": record.formats,
        "splits": {split: facts.windows for split, facts in record.splits.items()},
        **(_build_facts(record) if isinstance(record, Manifest) else NO_BUILD),
        "index": viewed.index.state,
    }


def _build_facts(manifest: Manifest) -> dict[str, Any]:
    counts = manifest.counts
    return {
        "overlap": manifest.settings["window"].get("overlap"),
        "languages": _by_tokens(manifest),
        "licenses": sorted(counts.licenses, key=lambda name: (-counts.licenses[name], name)),
        "variants": list(manifest.variants),
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
