"""Draw a sample of the files, and estimate the error of counts that are based on the sample.

Files are drawn by size, with one stratum for each power of two. The number of files drawn from a stratum balances
reading time against precision. The largest files are few, so the sample may contain all of them. Files of exactly the
same size are drawn together or not at all, so copies are as frequent in the sample as among all files. Near-duplicates
and shared spans need two files, usually of different sizes, so they are found less often: if a tenth of the files is
drawn and one file of a pair is in the sample, the other file is in the sample one time in ten. The stated error allows
for all pairs that may be missed.
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
"""Number of standard deviations in the stated error. Fewer than 1 in 100 samples exceed that error
(tests/planning/test_plan.py)."""
PAIR_DEVIATIONS = 2.0
"""Number of standard deviations in the error of `PairLosses`. It is lower than DEVIATIONS, because the worst case is
already assumed: that files are removed only in pairs."""
MIN_SIZES = 2
"""Minimum number of distinct sizes drawn from each stratum. The spread cannot be estimated from one size."""

SizeCounts = Counter[int]
"""Number of files of each size."""
Floats = npt.NDArray[np.float64]


class Stratum(NamedTuple):
    """Files whose sizes have the same number of bits."""

    population: SizeCounts
    """Number of files of each size in the stratum."""
    drawn: SizeCounts
    """Number of files of each size in the sample."""

    @property
    def files_weight(self) -> float:
        return self.population.total() / self.drawn.total()

    @property
    def bytes_weight(self) -> float:
        return _num_bytes(self.population) / _num_bytes(self.drawn)


class FileSample(NamedTuple):
    """A sample of the files, or all files."""

    files: list[SourceFile]
    num_files: int
    """Number of files that the sample was drawn from, without empty files. If all files were drawn, empty files are
    included."""
    num_empty: int
    """Number of empty files that were left out."""
    strata: dict[int, Stratum]
    """Strata, keyed by the number of bits of the file size."""

    @property
    def is_all(self) -> bool:
        return len(self.files) == self.num_files

    @property
    def num_bytes(self) -> int:
        return sum(_num_bytes(stratum.population) for stratum in self.strata.values())

    @property
    def growth(self) -> float:
        """Number of bytes of all files, divided by the number of bytes of the sample."""
        return self.num_bytes / max(1, sum(_num_bytes(stratum.drawn) for stratum in self.strata.values()))

    def files_weight(self, size: int | None) -> float:
        """Return the number of files that a sampled file of this size represents."""
        return 1.0 if self.is_all or not size else self.strata[size.bit_length()].files_weight

    def bytes_weight(self, size: int | None) -> float:
        """Return the factor that scales windows, tokens and bytes of a sampled file of this size to all files."""
        return 1.0 if self.is_all or not size else self.strata[size.bit_length()].bytes_weight


class PairLosses(NamedTuple):
    """Tokens that a sample loses to near-duplicates and shared spans. Each loss needs a pair of files."""

    num_files: int
    """Number of files that lost tokens."""
    share: float
    """Lost tokens as a share of all tokens, both estimated for all files with the weights of the sample."""


def draw_files(files: Sequence[SourceFile], count: int | None) -> FileSample:
    """Draw about `count` files, or all files if `count` is None. Equal inputs give equal samples, in path order."""
    sizes = Counter(file.size for file in files if file.size)
    populations: dict[int, SizeCounts] = {}
    for size, number in sizes.items():
        populations.setdefault(size.bit_length(), Counter())[size] = number
    if count is None or count >= sizes.total():
        return FileSample(
            list(files),
            len(files),
            0,
            {bits: Stratum(population, population) for bits, population in populations.items()},
        )
    # Time is proportional to bytes, and the spread of a stratum to the size of its files. The best number of draws is
    # therefore proportional to the number of files times the square root of their size.
    shares = {
        bits: population.total() * math.sqrt(_num_bytes(population) / population.total())
        for bits, population in populations.items()
    }
    strata = {
        bits: Stratum(population, _draw_sizes(population, round(count * shares[bits] / sum(shares.values()))))
        for bits, population in sorted(populations.items())
    }
    chosen = [file for file in files if file.size and file.size in strata[file.size.bit_length()].drawn]
    return FileSample(chosen, sizes.total(), len(files) - sizes.total(), strata)


def _draw_sizes(population: SizeCounts, count: int) -> SizeCounts:
    drawn: SizeCounts = Counter()
    for size in sorted(population, key=lambda size: hashlib.sha256(b"%d" % size).digest()):
        if drawn.total() >= count and len(drawn) >= MIN_SIZES:
            break
        drawn[size] = population[size]
    return drawn


def equalize_weights(documents: Sequence[PlacedDocument], drawn: FileSample) -> list[PlacedDocument]:
    """Leave out documents so that all remaining documents have the same weight, as in a simple random sample."""
    largest = max((drawn.bytes_weight(document.size) for document in documents), default=1.0)
    return [
        document
        for document in documents
        if drawn.bytes_weight(document.size) > largest * _hash_fraction(document.name)
    ]


def _hash_fraction(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


def estimate_error(drawn: FileSample, windows_by_size: Mapping[int, int], losses: PairLosses) -> float:
    """Estimate the maximum relative error of the weighted number of windows."""
    if drawn.is_all:
        return 0.0
    strata = list(drawn.strata.values())
    windows = [np.array([windows_by_size.get(size, 0) for size in stratum.drawn], np.float64) for stratum in strata]
    totals = [float(counts.sum()) * stratum.bytes_weight for stratum, counts in zip(strata, windows, strict=True)]
    total = sum(totals)
    files_weight = sum(part * stratum.files_weight for part, stratum in zip(totals, strata, strict=True)) / total
    by_chance = DEVIATIONS * math.sqrt(_variance(strata, windows)) / total
    return by_chance + _missed_share(drawn, losses, files_weight)


def _variance(strata: Sequence[Stratum], windows: Sequence[Floats]) -> float:
    """Return the variance of the estimated number of windows: a ratio estimate per byte, drawn without replacement.

    See Cochran, Sampling Techniques, chapter 6. A few draws do not show the spread of a stratum. So the spread per byte
    of a stratum is assumed to be at least the spread per byte of all strata combined.
    """
    num_bytes = [np.array([size * number for size, number in one.drawn.items()], np.float64) for one in strata]
    residuals = [counts - counts.sum() / sizes.sum() * sizes for counts, sizes in zip(windows, num_bytes, strict=True)]
    degrees_of_freedom = sum(len(residual) - 1 for residual in residuals)
    per_byte = sum(float(((residual / sizes) ** 2).sum()) for residual, sizes in zip(residuals, num_bytes, strict=True))
    variance = 0.0
    for stratum, residual, sizes in zip(strata, residuals, num_bytes, strict=True):
        num_drawn, num_sizes = len(stratum.drawn), len(stratum.population)
        own_spread = float((residual**2).sum()) / max(1, num_drawn - 1)
        spread = max(own_spread, per_byte / max(1, degrees_of_freedom) * float((sizes**2).mean()))
        variance += num_sizes**2 * (1 - num_drawn / num_sizes) / num_drawn * spread
    return variance


def _missed_share(drawn: FileSample, losses: PairLosses, files_weight: float) -> float:
    """Estimate the maximum share of tokens that a build of all files would lose in addition to `losses`.

    All losses are assumed to come in pairs.
    """
    num_files, share = losses
    per_file = share / num_files if num_files else 1 / len(drawn.files)
    # Upper end of the score interval of a Poisson mean, if the observed count is `num_files`.
    max_files = num_files + PAIR_DEVIATIONS**2 / 2 + PAIR_DEVIATIONS * math.sqrt(num_files + PAIR_DEVIATIONS**2 / 4)
    return max(0.0, min(1.0, max_files * per_file * files_weight) - share)


def _num_bytes(sizes: SizeCounts) -> int:
    return sum(size * number for size, number in sizes.items())
