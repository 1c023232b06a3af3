"""Measure the texts of a batch for the rules, in a few passes over all texts at once.

The texts of a batch are joined into one buffer, each followed by a NUL. No text contains a NUL, so no line, run or
match extends from one text into the next.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.cleaning.encoded_data import candidate_positions, encoded_runs
from gristmill.cleaning.language_kinds import is_programming

Octets = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

HEAD_BYTES = 4096
"""Number of bytes at the start of a text that are searched for markers of generated code."""
LINE_FEED, CARRIAGE_RETURN, SPACE, FIRST_NON_ASCII = 0x0A, 0x0D, 0x20, 0x80
NUM_LETTERS = 26


class Texts(NamedTuple):
    """Several texts, joined into one buffer."""

    joined: bytes
    octets: Octets
    edges: Indices
    """Start offset of each text, and the end of the buffer. A separator precedes each edge except the first."""

    @classmethod
    def of(cls, texts: Sequence[bytes], separator: bytes = b"\0") -> "Texts":
        joined = separator.join((*texts, b""))
        edges = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + 1, out=edges[1:])
        return cls(joined, np.frombuffer(joined, np.uint8), edges)

    def index_at(self, position: int) -> int:
        """Return the index of the text that contains the byte at this position."""
        return int(np.searchsorted(self.edges, position, "right")) - 1

    def indices_with_match(self, search: Callable[[bytes, int], int]) -> Iterator[int]:
        """Yield the indices of texts with a match. `search` returns the position of the next match, or -1."""
        at = search(self.joined, 0)
        while at >= 0:
            index = self.index_at(at)
            yield index
            end = int(self.edges[index + 1])
            at = search(self.joined, end) if end < len(self.joined) else -1

    def indices_with_any(self, words: Iterable[bytes]) -> set[int]:
        return {index for word in words for index in self.indices_with_match(partial(_find_word, word))}


def _find_word(word: bytes, text: bytes, start: int) -> int:
    return text.find(word, start)


class Page(msgspec.Struct, frozen=True, dict=True):
    """A text and its measures for the rules. `measure_pages` sets some of them. The rest are computed on first use."""

    path: str
    """Path relative to the source, separated by `/`."""
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
    def num_visible(self) -> int:
        """Number of bytes other than spaces and control characters."""
        return int(np.count_nonzero(self.octets > SPACE))

    @cached_property
    def num_letters(self) -> int:
        """Number of ASCII letters and of bytes in non-ASCII characters."""
        ascii_letters = int(np.count_nonzero(_is_letter(self.octets)))
        if self.text.isascii():
            return ascii_letters
        return ascii_letters + int(np.count_nonzero(self.octets >= FIRST_NON_ASCII))

    @cached_property
    def line_ends(self) -> npt.NDArray[np.intp]:
        """Offsets of the line feeds, or of the carriage returns if there are no line feeds."""
        ends = np.flatnonzero(self.octets == LINE_FEED)
        return ends if len(ends) else np.flatnonzero(self.octets == CARRIAGE_RETURN)

    @cached_property
    def num_lines(self) -> int:
        ends = self.line_ends
        has_open_end = len(self.text) > (ends[-1] + 1 if len(ends) else 0)
        return len(ends) + int(has_open_end)

    @cached_property
    def mean_line(self) -> float:
        """Mean line length in bytes, without line ends."""
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
        """False if the start of the text cannot contain a marker of generated code."""
        return b"generated" in self.text[:HEAD_BYTES].lower()

    @cached_property
    def has_suspect_name(self) -> bool:
        """False if no rule can match the name or folder."""
        return True


def _is_letter(octets: Octets) -> npt.NDArray[np.bool_]:
    # Lowercase letters are 0x61 to 0x7A. Smaller values wrap around to far above 25.
    is_letter: npt.NDArray[np.bool_] = (octets | np.uint8(0x20)) - np.uint8(0x61) < NUM_LETTERS
    return is_letter


def measure_pages(paths: Sequence[str], languages: Sequence[str], texts: Sequence[bytes]) -> list[Page]:
    """Return a page for each text, with the measures that can be computed for all texts at once."""
    joined = Texts.of(texts)
    heads = Texts.of([text[:HEAD_BYTES].lower() for text in texts])
    with_marker = heads.indices_with_any([b"generated"])
    columns = zip(*_count_bytes(joined), *_measure_lines(joined), strict=True)
    positions = candidate_positions(joined.joined, joined.octets)
    with_runs = {joined.index_at(position) for position in positions}
    pages = []
    for index, (path, language, text) in enumerate(zip(paths, languages, texts, strict=True)):
        page = Page(path, language, text)
        num_visible, num_letters, num_line_feeds, num_lines, longest = next(columns)
        cached = page.__dict__
        cached["num_visible"] = num_visible
        cached["may_be_generated"] = index in with_marker
        if text.isascii():
            cached["num_letters"] = num_letters
        if num_line_feeds:
            cached["num_lines"], cached["longest_line"] = num_lines, longest
            cached["mean_line"] = (len(text) - num_line_feeds) / num_lines
        if index not in with_runs:
            cached["encoded_runs"] = []
        pages.append(page)
    return pages


def _count_bytes(texts: Texts) -> tuple[list[int], list[int]]:
    """Return the number of visible bytes and of ASCII letters in each text."""
    ranges = list(zip(texts.edges[:-1].tolist(), texts.edges[1:].tolist(), strict=True))
    is_visible, is_letter = texts.octets > SPACE, _is_letter(texts.octets)
    return (
        [int(np.count_nonzero(is_visible[start:end])) for start, end in ranges],
        [int(np.count_nonzero(is_letter[start:end])) for start, end in ranges],
    )


def _measure_lines(texts: Texts) -> tuple[list[int], list[int], list[int]]:
    """Return the number of line feeds, the number of lines and the longest line of each text."""
    ends = texts.edges[1:] - 1
    is_end = texts.octets == LINE_FEED
    is_end[ends] = True  # the NUL after each text
    breaks = np.flatnonzero(is_end)
    lasts = np.searchsorted(breaks, ends)
    num_line_feeds = np.diff(lasts, prepend=-1) - 1
    lengths = np.diff(breaks, prepend=-1) - 1
    longest = np.maximum.reduceat(lengths, np.concatenate(([0], lasts[:-1] + 1))) if len(ends) else ends
    has_open_end = texts.octets[ends - 1] != LINE_FEED
    return num_line_feeds.tolist(), (num_line_feeds + has_open_end).tolist(), longest.tolist()
