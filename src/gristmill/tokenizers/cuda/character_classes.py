"""What each character is to the regexes that split text into words: a letter, a number, whitespace, or other.

The classes are those of the engine inside `tokenizers`, not Python's: its Unicode is newer, and U+001C to U+001F are no
whitespace there. tools/write_classes.py asks it about every character and writes classes.txt, one run a line;
tests/tokenizers/cuda/test_word_starts.py asks it again.

    41 5a letter
"""

import unicodedata
from collections.abc import Iterable
from importlib import resources

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.patterns import Pattern

# Characters that the normalization NFC leaves as they are, whatever stands beside them.

NO_CHARACTERS = {"Cn", "Cs"}
"""The categories of what is not assigned, and of surrogates."""


def stable_code_points() -> npt.NDArray[np.uint32]:
    characters = [one for one in map(chr, range(0x110000)) if unicodedata.category(one) not in NO_CHARACTERS]
    unchanged = [one for one in characters if unicodedata.normalize("NFC", one) == one]
    joining = _joining(unchanged)
    stable = [ord(one) for one in unchanged if not unicodedata.combining(one) and one not in joining]
    return np.array(stable, np.uint32)


def _joining(composed: Iterable[str]) -> set[str]:
    """What may become one with a character before it: U+0301 of é, and the vowels of Hangul's syllables."""
    return {later for one in composed for later in unicodedata.normalize("NFD", one)[1:]}


Classes = npt.NDArray[np.uint8]

NUM_CODE_POINTS = 0x110000
OTHER, LETTER, NUMBER, WHITESPACE = 0, 1, 2, 3
NEWER_NUMBER = 4
"""In the file alone: a number to the pre-tokenizer Digits, whose Unicode is newer, and other to a regex."""
NAMES = {"letter": LETTER, "number": NUMBER, "whitespace": WHITESPACE, "newer_number": NEWER_NUMBER}
LEFT_TO_CPU = 5
"""Where text is normalized: a character that this may change, or that may change its neighbours."""
CLASSES_FILE = "classes.txt"


def character_classes(pattern: Pattern) -> Classes:
    """The class of each code point. Surrogates, which no UTF-8 spells, are other."""
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
