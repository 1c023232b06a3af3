"""Keys: digests of everything that determines a result. The same key means that an earlier result can be reused.

Results with a key are parts (the results of step 1 for one batch of files) and pieces (rows of consecutive documents).
"""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config.config import Config
from gristmill.core.columns import COLUMNS, STEP_2_CONDITIONS
from gristmill.core.version import __version__
from gristmill.variants.grammars import GRAMMAR_PACKAGES

VERSIONED_PACKAGES = (
    *("gigatoken", "google-re2", "identify", "msgspec", "numpy", "orjson", "packaging", "rensa"),
    "zstandard",
)

BUILDING_PACKAGES = (
    *("cleaning", "config", "core", "dedup", "formats", "pipeline", "sources", "splits", "tokenizers", "variants"),
    "windows",
)
"""Packages whose code makes parts and rows."""
STEP_3_SETTINGS = frozenset({"repo_order", "repo_order_seed"})
"""Window settings that do not affect parts."""
CODE_SUFFIXES = frozenset({".py", ".toml", ".scm", ".txt"})
"""Suffixes of the files that the code digest covers: code, rules, queries and word lists."""


def key_of(*parts: Any) -> str:
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def prepare_key(config: Config, tokenizer_key: str, *, keeps_text: bool) -> str:
    """Return a digest of the settings, versions and code that determine the result of step 1."""
    settings = config.settings()
    window = {name: value for name, value in settings["window"].items() if name not in STEP_3_SETTINGS}
    return key_of(
        tokenizer_key,
        code_digest(),
        versions(),
        [window, settings["rules"], settings["secrets"]],
        hashlib.sha256(config.secrets.salt.encode()).hexdigest(),
        [settings["scan"][name] for name in ("languages", "max_file_bytes", "notebooks")],
        settings["output"]["control_spellings"],
        [name for name in config.window_columns if COLUMNS[name].when not in STEP_2_CONDITIONS],
        keeps_text,
        [config.duplicates.near != "keep", config.finds_shared_spans],
    )


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in VERSIONED_PACKAGES}


def grammar_versions(config: Config) -> dict[str, str]:
    """Return the versions of the grammar packages, or {} if neither variants nor fill-in-the-middle need them."""
    needs_grammar = config.variants.needs_grammar or config.fim.needs_grammar
    return {name: version(name) for name in GRAMMAR_PACKAGES} if needs_grammar else {}


@cache
def code_digest() -> str:
    """Return a digest of the code, so that a changed rule in a checkout takes effect without a new version number."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(__version__.encode())
    found = (path for package in BUILDING_PACKAGES for path in (root / package).rglob("*"))
    for path in sorted(path for path in found if path.suffix in CODE_SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
