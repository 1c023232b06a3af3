"""Where words start, by rules about neighbouring characters: slow, obvious, and what the kernels are compared with.

Several documents may lie end to end; no rule looks across the start of one. An *edge* is where a rule sees nothing: there,
and with digits apart also on both sides of each number.
"""

from typing import NamedTuple

import numpy as np

from gristmill.tokenizers.cuda.character_classes import LETTER, NUMBER, OTHER, WHITESPACE
from gristmill.tokenizers.cuda.patterns import CONTRACTIONS, LONG_S

NOTHING = 255
"""The class of what a rule sees at an edge."""
APOSTROPHE, SPACE = ord("'"), ord(" ")


def word_starts(text: bytes, pattern, classes, document_starts=(0,)):
    """Per byte of valid UTF-8, whether a word starts with it."""
    is_lead = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80
    points = np.frombuffer(text.decode().encode("utf-32-le"), np.uint32)
    starts_document = np.zeros(len(text) + 1, bool)
    starts_document[list(document_starts)] = True
    is_first = starts_document[:-1][is_lead]
    is_first[:1] = True
    row = Row.of(points, classes[points], is_first, is_apart=pattern.digits == "apart")
    starts = np.zeros(len(text), bool)
    starts[is_lead] = _with_contractions(row, RULES[pattern.family](row, pattern), pattern)
    return starts


class Row(NamedTuple):
    """Per character."""

    points: np.ndarray
    classes: np.ndarray
    is_first: np.ndarray
    """Behind an edge."""
    is_last: np.ndarray
    """Before an edge."""

    @classmethod
    def of(cls, points, classes, is_first, *, is_apart):
        if is_apart:
            is_number = classes == NUMBER
            is_first = is_first | is_number | np.append(False, is_number[:-1])[: len(points)]
        return cls(points, classes, is_first, np.append(is_first[1:], True)[: len(points)])

    def before(self, facts, nothing):
        return np.where(self.is_first, nothing, np.roll(facts, 1))

    def after(self, facts, nothing):
        return np.where(self.is_last, nothing, np.roll(facts, -1))

    def place_in_run(self, is_in):
        """0 for the first of neighbours that are in, 1 for the second …; edges part runs."""
        places = np.arange(len(is_in))
        begins = is_in & ~self.before(is_in, nothing=False)
        return places - np.maximum.accumulate(np.where(begins, places, 0))


def _gpt2(row, pattern):
    is_white = row.classes == WHITESPACE
    class_before, class_after = row.before(row.classes, NOTHING), row.after(row.classes, NOTHING)
    is_last_of_run = (class_after != WHITESPACE) & (class_after != NOTHING)
    white_starts = (class_before != WHITESPACE) | is_last_of_run
    follows_space = row.before(row.points, 0) == SPACE
    return np.where(is_white, white_starts, ~follows_space & (row.classes != class_before))


def _cl100k(row, pattern):
    class_before = row.before(row.classes, NOTHING)
    is_newline = np.isin(row.points, (ord("\r"), ord("\n")))
    follows_space = row.before(row.points, 0) == SPACE
    is_lone = (row.classes == OTHER) & (class_before != OTHER) & ~follows_space
    follows_blank = (class_before == WHITESPACE) & ~row.before(is_newline, nothing=False)
    letter_starts = (class_before != LETTER) & ~follows_blank & ~row.before(is_lone, nothing=False)
    number_starts = row.place_in_run(row.classes == NUMBER) % {"threes": 3, "single": 1}[pattern.digits] == 0
    other_starts = (class_before != OTHER) & ~follows_space
    starts = [other_starts, letter_starts, number_starts, _cl100k_white_starts(row, is_newline)]
    return np.choose(row.classes, starts).astype(bool)


def _cl100k_white_starts(row, is_newline):
    is_white = row.classes == WHITESPACE
    left = is_white & ~_absorbed(row, is_newline)
    starts_run = left & ~row.before(left, nothing=False)
    follows_last_newline = row.before(left & is_newline, nothing=False) & ~_newline_to_come(row, is_newline)
    class_after = row.after(row.classes, NOTHING)
    is_last_of_run = ~is_newline & (class_after != WHITESPACE) & (class_after != NOTHING)
    return left & (starts_run | follows_last_newline | is_last_of_run)


def _absorbed(row, is_newline):
    """Newlines directly behind an OTHER, and those directly behind them, belong to its word."""
    absorbed = np.zeros(len(is_newline), bool)
    for at in np.flatnonzero(is_newline & ~row.is_first):
        absorbed[at] = row.classes[at - 1] == OTHER or absorbed[at - 1]
    return absorbed


def _newline_to_come(row, is_newline):
    """Here or further on in the same run of whitespace."""
    to_come = is_newline.copy()
    for at in np.flatnonzero((row.classes == WHITESPACE) & ~row.is_last)[::-1]:
        to_come[at] |= to_come[at + 1]
    return to_come


def _with_contractions(row, starts, pattern):
    """One whose apostrophe starts a word is a word: none starts inside it, one starts behind it."""
    spelled = "".join(map(chr, row.points))
    is_candidate = (row.points == APOSTROPHE) & np.isin(row.after(row.points, 0), FIRST_LETTERS)
    for apostrophe in np.flatnonzero(starts & is_candidate):
        end = _contraction_end(row, spelled, apostrophe, pattern)
        if end is not None:
            starts[apostrophe + 1 : end] = False
            starts[end : end + 1] = True
    return starts


def _contraction_end(row, spelled, apostrophe, pattern):
    for letters in CONTRACTIONS:
        end = apostrophe + 1 + len(letters)
        found = spelled[apostrophe + 1 : end]
        if pattern.family == "cl100k":
            found = found.replace(LONG_S, "s").translate(LOWER)
        if found == letters and not row.is_first[apostrophe + 1 : end].any():
            return end
    return None


FIRST_LETTERS = [ord(one) for letters in CONTRACTIONS for one in (letters[0], letters[0].upper())] + [ord(LONG_S)]
LOWER = {ord(letter.upper()): letter for letter in "".join(CONTRACTIONS)}
RULES = {"gpt2": _gpt2, "cl100k": _cl100k}
