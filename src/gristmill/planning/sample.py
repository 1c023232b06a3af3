"""A part of the files instead of all, and how far an estimate from it may be off.

Files are drawn by size: from each power of two so many that what they take to read and what they tell are in balance,
all of the largest if need be. Files of exactly one size are in a sample together or not at all, so that copies are
found in it as often as among all. What needs two files of different size, near-duplicates and shared spans, is found
less often: in a sample of one tenth the other file of a pair is there one time in ten. The stated error allows for all
that may be missed for that.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import PlacedDocument, SourceFile

DEVIATIONS = 3.0
"""By chance alone a count is further off in less than one drawing in a hundred (tests/planning/test_plan.py)."""
PAIR_DEVIATIONS = 2.0
"""Fewer, as the worst case is assumed already: that all which went did so in pairs."""
MIN_SIZES = 2
"""From each power of two: of one alone no spread is known."""

SizeCounts = Counter[int]
"""How many files have each size."""
Floats = npt.NDArray[np.float64]


class Stratum(NamedTuple):
    """The files of one power of two."""

    whole: SizeCounts
    drawn: SizeCounts

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
    """What went from a sample because of another file in it."""

    num_files: int
    share: float
    """Of the tokens, each file by its weight."""


def draw(files: Sequence[SourceFile], count: int | None) -> Drawn:
    """About `count` of them, in path order, the same ones each time; None: all."""
    sizes = Counter(file.size for file in files if file.size)
    wholes: dict[int, SizeCounts] = {}
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


def _draw_sizes(whole: SizeCounts, count: int) -> SizeCounts:
    drawn: SizeCounts = Counter()
    for size in sorted(whole, key=lambda size: hashlib.sha256(b"%d" % size).digest()):
        if drawn.total() >= count and len(drawn) >= MIN_SIZES:
            break
        drawn[size] = whole[size]
    return drawn


def evened(documents: Sequence[PlacedDocument], drawn: Drawn) -> list[PlacedDocument]:
    """Of those drawn, so many of each size that each stands for as many: what a plain sample would be."""
    largest = max((drawn.bytes_weight(document.size) for document in documents), default=1.0)
    return [document for document in documents if drawn.bytes_weight(document.size) > largest * _chance(document.name)]


def _chance(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


def error_of(drawn: Drawn, windows_by_size: Mapping[int, int], taken_out: TakenOut) -> float:
    """How far the weighted count of windows may be from that of the whole, as a share of it."""
    if drawn.is_all:
        return 0.0
    strata = list(drawn.strata.values())
    windows = [np.array([windows_by_size.get(size, 0) for size in stratum.drawn], np.float64) for stratum in strata]
    totals = [float(counts.sum()) * stratum.bytes_weight for stratum, counts in zip(strata, windows, strict=True)]
    total = sum(totals)
    files_weight = sum(part * stratum.files_weight for part, stratum in zip(totals, strata, strict=True)) / total
    by_chance = DEVIATIONS * math.sqrt(_variance(strata, windows)) / total
    return by_chance + _missed(drawn, taken_out, files_weight)


def _variance(strata: Sequence[Stratum], windows: Sequence[Floats]) -> float:
    """Of ratios to bytes, of sizes drawn without replacement (Cochran, Sampling Techniques, chapter 6).

    A stratum of which little was drawn tells little of its spread: it has at least that of all strata per byte.
    """
    num_bytes = [np.array([size * number for size, number in one.drawn.items()], np.float64) for one in strata]
    rests = [counts - counts.sum() / sizes.sum() * sizes for counts, sizes in zip(windows, num_bytes, strict=True)]
    num_free = sum(len(rest) - 1 for rest in rests)
    per_byte = sum(float(((rest / sizes) ** 2).sum()) for rest, sizes in zip(rests, num_bytes, strict=True))
    variance = 0.0
    for stratum, rest, sizes in zip(strata, rests, num_bytes, strict=True):
        num_drawn, num_whole = len(stratum.drawn), len(stratum.whole)
        own = float((rest**2).sum()) / max(1, num_drawn - 1)
        spread = max(own, per_byte / max(1, num_free) * float((sizes**2).mean()))
        variance += num_whole**2 * (1 - num_drawn / num_whole) / num_drawn * spread
    return variance


def _missed(drawn: Drawn, taken_out: TakenOut, files_weight: float) -> float:
    """At most this share more would go if all files were there: as if all that was found came in pairs."""
    num_files, share = taken_out
    per_file = share / num_files if num_files else 1 / len(drawn.files)
    # So many may be there where `num_files` were seen: the upper end of the score interval of a Poisson count.
    most = num_files + PAIR_DEVIATIONS**2 / 2 + PAIR_DEVIATIONS * math.sqrt(num_files + PAIR_DEVIATIONS**2 / 4)
    return max(0.0, min(1.0, most * per_file * files_weight) - share)


def _num_bytes(sizes: SizeCounts) -> int:
    return sum(size * number for size, number in sizes.items())
