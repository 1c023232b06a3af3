"""Compare common expectations about threads, JSONL, overlap and size with the measurements of a benchmark.

The verdicts are computed from the measurements: an expectation that holds on this machine is reported as true.
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
    size_change_text,
    times_text,
)

EXPECTED_THREADS_SPEEDUP = 8
EXPECTED_JSONL_SPEEDUP = 2
EXPECTED_SIZE_REDUCTION = 0.40
MIN_NOTICEABLE_DIFFERENCE = 0.05
OVERLAP_256_METHODS = ("floor", "datasets", "gristmill-plain")
"""Methods with overlap 256 that keep all files. The first of these methods that ran is compared with `original`."""
THREAD_ALTERNATIVES = {
    "batch": "batches in processes",
    "gristmill-plain": "a different tokenizer engine in processes, including reading",
    "gristmill": "a different tokenizer engine in processes, including reading and cleaning",
}
SIZES_COMPARED = ("threads", "gristmill", "gristmill-zstd")


def expectations(result: Bench) -> list[str]:
    """Return a Markdown paragraph for each expectation whose methods were run."""
    original = find_method(ORIGINAL, result)
    if original is None:
        return []
    paragraphs: list[str] = []
    threads = find_method("threads", result)
    if threads is not None:
        paragraphs += _threads_paragraph(original, threads, result)
        paragraphs += _jsonl_paragraph(original, threads)
    other = next((method for name in OVERLAP_256_METHODS if (method := find_method(name, result)) is not None), None)
    if other is not None:
        paragraphs += _overlap_paragraph(original, other)
    others = [method for name in SIZES_COMPARED if (method := find_method(name, result)) is not None]
    return [*paragraphs, *_size_paragraph(original, others)]


def _threads_paragraph(original: MethodResult, threads: MethodResult, result: Bench) -> Iterator[str]:
    before, after = _phase(original, "tokenize"), _phase(threads, "tokenize")
    if not before or not after:
        return
    ratio = before / after
    yield (
        f"**“8x from threads.”** {_verdict(ratio >= EXPECTED_THREADS_SPEEDUP)} Tokenizing took "
        f"{_seconds(original, before)} in `original` and {_seconds(threads, after)} with 8 threads on "
        f"{cores_text(result)}: {_speed(ratio)}. The complete run took {_seconds(original, original.seconds_for_all)} "
        f"and {_seconds(threads, threads.seconds_for_all)}: "
        f"{_speed(original.seconds_for_all / threads.seconds_for_all)}.{_alternatives_text(result)}"
    )


def _alternatives_text(result: Bench) -> str:
    """Return the tokenizing seconds of methods that do not use threads, as a sentence."""
    parts = []
    for name, text in THREAD_ALTERNATIVES.items():
        method = find_method(name, result)
        seconds = _phase(method, "tokenize") if method is not None else 0.0
        if method is not None and seconds:
            parts.append(f"{text}, {_seconds(method, seconds)} (`{name}`)")
    return f" Alternatives: {'; '.join(parts)}." if parts else ""


def _jsonl_paragraph(original: MethodResult, threads: MethodResult) -> Iterator[str]:
    before, after = _phase(original, "write"), _phase(threads, "write")
    if not before or not after:
        return
    share = min(1.0, before / original.seconds_for_all)
    best_case = f"{times_text(1 / (1 - share))} times as fast" if share < 1 else "instant"
    verdict = _verdict(before / after >= EXPECTED_JSONL_SPEEDUP, "True on this machine, but only for writing.")
    yield (
        f"**“2-3x from JSONL.”** {verdict} Formatting and writing took {_seconds(original, before)} as indented JSON "
        f"and {_seconds(threads, after)} as JSON Lines: "
        f"{_speed(before / after)}. Writing was {share:.0%} of the total time of `original`. Without writing, the "
        f"complete run would have been {best_case}."
    )


def _overlap_paragraph(original: MethodResult, other: MethodResult) -> Iterator[str]:
    if not original.places or not other.places:
        return
    num_original, num_other = original.places * original.scale, other.places * other.scale
    verdict = f" {_verdict(num_other < num_original)}" if original.scale == other.scale else ""
    yield (
        f"**“Overlap 256 means fewer sequences.”**{verdict} Overlap 128 gave "
        f"{counted(mark_estimate(original, f'{num_original:,.0f}'), 'window')} before copying (`original`), and "
        f"overlap 256 gave {mark_estimate(other, f'{num_other:,.0f}')} (`{other.name}`): "
        f"{_amount(num_other / num_original)}. "
        "Each window adds only the tokens outside the overlap, so a larger overlap needs more windows per file. The "
        f"rows of `original` contain each token {original.redundancy:.2f} times, including copies. The rows of "
        f"`{other.name}` contain each token {other.redundancy:.2f} times."
    )


def _size_paragraph(original: MethodResult, others: list[MethodResult]) -> Iterator[str]:
    before = original.bytes * original.scale
    if not before or not others:
        return
    sizes = [
        f"`{one.name}` {data_size_text(one)} ({size_change_text(one.bytes * one.scale / before)})" for one in others
    ]
    is_smaller = [1 - one.bytes * one.scale / before >= EXPECTED_SIZE_REDUCTION for one in others]
    verdict = (
        "True on this machine for all methods."
        if all(is_smaller)
        else "True on this machine for some methods."
        if any(is_smaller)
        else "Not true on this machine."
    )
    wrote = f"`original` wrote {mark_estimate(original, size_text(before))}, {', '.join(sizes)}"
    has_both = len(others) > 1 and others[0].name == "threads"
    why = (
        " For `threads`, JSON Lines is the only cause. The other methods also write no copies and no padding."
        if has_both
        else ""
    )
    yield f"**“40 % smaller.”** {verdict} {wrote}.{why}"


def _phase(method: MethodResult, phase: str) -> float:
    return method.phase_for_all(phase) or 0.0


def _seconds(method: MethodResult, seconds: float) -> str:
    return f"{mark_estimate(method, short_seconds(seconds))} s"


def _verdict(is_true: bool, text: str = "True on this machine.") -> str:
    return text if is_true else "Not true on this machine."


def _speed(ratio: float) -> str:
    if abs(ratio - 1) < MIN_NOTICEABLE_DIFFERENCE:
        return "no noticeable difference"
    return f"{times_text(ratio)} times as fast" if ratio > 1 else f"{times_text(1 / ratio)} times as long"


def _amount(ratio: float) -> str:
    if ratio == 1:
        return "the same number"
    return f"{ratio:.2f} times as many" if ratio > 1 else f"{1 - ratio:.1%} fewer"
