"""What a benchmark found, as a page to commit: tables, the chart, and what people expect beside what was measured."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from gristmill.core.errors import OutputError
from gristmill.core.layout import can_hold_files, write_atomically
from gristmill.core.markdown import code, code_in_table, numbers_table, plain_text
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.lab.bench.bench_result import PHASES, REBUILD, Bench, MethodResult
from gristmill.lab.bench.bench_svg import CHART_HEAD
from gristmill.lab.bench.bench_text import (
    ABOUT,
    START,
    corpus_text,
    has_joined_phases,
    l50_text,
    machine_text,
    method_named,
    phase_cells,
    quality_cells,
    ratio_text,
    run_notes,
    sample_notes,
    seconds_of,
    short_seconds,
    size_of,
    skip_notes,
    spread_of,
    windows_of,
)
from gristmill.lab.bench.expectations import expectations

HEADING = "# What each way of making the dataset costs and gives"
"""The first line: by it a page is known as one of these."""
DEFAULT = "gristmill"
NOISE = "(noise)"
WITHOUT = "gristmill-no-"
OLD_ROWS = ("original", "threads", "batch")
ROWS_MADE = (
    "`original`, `threads` and `batch` make the rows that such a script makes: overlap 128, padded, and copied. The "
    "others make windows of 512 with overlap 256, each once: compare like with like."
)


def bench_markdown(result: Bench, chart: str) -> str:
    """`chart` is where the picture lies, seen from the page."""
    parts = [
        HEADING,
        code(result.command),
        f"{plain_text(machine_text(result))}.",
        f"The files: {plain_text(result.corpus.source)}, {plain_text(corpus_text(result))}.",
        f"Every run began with a fresh process and an empty folder, {_on(result)}.{_rebuilt(result)}",
        f"![Seconds by phase, size and leakage of each method]({_link(chart)})",
        _short(result),
        *_notes(result),
        *_section("Seconds by phase", _phases(result)),
        *_section("What the rows are worth", _quality(result)),
        *_section("What each step of gristmill costs", *_steps(result)),
        *_section("What people expect, and what was measured", *expectations(result)),
        *_section("The methods", _legend(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _on(result: Bench) -> str:
    sampled = any(method.scale != 1 for method in result.methods)
    return f"those marked {ABOUT} on a part of these files" if sampled else "all on these files"


def _rebuilt(result: Bench) -> str:
    if method_named(REBUILD, result) is None:
        return ""
    return f" {code(REBUILD)} had the folder of a build just made, which is not in its seconds."


def _section(title: str, *parts: str) -> list[str]:
    return [f"## {title}", *parts] if parts else []


def _short(result: Bench) -> str:
    headings = ("method", "seconds", "from - to", "times as fast", "peak MB", "size", "windows", "L50")
    return _table(
        headings,
        (
            [
                code_in_table(method.name),
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
    kinds = [ROWS_MADE] if any(method.name in OLD_ROWS for method in result.methods) else []
    said = [f"{note[0].upper()}{note[1:]}." for note in run_notes(result)]
    return [*kinds, *map(plain_text, (*sample_notes(result), *skip_notes(result), *said))]


def _phases(result: Bench) -> str:
    rows = (phase_cells(method) for method in result.methods)
    table = _table(("method", *PHASES, START), ([code_in_table(name), *cells] for name, *cells in rows))
    joined = " `-`: not done, or in one with another phase." if has_joined_phases(result) else ""
    return f"{table}\n\n`{START}`: the interpreter, imports, and the end.{joined}"


def _quality(result: Bench) -> str:
    headings = ("method", "windows", "distinct", "times shown", "padding", "tokens lost", "left out", "L50")
    rows = (
        [
            code_in_table(method.name),
            windows_of(method),
            *quality_cells(method),
            f"{method.tokens_left_out:,}",
            l50_text(method),
        ]
        for method in result.methods
    )
    reading = (
        " The plain script and its relatives read files as text, which loses carriage returns, and make a special "
        "token of what is spelled like one."
    )
    meaning = (
        "Distinct: windows that are no copy of another. Times shown: how often a token is in the windows that show it. "
        f"Tokens lost: no window shows them, and nothing says why.{reading if _reads_text(result) else ''} "
        "Left out: no window shows them, and files.jsonl says why. "
        "L50: held-out tokens in spans of 50 or more that train has too."
    )
    return f"{_table(headings, rows)}\n\n{meaning}"


def _reads_text(result: Bench) -> bool:
    return any(method_named(name, result) is not None for name in OLD_ROWS)


def _steps(result: Bench) -> list[str]:
    """Each is the default less the build without it, by the fastest run of either: noise only ever adds."""
    default = method_named(DEFAULT, result)
    without = [method for method in result.methods if method.name.startswith(WITHOUT)]
    if default is None or not without:
        return []
    rows = (
        [
            code_in_table(method.name.removeprefix(WITHOUT)),
            _cost(default, method),
            short_seconds(method.seconds_min),
            windows_of(method),
            l50_text(method),
        ]
        for method in without
    )
    table = _table(("step", "seconds it costs", "seconds without it", "windows without it", "L50 without it"), rows)
    least = f"{short_seconds(default.seconds_min)} s"
    has = f"With all of them: {least}, {counted(windows_of(default), 'window')}, L50 {l50_text(default)}."
    runs = " By the fastest run of each, which noise disturbs least."
    noise = f" {NOISE}: runs of one build differ by more than that." if NOISE in table else ""
    return [table, f"{has}{runs if default.runs > 1 else ' One run each: small differences mean nothing.'}{noise}"]


def _cost(default: MethodResult, without: MethodResult) -> str:
    """Seconds; marked where the runs of either build differ by more."""
    cost = default.seconds_min - without.seconds_min
    spread = max(one.seconds_max - one.seconds_min for one in (default, without))
    return f"{cost:+.2f}{f' {NOISE}' if abs(cost) < spread else ''}"


def _legend(result: Bench) -> str:
    return "\n".join(f"- {code(method.name)}: {plain_text(method.what)}" for method in result.methods)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Without the columns that nothing stands in."""
    cells = list(rows)
    used = [index for index, _ in enumerate(headings) if index == 0 or any(row[index] for row in cells)]
    return numbers_table([headings[index] for index in used], ([row[index] for index in used] for row in cells))


def _link(name: str) -> str:
    return quote(os.fsencode(name))


# The page that a benchmark leaves, and its chart beside it: written whole, over nothing but an earlier one.

CHART_SUFFIX = ".svg"


class Page:
    def __init__(self, path: str, heading: str = HEADING) -> None:
        """Before anything runs: minutes of work are not lost to a name. `heading`: its first line, always."""
        self.path = Path(os.path.expanduser(path))
        if not self.path.name or self.path.is_dir() or self.path.suffix == CHART_SUFFIX:
            raise OutputError(f"{path!r} cannot be the page. Name a file with --out, like bench.md.")
        self.chart = self.path.with_suffix(CHART_SUFFIX)
        if not can_hold_files(self.path.parent):
            raise OutputError(f"cannot write into {str(self.path.parent)!r}. Name a page elsewhere with --out.")
        for place, head in ((self.path, heading.encode()), (self.chart, CHART_HEAD.encode())):
            if not _may_replace(place, head):
                raise OutputError(f"{str(place)!r} exists and is no benchmark's. Name another page with --out.")

    def write(self, markdown: str, svg: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.chart, svg.encode())
            write_atomically(self.path, markdown.encode())
        except OSError as error:
            raise OutputError(f"cannot write {str(self.path)!r}: {error.strerror}.") from None


def _may_replace(path: Path, head: bytes) -> bool:
    try:
        with open_plain(path) as stream:
            return stream.read(len(head)) == head
    except FileNotFoundError:
        return True
    except OSError:
        return False
