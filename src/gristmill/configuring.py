"""Options and a TOML file -> a Config; an unknown name is refused with the nearest one that exists."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config import Config, field_of, setting_names
from gristmill.errors import ConfigError
from gristmill.naming import is_address, nearest
from gristmill.plainfile import read_plain_text
from gristmill.sections import refuse_unknown_variants
from gristmill.validating import is_section, wanted


def load_config(values: Mapping[str, Any], toml: Path | None = None, *, out: str | None = None) -> Config:
    """A Config from dotted settings (`{"window.overlap": 128}`), on top of a TOML file where one is given.

    Paths in the TOML file are relative to its folder. `out` is what holds where neither names an output folder.
    """
    tree = _read_toml(toml) if toml is not None else {}
    if out is not None:
        tree.setdefault("out", out)
    for dotted, value in values.items():
        *sections, name = dotted.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
            if not isinstance(branch, dict):
                raise ConfigError(f"{section} must be a table of settings in the configuration file, got {branch!r}.")
        branch[name] = _on_top(branch.get(name), value)
    if "sources" not in tree:
        raise ConfigError("no source was named. Name a folder, a git work tree or a file.")
    if "out" not in tree:
        raise ConfigError("no output folder was named. Try: gristmill build SOURCE --out DIR")
    variants = tree.get("variants")
    refuse_unknown_variants(variants.get("rates") if isinstance(variants, dict) else None)
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        where = place.rstrip("`") or "configuration"
        words = wanted(field_of(where).type) if where in setting_names() else ""
        kind = message.replace("`object`", "a table").replace("`array`", "a list")
        raise ConfigError(f"{where}: {kind[0].lower()}{kind[1:]}.{words}") from None


def _on_top(before: Any, value: Any) -> Any:
    """Of a table, what it does not name stays, in front of what it does."""
    if not isinstance(before, dict) or not isinstance(value, dict):
        return value
    return {name: old for name, old in before.items() if name not in value} | value


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(read_plain_text(path))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}.") from None
    _refuse_unknown(tree, Config, path.name)
    _resolve_paths(tree, path.parent)
    return tree


def _refuse_unknown(tree: Mapping[str, Any], section: type[msgspec.Struct], where: str, prefix: str = "") -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(section)}
    for name, value in tree.items():
        if name not in fields:
            raise ConfigError(f"{where}: there is no setting {prefix + name!r}. {_did_you_mean(name, prefix)}")
        kind = fields[name]
        if isinstance(value, dict) and is_section(kind):
            _refuse_unknown(value, kind, where, f"{prefix}{name}.")


def _did_you_mean(name: str, prefix: str) -> str:
    """The nearest setting of the same section, else one of the same name anywhere."""
    known = [*setting_names(), *(field.name for field in msgspec.structs.fields(Config))]
    near = nearest(prefix + name, known)
    near = near or next((dotted for dotted in known if dotted.rpartition(".")[2] == name), None)
    if near:
        return f"Did you mean {near!r}?"
    siblings = sorted(dotted for dotted in known if dotted.startswith(prefix)) if prefix else known
    return f"Known here: {', '.join(siblings)}."


def _resolve_paths(tree: dict[str, Any], base: Path) -> None:
    def resolved(value: Any) -> Any:
        is_path = isinstance(value, str) and not is_address(value)
        return str(base / os.path.expanduser(value)) if is_path else value

    if isinstance(tree.get("sources"), list):
        tree["sources"] = [resolved(source) for source in tree["sources"]]
    split = tree.get("split")
    if isinstance(split, dict) and isinstance(split.get("against"), list):
        split["against"] = [resolved(path) for path in split["against"]]
    for section, name in ((tree, "out"), (split, "previous"), (tree.get("tokenizer"), "cache_dir")):
        if isinstance(section, dict) and name in section:
            section[name] = resolved(section[name])
    tokenizer = tree.get("tokenizer")
    if isinstance(tokenizer, dict) and isinstance(tokenizer.get("name"), str):
        # A name may also be a Hub id: it is a path where there is something at that path.
        path = resolved(tokenizer["name"])
        tokenizer["name"] = path if tokenizer["name"] != "codebert" and os.path.lexists(path) else tokenizer["name"]
