"""Parse tokenizer.json, find its control tokens, and make a copy without control tokens for the engines.

A literal `</s>` in a source file is text and must not become the control token. Three measures ensure this:

1. Engines load a copy of tokenizer.json (`plain_json`) in which control tokens are removed from the added tokens. If
   removing them would change the ids of other added tokens, they are renamed instead.
2. Unigram, WordPiece and WordLevel models would still find a control token in the vocabulary by its text. In the copy
   for these models, control tokens are renamed to texts that no source contains.
3. If an engine still produces a control id, the build drops the file (pipeline/prepare.py) or the variant
   (pipeline/variant_parts.py).

These tokens are control tokens:

- tokens that are marked as special, that the post-processor adds around a text, or that pad a window;
- added tokens that tokenizer_config.json names (as `eos_token`, for example), that end documents, or that have the name
  of a control token (control_tokens.py).

The unknown token is not a control token, because it also stands for ordinary text.

The vocabulary, which is most of the file, is parsed only when it is needed.
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
from gristmill.core.records import MAX_VOCAB_SIZE
from gristmill.tokenizers.control_tokens import (
    BEGIN_NAMES,
    CHAT_END_NAMES,
    END_NAMES,
    MASK_NAMES,
    PAD_NAMES,
    ROLES,
    is_control_name,
)

HIDDEN_PREFIX = "".join(map(chr, range(0xFDD0, 0xFDE0)))
"""Prefix of a renamed control token: sixteen code points that Unicode defines as noncharacters."""
VOCABULARY: Any = dict[str, int] | list[tuple[str, float]]
T = TypeVar("T")
REPAIR = "Download or copy its files again."
"""Advice for a damaged tokenizer."""
MODELS_MATCHING_TOKEN_TEXT = ("Unigram", "WordPiece", "WordLevel")
"""Model types that would find a control token in the vocabulary by its text."""


class Template(NamedTuple):
    """Ids that a tokenizer adds before and after a sequence."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def num_special(self) -> int:
        return len(self.prefix) + len(self.suffix)


class AddedToken(msgspec.Struct, frozen=True):
    """An entry of `added_tokens` in tokenizer.json."""

    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = True


class Model(msgspec.Struct, frozen=True):
    """The model in tokenizer.json. Its vocabulary and merges, which are most of the file, remain raw JSON."""

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
    """True if a word that is in the vocabulary is always one token, even if the merges do not produce this token."""


class _File(msgspec.Struct, frozen=True):
    model: msgspec.Raw
    added_tokens: list[AddedToken] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tokenizer's files and the facts derived from them."""

    name: str
    json: bytes
    """Content of tokenizer.json. A dataset contains the unchanged file, so that AutoTokenizer can read it."""
    config: bytes
    """Content of tokenizer_config.json."""
    revision: str | None = None
    """Commit on the Hub, or None if the tokenizer is not from the Hub."""

    @classmethod
    def read(cls, folder: Path) -> "Definition":
        """Read the files that `write` wrote. Raise TokenizerError if the tokenizer is unreadable or damaged."""
        paths = folder / TOKENIZER, folder / TOKENIZER_CONFIG
        try:
            json, config = (read_plain(path) for path in paths)
        except OSError as error:
            path = str(error.filename or folder)
            raise TokenizerError(f"cannot read the tokenizer file {path!r}: {error.strerror or error}.") from None
        definition = cls(name=folder.name, json=json, config=config)
        definition.check()
        return definition

    def write(self, folder: Path) -> None:
        """Write tokenizer.json and tokenizer_config.json without fsync. If needed, the caller syncs the folder."""
        write_atomically(folder / TOKENIZER, self.json, is_synced=False)
        write_atomically(folder / TOKENIZER_CONFIG, self.config, is_synced=False)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.json).hexdigest()

    @cached_property
    def key(self) -> str:
        """SHA-256 of tokenizer.json and tokenizer_config.json, which together determine all ids."""
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
    def added_texts(self) -> dict[int, str]:
        """Text of each added token, keyed by id."""
        return {token.id: token.content for token in self.added_tokens}

    @cached_property
    def control_spellings(self) -> tuple[str, ...]:
        """Texts that become a control token when a trainer encodes them with the unmodified tokenizer."""
        found = {token.content for token in self.added_tokens if token.special or token.id in self.control_ids}
        if others := self.control_ids - {token.id for token in self.added_tokens}:
            found |= {token for token, index in self.vocabulary.items() if index in others}
        return tuple(sorted(found - {""}))

    @cached_property
    def plain_tokens(self) -> list[AddedToken]:
        """Added tokens that are ordinary text, such as runs of spaces."""
        return [token for token in self.added_tokens if not token.special and token.id not in self.control_ids]

    @cached_property
    def vocab_size(self) -> int:
        """Largest id of the vocabulary and the added tokens, plus one."""
        return 1 + max([*self.vocabulary.values(), *(token.id for token in self.added_tokens)])

    @cached_property
    def template(self) -> Template:
        """Special tokens that the tokenizer's post-processor adds around one sequence."""
        return _template(self.file.post_processor, self.name)

    @cached_property
    def control_ids(self) -> frozenset[int]:
        """Ids of all control tokens. The unknown token is not included, because it also stands for ordinary text."""
        template_ids = {*self.template.prefix, *self.template.suffix}
        additional = self._read_setting("additional_special_tokens")
        named = {self._read_setting(role) for role in ROLES} | {_token_text(token) for token in (additional or ())}
        added = {
            token.id
            for token in self.added_tokens
            if (token.special or token.content in named or token.id == self.end_id or is_control_name(token.content))
            and token.content != self._unknown_token
        }
        return frozenset(added | template_ids | ({self.pad_id} if self.pad_id is not None else set()))

    @cached_property
    def pad_id(self) -> int | None:
        """Id of the padding token, or None if the tokenizer has none."""
        named = self._read_setting("pad_token")
        if named is None and self.file.padding is not None:
            return int(self.file.padding["pad_id"])
        names = self._special_first(PAD_NAMES) if named is None else (named,)
        by_name = {token.content: token.id for token in self.added_tokens}
        ids = [by_name[name] for name in names if name in by_name]
        return next(iter(ids), None) if ids or named is None else self.vocabulary.get(named)

    @cached_property
    def end_id(self) -> int | None:
        """Id of the token that ends a text, or None if there is no such token.

        For an instruct model, this is the end token of its base model. If the tokenizer does not have this token, it is
        the token that ends a turn of a chat.
        """
        if self._read_setting("eos_token") in CHAT_END_NAMES:
            added = {token.content: token.id for token in self.added_tokens}
            texts = [name for name in self._special_first(END_NAMES) if name in added and name not in CHAT_END_NAMES]
            if texts:
                return added[texts[0]]
        return self.named_id("eos_token", END_NAMES)

    @cached_property
    def begin_ids(self) -> tuple[int, ...]:
        """Ids that the model expects at the beginning of a text."""
        wants_begin = self._read_setting("add_bos_token")
        if self.template.prefix or wants_begin is False:
            return self.template.prefix
        begin = self._read_setting("bos_token") if wants_begin else None
        names = (begin,) if begin is not None else BEGIN_NAMES
        added = {token.content: token.id for token in self.added_tokens}
        return next(((added[name],) for name in names if name in added), ())

    @cached_property
    def mask_id(self) -> int | None:
        """Id of the mask token, or None if there is no such token or the model is not a masked language model.

        A model is a masked language model if tokenizer_config.json names a mask token, or if the template has a suffix.
        Neither is true for Gemma, although Gemma's vocabulary contains `<mask>`.
        """
        is_masked = self._read_setting("mask_token") is not None or bool(self.template.suffix)
        return self.named_id("mask_token", MASK_NAMES) if is_masked else None

    @cached_property
    def ids_by_token(self) -> dict[str, int]:
        """Id of every token, including control tokens, keyed by text."""
        return {**self.vocabulary, **{token.content: token.id for token in self.added_tokens}}

    def id_of(self, token: str) -> int | None:
        """Return the id of a token, or None if the tokenizer has no such token."""
        by_name = {one.content: one.id for one in self.added_tokens}
        return by_name[token] if token in by_name else self.vocabulary.get(token)

    def named_id(self, setting: str, names: Sequence[str]) -> int | None:
        """Return the id of the token that a setting of tokenizer_config.json names.

        Without this setting, return the id of the first token of `names` that exists. Special tokens are tried first.
        """
        named = self._read_setting(setting)
        found = (self.id_of(name) for name in ((named,) if isinstance(named, str) else self._special_first(names)))
        return next((index for index in found if index is not None), None)

    def _read_setting(self, setting: str) -> Any:
        """Return a setting of tokenizer_config.json. If the setting is a token object, return the text of the token."""
        return _token_text(self._decode(self.config, dict[str, Any]).get(setting))

    def _special_first(self, names: Sequence[str]) -> list[str]:
        """Sort special tokens to the front of `names`. In Gemma, </s> is an HTML tag and <eos> ends a text."""
        marked = {token.content for token in self.special_tokens}
        return sorted(names, key=lambda name: name not in marked)

    def plain_json(self) -> bytes:
        """Return tokenizer.json without control tokens, so that no text can become a control token."""
        tree = self._decode(self.json, dict[str, msgspec.Raw])
        matches_token_text = self.model.type in MODELS_MATCHING_TOKEN_TEXT
        changed = {
            "added_tokens": self._plain_added_tokens(tree),
            "truncation": None,
            "padding": None,
            "post_processor": None,
            "model": self._model_with_control_tokens_renamed() if matches_token_text else tree["model"],
        }
        return msgspec.json.encode({**tree, **changed})

    def _plain_added_tokens(self, tree: dict[str, msgspec.Raw]) -> list[dict[str, Any]]:
        """Return the added tokens without control tokens.

        If there are plain added tokens, control tokens outside the vocabulary are renamed instead of removed.
        """
        # `tokenizers` numbers added tokens by their position in the list. Removing a token would change all later ids.
        if not self.plain_tokens:
            return []
        plain_ids = {token.id for token in self.plain_tokens}
        kept = []
        for token in self._decode(tree["added_tokens"], list[dict[str, Any]]):
            if token["id"] in plain_ids:
                kept.append(token)
            elif token["content"] not in self.vocabulary:
                kept.append({**token, "content": HIDDEN_PREFIX + token["content"]})
        return kept

    def _model_with_control_tokens_renamed(self) -> dict[str, Any]:
        unknown = self.model.unk_token

        def rename(token: str, index: int) -> str:
            # WordPiece and WordLevel look up the unknown token by its text. Unigram stores the id of its unknown token.
            return HIDDEN_PREFIX + token if index in hidden and token != unknown else token

        hidden = self.control_ids | {token.id for token in self.special_tokens}
        model = self._decode(self.file.model, dict[str, Any])
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            return {**model, "vocab": {rename(token, index): index for token, index in vocab.items()}}
        return {**model, "vocab": [[rename(token, index), score] for index, (token, score) in enumerate(vocab)]}

    @cached_property
    def without_prefix_space(self) -> "Definition":
        """The same tokenizer, changed so that it neither adds nor strips a space at the start of a text.

        Text that follows other tokens is encoded with this tokenizer. If a file is encoded in parts, a tokenizer that
        adds spaces would add a space at each cut: `get` and `_version` would become `get` and ` _version`. A tokenizer
        that neither adds nor strips a space is returned unchanged.
        """
        tree = self._decode(self.json, dict[str, Any])
        changed = {name: _without_prefix_space(tree.get(name)) for name in ("normalizer", "pre_tokenizer")}
        if (tree.get("decoder") or {}).get("type") != "ByteLevel":  # the ByteLevel decoder never strips a space
            changed["decoder"] = _without_prefix_space(tree.get("decoder"))
        if all(step == tree.get(name) for name, step in changed.items()):
            return self
        return msgspec.structs.replace(self, json=msgspec.json.encode({**tree, **changed}))

    @cached_property
    def adds_prefix_space(self) -> bool:
        """True if the tokenizer encodes each part of a text as if a space preceded the part."""
        original, changed = self.file, self.without_prefix_space.file
        return (original.normalizer, original.pre_tokenizer) != (changed.normalizer, changed.pre_tokenizer)

    def check(self) -> None:
        """Raise TokenizerError if the tokenizer is damaged."""
        try:
            problem = self._id_problem()
            for step in (self.file.normalizer, self.file.pre_tokenizer, self.file.decoder):
                _without_prefix_space(step)  # raises an error if a step does not have the expected structure
        except KeyError as error:
            problem = f"the entry {error} is missing"
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            problem = f"a setting has an unexpected value ({error})"
        if problem is not None:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {problem}. {REPAIR}")

    def _id_problem(self) -> str | None:
        """Return the reason why the ids are invalid, or None."""
        if min(self.vocabulary.values()) < 0:
            return "its vocabulary has a negative id"
        if self.vocab_size > MAX_VOCAB_SIZE:
            return f"its largest id is {self.vocab_size - 1:,}, but ids above {MAX_VOCAB_SIZE - 1:,} are not supported"
        ids = {*self.control_ids, *(token.id for token in self.added_tokens)}
        invalid = next((index for index in sorted(ids) if not 0 <= index < self.vocab_size), None)
        if invalid is not None:
            return f"a special or added token has the id {invalid}, but ids must be from 0 to {self.vocab_size - 1}"
        return None

    @cached_property
    def unknown_id(self) -> int | None:
        """Id for text that the vocabulary does not cover, or None if the tokenizer has no unknown token."""
        return None if self._unknown_token is None else self.id_of(self._unknown_token)

    @cached_property
    def _unknown_token(self) -> str | None:
        if self.model.unk_id is None:
            return self.model.unk_token
        return next((token for token, index in self.vocabulary.items() if index == self.model.unk_id), None)

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Id of each token of the model, keyed by text. Added tokens outside the model are not included."""
        vocab: dict[str, int] | list[tuple[str, float]] = self._decode(self.model.vocab, VOCABULARY)
        if not vocab:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: its vocabulary is empty. {REPAIR}")
        return vocab if isinstance(vocab, dict) else {token: index for index, (token, _) in enumerate(vocab)}

    def _decode(self, content: bytes | msgspec.Raw, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TokenizerError(f"the tokenizer {self.name!r} is damaged: {error}. {REPAIR}") from None


def _token_text(token: Any) -> Any:
    """Return the text of a token in tokenizer_config.json. The token is a string or an object with `content`."""
    return token.get("content") if isinstance(token, dict) else token


def _without_prefix_space(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """Change a normalizer, pre-tokenizer or decoder so that it neither adds nor strips a space at the start of a text.

    Return None if the step only adds or strips this space.
    """
    kind = step.get("type") if step is not None else None
    if step is None or kind == "Prepend" or (kind == "Strip" and step.get("start") and step.get("content") == " "):
        return None
    if kind == "Sequence":
        name = next((name for name in ("normalizers", "pretokenizers") if name in step), "decoders")
        inner = [_without_prefix_space(one) for one in step[name]]
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
        return _template_from_pieces(processor)
    if kind == "Sequence":
        parts = [_template(part, name) for part in processor["processors"]]
        return Template(
            tuple(index for part in reversed(parts) for index in part.prefix),
            tuple(index for part in parts for index in part.suffix),
        )
    raise TokenizerError(
        f"the tokenizer {name!r} has the post-processor {kind!r}, which gristmill does not support. "
        "Use another tokenizer."
    )


def _template_from_pieces(processor: dict[str, Any]) -> Template:
    """Read a template such as `[{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, …]`."""
    prefix: list[int] = []
    suffix: list[int] = []
    side = prefix
    for piece in processor["single"]:
        if "Sequence" in piece:
            side = suffix
        else:
            side.extend(processor["special_tokens"][piece["SpecialToken"]["id"]]["ids"])
    return Template(tuple(prefix), tuple(suffix))
