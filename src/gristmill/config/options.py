"""The table of options of `build` and `plan`, each with its setting, and conversion of settings back to a command."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.config.config import choices_of, default_of
from gristmill.config.settings import MIDDLES, REWRITE_WAYS
from gristmill.core.names import shell_quote
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import VARIANTS, VariantKind


class Option(NamedTuple):
    """One option of a command, with its setting and help text. Its default is the default of the setting."""

    flag: str
    setting: str
    metavar: str | None
    """Placeholder for the value. None for a switch without a value."""
    help: str
    kind: type = str
    is_repeatable: bool = False
    default: str | None = None
    """Default for the help text, if the default of the setting is None."""


def _variant_kinds() -> str:
    *most, last = VARIANTS
    ways = " or ".join(way for way in REWRITE_WAYS if "_" not in way)
    return f"{', '.join(most)} or {last}; to select the method of {VariantKind.REWRITE}, write {ways} instead"


VARIANT_KINDS = _variant_kinds()
WITHOUT_GRAMMAR = " and ".join(kind for kind, one in VARIANTS.items() if not one.needs_grammar)

BUILD_OPTIONS: dict[str, tuple[Option, ...]] = {
    "output and tokenizer": (
        Option("--out", "out", "DIR", "dataset folder to write, or a new prefix like s3://bucket/dataset"),
        Option(
            "--tokenizer",
            "tokenizer.name",
            "NAME",
            "'codebert' (included in the package), a tokenizer.json, a folder that contains one, or a Hub id like "
            "'org/name' or 'org/name@revision'",
        ),
        Option(
            "--cache-dir",
            "tokenizer.cache_dir",
            "DIR",
            "folder for tokenizers from the Hub",
            default="the Hugging Face cache",
        ),
        Option(
            "--preset",
            "preset",
            "mlm|causal|fim",
            "purpose of the rows: masked models (mlm), causal models (causal), or causal models that also learn "
            "fill-in-the-middle (fim); sets the defaults of --overlap, --pack, --special-tokens and --fim",
            default="fim with --fim; otherwise mlm if the tokenizer has a mask token, and causal if not",
        ),
    ),
    "windows and rows": (
        Option(
            "--rows",
            "output.rows",
            "windows|documents",
            "content of rows: ids (windows), or the text of a file, for trainers that tokenize themselves (documents)",
        ),
        Option(
            "--control-spellings",
            "output.control_spellings",
            "respell|drop|keep",
            "with --rows documents, treatment of text that a trainer's tokenizer would turn into a control token, such "
            "as <|endoftext|>: insert a space and record its position (respell), drop the file (drop), or keep the "
            "text (keep)",
        ),
        Option("--window", "window.length", "N", "maximum number of ids per window, special tokens included", int),
        Option(
            "--overlap",
            "window.overlap",
            "N",
            "number of content tokens that two consecutive windows of a file share",
            int,
            default="half of --window with --preset mlm; 0 with other presets, or if rows are packed",
        ),
        Option(
            "--tail",
            "window.tail",
            "keep|shift|drop",
            "treatment of a file's last window, which is often short: leave it short (keep), move its start back until "
            "it has full length (shift), or drop it if it has fewer than 32 new tokens (drop)",
        ),
        Option(
            "--pack",
            "window.pack",
            "none|best-fit|repo",
            "packing of rows: fill each row with windows of several files (best-fit), concatenate the files of a "
            "repository, with the tokenizer's markers (repo), or put one window into each row (none)",
            default="none with --preset mlm, otherwise best-fit",
        ),
        Option(
            "--repo-order",
            "window.repo_order",
            "path|imports|shuffle",
            "with --pack repo, order of a repository's files: by path (path), each file after the files that it "
            "imports (imports), or random (shuffle)",
        ),
        Option(
            "--repo-order-seed",
            "window.repo_order_seed",
            "N",
            "with --repo-order shuffle, seed of the order; use a different seed for each epoch",
            int,
        ),
        Option(
            "--special-tokens",
            "window.special_tokens",
            "template|documents",
            "special tokens: the tokenizer's template around every window (template), or its begin token at the start "
            "of every window and an end token at the end of each document (documents)",
            default="template with --preset mlm, otherwise documents",
        ),
        Option(
            "--end-token",
            "window.end_token",
            "NAME|none",
            "token after each document, in rows with --special-tokens documents and in token streams",
            default="the token that the tokenizer's model family uses, like <|endoftext|>",
        ),
        Option(
            "--format",
            "output.formats",
            "NAME",
            f"format to write, one or several of {', '.join(FORMATS)}; all have the same rows (default: jsonl)",
            is_repeatable=True,
        ),
        Option("--pad", "output.pad", None, "pad rows to the window length and add the column attention_mask"),
        Option("--with-text", "output.with_text", None, "add each window's text to its row"),
        Option(
            "--compress",
            "output.compress",
            "none|zstd",
            "compression of JSONL: zstd writes .jsonl.zst files, from which single rows can be read",
        ),
    ),
    "sampling": (
        Option(
            "--max-windows",
            "sampling.max_windows",
            "N",
            "maximum total number of windows in all splits, without variants; if there are more, each group of "
            "files is sampled in proportion to its windows",
            int,
            default="all windows",
        ),
        Option(
            "--weights",
            "sampling.preset",
            "code",
            "predefined weights: source code 2, tests 1, docs and data 0.5",
            default="none",
        ),
        Option(
            "--weight",
            "sampling.weights",
            "WHAT=N",
            "draw windows of matching files N times as often as windows of weight 1; WHAT is a pattern like 'src/**', "
            "language:rust, folder:tests, repo:NAME, or a group of the preset like code:tests; if several match a "
            "file, the last one determines its weight",
            is_repeatable=True,
        ),
        Option(
            "--target-windows",
            "sampling.target_windows",
            "N",
            "number of windows in train, including repeats but not variants",
            int,
            default="each window once",
        ),
        Option(
            "--max-epochs",
            "sampling.max_epochs",
            "N",
            "maximum number of times that a window is in train; if a group of files reaches this limit, other groups "
            "supply the missing windows",
            int,
        ),
        Option(
            "--weights-only",
            "sampling.weights_only",
            None,
            "write the weight of each row, for a trainer that samples rows, instead of drawing windows by weight",
        ),
        Option("--sample-seed", "sampling.seed", "N", "seed that decides which windows are drawn", int),
    ),
    "fill-in-the-middle, for causal models (syntax middles need gristmill[variants])": (
        Option(
            "--fim",
            "fim.rate",
            "RATE",
            "share of train's documents whose windows are rewritten as prefix, suffix and middle; held-out files are "
            "not rewritten",
            float,
            default="0.5 with --preset fim, otherwise 0",
        ),
        Option(
            "--fim-spm",
            "fim.spm",
            "SHARE",
            "share of rewritten windows with the suffix first (SPM); the other windows have the prefix first (PSM)",
            float,
            default="the share that the tokenizer's model family was trained with",
        ),
        Option(
            "--fim-middles",
            "fim.middles",
            "KIND[=SHARE]",
            "kinds of middles, separated by commas: syntax (a node of the syntax tree), lines (complete lines), "
            "characters (between two random positions); default: "
            f"{', '.join(f'{kind}={share:g}' for kind, share in MIDDLES.items())}",
            is_repeatable=True,
        ),
        Option(
            "--fim-max-middle",
            "fim.max_middle",
            "N",
            "maximum number of tokens in a middle",
            int,
            default="half of --window",
        ),
        Option(
            "--fim-seed",
            "fim.seed",
            "N",
            "seed that decides which documents are rewritten, and where their windows are divided",
            int,
        ),
    ),
    f"variants of train files, added to train (all but {WITHOUT_GRAMMAR} need gristmill[variants])": (
        Option(
            "--variants",
            "variants.rates",
            "KIND[=RATE]",
            f"kinds of variants, separated by commas: {VARIANT_KINDS}; RATE is the share of train files that get a "
            "variant (default: 0.5)",
            is_repeatable=True,
        ),
        Option(
            "--variant-seed",
            "variants.seed",
            "N",
            "seed that decides which files get variants, and how the variants differ from the files",
            int,
        ),
        Option(
            "--rewrite-endpoint",
            "rewrite.endpoint",
            "URL",
            "OpenAI-compatible endpoint of the language model that writes rewrite variants, like "
            "http://localhost:8000/v1; the API key is read from GRISTMILL_REWRITE_KEY",
            default="none",
        ),
        Option(
            "--rewrite-model",
            "rewrite.model",
            "NAME",
            "name of the model at the endpoint",
            default="the first model listed",
        ),
        Option(
            "--rewrite-concurrency",
            "rewrite.concurrency",
            "N",
            "maximum number of concurrent requests to the endpoint",
            int,
        ),
        Option(
            "--rewrite-timeout",
            "rewrite.timeout_seconds",
            "SECONDS",
            "time limit for a complete answer of the model",
            float,
        ),
        Option(
            "--rewrite-retries", "rewrite.retries", "N", "number of retries of a request after a transient error", int
        ),
        Option(
            "--rewrite-max-tokens",
            "rewrite.max_tokens",
            "N",
            "maximum number of tokens in an answer of the model",
            int,
            default="twice the number of tokens in the text, estimated as one per three bytes, but at least 4,096",
        ),
        Option(
            "--rewrite-context",
            "rewrite.context_tokens",
            "N",
            "context length of the model in tokens, for prompt and answer together; a text is not sent if its prompt "
            "leaves no room for an answer as long as the text",
            int,
            default="all texts are sent",
        ),
    ),
    "splits": (
        Option("--split", "split.shares", "A/B/C", "percentages of the tokens for train/validation/test"),
        Option(
            "--splits",
            "split.previous",
            "FILE",
            "keep files in the splits that this files.jsonl records",
            default="files.jsonl in --out, if it exists",
        ),
        Option("--fresh-splits", "split.fresh", None, "assign new splits instead of keeping those of an earlier build"),
        Option(
            "--seed",
            "split.seed",
            "N",
            "seed that decides the split of each file; to draw different windows, use --sample-seed",
            int,
        ),
        Option(
            "--split-by",
            "split.by",
            "file|directory|repo",
            "unit that is never divided between splits: a file, all files of a directory, or all files of a source or "
            "of a repository that table rows name (repo); near-duplicates that the build finds are always in the same "
            "split",
        ),
        Option(
            "--decontaminate",
            "split.decontaminate",
            "cut|drop|train|off",
            "treatment of spans of 50 or more tokens that train shares with a held-out file: cut them out of the "
            "held-out file (cut), drop the held-out windows that contain part of a span (drop), cut them out of train "
            "(train), or keep them (off)",
        ),
        Option(
            "--decontaminate-against",
            "split.against",
            "FILE",
            "cut spans of 50 or more tokens out of train if they are in this benchmark file (JSONL, Parquet or text)",
            is_repeatable=True,
        ),
    ),
    "cleaning (rules and their limits are set in the configuration file)": (
        Option(
            "--near-duplicates",
            "duplicates.near",
            "drop|group|keep",
            "treatment of near-duplicates, which are files with a similarity of 0.7 or more (Jaccard index of "
            "5-grams): drop all but one (drop), keep them in the same split (group), or do not search for them (keep)",
        ),
        Option(
            "--secrets",
            "secrets.action",
            "redact|drop|keep",
            "treatment of keys, tokens and passwords: replace them with placeholders (redact), drop the file (drop), "
            "or do not search for them (keep)",
        ),
        Option("--redact-emails", "secrets.emails", None, "treat e-mail addresses as secrets"),
        Option(
            "--license-allow",
            "licenses.allow",
            "IDS",
            "keep only files with these SPDX licenses, like 'MIT,Apache-2.0'",
            is_repeatable=True,
        ),
    ),
    "selection of files": (
        Option(
            "--include",
            "scan.include",
            "GLOB",
            "read only files that match this .gitignore pattern",
            is_repeatable=True,
        ),
        Option(
            "--exclude",
            "scan.exclude",
            "GLOB",
            "leave out files that match this .gitignore pattern; '!GLOB' brings back files that are excluded "
            "by default",
            is_repeatable=True,
        ),
        Option(
            "--language",
            "scan.languages",
            "NAME",
            "read only files in this language, like 'python'",
            is_repeatable=True,
        ),
        Option(
            "--max-file-bytes",
            "scan.max_file_bytes",
            "N",
            "maximum size of a file in bytes; larger files are dropped",
            int,
        ),
    ),
    "tables as sources (Parquet and JSONL)": (
        Option("--text-column", "tables.text_column", "NAME", "column with the text", default="content, text, …"),
        Option("--path-column", "tables.path_column", "NAME", "column with the path", default="path, …"),
        Option("--repo-column", "tables.repo_column", "NAME", "column with the repository", default="repo_name, …"),
        Option("--license-column", "tables.license_column", "NAME", "column with the license", default="license, …"),
    ),
    "execution": (
        Option(
            "--runner",
            "run.runner",
            "local|ray",
            "workers: processes on this machine (local), or workers of a Ray cluster (ray); does not change the result",
        ),
        Option(
            "--ray-address",
            "run.ray_address",
            "ADDRESS",
            "with --runner ray, address of the cluster's head, like 10.0.0.1:6379, or 'auto' for the cluster that this "
            "machine belongs to",
            default="a new cluster on this machine",
        ),
        Option("--workers", "run.workers", "auto|N", "number of worker processes; does not change the result"),
        Option(
            "--device",
            "run.device",
            "cpu|cuda",
            "device for tokenizing: the CPU in each worker (cpu), or one NVIDIA GPU for all workers (cuda, needs "
            "gristmill[gpu]); with cuda, the result is the same, and a build is less than 10%% faster",
        ),
        Option(
            "--batch-bytes",
            "run.batch_bytes",
            "N",
            "maximum number of bytes of source files that a worker processes at a time",
            int,
        ),
        Option(
            "--cache-bytes",
            "run.cache_bytes",
            "N",
            "maximum size in bytes of the cache in DIR.work, with which the next build processes only changed files; 0 "
            "disables the cache",
            int,
        ),
        Option(
            "--skip-failed",
            "run.skip_failed",
            None,
            "drop a file that cannot be read, or on which a worker dies or hangs, instead of stopping the build",
        ),
        Option(
            "--task-seconds",
            "run.task_seconds",
            "N",
            "time limit for a batch of files, in seconds; a worker that takes longer is considered hung, and a new "
            "worker retries the batch",
            int,
        ),
        Option(
            "--max-expansion",
            "run.max_expansion",
            "N",
            "maximum size of an unpacked table, as a multiple of its packed size",
            int,
        ),
    ),
}


NO_REPLACEMENTS: Mapping[str, Option] = {}


def all_options() -> list[Option]:
    """Return all options of `build`, without their groups."""
    return [option for group in BUILD_OPTIONS.values() for option in group]


def add_options(parser: argparse.ArgumentParser, replacements: Mapping[str, Option] = NO_REPLACEMENTS) -> None:
    """Add the build options to a parser. An option in `replacements`, keyed by setting, replaces the build option."""
    for title, options in BUILD_OPTIONS.items():
        group = parser.add_argument_group(title)
        for build_option in options:
            option = replacements.get(build_option.setting, build_option)
            if option.metavar is None:
                group.add_argument(option.flag, dest=option.setting, action="store_const", const=True, help=option.help)
                continue
            default = option.default or (
                None if option.is_repeatable or option.setting == "out" else _default_text(default_of(option.setting))
            )
            suffix = "; repeatable" if option.is_repeatable else f" (default: {default})" if default is not None else ""
            group.add_argument(
                option.flag,
                dest=option.setting,
                metavar=option.metavar,
                type=option.kind,
                choices=choices_of(option.setting) if option.kind is str else None,
                action="append" if option.is_repeatable else "store",
                help=option.help + suffix,
            )


def _default_text(default: Any) -> Any:
    return f"{default:g}" if isinstance(default, float) else default


def build_command(values: dict[str, Any], toml: Path | None) -> str:
    """Return the command that builds with these settings."""
    sources = list(values.get("sources", ()))
    needs_dashes = any(source.startswith("-") for source in sources)
    words = ["gristmill", "build", *(() if needs_dashes else sources)]
    words += _option_words("--config", toml) if toml is not None else []
    for option in all_options():
        value = values.get(option.setting)
        value = [f"{what}={number:.12g}" for what, number in value.items()] if isinstance(value, dict) else value
        for one in value if option.is_repeatable and value else [value]:
            if one is not None and option.metavar is None:
                words.append(option.flag)
            elif one is not None:
                words += _option_words(option.flag, one)
    words += ["--", *sources] if needs_dashes else []
    return " ".join(shell_quote(word) for word in words)


def _option_words(flag: str, value: object) -> list[str]:
    return [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
