"""Write classes.txt: the class of every character (letter, number or whitespace) according to the library `tokenizers`.

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
SCRIPT = "tools/write_classes.py"
HEAD = f"# Class of each character in `tokenizers`, written by {SCRIPT}."
REGEXES = {character_classes.LETTER: r"\p{L}", character_classes.NUMBER: r"\p{N}", character_classes.WHITESPACE: r"\s"}
SCALARS = np.array([*range(0xD800), *range(0xE000, character_classes.NUM_CODE_POINTS)])
Matches = npt.NDArray[np.bool_]


def main() -> None:
    expected = "\n".join((HEAD, *class_lines(probed_classes()))) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(expected, encoding="ascii")
    elif TARGET.read_text("ascii") != expected:
        differing = {*expected.splitlines()} ^ {*TARGET.read_text("ascii").splitlines()}
        engine = f"tokenizers {version('tokenizers')}"
        sys.exit(f"{TARGET} differs from {engine}, for example in {min(differing)!r}. Run {SCRIPT}.")


def probed_classes() -> character_classes.Classes:
    probed = np.zeros(character_classes.NUM_CODE_POINTS, np.uint8)
    probed[SCALARS[digits_of()]] = character_classes.NEWER_NUMBER
    for class_, regex in REGEXES.items():
        probed[SCALARS[matches_of(regex)]] = class_
    return probed


def matches_of(regex: str) -> Matches:
    """Return, for each of SCALARS, whether the regex matches it.

    `tokenizers` removes the characters that match, so the remaining characters do not match.
    """
    matched = np.ones(len(SCALARS), np.bool_)
    remaining = pre_tokenizers.Split(Regex(regex), "removed").pre_tokenize_str(to_text(SCALARS))
    for _, (start, end) in remaining:
        matched[start:end] = False
    return matched


def digits_of() -> Matches:
    """Return, for each of SCALARS, whether the pre-tokenizer Digits splits it from adjacent letters."""
    digits = np.zeros(len(SCALARS), np.bool_)
    between_letters = np.full((len(SCALARS), 3), ord("a"))
    between_letters[:, 1] = SCALARS
    for _, (start, end) in pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(to_text(between_letters)):
        if end - start == 1 and start % 3 == 1:
            digits[start // 3] = True
    return digits


def to_text(points: npt.NDArray[np.int_]) -> str:
    return points.astype("<u4").tobytes().decode("utf-32-le")


def class_lines(probed: character_classes.Classes) -> Iterator[str]:
    """Yield a line for each run of characters with the same class: first character, last character and class name."""
    names = {class_: name for name, class_ in character_classes.NAMES.items()}
    starts = np.flatnonzero(np.diff(probed, prepend=255))
    ends = np.append(starts[1:], len(probed))
    for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if probed[first] != character_classes.OTHER:
            yield f"{first:x} {end - 1:x} {names[int(probed[first])]}"


if __name__ == "__main__":
    main()
