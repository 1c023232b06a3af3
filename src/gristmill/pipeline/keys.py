"""What a part or a piece goes by: a digest of all that decides what is in it. Other settings, another name."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config.config import Config
from gristmill.config.settings import VariantsConfig
from gristmill.core.columns import COLUMNS, DECIDED_LATER
from gristmill.core.version import __version__
from gristmill.variants.grammars import GRAMMAR_PACKAGES

VERSIONED = (
    *("gigatoken", "google-re2", "identify", "msgspec", "numpy", "orjson", "packaging", "rensa"),
    "zstandard",
)

BUILDING_PACKAGES = (
    *("cleaning", "config", "core", "dedup", "formats", "pipeline", "sources", "splits", "tokenizers", "variants"),
    "windows",
)
"""The code that makes parts and rows."""
CODE_SUFFIXES = frozenset({".py", ".toml", ".scm", ".txt"})
"""Rules, queries and words are code too."""


def key_of(*parts: Any) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def prepare_key(config: Config, tokenizer_key: str, *, keeps_text: bool) -> str:
    """All that step 1 goes by, but for the files: also the code that does it."""
    settings = config.settings()
    return key_of(
        tokenizer_key,
        code_digest(),
        versions(),
        [settings[section] for section in ("window", "rules", "secrets")],
        hashlib.sha256(config.secrets.salt.encode()).hexdigest(),
        [settings["scan"][name] for name in ("languages", "max_file_bytes", "notebooks")],
        settings["output"]["control_spellings"],
        [name for name in config.window_columns if COLUMNS[name].when not in DECIDED_LATER],
        keeps_text,
        [config.duplicates.near != "keep", config.looks_for_spans],
    )


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in VERSIONED}


def grammar_versions(config: VariantsConfig) -> dict[str, str]:
    """Of what makes such variants."""
    return {name: version(name) for name in GRAMMAR_PACKAGES} if config.need_grammar else {}


@cache
def code_digest() -> str:
    """So that whoever changes a rule in a checkout need not think of a version number."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(__version__.encode())
    found = (path for package in BUILDING_PACKAGES for path in (root / package).rglob("*"))
    for path in sorted(path for path in found if path.suffix in CODE_SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
