"""A tokenizer.json, understood: special tokens around a window, control tokens, and a copy that knows only text.

Source text is only text: a literal `</s>` in a file must not become the control token. Three things see to that:

1. the copy that engines get (`plain_json`) has no control tokens to recognise;
2. Unigram, WordPiece and WordLevel models also find a control token by its spelling in the vocabulary, so there it is
   renamed to something no text spells;
3. whatever still comes out as a control id is a reason to drop the file (pipeline/prepare.py).

A control token is one that is marked as special, that the template puts around a window, or that pads one; and an added
token that tokenizer_config.json gives a role, that ends documents, or that has a task by its name (task_tokens).

The vocabulary itself, most of the file, is parsed only where one of these needs it.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gristmill.core.errors import TokenizerError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG, write_atomically
from gristmill.core.plain_files import read_plain
from gristmill.core.records import LARGEST_VOCABULARY
from gristmill.tokenizers.control_tokens import (
    BEGIN_NAMES,
    CHAT_END_NAMES,
    END_NAMES,
    MASK_NAMES,
    PAD_NAMES,
    ROLES,
    has_task,
)

# Sixteen code points that Unicode says are never characters, in front of a renamed control token.
UNSPELLABLE = "".join(map(chr, range(0xFDD0, 0xFDE0)))
VOCABULARY: Any = dict[str, int] | list[tuple[str, float]]
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
    normalized: bool = True


class Model(msgspec.Struct, frozen=True):
    """The model, its vocabulary and merges, which are most of the file, left as they are spelled."""

    vocab: msgspec.Raw
    merges: msgspec.Raw = msgspec.Raw(b"[]")
    type: str = "BPE"
    unk_token: str | None = None
    unk_id: int | None = None
    byte_fallback: bool = False
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    ignore_merges: bool = False
    """A word that is in the vocabulary is one token, whatever merges would make of it."""


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
        paths = folder / TOKENIZER, folder / TOKENIZER_CONFIG
        try:
            json, config = (read_plain(path) for path in paths)
        except OSError as error:
            raise TokenizerError(f"cannot read the tokenizer in {str(folder)!r}: {error.strerror}.") from None
        definition = cls(name=folder.name, json=json, config=config)
        definition.check()
        return definition

    def write(self, folder: Path) -> None:
        """Into a folder that is synced as a whole before it counts."""
        write_atomically(folder / TOKENIZER, self.json, is_synced=False)
        write_atomically(folder / TOKENIZER_CONFIG, self.config, is_synced=False)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.json).hexdigest()

    @cached_property
    def key(self) -> str:
        """Of all that decides what it does."""
        return hashlib.sha256(self.json + b"\0" + self.config).hexdigest()

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
    def control_spellings(self) -> tuple[str, ...]:
        """Texts that become a special token where a trainer tokenizes with this tokenizer as it comes."""
        found = {token.content for token in self.added_tokens if token.special or token.id in self.control_ids}
        if others := self.control_ids - {token.id for token in self.added_tokens}:
            found |= {token for token, index in self.vocabulary.items() if index in others}
        return tuple(sorted(found - {""}))

    @cached_property
    def plain_tokens(self) -> list[AddedToken]:
        """Added, but text like any other: runs of spaces, say."""
        return [token for token in self.added_tokens if not token.special and token.id not in self.control_ids]

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id. A control id that nothing names does not make it larger."""
        return 1 + max([*self.vocabulary.values(), *(token.id for token in self.added_tokens)])

    @cached_property
    def template(self) -> Template:
        """The special tokens that the tokenizer's own post-processor puts around one sequence."""
        return _template(self.file.post_processor, self.name)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """All but the one for unknown text, which text may rightly become."""
        around = {*self.template.prefix, *self.template.suffix}
        more = self._configured("additional_special_tokens")
        named = {self._configured(role) for role in ROLES} | {_content(one) for one in (more or ())}
        added = {
            token.id
            for token in self.added_tokens
            if (token.special or token.content in named or token.id == self.end_id or has_task(token.content))
            and token.content != self._unknown_token
        }
        return frozenset(added | around | ({self.pad_id} if self.pad_id is not None else set()))

    @cached_property
    def pad_id(self) -> int | None:
        named = self._configured("pad_token")
        if named is None and self.file.padding is not None:
            return int(self.file.padding["pad_id"])
        names = self._marked_first(PAD_NAMES) if named is None else (named,)
        by_name = {token.content: token.id for token in self.added_tokens}
        ids = [by_name[name] for name in names if name in by_name]
        return next(iter(ids), None) if ids or named is None else self.vocabulary.get(named)

    @cached_property
    def end_id(self) -> int | None:
        """The token that ends a text; for an instruct model that of its base model, not the one that ends a turn."""
        if self._configured("eos_token") in CHAT_END_NAMES:
            added = {token.content: token.id for token in self.added_tokens}
            texts = [name for name in self._marked_first(END_NAMES) if name in added and name not in CHAT_END_NAMES]
            if texts:
                return added[texts[0]]
        return self.named_id("eos_token", END_NAMES)

    @cached_property
    def begin_ids(self) -> tuple[int, ...]:
        """Ids that the model expects at the beginning of a text."""
        wants_begin = self._configured("add_bos_token")
        if self.template.prefix or wants_begin is False:
            return self.template.prefix
        begin = self._configured("bos_token") if wants_begin else None
        names = (begin,) if begin is not None else BEGIN_NAMES
        added = {token.content: token.id for token in self.added_tokens}
        return next(((added[name],) for name in names if name in added), ())

    @cached_property
    def mask_id(self) -> int | None:
        """The mask token of a masked model. Gemma's `<mask>` does not count: its template has no suffix."""
        is_masked = self._configured("mask_token") is not None or bool(self.template.suffix)
        return self.named_id("mask_token", MASK_NAMES) if is_masked else None

    @cached_property
    def ids_by_token(self) -> dict[str, int]:
        """All that have a name, control tokens too."""
        return {**self.vocabulary, **{token.content: token.id for token in self.added_tokens}}

    def id_of(self, token: str) -> int | None:
        by_name = {one.content: one.id for one in self.added_tokens}
        return by_name[token] if token in by_name else self.vocabulary.get(token)

    def named_id(self, setting: str, names: Sequence[str]) -> int | None:
        """The token that tokenizer_config.json names so, else the first of these that there is."""
        named = self._configured(setting)
        found = (self.id_of(name) for name in ((named,) if isinstance(named, str) else self._marked_first(names)))
        return next((index for index in found if index is not None), None)

    def _configured(self, setting: str) -> Any:
        """The token that tokenizer_config.json names so."""
        return _content(self._decode(self.config, dict[str, Any]).get(setting))

    def _marked_first(self, names: Sequence[str]) -> list[str]:
        """Those that are marked as special before others: Gemma's </s> is HTML, and <eos> ends its texts."""
        marked = {token.content for token in self.special_tokens}
        return sorted(names, key=lambda name: name not in marked)

    def plain_json(self) -> bytes:
        """The tokenizer.json without anything that text could turn into a control token."""
        tree = self._decode(self.json, dict[str, msgspec.Raw])
        is_found_by_spelling = self.model.type in FOUND_BY_SPELLING
        changed = {
            "added_tokens": self._plain_added_tokens(tree),
            "truncation": None,
            "padding": None,
            "post_processor": None,
            "model": self._model_with_control_tokens_renamed() if is_found_by_spelling else tree["model"],
        }
        return msgspec.json.encode({**tree, **changed})

    def _plain_added_tokens(self, tree: dict[str, msgspec.Raw]) -> list[dict[str, Any]]:
        """Control tokens go; beside plain ones, those beyond the vocabulary only change their spelling."""
        # `tokenizers` numbers added tokens by their place in the list: taking one out would renumber those after it.
        if not self.plain_tokens:
            return []
        plain_ids = {token.id for token in self.plain_tokens}
        kept = []
        for token in self._decode(tree["added_tokens"], list[dict[str, Any]]):
            if token["id"] in plain_ids:
                kept.append(token)
            elif token["content"] not in self.vocabulary:
                kept.append({**token, "content": UNSPELLABLE + token["content"]})
        return kept

    def _model_with_control_tokens_renamed(self) -> dict[str, Any]:
        unknown = self.model.unk_token

        def renamed(token: str, index: int) -> str:
            # WordPiece and WordLevel find their unknown token by name; Unigram has its number.
            return UNSPELLABLE + token if index in hidden and token != unknown else token

        hidden = self.control_ids | {token.id for token in self.special_tokens}
        model = self._decode(self.file.model, dict[str, Any])
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            return {**model, "vocab": {renamed(token, index): index for token, index in vocab.items()}}
        return {**model, "vocab": [[renamed(token, index), score] for index, (token, score) in enumerate(vocab)]}

    @cached_property
    def continuing(self) -> "Definition":
        """The same tokenizer for a text that goes on after other tokens: without a blank before it, or taken off it.

        The definition itself where nothing puts a blank there. With the others, a file that is cut into parts would
        get a blank at each cut: `get` and `_version` would become `get` and ` _version`.
        """
        tree = self._decode(self.json, dict[str, Any])
        changed = {name: _without_blank(tree.get(name)) for name in ("normalizer", "pre_tokenizer")}
        if (tree.get("decoder") or {}).get("type") != "ByteLevel":  # which takes nothing off, whatever its settings
            changed["decoder"] = _without_blank(tree.get("decoder"))
        if all(step == tree.get(name) for name, step in changed.items()):
            return self
        return msgspec.structs.replace(self, json=msgspec.json.encode({**tree, **changed}))

    @cached_property
    def puts_blank_before_text(self) -> bool:
        """Encodes a part of a text as if a blank stood before it."""
        own, goes_on = self.file, self.continuing.file
        return (own.normalizer, own.pre_tokenizer) != (goes_on.normalizer, goes_on.pre_tokenizer)

    def check(self) -> None:
        """A damaged tokenizer says so before a build begins, whatever is wrong with it."""
        try:
            ids = {*self.control_ids, *(token.id for token in self.added_tokens)}
            if not all(0 <= index < self.vocab_size <= LARGEST_VOCABULARY for index in ids) or self.vocab_size <= 0:
                raise ValueError(f"ids from {min(ids, default=0)} to {max(ids, default=0)} in {self.vocab_size}")
            if min(self.vocabulary.values()) < 0:
                raise ValueError("a negative id")
        except TokenizerError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {error!r}. Fetch it again.") from None

    @cached_property
    def unknown_id(self) -> int | None:
        """What text becomes that the vocabulary has nothing for."""
        return None if self._unknown_token is None else self.id_of(self._unknown_token)

    @cached_property
    def _unknown_token(self) -> str | None:
        if self.model.unk_id is None:
            return self.model.unk_token
        return next((token for token, index in self.vocabulary.items() if index == self.model.unk_id), None)

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """The model's own, without added tokens that are not in it."""
        vocab: dict[str, int] | list[tuple[str, float]] = self._decode(self.model.vocab, VOCABULARY)
        if not vocab:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: its vocabulary is empty.")
        return vocab if isinstance(vocab, dict) else {token: index for index, (token, _) in enumerate(vocab)}

    def _decode(self, content: bytes | msgspec.Raw, kind: type[Kind]) -> Kind:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {error}. Fetch it again.") from None


def _content(token: Any) -> Any:
    """A token as tokenizer_config.json has it: its spelling, or an object with that in it."""
    return token.get("content") if isinstance(token, dict) else token


def _without_blank(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A step of a normalizer, pre-tokenizer or decoder that leaves the beginning of a text as it is; None: no step."""
    kind = step.get("type") if step is not None else None
    if step is None or kind == "Prepend" or (kind == "Strip" and step.get("start") and step.get("content") == " "):
        return None
    if kind == "Sequence":
        name = next(name for name in ("normalizers", "pretokenizers", "decoders") if name in step)
        inner = [_without_blank(one) for one in step[name]]
        return {**step, name: [one for one in inner if one is not None]}
    if kind == "Metaspace":
        settings = {"add_prefix_space": False, "prepend_scheme": "never"}
        return {**step, **{name: value for name, value in settings.items() if name in step or name == "prepend_scheme"}}
    return {**step, "add_prefix_space": False} if kind == "ByteLevel" and step.get("add_prefix_space") else step


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
