"""Kinds of languages, as language_kinds.toml has them: which are programming languages, and which limits differ."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

KINDS_FILE = "language_kinds.toml"


class LanguageKind(NamedTuple):
    name: str
    languages: tuple[str, ...]
    is_programming: bool
    limits: Mapping[str, bool | float]
    """By rule, where they are not those of RULES; False: off."""


@cache
def language_kinds() -> tuple[LanguageKind, ...]:
    """The rows of language_kinds.toml: each known language is in one of them."""
    tables = tomllib.loads(resources.files(__package__).joinpath(KINDS_FILE).read_text(encoding="utf-8"))
    return tuple(
        LanguageKind(name, tuple(table.pop("languages")), table.pop("is_programming", False), table)
        for name, table in tables.items()
    )


@cache
def kind_by_language() -> dict[str, LanguageKind]:
    return {language: kind for kind in language_kinds() for language in kind.languages}


def is_programming(language: str) -> bool:
    """True for a language in which programs are written; False for prose, markup, data, settings and unknown names."""
    kind = kind_by_language().get(language)
    return kind is not None and kind.is_programming
