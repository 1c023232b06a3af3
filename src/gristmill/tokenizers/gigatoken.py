"""gigatoken: much faster than `tokenizers` and, for what is let through here, the same ids.

Let through are byte-level BPE without a normalizer, where the tokens' bytes joined are the text, and SentencePiece BPE
that only writes spaces as ▁. What else gigatoken takes gives the right ids but leaves open which token came from where,
or treats unusual added tokens differently: `tokenizers` serves those.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

import gigatoken
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import UNSPELLABLE, Definition
from gristmill.tokenizers.tokenizer import AnyText, Encoded, Ids, Offsets, decoded_around, utf8_of, utf8_of_each

NEWLINE = b"\n"
META_SPACE = "▁".encode()
CONTROL = 255
"""The mark of a control token; other marks count line feeds."""
WRITE_SPACES_AS_META = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND_META = {"type": "Prepend", "prepend": "▁"}


class FastTokenizer:
    encodes_in_batches = False

    def __init__(self, definition: Definition, engine: gigatoken.Tokenizer) -> None:
        self.definition = definition
        self.engine = f"gigatoken {version('gigatoken')}"
        self.vocab_size = max([engine.vocab_size, *(token.id + 1 for token in definition.added_tokens)])
        self.gives_text_back = not definition.model.byte_fallback  # a ▁ may have been a space, or itself
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
        utf8 = utf8_of(text, self.definition.name)
        return self.understood(self._encode(utf8), utf8, with_starts=with_starts)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        checked = utf8_of_each(texts, self.definition.name)
        return [self.understood(self._encode(utf8), utf8, with_starts=with_starts) for utf8 in checked]

    def understood(self, ids: Ids | npt.NDArray[np.uint16], text: bytes, *, with_starts: bool = False) -> Encoded:
        """What there is to tell about a text's ids, whoever has made them."""
        marks = self._marks.take(ids)
        newline_tokens = np.flatnonzero(marks)
        control_id = None
        if marks.max(initial=0) > 1:
            counts = marks[newline_tokens]
            control_id = next(iter(ids[newline_tokens[counts == CONTROL]].tolist()), None)
            newline_tokens = np.repeat(newline_tokens, counts)
        starts = self._starts(ids, text) if with_starts else None
        return Encoded(ids.astype(np.uint32, copy=False), newline_tokens.astype(np.int32), starts, control_id)

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

    def _starts(self, ids: Ids | npt.NDArray[np.uint16], text: bytes) -> Offsets:
        starts = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes_per_token[ids], out=starts[1:])
        starts[1:] -= self._num_prepended
        return starts if starts[-1] == len(text) else self._starts_along(ids, text)

    def _starts_along(self, ids: Ids | npt.NDArray[np.uint16], text: bytes) -> Offsets:
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
    return adds_no_space and definition.file.normalizer is None


def _is_exact_meta(definition: Definition) -> bool:
    """Writing spaces as ▁ is all the normalizer does, but for one more in front."""
    known = ([WRITE_SPACES_AS_META], [PREPEND_META, WRITE_SPACES_AS_META])
    return definition.file.pre_tokenizer is None and _normalizer_steps(definition) in known


def _normalizer_steps(definition: Definition) -> list[object]:
    normalizer = definition.file.normalizer or {}
    return list(normalizer.get("normalizers", [normalizer]))


def _is_plain_bpe(definition: Definition) -> bool:
    model, plain = definition.model, definition.plain_tokens
    has_odd_tokens = (
        any(token.single_word or token.lstrip or token.rstrip for token in plain)
        or len({token.normalized for token in plain}) > 1
        or (model.byte_fallback and bool(plain))
    )
    has_odd_model = model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix
    return model.type == "BPE" and not has_odd_model and not has_odd_tokens
