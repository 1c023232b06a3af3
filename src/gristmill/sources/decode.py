"""Decode the bytes of a file to text.

The encoding must be UTF-8, UTF-16 with a byte order mark, or, if the bytes are clearly text, Latin-1 or Windows-1252.
"""

from typing import NamedTuple

import numpy as np

from gristmill.core.names import counted

UTF8_BOM = b"\xef\xbb\xbf"
UTF16_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
# Control characters that occur in text files: tab, line feed, vertical tab, form feed, carriage return, escape.
TEXT_CONTROLS = b"\t\n\x0b\x0c\r\x1b"
OTHER_CONTROLS = bytes(sorted({*range(0x20), 0x7F} - set(TEXT_CONTROLS)))
# Western text contains few bytes outside ASCII, alone or in pairs. Text in a multi-byte encoding contains many such
# bytes, in long runs.
MAX_HIGH_FRACTION = 0.3
MAX_MEAN_HIGH_RUN = 2.0


class Decoded(NamedTuple):
    text: bytes
    """UTF-8, without a byte order mark."""
    encoding: str
    """`text.decode().encode(encoding)` gives the bytes of the file, except the byte order mark of a UTF-16 file."""


def decode(raw: bytes) -> Decoded | str:
    """Decode the bytes of a file. Return a description of the defect if they are not text."""
    if raw[:2] in UTF16_BOMS:
        return _decode_utf16(raw[2:], UTF16_BOMS[raw[:2]])
    if b"\0" in raw:
        return "contains NUL bytes"
    has_bom = raw.startswith(UTF8_BOM)
    body = raw.removeprefix(UTF8_BOM)
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if has_bom:
            return f"begins with the byte order mark of UTF-8, but is not UTF-8 at offset {error.start + len(UTF8_BOM)}"
        return _decode_western(raw, error.start)
    return Decoded(body, "utf-8-sig" if has_bom else "utf-8")


def _decode_utf16(body: bytes, encoding: str) -> Decoded | str:
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        return f"begins with the byte order mark of {encoding.upper()}, but is not valid {encoding.upper()}"
    return "contains NUL characters" if "\0" in text else Decoded(text.encode("utf-8"), encoding)


def _decode_western(raw: bytes, bad_utf8_at: int) -> Decoded | str:
    defect = f"not UTF-8 (at offset {bad_utf8_at}) and not clearly Latin-1"
    num_controls = len(raw) - len(raw.translate(None, OTHER_CONTROLS))
    if num_controls:
        return f"{defect}: contains {counted(num_controls, 'control character')}"
    is_high = np.frombuffer(raw, np.uint8) >= 0x80  # noqa: PLR2004
    num_high = int(np.count_nonzero(is_high))
    num_runs = int(np.count_nonzero(is_high[1:] & ~is_high[:-1])) + int(is_high[0])
    if num_high > MAX_HIGH_FRACTION * len(raw) or num_high > MAX_MEAN_HIGH_RUN * num_runs:
        return f"{defect}: {num_high} of {len(raw)} bytes are not ASCII, in {counted(num_runs, 'run')}"
    encoding = "cp1252" if any(0x80 <= byte <= 0x9F for byte in set(raw)) else "latin-1"  # noqa: PLR2004
    try:
        return Decoded(raw.decode(encoding).encode("utf-8"), encoding)
    except UnicodeDecodeError:
        return f"{defect}: contains bytes that are undefined in Windows-1252"
