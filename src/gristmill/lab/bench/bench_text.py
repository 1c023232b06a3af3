"""Render a benchmark result as text tables and as JSON.

For a method that ran on a sample, seconds, bytes and windows are estimates for all files, marked with `≈`. The
estimates are scaled by source bytes, except for startup and loading. Shares and memory are those of the sample.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text
from gristmill.lab.bench.bench_result import PHASES, Bench, MethodResult

ORIGINAL = "original"
GRISTMILL = "gristmill"
START = "start"
"""Column for the time outside all phases: interpreter startup, imports and exit."""
ESTIMATE_MARK = "≈"
NO_DECIMALS = 10
"""Smallest value that is printed without decimals."""
SMALLEST_SHARE = 0.0005


def bench_json(result: Bench) -> str:
    methods = [
        {
            **msgspec.to_builtins(method),
            "start": method.other_seconds,
            "seconds_for_all": method.seconds_for_all,
            "ratio": speed_ratio(method, result),
        }
        for method in result.methods
    ]
    return msgspec.json.encode({**msgspec.to_builtins(result), "methods": methods}).decode()


def bench_text(result: Bench) -> str:
    lines = [
        f"{printable(result.corpus.source)}: {printable(corpus_text(result))}",
        machine_text(result),
        "",
        _table(
            ("method", "seconds", "min - max", "times as fast", "peak MB", "size"),
            (_cost(method, result) for method in result.methods),
        ),
        _table(
            ("method", "windows", "distinct", "times shown", "padding", "tokens lost", "L50"),
            map(_quality, result.methods),
        ),
        _table(("seconds", *PHASES, START), map(phase_cells, result.methods)),
        *_notes(result),
    ]
    return "\n".join(lines)


def corpus_text(result: Bench) -> str:
    corpus = result.corpus
    files, tokens = counted(corpus.files, "file"), counted(corpus.tokens, "token")
    return f"{files}, {size_text(corpus.bytes)}, {tokens} by {corpus.tokenizer}"


def run_notes(result: Bench) -> list[str]:
    withheld = counted(result.corpus.withheld, "more file")
    notes = [f"excluded from all methods: {withheld} (not UTF-8, or without tokens)"] if result.corpus.withheld else []
    notes.append(reported_run_text(max((method.runs for method in result.methods), default=1)))
    gristmill = find_method(GRISTMILL, result)
    if (
        gristmill is not None
        and gristmill.other_seconds + (gristmill.phases.get("load") or 0.0) > gristmill.seconds / 2
    ):
        notes.append(f"more than half of the time of {GRISTMILL} is startup and loading: choose a larger source")
    return notes


def reported_run_text(runs: int) -> str:
    """Describe the run whose seconds are reported."""
    if runs == 1:
        return "each method ran once, so small differences are not significant (use --runs 3 for medians)"
    if runs % 2:
        return f"seconds are medians of {runs} runs"
    middle = "the slower" if runs == 2 else "the slower of the middle two"  # noqa: PLR2004
    return f"seconds are those of {middle} of {runs} runs"


def conclusion(result: Bench) -> list[str]:
    """Compare gristmill with the original script in one line."""
    original, gristmill = find_method(ORIGINAL, result), find_method(GRISTMILL, result)
    if original is None or gristmill is None or not original.bytes:
        return []
    size = f"its output is {size_change_text(gristmill.bytes / (original.bytes * original.scale))}"
    leaks = f"L50 {l50_text(original)} -> {l50_text(gristmill)}"
    return [f"compared with {ORIGINAL}, {GRISTMILL} is {ratio_text(gristmill, result)} as fast, and {size}; {leaks}"]


def size_change_text(ratio: float) -> str:
    return f"{1 - ratio:.0%} smaller" if ratio <= 1 else f"{ratio - 1:.0%} larger"


def _cost(method: MethodResult, result: Bench) -> list[str]:
    peak = f"{method.peak_mb:,.0f}"
    return [
        method.name,
        seconds_text(method),
        spread_text(method),
        ratio_text(method, result),
        peak,
        data_size_text(method),
    ]


def _quality(method: MethodResult) -> list[str]:
    return [method.name, windows_text(method), *quality_cells(method), l50_text(method)]


def quality_cells(method: MethodResult) -> list[str]:
    """Return the cells of the columns distinct, times shown, padding and tokens lost."""
    distinct, padding = share_text(method.distinct), share_text(method.padding)
    return [distinct, f"{method.redundancy:.2f}", padding, f"{method.tokens_lost:,}"]


def phase_cells(method: MethodResult) -> list[str]:
    """Return cells with the method's name, the seconds of each phase, and the seconds outside all phases.

    `-` means that the phase was not done or is part of another phase.
    """
    cells = [method.name]
    for phase in PHASES:
        value = method.phase_for_all(phase)
        text = short_seconds(value or 0.0) if phase == "load" else mark_estimate(method, short_seconds(value or 0.0))
        cells.append("-" if value is None else text if value else "")
    return [*cells, short_seconds(method.other_seconds)]


def seconds_text(method: MethodResult) -> str:
    return mark_estimate(method, short_seconds(method.seconds_for_all))


def spread_text(method: MethodResult) -> str:
    if method.runs == 1:
        return ""
    growth = method.seconds_for_all / method.seconds if method.seconds else 1.0
    edges = (method.seconds_min * growth, method.seconds_max * growth)
    return mark_estimate(method, " - ".join(map(short_seconds, edges)))


def data_size_text(method: MethodResult) -> str:
    return mark_estimate(method, size_text(method.bytes * method.scale))


def windows_text(method: MethodResult) -> str:
    return mark_estimate(method, f"{method.windows * method.scale:,.0f}")


def l50_text(method: MethodResult) -> str:
    return "-" if method.l50 is None else share_text(method.l50)


def share_text(share: float) -> str:
    """Format a share as a percentage. A share above 0 is never rounded to 0."""
    return "<0.1%" if 0 < share < SMALLEST_SHARE else f"{share:.1%}"


def mark_estimate(method: MethodResult, text: str) -> str:
    """Mark the text as an estimate if the method ran on a sample."""
    return text if method.scale == 1 else f"{ESTIMATE_MARK}{text}"


def speed_ratio(method: MethodResult, result: Bench) -> float | None:
    """Return the speed relative to the original script, or None if that script was not run."""
    original = find_method(ORIGINAL, result)
    if original is None or not method.seconds_for_all:
        return None
    return original.seconds_for_all / method.seconds_for_all


def ratio_text(method: MethodResult, result: Bench) -> str:
    ratio = speed_ratio(method, result)
    if ratio is None:
        return "-"
    original = find_method(ORIGINAL, result)
    is_measured = method.scale == 1 and original is not None and original.scale == 1
    return f"{'' if is_measured else ESTIMATE_MARK}{times_text(ratio)}x"


def times_text(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= NO_DECIMALS else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def find_method(name: str, result: Bench) -> MethodResult | None:
    return next((method for method in result.methods if method.name == name), None)


def short_seconds(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.1f}" if seconds >= NO_DECIMALS else f"{seconds:.2f}"  # noqa: PLR2004


def machine_text(result: Bench) -> str:
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    place = f"{machine.platform}, {cores_text(result)}, {machine.memory_gb:.0f} GB"
    return f"{place}, Python {machine.python}{', ' if versions else ''}{versions}"


def cores_text(result: Bench) -> str:
    return counted(result.machine.cores, "core")


def sample_notes(result: Bench) -> list[str]:
    notes = [
        f"{ESTIMATE_MARK} {method.name}: measured on {method.files:,} of {counted(result.corpus.files, 'file')} "
        f"in {short_seconds(method.seconds)} s, and scaled by bytes"
        for method in result.methods
        if method.scale != 1
    ]
    return [*notes, f"{ESTIMATE_MARK} memory, tokens lost and shares are those of the sample"] if notes else []


def skip_notes(result: Bench) -> list[str]:
    return [f"{one.name}: skipped, {one.why}" for one in result.skipped]


def has_joined_phases(result: Bench) -> bool:
    return any(value is None for method in result.methods for value in method.phases.values())


def _notes(result: Bench) -> list[str]:
    joined = ["-: the phase was not done, or is part of another phase"] if has_joined_phases(result) else []
    explained = [
        "times shown: average number of windows that contain a token, ignoring tokens in no window",
        "L50: share of held-out tokens in spans of 50 or more tokens that also occur in train",
        f"{START}: interpreter startup, imports and exit",
    ]
    notes = (*sample_notes(result), *skip_notes(result), *run_notes(result), *conclusion(result))
    return [*explained, *joined, *map(printable, notes)]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table, leaving out empty columns."""
    cells = [[printable(cell) for cell in row] for row in rows]
    used = [index for index, _ in enumerate(headings) if index == 0 or any(row[index] for row in cells)]
    return table_text([headings[index] for index in used], ([row[index] for index in used] for row in cells))
