"""Report sections on tokens by language, license and folder, and on the contents of windows."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gristmill.core.names import counted, counted_units
from gristmill.core.records import Split
from gristmill.views.charts import Bars, Figure, Series, Tick, Treemap, compact_number, hover_text, label
from gristmill.views.html import paragraph
from gristmill.views.numbers import value_text
from gristmill.views.report.facts import Facts, Folder, Histogram, Redundancy, Share
from gristmill.views.report.page import Section, join_words, share_text, short_number
from gristmill.views.table import Cell, Table

# Tokens by language, license and folder.

MAX_BARS = 12
MAX_NAMED = 3
ALL_SOURCES_ID = "all"
"""Id of the box around all sources. Ids of other boxes begin with a digit."""
SPLIT_STYLES = {Split.TRAIN: 1, Split.VALIDATION: 0, Split.TEST: 2}
"""Index of the color and pattern of each split, the same in all charts."""


class _Box(NamedTuple):
    id: str
    parent: str
    name: str
    full_name: str
    files: int
    tokens: int


def tokens_section(facts: Facts) -> Section:
    """Return the section on tokens. A token in several windows is counted once."""
    summary = (
        f"{short_number(facts.tokens)} tokens from {counted(facts.kept, 'file')} in "
        f"{counted(len(facts.languages), 'language')}. A token in several windows is counted once."
    )
    figures = [
        *([_shares_figure("languages", "Tokens by language", "language", facts.languages)] if facts.languages else []),
        *([_shares_figure("licenses", "Tokens by license", "license", facts.licenses)] if facts.licenses else []),
        *([_folders_figure(facts)] if facts.folders else []),
    ]
    empty = [paragraph("The dataset has no tokens.")] if not figures else []
    return Section("tokens", "Tokens", summary, figures, empty)


def total(share: Share) -> int:
    return sum(share.tokens.values())


def _shares_figure(name: str, title: str, header: str, shares: list[Share]) -> Figure:
    all_tokens = sum(map(total, shares))
    largest = [f"{one.name} has {share_text(total(one), all_tokens)}" for one in shares[:MAX_NAMED]]
    drawn = _merge_small(shares)
    return Figure(
        name,
        title,
        f"{join_words(largest)} of the tokens.",
        Bars(
            labels=[label(one.name) for one in drawn],
            series=[_series(split, drawn, all_tokens) for split in splits_of(shares)],
            totals=[label(share_text(total(one), all_tokens)) for one in drawn],
            is_stacked=True,
            axis="tokens",
        ),
        shares_table(title, header, shares),
    )


def splits_of(shares: list[Share]) -> list[Split]:
    return [split for split in Split if any(one.tokens.get(split) for one in shares)]


def _merge_small(shares: list[Share]) -> list[Share]:
    """Return the largest shares, with all other shares merged into one."""
    if len(shares) <= MAX_BARS:
        return shares
    others = shares[MAX_BARS - 1 :]
    tokens = {split: sum(one.tokens.get(split, 0) for one in others) for split in Split}
    name = counted(len(others), "other")
    return [*shares[: MAX_BARS - 1], Share(name=name, files=sum(one.files for one in others), tokens=tokens)]


def _series(split: Split, shares: list[Share], all_tokens: int) -> Series:
    return Series(
        name=str(split),
        values=[one.tokens.get(split, 0) for one in shares],
        hints=[
            hover_text(
                one.name,
                f"{split}: {counted(one.tokens.get(split, 0), 'token')}",
                f"total: {total(one):,} ({share_text(total(one), all_tokens)}), {counted(one.files, 'file')}",
            )
            for one in shares
        ],
        style=SPLIT_STYLES[split],
    )


def shares_table(title: str, header: str, shares: list[Share]) -> Table:
    """Return a table of shares. `header` is the header of the column with their names."""
    splits = splits_of(shares)
    all_tokens = sum(map(total, shares))
    has_files = any(one.files for one in shares)
    rows: list[list[Cell]] = [
        [
            *([one.name, one.files] if has_files else [one.name]),
            *(total(one), share_text(total(one), all_tokens)),
            *(one.tokens.get(split, 0) for split in splits),
        ]
        for one in shares
    ]
    headers = [header, *(["files"] if has_files else []), "tokens", "share", *map(str, splits)]
    return Table(title, headers, rows)


def _folders_figure(facts: Facts) -> Figure:
    left_out = facts.num_folders_left_out
    caption = (
        "The area of a folder is proportional to its number of tokens. Click a folder to open it. Click the path at "
        "the top to go back."
    )
    caption += f" Small or deep folders without a box of their own: {left_out:,}." if left_out else ""
    return Figure("folders", "Tokens by folder", caption, _treemap(facts.folders), _folders_table(facts), is_wide=True)


def _treemap(folders: list[Folder]) -> Treemap:
    boxes = list(_boxes(folders))
    return Treemap(
        labels=[label(box.name) for box in boxes],
        ids=[box.id for box in boxes],
        parents=[box.parent for box in boxes],
        values=[box.tokens for box in boxes],
        texts=[compact_number(box.tokens) for box in boxes],
        hints=[
            hover_text(box.full_name, f"{counted(box.tokens, 'token')} in {counted(box.files, 'file')}")
            for box in boxes
        ],
    )


def _boxes(folders: list[Folder]) -> Iterator[_Box]:
    """Yield a box for each folder. In a folder with inner boxes, yield another box for all files outside these boxes.

    If there are several sources, also yield a box around all sources, so that users can click back from one source to
    all of them.
    """
    numbers = {folder.id: str(number) for number, folder in enumerate(folders)}
    sources = [folder for folder in folders if not folder.parent]
    if len(sources) > 1:
        files, tokens = sum(one.files for one in sources), sum(one.tokens for one in sources)
        yield _Box(ALL_SOURCES_ID, "", "all sources", "all sources", files, tokens)
    inner: dict[str, list[Folder]] = {}
    for folder in folders:
        inner.setdefault(folder.parent, []).append(folder)
    for folder in folders:
        number = numbers[folder.id]
        parent = numbers.get(folder.parent, ALL_SOURCES_ID if len(sources) > 1 else "")
        yield _Box(number, parent, folder.name, folder.id, folder.files, folder.tokens)
        files, tokens = (
            getattr(folder, name) - sum(getattr(one, name) for one in inner.get(folder.id, []))
            for name in ("files", "tokens")
        )
        if inner.get(folder.id) and tokens > 0:
            yield _Box(f"{number}-files", number, "other files", f"{folder.id}: other files", files, tokens)


def _folders_table(facts: Facts) -> Table:
    rows: list[list[Cell]] = [
        [folder.id, folder.files, folder.tokens, share_text(folder.tokens, facts.tokens)] for folder in facts.folders
    ]
    return Table("Tokens by folder", ["folder", "files", "tokens", "share"], rows)


MAX_TICK_INTERVALS = 5
"""Maximum number of intervals between the ticks of an axis."""
NEARLY_FULL = 0.995
PARTS = {
    "fresh": "text in no earlier window",
    "overlap": "overlap with the previous window",
    "repeats": "repeated windows",
    "variants": "variants",
    "special": "special tokens",
    "padding": "padding",
}
"""Labels keyed by field of Redundancy."""
PACKED_PARTS = {**PARTS, "special": "special tokens and file names", "padding": "unused space"}
PART_STYLES = (1, 0, 3, 2, 4, 5)


def windows_section(facts: Facts) -> Section:
    overlap = f" Neighboring windows overlap by {counted(facts.overlap, 'token')}." if facts.overlap else ""
    summary = f"A row has at most {facts.window_length:,} ids.{overlap}"
    if facts.has_documents:
        summary = "A row is the text of a file, or of one part of a file from which spans were cut."
    if facts.num_tail_tokens:
        tail = counted(facts.num_tail_tokens, "token")
        summary += f" Not in any window: {tail} at the ends of files (too few for a window)."
    figures = [
        *([_fill_figure(facts.fill)] if _num_counted(facts.fill) else []),
        *([_lengths_figure(facts.lengths)] if _num_counted(facts.lengths) else []),
        *([_redundancy_figure(facts)] if any(map(_num_ids, facts.redundancy)) else []),
    ]
    empty = [paragraph("The dataset has no windows.")] if not figures else []
    return Section("windows", "Rows" if facts.has_documents else "Windows", summary, figures, empty)


def row_unit(facts: Facts) -> str:
    """Return the unit of row lengths, `tokens` or `ids`."""
    return "tokens" if facts.has_documents else "ids"


def _fill_figure(fill: Histogram) -> Figure:
    edges = [f"{edge:.0%}" for edge in fill.edges]
    caption = f"{_fill_text(fill)}. On average, rows are {fill.mean:.1%} full."
    table = _histogram_table("Row fill", "filled share", fill, edges)
    return Figure("fill", "Row fill", caption, _bars(fill, edges, "rows", "filled share"), table)


def _fill_text(fill: Histogram) -> str:
    """Describe the fill of rows by the median, or by the share of full rows if most rows are full."""
    if fill.median <= NEARLY_FULL:
        return f"Half of the rows are at least {fill.median:.0%} full"
    num_full = sum(counts[-1] for counts in fill.counts.values())
    return f"{share_text(num_full, _num_counted(fill))} of the rows are at least {fill.edges[-2]:.0%} full"


def _lengths_figure(lengths: Histogram) -> Figure:
    edges = [compact_number(edge) for edge in lengths.edges]
    caption = (
        f"Half of the files have at least {counted_units(value_text(round(lengths.median)), 'tokens')}. The average is "
        f"{value_text(round(lengths.mean))}, the maximum {value_text(round(lengths.largest))}."
    )
    exact = [value_text(round(edge)) for edge in lengths.edges]
    table = _histogram_table("File length", "tokens", lengths, exact)
    return Figure("lengths", "File length", caption, _bars(lengths, edges, "files", "tokens per file"), table)


def _bars(histogram: Histogram, edges: Sequence[str], unit: str, axis: str) -> Bars:
    intervals = [f"{low} to {high}" for low, high in pairwise(edges)]
    return Bars(
        labels=[label(interval) for interval in intervals],
        series=[
            Series(
                name=str(split),
                values=list(counts),
                hints=[
                    hover_text(f"{axis}: {interval}", f"{split}: {counted_units(count, unit)}")
                    for interval, count in zip(intervals, counts, strict=True)
                ],
                style=SPLIT_STYLES[split],
            )
            for split, counts in histogram.counts.items()
            if any(counts)
        ],
        is_stacked=True,
        is_upright=True,
        ticks=edge_ticks(edges),
        axis=unit,
        places_axis=axis,
    )


def edge_ticks(edges: Sequence[str]) -> list[Tick]:
    """Return ticks at the edges of bars. Bar 0 is centered on 0, so its edges are at -0.5 and 0.5."""
    step = math.ceil((len(edges) - 1) / MAX_TICK_INTERVALS) or 1
    return [Tick(at=number - 0.5, text=label(edges[number])) for number in range(0, len(edges), step)]


def _histogram_table(title: str, header: str, histogram: Histogram, edges: Sequence[str]) -> Table:
    splits = list(histogram.counts)
    rows: list[list[Cell]] = [
        [f"{low} to {high}", *(histogram.counts[split][number] for split in splits)]
        for number, (low, high) in enumerate(pairwise(edges))
    ]
    return Table(title, [header, *map(str, splits)], rows)


def _num_counted(histogram: Histogram) -> int:
    return sum(map(sum, histogram.counts.values()))


def _redundancy_figure(facts: Facts) -> Figure:
    """Return the figure on redundancy. With packing, it includes the unused space of the rows."""
    names, unit = (PACKED_PARTS, "space") if facts.is_packed else (PARTS, row_unit(facts))
    lines = [line for line in facts.redundancy if _num_ids(line)]
    train = next((line for line in lines if line.split is Split.TRAIN), lines[0])
    caption = (
        f"In {train.split}, text in no earlier window makes up {share_text(train.fresh, _num_ids(train))} of the "
        f"{unit}. Text that is also in the previous window makes up {share_text(train.overlap, _num_ids(train))}."
    )
    chart = Bars(
        labels=[label(str(line.split)) for line in lines],
        series=[
            _part_series(part, names[part], lines, style)
            for part, style in zip(PARTS, PART_STYLES, strict=True)
            if any(getattr(line, part) for line in lines)
        ],
        is_stacked=True,
        is_share=True,
        axis=f"share of {unit}",
    )
    table = _redundancy_table(lines, names, f"{unit.capitalize()} in the rows")
    return Figure("redundancy", "Redundancy", caption, chart, table, is_wide=True)


def _num_ids(line: Redundancy) -> int:
    return sum(getattr(line, part) for part in PARTS)


def _part_series(part: str, name: str, lines: list[Redundancy], style: int) -> Series:
    counts = [getattr(line, part) for line in lines]
    totals = list(map(_num_ids, lines))
    return Series(
        name=name,
        values=[count / total for count, total in zip(counts, totals, strict=True)],
        hints=[
            hover_text(f"{line.split}: {name}", f"{counted(count, 'id')} ({share_text(count, total)})")
            for line, count, total in zip(lines, counts, totals, strict=True)
        ],
        style=style,
    )


def _redundancy_table(lines: list[Redundancy], names: dict[str, str], title: str) -> Table:
    rows: list[list[Cell]] = [
        [str(line.split), *(getattr(line, part) for part in PARTS), _num_ids(line)] for line in lines
    ]
    return Table(title, ["split", *names.values(), "total"], rows)
