"""From values to places: which values an axis shows, its ticks, and where on the page a value lies."""

import math
from collections.abc import Iterable
from typing import NamedTuple

MOST = 1e150
"""Values beyond are as good as infinite: what is greatest by what is least must stay finite."""
LEAST_SPAN = 1e-9
"""Of the values' size: closer together, floats have no ticks between them."""
LITTLE_ROOM, NEAR = 0.04, 0.2
"""Of the span between least and greatest value."""
FEW_TICKS = 3
FACTORS = (1, 2, 5)


class Scale(NamedTuple):
    low: float
    high: float
    start: float
    """Where `low` lies, in pixels; `end` is where `high` does."""
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """NaN for what the scale cannot show."""
        if not is_drawable(value, log=self.log):
            return math.nan
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)


def is_drawable(value: float, *, log: bool) -> bool:
    return math.isfinite(value) and abs(value) <= MOST and (not log or value > 1 / MOST)


def range_of(values: Iterable[float], *, log: bool) -> tuple[float, float] | None:
    """From the least to the greatest value, wide enough to be an axis; None if there is no value to show."""
    shown = [value for value in values if is_drawable(value, log=log)]
    return widened(min(shown), max(shown), log=log) if shown else None


def widened(low: float, high: float, *, log: bool) -> tuple[float, float]:
    """Something around a single value: an axis needs two ends."""
    size = max(abs(low), abs(high))
    if high - low > max(size * LEAST_SPAN, 1 / MOST):
        return low, high
    if log:
        return low / 2, high * 2
    room = 1.0 if low == round(low) and size < 1 / LEAST_SPAN else max(size / 10, 1 / MOST)
    return low - room, high + room


def with_room(low: float, high: float, most_ticks: int, *, log: bool) -> tuple[float, float]:
    """To the ticks around if they are near, else a little more: no line should run along the edge."""
    if log:
        room = (high / low) ** LITTLE_ROOM
        return low / room, high * room
    factor, power = _step(low, high, most_ticks, whole=False)
    step, span = _product(factor, power), high - low
    below = _product(math.floor(low / step) * factor, power)
    above = _product(math.ceil(high / step) * factor, power)
    start = below if low - below <= span * NEAR else low - span * LITTLE_ROOM
    # What is never below zero is not drawn as if it could be.
    start = max(start, 0.0) if low >= 0 else start
    end = above if above - high <= span * NEAR else high + span * LITTLE_ROOM
    return min(start, low), max(end, high)  # floats round


def tick_step(low: float, high: float, most: int, *, whole: bool = False) -> float:
    """1, 2 or 5 times a power of ten, so that at most so many ticks are in the range; `most` is 2 or more."""
    factor, power = _step(low, high, most, whole=whole)
    return _product(factor, power)


def linear_ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """`whole`: no ticks between whole numbers, since there is no half epoch."""
    return _multiples(low, high, *_step(low, high, most, whole=whole))


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Powers of ten, every so many, with 2 and 5 between if they fit; in a narrow range, as on a linear scale."""
    choices = [_power_ticks(low, high, factors) for factors in ((1, 2, 5), (1, 3), (1,))]
    for ticks in choices:
        if FEW_TICKS <= len(ticks) <= most:
            return ticks
    powers = choices[-1]
    return powers[:: math.ceil(len(powers) / most)] if len(powers) > most else linear_ticks(low, high, most)


def _power_ticks(low: float, high: float, factors: tuple[int, ...]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for factor in factors if low <= (tick := _product(factor, power)) <= high]


def _step(low: float, high: float, most: int, *, whole: bool) -> tuple[int, int]:
    """The least that leaves no more ticks than wanted, as a factor and a power of ten."""
    # From a tenth of what is sure to do up to that, so that the search always ends.
    power = math.floor(math.log10((high - low) / (most - 1)))
    steps = [(factor, power + more) for more in (-1, 0, 1) for factor in FACTORS]
    if whole:
        steps = [step for step in steps if step[1] >= 0] or [(1, 0)]
    return next((step for step in steps if len(_multiples(low, high, *step)) <= most), steps[-1])


def _multiples(low: float, high: float, factor: int, power: int) -> list[float]:
    """Of a step, in the range; from whole numbers, so that one is 0.3 and not 0.30000000000000004."""
    step = _product(factor, power)
    numbers = range(math.floor(low / step), math.ceil(high / step) + 1)
    return [tick for number in numbers if low <= (tick := _product(number * factor, power)) <= high]


def _product(factor: int, power: int) -> float:
    return float(factor * 10**power) if power >= 0 else factor / 10**-power
