"""What a part or a piece goes by: a digest of all that decides what is in it. Other settings, another name."""

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config.config import Config
from gristmill.core.records import VariantKind
from gristmill.core.version import __version__

VERSIONED = (
    *("gigatoken", "google-re2", "identify", "msgspec", "numpy", "orjson", "packaging", "rensa"),
    "zstandard",
)

GRAMMAR_PACKAGES = (
    "tree-sitter",
    *(f"tree-sitter-{name}" for name in ("c", "cpp", "go", "java", "javascript", "python", "rust", "typescript")),
)
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
        [settings["output"][name] for name in ("pad", "with_text")],
        [keeps_text, VariantKind.NOISE in config.variants.rates],
        [config.duplicates.near != "keep", config.looks_for_spans],
    )


@cache
def versions() -> dict[str, str]:
    return {name: version(name) for name in VERSIONED}


def grammar_versions(kinds: Iterable[VariantKind]) -> dict[str, str]:
    """Of what makes such variants."""
    if all(kind in {VariantKind.NOISE, VariantKind.FIM} for kind in kinds):
        return {}
    return {name: version(name) for name in GRAMMAR_PACKAGES}


@cache
def code_digest() -> str:
    """So that whoever changes a rule in a checkout need not think of a version number."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(path for path in root.rglob("*") if path.suffix in CODE_SUFFIXES):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
