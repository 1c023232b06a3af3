"""Find word starts by rules about neighboring characters, in slow and obvious code, for comparison with the kernels.

A text may consist of several documents. No rule reads across an *edge*: the start or end of a document and, if digits
are split apart, the start and end of each number character.
"""

from typing import NamedTuple

import numpy as np

from gristmill.tokenizers.cuda.character_classes import LETTER, NUMBER, OTHER, WHITESPACE
from gristmill.tokenizers.cuda.patterns import CONTRACTIONS, LONG_S

NOTHING = 255
"""Class that stands for the missing neighbor at an edge."""
APOSTROPHE, SPACE = ord("'"), ord(" ")


def word_starts(text: bytes, pattern, classes, document_starts=(0,)):
    """Return a mask of the bytes at which words start. The text must be valid UTF-8."""
    is_lead = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    points = np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)
    starts_document = np.zeros(len(text) + 1, bool)
    starts_document[list(document_starts)] = True
    is_first = starts_document[:-1][is_lead]
    is_first[:1] = True
    row = Row.of(points, classes[points], is_first, digits_apart=pattern.digits == "apart")
    starts = np.zeros(len(text), bool)
    starts[is_lead] = _with_contractions(row, RULES[pattern.family](row, pattern), pattern)
    return starts


class Row(NamedTuple):
    """Arrays with one entry per character."""

    points: np.ndarray
    classes: np.ndarray
    is_first: np.ndarray
    """True directly after an edge."""
    is_last: np.ndarray
    """True directly before an edge."""

    @classmethod
    def of(cls, points, classes, is_first, *, digits_apart):
        if digits_apart:
            is_number = classes == NUMBER
            is_first = is_first | is_number | np.append(False, is_number[:-1])[: len(points)]
        return cls(points, classes, is_first, np.append(is_first[1:], True)[: len(points)])

    def before(self, facts, nothing):
        return np.where(self.is_first, nothing, np.roll(facts, 1))

    def after(self, facts, nothing):
        return np.where(self.is_last, nothing, np.roll(facts, -1))

    def position_in_run(self, is_in):
        """Return the position of each character in its run of characters for which `is_in` is true, from 0.

        Edges separate runs.
        """
        positions = np.arange(len(is_in))
        begins = is_in & ~self.before(is_in, nothing=False)
        return positions - np.maximum.accumulate(np.where(begins, positions, 0))


def _gpt2(row, pattern):
    is_whitespace = row.classes == WHITESPACE
    class_before, class_after = row.before(row.classes, NOTHING), row.after(row.classes, NOTHING)
    is_last_of_run = (class_after != WHITESPACE) & (class_after != NOTHING)
    whitespace_starts = (class_before != WHITESPACE) | is_last_of_run
    follows_space = row.before(row.points, 0) == SPACE
    return np.where(is_whitespace, whitespace_starts, ~follows_space & (row.classes != class_before))


def _cl100k(row, pattern):
    class_before = row.before(row.classes, NOTHING)
    is_newline = np.isin(row.points, (ord("\r"), ord("\n")))
    follows_space = row.before(row.points, 0) == SPACE
    is_lone = (row.classes == OTHER) & (class_before != OTHER) & ~follows_space
    follows_whitespace = (class_before == WHITESPACE) & ~row.before(is_newline, nothing=False)
    letter_starts = (class_before != LETTER) & ~follows_whitespace & ~row.before(is_lone, nothing=False)
    number_starts = row.position_in_run(row.classes == NUMBER) % {"threes": 3, "single": 1}[pattern.digits] == 0
    other_starts = (class_before != OTHER) & ~follows_space
    starts = [other_starts, letter_starts, number_starts, _cl100k_whitespace_starts(row, is_newline)]
    return np.choose(row.classes, starts).astype(bool)


def _cl100k_whitespace_starts(row, is_newline):
    is_whitespace = row.classes == WHITESPACE
    remaining = is_whitespace & ~_belongs_to_other(row, is_newline)
    starts_run = remaining & ~row.before(remaining, nothing=False)
    follows_last_newline = row.before(remaining & is_newline, nothing=False) & ~_is_before_newline(row, is_newline)
    class_after = row.after(row.classes, NOTHING)
    is_last_of_run = ~is_newline & (class_after != WHITESPACE) & (class_after != NOTHING)
    return remaining & (starts_run | follows_last_newline | is_last_of_run)


def _belongs_to_other(row, is_newline):
    """Return a mask of the newlines that follow an OTHER character with only newlines in between.

    Such a newline belongs to the word of the OTHER character.
    """
    belongs = np.zeros(len(is_newline), bool)
    for at in np.flatnonzero(is_newline & ~row.is_first):
        belongs[at] = row.classes[at - 1] == OTHER or belongs[at - 1]
    return belongs


def _is_before_newline(row, is_newline):
    """Return a mask of the newlines, and of whitespace before a newline in the same run of whitespace."""
    is_before = is_newline.copy()
    for at in np.flatnonzero((row.classes == WHITESPACE) & ~row.is_last)[::-1]:
        is_before[at] |= is_before[at + 1]
    return is_before


def _with_contractions(row, starts, pattern):
    """Make each contraction one word if a word starts at its apostrophe. The next word starts after the contraction."""
    text = "".join(map(chr, row.points))
    is_candidate = (row.points == APOSTROPHE) & np.isin(row.after(row.points, 0), FIRST_LETTERS)
    for apostrophe in np.flatnonzero(starts & is_candidate):
        end = _contraction_end(row, text, apostrophe, pattern)
        if end is not None:
            starts[apostrophe + 1 : end] = False
            starts[end : end + 1] = True
    return starts


def _contraction_end(row, text, apostrophe, pattern):
    for letters in CONTRACTIONS:
        end = apostrophe + 1 + len(letters)
        found = text[apostrophe + 1 : end]
        if pattern.family == "cl100k":
            found = found.replace(LONG_S, "s").translate(LOWER)
        if found == letters and not row.is_first[apostrophe + 1 : end].any():
            return end
    return None


FIRST_LETTERS = [ord(one) for letters in CONTRACTIONS for one in (letters[0], letters[0].upper())] + [ord(LONG_S)]
LOWER = {ord(letter.upper()): letter for letter in "".join(CONTRACTIONS)}
RULES = {"gpt2": _gpt2, "cl100k": _cl100k}
