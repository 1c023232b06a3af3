"""Which windows of a file are drawn, by the seed alone; and how often a file may be shown."""

import hashlib
from collections.abc import Iterator

from gristmill.checking.tables import KeptFile
from gristmill.naming import counted
from gristmill.records import Split

BITS = (1 << 64) - 1


def drawn_numbers(num_windows: int, num_drawn: int, seed: int, key: tuple[str, str]) -> list[int]:
    """Those with the smallest numbers, in order."""
    named = "\0".join((str(seed), *key)).encode()
    state = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")
    numbers = [_mixed(state + (number + 1) * 0x9E3779B97F4A7C15) for number in range(num_windows)]
    return sorted(sorted(range(num_windows), key=lambda number: (numbers[number], number))[:num_drawn])


def _mixed(number: int) -> int:
    number &= BITS
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & BITS
    number = (number ^ number >> 27) * 0x94D049BB133111EB & BITS
    return number ^ number >> 31


def wrong_shares(file: KeptFile, max_epochs: int) -> Iterator[str]:
    """Held-out files are never shown twice, train files no more often than the settings say."""
    passes, num_drawn = file.draw or (1, 0)
    times = passes + (num_drawn > 0)
    if file.split is not Split.TRAIN and times > 1:
        yield f"held out, and shown {times} times"
    elif times > max_epochs:
        yield f"shown {counted(times, 'time')}, where max_epochs is {max_epochs}"
    if file.split is not Split.TRAIN and file.weight != 1:
        yield f"held out, with a weight of {file.weight:g}"
