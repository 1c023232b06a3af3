"""Find a tokenizer in the package, in a file or folder, or on the Hub, and return its Definition."""

import os
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from gristmill.core.errors import HubError, TokenizerError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG
from gristmill.core.names import nearest_name, path_text
from gristmill.core.plain_files import read_plain, read_plain_text
from gristmill.tokenizers import hub
from gristmill.tokenizers.definition import REPAIR, Definition

BUNDLED = "codebert"
BUNDLED_FILE = "bundled/codebert.json.zst"
REPAIR_FILE = "Download or copy the file again."
"""Advice for a damaged file of a tokenizer."""
BUNDLED_HUB_ID = "microsoft/codebert-base"
"""Hub id of the tokenizer that has the bundled vocabulary."""
CODEBERT_CONFIG: dict[str, Any] = {
    "tokenizer_class": "RobertaTokenizer",
    "model_max_length": 512,
    "add_prefix_space": False,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
ROLES_BY_TOKEN: dict[str, tuple[str, ...]] = {
    "[PAD]": ("pad_token",),
    "[UNK]": ("unk_token",),
    "[CLS]": ("cls_token",),
    "[SEP]": ("sep_token",),
    "[MASK]": ("mask_token",),
    "<|endoftext|>": ("eos_token",),
    "<pad>": ("pad_token",),
    "<unk>": ("unk_token",),
    "<s>": ("bos_token", "cls_token"),
    "</s>": ("eos_token", "sep_token"),
    "<mask>": ("mask_token",),
}
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def locate(name: str, *, cache_dir: str | None = None) -> Definition:
    """Return the definition of a tokenizer. Raise TokenizerError if there is no such tokenizer.

    See `load_tokenizer` for `name` and `cache_dir`.
    """
    if name == BUNDLED:
        return _bundled()
    path = Path(os.path.expanduser(name))
    if name and os.path.isdir(path):
        return _from_folder(path, name=path_text(path.resolve().name))
    if os.path.isfile(path):
        return _from_folder(path.parent, name=path_text(path.resolve().name), tokenizer_file=path)
    if hub.is_repo_id(name):
        return _from_hub(name, cache_dir)
    raise TokenizerError(
        f"there is no tokenizer {name!r}: use 'codebert', a file, a folder or a Hub id such as 'org/name'."
    )


@cache
def _bundled() -> Definition:
    compressed = resources.files("gristmill.tokenizers").joinpath(BUNDLED_FILE).read_bytes()
    return Definition(name=BUNDLED, json=zstandard.decompress(compressed), config=_to_json(CODEBERT_CONFIG))


def _from_hub(name: str, cache_dir: str | None) -> Definition:
    """Download a tokenizer. For CodeBERT's tokenizer, use the bundled copy if the Hub cannot be reached."""
    try:
        downloaded = hub.download(name, cache_dir)
    except TokenizerError as error:
        if name == BUNDLED_HUB_ID and isinstance(error, HubError):
            return _bundled()
        if nearest_name(name, [BUNDLED]) is not None:
            raise TokenizerError(f"{error} Did you mean {BUNDLED!r}, which is part of gristmill?") from None
        raise
    return _from_folder(downloaded.folder, name=name, revision=downloaded.commit)


def substitution_notes(requested: str, used: Definition) -> Iterator[str]:
    """Yield a note if the bundled tokenizer replaced the requested one."""
    if requested == BUNDLED_HUB_ID and used.name == BUNDLED:
        yield f"{requested} could not be fetched: using the bundled {BUNDLED!r}, which has the same vocabulary."


def _from_folder(
    folder: Path, *, name: str, tokenizer_file: Path | None = None, revision: str | None = None
) -> Definition:
    config_file = folder / TOKENIZER_CONFIG
    try:
        config = read_plain(config_file) if config_file.is_file() else None
        json_file = tokenizer_file or folder / TOKENIZER
        if json_file.is_file():
            json = read_plain(json_file)
        elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
            json, config = _from_vocab_and_merges(folder, config)
        else:
            raise TokenizerError(f"the folder {str(folder)!r} has neither {TOKENIZER} nor vocab.json and merges.txt.")
    except OSError as error:
        path = str(error.filename or folder)
        raise TokenizerError(f"cannot read the tokenizer file {path!r}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"the tokenizer {name!r} is damaged: {error}. {REPAIR}") from None
    if config is None:
        config = _to_json({"tokenizer_class": "PreTrainedTokenizerFast", **_guess_roles(json, name)})
    definition = Definition(name=name, json=json, config=_checked_config(config, name), revision=revision)
    definition.check()
    return definition


def _guess_roles(json: bytes, name: str) -> dict[str, str]:
    """Guess the roles of special tokens, such as pad_token, from their names. tokenizer.json does not record roles."""
    special = {token.content for token in Definition(name=name, json=json, config=b"{}").special_tokens}
    return {role: token for token, roles in ROLES_BY_TOKEN.items() if token in special for role in roles}


def _checked_config(config: bytes, name: str) -> bytes:
    try:
        msgspec.json.decode(config, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise TokenizerError(f"the {TOKENIZER_CONFIG} of {name!r} is damaged: {error}. {REPAIR_FILE}") from None
    return config


def _from_vocab_and_merges(folder: Path, config: bytes | None) -> tuple[bytes, bytes]:
    """Convert vocab.json and merges.txt of a byte-level BPE like GPT-2's to tokenizer.json and tokenizer_config.json.

    A vocabulary with RoBERTa's five special tokens is treated as a RoBERTa tokenizer.
    """
    try:
        vocab = msgspec.json.decode(read_plain(folder / "vocab.json"), type=dict[str, int])
    except msgspec.MsgspecError as error:
        raise TokenizerError(f"{str(folder / 'vocab.json')!r} is damaged: {error}. {REPAIR_FILE}") from None
    lines = read_plain_text(folder / "merges.txt").split("\n")
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    invalid_merge = next((merge for merge in merges if len(merge) != 2 or "".join(merge) not in vocab), None)  # noqa: PLR2004
    if invalid_merge is not None:
        raise TokenizerError(
            f"{str(folder / 'merges.txt')!r} is damaged: the merge {' '.join(invalid_merge)!r} does not produce a "
            f"token of vocab.json. {REPAIR}"
        )
    if config is None:
        config = _to_json(CODEBERT_CONFIG if _is_roberta(vocab) else {"tokenizer_class": "GPT2Tokenizer"})
    return _to_json(byte_level_tree(vocab, merges)), config


def _is_roberta(vocab: dict[str, int]) -> bool:
    return all(token in vocab for token in ROBERTA_TOKENS)


def byte_level_tree(vocab: dict[str, int], merges: list[list[str]]) -> dict[str, Any]:
    """Return a tokenizer.json for a byte-level BPE like GPT-2's, with RoBERTa's special tokens if present."""
    specials = ROBERTA_TOKENS if _is_roberta(vocab) else tuple(token for token in vocab if token == "<|endoftext|>")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(vocab[token], token) for token in sorted(specials, key=vocab.__getitem__)],
        "normalizer": None,
        "pre_tokenizer": _BYTE_LEVEL,
        "post_processor": _roberta_processor(vocab) if _is_roberta(vocab) else _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _special(index: int, content: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": content == "<mask>", "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def _roberta_processor(vocab: dict[str, int]) -> dict[str, Any]:
    ends = {"sep": ["</s>", vocab["</s>"]], "cls": ["<s>", vocab["<s>"]]}
    return {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}


def _to_json(value: Any) -> bytes:
    return msgspec.json.encode(value)
