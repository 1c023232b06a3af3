"""The lines of a text, and which of them begin inside a token."""

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from gristmill.shaping.variants.commenting.comments import HAS_CONTINUATIONS, HAS_PREPROCESSOR
from gristmill.shaping.variants.edits import Span
from gristmill.shaping.variants.grammars import Parsed
from gristmill.shaping.variants.long_tokens import COMMENTS, STRINGS, long_tokens

FREE, IN_COMMENT, FROZEN = range(3)
"""What may change of a line: all of its blanks, its indent, nothing."""

RUST_DOCUMENTATION = (b"/**", b"/*!")
"""To Rust an attribute, whose value is every byte of it."""


class Lines(NamedTuple):
    texts: list[bytes]
    """Without line feeds, with carriage returns."""
    kinds: bytearray
    """One of FREE, IN_COMMENT, FROZEN for each."""

    def starts(self) -> list[int]:
        """Of each line in the text, and the end."""
        return [0, *accumulate(len(text) + 1 for text in self.texts)]

    def with_text(self, text: bytes) -> "Lines":
        """One with as many bytes in as many lines."""
        return Lines(text.split(b"\n"), self.kinds)


def lines_of(parsed: Parsed) -> Lines:
    texts = parsed.text.split(b"\n")
    kinds = bytearray(len(texts))
    lines = Lines(texts, kinds)
    starts = lines.starts()
    for span in long_tokens(parsed, COMMENTS[parsed.language]):
        is_documentation = parsed.language == "rust" and parsed.text.startswith(RUST_DOCUMENTATION, span.start)
        _mark(kinds, starts, span, FROZEN if is_documentation else IN_COMMENT)
    for span in long_tokens(parsed, STRINGS[parsed.language]):
        _mark(kinds, starts, span, FROZEN)
    if parsed.language in HAS_CONTINUATIONS:
        _mark_continuations(texts, kinds, FROZEN if parsed.language in HAS_PREPROCESSOR else IN_COMMENT)
    return lines


def _mark(kinds: bytearray, starts: list[int], span: Span, kind: int) -> None:
    """The lines that begin inside: the last byte of a span may be its line feed."""
    first, last = bisect_right(starts, span.start), bisect_right(starts, span.end - 1)
    kinds[first:last] = bytes([kind]) * (last - first)


def _mark_continuations(texts: list[bytes], kinds: bytearray, kind: int) -> None:
    for row, text in enumerate(texts[:-1], start=1):
        if b"\\" in text[-3:] and text.rstrip().endswith(b"\\"):
            kinds[row] = max(kind, kinds[row])
