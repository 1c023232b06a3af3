"""A part of the files instead of all, and how far an estimate from it may be off.

Files are drawn by size: from each power of two so many that what they take to read and what they tell are in balance,
all of the largest if need be. Files of exactly one size are in a sample together or not at all, so that copies are
found in it as often as among all. What needs two files of different size, near-duplicates and shared spans, is found
less often: in a sample of one tenth the other file of a pair is there one time in ten. How much is missed for that is
bounded from both sides, and the estimate lies in the middle.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.records import PreparedDocument, SourceFile

DEVIATIONS = 3.0
"""Of the normal distribution 99.7 % lies within."""
MIN_SIZES = 2
"""From each power of two: of one alone no spread is known."""

Sizes = Counter[int]
"""How many files have each size."""


class Stratum(NamedTuple):
    """The files of one power of two."""

    whole: Sizes
    drawn: Sizes

    @property
    def files_weight(self) -> float:
        return self.whole.total() / self.drawn.total()

    @property
    def bytes_weight(self) -> float:
        return _num_bytes(self.whole) / _num_bytes(self.drawn)


class Drawn(NamedTuple):
    files: list[SourceFile]
    num_files: int
    """Of the whole they were drawn from; of a sample, files without a byte are in neither."""
    num_empty: int
    """Files without a byte that were left out of both."""
    strata: dict[int, Stratum]
    """By the number of bits of a file's size."""

    @property
    def is_all(self) -> bool:
        return len(self.files) == self.num_files

    @property
    def num_bytes(self) -> int:
        return sum(_num_bytes(stratum.whole) for stratum in self.strata.values())

    @property
    def growth(self) -> float:
        """Bytes of the whole per byte of the sample."""
        return self.num_bytes / max(1, sum(_num_bytes(stratum.drawn) for stratum in self.strata.values()))

    def files_weight(self, size: int | None) -> float:
        """How many files one of the sample stands for."""
        return 1.0 if self.is_all or not size else self.strata[size.bit_length()].files_weight

    def bytes_weight(self, size: int | None) -> float:
        """How much its windows, tokens and bytes stand for."""
        return 1.0 if self.is_all or not size else self.strata[size.bit_length()].bytes_weight


class TakenOut(NamedTuple):
    """What went from a sample because of another file in it, of another size."""

    num_files: int
    share: float
    """Of the tokens."""


class Estimate(NamedTuple):
    scale: float
    """What was counted in the sample, each file by its weight, times this."""
    error: float
    """As a share of the estimate."""


def draw(files: Sequence[SourceFile], count: int | None) -> Drawn:
    """About `count` of them, in path order, the same ones each time; None: all."""
    sizes = Counter(file.size for file in files if file.size)
    wholes: dict[int, Sizes] = {}
    for size, number in sizes.items():
        wholes.setdefault(size.bit_length(), Counter())[size] = number
    if count is None or count >= sizes.total():
        return Drawn(list(files), len(files), 0, {bits: Stratum(whole, whole) for bits, whole in wholes.items()})
    # Time goes with bytes and the spread of a stratum with its files' size: the best allocation is by the root of it.
    shares = {bits: whole.total() * math.sqrt(_num_bytes(whole) / whole.total()) for bits, whole in wholes.items()}
    strata = {
        bits: Stratum(whole, _draw_sizes(whole, round(count * shares[bits] / sum(shares.values()))))
        for bits, whole in sorted(wholes.items())
    }
    chosen = [file for file in files if file.size and file.size in strata[file.size.bit_length()].drawn]
    return Drawn(chosen, sizes.total(), len(files) - sizes.total(), strata)


def _draw_sizes(whole: Sizes, count: int) -> Sizes:
    drawn: Sizes = Counter()
    for size in sorted(whole, key=lambda size: hashlib.sha256(b"%d" % size).digest()):
        if drawn.total() >= count and len(drawn) >= MIN_SIZES:
            break
        drawn[size] = whole[size]
    return drawn


def evened(documents: Sequence[PreparedDocument], drawn: Drawn) -> list[PreparedDocument]:
    """Of those drawn, so many of each size that each stands for as many: what a plain sample would be."""
    largest = max((drawn.bytes_weight(document.size) for document in documents), default=1.0)
    return [document for document in documents if drawn.bytes_weight(document.size) > largest * _chance(document.name)]


def _chance(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


def estimate(drawn: Drawn, windows_by_size: Mapping[int, int], taken_out: TakenOut) -> Estimate:
    """How the weighted windows of a sample become those of the whole: less what only the whole would show."""
    if drawn.is_all:
        return Estimate(scale=1.0, error=0.0)
    total = pairs = variance = 0.0
    for stratum in drawn.strata.values():
        windows = np.array([windows_by_size.get(size, 0) for size in stratum.drawn], np.float64)
        expected = float(windows.sum()) * stratum.bytes_weight
        total += expected
        pairs += expected * stratum.files_weight
        variance += _variance(stratum, windows)
    by_chance = DEVIATIONS * math.sqrt(variance) / float(total) if total else math.inf
    missed = _missed(drawn, taken_out, pairs / total if total else 1.0)
    return Estimate(1 - missed / 2, (by_chance + missed / 2) / (1 - missed / 2))


def _variance(stratum: Stratum, windows: "np.typing.NDArray[np.float64]") -> float:
    """Of a ratio to bytes, of sizes drawn without replacement (Cochran, Sampling Techniques, chapter 6)."""
    num_drawn, num_whole = len(stratum.drawn), len(stratum.whole)
    if num_drawn == num_whole:
        return 0.0
    num_bytes = np.array([size * number for size, number in stratum.drawn.items()], np.float64)
    spread = float(np.var(windows - windows.sum() / num_bytes.sum() * num_bytes, ddof=1))
    return num_whole**2 * (1 - num_drawn / num_whole) / num_drawn * spread


def _missed(drawn: Drawn, taken_out: TakenOut, files_weight: float) -> float:
    """At most this share more would go if all files were there: as if all that was found came in pairs."""
    num_files, share = taken_out
    per_file = share / num_files if num_files else 1 / len(drawn.files)
    most = (num_files + DEVIATIONS * math.sqrt(num_files + 1)) * per_file
    return max(0.0, min(1.0, most * files_weight) - share)


def _num_bytes(sizes: Sizes) -> int:
    return sum(size * number for size, number in sizes.items())
