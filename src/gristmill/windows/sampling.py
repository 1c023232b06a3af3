"""Draw windows: each once by default, fewer for a proportional sample, more or fewer by weight.

A weight multiplies a group's natural share of train's tokens. The epochs of a group, that is, the average number of
times that each of its windows is in train, are

    epochs = min(max_epochs, level * weight)

where the level is chosen such that the windows add up to the requested size. So other groups provide what a small group
cannot provide without too many repeats (water-filling). Two and a half epochs are two passes over all windows of the
group and a third pass over half of them, drawn without replacement.

The drawn windows depend only on their file, their number and the seed. So a new or removed file changes hardly anything
elsewhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.records import Draw, FileKey
from gristmill.core.seeded_random import SeededRandom, random_fraction
from gristmill.windows.cut import Indices, Windows

Floats = npt.NDArray[np.float64]


class DrawnWindows(NamedTuple):
    """The windows of a file's rows, in the order of the rows."""

    windows: Windows
    repeats: Indices | None
    """Number of earlier occurrences of each window, or None if no window repeats."""


class WeightedGroup(NamedTuple):
    """A group of train files with one weight, before sampling."""

    weight: float
    num_windows: int


def apportion(total: int, sizes: Sequence[int], random_numbers: Sequence[float]) -> list[int]:
    """Divide `total` in proportion to the sizes. Shares are rounded down, and some of them up to give the total.

    The probability of rounding a share up is the fraction that rounding it down removes. `random_numbers` decide: the
    shares with the smallest ratio of the odds of their number to the odds of their probability are rounded up (Pareto
    sampling, Rosén 1997).
    """
    num_all = sum(sizes)
    if total >= num_all:
        return list(sizes)
    scaled_shares = [total * size for size in sizes]  # multiplied by num_all: integers are not rounded
    shares = np.array([one // num_all for one in scaled_shares], np.int64)
    probabilities = np.array([one % num_all / num_all for one in scaled_shares])
    missing = total - int(shares.sum())
    if missing:
        odds = _odds(np.array(random_numbers))
        ranks = np.divide(odds, _odds(probabilities), out=np.full(len(odds), np.inf), where=probabilities > 0)
        shares[np.argsort(ranks, kind="stable")[:missing]] += 1
    return [int(share) for share in shares]


def _odds(probabilities: Floats) -> Floats:
    odds: Floats = probabilities / np.maximum(1 - probabilities, np.finfo(np.float64).tiny)
    return odds


def group_epochs(groups: Sequence[WeightedGroup], num_windows: int, max_epochs: int) -> list[float]:
    """Return the epochs of each group. Together they give `num_windows`, or fewer if `max_epochs` limits them."""
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


def drawn_windows(windows: Windows, draw: Draw | None, key: FileKey) -> DrawnWindows:
    """Return the windows of a file's rows: all windows in each pass, then the extra ones. A token is fresh once."""
    if draw is None:
        return DrawnWindows(windows, None)
    numbers, repeats = drawn_window_numbers(len(windows), draw, key)
    starts, ends = windows.starts[numbers], windows.ends[numbers]
    fresh = windows.fresh[numbers] * (repeats == 0) if draw.passes else _count_fresh(starts, ends)
    return DrawnWindows(Windows(starts, ends, fresh, windows.num_tail_tokens_dropped), repeats)


def drawn_window_numbers(num_windows: int, draw: Draw, key: FileKey) -> tuple[Indices, Indices]:
    """Return, for each row, the number of its window and the number of earlier occurrences of that window."""
    drawn = _draw_extra(num_windows, draw, key)
    numbers = np.concatenate([np.arange(num_windows)] * draw.passes + [drawn]).astype(np.int64)
    return numbers, np.repeat(np.arange(draw.passes + 1), [num_windows] * draw.passes + [len(drawn)])


def _draw_extra(num_windows: int, draw: Draw, key: FileKey) -> Indices:
    """Draw `draw.extra` windows: those with the smallest random numbers, in order."""
    bits = SeededRandom(draw.seed, *key).bits_array(num_windows if draw.extra else 0)
    return np.sort(np.argsort(bits, kind="stable")[: draw.extra])


def _count_fresh(starts: Indices, ends: Indices) -> Indices:
    """Count the tokens of each window that are in no window before it."""
    before = np.concatenate(([0], np.maximum.accumulate(ends)[:-1])) if len(ends) else ends
    fresh: Indices = ends - np.maximum(starts, np.minimum(before, ends))
    return fresh


class FileSize(msgspec.Struct, frozen=True, gc=False):
    """A file to draw windows from."""

    key: FileKey
    group: str
    num_windows: int


def draw_from_files(files: Sequence[FileSize], num_windows: int, seed: int) -> list[Draw]:
    """Return a draw for each file. Groups, and files in a group, contribute in proportion to their windows.

    If `num_windows` is more than all windows, every window is repeated first.
    """
    num_all = sum(file.num_windows for file in files)
    passes, rest = divmod(num_windows, num_all) if num_all else (0, 0)
    members: dict[str, list[int]] = {}
    for number, file in enumerate(files):
        members.setdefault(file.group, []).append(number)
    sizes = [sum(files[number].num_windows for number in group) for group in members.values()]
    per_group = apportion(rest, sizes, [random_fraction(seed, "group", name) for name in members])
    extras = [0] * len(files)
    for group, count in zip(members.values(), per_group, strict=True):
        random_numbers = (
            [random_fraction(seed, "file", *files[number].key) for number in group] if len(group) > 1 else [1.0]
        )
        for number, extra in zip(
            group, apportion(count, [files[n].num_windows for n in group], random_numbers), strict=True
        ):
            extras[number] = extra
    return [
        Draw(passes + 1, 0, seed) if extra == file.num_windows else Draw(passes, extra, seed)
        for file, extra in zip(files, extras, strict=True)
    ]
