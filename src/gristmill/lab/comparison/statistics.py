"""Statistics of a comparison: mean scores with 95 % intervals, and a verdict for each pair of datasets.

Scores are bits per byte or a loss, and lower is better. Assumptions, and how they are handled:

- A run's score is the true score of its dataset plus approximately normal noise (initial weights, order, masks), and
  runs with different seeds are independent. Under this assumption, Student's t is valid for two or more seeds. With
  three seeds, there are 2 degrees of freedom, and the half-width is 4.3 standard errors, so small differences are not
  detected.
- Two datasets are compared *by seed*: the interval is for the mean, over the seeds, of the difference between the two
  runs with the same seed. Effects that a seed has on both runs, for example through the initial weights, cancel out.
  The interval is also valid if there are no such effects.
- The test set is a sample of files, too. If the scores per file are given, the interval also covers other samples of
  similar files: its half-width is the root of the sum of the squared half-widths over seeds and over files. Noise that
  depends on both the seed and the file is part of both half-widths, so the interval tends to be too wide. It is never
  narrower than the interval over seeds. Files are assumed to be independent, so copies among the files would make the
  interval too narrow.
- Among many pairs, some would differ by chance. With m pairs, each verdict has the confidence 1 - 0.05 / m
  (Bonferroni), so all verdicts together hold with 95 % confidence. Holm's procedure detects slightly more, but
  gives no intervals.

An interval that contains 0 means that no difference was detected, not that there is none.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import ConfigError

CONFIDENCE = 0.95
MIN_FILES = 2
"""Smallest number of files for an interval over files."""
MAX_DEGREES = 1000
"""For more degrees of freedom, the quantile for 1,000 is used, which is about 0.1 % too large."""
MAX_QUANTILE = 1e6
DECIMALS, MAX_DECIMALS = 3, 6
MIN_DIFFERENCE = 10.0**-MAX_DECIMALS
"""Smaller differences are treated as rounding errors."""

Floats = npt.NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    """Confidence interval of a mean."""

    mean: float
    half_width: float | None
    """Half of the width of the interval. None for a single seed, or if a run has no score."""


class DatasetScores(NamedTuple):
    """Scores of one dataset by seed."""

    name: str
    by_seed: Mapping[int, float]
    totals_by_seed: Mapping[int, Floats] | None = None
    """Bits or losses of each frozen file, by seed. None if only the total scores are known."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result of comparing two datasets."""

    first: str
    second: str
    difference: Interval
    """Score of the first dataset minus score of the second. If above 0, the second dataset is better."""
    better: str | None
    """Name of the better dataset. None if there is no measurable difference."""
    confidence: float
    """Confidence of this verdict. All verdicts together have a confidence of 0.95."""
    seeds: int
    files: int | None
    """Number of test files. None if the verdict holds for other seeds, but only for these files."""
    text: str


def interval_of(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean and its confidence interval by Student's t."""
    mean = float(np.mean(values))
    if len(values) == 1 or not math.isfinite(mean):
        return Interval(mean, None)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, t_quantile(confidence, len(values) - 1) * error)


def compare_pairs(
    scores: Sequence[DatasetScores], unit: str = "bits per byte", file_weights: Floats | None = None
) -> list[Verdict]:
    """Return a verdict for each pair of datasets. `file_weights` are the numbers of bytes or scored tokens per file."""
    pairs = list(combinations(scores, 2))
    return [_verdict(first, second, unit, file_weights, 1 - (1 - CONFIDENCE) / len(pairs)) for first, second in pairs]


def _verdict(
    first: DatasetScores, second: DatasetScores, unit: str, weights: Floats | None, confidence: float
) -> Verdict:
    if set(first.by_seed) != set(second.by_seed):
        raise ConfigError(
            f"{first.name!r} and {second.name!r} have different seeds. Run both datasets with the same --seeds."
        )
    seeds = sorted(first.by_seed)
    difference = interval_of([first.by_seed[seed] - second.by_seed[seed] for seed in seeds], confidence)
    over_files = _half_width_over_files(first, second, weights, confidence)
    if difference.half_width is not None and over_files is not None:
        difference = Interval(difference.mean, math.hypot(difference.half_width, over_files))
    better = None
    if difference.half_width is not None and abs(difference.mean) > max(difference.half_width, MIN_DIFFERENCE):
        better = second.name if difference.mean > 0 else first.name
    return Verdict(
        first=first.name,
        second=second.name,
        difference=difference,
        better=better,
        confidence=confidence,
        seeds=len(seeds),
        files=None if weights is None or over_files is None else len(weights),
        text=_text(first.name, second.name, difference, better, unit),
    )


def _half_width_over_files(
    first: DatasetScores, second: DatasetScores, weights: Floats | None, confidence: float
) -> float | None:
    """Return the half-width over samples of files, for the difference in score between two datasets, or None.

    The difference in score is a sum of differences divided by a sum of weights. This ratio is linearized (Cochran 1977,
    6.3).
    """
    if weights is None or len(weights) < MIN_FILES:
        return None
    if first.totals_by_seed is None or second.totals_by_seed is None:
        return None
    differences = np.mean([first.totals_by_seed[seed] - second.totals_by_seed[seed] for seed in first.by_seed], axis=0)
    residuals = differences - differences.sum() / weights.sum() * weights
    num_files = len(weights)
    error = math.sqrt(num_files / (num_files - 1) * float((residuals**2).sum())) / float(weights.sum())
    return t_quantile(confidence, num_files - 1) * error if math.isfinite(error) else None


def _text(first: str, second: str, difference: Interval, better: str | None, unit: str) -> str:
    if not math.isfinite(difference.mean):
        return f"no verdict on {first} and {second}: a run has no score"
    if difference.half_width is None:
        return f"no verdict on {first} and {second}: one seed is not enough, use --seeds 3"
    amount = f"{interval_text(Interval(abs(difference.mean), difference.half_width))} {unit}"
    if better is None:
        return f"no measurable difference between {first} and {second} ({amount})"
    return f"{better} is better than {first if better == second else second} by {amount}"


def interval_text(interval: Interval) -> str:
    """Format an interval as `0.031 ± 0.006`, with more decimals if the half-width would be rounded to 0.000."""
    half = interval.half_width
    if half is None or not math.isfinite(half):
        return f"{interval.mean:.{DECIMALS}f}"
    needed = -math.floor(math.log10(half)) if half > MIN_DIFFERENCE else DECIMALS
    decimals = max(DECIMALS, min(MAX_DECIMALS, needed))
    return f"{interval.mean:.{decimals}f} ± {half:.{decimals}f}"


def t_quantile(confidence: float, degrees: int) -> float:
    """Return t such that P(|T| < t) is `confidence`, for example 4.303 for `t_quantile(0.95, 2)`."""
    degrees = min(degrees, MAX_DEGREES)
    low, high = 0.0, MAX_QUANTILE
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, degrees) < confidence else (low, middle)
    return high


def _probability_within(t: float, degrees: int) -> float:
    """Return P(|T| < t), a finite sum for integer degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    is_odd = degrees % 2
    term, total = (math.cos(angle) if is_odd else 1.0), 0.0
    for step in range(degrees // 2):
        total += term
        factor = (2 * step + 2) / (2 * step + 3) if is_odd else (2 * step + 1) / (2 * step + 2)
        term *= square * factor
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
