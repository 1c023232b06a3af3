"""Decode token ids to one piece of text per token, for display token by token.

If the tokenizer is lossless, the joined bytes of the tokens are the text, even if a character spans several tokens.
Other tokenizers lose spaces or capital letters, or do not distinguish `▁` from a space. For these, the text of each
token is derived from its vocabulary entry.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from gristmill.core.errors import DatasetError
from gristmill.tokenizers.cuda.merge_tables import byte_characters
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"
"""Replaces each byte of an incomplete character. A window may begin in the middle of a character."""
META_SPACE = "▁"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
WORD_MODELS = ("WordPiece", "WordLevel")


class Piece(NamedTuple):
    """One token with its text."""

    id: int
    text: str
    """Decoded text. A character that spans several tokens belongs to the first of these tokens."""
    is_special: bool
    """True if the token is not part of the file's text. Then `text` is the name of the token, like <s>."""


def decode_pieces(ids: Iterable[int], tokenizer: Tokenizer) -> list[Piece]:
    """Return one piece of text per id."""
    token_bytes = _token_bytes(tokenizer)
    names = token_bytes.names
    pieces: list[Piece] = []
    for is_special, run in groupby(map(int, ids), key=names.__contains__):
        if is_special:
            pieces += [Piece(token_id, names[token_id], True) for token_id in run]
        else:
            run_ids = list(run)
            texts = _token_texts([token_bytes.get(token_id) for token_id in run_ids])
            pieces += [Piece(token_id, text, False) for token_id, text in zip(run_ids, texts, strict=True)]
    return pieces


def tokenizer_note(tokenizer: Tokenizer) -> str | None:
    """Return a note on how the displayed text differs from the file, or None if it does not."""
    if tokenizer.decodes_exactly:
        return None
    if tokenizer.definition.model.byte_fallback:
        return (
            f"This tokenizer writes a space as {META_SPACE}, so a {META_SPACE} in the file is displayed as a space too."
        )
    return "This tokenizer is not lossless. Each token is displayed as its vocabulary entry."


def _token_texts(parts: list[bytes]) -> Iterator[str]:
    """Decode consecutive tokens to one text per token. A character belongs to the token with its first byte."""
    text = b"".join(parts).decode("utf-8", "surrogateescape")
    ends = list(accumulate(map(len, parts)))
    if not text.isascii():
        starts = list(accumulate((len(one.encode("utf-8", "surrogateescape")) for one in text), initial=0))
        ends = [bisect_left(starts, end) for end in ends]
        text = "".join(REPLACEMENT if "\udc80" <= one <= "\udcff" else one for one in text)
    return (text[start:end] for start, end in pairwise([0, *ends]))


class _TokenBytes:
    """Cached bytes of the tokens of one tokenizer, and the names of its special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.names = _special_names(tokenizer.definition)
        self._tokenizer = tokenizer
        self._bytes = {} if tokenizer.decodes_exactly else _vocabulary_bytes(tokenizer.definition)

    def get(self, token_id: int) -> bytes:
        if token_id not in self._bytes:
            self._bytes[token_id] = self._decoded(token_id)
        return self._bytes[token_id]

    def _decoded(self, token_id: int) -> bytes:
        try:
            if self._tokenizer.decodes_exactly:
                return self._tokenizer.decode([token_id])
        except (LookupError, ArithmeticError, ValueError, RuntimeError):
            pass
        raise DatasetError(
            f"the dataset is damaged: it contains the id {token_id}, which its tokenizer does not have. "
            "Build the dataset again."
        )


_token_bytes_by_key: dict[str, _TokenBytes] = {}


def _token_bytes(tokenizer: Tokenizer) -> _TokenBytes:
    key = tokenizer.definition.key
    if key not in _token_bytes_by_key:
        _token_bytes_by_key[key] = _TokenBytes(tokenizer)
    return _token_bytes_by_key[key]


def _special_names(definition: Definition) -> dict[int, str]:
    """Return the names of special tokens, including the end token and the token for unknown text, keyed by id."""
    added = definition.added_texts
    named = {token.id: token.content for token in definition.special_tokens}
    special_ids = {
        *definition.control_ids,
        *(one for one in (definition.unknown_id, definition.end_id) if one is not None),
    }
    if special_ids - added.keys():
        added = {token_id: name for name, token_id in definition.ids_by_token.items()}
    return named | {token_id: added.get(token_id, f"<id {token_id}>") for token_id in special_ids}


def _vocabulary_bytes(definition: Definition) -> dict[int, bytes]:
    """Return the approximate text of each token, keyed by id, for a tokenizer that is not lossless."""
    added = {token.content for token in definition.added_tokens}
    is_byte_level = _has_step(definition.file.pre_tokenizer, "ByteLevel")
    bytes_by_character = {character: byte for byte, character in enumerate(byte_characters())}

    def text_bytes(token: str) -> bytes:
        if token in added:
            return token.encode()
        if is_byte_level and all(character in bytes_by_character for character in token):
            return bytes(map(bytes_by_character.__getitem__, token))
        return _word_bytes(token, definition)

    return {token_id: text_bytes(token) for token, token_id in definition.ids_by_token.items()}


def _word_bytes(token: str, definition: Definition) -> bytes:
    model = definition.model
    if model.byte_fallback and (byte := BYTE.fullmatch(token)):
        return bytes.fromhex(byte[1])
    text = token.replace(META_SPACE, " ")
    if model.end_of_word_suffix and text.endswith(model.end_of_word_suffix):
        text = text.removesuffix(model.end_of_word_suffix) + " "
    if model.continuing_subword_prefix and text.startswith(model.continuing_subword_prefix):
        return text.removeprefix(model.continuing_subword_prefix).encode()
    begins_word = model.type in WORD_MODELS or model.continuing_subword_prefix
    return (f" {text}" if begins_word and not text.startswith(" ") else text).encode()


def _has_step(steps: dict[str, Any] | None, kind: str) -> bool:
    step = steps or {}
    return any(one.get("type") == kind for one in step.get("pretokenizers", [step]))
