"""gigatoken: much faster than `tokenizers` and, for what is let through here, the same ids.

It takes byte-level BPE, where the tokens' bytes joined are the text, and SentencePiece BPE that only writes spaces as
▁. A normalizer may be NFC, which leaves nearly every text as it is. `tokenizers` encodes the texts that NFC changes,
and those with characters about which the two engines do not agree (unicode_versions.py).

Everything else is left to `tokenizers`: the ids would be right, but not which token came from where, or unusual added
tokens would be treated differently.
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
from gristmill.tokenizers.definition import UNSPELLABLE, Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer, require_tokenizers
from gristmill.tokenizers.tokenizer import (
    AnyText,
    Encoded,
    EncodedTexts,
    Ids,
    Offsets,
    decoded_around,
    utf8_of,
    utf8_of_each,
)
from gristmill.tokenizers.unicode_versions import is_nfc, is_settled

AnyIds = Ids | npt.NDArray[np.uint16]
NO_IDS: Ids = np.zeros(0, np.uint32)
NEWLINE = b"\n"
META_SPACE = "▁".encode()
CONTROL = 255
"""The mark of a control token; other marks count line feeds."""
NFC = {"type": "NFC"}
WRITE_SPACES_AS_META = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_META = {"type": "Prepend", "prepend": "▁"}
SPLIT_AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
"""Finds none, once they are written as ▁."""


class FastTokenizer:
    def __init__(self, definition: Definition, engine: gigatoken.Tokenizer) -> None:
        self.definition = definition
        self._with_nfc = _normalizer_steps(definition) == [NFC]
        self._has_pattern = not definition.model.byte_fallback
        self.engine = f"gigatoken {version('gigatoken')}"
        if self._with_nfc:
            self.engine += f" and {require_tokenizers(definition)}"
        self.vocab_size = max([engine.vocab_size, *(token.id + 1 for token in definition.added_tokens)])
        # A ▁ may have been a space, or itself; é one character, or two.
        self.gives_text_back = not definition.model.byte_fallback and not self._with_nfc
        self._encode = engine.encode
        self._decode = engine.decode
        self._vocab = engine.vocab
        hidden = UNSPELLABLE.encode()
        self._spelled = {
            token.id: token.content.encode()
            for token in definition.added_tokens
            if self._vocab.get(token.id, hidden).startswith(hidden)
        }
        self._num_known = engine.vocab_size
        self._first_spelled = min((self._num_known, *self._spelled))
        # One look-up per token tells both: how many line feeds it holds, and whether it is a control token.
        self._marks = np.zeros(self.vocab_size, np.uint8)
        for index, token in self._vocab.items():
            if NEWLINE in token:
                self._marks[index] = min(token.count(NEWLINE), CONTROL - 1)
        self._marks[[index for index in definition.control_ids if index < self.vocab_size]] = CONTROL

    @classmethod
    def load(cls, definition: Definition) -> "FastTokenizer | None":
        """None where this engine would not be exact, or refuses."""
        is_exact = _is_exact_meta(definition) if definition.model.byte_fallback else _is_exact_byte_level(definition)
        if not is_exact or not _is_plain_bpe(definition):
            return None
        try:
            return cls(definition, gigatoken.Tokenizer.from_json(definition.plain_json()))
        except RuntimeError:
            return None

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        return self._encoded(utf8_of(text, self.definition.name), with_starts=with_starts)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(utf8_of_each(texts, self.definition.name), with_starts=with_starts).each()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        checked = utf8_of_each(texts, self.definition.name)
        if self._with_nfc and not all(map(is_nfc, checked)):
            return EncodedTexts.of([self._encoded(utf8, with_starts=with_starts) for utf8 in checked])
        ids = list(map(self._ids_of, checked))
        edges = np.cumsum([0, *map(len, ids)])
        return self._understood(np.concatenate([NO_IDS, *ids]), edges, checked, with_starts=with_starts)

    def understood(
        self, ids: AnyIds, edges: Offsets, texts: Sequence[bytes], *, with_starts: bool = False
    ) -> EncodedTexts:
        """What there is to know about texts' ids, whatever has made them."""
        if self._with_nfc and not all(map(is_nfc, texts)):  # their bytes are not the texts'
            return self.encode_all(texts, with_starts=with_starts)
        return self._understood(ids, edges, texts, with_starts=with_starts)

    def _encoded(self, utf8: bytes, *, with_starts: bool) -> Encoded:
        if self._with_nfc and not is_nfc(utf8):
            return self._reference.encode(utf8, with_starts=with_starts)
        ids = self._ids_of(utf8)
        known = self._understood(ids, np.array([0, len(ids)]), [utf8], with_starts=with_starts)
        starts = known.starts[0] if with_starts else None
        return Encoded(ids.astype(np.uint32, copy=False), known.newline_tokens, starts, known.control_ids.get(0))

    def _ids_of(self, utf8: bytes) -> Ids:
        """Of a text in NFC, where the tokenizer brings texts into it."""
        is_exact = self._with_nfc or not self._has_pattern or is_settled(utf8)  # a text in NFC is settled
        return self._encode(utf8) if is_exact else self._reference.encode(utf8).ids

    @cached_property
    def _reference(self) -> ReferenceTokenizer:
        return ReferenceTokenizer(self.definition)

    def _understood(self, ids: AnyIds, edges: Offsets, texts: Sequence[bytes], *, with_starts: bool) -> EncodedTexts:
        marks = self._marks.take(ids)
        at = np.flatnonzero(marks != 0)  # of flags it takes a tenth of the time
        newline_edges = np.searchsorted(at, edges)
        newline_tokens = (at - np.repeat(edges[:-1], np.diff(newline_edges))).astype(np.int32)
        control_ids: dict[int, int] = {}
        counts = marks[at]
        if counts.max(initial=0) > 1:
            controls = at[counts == CONTROL][::-1]
            numbers = np.searchsorted(edges, controls, "right") - 1
            control_ids = dict(zip(numbers.tolist(), ids[controls].tolist(), strict=True))
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
        if ids.max(initial=0) < self._first_spelled:
            return self._decode(ids)
        return decoded_around(ids, self._spelled, self._decode, self._num_known)

    @cached_property
    def _is_meta(self) -> bool:
        return self.definition.model.byte_fallback

    @cached_property
    def _bytes_per_token(self) -> Offsets:
        """In the text: a ▁ there stands for a space."""
        sizes = np.zeros(self.vocab_size, np.int64)
        for index, token in self._vocab.items():
            sizes[index] = len(token.replace(META_SPACE, b" ") if self._is_meta else token)
        return sizes

    @cached_property
    def _num_prepended(self) -> int:
        return int(self._is_meta and _normalizer_steps(self.definition) == [PREPEND_META, WRITE_SPACES_AS_META])

    def _starts(self, ids: AnyIds, text: bytes) -> Offsets:
        starts = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes_per_token[ids], out=starts[1:])
        starts[1:] -= self._num_prepended
        return starts if starts[-1] == len(text) else self._starts_along(ids, text)

    def _starts_along(self, ids: AnyIds, text: bytes) -> Offsets:
        """A ▁ in the text itself takes three bytes where a space takes one: walk along the text to tell them apart."""
        at, starts = -self._num_prepended, [0]
        for index in ids.tolist():
            for piece in re.split(b"(%b)" % META_SPACE, self._vocab[index]):
                is_space = piece == META_SPACE and not (at >= 0 and text.startswith(META_SPACE, at))
                at += 1 if is_space else len(piece)
            starts.append(at)
        if at != len(text):
            name = self.definition.name
            raise TokenizerError(f"the tokenizer {name!r} does not give every text back, which --with-text needs.")
        return np.array(starts, np.int64)


def _is_exact_byte_level(definition: Definition) -> bool:
    pre_tokenizer = definition.file.pre_tokenizer or {}
    byte_levels = [
        step for step in pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if step.get("type") == "ByteLevel"
    ]
    adds_no_space = len(byte_levels) == 1 and not byte_levels[0].get("add_prefix_space")
    return adds_no_space and _normalizer_steps(definition) in ([], [NFC])


def _is_exact_meta(definition: Definition) -> bool:
    """Writing spaces as ▁ is all the normalizer does, but for one more in front."""
    known = ([WRITE_SPACES_AS_META], [PREPEND_META, WRITE_SPACES_AS_META])
    return definition.file.pre_tokenizer in (None, SPLIT_AT_SPACES) and _normalizer_steps(definition) in known


def _normalizer_steps(definition: Definition) -> list[object]:
    normalizer = definition.file.normalizer
    return [] if normalizer is None else list(normalizer.get("normalizers", [normalizer]))


def _is_plain_bpe(definition: Definition) -> bool:
    model, plain = definition.model, definition.plain_tokens
    has_odd_tokens = (
        any(token.single_word or token.lstrip or token.rstrip for token in plain)
        or len({token.normalized for token in plain}) > 1
        or any(definition.vocabulary.get(token.content, token.id) != token.id for token in plain)
    )
    has_odd_model = model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix
    return model.type == "BPE" and not has_odd_model and not has_odd_tokens
