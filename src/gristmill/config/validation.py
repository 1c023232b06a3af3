"""What a setting may be: what TOML is held to, Python is too, and errors say what, got and what to do."""

import os
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

import msgspec

from gristmill.core.errors import ConfigError


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Looked up once: it takes msgspec a tenth of a millisecond."""
    return msgspec.structs.fields(kind)


def is_section(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def words_of(kind: Any) -> tuple[str, ...] | None:
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = [part for part in get_args(kind) if part is not type(None)]
    return words_of(parts[0]) if get_origin(kind) in {Union, UnionType} and len(parts) == 1 else None


def check_types(section: msgspec.Struct, prefix: str) -> None:
    """What TOML is held to, Python is too: `WindowConfig(tail="cut")` is refused by name."""
    for field in fields_of(type(section)):
        value = getattr(section, field.name)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
            msgspec.structs.force_setattr(section, field.name, value)
        if isinstance(value, str) and "\0" in value:
            raise ConfigError(f"{prefix}{field.name} must not hold a NUL, got {value!r}.")
        if is_section(field.type):
            if not isinstance(value, field.type):
                raise ConfigError(f"{prefix}{field.name} must be a {field.type.__name__}, got {value!r}.")
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            text = str(error).partition(" - at ")[0].partition(", got ")[0]
            place = f"{prefix}{field.name}: {text[0].lower()}{text[1:]}"
            raise ConfigError(f"{place}, got {value!r}.{wanted(field.type)}") from None


def wanted(kind: Any) -> str:
    """The words that a setting takes, where it takes only these."""
    words = words_of(kind)
    return f" It takes {', '.join(words)}." if words is not None else ""


def text_list(section: msgspec.Struct, prefix: str, field: str) -> None:
    """Take one text or path for a list of one, and paths for texts: what people write in Python."""
    value = getattr(section, field)
    items = [value] if isinstance(value, str | os.PathLike) else value
    try:
        texts = tuple(os.fspath(item) for item in items)
        if any("\0" in text for text in texts):
            raise TypeError
    except TypeError:
        raise ConfigError(f"{prefix}{field} must be a list of texts, got {value!r}.") from None
    msgspec.structs.force_setattr(section, field, texts)


def between(least: float, most: float, name: str, value: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} must be from {least:g} to {most:g}, got {value:g}.")


def at_least(least: int, name: str, value: int, most: int = 1 << 62) -> None:
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise ConfigError(f"{name} must be {bound}, got {value}.")
