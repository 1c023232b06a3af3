"""Look up the ids of a tokenizer's mask token, fill-in-the-middle sentinels, and repository and file markers.

A sentinel is a special token before the prefix, the middle or the suffix of a text.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gristmill.core.errors import ConfigError
from gristmill.tokenizers.control_tokens import FIM_FAMILIES, MASK_NAMES, REPO_NAMES, FimFamily
from gristmill.tokenizers.definition import Definition


class RepoIds(NamedTuple):
    """Ids of the tokens that mark repositories and files."""

    repo: int
    """Id before the name of a repository."""
    file: int
    """Id before the path of each file."""


class FimIds(NamedTuple):
    """Ids of the fill-in-the-middle sentinels."""

    prefix: int
    middle: int
    suffix: int


def mask_id(definition: Definition) -> int:
    """Return the id of the mask token. Raise ConfigError if the tokenizer has none."""
    found = definition.named_id("mask_token", MASK_NAMES)
    if found is None:
        raise ConfigError(
            f"the tokenizer {definition.name!r} has no mask token, which --variants noise needs. Leave out noise, or "
            "use a tokenizer with a mask token, such as codebert."
        )
    return found


def repo_ids(definition: Definition) -> RepoIds:
    """Return the ids of the repository and file markers. Raise ConfigError if the tokenizer has none."""
    for names in REPO_NAMES:
        found = [index for index in map(definition.id_of, names) if index is not None]
        if len(found) == len(names):
            return RepoIds(*found)
    raise ConfigError(
        f"the tokenizer {definition.name!r} has no tokens that mark repositories and files (such as <repo_name> and "
        "<file_sep>), which --pack repo needs. Use --pack best-fit, use a tokenizer such as bigcode/starcoder2-3b, "
        "or train your own with 'gristmill tokenizer train'."
    )


def require_fim_as_text(definition: Definition, ids: Iterable[int], option: str) -> None:
    """Raise ConfigError if fill-in-the-middle rows cannot be stored as text, because no text encodes to their ids.

    `ids` are the special ids of these rows. `option` is the command-line option that requests text.
    """
    tokens_by_id = {token.id: token for token in definition.added_tokens}
    tokens = [tokens_by_id.get(index) for index in ids]
    reason = None
    if definition.adds_prefix_space:
        reason = "this tokenizer adds a space before each part of a text"
    elif any(token is None or token.lstrip or token.rstrip or token.single_word for token in tokens):
        reason = "this tokenizer does not recognize its fill-in-the-middle tokens everywhere in a text"
    if reason is not None:
        raise ConfigError(
            f"{option} cannot be combined with --fim and the tokenizer {definition.name!r}: {reason}, so no text "
            f"encodes to the ids of a fill-in-the-middle row. Leave out {option} or --fim, or use another tokenizer."
        )


def fim_family(definition: Definition) -> FimFamily | None:
    """Return the first model family whose fill-in-the-middle tokens the tokenizer has, or None."""
    for family in FIM_FAMILIES:
        names = (family.prefix, family.middle, family.suffix, *(() if family.end is None else (family.end,)))
        if all(definition.id_of(name) is not None for name in names):
            return family
    return None


def fim_ids(definition: Definition) -> FimIds:
    """Return the ids of the fill-in-the-middle sentinels. Raise ConfigError if the tokenizer has none."""
    family = fim_family(definition)
    if family is not None:
        found = [definition.id_of(name) for name in (family.prefix, family.middle, family.suffix)]
        return FimIds(*(index for index in found if index is not None))
    raise ConfigError(
        f"the tokenizer {definition.name!r} has no fill-in-the-middle tokens (such as <fim_prefix>), which --fim "
        "needs. Use a tokenizer with such tokens, for example bigcode/starcoder2-3b, or --fim 0."
    )
