"""Render a benchmark result as a Markdown page: a chart, tables, and a comparison with common expectations."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from gristmill.core.errors import OutputError
from gristmill.core.layout import is_writable_folder, write_atomically
from gristmill.core.markdown import code, code_in_table, escape_markdown, numbers_table
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.lab.bench.bench_result import PHASES, REBUILD, Bench, MethodResult
from gristmill.lab.bench.bench_svg import CHART_HEAD
from gristmill.lab.bench.bench_text import (
    ESTIMATE_MARK,
    START,
    corpus_text,
    data_size_text,
    find_method,
    has_joined_phases,
    l50_text,
    machine_text,
    phase_cells,
    quality_cells,
    ratio_text,
    run_notes,
    sample_notes,
    seconds_text,
    short_seconds,
    skip_notes,
    spread_text,
    windows_text,
)
from gristmill.lab.bench.expectations import expectations

HEADING = "# What each way of making the dataset costs and gives"
"""First line of the page. A later benchmark replaces only a file that begins with this line."""
DEFAULT_METHOD = "gristmill"
NOISE = "(noise)"
WITHOUT_PREFIX = "gristmill-no-"
COPYING_METHODS = ("original", "threads", "batch")
ROWS_NOTE = (
    "`original`, `threads` and `batch` make the rows of a plain script: windows with overlap 128, padded and copied. "
    "The other methods make windows of 512 tokens with overlap 256, without copies. Compare only methods that make the "
    "same rows."
)


def bench_markdown(result: Bench, chart: str) -> str:
    """Render the page. `chart` is the path of the chart, relative to the page."""
    parts = [
        HEADING,
        code(result.command),
        f"{escape_markdown(machine_text(result))}.",
        f"Files: {escape_markdown(result.corpus.source)}, {escape_markdown(corpus_text(result))}.",
        f"Every run started with a new process and an empty folder. {_sample_text(result)}{_rebuild_note(result)}",
        f"![Seconds by phase, size and leakage of each method]({_link(chart)})",
        _summary_table(result),
        *_notes(result),
        *_section("Seconds by phase", _phase_table(result)),
        *_section("Quality of the rows", _quality_table(result)),
        *_section("Cost of each gristmill step", *_step_costs(result)),
        *_section("Expectations and measurements", *expectations(result)),
        *_section("Methods", _legend(result)),
    ]
    return "\n\n".join(parts) + "\n"


def _sample_text(result: Bench) -> str:
    sampled = any(method.scale != 1 for method in result.methods)
    return f"Methods marked {ESTIMATE_MARK} ran on a sample." if sampled else "All methods ran on all files."


def _rebuild_note(result: Bench) -> str:
    if find_method(REBUILD, result) is None:
        return ""
    return f" Only {code(REBUILD)} ran in the folder of an earlier build, whose time is not included."


def _section(title: str, *parts: str) -> list[str]:
    return [f"## {title}", *parts] if parts else []


def _summary_table(result: Bench) -> str:
    headings = ("method", "seconds", "min - max", "times as fast", "peak MB", "size", "windows", "L50")
    return _table(
        headings,
        (
            [
                code_in_table(method.name),
                seconds_text(method),
                spread_text(method),
                ratio_text(method, result),
                f"{method.peak_mb:,.0f}",
                data_size_text(method),
                windows_text(method),
                l50_text(method),
            ]
            for method in result.methods
        ),
    )


def _notes(result: Bench) -> list[str]:
    kinds = [ROWS_NOTE] if any(method.name in COPYING_METHODS for method in result.methods) else []
    sentences = [f"{note[0].upper()}{note[1:]}." for note in run_notes(result)]
    return [*kinds, *map(escape_markdown, (*sample_notes(result), *skip_notes(result), *sentences))]


def _phase_table(result: Bench) -> str:
    rows = (phase_cells(method) for method in result.methods)
    table = _table(("method", *PHASES, START), ([code_in_table(name), *cells] for name, *cells in rows))
    joined = " `-`: the phase was not done, or is part of another phase." if has_joined_phases(result) else ""
    return f"{table}\n\n`{START}`: interpreter startup, imports and exit.{joined}"


def _quality_table(result: Bench) -> str:
    headings = ("method", "windows", "distinct", "times shown", "padding", "tokens lost", "left out", "L50")
    rows = (
        [
            code_in_table(method.name),
            windows_text(method),
            *quality_cells(method),
            f"{method.tokens_left_out:,}",
            l50_text(method),
        ]
        for method in result.methods
    )
    text_note = (
        " The plain script and its variants lose tokens for two reasons: reading files as text removes carriage "
        "returns, and text such as `</s>` becomes a special token."
    )
    meaning = (
        "Distinct: share of windows that are not copies. Times shown: average number of windows that contain a token, "
        "ignoring tokens in no window. "
        "Tokens lost: tokens in no window, without a recorded reason."
        f"{text_note if _has_copying_method(result) else ''} "
        "Left out: tokens in no window, with a reason in files.jsonl. "
        "L50: share of held-out tokens in spans of 50 or more tokens that also occur in train."
    )
    return f"{_table(headings, rows)}\n\n{meaning}"


def _has_copying_method(result: Bench) -> bool:
    return any(find_method(name, result) is not None for name in COPYING_METHODS)


def _step_costs(result: Bench) -> list[str]:
    """Render the cost of each step: the seconds of the default build minus those of the build without the step.

    The fastest runs are compared, because noise only adds time.
    """
    default = find_method(DEFAULT_METHOD, result)
    without = [method for method in result.methods if method.name.startswith(WITHOUT_PREFIX)]
    if default is None or not without:
        return []
    rows = (
        [
            code_in_table(method.name.removeprefix(WITHOUT_PREFIX)),
            _step_seconds(default, method),
            short_seconds(method.seconds_min),
            windows_text(method),
            l50_text(method),
        ]
        for method in without
    )
    table = _table(
        ("step", "cost in seconds", "seconds without the step", "windows without the step", "L50 without the step"),
        rows,
    )
    fastest = f"{short_seconds(default.seconds_min)} s"
    default_text = f"With all steps: {fastest}, {counted(windows_text(default), 'window')}, L50 {l50_text(default)}."
    runs = (
        " Seconds are those of the fastest run, which has the least noise."
        if default.runs > 1
        else " Each build ran once, so small differences are not significant."
    )
    noise = f" {NOISE}: runs of the same build differ by more than this cost." if NOISE in table else ""
    return [table, f"{default_text}{runs}{noise}"]


def _step_seconds(default: MethodResult, without: MethodResult) -> str:
    """Return the seconds that a step costs, marked as noise if runs of the same build differ by more seconds."""
    cost = default.seconds_min - without.seconds_min
    spread = max(one.seconds_max - one.seconds_min for one in (default, without))
    return f"{cost:+.2f}{f' {NOISE}' if abs(cost) < spread else ''}"


def _legend(result: Bench) -> str:
    return "\n".join(f"- {code(method.name)}: {escape_markdown(method.what)}" for method in result.methods)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table, leaving out empty columns."""
    cells = list(rows)
    used = [index for index, _ in enumerate(headings) if index == 0 or any(row[index] for row in cells)]
    return numbers_table([headings[index] for index in used], ([row[index] for index in used] for row in cells))


def _link(name: str) -> str:
    return quote(os.fsencode(name))


# The page and its chart are written atomically and replace only files of an earlier benchmark.

CHART_SUFFIX = ".svg"


class Page:
    """Output files of a benchmark: a Markdown page and an SVG chart next to it."""

    def __init__(self, path: str, heading: str = HEADING) -> None:
        """Raise OutputError if the files cannot be written, before the benchmark runs for minutes.

        An existing page is replaced only if it begins with `heading`.
        """
        self.path = Path(os.path.expanduser(path))
        if not self.path.name or self.path.is_dir() or self.path.suffix == CHART_SUFFIX:
            raise OutputError(
                f"{path!r} cannot be the name of the page. Choose a file name such as bench.md with --out."
            )
        self.chart = self.path.with_suffix(CHART_SUFFIX)
        if not is_writable_folder(self.path.parent):
            raise OutputError(f"cannot write into {str(self.path.parent)!r}. Choose a different folder with --out.")
        for target, head in ((self.path, heading.encode()), (self.chart, CHART_HEAD.encode())):
            if not _may_replace(target, head):
                raise OutputError(
                    f"{str(target)!r} exists and was not written by a benchmark. Choose a different name with --out."
                )

    def write(self, markdown: str, svg: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.chart, svg.encode())
            write_atomically(self.path, markdown.encode())
        except OSError as error:
            raise OutputError(f"cannot write {str(self.path)!r}: {error.strerror}.") from None


def _may_replace(path: Path, head: bytes) -> bool:
    """Return True if the file does not exist or begins with `head`."""
    try:
        with open_plain(path) as stream:
            return stream.read(len(head)) == head
    except FileNotFoundError:
        return True
    except OSError:
        return False
