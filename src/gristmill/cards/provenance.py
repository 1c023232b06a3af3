"""Sections of a dataset card about the build: settings, tokenizer, versions, sources, and how to reproduce it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gristmill.cleaning.secrets import redact
from gristmill.config.config import Config
from gristmill.config.presets import with_preset
from gristmill.config.settings import PresetName, SecretsConfig
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import literal, more_line, name_as_code, table
from gristmill.core.names import counted
from gristmill.core.records import VARIANTS

MAX_SOURCES = 50
ALWAYS_LISTED = (
    *("preset", "window.length", "window.overlap", "window.tail", "split.shares", "split.seed", "split.by"),
    *("split.decontaminate", "duplicates.near", "secrets.action"),
)
"""Settings that are listed even if they have their default value."""


def build_section(manifest: Manifest) -> Iterator[str]:
    yield "## How it was built\n"
    facts = manifest.tokenizer
    revision = "" if facts.revision is None else f" at revision {name_as_code(facts.revision)}"
    yield from table(
        ("item", "value"),
        [
            ("gristmill", name_as_code(manifest.gristmill)),
            (
                "tokenizer",
                f"{name_as_code(facts.name)}{revision}, {facts.vocab_size:,} ids, sha256 {name_as_code(facts.sha256)}",
            ),
            ("special ids", _special_ids(manifest)),
            *((("order of files in a repository", order),) if (order := repo_order_text(manifest)) is not None else ()),
            ("tokenizer engine", name_as_code(facts.engine)),
            ("fingerprint of the inputs", name_as_code(manifest.fingerprint)),
            ("sha256 of the content", name_as_code(manifest.content_sha256)),
            (
                "package versions",
                ", ".join(name_as_code(f"{name} {version}") for name, version in manifest.versions.items()),
            ),
        ],
    )
    yield from table(
        ("setting", "value"),
        [(name_as_code(name), name_as_code(value)) for name, value in notable_settings(manifest).items()],
    )
    yield "All other settings have their default values.\n"
    sources = [
        (name_as_code(one.repo), "-" if one.commit is None else name_as_code(one.commit), f"{one.found:,}")
        for one in manifest.sources[:MAX_SOURCES]
    ]
    yield from table(("source", "commit", "files found"), sources)
    yield from more_line(len(manifest.sources) - MAX_SOURCES, "sources", "manifest.json")


def _special_ids(manifest: Manifest) -> str:
    facts = manifest.tokenizer
    if manifest.has_documents:
        return "none, because rows are texts"
    if get_setting(manifest, "window", "pack") == "repo":
        end = "" if facts.end_id is None else f", {name_as_code([facts.end_id])} after each repository"
        return f"repository tokens before each repository, file tokens before each file{end}"
    places = (
        (facts.prefix, "before each window"),
        (facts.suffix, "after each window"),
        (facts.closing, "after the last window of a file"),
    )
    return ", ".join(f"{name_as_code(list(ids))} {place}" for ids, place in places if ids) or "none"


def repo_order_text(manifest: Manifest) -> str | None:
    """Return a description of the order of files within a repository, or None without --pack repo."""
    if get_setting(manifest, "window", "pack") != "repo":
        return None
    match get_setting(manifest, "window", "repo_order"):
        case "shuffle":
            return f"shuffled with seed {get_setting(manifest, 'window', 'repo_order_seed')}"
        case "imports":
            orders = [facts.order for facts in (manifest.packing or {}).values() if facts.order is not None]
            imports, broken = counted(sum(one.imports for one in orders), "import"), sum(one.broken for one in orders)
            return f"each file after the files that it imports ({imports}, {broken:,} ignored because of cycles)"
        case _:
            return "by path"


def reproduce_section(manifest: Manifest) -> Iterator[str]:
    yield "## How to reproduce it\n"
    version = name_as_code(manifest.gristmill)
    yield f"Check out the sources at the commits above, install gristmill {version}, and build with the settings"
    yield "above, as options or in a `gristmill.toml`. The same input gives the same bytes on every machine. To verify"
    yield "the result, compare the sha256 of the content.\n"
    if manifest.previous_splits is not None:
        digest = name_as_code(manifest.previous_splits.sha256)
        yield f"The splits of an earlier build were kept. Pass that build's `files.jsonl` (sha256 {digest}) to"
        yield "`--splits`.\n"
    if manifest.decontamination.against:
        yield "Pass the benchmarks above to `--decontaminate-against`.\n"
    if any(VARIANTS[kind].needs_model for kind in manifest.variants):
        yield "Variants that a language model wrote are the same only if the model gives the same answers.\n"
    yield "```\ngristmill build SOURCE... --out DIR --config gristmill.toml"
    yield "gristmill check DIR   # compares the files with the manifest"
    yield "```"


def get_setting(manifest: Manifest, section: str, name: str) -> Any:
    """Return a setting, or None if the manifest does not record it."""
    found = manifest.settings.get(section)
    return found.get(name) if isinstance(found, Mapping) else None


def notable_settings(manifest: Manifest) -> dict[str, str]:
    """Return the settings to list in a card: those in ALWAYS_LISTED, and those that differ from the default.

    If rows are documents, settings of windows are left out.
    """
    has_documents = manifest.has_documents
    preset = msgspec.convert(manifest.settings.get("preset"), PresetName | None)
    default_config = Config(sources=["."], out=".", preset=preset)
    defaults = flatten_settings(with_preset(default_config, has_mask=manifest.tokenizer.mask_id is not None).settings())
    return {
        name: redact_text(literal(value))
        for name, value in flatten_settings(manifest.settings).items()
        if (name in ALWAYS_LISTED or value != defaults.get(name)) and not (has_documents and name.startswith("window."))
    }


def redact_text(text: str) -> str:
    """Remove secrets from the text of a setting. A pattern of --exclude, for example, may contain a secret."""
    redacted = redact(text.encode("utf-8", "replace"), "text", SecretsConfig())
    return "a value that contains a secret" if redacted is None else redacted.text.decode()


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten settings: `{"window": {"overlap": 256}}` becomes `{"window.overlap": 256}`."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
