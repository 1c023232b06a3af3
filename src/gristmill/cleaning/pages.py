"""Texts as the rules see them. What the rules ask of many texts is measured in a few passes over all of them at once.

The texts of a batch are one buffer, each with a NUL behind it, which no text holds: so no line, run or match reaches
from one text into the next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.cleaning.encoded_data import encoded_runs, with_long_runs
from gristmill.cleaning.language_kinds import is_programming

Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

HEAD_BYTES = 4096
"""Markers of generated code are searched in this much of a text's beginning."""
LINE_FEED, CARRIAGE_RETURN, BLANK, FIRST_BEYOND_ASCII = 0x0A, 0x0D, 0x20, 0x80
NUM_LETTERS = 26


class Texts(NamedTuple):
    """Several texts in one buffer."""

    joined: bytes
    octets: Octets
    edges: Indices
    """The offset at which each text begins, and the end. The byte before each edge but the first is a NUL."""

    @classmethod
    def of(cls, texts: Sequence[bytes], separator: bytes = b"\0") -> "Texts":
        joined = separator.join((*texts, b""))
        edges = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1, out=edges[1:])
        return cls(joined, np.frombuffer(joined, np.uint8), edges)

    def number_at(self, position: int) -> int:
        """The number of the text that contains this byte."""
        return int(np.searchsorted(self.edges, position, "right")) - 1

    def with_match(self, search: Callable[[bytes, int], int]) -> Iterator[int]:
        """The texts in which something is found. `search`: where the first is from a position on; -1 where none is."""
        at = search(self.joined, 0)
        while at >= 0:
            number = self.number_at(at)
            yield number
            end = int(self.edges[number + 1])
            at = search(self.joined, end) if end < len(self.joined) else -1

    def with_any(self, words: Iterable[bytes]) -> set[int]:
        return {number for word in words for number in self.with_match(partial(_position_of, word))}


def _position_of(word: bytes, text: bytes, start: int) -> int:
    return text.find(word, start)


class Page(msgspec.Struct, frozen=True, dict=True):
    """A text as the rules see it; what several of them ask is computed once, or known from `pages_of`."""

    path: str
    """Relative, with `/`."""
    language: str
    text: bytes
    """UTF-8."""

    @cached_property
    def name(self) -> str:
        return self.path.rpartition("/")[2].lower()

    @property
    def is_program(self) -> bool:
        return is_programming(self.language)

    @cached_property
    def octets(self) -> Octets:
        return np.frombuffer(self.text, np.uint8)

    @cached_property
    def num_filled(self) -> int:
        """Bytes that are not blank: neither a space nor a control character."""
        return int(np.count_nonzero(self.octets > BLANK))

    @cached_property
    def num_letters(self) -> int:
        """ASCII letters, and every byte of a character beyond ASCII."""
        ascii_letters = int(np.count_nonzero(_is_letter(self.octets)))
        if self.text.isascii():
            return ascii_letters
        return ascii_letters + int(np.count_nonzero(self.octets >= FIRST_BEYOND_ASCII))

    @cached_property
    def line_ends(self) -> npt.NDArray[np.intp]:
        """Offsets of the line feeds, or of the carriage returns in a text without a line feed."""
        ends = np.flatnonzero(self.octets == LINE_FEED)
        return ends if len(ends) else np.flatnonzero(self.octets == CARRIAGE_RETURN)

    @cached_property
    def num_lines(self) -> int:
        ends = self.line_ends
        has_open_end = len(self.text) > (ends[-1] + 1 if len(ends) else 0)
        return len(ends) + int(has_open_end)

    @cached_property
    def mean_line(self) -> float:
        """In bytes, without the line ends."""
        return (len(self.text) - len(self.line_ends)) / self.num_lines if self.num_lines else 0.0

    @cached_property
    def longest_line(self) -> int:
        ends = self.line_ends
        if not len(ends):
            return len(self.text)
        inner = int((ends[1:] - ends[:-1]).max(initial=1)) - 1
        return max(inner, int(ends[0]), len(self.text) - int(ends[-1]) - 1)

    @cached_property
    def encoded_runs(self) -> list[int]:
        return encoded_runs(self.text, self.octets)

    @cached_property
    def may_be_generated(self) -> bool:
        """False where nothing in its head can say so."""
        return b"generated" in self.text[:HEAD_BYTES].lower()

    @cached_property
    def has_odd_name(self) -> bool:
        """False where no rule goes by its name."""
        return True


def _is_letter(octets: Octets) -> npt.NDArray[np.bool_]:
    # Small letters are 0x61..0x7A; what is below wraps around to far above 25.
    is_letter: npt.NDArray[np.bool_] = (octets | np.uint8(0x20)) - np.uint8(0x61) < NUM_LETTERS
    return is_letter


def pages_of(paths: Sequence[str], languages: Sequence[str], texts: Sequence[bytes]) -> list[Page]:
    """With what the rules ask of each, found out over all at once."""
    together = Texts.of(texts)
    lows = Texts.of([text[:HEAD_BYTES].lower() for text in texts])
    marked = lows.with_any([b"generated"])
    columns = zip(*_counts(together), *_lines(together), strict=True)
    encoded = with_long_runs(together.joined, together.octets)
    held = {together.number_at(position) for position in encoded}
    pages = []
    for number, (path, language, text) in enumerate(zip(paths, languages, texts, strict=True)):
        page = Page(path, language, text)
        filled, letters, newlines, lines, longest = next(columns)
        known = page.__dict__
        known["num_filled"] = filled
        known["may_be_generated"] = number in marked
        if text.isascii():
            known["num_letters"] = letters
        if newlines:
            known["num_lines"], known["longest_line"] = lines, longest
            known["mean_line"] = (len(text) - newlines) / lines
        if number not in held:
            known["encoded_runs"] = []
        pages.append(page)
    return pages


def _counts(texts: Texts) -> tuple[list[int], list[int]]:
    """Bytes that are not blank, and ASCII letters."""
    ranges = list(zip(texts.edges[:-1].tolist(), texts.edges[1:].tolist(), strict=True))
    is_filled, is_letter = texts.octets > BLANK, _is_letter(texts.octets)
    return (
        [int(np.count_nonzero(is_filled[start:end])) for start, end in ranges],
        [int(np.count_nonzero(is_letter[start:end])) for start, end in ranges],
    )


def _lines(texts: Texts) -> tuple[list[int], list[int], list[int]]:
    """Line feeds, lines, and the longest line."""
    ends = texts.edges[1:] - 1
    is_end = texts.octets == LINE_FEED
    is_end[ends] = True  # the NUL behind each text
    breaks = np.flatnonzero(is_end)
    lasts = np.searchsorted(breaks, ends)
    newlines = np.diff(lasts, prepend=-1) - 1
    lengths = np.diff(breaks, prepend=-1) - 1
    longest = np.maximum.reduceat(lengths, np.concatenate(([0], lasts[:-1] + 1))) if len(ends) else ends
    has_open_end = texts.octets[ends - 1] != LINE_FEED
    return newlines.tolist(), (newlines + has_open_end).tolist(), longest.tolist()
