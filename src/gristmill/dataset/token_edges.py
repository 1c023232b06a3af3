"""What is known of each token id by itself: how many bytes it spells, and whether a word goes on at its edges.

len_of = Vocabulary.of(tokenizer).num_bytes; len_of[ids].sum()     # bits per byte divide by this
"""

import string
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.tokenizer import Tokenizer

Flags = npt.NDArray[np.bool_]

# Bytes from 0x80 on belong to characters beyond ASCII, nearly all of which are letters where code has them.
WORD_BYTES = frozenset(f"{string.ascii_letters}{string.digits}_".encode()) | frozenset(range(0x80, 0x100))


class Edges(NamedTuple):
    """Per id: whether its first and its last byte are of a word."""

    begins_in_word: Flags
    ends_in_word: Flags


class Vocabulary(NamedTuple):
    size: int
    """One more than the largest id."""
    is_control: Flags
    num_bytes: npt.NDArray[np.int64] | None
    """Per id; None where tokens do not spell the text."""
    edges: Edges | None

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        """Once per process."""
        key = tokenizer.definition.key
        if key not in _known:
            _known[key] = _vocabulary(tokenizer)
        return _known[key]

    @property
    def plain_ids(self) -> npt.NDArray[np.int64]:
        """Those that text may become: no control token, and none that spells nothing."""
        is_plain = ~self.is_control
        return np.flatnonzero(is_plain if self.num_bytes is None else is_plain & (self.num_bytes > 0))


_known: dict[str, Vocabulary] = {}


def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    is_control = np.zeros(tokenizer.vocab_size, np.bool_)
    is_control[[index for index in tokenizer.definition.control_ids if index < tokenizer.vocab_size]] = True
    if not tokenizer.gives_text_back:
        return Vocabulary(tokenizer.vocab_size, is_control, None, None)
    tokens = token_bytes(tokenizer)
    edges = Edges(
        np.array([token[:1] != b"" and token[0] in WORD_BYTES for token in tokens]),
        np.array([token[:1] != b"" and token[-1] in WORD_BYTES for token in tokens]),
    )
    return Vocabulary(tokenizer.vocab_size, is_control, np.array([len(token) for token in tokens], np.int64), edges)


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """What each id spells; nothing for a number that no token has."""
    return [_bytes_of(tokenizer, index) for index in range(tokenizer.vocab_size)]


def _bytes_of(tokenizer: Tokenizer, index: int) -> bytes:
    try:
        return tokenizer.decode([index])
    except (LookupError, RuntimeError, ValueError):
        return b""
