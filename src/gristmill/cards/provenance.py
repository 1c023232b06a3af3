"""The sections of a dataset card on how it was made: settings, tokenizer, versions, sources, and how to repeat it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gristmill.cleaning.secrets import redact
from gristmill.config.config import Config
from gristmill.config.presets import with_preset
from gristmill.config.settings import PresetName, SecretsConfig
from gristmill.core.manifest import Manifest
from gristmill.core.markdown import in_code, literal, more, table
from gristmill.core.names import counted
from gristmill.core.records import VARIANTS

SOURCES_LISTED = 50
ALWAYS_TOLD = (
    *("preset", "window.length", "window.overlap", "window.tail", "split.shares", "split.seed", "split.by"),
    *("split.decontaminate", "duplicates.near", "secrets.action"),
)
"""Settings that are worth a line even as they are by default."""


def how_it_was_made(manifest: Manifest) -> Iterator[str]:
    yield "## How it was made\n"
    facts = manifest.tokenizer
    at = "" if facts.revision is None else f" at {in_code(facts.revision)}"
    yield from table(
        ("what", "which"),
        [
            ("gristmill", in_code(manifest.gristmill)),
            ("tokenizer", f"{in_code(facts.name)}{at}, {facts.vocab_size:,} ids, sha256 {in_code(facts.sha256)}"),
            ("special ids", _special_ids(manifest)),
            *((("files of a repository", order),) if (order := repo_order_text(manifest)) is not None else ()),
            ("encoded by", in_code(facts.engine)),
            ("fingerprint of all inputs", in_code(manifest.fingerprint)),
            ("sha256 of the content", in_code(manifest.content_sha256)),
            ("packages", ", ".join(in_code(f"{name} {version}") for name, version in manifest.versions.items())),
        ],
    )
    yield from table(
        ("setting", "value"), [(in_code(name), in_code(value)) for name, value in told_settings(manifest).items()]
    )
    yield "All others are as they are by default.\n"
    sources = [
        (in_code(one.repo), "-" if one.commit is None else in_code(one.commit), f"{one.found:,}")
        for one in manifest.sources[:SOURCES_LISTED]
    ]
    yield from table(("source", "commit", "files found"), sources)
    yield from more(len(manifest.sources) - SOURCES_LISTED, "sources in manifest.json")


def _special_ids(manifest: Manifest) -> str:
    facts = manifest.tokenizer
    if manifest.has_documents:
        return "none: rows are texts"
    if setting(manifest, "window", "pack") == "repo":
        return f"the tokenizer's markers before repositories and files, {in_code([facts.end_id])} after each repository"
    told = f"{in_code(list(facts.prefix))} before each window, {in_code(list(facts.suffix))} after it"
    return f"{told}, {in_code(list(facts.closing))} after the last of a file" if facts.closing else told


def repo_order_text(manifest: Manifest) -> str | None:
    """Say in which order the files of a repository stand; None without --pack repo."""
    if setting(manifest, "window", "pack") != "repo":
        return None
    match setting(manifest, "window", "repo_order"):
        case "shuffle":
            return f"shuffled by the seed {setting(manifest, 'window', 'repo_order_seed')}"
        case "imports":
            orders = [facts.order for facts in (manifest.packing or {}).values() if facts.order is not None]
            imports, broken = counted(sum(one.imports for one in orders), "import"), sum(one.broken for one in orders)
            return f"each after the files it imports: {imports} between them, {broken:,} broken in cycles"
        case _:
            return "by path"


def how_to_repeat_it(manifest: Manifest) -> Iterator[str]:
    yield "## How to repeat it\n"
    version = in_code(manifest.gristmill)
    yield f"Check the sources out at these commits, install gristmill {version}, and build with these"
    yield "settings, as options or in a `gristmill.toml`. The same input gives the same bytes on every machine; the"
    yield "digest of the content above says whether it did.\n"
    if manifest.previous_splits is not None:
        digest = in_code(manifest.previous_splits.sha256)
        yield f"An earlier build's splits were kept: name its `files.jsonl` (sha256 {digest}) with `--splits`.\n"
    if manifest.decontamination.against:
        yield "The benchmarks above are named with `--decontaminate-against`.\n"
    if any(VARIANTS[kind].asks_model for kind in manifest.variants):
        yield "What a language model has rewritten comes out the same only if the model answers the same.\n"
    yield "```\ngristmill build SOURCE... --out DIR --config gristmill.toml"
    yield "gristmill check DIR   # what is there is what the manifest says"
    yield "```"


def setting(manifest: Manifest, section: str, name: str) -> Any:
    """None where the manifest does not say."""
    found = manifest.settings.get(section)
    return found.get(name) if isinstance(found, Mapping) else None


def told_settings(manifest: Manifest) -> dict[str, str]:
    """Those that matter always, and those that are not as they are by default; of windows, if there are any."""
    has_none = manifest.has_documents
    preset = msgspec.convert(manifest.settings.get("preset"), PresetName | None)
    plain = Config(sources=["."], out=".", preset=preset)
    defaults = dotted(with_preset(plain, has_mask=manifest.tokenizer.mask_id is not None).settings())
    return {
        name: without_secret(literal(value))
        for name, value in dotted(manifest.settings).items()
        if (name in ALWAYS_TOLD or value != defaults.get(name)) and not (has_none and name.startswith("window."))
    }


def without_secret(text: str) -> str:
    """A pattern of --exclude may spell one."""
    redacted = redact(text.encode("utf-8", "replace"), "text", SecretsConfig())
    return "a value with a secret in it" if redacted is None else redacted.text.decode()


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"window": {"overlap": 256}}` -> `{"window.overlap": 256}`"""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= dotted(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
