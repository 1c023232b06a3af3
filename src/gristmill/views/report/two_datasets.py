"""Report section that compares two datasets in text, charts and tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.core.names import counted, counted_units
from gristmill.core.progress import Progress
from gristmill.planning.diff import diff
from gristmill.planning.diff_result import FILE_KINDS, Difference, FileChange, Step, ValueChange
from gristmill.views.charts import Bars, Figure, Series, hover_text, label
from gristmill.views.html import collapsible, list_item_html, scrolling_table
from gristmill.views.report.facts import Facts, Histogram
from gristmill.views.report.file_sections import reason_name
from gristmill.views.report.gather import gather
from gristmill.views.report.page import Section
from gristmill.views.report.token_sections import edge_ticks, total
from gristmill.views.table import Cell, Table

BEFORE, AFTER = "before", "after"
STYLES = {BEFORE: 0, AFTER: 1}
MAX_BARS = 12
TOKENIZERS_DIFFER = "The tokenizers differ, so the numbers of tokens are not comparable."


def comparison_section(before: Path, after: Path, new: Facts, progress: Progress | None) -> Section:
    difference = diff(before, after)
    return section_from_diff(difference, gather(before, (), progress, compares_duplicates=False), new)


def section_from_diff(difference: Difference, old: Facts, new: Facts) -> Section:
    return Section(
        "compared",
        f"Compared with {old.title}" if old.title != new.title else f"Compared with an earlier {old.title}",
        _summary(difference),
        [
            *(figure for measure in MEASURES if (figure := _count_figure(measure, old, new)).table.rows),
            _fill_figure(old.fill, new.fill),
        ],
        [*_files_html(difference), *_values_html(difference)],
    )


def _summary(difference: Difference) -> str:
    if difference.is_same:
        return "The rows are the same. Only their format may differ."
    counts = [f"{FILE_KINDS[kind]} ({one.count:,})" for kind, one in difference.files.items() if one.count]
    files = f" Files: {'; '.join(counts)}." if counts else ""
    step = "no new version" if difference.step is Step.NONE else f"a new {difference.step.upper()} version"
    summary = f"The rows differ.{files} The change requires {step} ({difference.why})."
    tokenizers_differ = any(one.name == "sha256" for one in difference.tokenizer)
    return f"{summary} {TOKENIZERS_DIFFER}" if tokenizers_differ else summary


class _Measure(NamedTuple):
    id: str
    title: str
    unit: str
    counts_by_name: Callable[[Facts], Mapping[str, int]]


MEASURES = (
    _Measure("rows", "Rows per split", "rows", lambda facts: {one.split: one.windows for one in facts.splits}),
    _Measure("tokens", "Tokens per split", "tokens", lambda facts: {one.split: one.tokens for one in facts.splits}),
    _Measure(
        "languages", "Tokens per language", "tokens", lambda facts: {one.name: total(one) for one in facts.languages}
    ),
    _Measure("reasons", "Files dropped", "files", lambda facts: {reason_name(one): one.files for one in facts.reasons}),
)


def _count_figure(measure: _Measure, old: Facts, new: Facts) -> Figure:
    sides = {BEFORE: measure.counts_by_name(old), AFTER: measure.counts_by_name(new)}
    keys = list(dict.fromkeys((*sides[AFTER], *sides[BEFORE])))
    rows: list[list[Cell]] = [
        [str(key), *(side.get(key, 0) for side in sides.values()), _change(sides, key)] for key in keys
    ]
    series = [_side_series(name, counts, keys[:MAX_BARS], measure.unit) for name, counts in sides.items()]
    all_before, all_after = (sum(counts.values()) for counts in sides.values())
    return Figure(
        f"compared-{measure.id}",
        measure.title,
        f"{all_before:,} before, {all_after:,} after.",
        Bars(labels=[label(str(key)) for key in keys[:MAX_BARS]], series=series, axis=measure.unit),
        Table(f"{measure.title}, before and after", ["name", BEFORE, AFTER, "change"], rows),
    )


def _side_series(name: str, counts: Mapping[str, int], keys: Sequence[str], unit: str) -> Series:
    texts = [f"{counts.get(key, 0):,}" for key in keys]
    return Series(
        name=name,
        values=[counts.get(key, 0) for key in keys],
        hints=[hover_text(f"{key}, {name}", counted_units(text, unit)) for key, text in zip(keys, texts, strict=True)],
        texts=texts,
        style=STYLES[name],
    )


def _change(sides: Mapping[str, Mapping[str, int]], key: str) -> str:
    change = sides[AFTER].get(key, 0) - sides[BEFORE].get(key, 0)
    return f"{change:+,}" if change else "0"


def _fill_figure(old: Histogram, new: Histogram) -> Figure:
    """Return the figure on row fill. It compares shares, because the numbers of rows may differ."""
    edges = [f"{edge:.0%}" for edge in new.edges]
    keys = [f"{low} to {high}" for low, high in pairwise(edges)]
    sides = {BEFORE: _row_shares(old), AFTER: _row_shares(new)}
    rows: list[list[Cell]] = [
        [key, *(f"{side[number]:.1%}" for side in sides.values())] for number, key in enumerate(keys)
    ]
    chart = Bars(
        labels=[label(key) for key in keys],
        series=[
            Series(
                name=name,
                values=shares,
                hints=[
                    hover_text(f"{key} filled, {name}", f"{share:.1%} of the rows")
                    for key, share in zip(keys, shares, strict=True)
                ],
                style=STYLES[name],
            )
            for name, shares in sides.items()
        ],
        is_upright=True,
        is_share=True,
        ticks=edge_ticks(edges),
        axis="share of rows",
        places_axis="filled share",
    )
    caption = f"On average, rows were {old.mean:.1%} full before and are {new.mean:.1%} full after."
    title = "Row fill"
    return Figure(
        "compared-fill", title, caption, chart, Table(title, ["filled share", BEFORE, AFTER], rows), is_wide=True
    )


def _row_shares(fill: Histogram) -> list[float]:
    counts = [sum(column) for column in zip(*fill.counts.values(), strict=True)] or [0] * (len(fill.edges) - 1)
    return [count / max(1, sum(counts)) for count in counts]


def _files_html(difference: Difference) -> Iterator[str]:
    for kind, changes in difference.files.items():
        if not changes.count:
            continue
        items = [list_item_html(one.file, _change_text(one)) for one in changes.examples]
        num_more = changes.count - len(changes.examples)
        items += [f"<li>… and {num_more:,} more, listed by gristmill diff OLD NEW --all</li>"] if num_more else []
        title = f"{counted(changes.count, 'file')}: {FILE_KINDS[kind]}"
        yield from collapsible(title, [f'<ul class="keys">{"".join(items)}</ul>'])


def _change_text(change: FileChange) -> str:
    if change.before is None or change.after is None or change.before == change.after:
        return change.after or change.before or ""
    return f"{change.before} → {change.after}"


def _values_html(difference: Difference) -> Iterator[str]:
    changes: Sequence[tuple[str, ValueChange]] = [
        *(("setting", one) for one in difference.settings),
        *(("version", one) for one in difference.versions),
        *(("tokenizer", one) for one in difference.tokenizer),
    ]
    if not changes:
        yield "<p>Settings, versions and tokenizer are the same.</p>"
        return
    rows: list[list[Cell]] = [[kind, one.name, _json(one.before), _json(one.after)] for kind, one in changes]
    yield from scrolling_table(Table("Settings, versions and tokenizer", ["kind", "name", BEFORE, AFTER], rows))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
