"""Characters that the normalization NFC leaves as they are, whatever stands beside them.

Qwen 2 normalizes text to NFC before it splits it into words. Text of such characters alone is in NFC already (UAX #15,
9.1: of class 0, and with NFC_Quick_Check=Yes), so that a card encodes it as it is. Source code is nearly all of that
kind; any other document is the CPU's.

Python's Unicode need not be the one of `tokenizers`. A newer one composes no two characters that both knew before, and
what `unicodedata` does not know is left to the CPU.
"""

import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

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
