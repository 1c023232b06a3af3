"""export_for(): a dataset as one trainer reads it, in a folder of its own with a configuration that names it.

The folder grows beside its place and takes its name when it is complete. The same dataset gives the same bytes.
"""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

import orjson

from gristmill.core.columns import LABELS
from gristmill.core.errors import ConfigError, DatasetError, OutputError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG, UNFINISHED, sync_folder, sync_tree
from gristmill.core.manifest import Manifest, facts_of
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.publish import trainer_files
from gristmill.publish.trainers import TRAINERS, Reads, Trainer

UNQUOTED = re.compile(r"[\w./~+@=:,-]+")
"""A path that Python, YAML and a shell take as it is."""


def export_for(
    folder: str | os.PathLike[str],
    trainer: str,
    out: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """Write the dataset in `folder` for a trainer of TRAINERS. `out`: by default, beside it: dataset-trl."""
    if trainer not in TRAINERS:
        raise ConfigError(f"--for takes {', '.join(TRAINERS)}, got {trainer}.")
    row = TRAINERS[trainer]
    dataset = open_dataset(folder)
    named = os.fspath(out) if out is not None else f"{os.fspath(folder).rstrip('/')}-{trainer}"
    place = Path(os.path.expanduser(named))
    _require_free(place, named, dataset.folder)
    _require_fitting(dataset.manifest, row)
    with dataset.edition.reading(), _growing(place) as growing:
        _require_intact(dataset)
        splits = {split: name for split, name in row.splits.items() if dataset.manifest.splits[split].windows}
        num_rows = sum(dataset.manifest.splits[split].windows for split in splits)
        with (progress or Progress()).phase("export", total=num_rows, unit="rows") as step:
            write = getattr(trainer_files, row.writer)
            write(trainer_files.Source(dataset, splits, growing, step))
        if row.has_tokenizer:
            _write_tokenizer(dataset, growing / "tokenizer")
        (growing / row.snippet_name).write_text(snippet_of(row, dataset.manifest, named))
    return place


def snippet_of(trainer: Trainer, manifest: Manifest, folder: str) -> str:
    """The trainer's configuration for the exported folder."""
    missing = [name for split, name in trainer.splits.items() if not manifest.splits[split].windows]
    name = os.path.basename(os.path.abspath(os.path.expanduser(folder)))
    lines = trainer.snippet.template.splitlines(keepends=True)
    kept = "".join(line for line in lines if not any(line.endswith(f"/{one}\n") for one in missing))
    return Template(kept).substitute(folder=folder.rstrip("/"), name=name, length=manifest.window_length)


def command_of(trainer: Trainer, folder: str) -> str:
    """The command that starts a training on the exported folder."""
    folder = folder.rstrip("/")
    return trainer.command.substitute(folder=folder, name=os.path.basename(folder))


def _require_free(place: Path, named: str, dataset: Path) -> None:
    if not UNQUOTED.fullmatch(named):
        raise ConfigError(
            f"{named!r} has a character that a trainer's configuration would have to quote. Name a folder with --out."
        )
    if os.path.lexists(place):
        raise OutputError(f"{named!r} is there already. Remove it, or name another folder with --out.")
    if place.resolve().is_relative_to(dataset.resolve()):
        raise OutputError(
            f"{named!r} is in the dataset, which has no files but its own. Name another folder with --out."
        )


def _require_fitting(manifest: Manifest, trainer: Trainer) -> None:
    """Raise if the rows are not of the kind that the trainer reads."""
    if fault := _fault(manifest, trainer):
        raise DatasetError(f"--for {trainer.name}: {fault}")
    for split in (Split.TRAIN, Split.VALIDATION):
        if not manifest.splits[split].windows:
            raise DatasetError(f"--for {trainer.name}: {split} has no rows. Build it with another --split.")


def _fault(manifest: Manifest, trainer: Trainer) -> str | None:
    is_text = manifest.columns[0] == "text"
    if "weight" in manifest.columns or "weight" in manifest.segment_columns:
        return "it does not read the weight of a row. Build it without --weights-only."
    if trainer.reads is Reads.TEXT and is_text:
        return _text_fault(manifest, trainer)
    if trainer.reads is Reads.TEXT:
        return "it reads documents as text, these are rows of ids. Build it with --rows documents."
    if is_text:
        return "it reads ids, these are documents as text. Build it without --rows documents."
    return _ids_fault(manifest, trainer)


def _text_fault(manifest: Manifest, trainer: Trainer) -> str | None:
    if manifest.fim is not None and not trainer.has_tokenizer:
        return "it trains a tokenizer of its own, which has no tokens for fill in the middle. Build it with --fim 0."
    return None


def _ids_fault(manifest: Manifest, trainer: Trainer) -> str | None:
    window = manifest.settings.get("window", {})
    if window.get("special_tokens") != "documents" or window.get("overlap"):
        return "these rows are for masked models (overlap, or the tokenizer's template). Build it with --preset causal."
    if LABELS in manifest.columns or LABELS in manifest.segment_columns:
        return "rows with noise have labels of their own. Build it without --variants noise."
    if trainer.reads is Reads.STREAM and window.get("pack") != "none":
        return (
            "it reads whole documents in a row, and these rows are packed. Build it with --preset causal --pack none."
        )
    if trainer.reads is Reads.STREAM and manifest.tokenizer.end_id is None:
        return "documents need an end token between them, the tokenizer has none. Build it with --end-token NAME."
    if trainer.largest_vocabulary is not None and manifest.tokenizer.vocab_size > trainer.largest_vocabulary:
        return (
            f"it reads vocabularies of up to {trainer.largest_vocabulary:,} tokens, this one has "
            f"{manifest.tokenizer.vocab_size:,}. Build it with a smaller --tokenizer."
        )
    return None


def _require_intact(dataset: Dataset) -> None:
    """Raise if a file that is read is not the one that the build wrote."""
    manifest = dataset.manifest
    for name, facts in manifest.files.items():
        if facts.format != manifest.formats[0] and name not in {TOKENIZER, TOKENIZER_CONFIG}:
            continue
        try:
            found = facts_of(dataset.folder / name).sha256
        except OSError as error:
            raise DatasetError(f"cannot read {str(dataset.folder / name)!r}: {error.strerror or error}.") from None
        if found != facts.sha256:
            raise DatasetError(
                f"{str(dataset.folder / name)!r} is damaged: it is not what the build wrote. Build the dataset again."
            )


def _write_tokenizer(dataset: Dataset, folder: Path) -> None:
    """Write the tokenizer with the end token of documents as eos_token, and a pad_token, which some trainers need."""
    definition, facts = dataset.tokenizer.definition, dataset.manifest.tokenizer
    names: dict[int | None, str] = {token.id: token.content for token in definition.file.added_tokens or ()}
    config: dict[str, Any] = orjson.loads(definition.config)
    if facts.end_id in names:
        config["eos_token"] = names[facts.end_id]
        config.setdefault("pad_token", names.get(facts.pad_id, names[facts.end_id]))
    folder.mkdir()
    (folder / TOKENIZER).write_bytes(definition.json)
    content = orjson.dumps(config, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    (folder / TOKENIZER_CONFIG).write_bytes(content)


@contextmanager
def _growing(place: Path) -> Iterator[Path]:
    """A folder beside its place: on the same disk, and gone if anything fails."""
    growing = place.with_name(f"{place.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        growing.mkdir()
        yield growing
        sync_tree(growing)
        os.rename(growing, place)
        sync_folder(place.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(place)!r}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(growing, ignore_errors=True)
