"""Render the result of `bench --tokenizers` as text tables and as JSON.

Speeds are source bytes per second. `≈` marks the speed of a method that was timed on a sample. Speeds are not scaled.
"""

from collections.abc import Sequence

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text
from gristmill.lab.bench.bench_result import Corpus, Machine
from gristmill.lab.bench.bench_text import ESTIMATE_MARK, short_seconds, times_text
from gristmill.lab.bench.tokenizers.speeds import (
    CASE_TITLES,
    Case,
    GpuCopies,
    Speed,
    State,
    TokenizerBench,
    TokenizerMethod,
)
from gristmill.views.table import ABSENT

CUDA = "cuda"
BASELINES = ("gigatoken", "tokenizers")
"""Methods that can be the baseline of ratios. The first of them that ran is the baseline."""
SMALL_RATIO = 0.1
"""Ratios below this are printed with two significant digits, because two decimals would be too coarse."""
TIME_HEADINGS = ("method", "input", "state", "seconds", "min - max", "files", "bytes")
STAGE_HEADINGS = ("stage", "cold ms", "warm ms")
EXPLANATIONS = (
    "cold: the caches are empty; warm: the same text was encoded before; unseen: only other text was encoded before",
    "seconds are for encoding all documents to one array of ids, including documents that a GPU leaves to the CPU",
    "files were read just before timing, so they come from the page cache and not from disk",
)


def tokenizers_json(result: TokenizerBench) -> str:
    speeds = [
        {
            **msgspec.to_builtins(speed),
            "bytes_per_second": speed.bytes_per_second,
            "ratio": speed_ratio(speed, result),
        }
        for speed in result.speeds
    ]
    return msgspec.json.encode({**msgspec.to_builtins(result), "speeds": speeds}).decode()


def tokenizers_text(result: TokenizerBench) -> str:
    lines = [
        f"{printable(result.corpus.source)}: {printable(corpus_text(result.corpus))}",
        environment_text(result),
        "",
    ]
    for case in Case:
        if cases := speed_rows(case, result):
            lines += [CASE_TITLES[case].lower(), table_text(speed_headings(result), cases)]
    if result.stages:
        lines += ["stages on the GPU", table_text(STAGE_HEADINGS, stage_rows(result))]
    return "\n".join((*lines, *map(printable, note_lines(result))))


def corpus_text(corpus: Corpus) -> str:
    files, ids = counted(corpus.files, "file"), counted(corpus.tokens, "id")
    return f"{files}, {size_text(corpus.bytes)}, {ids} by {corpus.tokenizer}"


def environment_text(result: TokenizerBench) -> str:
    machine: Machine = result.machine
    gpu = f", {printable(result.gpu)}" if result.gpu else ""
    engines = ", ".join(method.engine for method in result.methods)
    cores = counted(machine.cores, "core")
    machine_text = f"{machine.platform}, {cores}, {machine.memory_gb:.0f} GB{gpu}, Python {machine.python}"
    return f"{machine_text}, gristmill {machine.versions['gristmill']}, {printable(engines)}"


def speed_headings(result: TokenizerBench) -> list[str]:
    return ["method", *State, *(f"x {state}" for state in State), *(["on CPU"] if result.gpu else [])]


def speed_rows(case: Case, result: TokenizerBench) -> list[list[str]]:
    """Return a row with the speeds and ratios of each method for one kind of input."""
    rows = []
    for method in result.methods:
        speeds = [speed_of(method.name, case, state, result) for state in State]
        if any(speeds):
            ratios = [ABSENT if one is None else ratio_text(one, method, result) for one in speeds]
            rates = [ABSENT if one is None else rate_text(one, method) for one in speeds]
            rows.append([method.name, *rates, *ratios, *([on_cpu_text(method, speeds)] if result.gpu else [])])
    return rows


def time_rows(result: TokenizerBench) -> list[list[str]]:
    return [
        [
            speed.method,
            speed.case,
            speed.state,
            precise_seconds(speed.seconds),
            "" if speed.runs == 1 else f"{precise_seconds(speed.seconds_min)} - {precise_seconds(speed.seconds_max)}",
            f"{speed.files:,}",
            f"{speed.bytes:,}",
        ]
        for speed in result.speeds
    ]


def stage_rows(result: TokenizerBench) -> list[list[str]]:
    rows = [(stage.name, stage.cold_seconds, stage.warm_seconds) for stage in result.stages]
    total = ("all", sum(row[1] for row in rows), sum(row[2] for row in rows))
    return [[name, *(f"{1000 * seconds:,.2f}" for seconds in times)] for name, *times in (*rows, total)]


def speed_of(method: str, case: Case, state: State, result: TokenizerBench) -> Speed | None:
    key = (method, case, state)
    return next((one for one in result.speeds if (one.method, one.case, one.state) == key), None)


def speed_ratio(speed: Speed, result: TokenizerBench) -> float | None:
    """Return the speed relative to the baseline with the same input and state, or None if the baseline was not run."""
    baseline = baseline_of(result)
    other = None if baseline is None else speed_of(baseline, speed.case, speed.state, result)
    if other is None or not other.bytes_per_second:
        return None
    return speed.bytes_per_second / other.bytes_per_second


def baseline_of(result: TokenizerBench) -> str | None:
    names = [method.name for method in result.methods]
    return next((name for name in BASELINES if name in names), None)


def ratio_text(speed: Speed, method: TokenizerMethod, result: TokenizerBench) -> str:
    ratio = speed_ratio(speed, result)
    if ratio is None:
        return ABSENT
    return (
        f"{ESTIMATE_MARK if method.is_sampled else ''}{times_text(ratio) if ratio >= SMALL_RATIO else f'{ratio:.2g}'}"
    )


def rate_text(speed: Speed, method: TokenizerMethod) -> str:
    return f"{ESTIMATE_MARK if method.is_sampled else ''}{bytes_per_second_text(speed.bytes_per_second)}"


def bytes_per_second_text(rate: float) -> str:
    return f"{rate / 1e9:,.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:,.1f} MB/s"  # noqa: PLR2004


def on_cpu_text(method: TokenizerMethod, speeds: Sequence[Speed | None]) -> str:
    """Return the largest number of documents, over all states, that the GPU left to the CPU."""
    return f"{max(one.num_on_cpu for one in speeds if one)}" if method.name == CUDA else ABSENT


def precise_seconds(seconds: float) -> str:
    """Format seconds with four decimals below 1, because warm runs are short."""
    return f"{seconds:.4f}" if seconds < 1 else short_seconds(seconds)


def copies_text(copies: GpuCopies) -> str:
    both_rate = (copies.bytes_in + copies.bytes_out) / copies.seconds_both if copies.seconds_both else 0.0
    rates = [
        f"to the GPU {bytes_per_second_text(copies.bytes_in / copies.seconds_in if copies.seconds_in else 0.0)}",
        f"from the GPU {bytes_per_second_text(copies.bytes_out / copies.seconds_out if copies.seconds_out else 0.0)}",
        f"both directions at once {bytes_per_second_text(both_rate)}",
    ]
    max_rate = bytes_per_second_text(copies.bytes_in / copies.seconds_both if copies.seconds_both else 0.0)
    return f"copies: {', '.join(rates)}; the copies limit any GPU tokenizer to {max_rate} of source text"


def note_lines(result: TokenizerBench) -> list[str]:
    names = {method.name for method in result.methods}
    lines = [*EXPLANATIONS]
    if (baseline := baseline_of(result)) is not None:
        lines.append(f"columns that begin with x: speed relative to {baseline} with the same input and state")
    if {"gigatoken", CUDA} <= names:
        lines.append(
            "one buffer: cuda reads the texts from pinned memory, and gigatoken reads them from an awkward array"
        )
    lines += [sample_text(method, result) for method in result.methods if method.is_sampled]
    lines += [f"{one.name}: skipped, {one.why}" for one in result.skipped]
    if len(names) > 1:
        *others, last = (method.name for method in result.methods)
        lines.append(f"the ids of {', '.join(others)} and {last} were equal in every run")
    lines.append(f"time to load the tokenizer and encode one document: {_load_text(result)}")
    if any(speed.runs == 1 for speed in result.speeds):
        lines.append("each method ran once, so small differences are not significant (use --runs 5 for medians)")
    return [*lines, *([copies_text(result.wire)] if result.wire else [])]


def sample_text(method: TokenizerMethod, result: TokenizerBench) -> str:
    part = f"{method.files:,} of {counted(result.corpus.files, 'file')}, {size_text(method.bytes)}"
    return f"{ESTIMATE_MARK} {method.name}: timed on {part}; ids were compared on all files"


def _load_text(result: TokenizerBench) -> str:
    return ", ".join(f"{method.name} {short_seconds(method.load_seconds)} s" for method in result.methods)
