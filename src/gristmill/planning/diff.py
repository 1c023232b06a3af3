"""Compare two datasets file by file, and decide which part of the version number the changes must increase."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gristmill.cards.provenance import flatten_settings
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count, FimRow, VariantRow, decode_lines
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest, OpenedBuild, SplitFacts
from gristmill.core.records import Cut, DropReason, FileKey, Split
from gristmill.planning.diff_result import (
    BeforeAfter,
    Difference,
    FileChange,
    FileChanges,
    FileKind,
    SplitChange,
    Step,
    ValueChange,
)

# Every files.jsonl is sorted by repo and path, so one pass compares two of them without holding either in memory.


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of files.jsonl that determine the rows of a file."""

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
        """Values that determine the rows, if text, tokenizer and settings are the same."""
        cuts = tuple((cut.start, cut.end) for cut in self.cuts)
        variants = tuple(one for one in self.variants if one.missing is None)
        sampling = (self.draw, self.left_tokens, self.weight, self.fim)
        return self.language, self.tokens, self.windows, sampling, variants, cuts


def compare_tables(before: Path, after: Path, max_examples: int | None) -> dict[FileKind, FileChanges]:
    """Count the changed files by kind. `max_examples` is the maximum number of examples per kind, or None for all."""
    by_kind = {kind: FileChanges() for kind in FileKind}
    for old, new in pair_rows(read_rows(before), read_rows(after)):
        kinds = classify_change(old, new)
        for kind in kinds:
            changes = by_kind[kind]
            changes.count += 1
            if max_examples is None or len(changes.examples) < max_examples:
                changes.examples.append(_file_change(old, new))
    return by_kind


def classify_change(old: Row | None, new: Row | None) -> list[FileKind]:
    """Return the kinds of change of a file, or [] if nothing changed or neither dataset keeps the file."""
    if old is None or not old.is_kept:
        if new is None or not new.is_kept:
            return []
        return [FileKind.ADDED if old is None else FileKind.NO_LONGER_DROPPED]
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


def pair_rows(before: Iterator[Row], after: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield the earlier and the later row of every file. A row is None if its dataset does not list the file."""
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
    for number, (_, row) in enumerate(decode_lines(path, Row), 1):
        if last is not None and row.key <= last:
            raise DatasetError(f"{str(path)!r} is damaged: line {number:,} is out of order. Build the dataset again.")
        last = row.key
        yield row


def _file_change(old: Row | None, new: Row | None) -> FileChange:
    one = new or old
    assert one is not None, "one of the datasets lists the file"
    return FileChange(
        file=f"{one.repo}/{one.path}",
        before=None if old is None else old.state,
        after=None if new is None else new.state,
    )


DEFAULT_EXAMPLES = 10
ROW_SETTINGS = ("window.", "fim.", "variants.", "rewrite.", "sampling.seed")
"""Settings that can change the rows of the same text."""
PADDING = "output.pad"
WEIGHTS = ("sampling.preset", "sampling.weights")
"""With --weights-only, these settings change the weights of rows. content_sha256 does not include weights."""
LOSSES = (FileKind.REMOVED, FileKind.DROPPED, FileKind.CHANGED, FileKind.MOVED, FileKind.RESHAPED)
GAINS = (FileKind.ADDED, FileKind.NO_LONGER_DROPPED)


def diff(
    before: str | os.PathLike[str], after: str | os.PathLike[str], *, examples: int | None = DEFAULT_EXAMPLES
) -> Difference:
    """Compare two datasets by their manifests and files.jsonl. Rows are not read.

    `examples` is the maximum number of files listed for each kind of change, or None for all. Raises DatasetError if a
    folder is not a dataset, or if its files.jsonl is damaged.
    """
    old_folder, new_folder = (Path(os.path.expanduser(folder)) for folder in (before, after))
    earlier, later = OpenedBuild(old_folder), OpenedBuild(new_folder)
    old, new = earlier.manifest, later.manifest
    with earlier.guard_reading(), later.guard_reading():
        files = compare_tables(old_folder, new_folder, examples)
    settings = changed_values(flatten_settings(old.settings), flatten_settings(new.settings))
    tokenizer = changed_values(msgspec.to_builtins(old.tokenizer), msgspec.to_builtins(new.tokenizer))
    step, why = decide_step(old, new, files, [*settings, *tokenizer])
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
        columns=_removed_and_added(old.columns, new.columns),
        formats=_removed_and_added(old.formats, new.formats),
        data=changed_values(_digests(old), _digests(new)),
    )


def decide_step(
    old: Manifest, new: Manifest, files: Mapping[FileKind, FileChanges], values: list[ValueChange]
) -> tuple[Step, str]:
    """Return the step according to the rule of Croissant (see Step), and the reason.

    Adding files keeps the earlier rows available, because rows can be selected by repo and path.
    """
    is_same_content = old.content_sha256 == new.content_sha256
    lost_columns, new_columns = _removed_and_added(old.columns, new.columns)
    losses = {kind: files[kind].count for kind in LOSSES if files[kind].count}
    gains = {kind: files[kind].count for kind in GAINS if files[kind].count}
    if is_same_content and "text" not in new.columns:
        losses.pop(FileKind.CHANGED, None)  # the new text has the same ids, and the rows contain no text
    if losses:
        return Step.MAJOR, f"files: {_counts_text(losses)}"
    if lost_columns:
        return Step.MAJOR, f"removed columns: {', '.join(lost_columns)}"
    edits = (PADDING, *(WEIGHTS if "weight" in new.columns else ()))
    if causes := [
        one.name for one in values if one.name.startswith(edits) or (_shapes_rows(one) and not is_same_content)
    ]:
        return Step.MAJOR, f"rows of the same files differ because of {', '.join(causes)}"
    if gains:
        return Step.MINOR, f"files: {_counts_text(gains)}; all other kept files are unchanged"
    if not is_same_content:
        return Step.MAJOR, "rows of the same files differ for an unknown reason"
    if new_columns:
        return Step.MINOR, f"new columns: {', '.join(new_columns)}; everything else is unchanged"
    if _digests(old) != _digests(new):
        return Step.PATCH, "the same rows in different files"
    return Step.NONE, "every file is the same, byte for byte"


def _shapes_rows(change: ValueChange) -> bool:
    is_tokenizer_value = change.name in {"sha256", "prefix", "suffix", "pad_id"}
    return is_tokenizer_value or change.name.startswith(ROW_SETTINGS)


def _counts_text(kinds: Mapping[FileKind, int]) -> str:
    return ", ".join(f"{count:,} {kind.label}" for kind, count in kinds.items())


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[ValueChange]:
    names = dict.fromkeys((*before, *after))
    return [
        ValueChange(name=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def _split_change(old: SplitFacts | None, new: SplitFacts | None) -> SplitChange:
    def numbers(name: str) -> BeforeAfter:
        return BeforeAfter(before=getattr(old, name, 0), after=getattr(new, name, 0))

    return SplitChange(files=numbers("files"), windows=numbers("windows"), tokens=numbers("tokens"))


def _removed_and_added(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    return [one for one in before if one not in after], [one for one in after if one not in before]


def _digests(manifest: Manifest) -> dict[str, str]:
    return {name: facts.sha256 for name, facts in manifest.files.items()}
