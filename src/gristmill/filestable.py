"""A row of files.jsonl: what became of one file that was found."""

from typing import Annotated, Literal

import msgspec

from gristmill.records import Cut, DropReason, FileKey, Redaction, Split, VariantKind, WhyNoVariant

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a file: one that is in train, or why there is none."""

    kind: VariantKind
    seed: int | None = None
    tokens: Count = 0
    windows: Count = 0
    own_windows: tuple[Count, ...] = ()
    """By number, those that are the file's own, and are not shown once more."""
    draw: tuple[Count, Count] | None = None
    text_sha256: str | None = None
    missing: WhyNoVariant | None = None


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """Every row has every column; what does not apply is null."""

    repo: str
    path: str
    status: Literal["kept", "dropped"]
    split: Split | None
    """Of a dropped file: where it would be, if it was dropped after the splits were made."""
    group: str | None
    language: str | None
    encoding: str | None
    bytes: Count | None
    lines: Count | None
    tokens: Count | None
    cut_tokens: Count | None
    windows: Count | None
    """Rows in the dataset: all that it is cut into, unless `draw` says otherwise."""
    draw: tuple[Count, Count] | None
    """All its windows so many times, and so many of them once more; null: each once."""
    left_tokens: Count | None
    """Tokens that no row shows, as those that would were not drawn."""
    weight: float | None
    variants: tuple[VariantRow, ...]
    sha256: str | None
    """Of the file's bytes; null where secrets were taken out, since it would confirm a guess."""
    text_sha256: str | None
    license: str | None
    license_from: str | None
    moved_from: Split | None
    reason: DropReason | None
    detail: str | None
    twin: str | None
    similarity: float | None
    measures: dict[str, float | str | None] | None
    redactions: tuple[Redaction, ...]
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"
