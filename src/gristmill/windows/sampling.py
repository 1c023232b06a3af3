"""How often each window is shown: once by nature; fewer by a sample in proportion; more or less by weights.

A weight multiplies a group's natural share of train's tokens. Each group gets so many epochs:

    epochs = min(max_epochs, level * weight)        where level is such that the windows add up to the size wanted

so what a small group cannot give without being repeated too often, the others do (water-filling). Two and a half epochs
are two passes over all windows of the group and a third over half of them, drawn without replacement.

Which windows are drawn depends on their file, their number and the seed: a file that is new or gone changes hardly
anything elsewhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.records import Draw, FileKey
from gristmill.core.seeded_random import Dice, luck
from gristmill.windows.cut import Indices, Windows

Floats = npt.NDArray[np.float64]


class Shown(NamedTuple):
    """The windows that make rows, in the order of the rows."""

    windows: Windows
    repeats: Indices | None
    """How often each has been shown before; None: never."""


class WeightedGroup(NamedTuple):
    """Of train, before anything is drawn."""

    weight: float
    num_windows: int


def apportion(total: int, sizes: Sequence[int], lucks: Sequence[float]) -> list[int]:
    """`total` of all, to each in proportion to its size: rounded down, or up for as many as it takes.

    Who is rounded up is a matter of luck, with a chance that is what was rounded off: those with the smallest odds of
    their luck by the odds of their chance (Pareto sampling, Rosén 1997).
    """
    num_all = sum(sizes)
    if total >= num_all:
        return list(sizes)
    exact = [total * size for size in sizes]  # whole numbers, of num_all each: nothing is lost in rounding
    shares = np.array([one // num_all for one in exact], np.int64)
    chances = np.array([one % num_all / num_all for one in exact])
    missing = total - int(shares.sum())
    if missing:
        odds = _odds(np.array(lucks))
        ranks = np.divide(odds, _odds(chances), out=np.full(len(odds), np.inf), where=chances > 0)
        shares[np.argsort(ranks, kind="stable")[:missing]] += 1
    return [int(share) for share in shares]


def _odds(chances: Floats) -> Floats:
    odds: Floats = chances / np.maximum(1 - chances, np.finfo(np.float64).tiny)
    return odds


def epochs_of(groups: Sequence[WeightedGroup], num_windows: int, max_epochs: int) -> list[float]:
    """For each group; together they give so many windows, or as many as the limit lets them."""
    epochs = [0.0] * len(groups)
    open_groups = [number for number, group in enumerate(groups) if group.weight > 0 and group.num_windows > 0]
    left = float(num_windows)
    while open_groups:
        level = left / sum(groups[number].weight * groups[number].num_windows for number in open_groups)
        full = [number for number in open_groups if level * groups[number].weight >= max_epochs]
        for number in full or open_groups:
            epochs[number] = float(max_epochs) if full else level * groups[number].weight
            left = max(left - epochs[number] * groups[number].num_windows, 0.0)
        open_groups = [number for number in open_groups if number not in full] if full else []
    return epochs


def shown(windows: Windows, draw: Draw | None, key: FileKey) -> Shown:
    """Passes over all windows, and one over those that are drawn; tokens are fresh once."""
    if draw is None:
        return Shown(windows, None)
    numbers, repeats = numbers_shown(len(windows), draw, key)
    starts, ends = windows.starts[numbers], windows.ends[numbers]
    fresh = windows.fresh[numbers] * (repeats == 0) if draw.passes else _fresh(starts, ends)
    return Shown(Windows(starts, ends, fresh, windows.num_tail_tokens_dropped), repeats)


def numbers_shown(num_windows: int, draw: Draw, key: FileKey) -> tuple[Indices, Indices]:
    """Row by row, which of so many windows, and how often it has been shown before."""
    drawn = _drawn(num_windows, draw, key)
    numbers = np.concatenate([np.arange(num_windows)] * draw.passes + [drawn]).astype(np.int64)
    return numbers, np.repeat(np.arange(draw.passes + 1), [num_windows] * draw.passes + [len(drawn)])


def _drawn(num_windows: int, draw: Draw, key: FileKey) -> Indices:
    """So many of them, those with the smallest numbers, in order."""
    bits = Dice(draw.seed, *key).many_bits(num_windows if draw.extra else 0)
    return np.sort(np.argsort(bits, kind="stable")[: draw.extra])


def _fresh(starts: Indices, ends: Indices) -> Indices:
    """Of each window, what none before it has shown."""
    before = np.concatenate(([0], np.maximum.accumulate(ends)[:-1])) if len(ends) else ends
    fresh: Indices = ends - np.maximum(starts, np.minimum(before, ends))
    return fresh


class Sized(msgspec.Struct, frozen=True, gc=False):
    """A file to draw from."""

    key: FileKey
    group: str
    num_windows: int


def drawn_from(files: Sequence[Sized], num_windows: int, seed: int) -> list[Draw]:
    """For each file: so many windows in all, each group in proportion, and each file of a group.

    Past all of them, everything is shown once more, and so on.
    """
    num_all = sum(file.num_windows for file in files)
    passes, rest = divmod(num_windows, num_all) if num_all else (0, 0)
    members: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        members.setdefault(file.group, []).append(number)
    sizes = [sum(files[number].num_windows for number in group) for group in members.values()]
    per_group = apportion(rest, sizes, [luck(seed, "group", name) for name in members])
    extras = [0] * len(files)
    for group, count in zip(members.values(), per_group, strict=True):
        lucks = [luck(seed, "file", *files[number].key) for number in group] if len(group) > 1 else [1.0]
        for number, extra in zip(group, apportion(count, [files[n].num_windows for n in group], lucks), strict=True):
            extras[number] = extra
    return [
        Draw(passes + 1, 0, seed) if extra == file.num_windows else Draw(passes, extra, seed)
        for file, extra in zip(files, extras, strict=True)
    ]
