"""The columns of a row: their names and kinds, and what is known of all rows before one is read."""

from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest

IDS = "input_ids"
MASK = "attention_mask"
LABELS = "labels"
SEGMENT_IDS = "segment_ids"
POSITION_IDS = "position_ids"
SEGMENTS = "segments"
IGNORED_LABEL = -100
"""In the place of padding among labels: what loss functions leave out."""


IDS_AT_ONCE = 1 << 22


class Kind(Enum):
    """What a column holds in each row, and as what a batch holds it."""

    TEXT = auto()
    """One text: list[str]."""
    NUMBER = auto()
    """One whole number: int64."""
    FRACTION = auto()
    """One number: float64."""
    NUMBERS = auto()
    """Several whole numbers: Ragged of int64."""
    OBJECTS = auto()
    """Several JSON objects: list[list[dict]]."""


PER_ID = {LABELS: IGNORED_LABEL, SEGMENT_IDS: 0, POSITION_IDS: 0}
"""Columns with a number for each id, and what they have in the place of padding."""

KINDS = {
    **dict.fromkeys(("path", "repo", "language", "text", "variant"), Kind.TEXT),
    **dict.fromkeys(("start", "fresh", "repeat", "variant_seed"), Kind.NUMBER),
    **dict.fromkeys(("lines", LABELS, MASK, SEGMENT_IDS, POSITION_IDS), Kind.NUMBERS),
    "weight": Kind.FRACTION,
    SEGMENTS: Kind.OBJECTS,
}
"""Of every column but the ids."""


class Schema(NamedTuple):
    """What there is to know of rows before one is read."""

    columns: tuple[str, ...]
    """As rows have them, `input_ids` first."""
    length: int
    """Ids in a window, at most."""
    vocab_size: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    """The special ids around each window."""
    pad_id: int | None
    """With which rows are padded to the full length; None: they are not."""
    end_id: int | None
    """What ends a document in a stream of tokens; None: the tokenizer has no such token."""
    segment_columns: tuple[str, ...] = ()
    """What `segments` tell of each, where there are any."""

    @classmethod
    def of(cls, manifest: Manifest) -> "Schema":
        facts = manifest.tokenizer
        if manifest.columns[:1] != [IDS] or not KINDS.keys() >= set(manifest.columns[1:]):
            raise DatasetError(
                f"the manifest is damaged: no rows have the columns {', '.join(manifest.columns)[:200]}."
            )
        return cls(
            columns=tuple(manifest.columns),
            length=manifest.window_length,
            vocab_size=facts.vocab_size,
            prefix=facts.prefix,
            suffix=facts.suffix,
            pad_id=facts.pad_id if MASK in manifest.columns else None,
            end_id=facts.end_id,
            segment_columns=tuple(manifest.segment_columns),
        )

    @property
    def id_type(self) -> type[np.uint16] | type[np.uint32]:
        return np.uint16 if self.vocab_size <= 1 << 16 else np.uint32

    @property
    def others(self) -> tuple[str, ...]:
        """All columns but the ids."""
        return self.columns[1:]

    def num_rows_at_once(self, most: int) -> int:
        """In memory: so many, or of long windows fewer."""
        return max(1, min(most, IDS_AT_ONCE // max(1, self.length)))

    @property
    def is_packed(self) -> bool:
        """A row holds windows of several files."""
        return SEGMENTS in self.columns

    @property
    def natural(self) -> tuple[str, ...]:
        """Those that a batch has beside the ids."""
        return tuple(name for name in self.others if name != MASK)
