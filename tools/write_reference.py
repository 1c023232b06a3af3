"""Write docs/reference.md from the code: settings, options, default excludes, drop reasons and files. See `make docs`.

python tools/write_reference.py            # writes the page
python tools/write_reference.py --check    # exits with code 1 if the committed page is out of date
"""

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import msgspec

from gristmill.cleaning import rules
from gristmill.cleaning.language_kinds import language_kinds
from gristmill.cleaning.secret_kinds import SECRET_RULES
from gristmill.cli import main as cli
from gristmill.config import config
from gristmill.config import settings as sections
from gristmill.config.options import all_options
from gristmill.core import errors, manifest
from gristmill.core.columns import COLUMNS, Column, When
from gristmill.core.output_formats import FORMATS, OutputFormat
from gristmill.core.records import VARIANTS, DropReason, WhyNoVariant
from gristmill.lab.bench import bench_result as bench_results
from gristmill.lab.bench.methods import METHODS
from gristmill.lab.bench.tokenizers import speeds as bench_speeds
from gristmill.lab.training import metrics as training_metrics
from gristmill.lab.training import run_folder as training_folder
from gristmill.lab.training import train_config as training_settings
from gristmill.lab.vocabulary import vocabulary as vocabulary_result
from gristmill.lab.vocabulary import vocabulary_text as vocabulary_table
from gristmill.planning import diff_result, plan_result
from gristmill.planning.diff_result import FILE_KINDS
from gristmill.publish import gates, push_result
from gristmill.sources.path_filter import DEFAULT_EXCLUDES
from gristmill.variants.grammars import GRAMMARS

TARGET = Path(__file__).parents[1] / "docs/reference.md"
COLUMN_HEAD = ("column", "when", "description")
FILES = {
    "train.jsonl, validation.jsonl, test.jsonl": "the rows of each split, one window per row, in path order. With "
    "`--compress zstd`, the names end with `.jsonl.zst`. A split larger than `output.shard_bytes` is divided into "
    "`train-00000-of-00012.jsonl` and so on. A split without windows has no file.",
    ", ".join(f"{one.folder}/" for one in FORMATS.values() if one.folder): "the same rows in a different format, from "
    "`--format` or `gristmill export`",
    "files.jsonl": "one row per file found, kept or dropped, with the reason for a drop",
    "check.json": "the result of the last `gristmill check`",
    "tokenizer.json, tokenizer_config.json": "the exact tokenizer, which `AutoTokenizer.from_pretrained(DIR)` reads",
    "README.md, croissant.json": "a description for people, the Hugging Face Hub and readers of Croissant 1.1. Both "
    "files are written from the manifest. The manifest does not list them",
    "manifest.json": "settings, versions, sources, counts and digests. This file is written last. Everything except "
    "`run` is the same for the same input",
}


FILES_COLUMNS = {
    "repo, path": "as in a row",
    "status": "`kept` or `dropped`",
    "split, group": "split and group of the file; for a duplicate or contaminated file, the split and group that the "
    "file would have. A rebuild keeps both",
    "language, encoding, bytes, lines": "language, encoding and size of the file as read; `lines` is the number of "
    "lines of the tokenized text",
    "tokens": "number of tokens of the complete file, after redaction and before any cut",
    "cut_tokens": "number of tokens of the file that are in no window because they also occur in another split or a "
    "benchmark",
    "windows": "number of rows of the file, without variants; with `--pack`, number of segments",
    "draw": "with a sample or weights, `[passes, extra]`: each window has `passes` rows, and `extra` windows have one "
    "more. Null if each window has one row",
    "left_tokens": "number of tokens of the file that are in no row because their windows were not drawn",
    "weight": "weight of the rows of the file with `--weights-only`, otherwise 1",
    "variants": "for each variant that the file was chosen for: `kind`, `seed`, `tokens`, `windows`, `own_windows` "
    "(indices of windows of the variant that have no row, because the file has the same window), `draw` and "
    "`text_sha256`; or `missing`, the reason why the variant does not exist",
    "sha256, text_sha256": "`sha256` is the digest of the file. It is null if secrets were redacted, because the "
    "digest could confirm a guess of a secret. `text_sha256` is the digest of the tokenized text, by which a "
    "rebuild recognizes a file",
    "license, license_from": "an SPDX id or expression, or `NOASSERTION`. `license_from` is `header`, or the path of "
    "the license file or package manifest, or, with `NOASSERTION`, the paths of the files from which no license could "
    "be determined",
    "moved_from": "the split of an earlier build, if the file (or the file kept instead of it) had to move to another "
    "split",
    "reason, detail": "why the file was dropped, and the measured value",
    "twin, similarity": "for a duplicate, the file that is kept, and the share of 5-grams that both have in common",
    "measures": "the value that each rule measured; null if the rule found nothing or is off",
    "redactions": "for each secret its kind, line, byte range (`start` and `end`, before redaction) and a short salted "
    "`hash`",
    "cuts": "`[start, end, shared with, first line, last line]` for each range of tokens that was cut",
}


def main() -> None:
    expected = "\n".join(page_lines()) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(expected, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != expected:
        sys.exit("docs/reference.md is out of date. Run `make docs`.")


def page_lines() -> Iterator[str]:
    yield "# Reference\n\n`make docs` writes this page from the code (`tools/write_reference.py`).\n"
    yield from setting_lines()
    yield from table_section(
        "A row", COLUMN_HEAD, [_column_row(one) for one in COLUMNS.values() if one.when is not When.PACK]
    )
    yield "The manifest lists the columns of a dataset under `columns`, in the order of a row.\n"
    packed = [_column_row(one) for one in COLUMNS.values() if not one.is_per_window]
    yield from table_section("A row with --pack", COLUMN_HEAD, packed)
    yield from table_section(
        "A dataset folder", ("file", "description"), [(f"`{name}`", text) for name, text in FILES.items()]
    )
    yield from table_section(
        "Formats", ("name", "folder", "needs", "description"), [*map(_format_row, FORMATS.values())]
    )
    yield from table_section(
        "files.jsonl", ("column", "description"), [(f"`{n}`", t) for n, t in FILES_COLUMNS.items()]
    )
    yield from record_section("The manifest", manifest, manifest.Manifest)
    yield from record_section("Output of plan --json", plan_result, plan_result.Plan)
    yield "The output also has `command`, the command line of the build. `sample` is null if all files were read.\n"
    yield from record_section("Output of bench --json", bench_results, bench_results.Bench)
    yield (
        "Each method also has `ratio`, the speed relative to `original`, and `seconds_for_all`, an estimate for all "
        "files if the method ran on a sample.\n"
    )
    yield from record_section("Output of bench --tokenizers --json", bench_speeds, bench_speeds.TokenizerBench)
    yield "Each speed also has `bytes_per_second` and `ratio`, the speed relative to gigatoken with the same input.\n"
    yield from record_section("Output of diff --json", diff_result, diff_result.Difference)
    yield from table_section(
        "Changes of a file", ("kind", "description"), [(f"`{kind}`", text) for kind, text in FILE_KINDS.items()]
    )
    yield from record_section("Output of tokenizer train --json", vocabulary_result, vocabulary_result.Vocabulary)
    yield (
        "The output also has `command`, the command line of the build. The other fields are in vocabulary.json in the "
        "folder of the tokenizer.\n"
    )
    yield from record_section("Output of tokenizer show --json", vocabulary_table, vocabulary_table.TokenizerTable)
    yield from record_section("Output of push --json", push_result, push_result.PushResult)
    yield "The output also has `ok`, which is true if all safety checks pass.\n"
    yield "## Safety checks of push\n\n```text"
    yield inspect.cleandoc(gates.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield from training_lines()
    yield from table_section("Methods of bench", ("name", "description"), [(f"`{m.name}`", m.what) for m in METHODS])
    yield from table_section(
        "Why a file is dropped", ("reason", "description"), [(f"`{one}`", one.meaning) for one in DropReason]
    )
    yield from variant_lines()
    yield from table_section(
        "Why a variant is missing", ("reason", "description"), [(f"`{one}`", one.meaning) for one in WhyNoVariant]
    )
    yield from exclude_lines()
    yield from rule_lines()
    kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(rule.kind for rule in SECRET_RULES))
    yield f"## Secrets\n\nKinds of secrets: {kinds}. `email` needs `--redact-emails`.\n"
    yield "## Exit codes\n"
    yield "```text"
    yield inspect.cleandoc(cli.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield "## Errors in Python\n\n```text"
    yield inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    yield "```"


def _column_row(column: Column) -> tuple[str, str, str]:
    more = f"; {column.details}" if column.details else ""
    return f"`{column.name}`", f"with {column.when}" if column.when else "always", f"{column.description}{more}"


def _format_row(form: OutputFormat) -> tuple[str, str, str, str]:
    needs = f"`gristmill[{form.extra}]`" if form.extra is not None else ""
    return f"`{form.name}`", f"`{form.folder}/`" if form.folder else "", needs, form.text


def setting_lines() -> Iterator[str]:
    flags = {option.setting: option.flag for option in all_options()}
    texts = field_texts(Path(config.__file__)) | field_texts(Path(sections.__file__))
    rows = []
    for name in config.setting_names():
        section, _, field = name.rpartition(".")
        owner = f"{section.capitalize()}Config" if section else "Config"
        default = config.default_of(name)
        default_text = "" if default is msgspec.NODEFAULT else f"`{'[]' if default == () else default}`"
        rows.append(
            (f"`{name}`", f"`{flags[name]}`" if name in flags else "", default_text, texts.get((owner, field), ""))
        )
    yield "## Settings\n"
    yield "`gristmill.toml`, messages and Python use the same names: `Config(window=WindowConfig(overlap=128))`.\n"
    yield from table_lines(("setting", "option", "default", "description"), rows)


def training_lines() -> Iterator[str]:
    texts = field_texts(Path(training_settings.__file__))
    rows = []
    for field in msgspec.structs.fields(training_settings.TrainConfig):
        text = texts.get(("TrainConfig", field.name), "")
        rows.append((f"`{field.name}`", f"`--{field.name.replace('_', '-')}`", f"`{field.default}`", text))
    yield "## Settings of train\n"
    yield 'In Python: `TrainConfig(epochs=20, model="small")`. `compare` has most of these options, but not `seed`.\n'
    yield from table_lines(("setting", "option", "default", "description"), rows)
    yield "## A run folder\n\n```text"
    yield inspect.cleandoc(training_folder.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield from record_section("metrics.jsonl", training_metrics, training_metrics.Metric)


def rule_lines() -> Iterator[str]:
    """Describe the limit of each rule, the limits for kinds of languages, and the languages in each kind."""
    kinds = language_kinds()
    switches = {field.name for field in msgspec.structs.fields(sections.RulesConfig) if field.type is bool}
    rows = []
    for rule in rules.RULES:
        limit = "on" if rule.name in switches else _limit_text(rule.limit)
        limits = {kind.name: kind.limits[rule.name] for kind in kinds if rule.name in kind.limits}
        others = ", ".join(f"{kind} {_limit_text(limit)}" for kind, limit in limits.items())
        rows.append((f"`{rule.name}`", f"`{rule.reason}`", limit, others))
    yield "## Rules\n"
    yield "The settings `rules.…` above describe the rules, turn them off and change their limits.\n"
    yield from table_lines(("rule", "drop reason", "limit", "other limits"), rows)
    yield "## Kinds of languages\n"
    yield "Some rules apply only to kinds with programming languages.\n"
    kind_rows = [(one.name, "yes" if one.is_programming else "", ", ".join(one.languages)) for one in kinds]
    yield from table_lines(("kind", "programming", "languages"), kind_rows)


def _limit_text(limit: bool | float) -> str:
    if isinstance(limit, bool):
        return "on" if limit else "off"
    return "by name" if limit == float("inf") else f"{limit:g}"


def variant_lines() -> Iterator[str]:
    rows = []
    for kind, one in VARIANTS.items():
        languages = ", ".join(GRAMMARS) if one.needs_grammar else "any"
        names = [name for name in config.setting_names() if name.startswith(one.settings)] if one.settings else []
        needs = "a language model" if one.needs_model else "a mask token" if one.needs_mask else ""
        keeps = ", ".join(one.keeps)
        rows.append(
            (f"`{kind}`", one.description, keeps, one.makes, languages, needs, ", ".join(f"`{n}`" for n in names))
        )
    heads = ("kind", "change to the file", "keeps", "makes", "languages", "needs", "settings")
    yield from table_section("Kinds of variants", heads, rows)
    yield (
        "Kinds that make `windows` change each window separately. Kinds that make a `text` change the complete "
        "text, which is then cut into windows like a file.\n"
    )


def record_section(title: str, module: ModuleType, first: type[msgspec.Struct]) -> Iterator[str]:
    texts = field_texts(Path(str(module.__file__)))
    rows = []
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    for kind in sorted(kinds, key=lambda kind: kind is not first):
        names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
        notes = " ".join(f"`{f}`: {text}" for (owner, f), text in texts.items() if owner == kind.__name__)
        rows.append((kind.__name__, names, notes))
    yield from table_section(title, ("record", "fields", "notes"), rows)


def exclude_lines() -> Iterator[str]:
    rows = []
    for exclude in DEFAULT_EXCLUDES:
        names = [*(f"{f}/" for f in exclude.folders), *exclude.names, *(f"*.{suffix}" for suffix in exclude.suffixes)]
        note = " (unless git tracks the file)" if exclude.unless_tracked else ""
        rows.append((exclude.label + note, " ".join(f"`{name}`" for name in names)))
    yield from table_section("Files excluded by default", ("files", "names"), rows)
    yield (
        "`--exclude '!dist/'` includes a name again, and `scan.default_excludes = false` includes all names. Qt\n"
        "translations, which are XML named `*.ts` like TypeScript, are also excluded.\n"
    )


def field_texts(path: Path) -> dict[tuple[str, str], str]:
    """Return the docstrings of all class fields in a module, keyed by the names of class and field."""
    texts: dict[tuple[str, str], str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                    assert isinstance(text, ast.Expr)
                    assert isinstance(text.value, ast.Constant)
                    texts[node.name, field.target.id] = inspect.cleandoc(str(text.value.value)).replace("\n", " ")
    return texts


def table_section(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"## {title}\n"
    yield from table_lines(head, rows)


def table_lines(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    main()
