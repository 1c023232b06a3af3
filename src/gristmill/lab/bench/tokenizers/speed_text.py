"""What `bench --tokenizers` found, as tables for people and as JSON for scripts.

Speeds are source bytes per second. A method on a sample stands with `≈`: its speed there, not scaled.
"""

from collections.abc import Sequence

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.text import size_text, table_text
from gristmill.lab.bench.bench_result import Corpus, Machine
from gristmill.lab.bench.bench_text import ABOUT, short_seconds, times_text
from gristmill.lab.bench.tokenizers.speeds import CASE_TITLES, Case, Speed, State, TokenizerBench, TokenizerMethod, Wire
from gristmill.views.table import ABSENT

CARD = "cuda"
BASELINES = ("gigatoken", "tokenizers")
"""What ratios are beside: the first of these that ran."""
SMALL_RATIO = 0.1
"""Below, two decimals would say too little."""
TIME_HEADS = ("method", "from", "state", "seconds", "from - to", "files", "bytes")
STAGE_HEADS = ("stage", "cold ms", "warm ms")
MEANING = (
    "cold: no word was seen before; warm: all of the text was; unseen: the other half of its bytes was",
    "seconds go from documents to one array of ids; what a GPU leaves to the CPU is in them",
    "files were read just before: they lie in the system's memory, not on a disk",
)


def tokenizers_json(result: TokenizerBench) -> str:
    speeds = [
        {
            **msgspec.to_builtins(speed),
            "bytes_per_second": speed.bytes_per_second,
            "ratio": ratio_of(speed, result),
        }
        for speed in result.speeds
    ]
    return msgspec.json.encode({**msgspec.to_builtins(result), "speeds": speeds}).decode()


def tokenizers_text(result: TokenizerBench) -> str:
    lines = [
        f"{printable(result.corpus.source)}: {printable(ids_text(result.corpus))}",
        place_text(result),
        "",
    ]
    for case in Case:
        if cases := speed_rows(case, result):
            lines += [CASE_TITLES[case].lower(), table_text(speed_heads(result), cases)]
    if result.stages:
        lines += ["on the GPU by itself", table_text(STAGE_HEADS, stage_rows(result))]
    return "\n".join((*lines, *map(printable, notes_of(result))))


def ids_text(corpus: Corpus) -> str:
    files, ids = counted(corpus.files, "file"), counted(corpus.tokens, "id")
    return f"{files}, {size_text(corpus.bytes)}, {ids} by {corpus.tokenizer}"


def place_text(result: TokenizerBench) -> str:
    machine: Machine = result.machine
    gpu = f", {printable(result.gpu)}" if result.gpu else ""
    engines = ", ".join(method.engine for method in result.methods)
    cores = counted(machine.cores, "core")
    place = f"{machine.platform}, {cores}, {machine.memory_gb:.0f} GB{gpu}, Python {machine.python}"
    return f"{place}, gristmill {machine.versions['gristmill']}, {printable(engines)}"


def speed_heads(result: TokenizerBench) -> list[str]:
    return ["method", *State, *(f"x {state}" for state in State), *(["on CPU"] if result.gpu else [])]


def speed_rows(case: Case, result: TokenizerBench) -> list[list[str]]:
    rows = []
    for method in result.methods:
        speeds = [speed_of(method.name, case, state, result) for state in State]
        if any(speeds):
            ratios = [ABSENT if one is None else ratio_text(one, method, result) for one in speeds]
            told = [ABSENT if one is None else rate_text(one, method) for one in speeds]
            rows.append([method.name, *told, *ratios, *([on_cpu_text(method, speeds)] if result.gpu else [])])
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
    return [[name, *(f"{1000 * seconds:,.2f}" for seconds in both)] for name, *both in (*rows, total)]


def speed_of(method: str, case: Case, state: State, result: TokenizerBench) -> Speed | None:
    wanted = (method, case, state)
    return next((one for one in result.speeds if (one.method, one.case, one.state) == wanted), None)


def ratio_of(speed: Speed, result: TokenizerBench) -> float | None:
    """How many times as fast as the baseline that is handed the same; None where that was not run."""
    baseline = baseline_of(result)
    other = None if baseline is None else speed_of(baseline, speed.case, speed.state, result)
    if other is None or not other.bytes_per_second:
        return None
    return speed.bytes_per_second / other.bytes_per_second


def baseline_of(result: TokenizerBench) -> str | None:
    names = [method.name for method in result.methods]
    return next((name for name in BASELINES if name in names), None)


def ratio_text(speed: Speed, method: TokenizerMethod, result: TokenizerBench) -> str:
    ratio = ratio_of(speed, result)
    if ratio is None:
        return ABSENT
    return f"{ABOUT if method.is_sampled else ''}{times_text(ratio) if ratio >= SMALL_RATIO else f'{ratio:.2g}'}"


def rate_text(speed: Speed, method: TokenizerMethod) -> str:
    return f"{ABOUT if method.is_sampled else ''}{bytes_per_second_text(speed.bytes_per_second)}"


def bytes_per_second_text(rate: float) -> str:
    return f"{rate / 1e9:,.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:,.1f} MB/s"  # noqa: PLR2004


def on_cpu_text(method: TokenizerMethod, speeds: Sequence[Speed | None]) -> str:
    """Documents that the GPU left to the CPU, at most."""
    return f"{max(one.num_on_cpu for one in speeds if one)}" if method.name == CARD else ABSENT


def precise_seconds(seconds: float) -> str:
    """Of a warm run there are few."""
    return f"{seconds:.4f}" if seconds < 1 else short_seconds(seconds)


def wire_text(wire: Wire) -> str:
    both = (wire.bytes_in + wire.bytes_out) / wire.seconds_both if wire.seconds_both else 0.0
    rates = [
        f"in {bytes_per_second_text(wire.bytes_in / wire.seconds_in if wire.seconds_in else 0.0)}",
        f"out {bytes_per_second_text(wire.bytes_out / wire.seconds_out if wire.seconds_out else 0.0)}",
        f"both at once {bytes_per_second_text(both)}",
    ]
    least = bytes_per_second_text(wire.bytes_in / wire.seconds_both if wire.seconds_both else 0.0)
    return f"copies from and to pinned memory: {', '.join(rates)}: no more than {least} of source, however given"


def notes_of(result: TokenizerBench) -> list[str]:
    names = {method.name for method in result.methods}
    notes = [*MEANING]
    if (baseline := baseline_of(result)) is not None:
        notes.append(f"under x: times as fast as {baseline}, handed the same")
    if {"gigatoken", CARD} <= names:
        notes.append("one buffer: pinned memory and offsets for cuda, an awkward array of the same for gigatoken")
    notes += [sample_text(method, result) for method in result.methods if method.is_sampled]
    notes += [f"{one.name}: skipped, {one.why}" for one in result.skipped]
    if len(names) > 1:
        *others, last = (method.name for method in result.methods)
        notes.append(f"the ids of {', '.join(others)} and {last} were equal in every run")
    notes.append(f"to load it and encode one document: {_loading(result)}")
    if any(speed.runs == 1 for speed in result.speeds):
        notes.append("one run each: small differences mean nothing, --runs 5 tells medians")
    return [*notes, *([wire_text(result.wire)] if result.wire else [])]


def sample_text(method: TokenizerMethod, result: TokenizerBench) -> str:
    part = f"{method.files:,} of {counted(result.corpus.files, 'file')}, {size_text(method.bytes)}"
    return f"{ABOUT} {method.name}: timed on {part}; its ids were compared on all of them"


def _loading(result: TokenizerBench) -> str:
    return ", ".join(f"{method.name} {short_seconds(method.load_seconds)} s" for method in result.methods)
