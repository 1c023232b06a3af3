"""gristmill diff: what is not the same in two datasets, file by file, and which version step that asks for."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gristmill.cards.provenance import dotted
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count, FimRow, VariantRow, decoded_lines
from gristmill.core.layout import FILES
from gristmill.core.manifest import Edition, Manifest, SplitFacts
from gristmill.core.records import Cut, DropReason, FileKey, Split
from gristmill.planning.diff_result import (
    Difference,
    FileChange,
    FileChanges,
    FileKind,
    Numbers,
    SplitChange,
    Step,
    ValueChange,
)

# Two files.jsonl side by side, in one pass: both are in order of repo and path, so neither is held in memory.


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Of files.jsonl, what decides a file's rows."""

    repo: str
    path: str
    status: Literal["kept", "dropped"]
    split: Split | None
    language: str | None
    tokens: Count | None
    windows: Count | None
    draw: tuple[Count, Count] | None
    left_tokens: Count | None
    weight: float | None
    fim: FimRow | None
    variants: tuple[VariantRow, ...]
    text_sha256: str | None
    reason: DropReason | None
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def is_kept(self) -> bool:
        return self.status == "kept"

    @property
    def state(self) -> str | None:
        return self.split if self.is_kept else self.reason

    @property
    def shape(self) -> tuple[object, ...]:
        """With the same text, tokenizer and settings: the same shape, the same rows."""
        cuts = tuple((cut.start, cut.end) for cut in self.cuts)
        made = tuple(one for one in self.variants if one.missing is None)
        shown = (self.draw, self.left_tokens, self.weight, self.fim)
        return self.language, self.tokens, self.windows, shown, made, cuts


def compare_tables(before: Path, after: Path, most: int | None) -> dict[FileKind, FileChanges]:
    """`most`: examples of a kind; None: all."""
    found = {kind: FileChanges() for kind in FileKind}
    for old, new in paired(read_rows(before), read_rows(after)):
        kinds = kinds_of(old, new)
        for kind in kinds:
            changes = found[kind]
            changes.count += 1
            if most is None or len(changes.examples) < most:
                changes.examples.append(_told(old, new))
    return found


def kinds_of(old: Row | None, new: Row | None) -> list[FileKind]:
    """None of a file that is dropped in both, or in one and unknown to the other."""
    if old is None or not old.is_kept:
        if new is None or not new.is_kept:
            return []
        return [FileKind.ADDED if old is None else FileKind.TAKEN_IN]
    if new is None:
        return [FileKind.REMOVED]
    if not new.is_kept:
        return [FileKind.DROPPED]
    kinds = []
    if old.text_sha256 != new.text_sha256:
        kinds.append(FileKind.CHANGED)
    if old.split is not new.split:
        kinds.append(FileKind.MOVED)
    return kinds or ([FileKind.RESHAPED] if old.shape != new.shape else [])


def paired(before: Iterator[Row], after: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Every file of either, with its row of both."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.key < new.key):
            yield old, None
            old = next(before, None)
        elif old is None or new.key < old.key:
            yield None, new
            new = next(after, None)
        else:
            yield old, new
            old, new = next(before, None), next(after, None)


def read_rows(folder: Path) -> Iterator[Row]:
    path = folder / FILES
    last: FileKey | None = None
    for number, (_, row) in enumerate(decoded_lines(path, Row), 1):
        if last is not None and row.key <= last:
            raise DatasetError(f"{str(path)!r} is damaged: line {number:,} is not in order. Build it again.")
        last = row.key
        yield row


def _told(old: Row | None, new: Row | None) -> FileChange:
    one = new or old
    assert one is not None, "one of the two has the file"
    return FileChange(
        file=f"{one.repo}/{one.path}",
        before=None if old is None else old.state,
        after=None if new is None else new.state,
    )


EXAMPLES = 10
ROW_SETTINGS = ("window.", "fim.", "variants.", "rewrite.", "sampling.seed")
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
    earlier, later = Edition(old_folder), Edition(new_folder)
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
