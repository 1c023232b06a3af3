"""What a benchmark found, as a page to commit: tables, the chart, and what people expect beside what was measured."""

import re
from collections.abc import Iterable, Sequence

from gristmill.bench.expecting import expectations
from gristmill.bench.results import PHASES, Bench, MethodResult
from gristmill.bench.telling import (
    START,
    has_joined_phases,
    l50_text,
    machine_text,
    method_named,
    phase_cells,
    quality_cells,
    ratio_text,
    sample_notes,
    seconds_of,
    short_seconds,
    size_of,
    skip_notes,
    spread_of,
    windows_of,
)
from gristmill.naming import printable
from gristmill.summary import size_text

HEADING = "# What each way of making the dataset costs and gives"
"""The first line: by it a page is known as one of these."""
DEFAULT = "gristmill"
WITHOUT = "gristmill-no-"
MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def bench_markdown(result: Bench, chart: str) -> str:
    """`chart` is where the picture lies, seen from the page."""
    corpus = result.corpus
    facts = f"{corpus.files:,} files, {size_text(corpus.bytes)}, {corpus.tokens:,} tokens by {corpus.tokenizer}"
    parts = [
        HEADING,
        _code(result.command),
        f"{_text(machine_text(result))}.",
        f"The files: {_text(corpus.source)}, {_text(facts)}. Each method ran in fresh processes, on the same files.",
        f"![Seconds by phase, size and leakage of each method](<{_link(chart)}>)",
        _short(result),
        *_notes(result),
        *_section("Seconds by phase", _phases(result)),
        *_section("What the rows are worth", _quality(result)),
        *_section("What each step of gristmill costs", *_steps(result)),
        *_section("What people expect, and what was measured", *expectations(result)),
        *_section("The methods", _legend(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, *parts: str) -> list[str]:
    return [f"## {title}", *parts] if parts else []


def _short(result: Bench) -> str:
    headings = ("method", "seconds", "from - to", "times as fast", "peak MB", "size", "windows", "L50")
    return _table(
        headings,
        (
            [
                _name(method.name),
                seconds_of(method),
                spread_of(method),
                ratio_text(method, result),
                f"{method.peak_mb:,.0f}",
                size_of(method),
                windows_of(method),
                l50_text(method),
            ]
            for method in result.methods
        ),
    )


def _notes(result: Bench) -> list[str]:
    runs = max((method.runs for method in result.methods), default=1)
    medians = [f"Seconds are medians of {runs} runs."] if runs > 1 else []
    return [*medians, *map(_text, (*sample_notes(result), *skip_notes(result)))]


def _phases(result: Bench) -> str:
    rows = (phase_cells(method) for method in result.methods)
    table = _table(("method", *PHASES, START), ([_name(name), *cells] for name, *cells in rows))
    joined = " `-`: not done, or in one with another phase." if has_joined_phases(result) else ""
    return f"{table}\n\n`{START}`: the interpreter, imports, and the end.{joined}"


def _quality(result: Bench) -> str:
    headings = ("method", "windows", "distinct", "times shown", "padding", "tokens lost", "left out", "L50")
    rows = (
        [
            _name(method.name),
            windows_of(method),
            *quality_cells(method),
            f"{method.tokens_left_out:,}",
            l50_text(method),
        ]
        for method in result.methods
    )
    meaning = (
        "Distinct: windows that are no copy of another. Times shown: how often a token is in the windows that show it. "
        "Tokens lost: no window shows them, and nothing says why; reading files as text, as `original` and its "
        "relatives do, loses carriage returns, and `</s>` in a file becomes a control token. "
        "Left out: no window shows them, and files.jsonl says why. "
        "L50: held-out tokens in spans of 50 or more that train has too."
    )
    return f"{_table(headings, rows)}\n\n{meaning}"


def _steps(result: Bench) -> list[str]:
    """Each is the default less the build without it."""
    default = method_named(DEFAULT, result)
    without = [method for method in result.methods if method.name.startswith(WITHOUT)]
    if default is None or not without:
        return []
    rows = (
        [
            _name(method.name.removeprefix(WITHOUT)),
            f"{default.seconds_for_all - method.seconds_for_all:+.2f}",
            seconds_of(method),
            windows_of(method),
            l50_text(method),
        ]
        for method in without
    )
    table = _table(("step", "seconds it costs", "seconds without it", "windows without it", "L50 without it"), rows)
    has = f"With all of them: {seconds_of(default)} s, {windows_of(default)} windows, L50 {l50_text(default)}."
    return [table, f"{has}{_spread_words([default, *without])}"]


def _spread_words(methods: Sequence[MethodResult]) -> str:
    """Below this, what a step costs is not known."""
    if any(method.runs == 1 for method in methods):
        return " One run each: small differences mean nothing."
    widest = max(method.seconds_max - method.seconds_min for method in methods)
    return f" Runs of one method differ by up to {short_seconds(widest)} s: a smaller difference means nothing."


def _legend(result: Bench) -> str:
    return "\n".join(f"- {_code(method.name)}: {_text(method.what)}" for method in result.methods)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Without the columns that nothing stands in."""
    cells = list(rows)
    used = [index for index, _ in enumerate(headings) if index == 0 or any(row[index] for row in cells)]
    marks = [":--" if index == 0 else "--:" for index in used]
    lines = [[headings[index] for index in used], marks, *([row[index] for index in used] for row in cells)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _name(name: str) -> str:
    """For a table, whose bar must not end the cell."""
    return _code(name).replace("|", "\\|")


def _text(text: str) -> str:
    return MARKUP.sub(r"\\\1", printable(text))


def _code(text: str) -> str:
    """In more backticks than stand in the text."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{printable(text)}{blank}{fence}"


def _link(path: str) -> str:
    return re.sub(r"[<>\\\n]", lambda match: f"%{ord(match[0]):02X}", path)
