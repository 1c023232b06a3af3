"""Encode with Hugging Face `tokenizers`, which supports every model type. Tests compare gigatoken with this engine."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.core.extras import require
from gristmill.tokenizers.definition import HIDDEN_PREFIX, Definition
from gristmill.tokenizers.tokenizer import (
    AnyText,
    Encoded,
    EncodedTexts,
    Ids,
    Offsets,
    all_to_utf8,
    decode_with_added,
    to_utf8,
)


def require_tokenizers(definition: Definition) -> str:
    """Return the name and version of the package `tokenizers`, without importing it.

    Raise MissingExtraError if the package is not installed.
    """
    require(f"the tokenizer {definition.name!r} ({definition.model.type})", "tokenizers", "tokenizers")
    return f"tokenizers {version('tokenizers')}"


class ReferenceTokenizer:
    """Tokenizer protocol over Hugging Face `tokenizers`."""

    def __init__(self, definition: Definition) -> None:
        self.engine = require_tokenizers(definition)
        import tokenizers  # noqa: PLC0415 - an optional dependency

        self.definition = definition
        self.vocab_size = definition.vocab_size
        self.decodes_exactly = False  # many models lose spaces or case, and no model is verified to be lossless
        try:
            self._engine: Any = tokenizers.Tokenizer.from_str(definition.plain_json().decode())
        except Exception as error:  # noqa: BLE001 - the library raises plain Exception for a file it cannot read
            raise TokenizerError(
                f"the tokenizer {definition.name!r} cannot be loaded: {error}. Use another tokenizer, or a newer "
                "version of the package: pip install --upgrade tokenizers"
            ) from None
        self._added_texts = {
            index: text.encode()
            for index, text in definition.added_texts.items()
            if (self._engine.id_to_token(index) or HIDDEN_PREFIX).startswith(HIDDEN_PREFIX)
        }

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        utf8 = to_utf8(text, self.definition.name)
        characters = utf8.decode()
        encoding = self._engine.encode(characters, add_special_tokens=False)
        ids = np.array(encoding.ids, np.uint32)
        starts = _byte_starts(characters, len(utf8), encoding.offsets)
        newlines = np.flatnonzero(np.frombuffer(utf8, np.uint8) == ord("\n"))
        newline_tokens = (np.searchsorted(starts[:-1], newlines, "right") - 1).astype(np.int32)
        starts[0] = 0
        control_id = next(iter(self.definition.control_ids.intersection(encoding.ids)), None)
        return Encoded(ids, newline_tokens, starts if with_starts else None, control_id)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        checked = all_to_utf8(texts, self.definition.name)
        return [self.encode(utf8, with_starts=with_starts) for utf8 in checked]

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        return EncodedTexts.of(self.encode_many(texts, with_starts=with_starts))

    def decode(self, ids: npt.ArrayLike) -> bytes:
        return decode_with_added(np.ascontiguousarray(ids, np.uint32), self._added_texts, self._decode, self.vocab_size)

    def _decode(self, ids: Ids) -> bytes:
        text: str = self._engine.decode(ids.tolist(), skip_special_tokens=False)
        return text.encode()


def _byte_starts(characters: str, num_bytes: int, offsets: list[tuple[int, int]]) -> Offsets:
    """Return the byte offset of each token, followed by the length of the text. `offsets` are in characters."""
    starts = np.zeros(len(offsets) + 1, np.int64)
    starts[:-1] = [start for start, _ in offsets]
    if num_bytes != len(characters):
        code_points = np.frombuffer(characters.encode("utf-32-le"), np.uint32)
        widths = 1 + (code_points >= 0x80).astype(np.int64) + (code_points >= 0x800) + (code_points >= 0x10000)  # noqa: PLR2004
        starts[:-1] = np.concatenate(([0], np.cumsum(widths)))[starts[:-1]]
    starts[-1] = num_bytes
    return np.maximum.accumulate(starts)
