"""Properties of each token id: its number of bytes, and whether it starts or ends in a word.

TokenProperties.of(tokenizer).num_bytes[ids].sum()     # the divisor of bits per byte
"""

import string
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.tokenizer import Tokenizer

Flags = npt.NDArray[np.bool_]

# Bytes from 0x80 up belong to non-ASCII characters. In code, nearly all non-ASCII characters are letters.
WORD_BYTES = frozenset(f"{string.ascii_letters}{string.digits}_".encode()) | frozenset(range(0x80, 0x100))


class WordEdges(NamedTuple):
    """For each id, whether its first byte is part of a word, and whether its last byte is."""

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
    """Word edges of all ids. None if decoding does not restore the text."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TokenProperties":
        """Return the properties of a tokenizer's ids, computed once per process."""
        key = tokenizer.definition.key
        if key not in _properties_by_tokenizer:
            _properties_by_tokenizer[key] = _compute_properties(tokenizer)
        return _properties_by_tokenizer[key]

    @property
    def plain_ids(self) -> npt.NDArray[np.int64]:
        """Ids that encoded text may contain: no control tokens, and no tokens without bytes."""
        is_plain = ~self.is_control
        return np.flatnonzero(is_plain if self.num_bytes is None else is_plain & (self.num_bytes > 0))


_properties_by_tokenizer: dict[str, TokenProperties] = {}


def _compute_properties(tokenizer: Tokenizer) -> TokenProperties:
    is_control = np.zeros(tokenizer.vocab_size, np.bool_)
    is_control[[token_id for token_id in tokenizer.definition.control_ids if token_id < tokenizer.vocab_size]] = True
    if not tokenizer.decodes_exactly:
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
    """Return the decoded bytes of each id. The bytes are empty for an id without a token."""
    return [_decode_token(tokenizer, token_id) for token_id in range(tokenizer.vocab_size)]


def _decode_token(tokenizer: Tokenizer, token_id: int) -> bytes:
    try:
        return tokenizer.decode([token_id])
    except (LookupError, RuntimeError, ValueError):
        return b""
