"""The first section of a report of two datasets: what is not the same, in words, charts and tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.core.names import counted, counted_units
from gristmill.core.progress import Progress
from gristmill.planning.diff import diff
from gristmill.planning.diff_result import FILE_KINDS, Difference, FileChange, Step, ValueChange
from gristmill.views.charts import Bars, Figure, Series, hint, label
from gristmill.views.html import folded, name_html, scrolling_table
from gristmill.views.report.facts import Facts, Histogram
from gristmill.views.report.file_sections import told_reason
from gristmill.views.report.gather import gather
from gristmill.views.report.page import Section
from gristmill.views.report.token_sections import edge_ticks, total
from gristmill.views.table import Cell, Table

BEFORE, AFTER = "before", "after"
STYLES = {BEFORE: 0, AFTER: 1}
MOST_BARS = 12
OTHER_TOKENS = "Each has a tokenizer of its own, so that their numbers of tokens do not compare."


def compared_section(before: Path, after: Path, new: Facts, progress: Progress | None) -> Section:
    difference = diff(before, after)
    return section_of(difference, gather(before, (), progress, compares_twins=False), new)


def section_of(difference: Difference, old: Facts, new: Facts) -> Section:
    return Section(
        "compared",
        f"Compared with {old.title}" if old.title != new.title else f"Compared with an earlier {old.title}",
        _told(difference),
        [
            *(figure for measure in MEASURES if (figure := _counted(measure, old, new)).table.rows),
            _fill(old.fill, new.fill),
        ],
        [*_files(difference), *_values(difference)],
    )


def _told(difference: Difference) -> str:
    if difference.is_same:
        return "The rows are the same, however they are written."
    counts = [f"{one.count:,} {kind.replace('_', ' ')}" for kind, one in difference.files.items() if one.count]
    files = f" Files: {', '.join(counts)}." if counts else ""
    step = "no new version" if difference.step is Step.NONE else f"a {difference.step.upper()} version"
    told = f"The rows are not the same.{files} It asks for {step}: {difference.why}."
    has_other_tokens = any(one.name == "sha256" for one in difference.tokenizer)
    return f"{told} {OTHER_TOKENS}" if has_other_tokens else told


class _Measure(NamedTuple):
    id: str
    title: str
    unit: str
    counts_of: Callable[[Facts], Mapping[str, int]]


MEASURES = (
    _Measure("rows", "Rows per split", "rows", lambda of: {one.split: one.windows for one in of.splits}),
    _Measure("tokens", "Tokens per split", "tokens", lambda of: {one.split: one.tokens for one in of.splits}),
    _Measure("languages", "Tokens per language", "tokens", lambda of: {one.name: total(one) for one in of.languages}),
    _Measure("reasons", "Files dropped", "files", lambda of: {told_reason(one): one.files for one in of.reasons}),
)


def _counted(measure: _Measure, old: Facts, new: Facts) -> Figure:
    sides = {BEFORE: measure.counts_of(old), AFTER: measure.counts_of(new)}
    places = list(dict.fromkeys((*sides[AFTER], *sides[BEFORE])))
    rows: list[list[Cell]] = [
        [str(place), *(side.get(place, 0) for side in sides.values()), _change(sides, place)] for place in places
    ]
    series = [_side(name, counts, places[:MOST_BARS], measure.unit) for name, counts in sides.items()]
    all_before, all_after = (sum(counts.values()) for counts in sides.values())
    return Figure(
        f"compared-{measure.id}",
        measure.title,
        f"{all_before:,} before, {all_after:,} after.",
        Bars(labels=[label(str(place)) for place in places[:MOST_BARS]], series=series, axis=measure.unit),
        Table(f"{measure.title}, before and after", ["of", BEFORE, AFTER, "change"], rows),
    )


def _side(name: str, counts: Mapping[str, int], places: Sequence[str], unit: str) -> Series:
    texts = [f"{counts.get(place, 0):,}" for place in places]
    return Series(
        name=name,
        values=[counts.get(place, 0) for place in places],
        hints=[hint(f"{place}, {name}", counted_units(text, unit)) for place, text in zip(places, texts, strict=True)],
        texts=texts,
        style=STYLES[name],
    )


def _change(sides: Mapping[str, Mapping[str, int]], place: str) -> str:
    change = sides[AFTER].get(place, 0) - sides[BEFORE].get(place, 0)
    return f"{change:+,}" if change else "0"


def _fill(old: Histogram, new: Histogram) -> Figure:
    """As shares of the rows, since there may be many more in one of them."""
    edges = [f"{edge:.0%}" for edge in new.edges]
    places = [f"{low} to {high}" for low, high in pairwise(edges)]
    sides = {BEFORE: _row_shares(old), AFTER: _row_shares(new)}
    rows: list[list[Cell]] = [
        [place, *(f"{side[number]:.1%}" for side in sides.values())] for number, place in enumerate(places)
    ]
    chart = Bars(
        labels=[label(place) for place in places],
        series=[
            Series(
                name=name,
                values=shares,
                hints=[
                    hint(f"{place} filled, {name}", f"{share:.1%} of the rows")
                    for place, share in zip(places, shares, strict=True)
                ],
                style=STYLES[name],
            )
            for name, shares in sides.items()
        ],
        is_upright=True,
        is_share=True,
        ticks=edge_ticks(edges),
        axis="share of the rows",
        places_axis="filled",
    )
    told = f"On average rows were {old.mean:.1%} full before, and are {new.mean:.1%} full now."
    title = "How full rows were and are"
    return Figure("compared-fill", title, told, chart, Table(title, ["filled", BEFORE, AFTER], rows), is_wide=True)


def _row_shares(fill: Histogram) -> list[float]:
    counts = [sum(column) for column in zip(*fill.counts.values(), strict=True)] or [0] * (len(fill.edges) - 1)
    return [count / max(1, sum(counts)) for count in counts]


def _files(difference: Difference) -> Iterator[str]:
    for kind, changes in difference.files.items():
        if not changes.count:
            continue
        items = [name_html(one.file, _moved(one)) for one in changes.examples]
        left = changes.count - len(changes.examples)
        items += [f"<li>… and {left:,} more: gristmill diff --all names them</li>"] if left else []
        title = f"{counted(changes.count, 'file')} {kind.replace('_', ' ')}: {FILE_KINDS[kind]}"
        yield from folded(title, [f'<ul class="names">{"".join(items)}</ul>'])


def _moved(change: FileChange) -> str:
    if change.before is None or change.after is None or change.before == change.after:
        return change.after or change.before or ""
    return f"{change.before} → {change.after}"


def _values(difference: Difference) -> Iterator[str]:
    changes: Sequence[tuple[str, ValueChange]] = [
        *(("setting", one) for one in difference.settings),
        *(("version", one) for one in difference.versions),
        *(("tokenizer", one) for one in difference.tokenizer),
    ]
    if not changes:
        yield "<p>Settings, versions and tokenizer are the same.</p>"
        return
    rows: list[list[Cell]] = [[kind, one.name, _json(one.before), _json(one.after)] for kind, one in changes]
    yield from scrolling_table(Table("Settings, versions and tokenizer", ["what", "name", BEFORE, AFTER], rows))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
