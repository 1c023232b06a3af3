"""Draw windows: each once by default, fewer for a proportional sample, more or fewer by weight.

A weight multiplies a group's natural share of train's tokens. The epochs of a group are the average number of times
that train contains each window of the group:

    epochs = min(max_epochs, level * weight)

The level is chosen such that the windows of all groups add up to the requested size. If a small group reaches
max_epochs, the other groups supply the missing windows (water-filling). Two and a half epochs are two passes over all
windows of the group and a third pass over half of the windows, drawn without replacement.

Which windows of a file are drawn depends only on the file, its number of windows, the number to draw and the seed. So
adding or removing a file hardly changes the draws of other files.
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
    """Number of earlier rows with the same window, for each row. None if every window has exactly one row."""


class WeightedGroup(NamedTuple):
    """A group of train files with one weight, before sampling."""

    weight: float
    num_windows: int


def apportion(total: int, sizes: Sequence[int], random_numbers: Sequence[float]) -> list[int]:
    """Divide `total` in proportion to the sizes. Some shares are rounded up, the others down, to add up to `total`.

    The probability of rounding a share up is its fractional part. Each share has a random number, and the shares with
    the smallest ratio odds(random number) / odds(probability) are rounded up (Pareto sampling, Rosén 1997). If `total`
    exceeds the sum of the sizes, return the sizes.
    """
    num_all = sum(sizes)
    if total >= num_all:
        return list(sizes)
    scaled_shares = [total * size for size in sizes]  # multiplied by num_all, so that they are exact integers
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
    """Return the epochs of each group, which give `num_windows` in total, or fewer if all groups reach `max_epochs`."""
    epochs = [0.0] * len(groups)
    open_groups = [index for index, group in enumerate(groups) if group.weight > 0 and group.num_windows > 0]
    windows_left = float(num_windows)
    while open_groups:
        level = windows_left / sum(groups[index].weight * groups[index].num_windows for index in open_groups)
        full_groups = [index for index in open_groups if level * groups[index].weight >= max_epochs]
        for index in full_groups or open_groups:
            epochs[index] = float(max_epochs) if full_groups else level * groups[index].weight
            windows_left = max(windows_left - epochs[index] * groups[index].num_windows, 0.0)
        open_groups = [index for index in open_groups if index not in full_groups] if full_groups else []
    return epochs


def drawn_windows(windows: Windows, draw: Draw | None, key: FileKey) -> DrawnWindows:
    """Return the windows of a file's rows: all windows in each pass, then the extra windows.

    `fresh` counts a token only in the first row that contains it.
    """
    if draw is None:
        return DrawnWindows(windows, None)
    indices, repeats = drawn_window_indices(len(windows), draw, key)
    starts, ends = windows.starts[indices], windows.ends[indices]
    fresh = windows.fresh[indices] * (repeats == 0) if draw.passes else _count_fresh(starts, ends)
    return DrawnWindows(Windows(starts, ends, fresh, windows.num_tail_tokens_dropped), repeats)


def drawn_window_indices(num_windows: int, draw: Draw, key: FileKey) -> tuple[Indices, Indices]:
    """Return, for each row, the index of its window and the number of earlier rows with the same window."""
    extra = _draw_extra(num_windows, draw, key)
    indices = np.concatenate([np.arange(num_windows)] * draw.passes + [extra]).astype(np.int64)
    return indices, np.repeat(np.arange(draw.passes + 1), [num_windows] * draw.passes + [len(extra)])


def _draw_extra(num_windows: int, draw: Draw, key: FileKey) -> Indices:
    """Return the indices of the `draw.extra` windows with the smallest random numbers, in ascending order."""
    bits = SeededRandom(draw.seed, *key).bits_array(num_windows if draw.extra else 0)
    return np.sort(np.argsort(bits, kind="stable")[: draw.extra])


def _count_fresh(starts: Indices, ends: Indices) -> Indices:
    """Return, for each window, the number of its tokens that are in no earlier window."""
    earlier_ends = np.concatenate(([0], np.maximum.accumulate(ends)[:-1])) if len(ends) else ends
    fresh: Indices = ends - np.maximum(starts, np.minimum(earlier_ends, ends))
    return fresh


class FileToSample(msgspec.Struct, frozen=True, gc=False):
    """A file to draw windows from."""

    key: FileKey
    group: str
    num_windows: int


def draw_from_files(files: Sequence[FileToSample], num_windows: int, seed: int) -> list[Draw]:
    """Return a draw for each file. Groups, and files in a group, contribute in proportion to their windows.

    If `num_windows` exceeds the number of windows in the files, all windows are drawn in complete passes, and only the
    remainder is sampled.
    """
    num_all = sum(file.num_windows for file in files)
    passes, num_sampled = divmod(num_windows, num_all) if num_all else (0, 0)
    members: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        members.setdefault(file.group, []).append(index)
    sizes = [sum(files[index].num_windows for index in group) for group in members.values()]
    per_group = apportion(num_sampled, sizes, [random_fraction(seed, "group", name) for name in members])
    extras = [0] * len(files)
    for group, count in zip(members.values(), per_group, strict=True):
        random_numbers = (
            [random_fraction(seed, "file", *files[index].key) for index in group] if len(group) > 1 else [1.0]
        )
        for index, extra in zip(
            group, apportion(count, [files[member].num_windows for member in group], random_numbers), strict=True
        ):
            extras[index] = extra
    return [
        Draw(passes + 1, 0, seed) if extra == file.num_windows else Draw(passes, extra, seed)
        for file, extra in zip(files, extras, strict=True)
    ]
