"""A tokenizer.json, understood: special tokens around a window, control tokens, and a copy that knows only text.

Source text is only text: a literal `</s>` in a file must not become the control token. Three things see to that:

1. the copy that engines get (`plain_json`) has no special tokens to recognise;
2. Unigram, WordPiece and WordLevel models also find a control token by its spelling in the vocabulary, so there it is
   renamed to something no text spells (BPE reaches a token only through merges);
3. whatever still comes out as a control id is a reason to drop the file (steps.prepare).

The vocabulary itself is parsed only where one of these needs it: 40 ms that a build with CodeBERT does without.
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gristmill.errors import TokenizerError
from gristmill.layout import TOKENIZER, TOKENIZER_CONFIG, write_atomically

PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>")
# Sixteen code points that Unicode says are never characters, in front of a renamed control token.
UNSPELLABLE = "".join(map(chr, range(0xFDD0, 0xFDE0)))
VOCABULARY: Any = dict[str, int] | list[tuple[str, float]]
ADDED_TOKENS: Any = list[dict[str, Any]] | None
Kind = TypeVar("Kind")
FOUND_BY_SPELLING = ("Unigram", "WordPiece", "WordLevel")


class Template(NamedTuple):
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.suffix)


class AddedToken(msgspec.Struct, frozen=True):
    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


class Model(msgspec.Struct, frozen=True):
    """The model without its vocabulary and merges, which are most of the file."""

    vocab: msgspec.Raw
    type: str = "BPE"
    unk_token: str | None = None
    unk_id: int | None = None
    byte_fallback: bool = False
    dropout: float | None = None


class _File(msgspec.Struct, frozen=True):
    model: msgspec.Raw
    added_tokens: list[AddedToken] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    name: str
    json: bytes
    """The tokenizer.json as it was found; what AutoTokenizer reads from the dataset."""
    config: bytes
    """The tokenizer_config.json beside it."""
    revision: str | None = None

    @classmethod
    def read(cls, folder: Path) -> "Definition":
        try:
            json, config = (folder / TOKENIZER).read_bytes(), (folder / TOKENIZER_CONFIG).read_bytes()
        except OSError as error:
            raise TokenizerError(f"cannot read the tokenizer in {str(folder)!r}: {error.strerror}.") from None
        return cls(name=folder.name, json=json, config=config)

    def write(self, folder: Path) -> None:
        write_atomically(folder / TOKENIZER, self.json)
        write_atomically(folder / TOKENIZER_CONFIG, self.config)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.json).hexdigest()

    @cached_property
    def file(self) -> _File:
        return self._decode(self.json, _File)

    @cached_property
    def model(self) -> Model:
        return self._decode(self.file.model, Model)

    @cached_property
    def added_tokens(self) -> list[AddedToken]:
        return self.file.added_tokens or []

    @cached_property
    def special_tokens(self) -> list[AddedToken]:
        return [token for token in self.added_tokens if token.special]

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max([*self._ids_by_token.values(), *(token.id for token in self.added_tokens)])

    @cached_property
    def template(self) -> Template:
        """The special tokens that the tokenizer's own post-processor puts around one sequence."""
        return _template(self.file.post_processor, self.name)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Special tokens except the one for unknown text, which text may rightly become."""
        return frozenset(token.id for token in self.special_tokens if token.content != self._unknown_token)

    @cached_property
    def pad_id(self) -> int | None:
        named = self._decode(self.config, dict[str, Any]).get("pad_token")
        named = named.get("content") if isinstance(named, dict) else named
        if named is None and self.file.padding is not None:
            return int(self.file.padding["pad_id"])
        names = PAD_NAMES if named is None else (named,)
        by_name = {token.content: token.id for token in self.added_tokens}
        ids = [by_name[name] for name in names if name in by_name]
        return next(iter(ids), None) if ids or named is None else self._ids_by_token.get(named)

    def plain_json(self) -> bytes:
        """The tokenizer.json without anything that text could turn into a control token."""
        tree = self._decode(self.json, dict[str, msgspec.Raw])
        plain_tokens = [
            token for token in self._decode(tree.get("added_tokens", b"null"), ADDED_TOKENS) or []
            if not token.get("special")
        ]  # fmt: skip
        is_found_by_spelling = self.model.type in FOUND_BY_SPELLING
        changed = {
            "added_tokens": plain_tokens,
            "truncation": None,
            "padding": None,
            "post_processor": None,
            "model": self._model_with_control_tokens_renamed() if is_found_by_spelling else tree["model"],
        }
        return msgspec.json.encode({**tree, **changed})

    def _model_with_control_tokens_renamed(self) -> dict[str, Any]:
        control = {token.content for token in self.special_tokens}
        if self.model.type != "Unigram" and self._unknown_token is not None:
            # These find their unknown token by name; Unigram has its number.
            control.discard(self._unknown_token)

        def renamed(token: str) -> str:
            return UNSPELLABLE + token if token in control else token

        model = self._decode(self.file.model, dict[str, Any])
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            return {**model, "vocab": {renamed(token): index for token, index in vocab.items()}}
        return {**model, "vocab": [[renamed(token), score] for token, score in vocab]}

    @cached_property
    def _unknown_token(self) -> str | None:
        if self.model.unk_id is None:
            return self.model.unk_token
        return next((token for token, index in self._ids_by_token.items() if index == self.model.unk_id), None)

    @cached_property
    def _ids_by_token(self) -> dict[str, int]:
        vocab: dict[str, int] | list[tuple[str, float]] = self._decode(self.model.vocab, VOCABULARY)
        if not vocab:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: its vocabulary is empty.")
        return vocab if isinstance(vocab, dict) else {token: index for index, (token, _) in enumerate(vocab)}

    def _decode(self, content: bytes | msgspec.Raw, kind: type[Kind]) -> Kind:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {error}. Fetch it again.") from None


def _template(processor: dict[str, Any] | None, name: str) -> Template:
    kind = processor["type"] if processor else None
    if processor is None or kind == "ByteLevel":
        return Template((), ())
    if kind in {"RobertaProcessing", "BertProcessing"}:
        return Template((int(processor["cls"][1]),), (int(processor["sep"][1]),))
    if kind == "TemplateProcessing":
        return _from_pieces(processor)
    if kind == "Sequence":
        parts = [_template(part, name) for part in processor["processors"]]
        return Template(
            tuple(index for part in reversed(parts) for index in part.prefix),
            tuple(index for part in parts for index in part.suffix),
        )
    raise TokenizerError(f"the tokenizer {name!r} adds its special tokens by {kind!r}, which gristmill does not know.")


def _from_pieces(processor: dict[str, Any]) -> Template:
    """`[{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, …]`"""
    prefix: list[int] = []
    suffix: list[int] = []
    side = prefix
    for piece in processor["single"]:
        if "Sequence" in piece:
            side = suffix
        else:
            side.extend(processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"])
    return Template(tuple(prefix), tuple(suffix))
