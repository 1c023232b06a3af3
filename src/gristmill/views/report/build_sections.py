"""Sections on splits, secrets, variants, the time it took, and how to build it again."""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.views.charts import Bars, Figure, Series, count_series, hint, label
from gristmill.views.html import folded, name_html, paragraph, scrolling_table, shown
from gristmill.views.report.facts import Certificate, Facts, Provenance, SplitLine
from gristmill.views.report.page import Section, share_text
from gristmill.views.table import Cell, Table

STATUS_SIGNS = {"ok": "✓", "failed": "✗"}


def splits_section(facts: Facts) -> Section:
    lines = facts.splits
    got = ", ".join(f"{line.split} {line.share:.1%}" for line in lines)
    told = f"Shares of the tokens: {got}. Files that belong together are in one split."
    return Section("splits", "Splits and leakage", told, [_shares(facts)], list(_certificate(facts.certificate)))


def _shares(facts: Facts) -> Figure:
    lines = facts.splits
    names = [str(line.split) for line in lines]
    asked = [line.asked_share for line in lines]
    series = [_share_series("got", [line.share for line in lines], names, 1)]
    if None not in asked:
        series.insert(0, _share_series("asked for", [share or 0.0 for share in asked], names, 0))
    chart = Bars(labels=list(map(label, names)), series=series, is_share=True, axis="share of the tokens")
    return Figure("splits-shares", "Asked for and got", _cut_told(facts), chart, splits_table(lines))


def _cut_told(facts: Facts) -> str:
    """`--decontaminate drop` leaves out whole windows, and with them more than what is shared."""
    if facts.decontaminated == "off" and not facts.num_benchmarks:
        return "Nobody looked for spans that two splits share."
    where = ["another split"] if facts.decontaminated != "off" else []
    where += ["a benchmark"] if facts.num_benchmarks else []
    cut = "Left out, with what stands beside it in its window" if facts.decontaminated == "drop" else "Cut out"
    return (
        f"{cut}, as {' or '.join(where)} has it too: {counted(sum(line.tokens_cut for line in facts.splits), 'token')}."
    )


def _share_series(name: str, shares: list[float], labels: list[str], style: int) -> Series:
    texts = [f"{share:.1%}" for share in shares]
    hints = [hint(f"{split}, {name}: {text}") for split, text in zip(labels, texts, strict=True)]
    return Series(name=name, values=shares, hints=hints, texts=texts, style=style)


def splits_table(lines: list[SplitLine]) -> Table:
    heads = ["split", "files", "groups", "rows", "tokens", "ids in rows", "share", "asked for", "tokens cut"]
    rows: list[list[Cell]] = [
        [
            *(str(line.split), line.files, line.groups, line.windows, line.tokens, line.emitted, f"{line.share:.1%}"),
            None if line.asked_share is None else f"{line.asked_share:.1%}",
            line.tokens_cut,
        ]
        for line in lines
    ]
    return Table("Splits", heads, rows)


def _certificate(certificate: Certificate | None) -> Iterator[str]:
    yield "<h3>What gristmill check found</h3>"
    if certificate is None:
        yield (
            "<p>Nobody has checked this dataset as it is now. <code>gristmill check DIR</code> does, and writes what "
            "it finds into the folder; the next report tells it here.</p>"
        )
        return
    if certificate.is_ok:
        yield '<p class="verdict good"><strong>✓ Passed.</strong> The dataset is what it says it is.</p>'
    else:
        failed = [name for name, status, _ in certificate.checks if status == "failed"]
        yield f'<p class="verdict bad"><strong>✗ Failed:</strong> {shown(", ".join(failed))}.</p>'
    if certificate.leaks:
        yield paragraph(
            "A span of 50 tokens that a held-out split and train share is a copy. 13-grams are phrases that any two "
            "projects share, like imports and licence lines: they tell how alike the code is."
        )
        yield from scrolling_table(_leaks_table(certificate))
    yield from folded(
        f"All {counted(len(certificate.checks), 'check')}", scrolling_table(_checks_table(certificate)), "values"
    )


def _leaks_table(certificate: Certificate) -> Table:
    rows: list[list[Cell]] = [[str(leak.split), f"{leak.l50:.2%}", f"{leak.gram13:.2%}"] for leak in certificate.leaks]
    return Table("What is in train too", ["split", "tokens in spans of 50 and more", "13-grams"], rows)


def _checks_table(certificate: Certificate) -> Table:
    rows: list[list[Cell]] = [
        [name, f"{STATUS_SIGNS.get(status, '·')} {status}", summary] for name, status, summary in certificate.checks
    ]
    return Table("Checks", ["check", "status", "what it says"], rows)


def secrets_section(facts: Facts) -> Section:
    if not facts.secrets:
        return Section("secrets", "Secrets", "No secret was taken out: none was found, or none was looked for.")
    kinds = sorted(facts.secrets, key=lambda kind: (-facts.secrets[kind], kind))
    counts = [facts.secrets[kind] for kind in kinds]
    rows: list[list[Cell]] = [[kind, facts.secrets[kind]] for kind in kinds]
    figure = Figure(
        "secrets-kinds",
        "Secrets by kind",
        f"The most frequent is {kinds[0]} ({counts[0]:,}).",
        Bars(labels=list(map(label, kinds)), series=[count_series(counts, kinds, "redacted")], axis="redacted"),
        Table("Secrets by kind", ["kind", "redacted"], rows),
    )
    items = [name_html(one.name, one.detail) for one in facts.secret_files]
    more = folded("Files that held one", [f'<ul class="names">{"".join(items)}</ul>']) if items else []
    told = f"A placeholder stands in the place of {counted(sum(counts), 'secret')}."
    return Section("secrets", "Secrets", told, [figure], more)


def fim_section(facts: Facts) -> Section | None:
    """Fill in the middle, if some documents are rewritten for it."""
    fim = facts.fim
    if fim is None:
        return None
    kinds, windows = list(map(str, fim.middles)), list(fim.middles.values())
    total = sum(windows)
    rows: list[list[Cell]] = [[kind, count, share_text(count, total)] for kind, count in fim.middles.items()]
    forms = ", ".join(f"{counted(count, 'window')} {form}" for form, count in fim.forms.items())
    figure = Figure(
        "fim-middles",
        "Windows by kind of middle",
        f"{forms}. {counted(fim.plain, 'window')} of rewritten files without a middle.",
        Bars(labels=list(map(label, kinds)), series=[count_series(windows, kinds, "windows")], axis="windows"),
        Table("Windows by kind of middle", ["middle", "windows", "share"], rows),
    )
    words = f"{fim.rewritten:,} of {counted(fim.chosen, 'chosen file')} of train are rewritten for fill in the middle."
    return Section("fim", "Fill in the middle", words, [figure])


def variants_section(facts: Facts) -> Section:
    if not facts.variants:
        return Section("variants", "Variants", "There are none: every row shows a file as it is.")
    kinds = [one.kind for one in facts.variants]
    windows = [one.windows for one in facts.variants]
    num_chosen = sum(one.chosen for one in facts.variants)
    rows: list[list[Cell]] = [
        [one.kind, one.chosen, one.made, share_text(one.made, one.chosen), one.windows, one.tokens]
        for one in facts.variants
    ]
    figure = Figure(
        "variants-kinds",
        "Windows by kind of variant",
        f"Made for {sum(one.made for one in facts.variants):,} of {counted(num_chosen, 'file')} chosen; files.jsonl "
        "says why the others have none.",
        Bars(labels=list(map(label, kinds)), series=[count_series(windows, kinds, "windows")], axis="windows"),
        Table("Variants by kind", ["kind", "files chosen", "made", "share", "windows", "tokens"], rows),
    )
    is_one = sum(windows) == 1
    told = f"{counted(sum(windows), 'window')} of train {'is a variant' if is_one else 'are variants'} of its files."
    return Section("variants", "Variants", told, [figure])


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
    rows += [] if made.repo_order is None else [["files of a repository", made.repo_order]]
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
