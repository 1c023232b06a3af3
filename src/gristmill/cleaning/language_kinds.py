"""Read language_kinds.toml, which groups languages into kinds and lists the rule limits that differ for each kind."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

KINDS_FILE = "language_kinds.toml"


class LanguageKind(NamedTuple):
    """Languages that share their rule limits."""

    name: str
    languages: tuple[str, ...]
    is_programming: bool
    limits: Mapping[str, bool | float]
    """Limits that differ from the defaults in rules.py, keyed by rule. False if the rule is off."""


@cache
def language_kinds() -> tuple[LanguageKind, ...]:
    """Return the kinds in language_kinds.toml. Each known language is in exactly one of them."""
    tables = tomllib.loads(resources.files(__package__).joinpath(KINDS_FILE).read_text(encoding="utf-8"))
    return tuple(
        LanguageKind(name, tuple(table.pop("languages")), table.pop("is_programming", False), table)
        for name, table in tables.items()
    )


@cache
def kind_by_language() -> dict[str, LanguageKind]:
    return {language: kind for kind in language_kinds() for language in kind.languages}


def is_programming(language: str) -> bool:
    """Return True for programming languages, False for prose, markup, data, settings and unknown names."""
    kind = kind_by_language().get(language)
    return kind is not None and kind.is_programming
