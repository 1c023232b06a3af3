"""Compare common expectations about threads, JSONL and overlap with the measurements of a benchmark.

The sentences are made from the numbers. If an expectation holds on this machine, the text says so.
"""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.lab.bench.bench_result import Bench, MethodResult
from gristmill.lab.bench.bench_text import (
    ORIGINAL,
    cores_text,
    data_size_text,
    find_method,
    mark_estimate,
    short_seconds,
    times_text,
)

THREADS_EXPECTED = 8
JSONL_EXPECTED = 2
SMALLER_EXPECTED = 0.40
NOTICEABLE = 0.05
OTHER_OVERLAP = ("floor", "datasets", "gristmill-plain")
"""Methods with overlap 256 that leave no file out. The first one that ran is compared."""
OTHER_TOKENIZING = {
    "batch": "batches in processes",
    "gristmill-plain": "another tokenizer engine in processes, including reading",
    "gristmill": "the same, including cleaning",
}
SIZES_COMPARED = ("threads", "gristmill", "gristmill-zstd")


def expectations(result: Bench) -> list[str]:
    """Write a Markdown paragraph for each expectation whose methods were run."""
    original = find_method(ORIGINAL, result)
    if original is None:
        return []
    found: list[str] = []
    threads = find_method("threads", result)
    if threads is not None:
        found += _threads(original, threads, result)
        found += _jsonl(original, threads)
    other = next((method for name in OTHER_OVERLAP if (method := find_method(name, result)) is not None), None)
    if other is not None:
        found += _overlap(original, other)
    others = [method for name in SIZES_COMPARED if (method := find_method(name, result)) is not None]
    return [*found, *_smaller(original, others)]


def _threads(original: MethodResult, threads: MethodResult, result: Bench) -> Iterator[str]:
    before, after = _phase(original, "tokenize"), _phase(threads, "tokenize")
    if not before or not after:
        return
    ratio = before / after
    yield (
        f"**“8x from threads.”** {_verdict(ratio >= THREADS_EXPECTED)} Tokenizing took {_seconds(original, before)} "
        f"in `original` and {_seconds(threads, after)} with 8 threads on {cores_text(result)}: {_speed(ratio)}. "
        f"The complete run took {_seconds(original, original.seconds_for_all)} and "
        f"{_seconds(threads, threads.seconds_for_all)}: {_speed(original.seconds_for_all / threads.seconds_for_all)}."
        f"{_instead_of_threads(result)}"
    )


def _instead_of_threads(result: Bench) -> str:
    """List the tokenizing seconds of methods that do something other than threads."""
    parts = []
    for name, text in OTHER_TOKENIZING.items():
        method = find_method(name, result)
        seconds = _phase(method, "tokenize") if method is not None else 0.0
        if method is not None and seconds:
            parts.append(f"{text}, {_seconds(method, seconds)} (`{name}`)")
    return f" Alternatives: {'; '.join(parts)}." if parts else ""


def _jsonl(original: MethodResult, threads: MethodResult) -> Iterator[str]:
    before, after = _phase(original, "write"), _phase(threads, "write")
    if not before or not after:
        return
    share = min(1.0, before / original.seconds_for_all)
    most = f"{times_text(1 / (1 - share))} times as fast" if share < 1 else "instant"
    verdict = _verdict(before / after >= JSONL_EXPECTED, "True here, but only for writing.")
    yield (
        f"**“2-3x from JSONL.”** {verdict} Formatting and writing took {_seconds(original, before)} as indented JSON "
        f"and {_seconds(threads, after)} as JSON Lines: "
        f"{_speed(before / after)}. It was {share:.0%} of the total. Without it, the complete run would "
        f"have been {most}."
    )


def _overlap(original: MethodResult, other: MethodResult) -> Iterator[str]:
    if not original.places or not other.places:
        return
    num_original, num_other = original.places * original.scale, other.places * other.scale
    verdict = f" {_verdict(num_other < num_original)}" if original.scale == other.scale else ""
    yield (
        f"**“Overlap 256 means fewer sequences.”**{verdict} Overlap 128 gave "
        f"{counted(mark_estimate(original, f'{num_original:,.0f}'), 'window')} before copying (`original`), overlap "
        f"256 gave {mark_estimate(other, f'{num_other:,.0f}')} (`{other.name}`): {_amount(num_other / num_original)}. "
        "A window adds only tokens outside the overlap, so a larger overlap needs more windows per file. The rows of "
        f"`original` show each token {original.redundancy:.2f} times, including copies. The rows of "
        f"`{other.name}` show each token {other.redundancy:.2f} times."
    )


def _smaller(original: MethodResult, others: list[MethodResult]) -> Iterator[str]:
    before = original.bytes * original.scale
    if not before or not others:
        return
    sizes = [f"`{one.name}` {data_size_text(one)} ({_size_change(one.bytes * one.scale / before)})" for one in others]
    is_smaller = [1 - one.bytes * one.scale / before >= SMALLER_EXPECTED for one in others]
    verdict = "True here for all." if all(is_smaller) else "True here for some." if any(is_smaller) else "Not here."
    wrote = f"`original` wrote {mark_estimate(original, size_text(before))}, {', '.join(sizes)}"
    has_both = len(others) > 1 and others[0].name == "threads"
    why = (
        " For `threads`, JSON Lines is the only cause. The others also write no copies and no padding."
        if has_both
        else ""
    )
    yield f"**“40 % smaller.”** {verdict} {wrote}.{why}"


def _phase(method: MethodResult, phase: str) -> float:
    return method.phase_for_all(phase) or 0.0


def _seconds(method: MethodResult, seconds: float) -> str:
    return f"{mark_estimate(method, short_seconds(seconds))} s"


def _verdict(holds: bool, text: str = "True here.") -> str:
    return text if holds else "Not here."


def _speed(ratio: float) -> str:
    if abs(ratio - 1) < NOTICEABLE:
        return "no notable difference"
    return f"{times_text(ratio)} times as fast" if ratio > 1 else f"{times_text(1 / ratio)} times as long"


def _amount(ratio: float) -> str:
    if ratio == 1:
        return "the same number"
    return f"{ratio:.2f} times as many" if ratio > 1 else f"{1 - ratio:.1%} fewer"


def _size_change(ratio: float) -> str:
    return f"{1 - ratio:.0%} smaller" if ratio <= 1 else f"{ratio - 1:.0%} larger"
