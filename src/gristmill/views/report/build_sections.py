"""How long it took, and all it takes to make the same once more."""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.views.charts import Bars, Figure, Series, hint, label
from gristmill.views.html import folded, scrolling_table, shown
from gristmill.views.report.facts import Facts, Provenance
from gristmill.views.report.section import Section
from gristmill.views.table import Cell, Table


def seconds_section(facts: Facts) -> Section:
    total = facts.total_seconds
    workers = counted(facts.provenance.workers, "process", "processes")
    told = f"The build took {total:,.2f} s with {workers}"
    told += f": {size_text(facts.source_bytes / total)} of source a second." if total else "."
    return Section("seconds", "Seconds", told, [_phases(facts)] if facts.seconds else [])


def _phases(facts: Facts) -> Figure:
    phases, seconds = list(facts.seconds), list(facts.seconds.values())
    longest = max(facts.seconds, key=lambda phase: facts.seconds[phase])
    texts = [f"{one:,.2f} s" for one in seconds]
    hints = [hint(phase, text) for phase, text in zip(phases, texts, strict=True)]
    rows: list[list[Cell]] = [[phase, f"{facts.seconds[phase]:,.2f}"] for phase in phases]
    return Figure(
        "phases",
        "Seconds by phase",
        f"{longest} took longest, {facts.seconds[longest]:,.2f} s.",
        Bars(
            labels=list(map(label, phases)),
            series=[Series(name="seconds", values=seconds, hints=hints, texts=texts)],
            axis="seconds",
        ),
        Table("Seconds by phase", ["phase", "seconds"], rows),
    )


def repeat_section(facts: Facts) -> Section:
    told = "The same sources, settings and versions give the same bytes, on any machine, with any number of processes."
    return Section("repeat", "How to repeat it", told, (), list(_provenance(facts.provenance)))


def _provenance(made: Provenance) -> Iterator[str]:
    yield f'<h3>Command</h3><pre class="code"><code>{_lines(made.command)}</code></pre>'
    if made.config:
        toml = f'<pre class="code"><code>{_lines(made.config)}</code></pre>'
        yield from folded("The settings as gristmill.toml", [toml])
    yield from scrolling_table(_origins_table(made))
    yield from scrolling_table(_digests_table(made))
    yield from folded("Versions", scrolling_table(_versions_table(made)), "values")
    yield from folded("Files of the dataset", scrolling_table(_files_table(made)), "values")


def _lines(text: str) -> str:
    return "\n".join(map(shown, text.rstrip("\n").split("\n")))


def _origins_table(made: Provenance) -> Table:
    rows: list[list[Cell]] = [[one.repo, one.commit, one.found] for one in made.sources]
    return Table("Sources", ["source", "commit", "files found"], rows)


def _digests_table(made: Provenance) -> Table:
    rows: list[list[Cell]] = [
        ["fingerprint, of all that decides the rows", made.fingerprint],
        ["content, of every row", made.content_sha256],
    ]
    rows += [[f"tokenizer: {name}", value] for name, value in made.tokenizer]
    return Table("What it is known by", ["what", "value"], rows)


def _versions_table(made: Provenance) -> Table:
    versions = {
        "gristmill": made.gristmill,
        **made.versions,
        "Python": made.python,
        "platform": made.platform,
        "built at": made.started_at,
    }
    return Table("Versions", ["what", "version"], list(versions.items()))


def _files_table(made: Provenance) -> Table:
    rows: list[list[Cell]] = [[name, num_bytes, digest] for name, num_bytes, digest in made.files]
    return Table("Files of the dataset", ["file", "bytes", "sha256"], rows)
