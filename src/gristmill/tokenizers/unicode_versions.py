"""Find texts that gigatoken and `tokenizers` may split differently: the two have different versions of Unicode.

A tokenizer's pattern asks whether a character is a letter, a number or a sign. gigatoken's tables are of Unicode 17.0,
those of `tokenizers` of 16.0: about the characters that 17.0 added, and about no others, they answer differently.
(tests/tokenizers/test_patterns.py asks both about every character.)
"""

import unicodedata

UNASSIGNED = "Cn"
"""The category of a code point that is no character yet, in the Unicode of this Python."""
ASCII = bytes(range(128))
ADDED_BY_17_0 = (
    "88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 FDC8-FDCE 10940-10959 "
    "10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB 11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 "
    "187F8-187FF 18D09-18D1E 18D80-18DF2 1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8 "
    "1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD 1FAEA 1FAEF 1FBFA 2B73A-2B73F 2CEA2-2CEAD 323B0-33479"
)
"""4,803 characters; Python knows them from 3.15 on."""
_ADDED = [
    range(int(first, 16), int(last or first, 16) + 1)
    for first, _, last in (one.partition("-") for one in ADDED_BY_17_0.split())
]
_settled: set[str] = set()
"""Characters found to be older, so that each is looked up once."""


def is_settled(utf8: bytes) -> bool:
    """Return True if the text has no character that 17.0 added."""
    if utf8.isascii():
        return True
    rare = set(utf8.translate(None, ASCII).decode()) - _settled
    if any(ord(one) in some for one in rare for some in _ADDED):
        return False
    _settled.update(rare)
    return True


def is_nfc(utf8: bytes) -> bool:
    """Return True if the text is settled and NFC leaves it unchanged in every version of Unicode.

    An assigned character keeps its normal form in later versions; an unassigned one may get any.
    """
    if utf8.isascii():
        return True
    rare = set(utf8.translate(None, ASCII).decode())
    return (
        is_settled(utf8)
        and UNASSIGNED not in map(unicodedata.category, rare)
        and unicodedata.is_normalized("NFC", utf8.decode())
    )
