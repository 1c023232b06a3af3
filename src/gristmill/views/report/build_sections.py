"""Report sections on splits, secrets, fill-in-the-middle, variants, build time and reproduction."""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.records import FimForm
from gristmill.core.text import size_text
from gristmill.views.charts import Bars, Figure, Series, count_series, hover_text, label
from gristmill.views.html import collapsible, escape_text, list_item_html, paragraph, scrolling_table
from gristmill.views.report.facts import Certificate, Facts, Provenance, SplitLine
from gristmill.views.report.page import Section, share_text
from gristmill.views.table import Cell, Table

STATUS_SIGNS = {"ok": "✓", "failed": "✗"}
FIM_ORDERS = {FimForm.PSM: "Prefix, suffix, middle", FimForm.SPM: "Suffix, prefix, middle"}


def splits_section(facts: Facts) -> Section:
    lines = facts.splits
    shares = ", ".join(f"{line.split} {line.share:.1%}" for line in lines)
    summary = f"Share of tokens: {shares}. Related files form a group, and all files of a group are in the same split."
    return Section(
        "splits", "Splits and leakage", summary, [_shares_figure(facts)], list(_certificate_html(facts.certificate))
    )


def _shares_figure(facts: Facts) -> Figure:
    lines = facts.splits
    names = [str(line.split) for line in lines]
    requested = [line.requested_share for line in lines]
    series = [_share_series("actual", [line.share for line in lines], names, 1)]
    if None not in requested:
        series.insert(0, _share_series("requested", [share or 0.0 for share in requested], names, 0))
    chart = Bars(labels=list(map(label, names)), series=series, is_share=True, axis="share of tokens")
    return Figure(
        "splits-shares", "Requested and actual shares", _decontamination_caption(facts), chart, splits_table(lines)
    )


def _decontamination_caption(facts: Facts) -> str:
    """Describe decontamination.

    With `--decontaminate drop`, complete held-out windows are removed. In all other cases, only spans are removed.
    """
    if facts.decontamination == "off" and not facts.num_benchmarks:
        return "Decontamination was off, so splits may share spans of tokens."
    drops_windows = facts.decontamination == "drop"
    others = [] if drops_windows or facts.decontamination == "off" else ["another split"]
    others += ["a benchmark"] if facts.num_benchmarks else []
    removed = ["in held-out windows that share spans with train"] if drops_windows else []
    removed += [f"in spans shared with {' or '.join(others)}"] if others else []
    num_tokens = sum(line.tokens_cut for line in facts.splits)
    return f"Decontamination removed {counted(num_tokens, 'token')} {', and '.join(removed)}."


def _share_series(name: str, shares: list[float], labels: list[str], style: int) -> Series:
    texts = [f"{share:.1%}" for share in shares]
    hints = [hover_text(f"{split}, {name}: {text}") for split, text in zip(labels, texts, strict=True)]
    return Series(name=name, values=shares, hints=hints, texts=texts, style=style)


def splits_table(lines: list[SplitLine]) -> Table:
    headers = ["split", "files", "groups", "rows", "tokens", "ids in rows", "share", "requested", "tokens cut"]
    rows: list[list[Cell]] = [
        [
            *(str(line.split), line.files, line.groups, line.windows, line.tokens, line.emitted, f"{line.share:.1%}"),
            None if line.requested_share is None else f"{line.requested_share:.1%}",
            line.tokens_cut,
        ]
        for line in lines
    ]
    return Table("Splits", headers, rows)


def _certificate_html(certificate: Certificate | None) -> Iterator[str]:
    yield "<h3>Results of gristmill check</h3>"
    if certificate is None:
        yield (
            "<p>This version of the dataset has not been checked. Run <code>gristmill check DIR</code> and create the "
            "report again to see the results here.</p>"
        )
        return
    if certificate.is_ok:
        yield '<p class="verdict good"><strong>✓ Passed.</strong> No check failed.</p>'
    else:
        failed = [name for name, status, _ in certificate.checks if status == "failed"]
        yield f'<p class="verdict bad"><strong>✗ Failed:</strong> {escape_text(", ".join(failed))}.</p>'
    if certificate.leaks:
        yield paragraph(
            "A span of at least 50 tokens that a held-out split shares with train counts as a copy. Any two projects "
            "share some 13-grams (sequences of 13 tokens), such as imports and license lines, so the share of 13-grams "
            "measures general similarity."
        )
        yield from scrolling_table(_leaks_table(certificate))
    yield from collapsible(
        f"All {counted(len(certificate.checks), 'check')}", scrolling_table(_checks_table(certificate)), "values"
    )


def _leaks_table(certificate: Certificate) -> Table:
    rows: list[list[Cell]] = [[str(leak.split), f"{leak.l50:.2%}", f"{leak.gram13:.2%}"] for leak in certificate.leaks]
    return Table("Overlap with train", ["split", "tokens in shared spans of 50 or more", "shared 13-grams"], rows)


def _checks_table(certificate: Certificate) -> Table:
    rows: list[list[Cell]] = [
        [name, f"{STATUS_SIGNS.get(status, '·')} {status}", summary] for name, status, summary in certificate.checks
    ]
    return Table("Checks", ["check", "status", "result"], rows)


def secrets_section(facts: Facts) -> Section:
    if not facts.secrets:
        return Section("secrets", "Secrets", "No secrets were redacted: none were found, or the search was off.")
    kinds = sorted(facts.secrets, key=lambda kind: (-facts.secrets[kind], kind))
    counts = [facts.secrets[kind] for kind in kinds]
    rows: list[list[Cell]] = [[kind, facts.secrets[kind]] for kind in kinds]
    figure = Figure(
        "secrets-kinds",
        "Secrets by kind",
        f"The most frequent kind is {kinds[0]} ({counts[0]:,}).",
        Bars(labels=list(map(label, kinds)), series=[count_series(counts, kinds, "redacted")], axis="redacted"),
        Table("Secrets by kind", ["kind", "redacted"], rows),
    )
    items = [list_item_html(one.name, one.detail) for one in facts.secret_files]
    more = collapsible("Files with redacted secrets", [f'<ul class="names">{"".join(items)}</ul>']) if items else []
    summary = f"Redacted: {counted(sum(counts), 'secret')}. A placeholder replaces each secret."
    return Section("secrets", "Secrets", summary, [figure], more)


def fim_section(facts: Facts) -> Section | None:
    """Return the section on fill-in-the-middle, or None if the dataset does not use fill-in-the-middle."""
    fim = facts.fim
    if fim is None:
        return None
    kinds, windows = list(map(str, fim.middles)), list(fim.middles.values())
    total = sum(windows)
    rows: list[list[Cell]] = [[kind, count, share_text(count, total)] for kind, count in fim.middles.items()]
    forms = "".join(f"{FIM_ORDERS[form]} ({form}): {counted(count, 'window')}. " for form, count in fim.forms.items())
    figure = Figure(
        "fim-middles",
        "Windows by kind of middle",
        f"{forms}Windows without a middle in rewritten files: {fim.plain:,}.",
        Bars(labels=list(map(label, kinds)), series=[count_series(windows, kinds, "windows")], axis="windows"),
        Table("Windows by kind of middle", ["middle", "windows", "share"], rows),
    )
    summary = f"Rewritten for fill-in-the-middle: {fim.rewritten:,} of {counted(fim.chosen, 'chosen file')} in train."
    return Section("fim", "Fill-in-the-middle", summary, [figure])


def variants_section(facts: Facts) -> Section:
    if not facts.variants:
        return Section("variants", "Variants", "The dataset has no variants.")
    kinds = [one.kind for one in facts.variants]
    windows = [one.windows for one in facts.variants]
    num_made, num_chosen = sum(one.made for one in facts.variants), sum(one.chosen for one in facts.variants)
    missing = "" if num_made == num_chosen else " files.jsonl records why the others are missing."
    rows: list[list[Cell]] = [
        [one.kind, one.chosen, one.made, share_text(one.made, one.chosen), one.windows, one.tokens]
        for one in facts.variants
    ]
    figure = Figure(
        "variants-kinds",
        "Windows by kind of variant",
        f"The build made {num_made:,} of {counted(num_chosen, 'chosen variant')}.{missing}",
        Bars(labels=list(map(label, kinds)), series=[count_series(windows, kinds, "windows")], axis="windows"),
        Table("Variants by kind", ["kind", "files chosen", "made", "share", "windows", "tokens"], rows),
    )
    is_one = sum(windows) == 1
    summary = f"{counted(sum(windows), 'window')} of train {'is from a variant' if is_one else 'are from variants'}."
    return Section("variants", "Variants", summary, [figure])


def build_time_section(facts: Facts) -> Section:
    total = facts.total_seconds
    workers = counted(facts.provenance.workers, "process", "processes")
    summary = f"The build took {total:,.2f} s with {workers}"
    summary += f" and processed {size_text(facts.source_bytes / total)} of source files per second." if total else "."
    return Section("seconds", "Build time", summary, [_phases_figure(facts)] if facts.seconds else [])


def _phases_figure(facts: Facts) -> Figure:
    phases, seconds = list(facts.seconds), list(facts.seconds.values())
    longest = max(facts.seconds, key=lambda phase: facts.seconds[phase])
    texts = [f"{one:,.2f} s" for one in seconds]
    hints = [hover_text(phase, text) for phase, text in zip(phases, texts, strict=True)]
    rows: list[list[Cell]] = [[phase, f"{facts.seconds[phase]:,.2f}"] for phase in phases]
    return Figure(
        "phases",
        "Build time by phase",
        f"The longest phase, {longest}, took {facts.seconds[longest]:,.2f} s.",
        Bars(
            labels=list(map(label, phases)),
            series=[Series(name="seconds", values=seconds, hints=hints, texts=texts)],
            axis="seconds",
        ),
        Table("Build time by phase", ["phase", "seconds"], rows),
    )


def reproduction_section(facts: Facts) -> Section:
    summary = "The same sources, settings and versions give the same bytes on any machine with any number of workers."
    return Section("repeat", "Reproduction", summary, (), list(_provenance_html(facts.provenance)))


def _provenance_html(provenance: Provenance) -> Iterator[str]:
    yield f'<h3>Command</h3><pre class="code"><code>{_lines(provenance.command)}</code></pre>'
    if provenance.config:
        toml = f'<pre class="code"><code>{_lines(provenance.config)}</code></pre>'
        yield from collapsible("Settings as gristmill.toml", [toml])
    yield from scrolling_table(_origins_table(provenance))
    yield from scrolling_table(_digests_table(provenance))
    yield from collapsible("Versions", scrolling_table(_versions_table(provenance)), "values")
    yield from collapsible("Dataset files", scrolling_table(_files_table(provenance)), "values")


def _lines(text: str) -> str:
    return "\n".join(map(escape_text, text.rstrip("\n").split("\n")))


def _origins_table(provenance: Provenance) -> Table:
    rows: list[list[Cell]] = [[one.repo, one.commit, one.found] for one in provenance.sources]
    return Table("Sources", ["source", "commit", "files found"], rows)


def _digests_table(provenance: Provenance) -> Table:
    rows: list[list[Cell]] = [
        ["fingerprint of all inputs that determine the rows", provenance.fingerprint],
        ["sha256 of the content of all rows", provenance.content_sha256],
    ]
    rows += [[f"tokenizer: {name}", value] for name, value in provenance.tokenizer]
    rows += [] if provenance.repo_order is None else [["order of files in a repository", provenance.repo_order]]
    return Table("Identification", ["property", "value"], rows)


def _versions_table(provenance: Provenance) -> Table:
    versions = {
        "gristmill": provenance.gristmill,
        **provenance.versions,
        "Python": provenance.python,
        "platform": provenance.platform,
        "built at": provenance.started_at,
    }
    return Table("Versions", ["component", "version"], list(versions.items()))


def _files_table(provenance: Provenance) -> Table:
    rows: list[list[Cell]] = [[name, num_bytes, digest] for name, num_bytes, digest in provenance.files]
    return Table("Dataset files", ["file", "bytes", "sha256"], rows)
