"""Encode with gigatoken, which returns the same ids as Hugging Face `tokenizers` in much less time.

Two kinds of tokenizers are supported:

- byte-level BPE that leaves the text unchanged or normalizes it to NFC
- SentencePiece BPE that only replaces spaces with ▁ and may prepend a ▁

For a supported tokenizer, `tokenizers` still encodes two rare kinds of texts: texts with characters that the two
libraries classify differently (unicode_versions.py), and texts that the tokenizer changes by normalizing them to NFC.

For any other tokenizer, `tokenizers` encodes all texts. With gigatoken, the token offsets would be wrong, or unusual
added tokens would get different ids.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise

import gigatoken
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import HIDDEN_PREFIX, Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer, require_tokenizers
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
from gristmill.tokenizers.unicode_versions import is_nfc, is_within_unicode_16

AnyIds = Ids | npt.NDArray[np.uint16]
NO_IDS: Ids = np.zeros(0, np.uint32)
NEWLINE = b"\n"
META_SPACE = "▁".encode()
CONTROL_MARK = 255
"""Mark of a control token. The mark of any other token is the number of line feeds in the token."""
NFC = {"type": "NFC"}
SPACES_TO_META_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_META_SPACE = {"type": "Prepend", "prepend": "▁"}
SPLIT_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
"""Pre-tokenizer without effect, because the normalizer has already replaced all spaces with ▁."""


class FastTokenizer:
    """Tokenizer protocol over gigatoken."""

    def __init__(self, definition: Definition, engine: gigatoken.Tokenizer) -> None:
        self.definition = definition
        self._uses_nfc = _normalizer_steps(definition) == [NFC]
        self._has_pattern = not definition.model.byte_fallback
        self.engine = f"gigatoken {version('gigatoken')}"
        if self._uses_nfc:
            self.engine += f" and {require_tokenizers(definition)}"
        self.vocab_size = max([engine.vocab_size, *(token.id + 1 for token in definition.added_tokens)])
        # Tokens do not show whether a ▁ was a space or a literal ▁ in the text, or whether NFC composed an é.
        self.decodes_exactly = not definition.model.byte_fallback and not self._uses_nfc
        self._encode = engine.encode
        self._decode = engine.decode
        self._vocab = engine.vocab
        hidden = HIDDEN_PREFIX.encode()
        self._added_texts = {
            index: text.encode()
            for index, text in definition.added_texts.items()
            if self._vocab.get(index, hidden).startswith(hidden)
        }
        self._engine_vocab_size = engine.vocab_size
        self._first_added_id = min((self._engine_vocab_size, *self._added_texts))
        # One lookup per token returns its mark: its number of line feeds, or CONTROL_MARK.
        self._marks = np.zeros(self.vocab_size, np.uint8)
        for index, token in self._vocab.items():
            if NEWLINE in token:
                self._marks[index] = min(token.count(NEWLINE), CONTROL_MARK - 1)
        self._marks[[index for index in definition.control_ids if index < self.vocab_size]] = CONTROL_MARK

    @classmethod
    def load(cls, definition: Definition) -> "FastTokenizer | None":
        """Load the engine. Return None if gigatoken cannot load the file or would return wrong ids."""
        is_exact = (
            _is_exact_sentencepiece(definition) if definition.model.byte_fallback else _is_exact_byte_level(definition)
        )
        if not is_exact or not _is_plain_bpe(definition):
            return None
        try:
            return cls(definition, gigatoken.Tokenizer.from_json(definition.plain_json()))
        except RuntimeError:
            return None

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        return self._encode_one(to_utf8(text, self.definition.name), with_starts=with_starts)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(all_to_utf8(texts, self.definition.name), with_starts=with_starts).split()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        checked = all_to_utf8(texts, self.definition.name)
        if self._uses_nfc and not all(map(is_nfc, checked)):
            return EncodedTexts.of([self._encode_one(utf8, with_starts=with_starts) for utf8 in checked])
        ids = list(map(self._encode_ids, checked))
        edges = np.cumsum([0, *map(len, ids)])
        return self._annotate(np.concatenate([NO_IDS, *ids]), edges, checked, with_starts=with_starts)

    def annotate(
        self, ids: AnyIds, edges: Offsets, texts: Sequence[bytes], *, with_starts: bool = False
    ) -> EncodedTexts:
        """Add positions to ids that a different engine has computed for these texts."""
        if self._uses_nfc and not all(map(is_nfc, texts)):  # the joined bytes of the tokens differ from the text
            return self.encode_all(texts, with_starts=with_starts)
        return self._annotate(ids, edges, texts, with_starts=with_starts)

    def _encode_one(self, utf8: bytes, *, with_starts: bool) -> Encoded:
        if self._uses_nfc and not is_nfc(utf8):
            return self._reference.encode(utf8, with_starts=with_starts)
        ids = self._encode_ids(utf8)
        all_texts = self._annotate(ids, np.array([0, len(ids)]), [utf8], with_starts=with_starts)
        starts = all_texts.starts[0] if with_starts else None
        return Encoded(
            ids.astype(np.uint32, copy=False), all_texts.newline_tokens, starts, all_texts.control_ids.get(0)
        )

    def _encode_ids(self, utf8: bytes) -> Ids:
        """Encode one text. If the tokenizer normalizes to NFC, `is_nfc` must be True for the text."""
        is_exact = self._uses_nfc or not self._has_pattern or is_within_unicode_16(utf8)
        return self._encode(utf8) if is_exact else self._reference.encode(utf8).ids

    @cached_property
    def _reference(self) -> ReferenceTokenizer:
        return ReferenceTokenizer(self.definition)

    def _annotate(self, ids: AnyIds, edges: Offsets, texts: Sequence[bytes], *, with_starts: bool) -> EncodedTexts:
        marks = self._marks.take(ids)
        marked = np.flatnonzero(marks != 0)  # flatnonzero is ten times as fast on booleans
        newline_edges = np.searchsorted(marked, edges)
        newline_tokens = (marked - np.repeat(edges[:-1], np.diff(newline_edges))).astype(np.int32)
        control_ids: dict[int, int] = {}
        counts = marks[marked]
        if counts.max(initial=0) > 1:
            controls = marked[counts == CONTROL_MARK][::-1]
            text_indices = np.searchsorted(edges, controls, "right") - 1
            control_ids = dict(zip(text_indices.tolist(), ids[controls].tolist(), strict=True))
            newline_tokens = np.repeat(newline_tokens, counts)
            newline_edges = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[newline_edges]
        ranges = zip(texts, pairwise(edges.tolist()), strict=True)
        return EncodedTexts(
            ids=ids,
            edges=edges,
            newline_tokens=newline_tokens,
            newline_edges=newline_edges,
            starts=[self._starts(ids[start:end], text) for text, (start, end) in ranges] if with_starts else [],
            control_ids=control_ids,
        )

    def decode(self, ids: npt.ArrayLike) -> bytes:
        ids = np.ascontiguousarray(ids, np.uint32)
        if ids.max(initial=0) < self._first_added_id:
            return self._decode(ids)
        return decode_with_added(ids, self._added_texts, self._decode, self._engine_vocab_size)

    @cached_property
    def _is_sentencepiece(self) -> bool:
        return self.definition.model.byte_fallback

    @cached_property
    def _bytes_per_token(self) -> Offsets:
        """Number of bytes of text that each token covers, keyed by id. A ▁ covers one space."""
        sizes = np.zeros(self.vocab_size, np.int64)
        for index, token in self._vocab.items():
            sizes[index] = len(token.replace(META_SPACE, b" ") if self._is_sentencepiece else token)
        return sizes

    @cached_property
    def _num_prepended(self) -> int:
        return int(
            self._is_sentencepiece and _normalizer_steps(self.definition) == [PREPEND_META_SPACE, SPACES_TO_META_SPACES]
        )

    def _starts(self, ids: AnyIds, text: bytes) -> Offsets:
        starts = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes_per_token[ids], out=starts[1:])
        starts[1:] -= self._num_prepended
        return starts if starts[-1] == len(text) else self._starts_by_walking(ids, text)

    def _starts_by_walking(self, ids: AnyIds, text: bytes) -> Offsets:
        """Compute token starts by walking along the text.

        A literal ▁ takes three bytes and a space takes one, but both become the same token.
        """
        at, starts = -self._num_prepended, [0]
        for index in ids.tolist():
            for piece in re.split(b"(%b)" % META_SPACE, self._vocab[index]):
                is_space = piece == META_SPACE and not (at >= 0 and text.startswith(META_SPACE, at))
                at += 1 if is_space else len(piece)
            starts.append(at)
        if at != len(text):
            raise TokenizerError(
                f"the tokenizer {self.definition.name!r} does not preserve a text: the text has {len(text)} bytes, but "
                f"its tokens cover {at}, so the positions of the tokens are unknown. Use another tokenizer."
            )
        return np.array(starts, np.int64)


def _is_exact_byte_level(definition: Definition) -> bool:
    pre_tokenizer = definition.file.pre_tokenizer or {}
    byte_levels = [
        step for step in pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if step.get("type") == "ByteLevel"
    ]
    adds_no_space = len(byte_levels) == 1 and not byte_levels[0].get("add_prefix_space")
    return adds_no_space and _normalizer_steps(definition) in ([], [NFC])


def _is_exact_sentencepiece(definition: Definition) -> bool:
    """Return True if the normalizer only replaces spaces with ▁ and optionally prepends a ▁."""
    supported = ([SPACES_TO_META_SPACES], [PREPEND_META_SPACE, SPACES_TO_META_SPACES])
    return definition.file.pre_tokenizer in (None, SPLIT_AT_SPACES) and _normalizer_steps(definition) in supported


def _normalizer_steps(definition: Definition) -> list[object]:
    normalizer = definition.file.normalizer
    return [] if normalizer is None else list(normalizer.get("normalizers", [normalizer]))


def _is_plain_bpe(definition: Definition) -> bool:
    model, plain = definition.model, definition.plain_tokens
    has_unsupported_tokens = (
        any(token.single_word or token.lstrip or token.rstrip for token in plain)
        or len({token.normalized for token in plain}) > 1
        or any(definition.vocabulary.get(token.content, token.id) != token.id for token in plain)
    )
    has_unsupported_model = model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix
    return model.type == "BPE" and not has_unsupported_model and not has_unsupported_tokens
