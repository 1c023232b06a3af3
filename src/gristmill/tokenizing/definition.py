"""A tokenizer.json, understood: special tokens around a window, control tokens, and a copy that knows only text.

Source text is only text: a literal `</s>` in a file must not become the control token. Three things see to that:

1. the copy that engines get (`plain_json`) has no special tokens to recognise;
2. Unigram, WordPiece and WordLevel models also find a control token by its spelling in the vocabulary, so there it is
   renamed to something no text spells (BPE reaches a token only through merges);
3. whatever still comes out as a control id is a reason to drop the file (steps.prepare).
"""

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.errors import TokenizerError
from gristmill.layout import TOKENIZER, TOKENIZER_CONFIG, write_atomically

PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<PAD>")
# Sixteen code points that Unicode says are never characters, in front of a renamed control token.
UNSPELLABLE = "".join(map(chr, range(0xFDD0, 0xFDE0)))
FOUND_BY_SPELLING = ("Unigram", "WordPiece", "WordLevel")


class Template(NamedTuple):
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.suffix)


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
    def tree(self) -> dict[str, Any]:
        try:
            tree = msgspec.json.decode(self.json, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {error}. Fetch it again.") from None
        if not isinstance(tree.get("model"), dict) or "vocab" not in tree["model"]:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: it has no model with a vocabulary.")
        tree["model"].setdefault("type", "BPE")
        return tree

    @property
    def model_type(self) -> str:
        return str(self.tree["model"]["type"])

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self._ids_by_token.values())

    @cached_property
    def template(self) -> Template:
        """The special tokens that the tokenizer's own post-processor puts around one sequence."""
        return _template(self.tree.get("post_processor"), self.name)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Special tokens except the one for unknown text, which text may rightly become."""
        unknown = self._unknown_token
        return frozenset(token["id"] for token in self._special_tokens if token["content"] != unknown)

    @cached_property
    def pad_id(self) -> int | None:
        config = msgspec.json.decode(self.config, type=dict[str, Any])
        named = config.get("pad_token")
        named = named.get("content") if isinstance(named, dict) else named
        if named is not None:
            return self._ids_by_token.get(named)
        if isinstance(self.tree.get("padding"), dict):
            return int(self.tree["padding"]["pad_id"])
        return next((self._ids_by_token[name] for name in PAD_NAMES if name in self._ids_by_token), None)

    def plain(self) -> dict[str, Any]:
        """The tokenizer.json without anything that text could turn into a control token."""
        tree = dict(self.tree)
        tree["added_tokens"] = [token for token in tree.get("added_tokens") or [] if not token.get("special")]
        tree.update(truncation=None, padding=None, post_processor=None)
        if self.model_type in FOUND_BY_SPELLING:
            tree["model"] = self._with_control_tokens_renamed(tree["model"])
        return tree

    def _with_control_tokens_renamed(self, model: dict[str, Any]) -> dict[str, Any]:
        control = {token["content"] for token in self._special_tokens}
        if model["type"] != "Unigram":
            # These find their unknown token by name; Unigram has its number.
            control.discard(self._unknown_token)

        def renamed(token: str) -> str:
            return UNSPELLABLE + token if token in control else token

        vocab = model["vocab"]
        if isinstance(vocab, dict):
            return {**model, "vocab": {renamed(token): index for token, index in vocab.items()}}
        return {**model, "vocab": [[renamed(token), score] for token, score in vocab]}

    @property
    def _special_tokens(self) -> list[dict[str, Any]]:
        return [token for token in self.tree.get("added_tokens") or [] if token.get("special")]

    @property
    def _unknown_token(self) -> str | None:
        model = self.tree["model"]
        if model.get("unk_id") is not None:
            return str(model["vocab"][model["unk_id"]][0])
        return model.get("unk_token")

    @cached_property
    def _ids_by_token(self) -> dict[str, int]:
        vocab = self.tree["model"]["vocab"]
        try:
            ids = dict(vocab) if isinstance(vocab, dict) else {token: index for index, (token, _) in enumerate(vocab)}
            ids.update((token["content"], int(token["id"])) for token in self.tree.get("added_tokens") or [])
            if not ids or not all(isinstance(index, int) for index in ids.values()):
                raise TypeError("ids must be numbers")
        except (TypeError, ValueError, KeyError) as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: its vocabulary is none ({error}).") from None
        return ids


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
