"""Load the class of each character: letter, number, whitespace or other. Classes decide where a word starts.

The classes match the regex engine in `tokenizers`. Python's classes differ: the regex engine has a newer Unicode
version and does not treat U+001C to U+001F as whitespace. tools/write_classes.py queries the engine for every character
and writes classes.txt, one range per line, such as `41 5a letter`. tests/tokenizers/cuda/test_word_starts.py verifies
the file.
"""

import unicodedata
from collections.abc import Iterable
from importlib import resources

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.patterns import Pattern

UNUSABLE_CATEGORIES = {"Cn", "Cs"}
"""Categories of unassigned code points and of surrogates."""


def stable_code_points() -> npt.NDArray[np.uint32]:
    """Return the characters that NFC leaves unchanged, regardless of the characters around them."""
    characters = [one for one in map(chr, range(0x110000)) if unicodedata.category(one) not in UNUSABLE_CATEGORIES]
    unchanged = [one for one in characters if unicodedata.normalize("NFC", one) == one]
    composable = _composable(unchanged)
    stable = [ord(one) for one in unchanged if not unicodedata.combining(one) and one not in composable]
    return np.array(stable, np.uint32)


def _composable(composed: Iterable[str]) -> set[str]:
    """Return the characters that NFC may compose with a preceding character, such as U+0301 in é and Hangul vowels."""
    return {later for one in composed for later in unicodedata.normalize("NFD", one)[1:]}


Classes = npt.NDArray[np.uint8]

NUM_CODE_POINTS = 0x110000
OTHER, LETTER, NUMBER, WHITESPACE = 0, 1, 2, 3
NEWER_NUMBER = 4
"""Class in classes.txt of characters that are numbers for the pre-tokenizer Digits but not for the regex engine."""
NAMES = {"letter": LETTER, "number": NUMBER, "whitespace": WHITESPACE, "newer_number": NEWER_NUMBER}
LEFT_TO_CPU = 5
"""Class of characters that NFC may change or compose, if the tokenizer normalizes text to NFC.

The kernels also give this class to bytes that are not valid UTF-8.
"""
CLASSES_FILE = "classes.txt"


def character_classes(pattern: Pattern) -> Classes:
    """Return the class of each code point. UTF-8 cannot encode surrogates, so their class has no effect."""
    classes = np.zeros(NUM_CODE_POINTS, np.uint8)
    for line in resources.files(__package__).joinpath(CLASSES_FILE).read_text("ascii").splitlines():
        if not line.startswith("#"):
            first, last, name = line.split()
            classes[int(first, 16) : int(last, 16) + 1] = NAMES[name]
    classes[classes == NEWER_NUMBER] = NUMBER if pattern.digits == "apart" else OTHER
    return _with_nfc(classes) if pattern.with_nfc else classes


def _with_nfc(classes: Classes) -> Classes:
    left_to_cpu = np.full_like(classes, LEFT_TO_CPU)
    stable = stable_code_points()
    left_to_cpu[stable] = classes[stable]
    return left_to_cpu
