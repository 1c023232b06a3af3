"""The configuration of a build: all settings, their fingerprint, and loading from options and TOML.

Settings have the same names in Python and in gristmill.toml. Error messages name a setting or its option.
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
from gristmill.config.validation import (
    allowed_values_text,
    check_types,
    fields_of,
    is_section,
    literal_values,
    set_text_tuple,
)
from gristmill.core.columns import COLUMNS, window_columns
from gristmill.core.errors import ConfigError
from gristmill.core.names import is_remote_address, nearest_name
from gristmill.core.output_formats import DOCUMENT_FORMATS
from gristmill.core.plain_files import read_plain_text
from gristmill.core.records import LABELED_KINDS, VARIANTS


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a build: `Config(sources=["my-repo"], out="dataset")`.

    Only `sources` and `out` are required. Other settings are grouped in sections, each with a class of its own:
    `Config(sources=["my-repo"], out="dataset", window=WindowConfig(length=1024))`. Invalid settings raise ConfigError.
    """

    sources: Sequence[str]
    """Sources to read: folders, git work trees, files, tables (.parquet, .jsonl), git URLs, and addresses that begin
    with s3://, hf:// or https://."""
    out: str
    """Dataset folder: a new or empty folder, an earlier dataset, or a new prefix like s3://bucket/dataset. An earlier
    dataset is replaced when the new dataset is complete."""
    preset: PresetName | None = None
    """Purpose of the rows: `mlm` for masked models, `causal` for causal models, or `fim` for causal models that also
    learn fill-in-the-middle. The preset sets the defaults of overlap, packing, special tokens and `fim.rate`. Default:
    `fim` if `fim.rate` is above 0; otherwise `mlm` if the tokenizer has a mask token, and `causal` if not."""
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
        set_text_tuple(self, "", "sources")
        check_types(self, "")
        msgspec.structs.force_setattr(self, "out", os.path.expanduser(self.out))
        if not self.sources:
            raise ConfigError("no source is given. Name a folder, a git work tree or a file.")
        if not self.out:
            raise ConfigError("out must name a folder, got ''. Try --out dataset.")
        self._check_packing()
        if self.has_documents:
            self._check_documents()
        is_rewriting = self.variants.needs_model
        if is_rewriting and self.rewrite.endpoint is None:
            raise ConfigError(
                "--variants rewrite needs the endpoint of a language model. Try --rewrite-endpoint "
                "http://localhost:8000/v1."
            )
        if is_rewriting and self.secrets.action == "keep":
            raise ConfigError(
                "--variants rewrite sends only redacted texts, so it cannot be combined with --secrets keep. Leave out "
                "one of the two."
            )

    def _check_packing(self) -> None:
        pack, refused = self.window.pack, []
        if self.window.is_packed:
            refused = ["--weights-only"] if self.sampling.weights_only else []
            refused += [f"--variants {kind}" for kind in self.variants.rates if kind in LABELED_KINDS]
        if pack == "repo":
            refused += ["--variants"] if self.variants.rates else []
            refused += ["--decontaminate drop"] if self.split.decontaminate == "drop" else []
            refused += self._drawing_options
        if refused:
            raise ConfigError(f"--pack {pack} cannot be combined with {refused[0]}. Leave out one of the two.")

    def _check_documents(self) -> None:
        """Raise ConfigError for options and formats that need windows of ids."""
        window, default = self.window, WindowConfig()
        refused = {
            f"--pack {window.pack}": window.is_packed,
            f"--window {window.length}": window.length != default.length and not self._uses_fim,
            f"--overlap {window.overlap}": bool(window.overlap),
            f"--tail {window.tail}": window.tail != default.tail,
            f"--special-tokens {window.special_tokens}": window.special_tokens is not None,
            f"--end-token {window.end_token}": window.end_token is not None,
            "--pad": self.output.pad,
            **{f"--variants {kind}": VARIANTS[kind].makes == "windows" for kind in self.variants.rates},
        }
        if conflict := next((option for option, is_given in refused.items() if is_given), None):
            raise ConfigError(
                f"--rows documents has no windows, so it cannot be combined with {conflict}. Leave out one of the two."
            )
        if conflict := next((name for name in self.output.formats if name not in DOCUMENT_FORMATS), None):
            raise ConfigError(
                f"--rows documents has no ids, and --format {conflict} needs ids. Try --format "
                f"{' or '.join(DOCUMENT_FORMATS)}, or --rows windows."
            )

    @property
    def _uses_fim(self) -> bool:
        """True if `fim.rate` or the preset requests fill-in-the-middle."""
        return self.fim.is_enabled or (self.preset == "fim" and self.fim.rate is None)

    @property
    def has_documents(self) -> bool:
        """True if a row is a document's text, without ids."""
        return self.output.rows == "documents"

    @property
    def window_columns(self) -> tuple[str, ...]:
        """Columns of a row that holds one window."""
        return window_columns(conditions_met(self.window, self.output, self.sampling, self.fim, self.variants))

    @property
    def needs_text(self) -> bool:
        """True if at least one column is computed from the text, not only from the ids."""
        return any(COLUMNS[name].needs_text for name in self.window_columns)

    @property
    def _drawing_options(self) -> list[str]:
        """Options of this configuration that change how often windows are drawn."""
        sampling = self.sampling
        is_given = {
            "--weights": sampling.preset is not None,
            "--weight": bool(sampling.weights),
            "--target-windows": sampling.target_windows is not None,
            "--max-windows": sampling.max_windows is not None,
        }
        return [option for option, given in is_given.items() if given]

    @property
    def finds_shared_spans(self) -> bool:
        """True if the build searches for shared spans, to decontaminate splits or to reject variants."""
        return self.split.finds_shared_spans or bool(self.variants.rates)

    def settings(self) -> dict[str, Any]:
        """Return the settings that change the output. They contain no paths of this machine."""
        sections = [field.name for field in fields_of(Config) if is_section(field.type)]
        names = [name for name in sections if name not in {"tokenizer", "run"}]
        settings: dict[str, Any] = {"preset": self.preset}
        settings |= {name: msgspec.to_builtins(getattr(self, name)) for name in names}
        settings["split"] = {name: settings["split"][name] for name in ("shares", "seed", "by", "decontaminate")}
        settings["scan"] |= {name: list(settings["scan"][name]) for name in ("include", "exclude", "languages")}
        settings["licenses"] = {"allow": list(settings["licenses"]["allow"])}
        # The endpoint does not change the output. Unset lengths are left out, so that old fingerprints stay valid.
        rewrite = settings["rewrite"]
        lengths = {name: rewrite[name] for name in ("max_tokens", "context_tokens") if rewrite[name] is not None}
        settings["rewrite"] = {"model": rewrite["model"], "way": rewrite["way"], **lengths}
        settings["sampling"]["weights"] = [list(pair) for pair in self.sampling.weights.items()]  # the order matters
        del settings["output"]["formats"]  # all formats have the same windows
        del settings["secrets"]["salt"]  # the salt would allow guessing redacted values
        return settings


def fingerprint(config: Config, *inputs: str) -> str:
    """Return a digest of everything that determines the output: the settings, and `inputs`.

    `inputs` are digests of the tokenizer and of files.jsonl, and the version of gristmill.
    """
    encoded = msgspec.json.encode([config.settings(), *inputs], order="deterministic")
    return hashlib.sha256(encoded).hexdigest()


def setting_names() -> list[str]:
    """Return the dotted names of all settings, like `window.overlap`."""
    names: list[str] = []
    for field in fields_of(Config):
        if is_section(field.type):
            names.extend(f"{field.name}.{inner.name}" for inner in fields_of(field.type))
        else:
            names.append(field.name)
    return names


def default_of(setting: str) -> Any:
    """Return the default of a setting: `window.length` -> 512."""
    return field_of(setting).default


def choices_of(setting: str) -> tuple[str, ...] | None:
    """Return the allowed values of a setting, like ("keep", "shift", "drop"), or None if they cannot be listed."""
    return literal_values(field_of(setting).type)


def field_of(setting: str) -> msgspec.structs.FieldInfo:
    """Return the field of a setting, given by its dotted name."""
    section, _, name = setting.rpartition(".")
    owner: Any = field_of(section).type if section else Config
    return next(field for field in fields_of(owner) if field.name == name)


# Loading a Config from options and a TOML file. The error for an unknown name suggests the nearest known name.


def load_config(values: Mapping[str, Any], toml: Path | None = None, *, out: str | None = None) -> Config:
    """Load a Config from dotted settings (`{"window.overlap": 128}`), which override those of an optional TOML file.

    Paths in the TOML file are relative to its folder. `out` is the output folder if no setting names one.
    """
    tree = _read_toml(toml) if toml is not None else {}
    if out is not None:
        tree.setdefault("out", out)
    for dotted, value in values.items():
        *sections, name = dotted.split(".")
        table = tree
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{section} must be a table of settings in the configuration file, got {table!r}.")
        table[name] = _merged(table.get(name), value)
    if "sources" not in tree:
        raise ConfigError("no source is given. Name a folder, a git work tree or a file.")
    if "out" not in tree:
        raise ConfigError("no output folder is given. Try: gristmill build SOURCE --out DIR")
    variants = tree.get("variants")
    refuse_unknown_variants(variants.get("rates") if isinstance(variants, dict) else None)
    try:
        return msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        message, _, location = str(error).partition(" - at `$.")
        where = location.rstrip("`") or "configuration"
        allowed = allowed_values_text(field_of(where).type) if where in setting_names() else ""
        kind = message.replace("`object`", "a table").replace("`array`", "a list")
        raise ConfigError(f"{where}: {kind[0].lower()}{kind[1:]}.{allowed}") from None


def _merged(old_value: Any, value: Any) -> Any:
    """Return the new value. If both values are tables, merge them: entries that only the old table has come first."""
    if not isinstance(old_value, dict) or not isinstance(value, dict):
        return value
    return {name: old for name, old in old_value.items() if name not in value} | value


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
    """Return a sentence that suggests the nearest setting, or a setting with the same name in a different section.

    If there is neither, the sentence lists the known settings.
    """
    known = [*setting_names(), *(field.name for field in fields_of(Config))]
    near = nearest_name(prefix + name, known)
    near = near or next((dotted for dotted in known if dotted.rpartition(".")[2] == name), None)
    if near:
        return f"Did you mean {near!r}?"
    siblings = sorted(dotted for dotted in known if dotted.startswith(prefix)) if prefix else known
    return f"Known settings: {', '.join(siblings)}."


def _resolve_paths(tree: dict[str, Any], base: Path) -> None:
    def resolved(value: Any) -> Any:
        is_path = isinstance(value, str) and not is_remote_address(value)
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
        # The name is a path if a file or folder exists there. Otherwise it may be a Hub id.
        path = resolved(tokenizer["name"])
        tokenizer["name"] = path if tokenizer["name"] != "codebert" and os.path.lexists(path) else tokenizer["name"]
