"""Scores by dataset and seed -> means with 95 % intervals, and for each pair of datasets a verdict.

Lower is better: bits per byte, or a loss. What is assumed, and what is done about it:

- A run's score is its dataset's true score plus chance (initial weights, order, masks) that is about normal, and runs
  of other seeds are independent. Then Student's t holds for any number of seeds from two on. With three seeds there
  are 2 degrees of freedom and the interval is 4.3 standard errors wide: small differences cannot be told, and are not.
- Two datasets are compared *by seed*: the difference of the two runs of each seed, and the interval of its mean. What a
  seed does to both, as its initial weights do, falls out; where it does nothing in common, the interval is still right.
- The test set is a sample of files too. Given each file's share of the scores, the interval also covers another draw
  of such files: half-widths over seeds and over files are added as a right angle's sides are. Chance that is neither
  the seed's nor the file's alone is in both, so the interval errs on the wide side, and is never narrower than that
  over seeds. Files are taken to be independent; copies among them would make it too narrow.
- Of many pairs one would differ by chance. With m pairs each verdict is at 1 - 0.05 / m (Bonferroni), so that with
  95 % confidence all verdicts hold at once. Holm's procedure finds a little more, but has no interval to show for it.

An interval that holds 0 says that no difference can be told, not that there is none.
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
MOST_DEGREES = 1000
"""From here on the quantile is that of 1,000 degrees: a thousandth wider than the true one."""
LARGEST_QUANTILE = 1e6
DECIMALS, MOST_DECIMALS = 3, 6
SMALLEST = 10.0**-MOST_DECIMALS
"""Below it a difference is one of rounding."""

Floats = npt.NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    mean: float
    half_width: float | None
    """None: one seed, or a run without a score."""


class DatasetScores(NamedTuple):
    name: str
    by_seed: Mapping[int, float]
    totals_by_seed: Mapping[int, Floats] | None = None
    """By frozen file, what adds up to the score: bits, or losses. None: only the scores are known."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    first: str
    second: str
    difference: Interval
    """The first's score less the second's: above 0 the second is better."""
    better: str | None
    """None: no difference can be told."""
    confidence: float
    """Of this one; all together have 0.95."""
    seeds: int
    files: int | None
    """None: the verdict holds over seeds, for just these files."""
    text: str


def interval_of(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Of the mean, by Student's t."""
    mean = float(np.mean(values))
    if len(values) == 1 or not math.isfinite(mean):
        return Interval(mean, None)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, t_quantile(confidence, len(values) - 1) * error)


def verdicts_of(
    scores: Sequence[DatasetScores], unit: str = "bits per byte", file_weights: Floats | None = None
) -> list[Verdict]:
    """Each pair once, in the order of the datasets. `file_weights`: by frozen file, its bytes, or tokens scored."""
    pairs = list(combinations(scores, 2))
    return [_verdict(first, second, unit, file_weights, 1 - (1 - CONFIDENCE) / len(pairs)) for first, second in pairs]


def _verdict(
    first: DatasetScores, second: DatasetScores, unit: str, weights: Floats | None, confidence: float
) -> Verdict:
    if set(first.by_seed) != set(second.by_seed):
        raise ConfigError(f"{first.name!r} and {second.name!r} ran with other seeds. Run both with the same --seeds.")
    seeds = sorted(first.by_seed)
    difference = interval_of([first.by_seed[seed] - second.by_seed[seed] for seed in seeds], confidence)
    by_file = _half_width_over_files(first, second, weights, confidence)
    if difference.half_width is not None and by_file is not None:
        difference = Interval(difference.mean, math.hypot(difference.half_width, by_file))
    better = None
    if difference.half_width is not None and abs(difference.mean) > max(difference.half_width, SMALLEST):
        better = second.name if difference.mean > 0 else first.name
    return Verdict(
        first=first.name,
        second=second.name,
        difference=difference,
        better=better,
        confidence=confidence,
        seeds=len(seeds),
        files=None if weights is None or by_file is None else len(weights),
        text=_text(first.name, second.name, difference, better, unit),
    )


def _half_width_over_files(
    first: DatasetScores, second: DatasetScores, weights: Floats | None, confidence: float
) -> float | None:
    """Of the ratio of two sums over files, the difference of totals and the weights (linearised: Cochran 1977, 6.3)."""
    if weights is None or len(weights) < len(("one", "another")):
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
        return f"nothing can be told of {first} and {second}: a run has no score"
    if difference.half_width is None:
        return f"nothing can be told of {first} and {second}: one seed says nothing, --seeds 3 does"
    told = f"{interval_text(Interval(abs(difference.mean), difference.half_width))} {unit}"
    if better is None:
        return f"no difference can be told between {first} and {second} ({told})"
    return f"{better} is better than {first if better == second else second} by {told}"


def interval_text(interval: Interval) -> str:
    """`0.031 ± 0.006`; with more decimals where the half-width would be 0.000."""
    half = interval.half_width
    if half is None or not math.isfinite(half):
        return f"{interval.mean:.{DECIMALS}f}"
    wanted = -math.floor(math.log10(half)) if half > SMALLEST else DECIMALS
    decimals = max(DECIMALS, min(MOST_DECIMALS, wanted))
    return f"{interval.mean:.{decimals}f} ± {half:.{decimals}f}"


def t_quantile(confidence: float, degrees: int) -> float:
    """The t that |T| stays below with this probability: `t_quantile(0.95, 2)` -> 4.303"""
    degrees = min(degrees, MOST_DEGREES)
    low, high = 0.0, LARGEST_QUANTILE
    while high - low > 1e-9 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """P(|T| < t): for whole degrees of freedom a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    is_odd = degrees % 2
    term, total = (math.cos(angle) if is_odd else 1.0), 0.0
    for step in range(degrees // 2):
        total += term
        factor = (2 * step + 2) / (2 * step + 3) if is_odd else (2 * step + 1) / (2 * step + 2)
        term *= square * factor
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
