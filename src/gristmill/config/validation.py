"""Checks of setting values, the same for TOML and Python. An error names the setting, its value and allowed values."""

import os
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

import msgspec

from gristmill.core.errors import ConfigError


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a section. The result is cached, because each call takes a tenth of a millisecond."""
    return msgspec.structs.fields(kind)


def is_section(kind: Any) -> TypeGuard[type[msgspec.Struct]]:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def literal_values(kind: Any) -> tuple[str, ...] | None:
    """Return the values of a Literal type or of an optional Literal type, or None for any other type."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    parts = [part for part in get_args(kind) if part is not type(None)]
    return literal_values(parts[0]) if get_origin(kind) in {Union, UnionType} and len(parts) == 1 else None


def check_types(section: msgspec.Struct, prefix: str) -> None:
    """Convert paths to strings. Raise ConfigError if a field has a wrong type or value: `WindowConfig(tail="cut")`."""
    for field in fields_of(type(section)):
        value = getattr(section, field.name)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
            msgspec.structs.force_setattr(section, field.name, value)
        if isinstance(value, str) and "\0" in value:
            raise ConfigError(f"{prefix}{field.name} must not contain a NUL character, got {value!r}.")
        if is_section(field.type):
            if not isinstance(value, field.type):
                raise ConfigError(f"{prefix}{field.name} must be a {field.type.__name__}, got {value!r}.")
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            text = str(error).partition(" - at ")[0].partition(", got ")[0]
            problem = f"{prefix}{field.name}: {text[0].lower()}{text[1:]}"
            raise ConfigError(f"{problem}, got {value!r}.{allowed_values_text(field.type)}") from None


def allowed_values_text(kind: Any) -> str:
    """Return a sentence with the allowed values of a setting, or an empty string if they cannot be listed."""
    values = literal_values(kind)
    return f" Allowed values: {', '.join(values)}." if values is not None else ""


def set_text_tuple(section: msgspec.Struct, prefix: str, field: str) -> None:
    """Convert a field to a tuple of strings. A single string or path becomes a tuple of one."""
    value = getattr(section, field)
    items = [value] if isinstance(value, str | os.PathLike) else value
    try:
        texts = tuple(os.fspath(item) for item in items)
        if any("\0" in text for text in texts):
            raise TypeError
    except TypeError:
        raise ConfigError(f"{prefix}{field} must be a list of strings without NUL characters, got {value!r}.") from None
    msgspec.structs.force_setattr(section, field, texts)


def require_between(least: float, most: float, name: str, value: float) -> None:
    """Raise ConfigError if the value is below `least` or above `most`."""
    if not least <= value <= most:
        raise ConfigError(f"{name} must be from {least:g} to {most:g}, got {value:g}.")


def require_at_least(least: int, name: str, value: int, most: int = 1 << 62) -> None:
    """Raise ConfigError if the value is below `least` or above `most`."""
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise ConfigError(f"{name} must be {bound}, got {value}.")
