"""Find encoded data in source code: runs of base64, hex digits or escapes, and tables of bytes such as `0x1f, 0x8b`.

A run may extend over several lines. It consists of pieces. A piece is a sequence of 56 or more characters of encoded
data. The search for pieces takes a few passes in C, whereas a regular expression would examine every character in turn.
Only the pieces are examined more closely.
"""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]

# The minimum length of a piece is below the line lengths of `xxd -p` (60), PEM (64) and MIME (76). A piece consists of
# the characters of both base64 alphabets, which include hex digits, and the backslash of escapes.
MIN_PIECE_BYTES = 56
UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LOWER = UPPER.lower()
DIGITS = b"0123456789"
HEX_DIGITS = DIGITS + b"abcdefABCDEF"
IS_PIECE_BYTE = bytes(byte in UPPER + LOWER + DIGITS + b"+/_-\\" for byte in range(256))
LOWEST_PIECE_BYTE = ord("+")
PIECE = b"\1" * MIN_PIECE_BYTES
PACKED_PIECE = b"\xff" * (MIN_PIECE_BYTES // 8 - 1)
# Characters allowed between the pieces of one run: line ends and syntax that continues a string literal. A comma is not
# allowed, so that a list of digests is not one run.
GAP_CHARACTERS = b" \t\r\n\"'`+.=;#*/\\()&bBrRuU"
MAX_GAP_BYTES = 40
ESCAPE = re.compile(rb"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-7]{3})")
# Runs of lowercase letters have a mean length of 1.4 to 1.7 in base64 (of executables, source code, English or noise),
# and of 5.9 in camelCase names.
MAX_MEAN_LOWER_RUN = 2.5
MIN_LETTER_FRACTION = 0.05
MIN_DIGIT_FRACTION = 0.01
KEEP_LOWER = bytes(byte if byte in LOWER else 0x20 for byte in range(256))
# A table such as "0x1f, 0x8b, …", as `xxd -i` writes it. Tables with fewer than MIN_TABLE_ENTRIES entries are mostly
# written by people.
BYTE_TABLE = re.compile(rb"0x[0-9a-fA-F]{2}\b(?:[,\s]+0x[0-9a-fA-F]{2}\b)+")
MIN_TABLE_ENTRIES = 256
MIN_SAMPLED_ENTRIES = 4
BYTES_PER_ENTRY = 2


def encoded_runs(text: bytes, octets: Octets) -> list[int]:
    """Return the length of each run, not counting the gaps between its pieces, and of each byte table."""
    runs = [len(run) for run in _iter_runs(text, octets) if _looks_encoded(run)]
    return [*runs, *_table_lengths(text, octets)]


def candidate_positions(joined: bytes, octets: Octets) -> Iterator[int]:
    """Yield positions that may be in a run or byte table. A text without such a position has none.

    `joined` are texts that are each followed by a NUL.
    """
    for start, _ in _iter_pieces(joined, octets):
        yield start
    entries = np.flatnonzero((octets[1:] == ord("x")) & (octets[:-1] == ord("0")))
    if len(entries) >= MIN_TABLE_ENTRIES:
        # A table has MIN_TABLE_ENTRIES or more entries, so this step size skips no table.
        yield from entries[MIN_TABLE_ENTRIES - 1 :: MIN_TABLE_ENTRIES].tolist()


def _iter_runs(text: bytes, octets: Octets) -> Iterator[bytes]:
    """Yield the runs. Pieces with only a short gap between them form one run."""
    pieces: list[bytes] = []
    last_end = 0
    for start, end in _iter_pieces(text, octets):
        if pieces and not _continues_run(text, last_end, start):
            yield b"".join(pieces)
            pieces.clear()
        pieces.append(text[start:end])
        last_end = end
    if pieces:
        yield b"".join(pieces)


def _iter_pieces(text: bytes, octets: Octets) -> Iterator[tuple[int, int]]:
    # Whitespace, quotes and parentheses are all below "+". Ordinary code rarely has 56 bytes without one of them.
    for start, end in _iter_long_spans(octets >= LOWEST_PIECE_BYTE):
        flags = text[start:end].translate(IS_PIECE_BYTE)
        first = flags.find(PIECE)
        while first >= 0:
            last = _find_zero(flags, first)
            yield start + first, start + last
            first = flags.find(PIECE, last)


def _iter_long_spans(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every run of MIN_PIECE_BYTES or more true flags, and of some slightly shorter runs.

    Packed as bits, such a run contains six 0xFF bytes in a row, which a byte search finds.
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


def _continues_run(text: bytes, end: int, start: int) -> bool:
    gap = text[end : min(start, end + MAX_GAP_BYTES + 1)]
    return len(gap) <= MAX_GAP_BYTES and not gap.translate(None, GAP_CHARACTERS)


def _looks_encoded(run: bytes) -> bool:
    """Return True if the run is at least half escapes, is all hex digits, or has the character mix of base64.

    Hex must contain both digits and letters. Base64 contains digits and letters of both cases, and its runs of
    lowercase letters are too short for words.
    """
    if b"\\" in run and sum(map(len, ESCAPE.findall(run))) * 2 >= len(run):
        return True
    run = run.removeprefix(b"0x")
    letters = run.translate(None, DIGITS)
    num_digits = len(run) - len(letters)
    if num_digits < MIN_DIGIT_FRACTION * len(run):
        return False
    if not letters.translate(None, HEX_DIGITS + b"\\"):
        return len(letters) >= MIN_LETTER_FRACTION * len(run)
    num_upper = len(run) - len(run.translate(None, UPPER))
    num_lower = len(run) - len(run.translate(None, LOWER))
    num_lower_runs = len(run.translate(KEEP_LOWER).split())
    return (
        min(num_upper, num_lower) >= MIN_LETTER_FRACTION * len(run) and num_lower < MAX_MEAN_LOWER_RUN * num_lower_runs
    )


def _table_lengths(text: bytes, octets: Octets) -> list[int]:
    """Return the length of each byte table, counting two bytes per entry: 256 entries have a length of 512."""
    # A table of 256 entries takes at least 1,279 bytes. If the text is divided into rows of 512 bytes, the table covers
    # the first 64 bytes of at least one row, and these contain about ten entries.
    num_rows = len(octets) // 512
    beginnings = octets[: num_rows * 512].reshape(num_rows, 512)[:, :64].tobytes()
    if beginnings.count(b"0x") < MIN_SAMPLED_ENTRIES:
        return []
    entries = (table[0].count(b"0x") for table in BYTE_TABLE.finditer(text))
    return [BYTES_PER_ENTRY * count for count in entries if count >= MIN_TABLE_ENTRIES]
