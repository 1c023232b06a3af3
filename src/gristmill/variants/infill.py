"""Fill-in-the-middle (FIM): rewrite a document piece by piece, so that the middle of each piece comes last.

A piece is the part of a document in one window. It is cut into three parts: a prefix a, a middle b and a suffix c. The
parts are joined in one of two orders:

    PSM   <prefix> a <suffix> c <middle> b <end>
    SPM   <prefix> <suffix> c <middle> a b <end>        (Bavarian et al. 2022)

The special tokens around the parts, such as <prefix>, are called sentinels. variants/middles.py chooses the middle. A
cut may be between any two characters, like the cursor of an editor, even inside a token. Each part is encoded
separately, as in a request from an editor. A piece is as long as a window allows, so no rewritten piece is split
between windows. The decoded parts are equal to the piece, byte for byte.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import FimForm, FimWindow, MiddleKind, WhyNotRewritten
from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.middles import Nodes, Shares, choose_middle
from gristmill.windows.cut import Indices

NUM_SENTINELS = 3
MIN_PIECE_TOKENS = 8
"""Minimum length of a piece to rewrite. Shorter pieces have no middle worth predicting and remain unchanged."""
RESERVED_TOKENS = 4
"""Number of tokens left free in a window, because a cut turns one token into two or three tokens."""
MAX_TRIES = 4
"""Maximum number of attempts to find a middle that is short enough.

If rows contain text, the tokenizer must also not merge a middle in SPM order with the prefix.
"""

Ids = npt.NDArray[Any]
NO_IDS = np.zeros(0, np.uint32)


class Infilled(NamedTuple):
    """One window of a rewritten document."""

    window: FimWindow
    ids: Ids
    text: bytes
    """Text that encodes to `ids`: the parts in the same order, with the sentinels as text."""


class Sentinel(NamedTuple):
    """Special token that marks the beginning of a part, or the end of a middle."""

    id: int
    text: bytes


class LossyTokenizerError(ValueError):
    """The tokenizer does not decode a part of the text to the same bytes."""


class Infiller(NamedTuple):
    """Rewriter of documents for fill-in-the-middle.

    `encode` and `decode` are for parts that follow other tokens, so they do not add a space before a part.
    """

    encode: Callable[[bytes], Ids]
    decode: Callable[[Ids], bytes]
    decode_first: Callable[[Ids], bytes]
    """Decoder for the beginning of a text."""
    prefix: Sentinel
    middle: Sentinel
    suffix: Sentinel
    num_content: int
    """Number of tokens that fit into a window."""
    shares: Shares
    spm_share: float
    max_middle_tokens: int
    end: Sentinel | None = None
    """Optional token after each middle. It counts towards `num_content`."""
    with_text: bool = False
    """True if rows contain text, which must encode to the ids of the row.

    In SPM order, the middle directly follows the prefix. If the tokenizer would merge the end of the prefix with the
    beginning of the middle, a different middle is tried. If all attempts fail, the row is in PSM order, which has a
    sentinel between the prefix and the middle.
    """

    def infill(self, document: "InfillText", rng: SeededRandom) -> list[Infilled] | WhyNotRewritten:
        """Rewrite a document, or return the reason why it remains unchanged.

        Only the last window may have no middle. If any other window has no middle, the document is not rewritten.
        """
        made: list[Infilled] = []
        start = 0
        try:
            while start < document.num_tokens:
                made.append(self._make_window(document, start, rng))
                start = made[-1].window.end
        except LossyTokenizerError:
            return WhyNotRewritten.TEXT_NOT_GIVEN_BACK
        are_rewritten = [one.window.form is not None for one in made]
        return made if any(are_rewritten) and all(are_rewritten[:-1]) else WhyNotRewritten.NO_MIDDLE

    def _make_window(self, document: "InfillText", start: int, rng: SeededRandom) -> Infilled:
        """Make the longest window that begins with the token `start`."""
        num_special = NUM_SENTINELS + (self.end is not None)
        end = document.find_end(start, start + self.num_content - num_special - RESERVED_TOKENS)
        # Leave enough tokens for the last window to have a middle.
        if 0 < document.num_tokens - end < MIN_PIECE_TOKENS < (end - start) // 2:
            end = document.find_end(start, end - MIN_PIECE_TOKENS)
        while end - start >= MIN_PIECE_TOKENS:
            cut = self._cut_piece(document, start, end, rng)
            if cut is None:
                break
            ids = np.concatenate([part.ids for part in cut.parts])
            if len(ids) <= self.num_content:
                window = FimWindow(start, end, len(ids), cut.form, cut.kind, cut.num_middle_tokens)
                return Infilled(window, ids, b"".join(part.text for part in cut.parts))
            end = document.find_end(start, end - (len(ids) - self.num_content))
        return self._make_plain_window(document, start)

    def _make_plain_window(self, document: "InfillText", start: int) -> Infilled:
        """Make a window that is not rewritten, because it is too short or has no middle."""
        end = document.find_end(start, start + self.num_content)
        ids, text = document.ids[start:end], document.text[document.starts[start] : document.starts[end]]
        if (self.decode if start else self.decode_first)(ids) != text:
            raise LossyTokenizerError(text[:20])
        return Infilled(FimWindow(start, end, end - start), ids, text)

    def _cut_piece(self, document: "InfillText", start: int, end: int, rng: SeededRandom) -> "_Cut | None":
        """Cut a piece into three parts. Return None if it has no middle."""
        first, last = int(document.starts[start]), int(document.starts[end])
        form = FimForm.SPM if rng.fraction() < self.spm_share else FimForm.PSM
        max_bytes = (last - first) * self.max_middle_tokens // (end - start)
        result: _Cut | None = None
        for _ in range(MAX_TRIES):
            middle = choose_middle(document.text, (first, last), document.nodes, self.shares, max_bytes, rng)
            if middle is None:
                return result
            edges = (first, middle.start, middle.end, last)
            prefix, infix, suffix = (self._encode_part(document.text[left:right]) for left, right in pairwise(edges))
            if len(infix.ids) > self.max_middle_tokens:
                max_bytes = (middle.end - middle.start) * self.max_middle_tokens // len(infix.ids)
                continue
            is_merged = form is FimForm.SPM and self.with_text and self._would_merge(prefix, infix)
            used = FimForm.PSM if is_merged else form
            result = _Cut(used, middle.kind, len(infix.ids), self._order_parts(prefix, infix, suffix, used))
            if not is_merged:
                return result
        return result

    def _encode_part(self, text: bytes) -> "_Part":
        ids = self.encode(text) if text else NO_IDS
        if text and self.decode(ids) != text:
            raise LossyTokenizerError(text[:20])
        return _Part(ids, text)

    def _order_parts(self, prefix: "_Part", infix: "_Part", suffix: "_Part", form: FimForm) -> tuple["_Part", ...]:
        prefix_sentinel, middle_sentinel, suffix_sentinel = (
            _sentinel_part(one) for one in (self.prefix, self.middle, self.suffix)
        )
        end = () if self.end is None else (_sentinel_part(self.end),)
        if form is FimForm.SPM:
            return (prefix_sentinel, suffix_sentinel, suffix, middle_sentinel, prefix, infix, *end)
        return (prefix_sentinel, prefix, suffix_sentinel, suffix, middle_sentinel, infix, *end)

    def _would_merge(self, prefix: "_Part", infix: "_Part") -> bool:
        joined = self.encode(prefix.text + infix.text)
        return not np.array_equal(joined, np.concatenate((prefix.ids, infix.ids)))


class InfillText(NamedTuple):
    """A document to rewrite."""

    text: bytes
    ids: Ids
    starts: Indices
    """Byte offset of each token in the text, followed by the length of the text."""
    nodes: Nodes | None
    """Nodes of the syntax tree. None if the language has no grammar."""

    @property
    def num_tokens(self) -> int:
        return len(self.starts) - 1

    def find_end(self, start: int, end: int) -> int:
        """Return the largest index of a token after `start`, up to `end`, that does not begin inside a character.

        If no such token exists, return the larger of `end` and `start + 1`.
        """
        end = min(end, self.num_tokens)
        for index in range(end, start, -1):
            offset = int(self.starts[index])
            if offset == len(self.text) or self.text[offset] & 0xC0 != 0x80:  # noqa: PLR2004 - inside a character
                return index
        return max(end, start + 1)


class _Part(NamedTuple):
    ids: Ids
    text: bytes


class _Cut(NamedTuple):
    form: FimForm
    kind: MiddleKind
    num_middle_tokens: int
    parts: tuple[_Part, ...]
    """Parts in row order, including the sentinels."""


def _sentinel_part(sentinel: Sentinel) -> _Part:
    return _Part(np.array([sentinel.id], np.uint32), sentinel.text)
