"""Ids -> what each spells, as text that can be drawn token by token.

Where the tokenizer gives every text back, the ids' bytes joined are the text, whatever characters they cut in two.
Other tokenizers lose blanks or capitals: there each token is shown as its vocabulary spells it.
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

STAND_IN = "\ufffd"
"""For each byte that belongs to no whole character here: a window may begin in the middle of one."""
META_SPACE = "▁"
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
OF_WORDS = ("WordPiece", "WordLevel")


class Piece(NamedTuple):
    """One id."""

    id: int
    text: str
    """What it spells. A character whose bytes several tokens share is the first one's; the others have nothing."""
    is_special: bool
    """No text of the file: its name, like <s>."""


def pieces_of(ids: Iterable[int], tokenizer: Tokenizer) -> list[Piece]:
    spelling = _spelling(tokenizer)
    names = spelling.names
    pieces: list[Piece] = []
    for is_special, run in groupby(map(int, ids), key=names.__contains__):
        if is_special:
            pieces += [Piece(one, names[one], True) for one in run]
        else:
            own = list(run)
            texts = _texts([spelling.of(one) for one in own])
            pieces += [Piece(one, text, False) for one, text in zip(own, texts, strict=True)]
    return pieces


def note_on(tokenizer: Tokenizer) -> str | None:
    """What to know of the text that its pieces spell."""
    if tokenizer.gives_text_back:
        return None
    if tokenizer.definition.model.byte_fallback:
        return f"This tokenizer writes a space as {META_SPACE}: a {META_SPACE} of the file is shown as a space too."
    return "This tokenizer does not give the text back: each token is shown as the vocabulary spells it."


def _texts(spelled: list[bytes]) -> Iterator[str]:
    """Of each, the characters that begin in it."""
    text = b"".join(spelled).decode("utf-8", "surrogateescape")
    ends = list(accumulate(map(len, spelled)))
    if not text.isascii():
        starts = list(accumulate((len(one.encode("utf-8", "surrogateescape")) for one in text), initial=0))
        ends = [bisect_left(starts, end) for end in ends]
        text = "".join(STAND_IN if "\udc80" <= one <= "\udcff" else one for one in text)
    return (text[start:end] for start, end in pairwise([0, *ends]))


class _Spelling:
    """Of one tokenizer, remembered."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.names = _special_names(tokenizer.definition)
        self._tokenizer = tokenizer
        self._bytes = {} if tokenizer.gives_text_back else _vocabulary(tokenizer.definition)

    def of(self, index: int) -> bytes:
        if index not in self._bytes:
            self._bytes[index] = self._decoded(index)
        return self._bytes[index]

    def _decoded(self, index: int) -> bytes:
        try:
            if self._tokenizer.gives_text_back:
                return self._tokenizer.decode([index])
        except (LookupError, ArithmeticError, ValueError, RuntimeError):
            pass
        raise DatasetError(f"a row is damaged: the tokenizer has no id {index}. `gristmill check` tells more.")


_spellings: dict[str, _Spelling] = {}


def _spelling(tokenizer: Tokenizer) -> _Spelling:
    key = tokenizer.definition.key
    if key not in _spellings:
        _spellings[key] = _Spelling(tokenizer)
    return _spellings[key]


def _special_names(definition: Definition) -> dict[int, str]:
    """Control tokens, and the one for unknown text."""
    added = definition.added_texts
    named = {token.id: token.content for token in definition.special_tokens}
    hidden = {*definition.control_ids, *(one for one in (definition.unknown_id, definition.end_id) if one is not None)}
    if hidden - added.keys():
        added = {index: name for name, index in definition.ids_by_token.items()}
    return named | {index: added.get(index, f"<id {index}>") for index in hidden}


def _vocabulary(definition: Definition) -> dict[int, bytes]:
    """What each token of a tokenizer that loses something stands for, as near as can be."""
    added = {token.content for token in definition.added_tokens}
    is_byte_level = _has_step(definition.file.pre_tokenizer, "ByteLevel")
    bytes_by_character = {character: byte for byte, character in enumerate(byte_characters())}

    def spelled(token: str) -> bytes:
        if token in added:
            return token.encode()
        if is_byte_level and all(character in bytes_by_character for character in token):
            return bytes(map(bytes_by_character.__getitem__, token))
        return _word(token, definition)

    return {index: spelled(token) for token, index in definition.ids_by_token.items()}


def _word(token: str, definition: Definition) -> bytes:
    model = definition.model
    if model.byte_fallback and (byte := BYTE.fullmatch(token)):
        return bytes.fromhex(byte[1])
    text = token.replace(META_SPACE, " ")
    if model.end_of_word_suffix and text.endswith(model.end_of_word_suffix):
        text = text.removesuffix(model.end_of_word_suffix) + " "
    if model.continuing_subword_prefix and text.startswith(model.continuing_subword_prefix):
        return text.removeprefix(model.continuing_subword_prefix).encode()
    begins_word = model.type in OF_WORDS or model.continuing_subword_prefix
    return (f" {text}" if begins_word and not text.startswith(" ") else text).encode()


def _has_step(steps: dict[str, Any] | None, kind: str) -> bool:
    step = steps or {}
    return any(one.get("type") == kind for one in step.get("pretokenizers", [step]))
