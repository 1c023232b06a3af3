"""gristmill diff: what is not the same in two datasets, file by file, and which version step that asks for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gristmill.cards.making import dotted
from gristmill.differing.result import (
    Difference,
    FileChanges,
    FileKind,
    Numbers,
    SplitChange,
    Step,
    ValueChange,
)
from gristmill.differing.tables import compare_tables
from gristmill.manifest import Edition, Manifest, SplitFacts, require_record
from gristmill.records import Split

EXAMPLES = 10
ROW_SETTINGS = ("window.", "variants.", "rewrite.", "sampling.seed")
"""With another one of these, rows of the same text may be others."""
PADDING = "output.pad"
WEIGHTS = ("sampling.preset", "sampling.weights")
"""With --weights-only, rows of the same ids have another weight by these; content_sha256 does not show that."""
LOSSES = (FileKind.REMOVED, FileKind.DROPPED, FileKind.CHANGED, FileKind.MOVED, FileKind.RESHAPED)
GAINS = (FileKind.ADDED, FileKind.TAKEN_IN)


def diff(
    before: str | os.PathLike[str], after: str | os.PathLike[str], *, examples: int | None = EXAMPLES
) -> Difference:
    """Goes by the manifests and files.jsonl; rows are not read. `examples`: files named of each kind; None: all."""
    old_folder, new_folder = (Path(os.path.expanduser(folder)) for folder in (before, after))
    earlier, later = _edition_in(old_folder), _edition_in(new_folder)
    old, new = earlier.manifest, later.manifest
    with earlier.reading(), later.reading():
        files = compare_tables(old_folder, new_folder, examples)
    settings = changed_values(dotted(old.settings), dotted(new.settings))
    tokenizer = changed_values(msgspec.to_builtins(old.tokenizer), msgspec.to_builtins(new.tokenizer))
    step, why = step_between(old, new, files, [*settings, *tokenizer])
    return Difference(
        before=os.fspath(before),
        after=os.fspath(after),
        is_same=step in {Step.NONE, Step.PATCH},
        step=step,
        why=why,
        content_sha256=(old.content_sha256, new.content_sha256),
        files=files,
        splits={split: _split_change(old.splits.get(split), new.splits.get(split)) for split in Split},
        settings=settings,
        versions=changed_values(
            {"gristmill": old.gristmill, **old.versions}, {"gristmill": new.gristmill, **new.versions}
        ),
        tokenizer=tokenizer,
        columns=_only_in(old.columns, new.columns),
        formats=_only_in(old.formats, new.formats),
        data=changed_values(_digests(old), _digests(new)),
    )


def _edition_in(folder: Path) -> Edition:
    edition = Edition(folder)
    require_record(edition.manifest, folder)
    return edition


def step_between(
    old: Manifest, new: Manifest, files: Mapping[FileKind, FileChanges], values: list[ValueChange]
) -> tuple[Step, str]:
    """By Croissant's rule (see Step). What was there can be had again by the repo and path of its rows."""
    is_same_content = old.content_sha256 == new.content_sha256
    lost_columns, new_columns = _only_in(old.columns, new.columns)
    losses = {kind: files[kind].count for kind in LOSSES if files[kind].count}
    gains = {kind: files[kind].count for kind in GAINS if files[kind].count}
    if is_same_content and "text" not in new.columns:
        losses.pop(FileKind.CHANGED, None)  # another text with the same ids, and nothing else of it is in the rows
    if losses:
        return Step.MAJOR, f"files: {_counts(losses)}"
    if lost_columns:
        return Step.MAJOR, f"columns that are gone: {', '.join(lost_columns)}"
    edits = (PADDING, *(WEIGHTS if "weight" in new.columns else ()))
    if shaping := [
        one.name for one in values if one.name.startswith(edits) or (_shapes_rows(one) and not is_same_content)
    ]:
        return Step.MAJOR, f"rows of the same files are others: {', '.join(shaping)}"
    if gains:
        return Step.MINOR, f"files: {_counts(gains)}; all others are as they were"
    if not is_same_content:
        return Step.MAJOR, "rows of the same files are others, though nothing here says why"
    if new_columns:
        return Step.MINOR, f"new columns: {', '.join(new_columns)}; the rest is as it was"
    if _digests(old) != _digests(new):
        return Step.PATCH, "the same rows, in other files"
    return Step.NONE, "every file is the same, byte for byte"


def _shapes_rows(change: ValueChange) -> bool:
    is_of_tokenizer = change.name in {"sha256", "prefix", "suffix", "pad_id"}
    return is_of_tokenizer or change.name.startswith(ROW_SETTINGS)


def _counts(kinds: Mapping[FileKind, int]) -> str:
    return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in kinds.items())


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ValueChange]:
    names = dict.fromkeys((*before, *after))
    return [
        ValueChange(name=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _split_change(old: SplitFacts | None, new: SplitFacts | None) -> SplitChange:
    def numbers(name: str) -> Numbers:
        return Numbers(before=getattr(old, name, 0), after=getattr(new, name, 0))

    return SplitChange(files=numbers("files"), windows=numbers("windows"), tokens=numbers("tokens"))


def _only_in(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    return [one for one in before if one not in after], [one for one in after if one not in before]


def _digests(manifest: Manifest) -> dict[str, str]:
    return {name: facts.sha256 for name, facts in manifest.files.items()}
