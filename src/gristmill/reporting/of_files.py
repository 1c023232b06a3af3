"""From the files that were found to those that are in the dataset, and why the others are not."""

from collections.abc import Iterator

from gristmill.drawing.lettering import shown
from gristmill.drawing.table import Cell, Table
from gristmill.reporting.charts import Bars, Funnel, counted, hint, label
from gristmill.reporting.facts import Facts, Reason, Stage
from gristmill.reporting.section import Figure, Section, folded, listed, name_html, plural, share_text
from gristmill.summary import size_text

MOST_TOLD = 3


def files_section(facts: Facts) -> Section:
    told = (
        f"Of {plural(facts.found, 'file')} that were found, {facts.kept:,} ({share_text(facts.kept, facts.found)}) are "
        f"in the dataset, as {plural(facts.windows, 'window')}. "
    )
    told += f"{facts.dropped:,} are not, each for a reason." if facts.dropped else "None was dropped."
    figures = [_funnel(facts), *([_reasons(facts.reasons)] if facts.reasons else [])]
    return Section("files", "From files to windows", told, figures, list(_examples(facts.reasons)))


def _funnel(facts: Facts) -> Figure:
    stages = facts.funnel
    return Figure(
        "funnel",
        "What is left after each step",
        f"From the files that were found to those that are kept, and cut into {plural(facts.windows, 'window')}.",
        Funnel(
            labels=[label(stage.name) for stage in stages],
            values=[stage.files for stage in stages],
            texts=[f"{stage.files:,} ({share_text(stage.files, facts.found)})" for stage in stages],
            hints=[hint(stage.name, f"{stage.files:,} files", stage.note) for stage in stages],
        ),
        _funnel_table(stages, facts.windows),
    )


def _funnel_table(stages: list[Stage], windows: int) -> Table:
    found = stages[0].files if stages else 0
    rows: list[list[Cell]] = [[stage.name, stage.files, share_text(stage.files, found), stage.note] for stage in stages]
    rows.append(["windows", windows, None, "what the kept files are cut into"])
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
            series=[counted([one.files for one in reasons], names, "files")],
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
        yield from folded(f"{told_reason(reason)}: {plural(reason.files, 'file')}", parts)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
