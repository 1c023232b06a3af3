"""Detect the language of a file from its name, or else from its first line.

Languages have the names of their tags in the library `identify`. RENAMED lists the exceptions.
"""

import io
import re
from collections.abc import Sequence
from functools import cache

from identify import extensions, identify, interpreters

from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean

UNKNOWN = "text"

# If a file has several tags, such as {"c", "c++", "header"}, its language is the tag that comes first in this list.
PREFERRED = (
    *("jupyter", "objective-c++", "c", "c++", "c#", "f#", "shell", "python", "ruby", "groovy", "scala", "clojure"),
    *("php", "javascript", "erlang", "pascal", "meson", "gitignore", "nushell", "html", "svg", "xml", "json", "toml"),
    *("yaml", "ini", "lazarus", "xcodebuild"),
)
RENAMED = {"ts": "typescript", "pyi": "python"}
NOT_LANGUAGES = frozenset({"text", "binary", "plain-text", "image", "audio", "zip", "header"})
QT_SUFFIX = ".ts"
QT_TRANSLATION = re.compile(
    rb"\s*(?:<\?xml\b[^>]*>\s*)?(?:<!--(?>.*?-->)\s*)*+(?:<!DOCTYPE\s+TS\b|<TS(?:\s+\w+\s*=|>\s*<))", re.DOTALL
)
"""Beginning of a Qt Linguist file. The possessive `*+` makes matching linear in the number of comments."""


def language_of(path: str, text: bytes) -> str:
    """Return the language of a file, or UNKNOWN if it is not detected."""
    if is_qt_translation(path, text):
        return "xml"
    tags = identify.tags_from_filename(path)
    if not tags and text.startswith(b"#!"):
        command = identify.parse_shebang(io.BytesIO(text[:256]))
        tags = identify.tags_from_interpreter(command[0]) if command else tags
    return _primary_language(frozenset(tags))


def is_qt_translation(path: str, text: bytes) -> bool:
    """Return True for an XML file of Qt Linguist, which has the same suffix as TypeScript."""
    return path.lower().endswith(QT_SUFFIX) and QT_TRANSLATION.match(text) is not None


@cache
def _primary_language(tags: frozenset[str]) -> str:
    names = tags - NOT_LANGUAGES
    if not names:
        return UNKNOWN
    name = next((name for name in PREFERRED if name in names), min(names))
    return RENAMED.get(name, name)


@cache
def known_languages() -> frozenset[str]:
    """Return all languages that `language_of` can return.

    cleaning/language_kinds.toml records which of them are programming languages.
    """
    tables = (
        extensions.EXTENSIONS,
        extensions.EXTENSIONS_NEED_BINARY_CHECK,
        extensions.NAMES,
        interpreters.INTERPRETERS,
    )
    textual = (tags for table in tables for tags in table.values() if "binary" not in tags)
    return frozenset({UNKNOWN, *(_primary_language(frozenset(tags)) for tags in textual)})


def check_languages(names: Sequence[str]) -> None:
    """Raise ConfigError for an unknown language."""
    for name in names:
        if name not in known_languages():
            known = sorted(known_languages())
            hint = did_you_mean(name, known, f"Known: {', '.join(known)}.")
            raise ConfigError(f"unknown language {name!r}. {hint}")
