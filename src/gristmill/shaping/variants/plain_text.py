"""Texts that may be written differently: everybody counts their lines alike, and they do not read themselves."""

from gristmill.shaping.variants.grammars import Parsed
from gristmill.shaping.variants.treeshape import is_hard_to_query

LINE_SEPARATORS = (b"\0", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""NUL, U+2028 and U+2029: what follows them is a new line or the end to some readers and not to others."""

READS_ITSELF = {"python": (b"lineno", b"getsource", b"getcomments", b"linecache")}
"""A program with one of these in it may see its own lines."""

FAR = 200
"""Bytes: a backslash with more blanks than this behind it is taken to be there."""


def may_be_rewritten(parsed: Parsed) -> bool:
    """Lone carriage returns end a line for Python and JavaScript, and a comment for no grammar."""
    text = parsed.text
    if text.count(b"\r") != text.count(b"\r\n") or any(separator in text for separator in LINE_SEPARATORS):
        return False
    return (
        _is_utf8(text)
        and not is_hard_to_query(parsed)
        and not any(word in text for word in READS_ITSELF.get(parsed.language, ()))
    )


def goes_on(text: bytes, line_start: int) -> bool:
    """Whether a backslash ended the line before: blanks behind it are none to some compilers."""
    before = text[max(0, line_start - FAR) : max(0, line_start - 1)]
    line = before[before.rfind(b"\n") + 1 :].rstrip()
    is_all_blanks = not line and len(before) == FAR - 1 and b"\n" not in before
    return is_all_blanks or line.endswith((b"\\", b"??/"))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
