"""From the files that were found to those that are in the dataset, and why the others are not."""

from collections.abc import Iterator

from gristmill.drawing.lettering import shown
from gristmill.drawing.table import Cell, Table
from gristmill.naming import counted
from gristmill.reporting.charts import Bars, Funnel, count_series, hint, label
from gristmill.reporting.facts import Facts, Reason
from gristmill.reporting.section import Figure, Section, folded, listed, name_html, share_text
from gristmill.text import size_text

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
