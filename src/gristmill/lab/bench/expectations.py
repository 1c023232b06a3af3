"""What people expect of threads, JSONL and overlap, beside what this run measured.

Every sentence is made from the numbers: on a machine where an expectation holds, it says so.
"""

from collections.abc import Iterator

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.lab.bench.bench_result import Bench, MethodResult
from gristmill.lab.bench.bench_text import ORIGINAL, about, cores_text, method_named, short_seconds, size_of, times_text

THREADS_EXPECTED = 8
JSONL_EXPECTED = 2
SMALLER_EXPECTED = 0.40
NOTICEABLE = 0.05
OTHER_OVERLAP = ("floor", "datasets", "gristmill-plain")
"""The first of them that ran stands for overlap 256: none leaves a file out."""
TOKENIZING_OTHERWISE = {
    "batch": "batches in processes",
    "gristmill-plain": "another tokenizer engine in processes, with reading",
    "gristmill": "the same with cleaning",
}
SIZES_COMPARED = ("threads", "gristmill", "gristmill-zstd")


def expectations(result: Bench) -> list[str]:
    """Paragraphs in Markdown; only those whose methods were run."""
    original = method_named(ORIGINAL, result)
    if original is None:
        return []
    found: list[str] = []
    threads = method_named("threads", result)
    if threads is not None:
        found += _threads(original, threads, result)
        found += _jsonl(original, threads)
    other = next((method for name in OTHER_OVERLAP if (method := method_named(name, result)) is not None), None)
    if other is not None:
        found += _overlap(original, other)
    others = [method for name in SIZES_COMPARED if (method := method_named(name, result)) is not None]
    return [*found, *_smaller(original, others)]


def _threads(original: MethodResult, threads: MethodResult, result: Bench) -> Iterator[str]:
    before, after = _phase(original, "tokenize"), _phase(threads, "tokenize")
    if not before or not after:
        return
    ratio = before / after
    yield (
        f"**“8x from threads.”** {_verdict(ratio >= THREADS_EXPECTED)} Tokenizing took {_seconds(original, before)} "
        f"in `original` and {_seconds(threads, after)} with 8 threads on {cores_text(result)}: {_speed(ratio)}. "
        f"The whole took {_seconds(original, original.seconds_for_all)} and "
        f"{_seconds(threads, threads.seconds_for_all)}: {_speed(original.seconds_for_all / threads.seconds_for_all)}."
        f"{_instead_of_threads(result)}"
    )


def _instead_of_threads(result: Bench) -> str:
    """What tokenizing took where something else was done about it."""
    told = []
    for name, words in TOKENIZING_OTHERWISE.items():
        method = method_named(name, result)
        seconds = _phase(method, "tokenize") if method is not None else 0.0
        if method is not None and seconds:
            told.append(f"{words}, {_seconds(method, seconds)} (`{name}`)")
    return f" Instead: {'; '.join(told)}." if told else ""


def _jsonl(original: MethodResult, threads: MethodResult) -> Iterator[str]:
    before, after = _phase(original, "write"), _phase(threads, "write")
    if not before or not after:
        return
    share = min(1.0, before / original.seconds_for_all)
    most = f"{times_text(1 / (1 - share))} times as fast" if share < 1 else "instant"
    verdict = _verdict(before / after >= JSONL_EXPECTED, "Of the writing, true here.")
    yield (
        f"**“2-3x from JSONL.”** {verdict} Formatting and writing took {_seconds(original, before)} as indented JSON "
        f"and {_seconds(threads, after)} as JSON Lines: "
        f"{_speed(before / after)}. It was {share:.0%} of the whole: had it cost nothing, the whole would have been "
        f"{most}."
    )


def _overlap(original: MethodResult, other: MethodResult) -> Iterator[str]:
    if not original.places or not other.places:
        return
    natural, places = original.places * original.scale, other.places * other.scale
    verdict = f" {_verdict(places < natural)}" if original.scale == other.scale else ""
    yield (
        f"**“Overlap 256 means fewer sequences.”**{verdict} Overlap 128 gave "
        f"{counted(about(original, f'{natural:,.0f}'), 'window')} before any was copied (`original`), overlap 256 "
        f"{about(other, f'{places:,.0f}')} (`{other.name}`): {_amount(places / natural)}. What two windows share, the "
        "second does not bring: the larger the overlap, the more windows a file takes. The rows of `original` show "
        f"each token {original.redundancy:.2f} times, copies included; those of `{other.name}` "
        f"{other.redundancy:.2f} times."
    )


def _smaller(original: MethodResult, others: list[MethodResult]) -> Iterator[str]:
    before = original.bytes * original.scale
    if not before or not others:
        return
    sizes = [f"`{one.name}` {size_of(one)} ({_size_change(one.bytes * one.scale / before)})" for one in others]
    is_smaller = [1 - one.bytes * one.scale / before >= SMALLER_EXPECTED for one in others]
    verdict = "True of all here." if all(is_smaller) else "True of some here." if any(is_smaller) else "Not here."
    wrote = f"`original` wrote {about(original, size_text(before))}, {', '.join(sizes)}"
    has_both = len(others) > 1 and others[0].name == "threads"
    why = (
        " JSON Lines alone make that of `threads`; the others also write no copies and no padding." if has_both else ""
    )
    yield f"**“40 % smaller.”** {verdict} {wrote}.{why}"


def _phase(method: MethodResult, phase: str) -> float:
    return method.phase_for_all(phase) or 0.0


def _seconds(method: MethodResult, seconds: float) -> str:
    return f"{about(method, short_seconds(seconds))} s"


def _verdict(holds: bool, words: str = "True here.") -> str:
    return words if holds else "Not here."


def _speed(ratio: float) -> str:
    if abs(ratio - 1) < NOTICEABLE:
        return "no difference to speak of"
    return f"{times_text(ratio)} times as fast" if ratio > 1 else f"{times_text(1 / ratio)} times as long"


def _amount(ratio: float) -> str:
    if ratio == 1:
        return "as many"
    return f"{ratio:.2f} times as many" if ratio > 1 else f"{1 - ratio:.1%} fewer"


def _size_change(ratio: float) -> str:
    return f"{1 - ratio:.0%} smaller" if ratio <= 1 else f"{ratio - 1:.0%} larger"
