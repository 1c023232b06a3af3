"""Number formatting: short and uniform on axes (0, 0.5M, 1.0M), more precise in tables and hover texts (0.4123)."""

import math
from collections.abc import Sequence

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
MIN_WITH_UNIT = 1e4
"""If the largest tick of a linear axis is smaller than this, the ticks have no unit: 2,500, not 2.5k."""
MIN_PLAIN, MAX_PLAIN = 1e-3, 1e15
"""Values whose magnitude is outside this range are written with an exponent. Zero is written as 0."""
MAX_DECIMALS = 3
SIGNIFICANT_DIGITS = 4


def value_text(value: float) -> str:
    """Format a value like `12,345`, `0.4123` or `2.5e-5`. NaN and infinity become `-`."""
    if not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < MAX_PLAIN:
        return f"{int(value):,}"
    if not MIN_PLAIN <= abs(value) < MAX_PLAIN:
        return _exponent_text(value, SIGNIFICANT_DIGITS)
    decimals = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def tick_texts(ticks: Sequence[float], step: float) -> list[str]:
    """Format ticks in one common unit, with enough decimals to distinguish ticks one step apart.

    If the largest tick is less than MIN_PLAIN or at least MAX_PLAIN, all ticks have an exponent instead.
    """
    largest = max(map(abs, ticks), default=0.0)
    if not MIN_PLAIN <= largest < MAX_PLAIN:
        return [_exponent_text(tick, SIGNIFICANT_DIGITS) for tick in ticks]
    size, unit = _unit(largest) if largest >= MIN_WITH_UNIT else (1.0, "")
    if _decimals(step / size) > MAX_DECIMALS:
        size, unit = 1.0, ""
    return [f"{tick / size:,.{_decimals(step / size)}f}{unit}" if tick else "0" for tick in ticks]


def log_tick_text(tick: float) -> str:
    """Format a tick of a log scale like `1e-5`, `0.002`, `500`, `2k` or `10M`."""
    if not MIN_PLAIN <= tick < MAX_PLAIN:
        return _exponent_text(tick, SIGNIFICANT_DIGITS)
    size, unit = _unit(tick)
    return f"{tick / size:.{SIGNIFICANT_DIGITS}g}{unit}"


def _unit(value: float) -> tuple[float, str]:
    return next(((size, unit) for size, unit in UNITS if value >= size), (1.0, ""))


def _decimals(step: float) -> int:
    """Return the number of decimals for a step of 1, 2 or 5 times a power of ten. 1e-9 absorbs rounding errors."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _exponent_text(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    factor, power = f"{value:.{digits - 1}e}".split("e")
    return f"{factor.rstrip('0').rstrip('.')}e{int(power)}"
