"""The options of `build` and `plan`, in one table, each with the setting it means; and the way back to a command."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.config.config import choices_of, default_of
from gristmill.config.settings import MIDDLES, REWRITE_WAYS
from gristmill.core.names import shell_word
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import VARIANTS, VariantKind


class Option(NamedTuple):
    """One option of a command: the setting it stands for, and what its help says. Defaults: config.settings."""

    flag: str
    setting: str
    metavar: str | None
    """None: a switch without a value."""
    text: str
    kind: type = str
    repeats: bool = False
    default: str | None = None
    """Told in the help where the setting's own default is None."""


def _variant_kinds() -> str:
    ways = f" (or by its way: {', '.join(way for way in REWRITE_WAYS if '_' not in way)})"
    *most, last = [f"{kind}{ways if kind is VariantKind.REWRITE else ''}" for kind in VARIANTS]
    return f"{', '.join(most)} or {last}"


VARIANT_KINDS = _variant_kinds()
WITHOUT_GRAMMAR = " and ".join(kind for kind, one in VARIANTS.items() if not one.needs_grammar)

BUILD_OPTIONS: dict[str, tuple[Option, ...]] = {
    "what and where": (
        Option("--out", "out", "DIR", "the dataset folder to make, or a new prefix like s3://bucket/dataset"),
        Option(
            "--tokenizer",
            "tokenizer.name",
            "NAME",
            "'codebert', which is in the package, a tokenizer.json, a folder with one, or a Hub id like 'org/name' or "
            "'org/name@revision'",
        ),
        Option(
            "--cache-dir",
            "tokenizer.cache_dir",
            "DIR",
            "where tokenizers from the Hub are kept",
            default="the Hugging Face cache",
        ),
        Option(
            "--preset",
            "preset",
            "mlm|causal|fim",
            "what the rows are for: masked models, causal models, or causal models that fill in the middle; decides "
            "--overlap, --pack, --special-tokens and --fim where they are not given",
            default="fim with --fim; else mlm if the tokenizer has a mask token, or causal",
        ),
    ),
    "windows and rows": (
        Option(
            "--rows",
            "output.rows",
            "windows|documents",
            "windows of ids, or each file's text as one row, for trainers that tokenize themselves",
        ),
        Option(
            "--control-spellings",
            "output.control_spellings",
            "respell|drop|keep",
            "with --rows documents, for a text that spells a control token like <|endoftext|>: insert a blank and "
            "record where (respell), drop the file, or keep the text",
        ),
        Option("--window", "window.length", "N", "ids per window, special tokens included", int),
        Option(
            "--overlap",
            "window.overlap",
            "N",
            "content tokens that neighbouring windows share",
            int,
            default="half of --window with --preset mlm; 0 with --pack and other presets",
        ),
        Option(
            "--tail",
            "window.tail",
            "keep|shift|drop",
            "a file's last window: keep it short, shift it back to full length, or drop it if it brings fewer than 32 "
            "new tokens",
        ),
        Option(
            "--pack",
            "window.pack",
            "none|best-fit|repo",
            "for causal training: fill each row with windows of several files (best-fit), or lay a repository's files "
            "one after the other, with the tokenizer's own markers (repo)",
            default="none with --preset mlm, else best-fit",
        ),
        Option(
            "--repo-order",
            "window.repo_order",
            "path|imports|shuffle",
            "with --pack repo, order a repository's files by path, each file after the files it imports, or shuffled",
        ),
        Option(
            "--repo-order-seed",
            "window.repo_order_seed",
            "N",
            "with --repo-order shuffle: another seed, another order, for instance one per epoch",
            int,
        ),
        Option(
            "--special-tokens",
            "window.special_tokens",
            "template|documents",
            "the tokenizer's template around every window (template), or its begin token before every window and an "
            "end token after each document (documents)",
            default="template with --preset mlm, else documents",
        ),
        Option(
            "--end-token",
            "window.end_token",
            "NAME|none",
            "the token after each document, in rows with --special-tokens documents and in token streams",
            default="by the model's family, like <|endoftext|>",
        ),
        Option(
            "--format",
            "output.formats",
            "NAME",
            f"one or several of {', '.join(FORMATS)}: the same rows in each (default: jsonl)",
            repeats=True,
        ),
        Option("--pad", "output.pad", None, "pad rows to the window length and add attention_mask"),
        Option("--with-text", "output.with_text", None, "add each window's text to its row"),
        Option("--compress", "output.compress", "none|zstd", "zstd: write .jsonl.zst, still readable row by row"),
    ),
    "how many windows": (
        Option(
            "--max-windows",
            "sampling.max_windows",
            "N",
            "at most so many in all splits together, a sample in proportion, group by group; variants come on top",
            int,
            default="all there are",
        ),
        Option(
            "--weights",
            "sampling.preset",
            "code",
            "weights by what a file is for: source 2, tests 1, docs and data 0.5",
            default="none",
        ),
        Option(
            "--weight",
            "sampling.weights",
            "WHAT=N",
            "its windows are drawn N times as often as those of weight 1: a pattern like 'src/**', language:rust, "
            "folder:tests, repo:NAME, or a group of the preset like code:tests; the last that matches counts",
            repeats=True,
        ),
        Option(
            "--target-windows",
            "sampling.target_windows",
            "N",
            "windows in train, repeats included; variants come on top",
            int,
            default="as many as there are",
        ),
        Option(
            "--max-epochs",
            "sampling.max_epochs",
            "N",
            "how often a window may be in train, at most; what a small group cannot give, the others do",
            int,
        ),
        Option(
            "--weights-only", "sampling.weights_only", None, "write each row's weight instead of drawing by weights"
        ),
        Option("--sample-seed", "sampling.seed", "N", "decides which windows are drawn", int),
    ),
    "fill in the middle, for causal models (middles by syntax need gristmill[variants])": (
        Option(
            "--fim",
            "fim.rate",
            "RATE",
            "rewrite this share of train's documents as prefix, suffix and middle, window by window; held-out files "
            "stay plain",
            float,
            default="0.5 with --preset fim, else 0",
        ),
        Option(
            "--fim-spm",
            "fim.spm",
            "SHARE",
            "share of the rewritten windows with the suffix first (SPM); in the others the prefix is first (PSM)",
            float,
            default="as the model's family was trained",
        ),
        Option(
            "--fim-middles",
            "fim.middles",
            "SORT[=SHARE]",
            f"{', '.join(MIDDLES)}, separated by commas: the middle is a node of the syntax tree, whole lines, or any "
            f"characters (default: {', '.join(f'{sort}={share:g}' for sort, share in MIDDLES.items())})",
            repeats=True,
        ),
        Option("--fim-max-middle", "fim.max_middle", "N", "longest middle (tokens)", int, default="half of the window"),
        Option("--fim-seed", "fim.seed", "N", "decides which documents are rewritten, and where they are cut", int),
    ),
    f"real variations of train files, beside them (all but {WITHOUT_GRAMMAR} need gristmill[variants])": (
        Option(
            "--variants",
            "variants.rates",
            "KIND[=RATE]",
            f"{VARIANT_KINDS}, several with commas; RATE is the share of the files, 0.5 unless it is said",
            repeats=True,
        ),
        Option("--variant-seed", "variants.seed", "N", "decides which files, and what becomes of them", int),
        Option(
            "--rewrite-endpoint",
            "rewrite.endpoint",
            "URL",
            "the OpenAI-compatible endpoint of the language model that rewrites, like http://localhost:8000/v1; a key "
            "is taken from GRISTMILL_REWRITE_KEY",
            default="none",
        ),
        Option("--rewrite-model", "rewrite.model", "NAME", "the model's name there", default="the first that it names"),
        Option("--rewrite-concurrency", "rewrite.concurrency", "N", "requests at once", int),
        Option("--rewrite-timeout", "rewrite.timeout_seconds", "SECONDS", "for the whole of an answer", float),
        Option("--rewrite-retries", "rewrite.retries", "N", "after an error that may pass", int),
        Option(
            "--rewrite-max-tokens",
            "rewrite.max_tokens",
            "N",
            "of an answer, at most; a token is counted as three bytes",
            int,
            default="twice those of the text, 4,096 at least",
        ),
        Option(
            "--rewrite-context",
            "rewrite.context_tokens",
            "N",
            "tokens that the model takes, question and answer together: a text that does not fit is not sent",
            int,
            default="all are sent",
        ),
    ),
    "splits": (
        Option("--split", "split.shares", "A/B/C", "percent of the tokens for train/validation/test"),
        Option(
            "--splits",
            "split.previous",
            "FILE",
            "keep files in the split they have in this files.jsonl",
            default="the one in --out, if any",
        ),
        Option("--fresh-splits", "split.fresh", None, "split anew, whatever an earlier build did"),
        Option("--seed", "split.seed", "N", "decides which file goes where (not what is drawn: --sample-seed)", int),
        Option(
            "--split-by",
            "split.by",
            "file|directory|repo",
            "what is never torn apart: near-duplicates in any case, and a file, a folder's files or a whole source",
        ),
        Option(
            "--decontaminate",
            "split.decontaminate",
            "cut|drop|train|off",
            "spans of 50 tokens and more that train and a held-out file share: cut them out of the held-out file, drop "
            "the held-out windows that touch one, cut them out of train instead, or leave them",
        ),
        Option(
            "--decontaminate-against",
            "split.against",
            "FILE",
            "remove from train the spans of 50 tokens and more that this benchmark (JSONL, Parquet or text) has too",
            repeats=True,
        ),
    ),
    "cleaning (rules and their limits: see the configuration file)": (
        Option(
            "--near-duplicates",
            "duplicates.near",
            "drop|group|keep",
            "files that share 0.7 or more of their 5-grams: keep one, keep all in one split, or do not look",
        ),
        Option(
            "--secrets",
            "secrets.action",
            "redact|drop|keep",
            "keys, tokens and passwords: put a placeholder in their place, drop the file, or do not look",
        ),
        Option("--redact-emails", "secrets.emails", None, "e-mail addresses count as secrets too"),
        Option(
            "--license-allow",
            "licenses.allow",
            "IDS",
            "take only files under these SPDX licences, like 'MIT,Apache-2.0'",
            repeats=True,
        ),
    ),
    "which files": (
        Option("--include", "scan.include", "GLOB", "take only files that match, as in a .gitignore", repeats=True),
        Option(
            "--exclude",
            "scan.exclude",
            "GLOB",
            "leave out files that match; '!GLOB' brings back what is left out by default",
            repeats=True,
        ),
        Option("--language", "scan.languages", "NAME", "take only this language, like 'python'", repeats=True),
        Option("--max-file-bytes", "scan.max_file_bytes", "N", "leave out larger files", int),
    ),
    "tables as sources (Parquet and JSONL; columns are found by their usual names)": (
        Option("--text-column", "tables.text_column", "NAME", "the column with the text", default="content, text, …"),
        Option("--path-column", "tables.path_column", "NAME", "the column with the path", default="path, …"),
        Option("--repo-column", "tables.repo_column", "NAME", "the column with the repository", default="repo_name, …"),
        Option(
            "--license-column", "tables.license_column", "NAME", "the column with the licence", default="license, …"
        ),
    ),
    "running": (
        Option("--runner", "run.runner", "local|ray", "processes here, or workers of a Ray cluster; the same result"),
        Option(
            "--ray-address",
            "run.ray_address",
            "ADDRESS",
            "the head of the cluster, like 10.0.0.1:6379, or 'auto'",
            default="a cluster started here",
        ),
        Option("--workers", "run.workers", "auto|N", "processes to use; never changes the result"),
        Option(
            "--device",
            "run.device",
            "cpu|cuda",
            "what tokenizes: the workers, or an NVIDIA GPU for all of them (needs gristmill[gpu]); the same result, "
            "and less than 10%% faster",
        ),
        Option("--batch-bytes", "run.batch_bytes", "N", "source bytes that a worker takes at a time", int),
        Option(
            "--cache-bytes",
            "run.cache_bytes",
            "N",
            "what may stay in DIR.work, for the next build to do only what has changed; 0: nothing",
            int,
        ),
        Option(
            "--skip-failed",
            "run.skip_failed",
            None,
            "drop a file that cannot be read, or over which a worker dies or hangs, instead of ending the build",
        ),
        Option("--task-seconds", "run.task_seconds", "N", "after so long at one batch a worker counts as hung", int),
        Option("--max-expansion", "run.max_expansion", "N", "a table may unpack to N times its own size", int),
    ),
}


NOTHING_ELSE: Mapping[str, Option] = {}


def all_options() -> list[Option]:
    return [option for group in BUILD_OPTIONS.values() for option in group]


def add_options(parser: argparse.ArgumentParser, instead: Mapping[str, Option] = NOTHING_ELSE) -> None:
    """`instead`: by setting, options that mean something else to a command."""
    for title, options in BUILD_OPTIONS.items():
        group = parser.add_argument_group(title)
        for build_option in options:
            option = instead.get(build_option.setting, build_option)
            if option.metavar is None:
                group.add_argument(option.flag, dest=option.setting, action="store_const", const=True, help=option.text)
                continue
            default = option.default or (
                None if option.repeats or option.setting == "out" else _told(default_of(option.setting))
            )
            told = "; repeatable" if option.repeats else f" (default: {default})" if default is not None else ""
            group.add_argument(
                option.flag,
                dest=option.setting,
                metavar=option.metavar,
                type=option.kind,
                choices=choices_of(option.setting) if option.kind is str else None,
                action="append" if option.repeats else "store",
                help=option.text + told,
            )


def _told(default: Any) -> Any:
    return f"{default:g}" if isinstance(default, float) else default


def build_line(values: dict[str, Any], toml: Path | None) -> str:
    """The command that builds with these settings."""
    sources = list(values.get("sources", ()))
    needs_dashes = any(source.startswith("-") for source in sources)
    words = ["gristmill", "build", *(() if needs_dashes else sources)]
    words += _option_words("--config", toml) if toml is not None else []
    for option in all_options():
        value = values.get(option.setting)
        value = [f"{what}={number:.12g}" for what, number in value.items()] if isinstance(value, dict) else value
        for one in value if option.repeats and value else [value]:
            if one is not None and option.metavar is None:
                words.append(option.flag)
            elif one is not None:
                words += _option_words(option.flag, one)
    words += ["--", *sources] if needs_dashes else []
    return " ".join(shell_word(word) for word in words)


def _option_words(flag: str, value: object) -> list[str]:
    return [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
