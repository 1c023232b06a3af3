"""Provenance of a dataset from its manifest: build command, settings, versions, check results and splits."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gristmill.cards.provenance import redact_text, repo_order_text
from gristmill.checks.findings import CheckResult, Report
from gristmill.config.config import Config, default_of
from gristmill.config.options import all_options, build_command
from gristmill.config.presets import default_preset, with_preset
from gristmill.config.settings import requested_shares
from gristmill.core.layout import CHECK
from gristmill.core.manifest import Manifest, TokenizerFacts
from gristmill.core.names import printable
from gristmill.core.plain_files import read_plain
from gristmill.core.records import Split
from gristmill.views.report.facts import Certificate, Leak, Origin, Provenance, SplitLine
from gristmill.views.report.read_back import ENDPOINT_PLACEHOLDER, config_from_manifest

TOML = "gristmill.toml"
MAX_NAMED_SOURCES = 8

Settings = dict[str, Any]
"""Settings keyed by dotted name, like `window.overlap`."""


def provenance_of(manifest: Manifest) -> Provenance:
    """Return the information needed to reproduce a dataset."""
    settings = _changed_settings(manifest)
    run = manifest.run
    return Provenance(
        command=_command(manifest, settings),
        config="".join(f"{line}\n" for line in (*_notes(manifest), *_toml(settings))),
        gristmill=manifest.gristmill,
        versions=manifest.versions,
        tokenizer=list(_tokenizer_facts(manifest.tokenizer)),
        repo_order=repo_order_text(manifest),
        fingerprint=manifest.fingerprint,
        content_sha256=manifest.content_sha256,
        files=[(name, facts.bytes, facts.sha256) for name, facts in manifest.files.items()],
        sources=[Origin(repo=one.repo, commit=one.commit, found=one.found) for one in manifest.sources],
        started_at=run.started_at,
        python=run.python,
        platform=run.platform,
        workers=run.workers,
    )


def _changed_settings(manifest: Manifest) -> Settings:
    """Return the settings that differ from their defaults, with secrets redacted."""
    config = config_from_manifest(manifest)
    has_mask = manifest.tokenizer.mask_id is not None
    default_config = with_preset(Config(sources=["."], out=".", preset=config.preset), has_mask=has_mask)
    settings, defaults = config.settings(), default_config.settings()
    settings["sampling"]["weights"], defaults["sampling"]["weights"] = config.sampling.weights, {}
    preset = settings.pop("preset")
    is_default = preset in {None, default_preset(has_mask=has_mask)}
    changed: Settings = {} if is_default else {"preset": preset}
    changed |= {
        f"{section}.{name}": value
        for section, values in settings.items()
        for name, value in values.items()
        if value != defaults[section][name]
    }
    if (tokenizer := _tokenizer_name(manifest.tokenizer)) != default_of("tokenizer.name"):
        changed["tokenizer.name"] = tokenizer
    if manifest.formats != list(default_of("output.formats")):
        changed["output.formats"] = manifest.formats
    if config.variants.needs_model:
        changed["rewrite.endpoint"] = ENDPOINT_PLACEHOLDER
    return {name: _redact(value) for name, value in changed.items()}


def _redact(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, list):
        return [_redact(one) for one in value]
    if isinstance(value, Mapping):
        return {_redact(name): _redact(one) for name, one in value.items()}
    return value


def _tokenizer_name(facts: TokenizerFacts) -> str:
    """Return the name of a tokenizer, with the revision if the tokenizer is from the Hub."""
    return facts.name if facts.revision is None else f"{facts.name.partition('@')[0]}@{facts.revision}"


def _command(manifest: Manifest, settings: Settings) -> str:
    """Return the build command. It refers to a gristmill.toml if a setting has no command-line option."""
    options = {option.setting for option in all_options()}
    named = [one.repo for one in manifest.sources]
    sources = named if len(named) <= MAX_NAMED_SOURCES else ["SOURCE..."]
    values = {name: value for name, value in settings.items() if name in options}
    toml = None if len(values) == len(settings) else Path(TOML)
    return build_command({**values, "sources": [redact_text(one) for one in sources], "out": "DIR"}, toml)


def _notes(manifest: Manifest) -> Iterator[str]:
    """Yield comments on inputs that the settings do not contain."""
    if manifest.previous_splits is not None:
        digest = manifest.previous_splits.sha256
        yield f"# This build kept earlier splits. Pass the earlier files.jsonl (sha256 {digest}) with --splits."
    for one in manifest.decontamination.against:
        name = redact_text(printable(one.name))
        yield f"# Pass {name} (sha256 {one.sha256}) with --decontaminate-against."


def _toml(settings: Settings) -> Iterator[str]:
    sections: dict[str, Settings] = {}
    for dotted, value in settings.items():
        section, dot, name = dotted.partition(".")
        if dot:
            sections.setdefault(section, {})[name] = value
        else:
            yield f"{_key(section)} = {_value(value)}"
    for section, values in sections.items():
        yield from _table((section,), values)


def _table(path: tuple[str, ...], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a TOML table, followed by its subtables."""
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    if len(tables) < len(values) or not values:
        yield f"[{'.'.join(map(_key, path))}]"
    yield from (f"{_key(name)} = {_value(value)}" for name, value in values.items() if name not in tables)
    for name, value in tables.items():
        yield from _table((*path, name), value)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    """Return a TOML string, quoted as in JSON, with unprintable characters escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def _tokenizer_facts(facts: TokenizerFacts) -> Iterator[tuple[str, str]]:
    yield "name", facts.name
    if facts.revision is not None:
        yield "revision", facts.revision
    yield "sha256", facts.sha256
    yield "vocabulary size", f"{facts.vocab_size:,}"
    yield "engine", facts.engine
    yield "ids before each window", " ".join(map(str, facts.prefix)) or "none"
    yield "ids after each window", " ".join(map(str, facts.suffix)) or "none"
    yield "ids after each document", " ".join(map(str, facts.closing)) or "none"
    for name, one in (("padding id", facts.pad_id), ("end-of-text id", facts.end_id)):
        if one is not None:
            yield name, str(one)


# Results of `gristmill check`, used only if they belong to this version of the dataset.


class _LeakFacts(msgspec.Struct, frozen=True):
    l50: float
    gram13: float


def read_certificate(folder: Path, manifest: Manifest) -> Certificate | None:
    """Return the results in check.json, or None if the file is missing, damaged, or of another dataset version."""
    path = folder / CHECK
    try:
        report = msgspec.json.decode(read_plain(path) if path.is_file() else b"", type=Report)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if (report.fingerprint, report.content_sha256) != (manifest.fingerprint, manifest.content_sha256):
        return None
    return Certificate(
        is_ok=report.ok,
        checks=[(check.name, check.status, check.summary) for check in report.checks],
        leaks=[leak for check in report.checks if check.name == "leakage" for leak in _leaks(check)],
    )


def _leaks(check: CheckResult) -> list[Leak]:
    held_out = [split for split in Split if split is not Split.TRAIN]
    facts = {split: _leak_facts(check.facts.get(split)) for split in held_out}
    return [Leak(split=split, l50=one.l50, gram13=one.gram13) for split, one in facts.items() if one is not None]


def _leak_facts(facts: Any) -> _LeakFacts | None:
    try:
        return msgspec.convert(facts, _LeakFacts)
    except msgspec.ValidationError:
        return None


def split_lines(manifest: Manifest) -> list[SplitLine]:
    requested = requested_shares(manifest.settings)
    return [
        SplitLine(
            split=split,
            files=facts.files,
            groups=facts.groups,
            windows=facts.windows,
            tokens=facts.tokens,
            emitted=facts.emitted_tokens,
            share=facts.share,
            requested_share=requested.get(split),
            tokens_cut=manifest.decontamination.tokens_cut.get(split, 0),
        )
        for split in Split
        if (facts := manifest.splits.get(split)) is not None
    ]
