"""A configuration: its sections, what of it decides the output, and how its settings are named.

The same names in Python, in gristmill.toml and in error messages.
"""

import hashlib
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gristmill.config.settings import (
    DuplicatesConfig,
    FimConfig,
    LicensesConfig,
    OutputConfig,
    PresetName,
    RewriteConfig,
    RulesConfig,
    RunConfig,
    SamplingConfig,
    ScanConfig,
    SecretsConfig,
    SplitConfig,
    TablesConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    conditions_met,
    refuse_unknown_variants,
)
from gristmill.config.validation import check_types, fields_of, is_section, text_list, wanted, words_of
from gristmill.core.columns import COLUMNS, window_columns
from gristmill.core.errors import ConfigError
from gristmill.core.names import is_address, nearest
from gristmill.core.output_formats import DOCUMENT_FORMATS
from gristmill.core.plain_files import read_plain_text
from gristmill.core.records import VARIANTS, WITH_LABELS


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What to build, from what, and how: `Config(sources=["my-repo"], out="dataset")`."""

    sources: Sequence[str]
    """Folders, git work trees, files, tables (.parquet, .jsonl); git URLs; s3://, hf:// and https:// addresses."""
    out: str
    """The dataset folder: new, empty, or an earlier dataset, which is replaced once the new one is complete."""
    preset: PresetName | None = None
    """Purpose of the rows: `mlm` for masked models, `causal`, or `fim` for causal models that fill in the middle.
    Sets the defaults of overlap, packing, special tokens and `fim.rate`. Default: `fim` with a `fim.rate`; else `mlm`
    if the tokenizer has a mask token, or `causal`."""
    tokenizer: TokenizerConfig = msgspec.field(default_factory=TokenizerConfig)
    window: WindowConfig = msgspec.field(default_factory=WindowConfig)
    output: OutputConfig = msgspec.field(default_factory=OutputConfig)
    split: SplitConfig = msgspec.field(default_factory=SplitConfig)
    scan: ScanConfig = msgspec.field(default_factory=ScanConfig)
    tables: TablesConfig = msgspec.field(default_factory=TablesConfig)
    rules: RulesConfig = msgspec.field(default_factory=RulesConfig)
    secrets: SecretsConfig = msgspec.field(default_factory=SecretsConfig)
    licenses: LicensesConfig = msgspec.field(default_factory=LicensesConfig)
    duplicates: DuplicatesConfig = msgspec.field(default_factory=DuplicatesConfig)
    sampling: SamplingConfig = msgspec.field(default_factory=SamplingConfig)
    fim: FimConfig = msgspec.field(default_factory=FimConfig)
    variants: VariantsConfig = msgspec.field(default_factory=VariantsConfig)
    rewrite: RewriteConfig = msgspec.field(default_factory=RewriteConfig)
    run: RunConfig = msgspec.field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        text_list(self, "", "sources")
        check_types(self, "")
        msgspec.structs.force_setattr(self, "out", os.path.expanduser(self.out))
        if not self.sources:
            raise ConfigError("no source was named. Name a folder, a git work tree or a file.")
        if not self.out:
            raise ConfigError("out must name a folder, got ''. Try --out dataset.")
        self._check_packing()
        if self.has_documents:
            self._check_documents()
        is_rewriting = self.variants.ask_model
        if is_rewriting and self.rewrite.endpoint is None:
            raise ConfigError(
                "--variants rewrite needs the model's endpoint. Try --rewrite-endpoint http://localhost:8000/v1."
            )
        if is_rewriting and self.secrets.action == "keep":
            raise ConfigError("--variants rewrite sends only redacted texts: it does not go with --secrets keep.")

    def _check_packing(self) -> None:
        pack, refused = self.window.pack, []
        if self.window.is_packed:
            refused = ["--weights-only"] if self.sampling.weights_only else []
            refused += [f"--variants {kind}" for kind in self.variants.rates if kind in WITH_LABELS]
        if pack == "repo":
            refused += ["--variants"] if self.variants.rates else []
            refused += ["--decontaminate drop"] if self.split.decontaminate == "drop" else []
            refused += ["--weight, --target-windows or --max-windows"] if self._draws else []
        if refused:
            raise ConfigError(f"--pack {pack} does not go with {refused[0]}. Leave out one of the two.")

    def _check_documents(self) -> None:
        """Refuse options and formats that need windows of ids."""
        window, default = self.window, WindowConfig()
        refused = {
            f"--pack {window.pack}": window.is_packed,
            f"--window {window.length}": window.length != default.length and not self._rewrites,
            f"--overlap {window.overlap}": bool(window.overlap),
            f"--tail {window.tail}": window.tail != default.tail,
            f"--special-tokens {window.special_tokens}": window.special_tokens is not None,
            f"--end-token {window.end_token}": window.end_token is not None,
            "--pad": self.output.pad,
            **{f"--variants {kind}": VARIANTS[kind].makes == "windows" for kind in self.variants.rates},
        }
        if wrong := next((option for option, is_given in refused.items() if is_given), None):
            raise ConfigError(
                f"--rows documents has no windows: it does not go with {wrong}. Leave out one of the two."
            )
        if wrong := next((name for name in self.output.formats if name not in DOCUMENT_FORMATS), None):
            raise ConfigError(
                f"--rows documents has no ids, which --format {wrong} holds. Try --format "
                f"{' or '.join(DOCUMENT_FORMATS)}, or --rows windows."
            )

    @property
    def _rewrites(self) -> bool:
        """Documents are rewritten for fill in the middle, as this configuration or its preset says."""
        return self.fim.is_on or (self.preset == "fim" and self.fim.rate is None)

    @property
    def has_documents(self) -> bool:
        """A row is a document's text, without ids."""
        return self.output.rows == "documents"

    @property
    def window_columns(self) -> tuple[str, ...]:
        """Columns of a row that holds one window."""
        return window_columns(conditions_met(self.window, self.output, self.sampling, self.fim, self.variants))

    @property
    def needs_text(self) -> bool:
        """A column is made from the text, not from the ids alone."""
        return any(COLUMNS[name].needs_text for name in self.window_columns)

    @property
    def _draws(self) -> bool:
        return self.sampling.draws or self.sampling.max_windows is not None

    @property
    def looks_for_spans(self) -> bool:
        """That two texts share: a variant must not bring one that its file did not have."""
        return self.split.looks_for_spans or bool(self.variants.rates)

    def settings(self) -> dict[str, Any]:
        """The settings that change the output, without any path of this machine."""
        sections = [field.name for field in fields_of(Config) if is_section(field.type)]
        names = [name for name in sections if name not in {"tokenizer", "run"}]
        settings: dict[str, Any] = {"preset": self.preset}
        settings |= {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        settings["split"] = {name: settings["split"][name] for name in ("shares", "seed", "by", "decontaminate")}
        settings["scan"] |= {name: list(settings["scan"][name]) for name in ("include", "exclude", "languages")}
        settings["licenses"] = {"allow": list(settings["licenses"]["allow"])}
        # Not where it ran; and lengths only where they are set, so that all other datasets keep their fingerprint.
        rewrite = settings["rewrite"]
        lengths = {name: rewrite[name] for name in ("max_tokens", "context_tokens") if rewrite[name] is not None}
        settings["rewrite"] = {"model": rewrite["model"], "way": rewrite["way"], **lengths}
        settings["sampling"]["weights"] = [list(pair) for pair in self.sampling.weights.items()]  # their order counts
        del settings["output"]["formats"]  # the same windows, in whichever
        del settings["secrets"]["salt"]  # who knows it could try values
        return settings


def fingerprint(config: Config, *inputs: str) -> str:
    """One digest for all that decides the output; `inputs` are the digests of what is not a setting."""
    encoded = msgspec.json.encode([config.settings(), *inputs], order="deterministic")
    return hashlib.sha256(encoded).hexdigest()


def setting_names() -> list[str]:
    """Every setting, dotted: `window.overlap`."""
    names: list[str] = []
    for field in fields_of(Config):
        if is_section(field.type):
            names.extend(f"{field.name}.{inner.name}" for inner in fields_of(field.type))
        else:
            names.append(field.name)
    return names


def default_of(setting: str) -> Any:
    """`window.length` -> 512"""
    return field_of(setting).default


def choices_of(setting: str) -> tuple[str, ...] | None:
    """`window.tail` -> ("keep", "shift", "drop"); None for a setting that takes more than a few words."""
    return words_of(field_of(setting).type)


def field_of(setting: str) -> msgspec.structs.FieldInfo:
    section, _, name = setting.rpartition(".")
    owner: Any = field_of(section).type if section else Config
    return next(field for field in fields_of(owner) if field.name == name)


# Options and a TOML file -> a Config; an unknown name is refused with the nearest one that exists.


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
    fields = {field.name: field.type for field in fields_of(section)}
    for name, value in tree.items():
        if name not in fields:
            raise ConfigError(f"{where}: there is no setting {prefix + name!r}. {_did_you_mean(name, prefix)}")
        kind = fields[name]
        if isinstance(value, dict) and is_section(kind):
            _refuse_unknown(value, kind, where, f"{prefix}{name}.")


def _did_you_mean(name: str, prefix: str) -> str:
    """The nearest setting of the same section, else one of the same name anywhere."""
    known = [*setting_names(), *(field.name for field in fields_of(Config))]
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
