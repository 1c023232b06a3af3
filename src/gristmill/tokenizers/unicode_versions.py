"""Find texts that gigatoken and `tokenizers` may split differently, because they use different Unicode versions.

A tokenizer's pattern tests whether a character is a letter, a number or a symbol. gigatoken uses the tables of Unicode
17.0, and `tokenizers` uses the tables of Unicode 16.0. The tables differ only for characters that were added in Unicode
17.0. tests/tokenizers/test_patterns.py verifies this.
"""

import unicodedata

UNASSIGNED = "Cn"
"""Category of a code point that is not assigned in the Unicode version of this Python."""
ASCII = bytes(range(128))
ADDED_BY_17_0 = (
    "88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE 10940-10959 "
    "10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 "
    "187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8 "
    "1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD 1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479"
)
"""Code points of the 4,803 characters added in Unicode 17.0, in hexadecimal. Python before 3.15 does not have them."""
_ADDED_RANGES = [
    range(int(first, 16), int(last or first, 16) + 1)
    for first, _, last in (one.partition("-") for one in ADDED_BY_17_0.split())
]
_in_unicode_16: set[str] = set()
"""Cache of characters that are not in ADDED_BY_17_0, so that each character is looked up only once."""


def is_within_unicode_16(utf8: bytes) -> bool:
    """Return True if the text has no character that was added in Unicode 17.0."""
    if utf8.isascii():
        return True
    characters = set(utf8.translate(None, ASCII).decode()) - _in_unicode_16
    if any(ord(character) in added for character in characters for added in _ADDED_RANGES):
        return False
    _in_unicode_16.update(characters)
    return True


def is_nfc(utf8: bytes) -> bool:
    """Return True if the text is within Unicode 16.0 and is in NFC in every version of Unicode.

    Later versions never change the normal form of an assigned character, but may change the normal form of
    an unassigned code point.
    """
    if utf8.isascii():
        return True
    characters = set(utf8.translate(None, ASCII).decode())
    return (
        is_within_unicode_16(utf8)
        and UNASSIGNED not in map(unicodedata.category, characters)
        and unicodedata.is_normalized("NFC", utf8.decode())
    )
