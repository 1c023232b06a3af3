"""Write a dataset into a new folder in the layout that one trainer reads, with a configuration for that trainer.

The folder has a temporary name until it is complete. The same dataset gives the same bytes.
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
from gristmill.core.manifest import Manifest, file_facts
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.publish import trainer_files
from gristmill.publish.trainers import TRAINERS, InputKind, Trainer

UNQUOTED = re.compile(r"[\w./~+@=:,-]+")
"""Pattern of a path that needs no quoting in Python, YAML and a shell."""


def export_for(
    folder: str | os.PathLike[str],
    trainer: str,
    out: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """Write the dataset in the layout of a trainer, given by its name in TRAINERS, and return the new folder.

    `out` defaults to the dataset folder with the trainer's name appended, as in `dataset-trl`.
    """
    if trainer not in TRAINERS:
        raise ConfigError(f"--for must be one of {', '.join(TRAINERS)}, got {trainer}.")
    spec = TRAINERS[trainer]
    dataset = open_dataset(folder)
    out_path = os.fspath(out) if out is not None else f"{os.fspath(folder).rstrip('/')}-{trainer}"
    target = Path(os.path.expanduser(out_path))
    _require_usable(target, out_path, dataset.folder)
    _require_readable(dataset.manifest, spec)
    with dataset.edition.guard_reading(), _staging_folder(target) as staging:
        _require_intact(dataset)
        splits = {split: name for split, name in spec.splits.items() if dataset.manifest.splits[split].windows}
        num_rows = sum(dataset.manifest.splits[split].windows for split in splits)
        with (progress or Progress()).phase("export", total=num_rows, unit="rows") as step:
            write = getattr(trainer_files, spec.writer)
            write(trainer_files.ExportJob(dataset, splits, staging, step))
        if spec.has_tokenizer:
            _write_tokenizer(dataset, staging / "tokenizer")
        (staging / spec.snippet_name).write_text(render_snippet(spec, dataset.manifest, out_path))
    return target


def render_snippet(trainer: Trainer, manifest: Manifest, folder: str) -> str:
    """Return the trainer's configuration for the exported folder, without lines for splits that have no rows."""
    missing = [name for split, name in trainer.splits.items() if not manifest.splits[split].windows]
    name = os.path.basename(os.path.abspath(os.path.expanduser(folder)))
    lines = trainer.snippet.template.splitlines(keepends=True)
    template = "".join(line for line in lines if not any(line.endswith(f"/{split_name}\n") for split_name in missing))
    return Template(template).substitute(folder=folder.rstrip("/"), name=name, length=manifest.window_length)


def render_command(trainer: Trainer, folder: str) -> str:
    """Return the command that trains on the exported folder."""
    folder = folder.rstrip("/")
    return trainer.command.substitute(folder=folder, name=os.path.basename(folder))


def _require_usable(target: Path, out_path: str, dataset: Path) -> None:
    """Raise if `target` exists, is inside the dataset, or needs quoting in a trainer's configuration."""
    if not UNQUOTED.fullmatch(out_path):
        raise ConfigError(
            f"{out_path!r} has a character that needs quoting in a trainer's configuration. "
            "Choose another folder with --out."
        )
    if os.path.lexists(target):
        raise OutputError(f"{out_path!r} already exists. Remove it, or choose another folder with --out.")
    if target.resolve().is_relative_to(dataset.resolve()):
        raise OutputError(
            f"{out_path!r} is inside the dataset folder, which must hold only the dataset. "
            "Choose another folder with --out."
        )


def _require_readable(manifest: Manifest, trainer: Trainer) -> None:
    """Raise if the trainer cannot read the rows, or if train or validation has no rows."""
    if mismatch := _find_mismatch(manifest, trainer):
        raise DatasetError(f"--for {trainer.name}: {mismatch}")
    for split in (Split.TRAIN, Split.VALIDATION):
        if not manifest.splits[split].windows:
            raise DatasetError(
                f"--for {trainer.name}: {split} has no rows. Increase its share in --split and build the dataset again."
            )


def _find_mismatch(manifest: Manifest, trainer: Trainer) -> str | None:
    """Return why the trainer cannot read the rows, and how to build suitable rows. None if it can read the rows."""
    is_text = manifest.columns[0] == "text"
    if "weight" in manifest.columns or "weight" in manifest.segment_columns:
        return "the trainer does not read row weights. Build the dataset without --weights-only."
    if trainer.input_kind is InputKind.TEXT and is_text:
        return _find_text_mismatch(manifest, trainer)
    if trainer.input_kind is InputKind.TEXT:
        return "the trainer reads text, but the rows are ids. Build the dataset with --rows documents."
    if is_text:
        return "the trainer reads ids, but the rows are text. Build the dataset without --rows documents."
    return _find_ids_mismatch(manifest, trainer)


def _find_text_mismatch(manifest: Manifest, trainer: Trainer) -> str | None:
    if manifest.fim is not None and not trainer.has_tokenizer:
        return (
            "the trainer trains its own tokenizer, which has no fill-in-the-middle tokens. "
            "Build the dataset with --fim 0."
        )
    return None


def _find_ids_mismatch(manifest: Manifest, trainer: Trainer) -> str | None:
    window = manifest.settings.get("window", {})
    if window.get("special_tokens") != "documents" or window.get("overlap"):
        return (
            "the rows are for masked models: they overlap, or have the special tokens of the tokenizer's template. "
            "Build the dataset with --preset causal."
        )
    if LABELS in manifest.columns or LABELS in manifest.segment_columns:
        return "the export does not keep the labels of rows with noise. Build the dataset without --variants noise."
    if trainer.input_kind is InputKind.STREAM and window.get("pack") != "none":
        return (
            "the trainer reads a stream of complete documents, but the rows are packed. "
            "Build the dataset with --preset causal --pack none."
        )
    if trainer.input_kind is InputKind.STREAM and manifest.tokenizer.end_id is None:
        return (
            "the trainer needs an end token after each document, but the tokenizer has none. "
            "Build the dataset with --end-token NAME."
        )
    if trainer.max_vocab_size is not None and manifest.tokenizer.vocab_size > trainer.max_vocab_size:
        return (
            f"the trainer reads vocabularies of up to {trainer.max_vocab_size:,} tokens, but the tokenizer has "
            f"{manifest.tokenizer.vocab_size:,}. Build the dataset with another --tokenizer."
        )
    return None


def _require_intact(dataset: Dataset) -> None:
    """Raise if the digest of a file to read differs from the manifest."""
    manifest = dataset.manifest
    for name, facts in manifest.files.items():
        if facts.format != manifest.formats[0] and name not in {TOKENIZER, TOKENIZER_CONFIG}:
            continue
        try:
            found = file_facts(dataset.folder / name).sha256
        except OSError as error:
            raise DatasetError(f"cannot read {str(dataset.folder / name)!r}: {error.strerror or error}.") from None
        if found != facts.sha256:
            raise DatasetError(
                f"{str(dataset.folder / name)!r} is damaged: its digest differs from the manifest. Build the dataset "
                "again."
            )


def _write_tokenizer(dataset: Dataset, folder: Path) -> None:
    """Write the tokenizer.

    If documents end with a token, this token becomes the eos_token, and also the pad_token if the tokenizer has none.
    Some trainers need a pad_token.
    """
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
def _staging_folder(target: Path) -> Iterator[Path]:
    """Create a staging folder beside `target`. Rename it to `target` at the end, or delete it on an error."""
    staging = target.with_name(f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging.mkdir()
        yield staging
        sync_tree(staging)
        os.rename(staging, target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
