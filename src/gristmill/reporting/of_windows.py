"""How full windows are, how long files are, and how much of the rows is shown more than once."""

import math
from collections.abc import Sequence
from itertools import pairwise

from gristmill.drawing.numbers import value_text
from gristmill.drawing.table import Cell, Table
from gristmill.naming import counted, counted_units
from gristmill.records import Split
from gristmill.reporting.charts import Bars, Series, Tick, compact, hint, label
from gristmill.reporting.facts import Facts, Histogram, Redundancy
from gristmill.reporting.of_tokens import SPLIT_STYLES
from gristmill.reporting.section import Figure, Section, paragraph, share_text

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
    return Section("windows", "What is in the windows", told, figures, empty)


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
    names, whole = (PACKED_PARTS, "room") if facts.is_packed else (PARTS, "ids")
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
