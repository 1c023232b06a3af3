"""Report sections on kept and dropped files and on near-duplicates."""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.views.charts import Bars, Figure, Funnel, count_series, hover_text, label
from gristmill.views.html import collapsible, escape_text, list_item_html, paragraph
from gristmill.views.report.facts import Cluster, DiffLine, Duplicate, Facts, Reason
from gristmill.views.report.page import Section, join_words, share_text
from gristmill.views.table import Cell, Table

MAX_NAMED = 3


def files_section(facts: Facts) -> Section:
    share = share_text(facts.kept, facts.found)
    summary = (
        f"Kept {facts.kept:,} of {counted(facts.found, 'file')} ({share}). The kept files give {_windows_text(facts)}. "
    )
    summary += f"Dropped files: {facts.dropped:,}." if facts.dropped else "No files were dropped."
    summary += (
        f" Kept files without a drawn window: {facts.num_without_windows:,}." if facts.num_without_windows else ""
    )
    figures = [_funnel_figure(facts), *([_reasons_figure(facts.reasons)] if facts.reasons else [])]
    return Section("files", "Files", summary, figures, list(_examples_html(facts.reasons)))


def _windows_text(facts: Facts) -> str:
    """Return `755 windows in 641 rows`, or `641 windows` if each row is one window."""
    windows = counted(facts.windows, "window")
    return f"{windows} in {counted(facts.rows, 'row')}" if facts.is_packed else windows


def _funnel_figure(facts: Facts) -> Figure:
    stages = facts.funnel
    return Figure(
        "funnel",
        "Files remaining after each step",
        f"From all files found to the files kept. The kept files give {_windows_text(facts)}.",
        Funnel(
            labels=[label(stage.name) for stage in stages],
            values=[stage.files for stage in stages],
            texts=[f"{stage.files:,} ({share_text(stage.files, facts.found)})" for stage in stages],
            hints=[hover_text(stage.name, counted(stage.files, "file"), stage.note) for stage in stages],
        ),
        _funnel_table(facts),
    )


def _funnel_table(facts: Facts) -> Table:
    rows: list[list[Cell]] = [
        [stage.name, stage.files, share_text(stage.files, facts.found), stage.note] for stage in facts.funnel
    ]
    repeats = [counted(facts.repeat_windows, "repeated window")] if facts.repeat_windows else []
    variants = [f"{counted(facts.variant_windows, 'window')} of variants"] if facts.variant_windows else []
    included = f", including {join_words([*repeats, *variants])}" if repeats or variants else ""
    rows.append(["windows", facts.windows, None, f"from the kept files{included}"])
    return Table("Files after each step", ["step", "number", "share of files", "details"], rows)


def _reasons_figure(reasons: list[Reason]) -> Figure:
    names = [reason_name(one) for one in reasons]
    most = [f"{reason_name(one)} ({one.files:,})" for one in reasons[:MAX_NAMED]]
    return Figure(
        "reasons",
        "Why files were dropped",
        f"{'Most frequent reasons' if len(reasons) > MAX_NAMED else 'Reasons'}: {join_words(most)}.",
        Bars(
            labels=[label(name) for name in names],
            series=[count_series([one.files for one in reasons], names, "files")],
            axis="files",
        ),
        reasons_table(reasons),
    )


def reason_name(reason: Reason) -> str:
    """Return the name of a drop reason with spaces instead of underscores."""
    return reason.reason.replace("_", " ")


def reasons_table(reasons: list[Reason]) -> Table:
    """Return a table of drop reasons, with a size column if any size is known."""
    has_bytes = any(one.bytes for one in reasons)
    rows: list[list[Cell]] = [
        [reason_name(one), one.files, *([_size(one)] if has_bytes else []), one.meaning] for one in reasons
    ]
    return Table("Drop reasons", ["reason", "files", *(["size"] if has_bytes else []), "meaning"], rows)


def _size(reason: Reason) -> str | None:
    return size_text(reason.bytes) if reason.bytes else None


def _examples_html(reasons: list[Reason]) -> Iterator[str]:
    """Yield a few example files for each reason."""
    if not reasons:
        return
    yield "<h3>Dropped files by reason</h3>"
    for reason in reasons:
        items = [list_item_html(one.name, one.detail) for one in reason.examples]
        num_more = reason.files - len(reason.examples)
        items += [f"<li>… and {num_more:,} more, listed in files.jsonl</li>"] if num_more > 0 and items else []
        parts = [
            f"<p>{escape_text(_sentence(reason.meaning))}</p>",
            f'<ul class="names">{"".join(items)}</ul>' if items else "",
        ]
        yield from collapsible(f"{reason_name(reason)}: {counted(reason.files, 'file')}", parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# Near-duplicates: for each cluster, side-by-side diffs between the kept file and the dropped files.

SIGNS = {"": "", "del": "\N{MINUS SIGN}", "ins": "+"}
NO_SIDE = '<td></td><td></td><td class="none"></td>'
COLUMNS = '<colgroup><col class="line"><col class="sign"><col><col class="line"><col class="sign"><col></colgroup>'


def duplicates_section(facts: Facts) -> Section:
    grouped = f"Near-duplicates kept in the same split: {counted(facts.num_grouped, 'file')}."
    if not facts.num_clusters:
        summary = grouped if facts.num_grouped else "No file was dropped as a duplicate or near-duplicate."
        return Section("duplicates", "Near-duplicates", summary)
    kind = "duplicates" if facts.num_grouped else "duplicates or near-duplicates"
    summary = (
        f"{counted(facts.num_clustered, 'file')} are in {counted(facts.num_clusters, 'cluster')} of {kind}. "
        "One file of each cluster is kept."
    )
    summary += f" {grouped}" if facts.num_grouped else ""
    more = [
        part for number, cluster in enumerate(facts.clusters) for part in _cluster_html(cluster, is_first=not number)
    ]
    num_more = facts.num_clusters - len(facts.clusters)
    more += [paragraph(f"Not listed: {counted(num_more, 'more cluster')}.")] if num_more > 0 else []
    return Section("duplicates", "Near-duplicates", summary, (), more)


def _cluster_html(cluster: Cluster, *, is_first: bool) -> list[str]:
    parts = [
        part
        for number, duplicate in enumerate(cluster.duplicates)
        for part in _duplicate_html(cluster, duplicate, is_open=is_first and not number)
    ]
    num_more = cluster.num_duplicates - len(cluster.duplicates)
    parts += [paragraph(f"Not listed: {counted(num_more, 'more duplicate')}.")] if num_more > 0 else []
    return collapsible(
        f"{cluster.kept}: {counted(cluster.num_duplicates, 'duplicate')} dropped", parts, is_open=is_first
    )


def _duplicate_html(cluster: Cluster, duplicate: Duplicate, *, is_open: bool) -> list[str]:
    if duplicate.is_exact:
        return [f'<p class="duplicate"><code>{escape_text(duplicate.name)}</code> has the same text.</p>']
    if duplicate.no_diff_reason is not None or not duplicate.lines:
        reason = duplicate.no_diff_reason or "no line differs"
        details = f"similarity {duplicate.similarity:.3f}. No diff: {reason}"
        return [f'<p class="duplicate"><code>{escape_text(duplicate.name)}</code>: {escape_text(details)}.</p>']
    return collapsible(
        f"{duplicate.name}: similarity {duplicate.similarity:.3f}",
        _diff_table(cluster, duplicate),
        "duplicate",
        is_open=is_open,
    )


def _diff_table(cluster: Cluster, duplicate: Duplicate) -> Iterator[str]:
    name = escape_text(f"Differences in {duplicate.name}")
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{name}"><table class="sides">'
    headers = f"{_file_header(cluster.kept)}{_file_header(duplicate.name)}"
    yield f"<caption>{name}</caption>{COLUMNS}<thead><tr>{headers}</tr></thead><tbody>"
    yield from map(_diff_row, duplicate.lines)
    if duplicate.num_lines_left_out:
        omitted = counted(duplicate.num_lines_left_out, "more line")
        yield f'<tr class="skipped"><td colspan="6">{omitted} not displayed</td></tr>'
    yield "</tbody></table></div>"


def _file_header(name: str) -> str:
    return f'<th scope="colgroup" colspan="3">{escape_text(name)}</th>'


def _diff_row(line: DiffLine) -> str:
    if line.kind == "skipped":
        return f'<tr class="skipped"><td colspan="6">{counted(line.num_skipped, "equal line")}</td></tr>'
    left_tag, right_tag = ("", "") if line.kind == "same" else ("del", "ins")
    left = NO_SIDE if line.kind == "added" else _diff_cells(line.left_number, line.left, left_tag)
    right = NO_SIDE if line.kind == "removed" else _diff_cells(line.right_number, line.right, right_tag)
    return f"<tr>{left}{right}</tr>"


def _diff_cells(number: int | None, text: str, tag: str) -> str:
    """Return the cells of one line of a text. A changed line has a sign, a color, and a tag for screen readers."""
    code = f"<{tag}>{_code_text(text)}</{tag}>" if tag else _code_text(text)
    return f"<td>{'' if number is None else number}</td><td>{SIGNS[tag]}</td><td>{code}</td>"


def _code_text(text: str) -> str:
    """Escape code and keep its tabs."""
    return "\t".join(map(escape_text, text.split("\t")))
