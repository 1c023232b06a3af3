"""Numbers as people read them: on axes short and alike (0, 0.5M, 1M), in tables and hints with four digits."""

import math
from collections.abc import Sequence

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
UNIT_FROM = 1e4
"""Below, an axis reads 2,500 rather than 2.5k."""
SMALL, LARGE = 1e-3, 1e15
"""Beyond these, powers of ten."""
MOST_DECIMALS = 3
DIGITS = 4


def value_text(value: float) -> str:
    """`12,345`, `0.4123`, `2.5e-5`; what is no number is `-`."""
    if not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < LARGE:
        return f"{int(value):,}"
    if not SMALL <= abs(value) < LARGE:
        return _power_text(value, DIGITS)
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def tick_texts(ticks: Sequence[float], step: float) -> list[str]:
    """In one unit, with as many decimals as neighbours that are one step apart need."""
    largest = max(map(abs, ticks), default=0.0)
    if not SMALL <= largest < LARGE:
        return [_power_text(tick, DIGITS) for tick in ticks]
    size, unit = _unit(largest) if largest >= UNIT_FROM else (1.0, "")
    if _decimals(step / size) > MOST_DECIMALS:
        size, unit = 1.0, ""
    return [f"{tick / size:,.{_decimals(step / size)}f}{unit}" if tick else "0" for tick in ticks]


def log_tick_text(tick: float) -> str:
    """`1e-5`, `0.002`, `500`, `2k`, `10M`."""
    if not SMALL <= tick < LARGE:
        return _power_text(tick, DIGITS)
    size, unit = _unit(tick)
    return f"{tick / size:.{DIGITS}g}{unit}"


def _unit(value: float) -> tuple[float, str]:
    return next(((size, unit) for size, unit in UNITS if value >= size), (1.0, ""))


def _decimals(step: float) -> int:
    """A step is 1, 2 or 5 times a power of ten; the little more is for what floats lose."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _power_text(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    factor, power = f"{value:.{digits - 1}e}".split("e")
    return f"{factor.rstrip('0').rstrip('.')}e{int(power)}"
