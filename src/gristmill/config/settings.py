"""Sections of the configuration: every setting with its type, default and limits."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from gristmill.config.validation import check_types, fields_of, require_at_least, require_between, set_text_tuple
from gristmill.core.columns import When
from gristmill.core.errors import ConfigError
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import MAX_WINDOW_LENGTH, VARIANTS, Split, VariantKind

MIB = 1 << 20
SEED_LIMIT = 1 << 63
EPOCHS_LIMIT = 1000
MAX_WEIGHT = 1_000_000
MAX_TOKENS = 1 << 30
"""Maximum of the settings rewrite.max_tokens and rewrite.context_tokens."""
SURROGATES = re.compile("[\ud800-\udfff]")
PresetName = Literal["mlm", "causal", "fim"]
NO_END_TOKEN = "none"


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Choice of the tokenizer."""

    name: str = "codebert"
    """Tokenizer: `codebert` (included in the package), a tokenizer.json, a folder that contains one, or a Hub id like
    `org/name` or `org/name@revision`."""
    cache_dir: str | None = None
    """Folder for tokenizers from the Hub. Default: the Hugging Face cache."""

    def __post_init__(self) -> None:
        check_types(self, "tokenizer.")


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Windows, which are slices of a file's ids, and how rows are made from windows."""

    length: int = 512
    """Maximum number of ids in a window, special tokens included."""
    overlap: int | None = None
    """Number of content tokens that two consecutive windows of a file share. Default: half of `length` with
    preset `mlm`; 0 with other presets, or if rows are packed."""
    tail: Literal["keep", "shift", "drop"] = "keep"
    """Treatment of a file's last window, which is often short: `keep` leaves it short, `shift` moves its start back
    until it has full length, `drop` removes it if it has fewer than `min_fresh` new tokens."""
    min_fresh: int = 32
    """With tail `drop`, minimum number of tokens in a file's last window that are in no earlier window. A file's only
    window is always kept."""
    pack: Literal["none", "best-fit", "repo"] | None = None
    """Packing of rows: `best-fit` fills each row with windows of several files of one split, `repo` concatenates the
    files of a repository, with the tokenizer's markers for repositories and files, `none` puts one window into each
    row. Default: `none` with preset `mlm`, otherwise `best-fit`."""
    repo_order: Literal["path", "imports", "shuffle"] = "path"
    """With pack `repo`, order of a repository's files in each split: `path` sorts files by path, `imports` puts each
    file after the files that it imports, `shuffle` shuffles files. Imports are found line by line in Python, Go, Rust,
    TypeScript, JavaScript, Java, C and C++, and import cycles are broken. Import order is not the default, because the
    evidence for it is mixed: DeepSeek-Coder (arXiv 2401.14196) orders files by imports, StarCoder 2 (arXiv 2402.19173)
    shuffles them."""
    repo_order_seed: int = 0
    """Seed of repo_order `shuffle`. For a different order in each epoch, build one dataset per epoch: a build that
    differs only in this seed does not read or tokenize files again."""
    special_tokens: Literal["template", "documents"] | None = None
    """Special tokens: `template` puts the tokenizer's template around every window, for masked models. `documents` puts
    the begin token at the start of every window, and an end token at the end of each document. Default: `template`
    with preset `mlm`, otherwise `documents`."""
    end_token: str | None = None
    """Token after each document, in rows with `special_tokens = "documents"` and in token streams. `none` means no
    token. Default: the token that the tokenizer's model family uses between texts."""

    def __post_init__(self) -> None:
        check_types(self, "window.")
        require_at_least(1, "window.length", self.length, most=MAX_WINDOW_LENGTH)
        if self.overlap is not None:
            require_at_least(0, "window.overlap", self.overlap)
        require_at_least(1, "window.min_fresh", self.min_fresh)
        if self.is_packed and self.tail != "keep":
            raise ConfigError(
                f"--pack {self.pack} keeps the last window of every file, so it cannot be combined with "
                f"--tail {self.tail}. Leave out one of the two."
            )
        require_at_least(-SEED_LIMIT, "window.repo_order_seed", self.repo_order_seed, most=SEED_LIMIT - 1)
        if self.repo_order != "path" and self.pack != "repo":
            raise ConfigError(
                f"--repo-order {self.repo_order} needs --pack repo, which puts complete repositories into rows. "
                "Add --pack repo, or leave out --repo-order."
            )
        if self.repo_order_seed and self.repo_order != "shuffle":
            raise ConfigError(
                f"--repo-order-seed {self.repo_order_seed} needs --repo-order shuffle. Add --repo-order shuffle, or "
                "leave out the seed."
            )
        if self.pack == "repo" and self.overlap:
            raise ConfigError(
                f"--pack repo has no overlap, so it cannot be combined with --overlap {self.overlap}. Leave out one of "
                "the two."
            )

    @property
    def is_packed(self) -> bool:
        """True if a row may hold windows of several files."""
        return self.pack not in {None, "none"}

    @property
    def num_overlap_tokens(self) -> int:
        """The overlap in tokens, which config.presets.with_preset must have set."""
        assert self.overlap is not None, "config.presets.with_preset must set the overlap first"
        return self.overlap


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the dataset's rows, and format of its files."""

    rows: Literal["windows", "documents"] = "windows"
    """Content of rows: `windows` are ids, ready to train on. `documents` are texts, for trainers that tokenize
    themselves: one row per file, or one row per remaining piece if spans were cut out of the file."""
    control_spellings: Literal["respell", "drop", "keep"] = "respell"
    """With rows `documents`, treatment of text that a trainer's tokenizer would turn into a control token, such as
    `<|endoftext|>`: `respell` inserts a space and records its position, `drop` drops the file, `keep` keeps the
    text."""
    formats: Sequence[str] = ("jsonl",)
    """Formats to write: one or several names from the table of formats. All formats hold the same rows."""
    pad: bool = False
    """Pad `input_ids` to the window length and add the column `attention_mask`."""
    with_text: bool = False
    """Add each window's text to its row. Rows of documents always have their text."""
    compress: Literal["none", "zstd"] = "none"
    """Compression of JSONL files: `zstd` writes .jsonl.zst files, from which single rows can be read."""
    shard_bytes: int = 512 * MIB
    """Maximum size of a JSONL file in bytes, before compression. A larger split is written as several files. If rows
    are packed, their size is estimated."""

    def __post_init__(self) -> None:
        set_text_tuple(self, "output.", "formats")
        check_types(self, "output.")
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown or not self.formats:
            raise ConfigError(
                f"output.formats must be one or several of {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}. "
                "Try --format parquet."
            )
        if self.rows == "windows" and self.control_spellings != "respell":
            raise ConfigError(
                f"--control-spellings {self.control_spellings} needs --rows documents: in windows of ids, no text "
                "becomes a control token."
            )
        ordered = [name for name in FORMATS if name in self.formats]
        msgspec.structs.force_setattr(self, "formats", ordered)
        require_at_least(1, "output.shard_bytes", self.shard_bytes)


class SplitConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Division of files into train, validation and test, and removal of text that splits share."""

    shares: str = "85/10/5"
    """Percentages of the tokens for train/validation/test."""
    seed: int = 0
    """Seed that decides the split of each file."""
    previous: str | None = None
    """Path of the files.jsonl of an earlier build. Files stay in the splits that it records. Default: files.jsonl in
    the output folder, if it exists."""
    fresh: bool = False
    """Assign new splits instead of keeping those of an earlier build."""
    by: Literal["file", "directory", "repo"] = "file"
    """Unit that is never divided between splits: a `file`, all files of a `directory`, or all files of a `repo` (a
    source, or a repository that table rows name). Near-duplicates that the build finds are always in the same split."""
    decontaminate: Literal["cut", "drop", "train", "off"] = "cut"
    """Treatment of spans of 50 or more tokens that train shares with a held-out file: `cut` cuts them out of the
    held-out file, `drop` drops the held-out windows that contain part of a span, `train` cuts them out of train, `off`
    keeps them."""
    against: Sequence[str] = ()
    """Files with benchmark texts (.jsonl, .jsonl.zst, .parquet or plain text). Spans of 50 or more tokens that train
    shares with these texts are cut out of train."""

    def __post_init__(self) -> None:
        set_text_tuple(self, "split.", "against")
        check_types(self, "split.")
        self.fractions()
        if self.fresh and self.previous is not None:
            raise ConfigError("--splits and --fresh-splits contradict each other. Use one of them.")

    @property
    def finds_shared_spans(self) -> bool:
        """True if the build searches for spans that train shares with held-out files or benchmarks."""
        return self.decontaminate != "off" or bool(self.against)

    def fractions(self) -> dict[Split, float]:
        """Return the shares as fractions: `85/10/5` -> {train: 0.85, validation: 0.1, test: 0.05}."""
        advice = "Try --split 85/10/5."
        try:
            percents = [float(part) for part in self.shares.split("/")]
        except ValueError:
            percents = []
        if len(percents) != len(Split) or not all(0 <= percent <= 100 for percent in percents):  # noqa: PLR2004
            raise ConfigError(
                f"split.shares must be three percentages, train/validation/test, got {self.shares!r}. {advice}"
            )
        total = sum(percents)
        if abs(total - 100) > 1e-6:  # noqa: PLR2004
            raise ConfigError(f"split.shares must add up to 100, got {self.shares} ({total:g}). {advice}")
        return {split: percent / 100 for split, percent in zip(Split, percents, strict=True)}


def requested_shares(settings: Mapping[str, Any]) -> dict[Split, float]:
    """Return the shares in a manifest's settings, or an empty dict if they cannot be read."""
    try:
        return msgspec.convert(settings.get("split"), SplitConfig).fractions()
    except (msgspec.ValidationError, ConfigError):
        return {}


class ScanConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of files in the sources."""

    include: Sequence[str] = ()
    """Patterns as in a .gitignore. If patterns are given, only matching files are read."""
    exclude: Sequence[str] = ()
    """Patterns as in a .gitignore. Matching files are left out. `!pattern` brings back files that are excluded by
    default."""
    default_excludes: bool = True
    """Leave out files that are never source code: dependencies, build outputs, lock files, images, archives,
    weights."""
    languages: Sequence[str] = ()
    """Names of languages, like `python`. If names are given, only files in these languages are read."""
    max_file_bytes: int = MIB
    """Maximum size of a file in bytes. Larger files are dropped."""
    notebooks: Literal["cells", "raw"] = "cells"
    """Text of Jupyter notebooks: their code and markdown `cells`, or their `raw` JSON."""

    def __post_init__(self) -> None:
        for field in ("include", "exclude", "languages"):
            set_text_tuple(self, "scan.", field)
            if any(SURROGATES.search(text) for text in getattr(self, field)):
                raise ConfigError(f"scan.{field} must be UTF-8. Match a name that is not UTF-8 with ? or *.")
        check_types(self, "scan.")
        require_at_least(1, "scan.max_file_bytes", self.max_file_bytes)


class TablesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of Parquet and JSONL sources, which have one text per row."""

    text_column: str | None = None
    """Column with the text. Default: the first of content, text, code, source and body that exists."""
    path_column: str | None = None
    """Column with the path. Default: the first of max_stars_repo_path, path, file_path, file_name and filename that
    exists."""
    repo_column: str | None = None
    """Column with the repository. Default: the first of max_stars_repo_name, repo_name, repository_name and repo that
    exists."""
    license_column: str | None = None
    """Column with the SPDX ids of licenses. Default: the first of max_stars_repo_licenses, licenses, license and
    detected_licenses that exists."""

    def __post_init__(self) -> None:
        check_types(self, "tables.")


class RulesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Cleaning rules, which drop files.

    `true` applies a rule with its default limits, `false` turns the rule off, and a number is the limit in all
    languages.

    [rules]
    generated = false
    longest_line = 2000

    [rules.languages.json]
    longest_line = false
    """

    vendored: bool = True
    """Drop third-party code: files in a folder named vendor, third_party or similar."""
    lock_file: bool = True
    """Drop lock files, which list pinned dependencies. Lock files are detected by name."""
    generated: bool = True
    """Drop generated files, which are detected by their first lines or name, and source maps."""
    minified: bool | float = True
    """Drop minified files, which are detected by name, or by having few lines of more than this many bytes on
    average."""
    one_line: bool | float = True
    """Drop files that consist of a single line of more than this many bytes."""
    encoded_data: bool | float = True
    """Drop files with more than this many consecutive bytes of base64, hex or escapes, and files that consist mostly
    of such data."""
    too_short: bool | float = True
    """Drop files with fewer than this many bytes that are not whitespace."""
    mean_line: bool | float = True
    """Drop files whose lines have more than this many bytes on average."""
    longest_line: bool | float = True
    """Drop files with a line of more than this many bytes."""
    alphabetic: bool | float = True
    """Drop files if the share of letters in the text, without whitespace, is below this limit."""
    languages: dict[str, dict[str, bool | float]] = {}
    """Settings of rules for individual languages. They take precedence over the settings for all languages."""

    def __post_init__(self) -> None:
        check_types(self, "rules.")
        names = set(rule_names())
        switches = {field.name for field in fields_of(RulesConfig) if field.type is bool}
        tables = {"rules": {name: getattr(self, name) for name in names}}
        tables |= {f"rules.languages.{language}": table for language, table in self.languages.items()}
        for place, table in tables.items():
            for name, value in table.items():
                if name not in names:
                    raise ConfigError(f"{place}: there is no rule {name!r}. Known: {', '.join(sorted(names))}.")
                if name in switches and not isinstance(value, bool):
                    raise ConfigError(
                        f"{place}.{name} must be true or false, because the rule has no limit, got {value!r}."
                    )
                if not isinstance(value, bool) and not 0 <= value < float("inf"):
                    raise ConfigError(
                        f"{place}.{name} must be 0 or more, or false to turn the rule off, got {value!r}."
                    )


class SecretsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets in files: keys, tokens and passwords."""

    action: Literal["redact", "drop", "keep"] = "redact"
    """Treatment of secrets: `redact` replaces each secret with a placeholder, `drop` drops the file, `keep` does not
    search for secrets."""
    emails: bool = False
    """Treat e-mail addresses as secrets."""
    salt: str = ""
    """Salt of the short hashes that identify redacted values. Set a salt before you publish a dataset."""

    def __post_init__(self) -> None:
        check_types(self, "secrets.")


class LicensesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of files by license."""

    allow: Sequence[str] = ()
    """SPDX ids of allowed licenses. If ids are given, files with any other license or an unknown license are
    dropped."""

    def __post_init__(self) -> None:
        set_text_tuple(self, "licenses.", "allow")
        check_types(self, "licenses.")


class DuplicatesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Treatment of near-duplicate files."""

    near: Literal["drop", "group", "keep"] = "drop"
    """Treatment of near-duplicates, which are files with a similarity of 0.7 or more (Jaccard index of 5-grams): `drop`
    drops all but one, `group` keeps them in the same split, `keep` does not search for near-duplicates."""

    def __post_init__(self) -> None:
        check_types(self, "duplicates.")


class SamplingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling of windows. By default, every window is in the dataset once.

    [sampling.weights]
    "src/**" = 3
    "language:markdown" = 0.5
    """

    max_windows: int | None = None
    """Maximum total number of windows in all splits, without variants. If there are more, each group of files is
    sampled in proportion to its windows. Default: all windows."""
    preset: Literal["code"] | None = None
    """Predefined weights: `code` gives source code the weight 2, tests 1, docs and data 0.5. Default: no weights."""
    weights: dict[str, float] = {}
    """Weights of train files. A key is a pattern as in a .gitignore, `language:NAME`, `folder:NAME` (a folder of a
    source), `repo:NAME`, or a group of the preset like `code:tests`. Windows of weight 2 are drawn twice as often as
    windows of weight 1: the share of a group in train is its natural share times its weight, scaled to a total of
    100 %. If several keys match a file, the last matching key determines the weight."""
    target_windows: int | None = None
    """Number of windows in train, including repeats but not variants. Default: each window once."""
    max_epochs: int = 4
    """Maximum number of times that a window is in train. If a group of files reaches this limit, other groups supply
    the missing windows."""
    weights_only: bool = False
    """Write the weight of each row, for a trainer that samples rows, instead of drawing windows by weight."""
    seed: int = 0
    """Seed that decides which windows are drawn."""

    def __post_init__(self) -> None:
        check_types(self, "sampling.")
        require_at_least(-SEED_LIMIT, "sampling.seed", self.seed, most=SEED_LIMIT - 1)
        for name in ("max_windows", "target_windows"):
            if getattr(self, name) is not None:
                require_at_least(1, f"sampling.{name}", getattr(self, name))
        require_at_least(1, "sampling.max_epochs", self.max_epochs, most=EPOCHS_LIMIT)
        for group, weight in self.weights.items():
            if not 0 <= weight <= MAX_WEIGHT:
                raise ConfigError(f"the weight of {group!r} must be from 0 to {MAX_WEIGHT}, got {weight}.")
        if self.max_windows is not None and self.target_windows is not None:
            raise ConfigError(
                "--max-windows limits the total size of all splits, --target-windows sets the size of train. Use one."
            )
        if self.weights_only and not self.is_weighted:
            raise ConfigError("--weights-only needs weights to write. Try --weights code, or --weight 'src/**=3'.")
        if self.weights_only and self.target_windows is not None:
            raise ConfigError("--weights-only draws no windows, so --target-windows has no effect. Use one of them.")

    @property
    def is_weighted(self) -> bool:
        return self.preset is not None or bool(self.weights)

    @property
    def draws(self) -> bool:
        """True if windows of train are drawn by weight or to a target size. A window may then have several rows."""
        return (self.is_weighted or self.target_windows is not None) and not self.weights_only


MIDDLES = {"syntax": 0.5, "lines": 0.25, "characters": 0.25}
"""Kinds of middles for fill-in-the-middle, with their default shares."""


class FimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fill-in-the-middle: the windows of some train documents are rewritten as prefix, suffix and middle.

    [fim.middles]
    syntax = 0.5
    lines = 0.25
    characters = 0.25
    """

    rate: float | None = None
    """Share of train's documents that are rewritten for fill-in-the-middle. Held-out files are not rewritten. Default:
    0.5 with preset `fim`, otherwise 0."""
    spm: float | None = None
    """Share of rewritten windows with the suffix first (SPM). The remaining rewritten windows have the prefix first
    (PSM). Default: the share that the tokenizer's model family was trained with."""
    middles: dict[str, float] = {}
    """Shares of the kinds of middles: `syntax` is a syntax node (statement, block, body or arguments, found by
    tree-sitter), `lines` are complete lines, `characters` are the characters between two random positions. If
    there is no grammar for a file, `lines` replaces `syntax`. Default: syntax 0.5, lines 0.25, characters 0.25."""
    max_middle: int | None = None
    """Maximum number of tokens in a middle. Default: half of the window length."""
    seed: int = 0
    """Seed that decides which documents are rewritten, and where their windows are divided."""

    def __post_init__(self) -> None:
        check_types(self, "fim.")
        for name in ("rate", "spm"):
            if getattr(self, name) is not None:
                require_between(0, 1, f"fim.{name}", getattr(self, name))
        if self.max_middle is not None:
            require_at_least(1, "fim.max_middle", self.max_middle)
        require_at_least(-SEED_LIMIT, "fim.seed", self.seed, most=SEED_LIMIT - 1)
        for kind, share in self.middles.items():
            if kind not in MIDDLES:
                raise ConfigError(f"fim.middles: there is no kind {kind!r}. Known: {', '.join(MIDDLES)}.")
            if not 0 <= share < float("inf"):
                raise ConfigError(f"fim.middles.{kind} must be 0 or more, got {share}.")
        if not self.middles:
            msgspec.structs.force_setattr(self, "middles", MIDDLES)
        if not any(self.middles.values()):
            raise ConfigError("fim.middles must have at least one share above 0. Try --fim-middles characters.")
        ordered = {kind: float(self.middles.get(kind, 0)) for kind in MIDDLES}
        msgspec.structs.force_setattr(self, "middles", ordered)

    @property
    def is_enabled(self) -> bool:
        """True if documents are rewritten for fill-in-the-middle."""
        return bool(self.rate)

    @property
    def needs_grammar(self) -> bool:
        return self.is_enabled and self.middles["syntax"] > 0


class VariantsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Variants of train files, which are added to train. Each kind of variant with an entry in `rates` is made.

    [variants.rates]
    rename = 0.5
    """

    rates: dict[VariantKind, float] = {}
    """Kinds of variants to make, each with the share of train files that get a variant of this kind."""
    seed: int = 0
    """Seed that decides which files get variants, and how the variants differ from the files."""
    noise_mask: float = 0.15
    """In `noise` variants, share of a window's tokens that are masked. Each masked span becomes one mask token."""
    noise_span: float = 3.0
    """In `noise` variants, average number of tokens in a masked span."""
    noise_delete: float = 0.05
    """In `noise` variants, share of a window's tokens that are deleted."""

    def __post_init__(self) -> None:
        refuse_unknown_variants(self.rates)
        check_types(self, "variants.")
        require_at_least(-SEED_LIMIT, "variants.seed", self.seed, most=SEED_LIMIT - 1)
        for kind, rate in self.rates.items():
            require_between(0, 1, f"variants.rates.{kind}", rate)
        require_between(0, 0.9, "variants.noise_mask", self.noise_mask)
        require_between(0, 0.9, "variants.noise_delete", self.noise_delete)
        require_between(1, 100, "variants.noise_span", self.noise_span)
        enabled = {VariantKind(kind): rate for kind, rate in self.rates.items() if rate}
        msgspec.structs.force_setattr(self, "rates", {kind: enabled[kind] for kind in VariantKind if kind in enabled})

    @property
    def needs_grammar(self) -> bool:
        return any(VARIANTS[kind].needs_grammar for kind in self.rates)

    @property
    def has_labels(self) -> bool:
        return any(VARIANTS[kind].has_labels for kind in self.rates)

    @property
    def needs_model(self) -> bool:
        return any(VARIANTS[kind].needs_model for kind in self.rates)


def conditions_met(
    window: WindowConfig, output: OutputConfig, sampling: SamplingConfig, fim: FimConfig, variants: VariantsConfig
) -> frozenset[When]:
    """Return the conditions that hold for this configuration. The conditions decide which columns rows have."""
    conditions = {
        When.ALWAYS: True,
        When.WINDOWS: output.rows == "windows",
        When.DOCUMENTS: output.rows == "documents",
        When.PAD: output.pad,
        When.TEXT: output.with_text or output.rows == "documents",
        When.DRAWN: sampling.draws,
        When.NOISE: variants.has_labels,
        When.WEIGHTS: sampling.weights_only,
        When.VARIANTS: bool(variants.rates),
        When.FIM: fim.is_enabled,
        When.PACK: window.is_packed,
    }
    return frozenset(when for when, is_met in conditions.items() if is_met)


REWRITE_WAYS: dict[str, Literal["paraphrase", "back_translation"]] = {
    "paraphrase": "paraphrase",
    "back-translation": "back_translation",
    "back_translation": "back_translation",
}
"""Names that `--variants` accepts for the kind `rewrite`, with their `rewrite.way`."""


NO_FIM_VARIANT = (
    "fill-in-the-middle is not a variant: it rewrites a share of train's documents and adds no copies. "
    "Try --fim 0.5, or fim.rate = 0.5 in the configuration file."
)


def refuse_unknown_variants(rates: object) -> None:
    """Raise ConfigError if a rate is given for an unknown kind of variant."""
    for kind in rates if isinstance(rates, dict) else ():
        if kind in list(VariantKind):
            continue
        if kind == "fim":
            raise ConfigError(NO_FIM_VARIANT)
        way = REWRITE_WAYS.get(kind) if isinstance(kind, str) else None
        hint = f"Known: {', '.join(VariantKind)}." if way is None else f'Use rewrite, with rewrite.way = "{way}".'
        raise ConfigError(f"variants.rates: there is no variant {kind!r}. {hint}")


class RewriteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Language model that writes `rewrite` variants. You run the model, behind an OpenAI-compatible endpoint."""

    endpoint: str | None = None
    """URL of the endpoint, like http://localhost:8000/v1. Redacted texts are sent there and nowhere else."""
    model: str | None = None
    """Name of the model at the endpoint. Default: the first model that the endpoint lists."""
    way: Literal["paraphrase", "back_translation"] = "paraphrase"
    """Method: `paraphrase` rewrites the code directly, `back_translation` describes the code and writes new code from
    the description."""
    concurrency: int = 8
    """Maximum number of concurrent requests."""
    timeout_seconds: float = 120.0
    """Time limit for a complete answer of the model, in seconds."""
    retries: int = 3
    """Number of retries of a request after a transient error."""
    max_tokens: int | None = None
    """Maximum number of tokens in an answer. Default: twice the number of tokens in the text, but at least 4,096.
    Three bytes of the text are counted as one token."""
    context_tokens: int | None = None
    """Context length of the model in tokens, for prompt and answer together. A text is not sent if its prompt leaves no
    room for an answer as long as the text. Default: all texts are sent."""

    def __post_init__(self) -> None:
        check_types(self, "rewrite.")
        for name in ("max_tokens", "context_tokens"):
            value = getattr(self, name)
            if value is not None:
                require_at_least(1, f"rewrite.{name}", value, most=MAX_TOKENS)
        require_at_least(1, "rewrite.concurrency", self.concurrency, most=1024)
        require_at_least(0, "rewrite.retries", self.retries, most=100)
        require_between(0.01, 86_400, "rewrite.timeout_seconds", self.timeout_seconds)


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Execution of a build. Only `skip_failed` may change the result, because it drops files that fail."""

    runner: Literal["local", "ray"] = "local"
    """Workers: processes on this machine (`local`), or workers of a Ray cluster (`ray`)."""
    ray_address: str | None = None
    """With runner `ray`, address of the cluster's head, or `auto` for the cluster that this machine belongs to.
    Default: a new cluster on this machine."""
    workers: int | Literal["auto"] = "auto"
    """Number of worker processes. `auto` starts one per core, or fewer if there is little to do."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device for tokenizing: `cpu` in each worker, or `cuda` on one NVIDIA GPU for all workers (extra `gpu`). Both
    give the same ids. With `cuda`, a build is less than 10 % faster, because tokenizing is a small part of a build."""
    batch_bytes: int = MIB
    """Maximum number of bytes of source files in a batch, which one worker processes at a time. A larger file is a
    batch by itself."""
    batch_files: int = 1000
    """Maximum number of files in a batch."""
    cache_bytes: int = 10 << 30
    """Maximum size in bytes of the cache in DIR.work, with which the next build processes only changed files. 0
    disables the cache."""
    skip_failed: bool = False
    """Drop a file that cannot be read, or on which a worker dies or hangs, instead of stopping the build."""
    task_seconds: int = 600
    """Time limit for a batch, in seconds. A worker that takes longer is considered hung, and a new worker retries the
    batch."""
    max_expansion: int = 100
    """Maximum size of an unpacked table, as a multiple of its packed size. 1 GiB is always allowed. Each row is counted
    as at least 512 bytes."""

    def __post_init__(self) -> None:
        check_types(self, "run.")
        require_at_least(1, "run.batch_bytes", self.batch_bytes)
        if self.workers != "auto":
            require_at_least(1, "run.workers", self.workers, most=1024)
        require_at_least(1, "run.batch_files", self.batch_files)
        require_at_least(0, "run.cache_bytes", self.cache_bytes)
        if self.ray_address is not None and self.runner != "ray":
            raise ConfigError("--ray-address needs --runner ray. Add --runner ray, or leave out --ray-address.")
        if self.device == "cuda" and self.runner != "local":
            raise ConfigError(
                f"--device cuda needs --runner local, because all workers share one GPU, got --runner {self.runner}. "
                "Leave out one of the two."
            )
        require_at_least(1, "run.task_seconds", self.task_seconds)
        require_at_least(1, "run.max_expansion", self.max_expansion)


def rule_names() -> list[str]:
    """Return the names of all cleaning rules."""
    return [field.name for field in fields_of(RulesConfig) if field.name != "languages"]
