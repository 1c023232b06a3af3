"""How full windows are, how long files are, and how much of the rows is shown more than once."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gristmill.core.names import counted, counted_units
from gristmill.core.records import Split
from gristmill.views.charts import Bars, Figure, Series, Tick, Treemap, compact, hint, label
from gristmill.views.html import paragraph
from gristmill.views.numbers import value_text
from gristmill.views.report.facts import Facts, Folder, Histogram, Redundancy, Share
from gristmill.views.report.page import Section, listed, share_text, short_number
from gristmill.views.table import Cell, Table

# Where the tokens are: by language, by folder, by licence.

MOST_BARS = 12
MOST_TOLD = 3
ALL_SOURCES = "all"
"""The box's id; those of the others begin with a number."""
SPLIT_STYLES = {Split.TRAIN: 1, Split.VALIDATION: 0, Split.TEST: 2}
"""Colour and pattern, the same in all charts."""


class _Box(NamedTuple):
    id: str
    parent: str
    name: str
    told: str
    files: int
    tokens: int


def tokens_section(facts: Facts) -> Section:
    """`tokens` are counted once each, however many windows show them."""
    told = (
        f"{short_number(facts.tokens)} tokens, each counted once, from {counted(facts.kept, 'file')} in "
        f"{counted(len(facts.languages), 'language')}."
    )
    figures = [
        *([_shares("languages", "Tokens by language", "language", facts.languages)] if facts.languages else []),
        *([_shares("licenses", "Tokens by licence", "licence", facts.licenses)] if facts.licenses else []),
        *([_folders(facts)] if facts.folders else []),
    ]
    empty = [paragraph("There are no tokens to tell of.")] if not figures else []
    return Section("tokens", "Where the tokens are", told, figures, empty)


def total(share: Share) -> int:
    return sum(share.tokens.values())


def _shares(name: str, title: str, what: str, shares: list[Share]) -> Figure:
    everything = sum(map(total, shares))
    most = [f"{one.name} has {share_text(total(one), everything)}" for one in shares[:MOST_TOLD]]
    drawn = _with_others(shares)
    return Figure(
        name,
        title,
        f"{listed(most)} of the tokens.",
        Bars(
            labels=[label(one.name) for one in drawn],
            series=[_series(split, drawn, everything) for split in splits_of(shares)],
            totals=[label(share_text(total(one), everything)) for one in drawn],
            is_stacked=True,
            axis="tokens",
        ),
        shares_table(title, what, shares),
    )


def splits_of(shares: list[Share]) -> list[Split]:
    return [split for split in Split if any(one.tokens.get(split) for one in shares)]


def _with_others(shares: list[Share]) -> list[Share]:
    """The largest, and the others as one."""
    if len(shares) <= MOST_BARS:
        return shares
    others = shares[MOST_BARS - 1 :]
    tokens = {split: sum(one.tokens.get(split, 0) for one in others) for split in Split}
    name = counted(len(others), "other")
    return [*shares[: MOST_BARS - 1], Share(name=name, files=sum(one.files for one in others), tokens=tokens)]


def _series(split: Split, shares: list[Share], everything: int) -> Series:
    return Series(
        name=str(split),
        values=[one.tokens.get(split, 0) for one in shares],
        hints=[
            hint(
                one.name,
                f"{split}: {counted(one.tokens.get(split, 0), 'token')}",
                f"in all {total(one):,} ({share_text(total(one), everything)}), {counted(one.files, 'file')}",
            )
            for one in shares
        ],
        style=SPLIT_STYLES[split],
    )


def shares_table(title: str, what: str, shares: list[Share]) -> Table:
    splits = splits_of(shares)
    everything = sum(map(total, shares))
    has_files = any(one.files for one in shares)
    rows: list[list[Cell]] = [
        [
            *([one.name, one.files] if has_files else [one.name]),
            *(total(one), share_text(total(one), everything)),
            *(one.tokens.get(split, 0) for split in splits),
        ]
        for one in shares
    ]
    heads = [what, *(["files"] if has_files else []), "tokens", "share", *map(str, splits)]
    return Table(title, heads, rows)


def _folders(facts: Facts) -> Figure:
    left_out = facts.num_folders_left_out
    told = "A folder's area is its tokens. A click on it looks inside; the line above the drawing leads back."
    told += f" {counted(left_out, 'small folder')} counted in the one above." if left_out else ""
    return Figure("folders", "Tokens by folder", told, _treemap(facts.folders), _folders_table(facts), is_wide=True)


def _treemap(folders: list[Folder]) -> Treemap:
    boxes = list(_boxes(folders))
    return Treemap(
        labels=[label(box.name) for box in boxes],
        ids=[box.id for box in boxes],
        parents=[box.parent for box in boxes],
        values=[box.tokens for box in boxes],
        texts=[compact(box.tokens) for box in boxes],
        hints=[hint(box.told, f"{counted(box.tokens, 'token')} in {counted(box.files, 'file')}") for box in boxes],
    )


def _boxes(folders: list[Folder]) -> Iterator[_Box]:
    """Each folder, and where there are folders in it, what is in it besides them; around several sources one box more.

    Without that box nothing could be seen to click on that leads back from a source to all of them.
    """
    numbers = {folder.id: str(number) for number, folder in enumerate(folders)}
    sources = [folder for folder in folders if not folder.parent]
    if len(sources) > 1:
        files, tokens = sum(one.files for one in sources), sum(one.tokens for one in sources)
        yield _Box(ALL_SOURCES, "", "all sources", "all sources", files, tokens)
    inner: dict[str, list[Folder]] = {}
    for folder in folders:
        inner.setdefault(folder.parent, []).append(folder)
    for folder in folders:
        number = numbers[folder.id]
        parent = numbers.get(folder.parent, ALL_SOURCES if len(sources) > 1 else "")
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


MOST_TICKS = 5
"""And one at the end."""
NEARLY_FULL = 0.995
PARTS = {
    "fresh": "shown for the first time",
    "overlap": "overlap with a neighbouring window",
    "repeats": "windows drawn once more",
    "variants": "variants",
    "special": "special tokens",
    "padding": "padding",
}
"""By field of Redundancy."""
PACKED_PARTS = {**PARTS, "special": "special tokens, and names between files", "padding": "room that is left"}
PART_STYLES = (1, 0, 3, 2, 4, 5)


def windows_section(facts: Facts) -> Section:
    overlap = f", of which neighbours share {facts.overlap:,}" if facts.overlap else ""
    told = f"A row holds {facts.window_length:,} ids at most{overlap}."
    if facts.has_documents:
        told = "A row holds the text of a file, or of a piece of one between two cuts."
    if facts.num_tail_tokens:
        told += (
            f" In no window, as too few are left at the end of their files: {counted(facts.num_tail_tokens, 'token')}."
        )
    figures = [
        *([_fill(facts.fill)] if _num_counted(facts.fill) else []),
        *([_lengths(facts.lengths)] if _num_counted(facts.lengths) else []),
        *([_redundancy(facts)] if any(map(_num_ids, facts.redundancy)) else []),
    ]
    empty = [paragraph("There are no windows to tell of.")] if not figures else []
    return Section("windows", f"What is in the {'rows' if facts.has_documents else 'windows'}", told, figures, empty)


def ids_word(facts: Facts) -> str:
    """Return the word for what rows are counted by."""
    return "tokens" if facts.has_documents else "ids"


def _fill(fill: Histogram) -> Figure:
    edges = [f"{edge:.0%}" for edge in fill.edges]
    told = f"{_fullest(fill)}; on average they are {fill.mean:.1%} full."
    table = _histogram_table("How full rows are", "filled", fill, edges)
    return Figure("fill", "How full rows are", told, _bars(fill, edges, "rows", "filled"), table)


def _fullest(fill: Histogram) -> str:
    """Half of them says little where most are full."""
    if fill.median <= NEARLY_FULL:
        return f"Half of the rows are {fill.median:.0%} full and more"
    num_full = sum(counts[-1] for counts in fill.counts.values())
    return f"{share_text(num_full, _num_counted(fill))} of the rows are {fill.edges[-2]:.0%} full and more"


def _lengths(lengths: Histogram) -> Figure:
    edges = [compact(edge) for edge in lengths.edges]
    told = (
        f"Half of the files have {value_text(round(lengths.median))} tokens and more; on average a file has "
        f"{value_text(round(lengths.mean))}, and the longest {value_text(round(lengths.largest))}."
    )
    exact = [value_text(round(edge)) for edge in lengths.edges]
    table = _histogram_table("How long files are", "tokens", lengths, exact)
    return Figure("lengths", "How long files are", told, _bars(lengths, edges, "files", "tokens in a file"), table)


def _bars(histogram: Histogram, edges: Sequence[str], what: str, axis: str) -> Bars:
    places = [f"{low} to {high}" for low, high in pairwise(edges)]
    return Bars(
        labels=[label(place) for place in places],
        series=[
            Series(
                name=str(split),
                values=list(counts),
                hints=[
                    hint(f"{axis}: {place}", f"{split}: {counted_units(count, what)}")
                    for place, count in zip(places, counts, strict=True)
                ],
                style=SPLIT_STYLES[split],
            )
            for split, counts in histogram.counts.items()
            if any(counts)
        ],
        is_stacked=True,
        is_upright=True,
        ticks=edge_ticks(edges),
        axis=what,
        places_axis=axis,
    )


def edge_ticks(edges: Sequence[str]) -> list[Tick]:
    """A bar stands on its number, so its edges are half a step beside it."""
    step = math.ceil((len(edges) - 1) / MOST_TICKS) or 1
    return [Tick(at=number - 0.5, text=label(edges[number])) for number in range(0, len(edges), step)]


def _histogram_table(title: str, what: str, histogram: Histogram, edges: Sequence[str]) -> Table:
    splits = list(histogram.counts)
    rows: list[list[Cell]] = [
        [f"{low} to {high}", *(histogram.counts[split][number] for split in splits)]
        for number, (low, high) in enumerate(pairwise(edges))
    ]
    return Table(title, [what, *map(str, splits)], rows)


def _num_counted(histogram: Histogram) -> int:
    return sum(map(sum, histogram.counts.values()))


def _redundancy(facts: Facts) -> Figure:
    """Of rows that several windows share, what is left of their room counts too, though no id fills it."""
    names, whole = (PACKED_PARTS, "room") if facts.is_packed else (PARTS, ids_word(facts))
    lines = [line for line in facts.redundancy if _num_ids(line)]
    train = next((line for line in lines if line.split is Split.TRAIN), lines[0])
    told = (
        f"Of the {whole} in {train.split}'s rows, {share_text(train.fresh, _num_ids(train))} are for tokens that are "
        f"shown for the first time, {share_text(train.overlap, _num_ids(train))} for those of a neighbouring window."
    )
    chart = Bars(
        labels=[label(str(line.split)) for line in lines],
        series=[
            _part(part, names[part], lines, style)
            for part, style in zip(PARTS, PART_STYLES, strict=True)
            if any(getattr(line, part) for line in lines)
        ],
        is_stacked=True,
        is_share=True,
        axis=f"share of the {whole}",
    )
    table = _redundancy_table(lines, names, f"{whole.capitalize()} in the rows")
    return Figure("redundancy", "What is shown more than once", told, chart, table, is_wide=True)


def _num_ids(line: Redundancy) -> int:
    return sum(getattr(line, part) for part in PARTS)


def _part(part: str, name: str, lines: list[Redundancy], style: int) -> Series:
    counts = [getattr(line, part) for line in lines]
    totals = list(map(_num_ids, lines))
    return Series(
        name=name,
        values=[count / total for count, total in zip(counts, totals, strict=True)],
        hints=[
            hint(f"{line.split}: {name}", f"{counted(count, 'id')} ({share_text(count, total)})")
            for line, count, total in zip(lines, counts, totals, strict=True)
        ],
        style=style,
    )


def _redundancy_table(lines: list[Redundancy], names: dict[str, str], title: str) -> Table:
    rows: list[list[Cell]] = [
        [str(line.split), *(getattr(line, part) for part in PARTS), _num_ids(line)] for line in lines
    ]
    return Table(title, ["split", *names.values(), "all"], rows)
