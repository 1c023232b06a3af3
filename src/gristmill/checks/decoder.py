"""Decode ids to bytes, if the tokenizer reproduces texts, and compare the `text` column with the decoded ids."""

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row, labels_without_padding
from gristmill.checks.tokens import Ids, RowRules
from gristmill.core.records import LABELED_KINDS
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_in
from gristmill.tokenizers.unicode_versions import UNASSIGNED, is_nfc

CONTINUING = bytes(range(0x80, 0xC0))
"""UTF-8 continuation bytes."""
MAX_CONTINUING = 3


class Decoder(NamedTuple):
    """Tokenizer of a dataset, with flags for how exactly it reproduces texts.

    A Decoder can be pickled. Each process loads the tokenizer once.
    """

    folder: Path
    tokenizer_key: str | None
    """Key of the tokenizer definition, or None if the tokenizer cannot be used."""
    is_exact: bool
    """True if the joined bytes of the tokens are the text, or its NFC form if the tokenizer normalizes to NFC."""
    is_close: bool
    """True if the joined bytes of the tokens are the text, apart from spaces at its beginning and end, and with `▁`
    instead of each space."""
    uses_nfc: bool = False
    """True if the tokenizer normalizes to NFC. A text that is not in NFC then differs from its decoded ids."""

    @classmethod
    def of(cls, folder: Path, tokenizer: Tokenizer | None) -> "Decoder":
        if tokenizer is None:
            return cls(folder, None, is_exact=False, is_close=False)
        definition = tokenizer.definition
        # The tokenizer module chooses the engine gigatoken only for tokenizers whose tokens join to the normalized
        # text. With byte_fallback, each space of the text is a ▁ in the tokens.
        is_close = tokenizer.engine.startswith("gigatoken ")
        is_exact = is_close and not definition.model.byte_fallback
        return cls(folder, definition.key, is_exact, is_close, uses_nfc=is_exact and not tokenizer.decodes_exactly)

    @property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_in(self.folder, self.tokenizer_key)

    def normalize(self, text: bytes) -> bytes | None:
        """Return the text to which the ids of a text decode. Requires `is_exact`.

        Returns None if the text has a character that this version of Python cannot normalize.
        """
        if not self.uses_nfc or is_nfc(text):
            return text
        characters = text.decode()
        if UNASSIGNED in map(unicodedata.category, set(characters)):
            return None
        return unicodedata.normalize("NFC", characters).encode()

    def num_bytes(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the number of bytes of each token. Requires `is_exact`."""
        return self._counts_per_id(_NUM_BYTES, len).take(ids)

    def num_line_feeds(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return the number of line feeds in each token. Requires `is_close`."""
        return self._counts_per_id(_NUM_LINE_FEEDS, lambda decoded: decoded.count(b"\n")).take(ids)

    def _counts_per_id(
        self, cache: dict[str, npt.NDArray[np.int64]], count: Callable[[bytes], int]
    ) -> npt.NDArray[np.int64]:
        tokenizer = self.tokenizer
        key = tokenizer.definition.key
        if key not in cache:
            counts = (count(_decode_id(tokenizer, index)) for index in range(tokenizer.vocab_size))
            cache[key] = np.fromiter(counts, np.int64, tokenizer.vocab_size)
        return cache[key]


def _decode_id(tokenizer: Tokenizer, index: int) -> bytes:
    try:
        return tokenizer.decode([index])
    except LookupError:  # a vocabulary may have unused ids before those of its added tokens
        return b""


_NUM_BYTES: dict[str, npt.NDArray[np.int64]] = {}
_NUM_LINE_FEEDS: dict[str, npt.NDArray[np.int64]] = {}
"""Arrays indexed by id, keyed by tokenizer. A process may check many datasets with the same tokenizer."""


def check_text_column(rows: Sequence[Row], rules: RowRules, decoder: Decoder, faults: Faults) -> None:
    """Add a fault for each row whose `text` differs from its decoded ids.

    If a character is split between two tokens, it is in the text of the window that contains the first of these tokens.
    With a tokenizer that normalizes to NFC, a row is compared only if NFC leaves its text unchanged.
    """
    for row in rows:
        # The text of a fill-in-the-middle row is made by decoding its ids, so the text is exact with every tokenizer.
        is_fim = bool(row.fields.get("fim")) and decoder.tokenizer_key is not None
        if not decoder.is_exact and not is_fim:
            continue
        text = row.fields["text"].encode()
        if decoder.uses_nfc and not is_fim and not _is_unchanged_by_nfc(text):
            continue
        decoded = decoder.tokenizer.decode(_ids_of_text(row, rules)).lstrip(CONTINUING)
        rest = text[len(decoded) :]
        if not text.startswith(decoded) or len(rest) > MAX_CONTINUING or rest.lstrip(CONTINUING):
            message = "text differs from the decoded ids"
            faults.add(
                "schema", message, file=rules.file, row=row.number, path=f"{row.fields['repo']}/{row.fields['path']}"
            )


def _is_unchanged_by_nfc(text: bytes) -> bool:
    """Return True if NFC neither changes a character of the text nor moves a character across its edges."""
    characters = text.decode()
    return is_nfc(text) and not any(map(unicodedata.combining, characters[:1] + characters[-1:]))


def _ids_of_text(row: Row, rules: RowRules) -> Ids:
    """Return the ids that the text of a row is made from: the labels in a row with noise, otherwise the ids."""
    if row.fields.get("variant") in LABELED_KINDS:
        clean = labels_without_padding(row.fields)
        num_after = len(rules.suffix) + (len(rules.closing) if row.is_ended else 0)
        return np.array(clean[len(rules.prefix) : len(clean) - num_after], row.ids.dtype)
    return row.ids
