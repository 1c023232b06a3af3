"""Ids of tokens with a task: the mask, those around the parts of a fill-in-the-middle text, those before files."""

from collections.abc import Iterable
from typing import NamedTuple

from gristmill.core.errors import ConfigError
from gristmill.tokenizers.control_tokens import FIM_FAMILIES, MASK_NAMES, REPO_NAMES, FimFamily
from gristmill.tokenizers.definition import Definition


class RepoIds(NamedTuple):
    """What stands before a repository's name, and before each file's path."""

    repo: int
    file: int


class FimIds(NamedTuple):
    prefix: int
    middle: int
    suffix: int


def mask_id(definition: Definition) -> int:
    found = definition.named_id("mask_token", MASK_NAMES)
    if found is None:
        raise ConfigError(
            f"the tokenizer {definition.name!r} has no mask token, which --variants noise needs. Leave noise out, or "
            "use a tokenizer with one, like codebert."
        )
    return found


def repo_ids(definition: Definition) -> RepoIds:
    for names in REPO_NAMES:
        found = [index for index in map(definition.id_of, names) if index is not None]
        if len(found) == len(names):
            return RepoIds(*found)
    raise ConfigError(
        f"the tokenizer {definition.name!r} has no tokens that mark repositories and files (like <repo_name> and "
        "<file_sep>), which --pack repo needs. Try --pack best-fit, a tokenizer like bigcode/starcoder2-3b, or one of "
        "your own by gristmill tokenizer train."
    )


def require_spelled_fim(definition: Definition, ids: Iterable[int], option: str) -> None:
    """Raise ConfigError if no text gives the ids of a fill-in-the-middle row when the tokenizer encodes it.

    `ids`: special ids of such rows. `option`: the one that asks for texts.
    """
    spelled = {token.id: token for token in definition.added_tokens}
    tokens = [spelled.get(index) for index in ids]
    why = None
    if definition.puts_blank_before_text:
        why = "it puts a blank before each part of a text"
    elif any(token is None or token.lstrip or token.rstrip or token.single_word for token in tokens):
        why = "it does not find its tokens for fill-in-the-middle wherever a text spells them"
    if why is not None:
        raise ConfigError(
            f"{option} does not go with --fim and the tokenizer {definition.name!r}: {why}, so no text "
            "gives the ids of such a row. Leave out one of them."
        )


def fim_family(definition: Definition) -> FimFamily | None:
    """The family whose fill-in-the-middle tokens the tokenizer has; None if it has no such tokens."""
    for family in FIM_FAMILIES:
        named = (family.prefix, family.middle, family.suffix, *(() if family.end is None else (family.end,)))
        if all(definition.id_of(name) is not None for name in named):
            return family
    return None


def fim_ids(definition: Definition) -> FimIds:
    family = fim_family(definition)
    if family is not None:
        found = [definition.id_of(name) for name in (family.prefix, family.middle, family.suffix)]
        return FimIds(*(index for index in found if index is not None))
    raise ConfigError(
        f"the tokenizer {definition.name!r} has no tokens for fill in the middle (like <fim_prefix>), which --fim "
        "needs. Use a tokenizer that has them, like bigcode/starcoder2-3b, or --fim 0."
    )
