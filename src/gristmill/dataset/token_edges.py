"""Properties of each token id: its number of bytes, and whether it starts or ends in a word.

num_bytes = Vocabulary.of(tokenizer).num_bytes; num_bytes[ids].sum()     # the divisor of bits per byte
"""

import string
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.tokenizer import Tokenizer

Flags = npt.NDArray[np.bool_]

# Bytes from 0x80 up belong to non-ASCII characters. In code, nearly all of these are letters.
WORD_BYTES = frozenset(f"{string.ascii_letters}{string.digits}_".encode()) | frozenset(range(0x80, 0x100))


class WordEdges(NamedTuple):
    """Flags per id: its first byte, and its last byte, is part of a word."""

    starts_in_word: Flags
    ends_in_word: Flags


class TokenProperties(NamedTuple):
    """Properties of all token ids of a tokenizer."""

    size: int
    """Largest id plus one."""
    is_control: Flags
    num_bytes: npt.NDArray[np.int64] | None
    """Number of bytes per id. None if decoding does not restore the text."""
    edges: WordEdges | None
    """None if decoding does not restore the text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TokenProperties":
        """Return the properties of a tokenizer's ids, computed once per process."""
        key = tokenizer.definition.key
        if key not in _cache:
            _cache[key] = _make_vocabulary(tokenizer)
        return _cache[key]

    @property
    def plain_ids(self) -> npt.NDArray[np.int64]:
        """Ids that text can be encoded to: no control tokens, and no tokens without bytes."""
        is_plain = ~self.is_control
        return np.flatnonzero(is_plain if self.num_bytes is None else is_plain & (self.num_bytes > 0))


_cache: dict[str, TokenProperties] = {}


def _make_vocabulary(tokenizer: Tokenizer) -> TokenProperties:
    is_control = np.zeros(tokenizer.vocab_size, np.bool_)
    is_control[[token_id for token_id in tokenizer.definition.control_ids if token_id < tokenizer.vocab_size]] = True
    if not tokenizer.gives_text_back:
        return TokenProperties(tokenizer.vocab_size, is_control, None, None)
    tokens = token_bytes(tokenizer)
    edges = WordEdges(
        np.array([token[:1] != b"" and token[0] in WORD_BYTES for token in tokens]),
        np.array([token[:1] != b"" and token[-1] in WORD_BYTES for token in tokens]),
    )
    return TokenProperties(
        tokenizer.vocab_size, is_control, np.array([len(token) for token in tokens], np.int64), edges
    )


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Decode each id separately. An id without a token gives no bytes."""
    return [_decode_token(tokenizer, token_id) for token_id in range(tokenizer.vocab_size)]


def _decode_token(tokenizer: Tokenizer, token_id: int) -> bytes:
    try:
        return tokenizer.decode([token_id])
    except (LookupError, RuntimeError, ValueError):
        return b""
