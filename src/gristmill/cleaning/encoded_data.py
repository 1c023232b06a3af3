"""Data dressed as code: runs of base64, hex digits or escapes, in one piece or one to a line.

A piece is 56 characters or more without a blank or a quote. What is looked at closely is only what a search for such
pieces strikes, at the speed of a few passes in C, where a regular expression would go character by character.
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]

# What encoded data is made of: base64 in both alphabets, hex digits, the backslash of escapes. 56: `xxd -p` writes 60
# a line, PEM 64, MIME 76.
PIECE_BYTES = 56
UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = UPPER.lower()
DIGITS = b"0123456789"
HEX_DIGITS = DIGITS + b"abcdefABCDEF"
PIECE_CLASS = bytes(byte in UPPER + LOWER + DIGITS + b"+/_-\\" for byte in range(256))
PIECE_LEAST = ord("+")
PIECE = b"\1" * PIECE_BYTES
PACKED_PIECE = b"\xff" * (PIECE_BYTES // 8 - 1)
# Between the pieces of one run: a line end and what continues a text. No comma: a list of digests is not one run.
BETWEEN_PIECES = b" \t\r\n\"'`+.=;#*/\\()&bBrRuU"
BETWEEN_BYTES = 40
ESCAPE = re.compile(rb"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-7]{3})")
# Small letters come in runs of 1.4 to 1.7 in base64 (of programs, code, English, noise), of 5.9 in camelCase names.
BASE64_MEAN_LOWER = 2.5
LEAST_LETTERS = 0.05
LEAST_DIGITS = 0.01
LOWER_ALONE = bytes(byte if byte in LOWER else 0x20 for byte in range(256))
# "0x1f, 0x8b, …" as `xxd -i` writes. Fewer are a table that people write: an S-box has 256.
BYTE_TABLE = re.compile(rb"0x[0-9a-fA-F]{2}\b(?:[,\s]+0x[0-9a-fA-F]{2}\b)+")
BYTE_TABLE_ENTRIES = 256
BYTE_TABLE_SAMPLE = 4
CHARACTERS_PER_ENTRY = 2


def encoded_runs(text: bytes, octets: Octets) -> list[int]:
    """The length of every run of base64, hex digits or escapes, without what stands between its pieces."""
    runs = [len(run) for run in _joined_pieces(text, octets) if _looks_encoded(run)]
    return [*runs, *_byte_tables(text, octets)]


def with_long_runs(joined: bytes, octets: Octets) -> Iterator[int]:
    """Positions in several texts, each with a NUL behind it: a text with none of them in it has no run."""
    for start, _ in _pieces(joined, octets):
        yield start
    is_entry = np.flatnonzero((octets[1:] == ord("x")) & (octets[:-1] == ord("0")))
    if len(is_entry) >= BYTE_TABLE_ENTRIES:
        # A table has that many entries, so it is in the text of one of every so many.
        yield from is_entry[BYTE_TABLE_ENTRIES - 1 :: BYTE_TABLE_ENTRIES].tolist()


def _joined_pieces(text: bytes, octets: Octets) -> Iterator[bytes]:
    """Pieces on neighbouring lines are one."""
    pieces: list[bytes] = []
    last_end = 0
    for start, end in _pieces(text, octets):
        if pieces and not _are_joined(text, last_end, start):
            yield b"".join(pieces)
            pieces.clear()
        pieces.append(text[start:end])
        last_end = end
    if pieces:
        yield b"".join(pieces)


def _pieces(text: bytes, octets: Octets) -> Iterator[tuple[int, int]]:
    # Blanks, quotes and round brackets are all below "+", and ordinary code has hardly 56 bytes without one.
    for start, end in _unbroken(octets >= PIECE_LEAST):
        classes = text[start:end].translate(PIECE_CLASS)
        first = classes.find(PIECE)
        while first >= 0:
            last = _find_zero(classes, first)
            yield start + first, start + last
            first = classes.find(PIECE, last)


def _unbroken(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Every stretch of PIECE_BYTES or more, and some a little shorter.

    Packed as bits, such a stretch has six full bytes in a row, which a search for bytes finds.
    """
    packed = np.packbits(mask).tobytes()
    at = packed.find(PACKED_PIECE)
    flags = mask.tobytes() if at >= 0 else b""
    while at >= 0:
        end = _find_zero(flags, at * 8)
        yield flags.rfind(b"\0", 0, at * 8) + 1, end
        at = packed.find(PACKED_PIECE, end // 8)


def _find_zero(flags: bytes, start: int) -> int:
    at = flags.find(b"\0", start)
    return at if at >= 0 else len(flags)


def _are_joined(text: bytes, end: int, start: int) -> bool:
    between = text[end : min(start, end + BETWEEN_BYTES + 1)]
    return len(between) <= BETWEEN_BYTES and not between.translate(None, BETWEEN_PIECES)


def _looks_encoded(run: bytes) -> bool:
    """Escapes make up half of it; or all are hex digits, of both kinds; or it is mixed as base64 is.

    Base64: letters of both cases and digits, small letters never long enough together for a word.
    """
    if b"\\" in run and sum(map(len, ESCAPE.findall(run))) * 2 >= len(run):
        return True
    run = run.removeprefix(b"0x")
    letters = run.translate(None, DIGITS)
    num_digits = len(run) - len(letters)
    if num_digits < LEAST_DIGITS * len(run):
        return False
    if not letters.translate(None, HEX_DIGITS + b"\\"):
        return len(letters) >= LEAST_LETTERS * len(run)
    num_upper = len(run) - len(run.translate(None, UPPER))
    num_lower = len(run) - len(run.translate(None, LOWER))
    num_words = len(run.translate(LOWER_ALONE).split())
    return min(num_upper, num_lower) >= LEAST_LETTERS * len(run) and num_lower < BASE64_MEAN_LOWER * num_words


def _byte_tables(text: bytes, octets: Octets) -> list[int]:
    """Two characters an entry, whatever stands between them: 512 for an S-box, which stays."""
    # A table of 256 entries takes 1,279 bytes at least, so it covers the beginning of a row of 512: ten entries of it.
    num_rows = len(octets) // 512
    beginnings = octets[: num_rows * 512].reshape(num_rows, 512)[:, :64].tobytes()
    if beginnings.count(b"0x") < BYTE_TABLE_SAMPLE:
        return []
    entries = (table[0].count(b"0x") for table in BYTE_TABLE.finditer(text))
    return [CHARACTERS_PER_ENTRY * count for count in entries if count >= BYTE_TABLE_ENTRIES]
