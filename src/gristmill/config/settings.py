"""The sections of a configuration: every setting with its default and limit, once."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from gristmill.config.validation import at_least, between, check_types, fields_of, text_list
from gristmill.core.columns import When
from gristmill.core.errors import ConfigError
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import MAX_WINDOW_LENGTH, VARIANTS, Split, VariantKind

MIB = 1 << 20
SEEDS = 1 << 63
MOST_EPOCHS = 1000
MOST_WEIGHT = 1_000_000
MOST_TOKENS = 1 << 30
"""Of a language model's answer, or context."""
SURROGATES = re.compile("[\ud800-\udfff]")
PresetName = Literal["mlm", "causal", "fim"]
NO_END_TOKEN = "none"


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "codebert"
    """`codebert` (in the package), a tokenizer.json, a folder that holds one, or a Hub id, `@revision` at its end."""
    cache_dir: str | None = None
    """Where a tokenizer from the Hub is kept; default: the Hugging Face cache."""

    def __post_init__(self) -> None:
        check_types(self, "tokenizer.")


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    length: int = 512
    """Ids in a window, special tokens included."""
    overlap: int | None = None
    """Content tokens that two neighbouring windows of a file share; default: by preset, 0 with `pack`."""
    tail: Literal["keep", "shift", "drop"] = "keep"
    """A file's last window: keep it short, shift it back to full length, or drop it if it brings too little."""
    min_fresh: int = 32
    """With tail `drop`: a last window with fewer fresh tokens than this is dropped, unless it is the only one."""
    pack: Literal["none", "best-fit", "repo"] | None = None
    """`best-fit` fills each row with windows of several files of one split, `repo` lays the files of a repository one
    after the other between the tokenizer's markers; default: by preset."""
    repo_order: Literal["path", "imports", "shuffle"] = "path"
    """With pack `repo`, the order of a repository's files in each split: by `path`, each file after those it `imports`
    (Python, Go, Rust, TypeScript, JavaScript, Java, C and C++, read line by line; cycles are broken), or `shuffle`d by
    a seed. Import order is not the default, as the evidence for it is mixed: DeepSeek-Coder (arXiv 2401.14196) orders
    files by imports, StarCoder 2 (arXiv 2402.19173) at random."""
    repo_order_seed: int = 0
    """Seed of repo_order `shuffle`. For another order in each epoch, build one dataset per epoch: a build that differs
    only in this seed does not read or tokenize anything again."""
    special_tokens: Literal["template", "documents"] | None = None
    """`template`: the tokenizer's template around every window, for masked models. `documents`: the begin token before
    every window, and an end token after the last window of each document. Default: by preset."""
    end_token: str | None = None
    """Token after each document, in rows with `special_tokens = "documents"` and in token streams; `none`: no token.
    Default: the one that the model's family uses between texts."""

    def __post_init__(self) -> None:
        check_types(self, "window.")
        at_least(1, "window.length", self.length, most=MAX_WINDOW_LENGTH)
        if self.overlap is not None:
            at_least(0, "window.overlap", self.overlap)
        at_least(1, "window.min_fresh", self.min_fresh)
        if self.is_packed and self.tail != "keep":
            raise ConfigError(f"--pack {self.pack} has a place for every tail: it does not go with --tail {self.tail}.")
        at_least(-SEEDS, "window.repo_order_seed", self.repo_order_seed, most=SEEDS - 1)
        if self.repo_order != "path" and self.pack != "repo":
            raise ConfigError(
                f"--repo-order {self.repo_order} needs --pack repo, which alone puts whole repositories into rows. "
                "Add --pack repo, or leave out --repo-order."
            )
        if self.repo_order_seed and self.repo_order != "shuffle":
            raise ConfigError(
                f"--repo-order-seed {self.repo_order_seed} is the seed of --repo-order shuffle. Add that, or leave out "
                "the seed."
            )
        if self.pack == "repo" and self.overlap:
            raise ConfigError(f"--pack repo shows every token once: it does not go with --overlap {self.overlap}.")

    @property
    def is_packed(self) -> bool:
        """A row holds windows of several files."""
        return self.pack not in {None, "none"}

    @property
    def num_shared(self) -> int:
        """The overlap, once a preset has decided it."""
        assert self.overlap is not None, "config.presets.with_preset decides it"
        return self.overlap


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    rows: Literal["windows", "documents"] = "windows"
    """`windows`: rows of ids, ready to train on. `documents`: a row for each file with its final text, for trainers
    that tokenize themselves; a file that was cut has a row for each piece between its cuts."""
    control_spellings: Literal["respell", "drop", "keep"] = "respell"
    """With rows `documents`: how to treat a text that spells a control token like `<|endoftext|>`, which a trainer's
    tokenizer would turn into the token. `respell` inserts a blank and records where, `drop` drops the file, `keep`
    keeps the text."""
    formats: Sequence[str] = ("jsonl",)
    """One or several of those in the table of formats. All hold the same rows."""
    pad: bool = False
    """Pad input_ids to the window length and write an attention_mask."""
    with_text: bool = False
    """Add each window's text to its row. Rows of documents have theirs in any case."""
    compress: Literal["none", "zstd"] = "none"
    """`zstd` writes .jsonl.zst in independent frames."""
    shard_bytes: int = 512 * MIB
    """Past this size (before compression) a split is written as several files."""

    def __post_init__(self) -> None:
        text_list(self, "output.", "formats")
        check_types(self, "output.")
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown or not self.formats:
            raise ConfigError(
                f"output.formats must be of {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}. "
                "Try --format parquet."
            )
        if self.rows == "windows" and self.control_spellings != "respell":
            raise ConfigError(
                f"--control-spellings {self.control_spellings} needs --rows documents: in windows of ids, no text "
                "becomes a control token."
            )
        ordered = [name for name in FORMATS if name in self.formats]
        msgspec.structs.force_setattr(self, "formats", ordered)
        at_least(1, "output.shard_bytes", self.shard_bytes)


class SplitConfig(msgspec.Struct, frozen=True, kw_only=True):
    shares: str = "85/10/5"
    """Percent of the tokens for train / validation / test."""
    seed: int = 0
    """Decides which file goes where."""
    previous: str | None = None
    """The files.jsonl of an earlier build whose splits are kept; default: the one in the output folder, if any."""
    fresh: bool = False
    """Ignore the splits of an earlier build."""
    by: Literal["file", "directory", "repo"] = "file"
    """What is never torn apart, beside near-duplicates: a file, the files of one folder, or a whole source."""
    decontaminate: Literal["cut", "drop", "train", "off"] = "cut"
    """Spans of 50 tokens and more that train and a held-out file share: `cut` them out of the held-out file, `drop` the
    held-out windows that touch one, cut them out of `train` instead, or leave them (`off`)."""
    against: Sequence[str] = ()
    """Benchmark texts (.jsonl, .jsonl.zst, .parquet or plain) whose spans are cut out of train."""

    def __post_init__(self) -> None:
        text_list(self, "split.", "against")
        check_types(self, "split.")
        self.fractions()
        if self.fresh and self.previous is not None:
            raise ConfigError("--splits and --fresh-splits contradict each other; use one of them.")

    @property
    def looks_for_spans(self) -> bool:
        return self.decontaminate != "off" or bool(self.against)

    def fractions(self) -> dict[Split, float]:
        """`85/10/5` -> {train: 0.85, validation: 0.1, test: 0.05}"""
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


def asked_shares(settings: Mapping[str, Any]) -> dict[Split, float]:
    """Shares that a manifest's settings ask for; none if they cannot be read."""
    try:
        return msgspec.convert(settings.get("split"), SplitConfig).fractions()
    except (msgspec.ValidationError, ConfigError):
        return {}


class ScanConfig(msgspec.Struct, frozen=True, kw_only=True):
    include: Sequence[str] = ()
    """Patterns as in a .gitignore; with any given, only files that match one are taken."""
    exclude: Sequence[str] = ()
    """Patterns as in a .gitignore; `!pattern` brings back what the default excludes leave out."""
    default_excludes: bool = True
    """Leave out what is never source: dependencies, build outputs, lock files, images, archives, weights."""
    languages: Sequence[str] = ()
    """With any given, only files of these languages are taken."""
    max_file_bytes: int = MIB
    """Larger files are dropped."""
    notebooks: Literal["cells", "raw"] = "cells"
    """Jupyter notebooks become their code and markdown cells, or stay the JSON they are."""

    def __post_init__(self) -> None:
        for field in ("include", "exclude", "languages"):
            text_list(self, "scan.", field)
            if any(SURROGATES.search(text) for text in getattr(self, field)):
                raise ConfigError(f"scan.{field} must be UTF-8. A name that is not is matched with ? or *.")
        check_types(self, "scan.")
        at_least(1, "scan.max_file_bytes", self.max_file_bytes)


class TablesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Of Parquet and JSONL sources, one text a row. A column that is not named is found by the names in common use."""

    text_column: str | None = None
    """The text; found: content, text, code, source or body."""
    path_column: str | None = None
    """The path a row goes by; found: max_stars_repo_path, path, file_path, file_name or filename."""
    repo_column: str | None = None
    """The repository it is from; found: max_stars_repo_name, repo_name, repository_name or repo."""
    license_column: str | None = None
    """SPDX ids; found: max_stars_repo_licenses, licenses, license or detected_licenses."""

    def __post_init__(self) -> None:
        check_types(self, "tables.")


class RulesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Each rule: `true` with its own limits, `false` off, a number for another limit in every language.

    [rules]
    generated = false
    longest_line = 2000

    [rules.languages.json]
    longest_line = false
    """

    vendored: bool = True
    """Other people's code: in a folder named vendor, third_party and the like."""
    lock_file: bool = True
    """Pinned dependencies, by name."""
    generated: bool = True
    """Written by a program: it says so in its first lines, by its name, or is a source map."""
    minified: bool | float = True
    """Made small for a browser: by name, or few lines of more than this many bytes on average."""
    one_line: bool | float = True
    """All in one line, and longer than this many bytes."""
    encoded_data: bool | float = True
    """Base64, hex or escapes: one run longer than this many bytes, or half of the file."""
    too_short: bool | float = True
    """It has fewer bytes than this that are not blank."""
    mean_line: bool | float = True
    """The mean line is longer than this many bytes."""
    longest_line: bool | float = True
    """A line is longer than this many bytes."""
    alphabetic: bool | float = True
    """A smaller share of what is not blank is letters."""
    languages: dict[str, dict[str, bool | float]] = {}
    """The same per language, which comes first."""

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
                    raise ConfigError(f"{place}.{name} has no limit: it takes true or false, got {value!r}.")
                if not isinstance(value, bool) and not 0 <= value < float("inf"):
                    raise ConfigError(f"{place}.{name} must be a number from 0 on, or false for off, got {value!r}.")


class SecretsConfig(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["redact", "drop", "keep"] = "redact"
    """Put a placeholder in a secret's place, drop the file that holds one, or do not look."""
    emails: bool = False
    """E-mail addresses count as secrets too."""
    salt: str = ""
    """Mixed into the short hashes by which a redacted value is known again; choose one before you publish a dataset."""

    def __post_init__(self) -> None:
        check_types(self, "secrets.")


class LicensesConfig(msgspec.Struct, frozen=True, kw_only=True):
    allow: Sequence[str] = ()
    """SPDX ids; with any given, files under another licence or an unknown one are dropped."""

    def __post_init__(self) -> None:
        text_list(self, "licenses.", "allow")
        check_types(self, "licenses.")


class DuplicatesConfig(msgspec.Struct, frozen=True, kw_only=True):
    near: Literal["drop", "group", "keep"] = "drop"
    """Files that share 0.7 or more of their 5-grams: keep one, keep all in one split, or do not look."""

    def __post_init__(self) -> None:
        check_types(self, "duplicates.")


class SamplingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How many windows: every one once, unless something here says otherwise.

    [sampling.weights]
    "src/**" = 3
    "language:markdown" = 0.5
    """

    max_windows: int | None = None
    """Of all splits together: where there are more, a sample in proportion, group by group. Variants come on top."""
    preset: Literal["code"] | None = None
    """Weights by what a file is for: `code` is source 2, tests 1, docs and data 0.5."""
    weights: dict[str, float] = {}
    """By pattern as in a .gitignore, `language:NAME`, `folder:NAME` (a folder of a source), `repo:NAME` or a group of
    the preset like `code:tests`: its windows are drawn so many times as often as those of weight 1. So a group's share
    of train's tokens is its natural share times its weight, brought to 100 %. The last that matches counts."""
    target_windows: int | None = None
    """Windows in train; default: as many as there are by nature. Variants come on top."""
    max_epochs: int = 4
    """No window is in train more often than this; what a small group cannot give, the others do."""
    weights_only: bool = False
    """Write each row's weight, for a trainer that samples, instead of drawing."""
    seed: int = 0
    """Decides which windows are drawn."""

    def __post_init__(self) -> None:
        check_types(self, "sampling.")
        at_least(-SEEDS, "sampling.seed", self.seed, most=SEEDS - 1)
        for name in ("max_windows", "target_windows"):
            if getattr(self, name) is not None:
                at_least(1, f"sampling.{name}", getattr(self, name))
        at_least(1, "sampling.max_epochs", self.max_epochs, most=MOST_EPOCHS)
        for group, weight in self.weights.items():
            if not 0 <= weight <= MOST_WEIGHT:
                raise ConfigError(f"the weight of {group!r} must be from 0 to {MOST_WEIGHT}, got {weight}.")
        if self.max_windows is not None and self.target_windows is not None:
            raise ConfigError(
                "--max-windows is for all splits together, --target-windows for train alone; use one of them."
            )
        if self.weights_only and not self.is_weighted:
            raise ConfigError("--weights-only needs weights to write. Try --weights code, or --weight 'src/**=3'.")
        if self.weights_only and self.target_windows is not None:
            raise ConfigError("--weights-only draws nothing, so --target-windows has nothing to say; use one of them.")

    @property
    def is_weighted(self) -> bool:
        return self.preset is not None or bool(self.weights)

    @property
    def draws(self) -> bool:
        """Train is drawn by weights, or to a size: a window may be in it several times."""
        return (self.is_weighted or self.target_windows is not None) and not self.weights_only


MIDDLES = {"syntax": 0.5, "lines": 0.25, "characters": 0.25}
"""Sorts of middles for fill in the middle, with their shares by default."""


class FimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fill in the middle: some documents of train are rewritten as prefix, suffix and middle, window by window.

    [fim.middles]
    syntax = 0.5
    lines = 0.25
    characters = 0.25
    """

    rate: float | None = None
    """Share of train's documents that are rewritten. Held-out files stay plain. Default: by preset, 0.5 with `fim`."""
    spm: float | None = None
    """Share of rewritten windows with the suffix first (SPM); in the others the prefix is first (PSM). Default: as the
    model's family was trained."""
    middles: dict[str, float] = {}
    """Shares of the sorts of middles: a syntax node (statement, block, body or arguments, by tree-sitter), whole lines,
    or any characters. A file without a grammar has lines in place of syntax. Default: half of them syntax."""
    max_middle: int | None = None
    """Maximum length of a middle in tokens; default: half of the window."""
    seed: int = 0
    """Decides which documents are rewritten, and where they are cut."""

    def __post_init__(self) -> None:
        check_types(self, "fim.")
        for name in ("rate", "spm"):
            if getattr(self, name) is not None:
                between(0, 1, f"fim.{name}", getattr(self, name))
        if self.max_middle is not None:
            at_least(1, "fim.max_middle", self.max_middle)
        at_least(-SEEDS, "fim.seed", self.seed, most=SEEDS - 1)
        for sort, share in self.middles.items():
            if sort not in MIDDLES:
                raise ConfigError(f"fim.middles: there is no sort {sort!r}. Known: {', '.join(MIDDLES)}.")
            if not 0 <= share < float("inf"):
                raise ConfigError(f"fim.middles.{sort} must be 0 or more, got {share}.")
        if not self.middles:
            msgspec.structs.force_setattr(self, "middles", MIDDLES)
        if not any(self.middles.values()):
            raise ConfigError("fim.middles must have at least one share above 0. Try --fim-middles characters.")
        ordered = {sort: float(self.middles.get(sort, 0)) for sort in MIDDLES}
        msgspec.structs.force_setattr(self, "middles", ordered)

    @property
    def is_on(self) -> bool:
        return bool(self.rate)

    @property
    def needs_grammar(self) -> bool:
        return self.is_on and self.middles["syntax"] > 0


class VariantsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Real variations of train files, beside them: none, unless one has a rate.

    [variants.rates]
    rename = 0.5
    """

    rates: dict[VariantKind, float] = {}
    """Which, and for what share of the files in train."""
    seed: int = 0
    """Decides for which files, and what becomes of them."""
    noise_mask: float = 0.15
    """Share of a window's tokens that lie in spans, each of which becomes one mask token."""
    noise_span: float = 3.0
    """Tokens in such a span, on average."""
    noise_delete: float = 0.05
    """Share of the tokens that are taken out."""

    def __post_init__(self) -> None:
        refuse_unknown_variants(self.rates)
        check_types(self, "variants.")
        at_least(-SEEDS, "variants.seed", self.seed, most=SEEDS - 1)
        for kind, rate in self.rates.items():
            between(0, 1, f"variants.rates.{kind}", rate)
        between(0, 0.9, "variants.noise_mask", self.noise_mask)
        between(0, 0.9, "variants.noise_delete", self.noise_delete)
        between(1, 100, "variants.noise_span", self.noise_span)
        wanted = {VariantKind(kind): rate for kind, rate in self.rates.items() if rate}
        msgspec.structs.force_setattr(self, "rates", {kind: wanted[kind] for kind in VariantKind if kind in wanted})

    @property
    def need_grammar(self) -> bool:
        return any(VARIANTS[kind].needs_grammar for kind in self.rates)

    @property
    def have_labels(self) -> bool:
        return any(VARIANTS[kind].has_labels for kind in self.rates)

    @property
    def ask_model(self) -> bool:
        return any(VARIANTS[kind].asks_model for kind in self.rates)


def conditions_met(
    window: WindowConfig, output: OutputConfig, sampling: SamplingConfig, fim: FimConfig, variants: VariantsConfig
) -> frozenset[When]:
    """What decides which columns rows have."""
    met = {
        When.ALWAYS: True,
        When.WINDOWS: output.rows == "windows",
        When.DOCUMENTS: output.rows == "documents",
        When.PAD: output.pad,
        When.TEXT: output.with_text or output.rows == "documents",
        When.DRAWN: sampling.draws,
        When.NOISE: variants.have_labels,
        When.WEIGHTS: sampling.weights_only,
        When.VARIANTS: bool(variants.rates),
        When.FIM: fim.is_on,
        When.PACK: window.is_packed,
    }
    return frozenset(when for when, is_met in met.items() if is_met)


REWRITE_WAYS: dict[str, Literal["paraphrase", "back_translation"]] = {
    "paraphrase": "paraphrase",
    "back-translation": "back_translation",
    "back_translation": "back_translation",
}
"""Names by which `--variants` takes a `rewrite` of this way."""


NO_FIM_VARIANT = (
    "fill in the middle is not a variant: it rewrites a share of train's documents and adds no copies. "
    "Try --fim 0.5, or fim.rate = 0.5 in the configuration file."
)


def refuse_unknown_variants(rates: object) -> None:
    for kind in rates if isinstance(rates, dict) else ():
        if kind in list(VariantKind):
            continue
        if kind == "fim":
            raise ConfigError(NO_FIM_VARIANT)
        way = REWRITE_WAYS.get(kind) if isinstance(kind, str) else None
        hint = f"There are {', '.join(VariantKind)}." if way is None else f'It is rewrite, with rewrite.way = "{way}".'
        raise ConfigError(f"variants.rates: there is no variant {kind!r}. {hint}")


class RewriteConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The language model that writes `rewrite` variants: one that you run, behind an OpenAI-compatible endpoint."""

    endpoint: str | None = None
    """Like http://localhost:8000/v1: texts are sent there, redacted, and nowhere else."""
    model: str | None = None
    """Its name there; default: the first that the endpoint names."""
    way: Literal["paraphrase", "back_translation"] = "paraphrase"
    """Write it in another way at once, or describe it first and write it from the description."""
    concurrency: int = 8
    """Requests at once."""
    timeout_seconds: float = 120.0
    """For the whole of an answer."""
    retries: int = 3
    """After an error that may pass."""
    max_tokens: int | None = None
    """Of an answer, at most; default: twice those of the text, 4,096 at least. A token is counted as three bytes."""
    context_tokens: int | None = None
    """What the model takes, question and answer together: a text that leaves no room for an answer of its own length is
    not sent. Default: all are sent."""

    def __post_init__(self) -> None:
        check_types(self, "rewrite.")
        for name in ("max_tokens", "context_tokens"):
            value = getattr(self, name)
            if value is not None:
                at_least(1, f"rewrite.{name}", value, most=MOST_TOKENS)
        at_least(1, "rewrite.concurrency", self.concurrency, most=1024)
        at_least(0, "rewrite.retries", self.retries, most=100)
        between(0.01, 86_400, "rewrite.timeout_seconds", self.timeout_seconds)


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the work is done: nothing here changes a byte of the result."""

    runner: Literal["local", "ray"] = "local"
    """Processes of this machine, or the workers of a Ray cluster."""
    ray_address: str | None = None
    """With runner `ray`: the cluster's head, or `auto` for the one this machine is in; default: one started here."""
    workers: int | Literal["auto"] = "auto"
    """Processes; `auto`: as many as there are cores, fewer where there is little to do."""
    device: Literal["cpu", "cuda"] = "cpu"
    """What tokenizes: the workers themselves, or an NVIDIA GPU on their behalf (extra `gpu`); the ids are the same.
    A whole build gains less than 10 %: tokenizing is a small part of it."""
    batch_bytes: int = MIB
    """Source bytes that are read and tokenized in one go, at most; a larger file goes by itself."""
    batch_files: int = 1000
    """At most this many files in one go."""
    cache_bytes: int = 10 << 30
    """What a build may leave beside the dataset, in DIR.work, for the next one to go on from; 0: nothing."""
    skip_failed: bool = False
    """Drop a file that cannot be read or over which a worker dies or hangs, instead of ending the build."""
    task_seconds: int = 600
    """A worker that is at one batch for longer counts as hung, and the batch is tried again by another."""
    max_expansion: int = 100
    """A table may unpack to this many times its own size, and always to 1 GiB; a row counts as at least 512 bytes."""

    def __post_init__(self) -> None:
        check_types(self, "run.")
        at_least(1, "run.batch_bytes", self.batch_bytes)
        if self.workers != "auto":
            at_least(1, "run.workers", self.workers, most=1024)
        at_least(1, "run.batch_files", self.batch_files)
        at_least(0, "run.cache_bytes", self.cache_bytes)
        if self.ray_address is not None and self.runner != "ray":
            raise ConfigError("--ray-address needs --runner ray.")
        if self.device == "cuda" and self.runner != "local":
            raise ConfigError(
                f"--device cuda goes with --runner local, whose workers share one machine's GPU, got --runner "
                f"{self.runner}. Leave out one of the two."
            )
        at_least(1, "run.task_seconds", self.task_seconds)
        at_least(1, "run.max_expansion", self.max_expansion)


def rule_names() -> list[str]:
    return [field.name for field in fields_of(RulesConfig) if field.name != "languages"]
