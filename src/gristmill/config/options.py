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
    """One option of a command: its setting and help text. Its default is that of the setting (config.settings)."""

    flag: str
    setting: str
    metavar: str | None
    """Placeholder for the value. None for a switch without a value."""
    help: str
    kind: type = str
    is_repeatable: bool = False
    default: str | None = None
    """Default in the help text, if the setting's own default is None."""


def _variant_kinds() -> str:
    ways = f" (or its way, {', '.join(way for way in REWRITE_WAYS if '_' not in way)})"
    *most, last = [f"{kind}{ways if kind is VariantKind.REWRITE else ''}" for kind in VARIANTS]
    return f"{', '.join(most)} or {last}"


VARIANT_KINDS = _variant_kinds()
WITHOUT_GRAMMAR = " and ".join(kind for kind, one in VARIANTS.items() if not one.needs_grammar)

BUILD_OPTIONS: dict[str, tuple[Option, ...]] = {
    "output and tokenizer": (
        Option("--out", "out", "DIR", "dataset folder to write, or a new prefix like s3://bucket/dataset"),
        Option(
            "--tokenizer",
            "tokenizer.name",
            "NAME",
            "'codebert', which is included in the package, a tokenizer.json, a folder with one, or a Hub id like "
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
            "purpose of the rows: masked models, causal models, or causal models that fill in the middle; sets the "
            "defaults of --overlap, --pack, --special-tokens and --fim",
            default="fim with --fim; otherwise mlm if the tokenizer has a mask token, and causal if not",
        ),
    ),
    "windows and rows": (
        Option(
            "--rows",
            "output.rows",
            "windows|documents",
            "content of rows: windows of ids, or the text of a file, for trainers that tokenize themselves",
        ),
        Option(
            "--control-spellings",
            "output.control_spellings",
            "respell|drop|keep",
            "with --rows documents, treatment of text that looks like a control token, such as <|endoftext|>: insert a "
            "space and record where (respell), drop the file, or keep the text",
        ),
        Option("--window", "window.length", "N", "maximum number of ids per window, special tokens included", int),
        Option(
            "--overlap",
            "window.overlap",
            "N",
            "number of content tokens that consecutive windows of a file share",
            int,
            default="half of --window with --preset mlm; 0 with --pack or other presets",
        ),
        Option(
            "--tail",
            "window.tail",
            "keep|shift|drop",
            "treatment of a file's last window: keep it short, shift it back to full length, or drop it if it has "
            "fewer than 32 new tokens",
        ),
        Option(
            "--pack",
            "window.pack",
            "none|best-fit|repo",
            "for causal training: fill each row with windows of several files (best-fit), or put a repository's files "
            "one after another, with the tokenizer's markers (repo)",
            default="none with --preset mlm, otherwise best-fit",
        ),
        Option(
            "--repo-order",
            "window.repo_order",
            "path|imports|shuffle",
            "with --pack repo, order of a repository's files: by path, each file after those it imports, or shuffled",
        ),
        Option(
            "--repo-order-seed",
            "window.repo_order_seed",
            "N",
            "with --repo-order shuffle, seed of the order, for example a different one for each epoch",
            int,
        ),
        Option(
            "--special-tokens",
            "window.special_tokens",
            "template|documents",
            "special tokens: the tokenizer's template around every window (template), or its begin token before every "
            "window and an end token after each document (documents)",
            default="template with --preset mlm, otherwise documents",
        ),
        Option(
            "--end-token",
            "window.end_token",
            "NAME|none",
            "token after each document, in rows with --special-tokens documents and in token streams",
            default="that of the model's family, like <|endoftext|>",
        ),
        Option(
            "--format",
            "output.formats",
            "NAME",
            f"format to write, one or several of {', '.join(FORMATS)}; each has the same rows (default: jsonl)",
            is_repeatable=True,
        ),
        Option("--pad", "output.pad", None, "pad rows to the window length and add the column attention_mask"),
        Option("--with-text", "output.with_text", None, "add each window's text to its row"),
        Option(
            "--compress",
            "output.compress",
            "none|zstd",
            "compression of JSONL: zstd writes .jsonl.zst, which can be read row by row",
        ),
    ),
    "sampling": (
        Option(
            "--max-windows",
            "sampling.max_windows",
            "N",
            "maximum number of windows in all splits together, without variants; a proportional sample of each group",
            int,
            default="all windows",
        ),
        Option(
            "--weights",
            "sampling.preset",
            "code",
            "predefined weights: source 2, tests 1, docs and data 0.5",
            default="none",
        ),
        Option(
            "--weight",
            "sampling.weights",
            "WHAT=N",
            "draw windows of matching files N times as often as those of weight 1; WHAT is a pattern like 'src/**', "
            "language:rust, folder:tests, repo:NAME, or a group of the preset like code:tests; the last match counts",
            is_repeatable=True,
        ),
        Option(
            "--target-windows",
            "sampling.target_windows",
            "N",
            "number of windows in train, with repeats and without variants",
            int,
            default="each window once",
        ),
        Option(
            "--max-epochs",
            "sampling.max_epochs",
            "N",
            "maximum number of times that a window is in train; other groups make up for a group that is too small",
            int,
        ),
        Option(
            "--weights-only",
            "sampling.weights_only",
            None,
            "write each row's weight instead of drawing windows by weight",
        ),
        Option("--sample-seed", "sampling.seed", "N", "seed that decides which windows are drawn", int),
    ),
    "fill in the middle, for causal models (middles by syntax need gristmill[variants])": (
        Option(
            "--fim",
            "fim.rate",
            "RATE",
            "share of train's documents to rewrite as prefix, suffix and middle, window by window; held-out files are "
            "not rewritten",
            float,
            default="0.5 with --preset fim, otherwise 0",
        ),
        Option(
            "--fim-spm",
            "fim.spm",
            "SHARE",
            "share of rewritten windows with the suffix first (SPM); in the others the prefix is first (PSM)",
            float,
            default="the share that the model's family was trained with",
        ),
        Option(
            "--fim-middles",
            "fim.middles",
            "KIND[=SHARE]",
            f"kinds of middles, separated by commas: {', '.join(MIDDLES)}; a node of the syntax tree, complete lines, "
            f"or any characters (default: {', '.join(f'{kind}={share:g}' for kind, share in MIDDLES.items())})",
            is_repeatable=True,
        ),
        Option(
            "--fim-max-middle",
            "fim.max_middle",
            "N",
            "maximum number of tokens in a middle",
            int,
            default="half of the window",
        ),
        Option("--fim-seed", "fim.seed", "N", "seed that decides which documents are rewritten, and where", int),
    ),
    f"variants of train files, added to train (all but {WITHOUT_GRAMMAR} need gristmill[variants])": (
        Option(
            "--variants",
            "variants.rates",
            "KIND[=RATE]",
            f"{VARIANT_KINDS}, separated by commas; RATE is the share of train files, 0.5 if it is not given",
            is_repeatable=True,
        ),
        Option(
            "--variant-seed",
            "variants.seed",
            "N",
            "seed that decides which files get variants, and how they are changed",
            int,
        ),
        Option(
            "--rewrite-endpoint",
            "rewrite.endpoint",
            "URL",
            "OpenAI-compatible endpoint of the language model that rewrites, like http://localhost:8000/v1; its key is "
            "read from GRISTMILL_REWRITE_KEY",
            default="none",
        ),
        Option("--rewrite-model", "rewrite.model", "NAME", "name of the model", default="the first one listed"),
        Option("--rewrite-concurrency", "rewrite.concurrency", "N", "maximum number of concurrent requests", int),
        Option("--rewrite-timeout", "rewrite.timeout_seconds", "SECONDS", "time limit for a complete answer", float),
        Option("--rewrite-retries", "rewrite.retries", "N", "number of retries after a transient error", int),
        Option(
            "--rewrite-max-tokens",
            "rewrite.max_tokens",
            "N",
            "maximum number of tokens in an answer, where three bytes count as a token",
            int,
            default="twice the tokens of the text, at least 4,096",
        ),
        Option(
            "--rewrite-context",
            "rewrite.context_tokens",
            "N",
            "context length of the model in tokens, for question and answer; a text that does not fit is not sent",
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
            "keep files in the split they have in this files.jsonl",
            default="the one in --out, if it exists",
        ),
        Option("--fresh-splits", "split.fresh", None, "ignore the splits of an earlier build"),
        Option(
            "--seed",
            "split.seed",
            "N",
            "seed that decides the split of each file (windows are drawn with --sample-seed)",
            int,
        ),
        Option(
            "--split-by",
            "split.by",
            "file|directory|repo",
            "unit that is never divided between splits: a file, the files of a folder, or a source; near-duplicates "
            "are not divided either",
        ),
        Option(
            "--decontaminate",
            "split.decontaminate",
            "cut|drop|train|off",
            "treatment of spans of 50 or more tokens that train shares with a held-out file: cut them out of the "
            "held-out file, drop the held-out windows that touch one, cut them out of train, or keep them (off)",
        ),
        Option(
            "--decontaminate-against",
            "split.against",
            "FILE",
            "cut spans of 50 or more tokens that are in this benchmark (JSONL, Parquet or text) out of train",
            is_repeatable=True,
        ),
    ),
    "cleaning (rules and their limits are set in the configuration file)": (
        Option(
            "--near-duplicates",
            "duplicates.near",
            "drop|group|keep",
            "treatment of files that share 0.7 or more of their 5-grams: drop all but one, keep them in one split "
            "(group), or keep them without a search",
        ),
        Option(
            "--secrets",
            "secrets.action",
            "redact|drop|keep",
            "treatment of keys, tokens and passwords: replace them with placeholders, drop the file, or do not search",
        ),
        Option("--redact-emails", "secrets.emails", None, "treat e-mail addresses as secrets"),
        Option(
            "--license-allow",
            "licenses.allow",
            "IDS",
            "read only files with these SPDX licenses, like 'MIT,Apache-2.0'",
            is_repeatable=True,
        ),
    ),
    "selection of files": (
        Option(
            "--include", "scan.include", "GLOB", "read only files that match, as in a .gitignore", is_repeatable=True
        ),
        Option(
            "--exclude",
            "scan.exclude",
            "GLOB",
            "leave out files that match; '!GLOB' brings back files that are excluded by default",
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
            "--max-file-bytes", "scan.max_file_bytes", "N", "maximum bytes in a file; larger files are dropped", int
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
            "worker processes on this machine, or workers of a Ray cluster; the result is the same",
        ),
        Option(
            "--ray-address",
            "run.ray_address",
            "ADDRESS",
            "address of the cluster's head, like 10.0.0.1:6379, or 'auto'",
            default="a cluster started on this machine",
        ),
        Option("--workers", "run.workers", "auto|N", "number of worker processes; does not change the result"),
        Option(
            "--device",
            "run.device",
            "cpu|cuda",
            "device for tokenizing: the CPU in each worker, or one NVIDIA GPU for all workers (needs gristmill[gpu]); "
            "the result is the same, and a build is less than 10%% faster",
        ),
        Option(
            "--batch-bytes",
            "run.batch_bytes",
            "N",
            "maximum bytes of source files that a worker processes at a time",
            int,
        ),
        Option(
            "--cache-bytes",
            "run.cache_bytes",
            "N",
            "maximum bytes of the cache in DIR.work, so that the next build processes only changes; 0 for no cache",
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
            "time limit for a batch; after that, its worker counts as hung",
            int,
        ),
        Option(
            "--max-expansion",
            "run.max_expansion",
            "N",
            "maximum size of an unpacked table, as a multiple of its own size",
            int,
        ),
    ),
}


NO_REPLACEMENTS: Mapping[str, Option] = {}


def all_options() -> list[Option]:
    """Return all options of `build`, without their groups."""
    return [option for group in BUILD_OPTIONS.values() for option in group]


def add_options(parser: argparse.ArgumentParser, replacements: Mapping[str, Option] = NO_REPLACEMENTS) -> None:
    """Add the options to a parser. `replacements` has options that replace others, keyed by setting."""
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
