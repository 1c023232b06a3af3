"""What a part or a piece goes by: a digest of all that decides what is in it. Other settings, another name."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config.config import Config
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
DECIDED_IN_STEP_3 = frozenset({"repo_order", "repo_order_seed"})
"""Settings of windows that parts do not depend on."""
CODE_SUFFIXES = frozenset({".py", ".toml", ".scm", ".txt"})
"""Rules, queries and words are code too."""


def key_of(*parts: Any) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def prepare_key(config: Config, tokenizer_key: str, *, keeps_text: bool) -> str:
    """All that step 1 goes by, but for the files: also the code that does it."""
    settings = config.settings()
    window = {name: value for name, value in settings["window"].items() if name not in DECIDED_IN_STEP_3}
    return key_of(
        tokenizer_key,
        code_digest(),
        versions(),
        [window, settings["rules"], settings["secrets"]],
        hashlib.sha256(config.secrets.salt.encode()).hexdigest(),
        [settings["scan"][name] for name in ("languages", "max_file_bytes", "notebooks")],
        [name for name in config.window_columns if COLUMNS[name].when not in DECIDED_LATER],
        keeps_text,
        [config.duplicates.near != "keep", config.looks_for_spans],
    )


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in VERSIONED}


def grammar_versions(config: Config) -> dict[str, str]:
    """Versions of the grammars; none if neither variants nor fill in the middle need them."""
    needs_grammar = config.variants.need_grammar or config.fim.needs_grammar
    return {name: version(name) for name in GRAMMAR_PACKAGES} if needs_grammar else {}


@cache
def code_digest() -> str:
    """So that whoever changes a rule in a checkout need not think of a version number."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(__version__.encode())
    found = (path for package in BUILDING_PACKAGES for path in (root / package).rglob("*"))
    for path in sorted(path for path in found if path.suffix in CODE_SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
