"""Writes docs/reference.md from the code: settings, options, what is left out, reasons, files. `make docs` runs it.

python tools/write_reference.py            # writes it
python tools/write_reference.py --check    # exit code 1 if the committed page is not what the code says
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
COLUMN_HEAD = ("column", "when", "what it is")
FILES = {
    "train.jsonl, validation.jsonl, test.jsonl": "one window a row, in path order; `.jsonl.zst` with "
    "`--compress zstd`; `train-00000-of-00012.jsonl` and so on past `output.shard_bytes`. A split without windows has "
    "no file.",
    ", ".join(f"{one.folder}/" for one in FORMATS.values() if one.folder): "the same rows in another format, with "
    "`--format` or `gristmill export`",
    "files.jsonl": "one row per file found, kept or dropped, and why",
    "check.json": "what `gristmill check` found, once it has run",
    "tokenizer.json, tokenizer_config.json": "the exact tokenizer: `AutoTokenizer.from_pretrained(DIR)` reads them",
    "README.md, croissant.json": "what it is, for people, the Hugging Face Hub and readers of Croissant 1.1; told from "
    "the manifest, which does not list them",
    "manifest.json": "settings, versions, sources, counts, digests; written last. All but `run` is the same for the "
    "same input",
}


FILES_COLUMNS = {
    "repo, path": "as in a row",
    "status": "`kept` or `dropped`",
    "split, group": "where it is; or where a duplicate or contaminated file would be: a rebuild keeps to it",
    "language, encoding, bytes, lines": "of the file as it was read; lines of what was tokenized",
    "tokens": "of the whole file, after redaction and before any cut",
    "cut_tokens": "how many of them no window shows because they are in another split or in a benchmark",
    "windows": "how many rows it has, variants apart; with `--pack`, how many segments",
    "draw": "with a sample or weights: `[passes, extra]`, all its windows so often, so many of them once more; or null",
    "left_tokens": "how many of its tokens no row shows, as the windows that would were not drawn",
    "weight": "of its rows, with `--weights-only`; else 1",
    "variants": "per variant it was chosen for its `kind`, `seed`, `tokens`, `windows`, `own_windows` (numbers of "
    "those that are the file's own and not shown again), `draw` and `text_sha256`; or `missing`, why there is none",
    "sha256, text_sha256": "of the file, null where secrets were taken out, since it would confirm a guess; of the "
    "text that was tokenized, by which a file is known again in a rebuild",
    "license, license_from": "an SPDX id or expression, or `NOASSERTION`; `header`, or the path of the licence file "
    "or manifest, or of those that leave it open",
    "moved_from": "the split that an earlier build had it in, where it (or what stands for it) had to move",
    "reason, detail": "why it was dropped, and what was measured",
    "twin, similarity": "of a duplicate: the file that stays, and the share of 5-grams they have in common",
    "measures": "what each rule measured; null: nothing found, or switched off",
    "redactions": "per secret its kind, line, bytes (`start`, `end` before redaction) and a short salted `hash`",
    "cuts": "`[start, end, shared with, first line, last line]` per range of tokens that was cut out",
}


def main() -> None:
    wanted = "\n".join(page()) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(wanted, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/reference.md is not what the code says; run `make docs`")


def page() -> Iterator[str]:
    yield "# Reference\n\nWritten by `tools/write_reference.py` from the code; `make docs` renews it.\n"
    yield from settings()
    yield from table("A row", COLUMN_HEAD, [_column(one) for one in COLUMNS.values() if one.when is not When.PACK])
    yield "The manifest lists the columns of a dataset under `columns`, in their order.\n"
    packed = [_column(one) for one in COLUMNS.values() if not one.is_of_window]
    yield from table("A row with --pack", COLUMN_HEAD, packed)
    yield from table("A dataset folder", ("file", "what it is"), [(f"`{name}`", text) for name, text in FILES.items()])
    yield from table("Formats", ("name", "folder", "needs", "what it is"), [*map(_format, FORMATS.values())])
    yield from table("files.jsonl", ("column", "what it is"), [(f"`{n}`", t) for n, t in FILES_COLUMNS.items()])
    yield from record_fields("The manifest", manifest, manifest.Manifest)
    yield from record_fields("What plan --json prints", plan_result, plan_result.Plan)
    yield "And `command`, the build line. `sample` is null where all files were read.\n"
    yield from record_fields("What bench --json prints", bench_results, bench_results.Bench)
    yield "And per method `ratio`, how many times as fast as `original`, and `seconds_for_all`, for one on a sample.\n"
    yield from record_fields("What bench --tokenizers --json prints", bench_speeds, bench_speeds.TokenizerBench)
    yield "And per speed `bytes_per_second` and `ratio`, how many times as fast as gigatoken, handed the same.\n"
    yield from record_fields("What diff --json prints", diff_result, diff_result.Difference)
    yield from table(
        "What became of a file", ("kind", "what it means"), [(f"`{kind}`", text) for kind, text in FILE_KINDS.items()]
    )
    yield from record_fields("What tokenizer train --json prints", vocabulary_result, vocabulary_result.Vocabulary)
    yield "And `command`, the build line. All but that lies in vocabulary.json beside the tokenizer.\n"
    yield from record_fields("What tokenizer show --json prints", vocabulary_table, vocabulary_table.TokenizerTable)
    yield from record_fields("What push --json prints", push_result, push_result.Push)
    yield "And `ok`: no gate refuses.\n"
    yield "## Gates of push\n\n```text"
    yield inspect.cleandoc(gates.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield from training()
    yield from table("Methods of bench", ("name", "what it is"), [(f"`{m.name}`", m.what) for m in METHODS])
    yield from table(
        "Why a file is dropped", ("reason", "what is wrong"), [(f"`{one}`", one.meaning) for one in DropReason]
    )
    yield from variants()
    yield from table(
        "Why a variant is missing", ("reason", "what it means"), [(f"`{one}`", one.meaning) for one in WhyNoVariant]
    )
    yield from excludes()
    yield from rule_limits()
    kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(rule.kind for rule in SECRET_RULES))
    yield f"## Secrets\n\nKinds that are looked for: {kinds}. `email` only with `--redact-emails`.\n"
    yield "## Exit codes\n"
    yield "```text"
    yield inspect.cleandoc(cli.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield "## Errors in Python\n\n```text"
    yield inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    yield "```"


def _column(column: Column) -> tuple[str, str, str]:
    more = f"; {column.more}" if column.more else ""
    return f"`{column.name}`", f"with {column.when}" if column.when else "always", f"{column.text}{more}"


def _format(form: OutputFormat) -> tuple[str, str, str, str]:
    needs = f"`gristmill[{form.extra}]`" if form.extra is not None else ""
    return f"`{form.name}`", f"`{form.folder}/`" if form.folder else "", needs, form.text


def settings() -> Iterator[str]:
    flags = {option.setting: option.flag for option in all_options()}
    texts = field_texts(Path(config.__file__)) | field_texts(Path(sections.__file__))
    rows = []
    for name in config.setting_names():
        section, _, field = name.rpartition(".")
        owner = f"{section.capitalize()}Config" if section else "Config"
        default = config.default_of(name)
        told = "" if default is msgspec.NODEFAULT else f"`{'[]' if default == () else default}`"
        rows.append((f"`{name}`", f"`{flags[name]}`" if name in flags else "", told, texts.get((owner, field), "")))
    yield "## Settings\n"
    yield "The same names in `gristmill.toml`, in messages and in Python: `Config(window=WindowConfig(overlap=128))`.\n"
    yield from rows_of(("setting", "option", "default", "what it is"), rows)


def training() -> Iterator[str]:
    texts = field_texts(Path(training_settings.__file__))
    rows = []
    for field in msgspec.structs.fields(training_settings.TrainConfig):
        text = texts.get(("TrainConfig", field.name), "")
        rows.append((f"`{field.name}`", f"`--{field.name.replace('_', '-')}`", f"`{field.default}`", text))
    yield "## Settings of train\n"
    yield 'In Python `TrainConfig(epochs=20, model="small")`; `compare` takes them too, but for `seed` and the like.\n'
    yield from rows_of(("setting", "option", "default", "what it is"), rows)
    yield "## A run folder\n\n```text"
    yield inspect.cleandoc(training_folder.__doc__ or "").partition("\n\n")[2]
    yield "```\n"
    yield from record_fields("metrics.jsonl", training_metrics, training_metrics.Metric)


def rule_limits() -> Iterator[str]:
    """The limit of each rule, what differs by kind of language, and which languages are of which kind."""
    kinds = language_kinds()
    switches = {field.name for field in msgspec.structs.fields(sections.RulesConfig) if field.type is bool}
    rows = []
    for rule in rules.RULES:
        limit = "on" if rule.name in switches else _limit(rule.limit)
        limits = {kind.name: kind.limits[rule.name] for kind in kinds if rule.name in kind.limits}
        others = ", ".join(f"{kind} {_limit(limit)}" for kind, limit in limits.items())
        rows.append((f"`{rule.name}`", f"`{rule.reason}`", limit, others))
    yield "## Rules\n"
    yield "What each says is among the settings above (`rules.…`), which also switch it off or give it another limit.\n"
    yield from rows_of(("rule", "reason of the drop", "limit", "other limits"), rows)
    yield "## Kinds of languages\n"
    yield "Programs are written in those marked so; a rule may ask for it.\n"
    told = [(one.name, "yes" if one.is_programming else "", ", ".join(one.languages)) for one in kinds]
    yield from rows_of(("kind", "programs", "languages"), told)


def _limit(limit: bool | float) -> str:
    if isinstance(limit, bool):
        return "on" if limit else "off"
    return "by name" if limit == float("inf") else f"{limit:g}"


def variants() -> Iterator[str]:
    rows = []
    for kind, one in VARIANTS.items():
        languages = ", ".join(GRAMMARS) if one.needs_grammar else "any"
        names = [name for name in config.setting_names() if name.startswith(one.settings)] if one.settings else []
        needs = "a language model" if one.asks_model else "a mask token" if one.needs_mask else ""
        keeps = ", ".join(one.keeps)
        rows.append((f"`{kind}`", one.what, keeps, one.makes, languages, needs, ", ".join(f"`{n}`" for n in names)))
    heads = ("kind", "what becomes of the file", "keeps", "makes", "languages", "needs", "settings")
    yield from table("Kinds of variants", heads, rows)
    yield "One that makes `windows` has each window by itself; another `text` is cut into windows as any file.\n"


def record_fields(title: str, module: ModuleType, first: type[msgspec.Struct]) -> Iterator[str]:
    texts = field_texts(Path(str(module.__file__)))
    rows = []
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    for kind in sorted(kinds, key=lambda kind: kind is not first):
        names = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
        notes = " ".join(f"`{f}`: {text}" for (owner, f), text in texts.items() if owner == kind.__name__)
        rows.append((kind.__name__, names, notes))
    yield from table(title, ("record", "fields", "notes"), rows)


def excludes() -> Iterator[str]:
    rows = []
    for exclude in DEFAULT_EXCLUDES:
        names = [*(f"{f}/" for f in exclude.folders), *exclude.names, *(f"*.{suffix}" for suffix in exclude.suffixes)]
        note = " (unless git tracks the file)" if exclude.unless_tracked else ""
        rows.append((exclude.what + note, " ".join(f"`{name}`" for name in names)))
    yield from table("What is left out by default", ("what", "names"), rows)
    yield (
        "`--exclude '!dist/'` brings a line back, `scan.default_excludes = false` all of them. Qt's translations,\n"
        "XML that is named `*.ts` like TypeScript, are left out too.\n"
    )


def field_texts(path: Path) -> dict[tuple[str, str], str]:
    """(class, field) -> the text under the field."""
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


def table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"## {title}\n"
    yield from rows_of(head, rows)


def rows_of(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    main()
