"""gigatoken: about 100 times as fast as `tokenizers` and, for what is let through here, the same ids.

Let through are byte-level BPE without a normalizer, where the tokens' bytes joined are the text, and SentencePiece BPE
that only writes spaces as ▁. What else gigatoken takes gives the right ids but leaves open which token came from where,
or treats unusual added tokens differently: `tokenizers` serves those.
"""

import re
from importlib.metadata import version
from typing import Any

import gigatoken
import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.errors import TokenizerError
from gristmill.tokenizing.definition import Definition
from gristmill.tokenizing.tokenizer import Encoded, Ids, Offsets

NEWLINE = b"\n"
CONTROL = 255
META_SPACE = "▁".encode()


class FastTokenizer:
    def __init__(
        self, definition: Definition, engine: gigatoken.Tokenizer, *, num_prepended: int, is_meta: bool
    ) -> None:
        self.definition = definition
        self.engine = f"gigatoken {version('gigatoken')}"
        self._encode = engine.encode
        self._decode = engine.decode
        self._num_prepended = num_prepended
        self._tokens = [b""] * engine.vocab_size
        for index, token in engine.vocab.items():
            self._tokens[index] = token
        plain = [token.replace(META_SPACE, b" ") if is_meta else token for token in self._tokens]
        self._bytes_per_token = np.array([len(token) for token in plain], np.int64)
        # One look-up per token tells both: how many line feeds it holds, and whether it is a control token.
        self._marks = np.array([min(token.count(NEWLINE), CONTROL - 1) for token in plain], np.uint8)
        self._marks[[index for index in definition.control_ids if index < len(plain)]] = CONTROL

    @classmethod
    def load(cls, definition: Definition) -> "FastTokenizer | None":
        """None where this engine would not be exact, or refuses."""
        plain = definition.plain()
        is_meta = bool(plain["model"].get("byte_fallback"))
        num_prepended = _meta_prepended(plain) if is_meta else _byte_level_prepended(plain)
        if num_prepended is None:
            return None
        try:
            engine = gigatoken.Tokenizer.from_json(msgspec.json.encode(plain))
        except RuntimeError:
            return None
        return cls(definition, engine, num_prepended=num_prepended, is_meta=is_meta)

    def encode(self, text: bytes, *, with_starts: bool = False) -> Encoded:
        ids = self._encode(text)
        marks = self._marks.take(ids)
        newline_tokens = np.flatnonzero(marks)
        control_id = None
        if marks.max(initial=0) > 1:
            counts = marks[newline_tokens]
            control_id = next(iter(ids[newline_tokens[counts == CONTROL]].tolist()), None)
            newline_tokens = np.repeat(newline_tokens, counts)
        starts = self._starts(ids, text) if with_starts else None
        return Encoded(ids, newline_tokens.astype(np.uint32), starts, control_id)

    def decode(self, ids: npt.ArrayLike) -> bytes:
        return self._decode(np.ascontiguousarray(ids, np.uint32))

    def _starts(self, ids: Ids, text: bytes) -> Offsets:
        starts = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self._bytes_per_token[ids], out=starts[1:])
        starts[1:] -= self._num_prepended
        if starts[-1] != len(text):
            starts = self._starts_along(ids, text)
        return starts

    def _starts_along(self, ids: Ids, text: bytes) -> Offsets:
        """A ▁ in the text itself takes three bytes where a space takes one: walk along the text to tell them apart."""
        at, starts = -self._num_prepended, [0]
        for index in ids.tolist():
            for piece in re.split(b"(%b)" % META_SPACE, self._tokens[index]):
                is_space = piece == META_SPACE and not (at >= 0 and text.startswith(META_SPACE, at))
                at += 1 if is_space else len(piece)
            starts.append(at)
        if at != len(text):
            name = self.definition.name
            raise TokenizerError(f"the tokenizer {name!r} does not give every text back, which --with-text needs.")
        return np.array(starts, np.int64)


def _byte_level_prepended(plain: dict[str, Any]) -> int | None:
    pre_tokenizer = plain.get("pre_tokenizer") or {}
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if pre_tokenizer else []
    byte_levels = [step for step in steps if step.get("type") == "ByteLevel"]
    is_exact = (
        _is_plain_bpe(plain)
        and plain.get("normalizer") is None
        and len(byte_levels) == 1
        and not byte_levels[0].get("add_prefix_space")
    )
    return 0 if is_exact else None


def _meta_prepended(plain: dict[str, Any]) -> int | None:
    """How many spaces the normalizer puts in front, if that and writing spaces as ▁ is all it does."""
    normalizer = plain.get("normalizer") or {}
    steps = normalizer.get("normalizers", [normalizer])
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    if not _is_plain_bpe(plain) or plain.get("pre_tokenizer") is not None:
        return None
    return {1: 0, 2: 1}[len(steps)] if steps in ([replace], [prepend, replace]) else None


def _is_plain_bpe(plain: dict[str, Any]) -> bool:
    flags = ("single_word", "lstrip", "rstrip")
    has_odd_tokens = any(token.get(flag) for token in plain["added_tokens"] for flag in flags)
    return plain["model"]["type"] == "BPE" and not plain["model"].get("dropout") and not has_odd_tokens
