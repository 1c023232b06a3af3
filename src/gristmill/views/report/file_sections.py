"""From the files that were found to those that are in the dataset, and why the others are not."""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.views.charts import Bars, Figure, Funnel, count_series, hint, label
from gristmill.views.html import folded, name_html, paragraph, shown
from gristmill.views.report.facts import Cluster, DiffLine, Facts, Reason, Twin
from gristmill.views.report.page import Section, listed, share_text
from gristmill.views.table import Cell, Table

MOST_TOLD = 3


def files_section(facts: Facts) -> Section:
    share = share_text(facts.kept, facts.found)
    told = f"Kept: {facts.kept:,} of {counted(facts.found, 'file')} ({share}), as {_windows_told(facts)}. "
    told += f"Dropped, each for a reason: {facts.dropped:,}." if facts.dropped else "None was dropped."
    told += f" Without a window, as none of theirs was drawn: {facts.num_undrawn:,}." if facts.num_undrawn else ""
    figures = [_funnel(facts), *([_reasons(facts.reasons)] if facts.reasons else [])]
    return Section("files", "From files to windows", told, figures, list(_examples(facts.reasons)))


def _windows_told(facts: Facts) -> str:
    """`755 windows in 641 rows`; or without rows, where each is a window."""
    windows = counted(facts.windows, "window")
    return f"{windows} in {counted(facts.rows, 'row')}" if facts.is_packed else windows


def _funnel(facts: Facts) -> Figure:
    stages = facts.funnel
    return Figure(
        "funnel",
        "What is left after each step",
        f"From the files that were found to those that are kept, shown by {_windows_told(facts)}.",
        Funnel(
            labels=[label(stage.name) for stage in stages],
            values=[stage.files for stage in stages],
            texts=[f"{stage.files:,} ({share_text(stage.files, facts.found)})" for stage in stages],
            hints=[hint(stage.name, counted(stage.files, "file"), stage.note) for stage in stages],
        ),
        _funnel_table(facts),
    )


def _funnel_table(facts: Facts) -> Table:
    rows: list[list[Cell]] = [
        [stage.name, stage.files, share_text(stage.files, facts.found), stage.note] for stage in facts.funnel
    ]
    again = f", {facts.repeated:,} of them once more" if facts.repeated else ""
    varied = f", {facts.varied:,} of them as variants" if facts.varied else ""
    rows.append(["windows", facts.windows, None, f"that show the kept files{again}{varied}"])
    return Table("Files after each step", ["step", "number", "of all files", "on the way to it"], rows)


def _reasons(reasons: list[Reason]) -> Figure:
    names = [told_reason(one) for one in reasons]
    most = [f"{told_reason(one)} ({one.files:,})" for one in reasons[:MOST_TOLD]]
    return Figure(
        "reasons",
        "Why files were dropped",
        f"{'Most are' if len(reasons) > MOST_TOLD else 'These are'}: {listed(most)}.",
        Bars(
            labels=[label(name) for name in names],
            series=[count_series([one.files for one in reasons], names, "files")],
            axis="files",
        ),
        reasons_table(reasons),
    )


def told_reason(reason: Reason) -> str:
    """`near_duplicate` is how a program says it."""
    return reason.reason.replace("_", " ")


def reasons_table(reasons: list[Reason]) -> Table:
    """With their size, where any is known."""
    has_bytes = any(one.bytes for one in reasons)
    rows: list[list[Cell]] = [
        [told_reason(one), one.files, *([_size(one)] if has_bytes else []), one.told] for one in reasons
    ]
    return Table("Drop reasons", ["reason", "files", *(["their size"] if has_bytes else []), "what it means"], rows)


def _size(reason: Reason) -> str | None:
    return size_text(reason.bytes) if reason.bytes else None


def _examples(reasons: list[Reason]) -> Iterator[str]:
    """For each reason a few of the files."""
    if not reasons:
        return
    yield "<h3>Dropped files, by reason</h3>"
    for reason in reasons:
        items = [name_html(one.name, one.detail) for one in reason.examples]
        left = reason.files - len(reason.examples)
        items += [f"<li>… and {left:,} more, each in files.jsonl</li>"] if left > 0 and items else []
        parts = [f"<p>{shown(_sentence(reason.told))}</p>", f'<ul class="names">{"".join(items)}</ul>' if items else ""]
        yield from folded(f"{told_reason(reason)}: {counted(reason.files, 'file')}", parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# Files that are nearly the same: which one stands for the others, and what differs, side by side.

SIGNS = {"": "", "del": "\N{MINUS SIGN}", "ins": "+"}
NO_SIDE = '<td></td><td></td><td class="none"></td>'
COLUMNS = '<colgroup><col class="line"><col class="sign"><col><col class="line"><col class="sign"><col></colgroup>'


def twins_section(facts: Facts) -> Section:
    grouped = f"{counted(facts.num_grouped, 'file')} that are nearly the same as another are kept, in its split."
    if not facts.num_clusters:
        told = grouped if facts.num_grouped else "No file was dropped for being the same as another, or nearly."
        return Section("twins", "Near-duplicates", told)
    alike = "the same as another" if facts.num_grouped else "the same as another, or nearly"
    told = (
        f"{counted(facts.num_clustered, 'file')} are {alike}: "
        f"{counted(facts.num_clusters, 'cluster')}. In a cluster, one file stands for the others."
    )
    told += f" {grouped}" if facts.num_grouped else ""
    more = [part for number, cluster in enumerate(facts.clusters) for part in _cluster(cluster, is_first=not number)]
    left = facts.num_clusters - len(facts.clusters)
    more += [paragraph(f"{counted(left, 'smaller cluster')} not shown here.")] if left > 0 else []
    return Section("twins", "Near-duplicates", told, (), more)


def _cluster(cluster: Cluster, *, is_first: bool) -> list[str]:
    parts = [
        part
        for number, twin in enumerate(cluster.twins)
        for part in _twin(cluster, twin, is_open=is_first and not number)
    ]
    left = cluster.num_twins - len(cluster.twins)
    parts += [paragraph(f"{counted(left, 'more twin')} not shown here.")] if left > 0 else []
    return folded(f"{cluster.kept} stands for {counted(cluster.num_twins, 'other')}", parts, is_open=is_first)


def _twin(cluster: Cluster, twin: Twin, *, is_open: bool) -> list[str]:
    if twin.is_exact:
        return [f'<p class="twin"><code>{shown(twin.name)}</code> is the same text.</p>']
    if twin.why_not is not None or not twin.lines:
        why = twin.why_not or "no line differs"
        alike = f"{twin.similarity:.3f} alike; {why}"
        return [f'<p class="twin"><code>{shown(twin.name)}</code>: {shown(alike)}.</p>']
    return folded(f"{twin.name}: {twin.similarity:.3f} alike", _sides(cluster, twin), "twin", is_open=is_open)


def _sides(cluster: Cluster, twin: Twin) -> Iterator[str]:
    name = shown(f"What differs in {twin.name}")
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{name}"><table class="sides">'
    yield f"<caption>{name}</caption>{COLUMNS}<thead><tr>{_head(cluster.kept)}{_head(twin.name)}</tr></thead><tbody>"
    yield from map(_line, twin.lines)
    if twin.num_lines_left_out:
        yield f'<tr class="skipped"><td colspan="6">{counted(twin.num_lines_left_out, "more line")} not shown</td></tr>'
    yield "</tbody></table></div>"


def _head(name: str) -> str:
    return f'<th scope="colgroup" colspan="3">{shown(name)}</th>'


def _line(line: DiffLine) -> str:
    if line.kind == "skipped":
        return f'<tr class="skipped"><td colspan="6">{counted(line.num_skipped, "line")} the same in both</td></tr>'
    taken, given = ("", "") if line.kind == "same" else ("del", "ins")
    left = NO_SIDE if line.kind == "added" else _side(line.left_number, line.left, taken)
    right = NO_SIDE if line.kind == "removed" else _side(line.right_number, line.right, given)
    return f"<tr>{left}{right}</tr>"


def _side(number: int | None, text: str, change: str) -> str:
    """What differs is marked for eyes by sign and colour, for ears by its element."""
    code = f"<{change}>{_code_text(text)}</{change}>" if change else _code_text(text)
    return f"<td>{'' if number is None else number}</td><td>{SIGNS[change]}</td><td>{code}</td>"


def _code_text(text: str) -> str:
    """A tab stays one: code is indented with it."""
    return "\t".join(map(shown, text.split("\t")))
