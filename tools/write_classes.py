"""Asks `tokenizers` what every character is to its regexes, and writes classes.txt.

python tools/write_classes.py [--check]
"""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, pre_tokenizers

from gristmill.tokenizers.cuda import character_classes

TARGET = Path(character_classes.__file__).with_name(character_classes.CLASSES_FILE)
HOW = "tools/write_classes.py"
HEAD = f"# What `tokenizers` takes each character for, as {HOW} found."
REGEXES = {character_classes.LETTER: r"\p{L}", character_classes.NUMBER: r"\p{N}", character_classes.WHITESPACE: r"\s"}
SCALARS = np.array([*range(0xD800), *range(0xE000, character_classes.NUM_CODE_POINTS)])
Matches = npt.NDArray[np.bool_]


def main() -> None:
    wanted = "\n".join((HEAD, *runs(probed_classes()))) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(wanted, encoding="ascii")
    elif TARGET.read_text("ascii") != wanted:
        differing = {*wanted.splitlines()} ^ {*TARGET.read_text("ascii").splitlines()}
        engine = f"tokenizers {version('tokenizers')}"
        sys.exit(f"{TARGET} is not what {engine} says, as in {min(differing)!r}; run {HOW}")


def probed_classes() -> character_classes.Classes:
    probed = np.zeros(character_classes.NUM_CODE_POINTS, np.uint8)
    probed[SCALARS[are_digits()]] = character_classes.NEWER_NUMBER
    for class_, regex in REGEXES.items():
        probed[SCALARS[are_matched(regex)]] = class_
    return probed


def are_matched(regex: str) -> Matches:
    """Of all scalars, in order: what is left when the matches are taken out is not matched."""
    matched = np.ones(len(SCALARS), np.bool_)
    left = pre_tokenizers.Split(Regex(regex), "removed").pre_tokenize_str(spelled(SCALARS))
    for _, (start, end) in left:
        matched[start:end] = False
    return matched


def are_digits() -> Matches:
    """Of all scalars, in order: Digits splits one off that stands between letters."""
    digits = np.zeros(len(SCALARS), np.bool_)
    between = np.full((len(SCALARS), 3), ord("a"))
    between[:, 1] = SCALARS
    for _, (start, end) in pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(spelled(between)):
        if end - start == 1 and start % 3 == 1:
            digits[start // 3] = True
    return digits


def spelled(points: npt.NDArray[np.int_]) -> str:
    return points.astype("<u4").tobytes().decode("utf-32-le")


def runs(probed: character_classes.Classes) -> Iterator[str]:
    names = {class_: name for name, class_ in character_classes.NAMES.items()}
    starts = np.flatnonzero(np.diff(probed, prepend=255))
    ends = np.append(starts[1:], len(probed))
    for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if probed[first] != character_classes.OTHER:
            yield f"{first:x} {end - 1:x} {names[int(probed[first])]}"


if __name__ == "__main__":
    main()
