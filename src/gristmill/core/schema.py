"""Schema: columns, sizes and special ids of a dataset's rows, as recorded in the manifest."""

from typing import NamedTuple

import numpy as np

from gristmill.core.columns import (
    COLUMNS,
    IDS,
    MASK,
    SEGMENT_POSITION_KEYS,
    SEGMENTS,
    STEP_2_CONDITIONS,
    TEXT,
    When,
    row_columns,
)
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest

IDS_AT_ONCE = 1 << 22
DOCUMENT_IDS = 1 << 14
"""Assumed number of ids in a document, well above the mean of 8,100 in Python's standard library. Readers and Parquet
row groups therefore hold 256 documents. The Hub's viewer displays such a row group even if every document takes 1 MiB,
the default maximum of a file."""


class Schema(NamedTuple):
    """Columns, sizes and special ids of rows."""

    columns: tuple[str, ...]
    """Columns in the order of a row. `input_ids` is first, or `text` if rows are documents."""
    length: int
    """Maximum number of ids in a window. NO_LIMIT if rows are documents."""
    vocab_size: int
    prefix: tuple[int, ...]
    """Special ids at the start of each window."""
    suffix: tuple[int, ...]
    """Special ids at the end of each window."""
    pad_id: int | None
    """Id that pads rows to the full length. None if rows are not padded."""
    end_id: int | None
    """Id that ends a document in a token stream. None if the tokenizer has no such token."""
    closing: tuple[int, ...] = ()
    """Special ids at the end of the last window of a document."""
    segment_columns: tuple[str, ...] = ()
    """Keys of each entry in `segments`. Empty if rows are not packed."""

    @classmethod
    def of(cls, manifest: Manifest) -> "Schema":
        """Return the schema of a dataset. Raise DatasetError if the manifest has impossible columns."""
        facts = manifest.tokenizer
        first, *others = manifest.columns or [""]
        is_known = first in {IDS, TEXT} and set(others) <= COLUMNS.keys() - {IDS, first}
        if not is_known or not (SEGMENTS in others or set(others) >= {"repo", "path", "start"}):
            raise DatasetError(
                f"the manifest is damaged: it records the impossible columns {', '.join(manifest.columns)[:200]}. "
                "Build the dataset again."
            )
        return cls(
            columns=tuple(manifest.columns),
            length=manifest.window_length,
            vocab_size=facts.vocab_size,
            prefix=facts.prefix,
            suffix=facts.suffix,
            closing=facts.closing,
            pad_id=facts.pad_id if MASK in manifest.columns else None,
            end_id=facts.end_id,
            segment_columns=tuple(manifest.segment_columns),
        )

    @property
    def id_type(self) -> type[np.uint16] | type[np.uint32]:
        return np.uint16 if self.vocab_size <= 1 << 16 else np.uint32

    @property
    def columns_without_ids(self) -> tuple[str, ...]:
        """All columns but the ids."""
        return self.columns[1:] if self.has_ids else self.columns

    @property
    def has_ids(self) -> bool:
        """True if rows are windows of ids, False if each row is a document's text."""
        return self.columns[:1] == (IDS,)

    @property
    def max_row_ids(self) -> int:
        """Maximum number of ids in a row, or an assumed number if rows are documents."""
        return self.length if self.has_ids else DOCUMENT_IDS

    @property
    def num_special(self) -> int:
        """Maximum number of special ids in a window."""
        return len(self.prefix) + len(self.suffix) + len(self.closing)

    def num_rows_at_once(self, max_rows: int) -> int:
        """Return the number of rows to hold in memory: `max_rows`, or fewer if rows are long."""
        return max(1, min(max_rows, IDS_AT_ONCE // max(1, self.max_row_ids)))

    @property
    def is_packed(self) -> bool:
        """True if a row may hold windows of several files."""
        return SEGMENTS in self.columns

    @property
    def batch_columns(self) -> tuple[str, ...]:
        """Columns of a batch, without the ids and the attention mask."""
        return tuple(name for name in self.columns_without_ids if name != MASK)

    @property
    def without_step_2_columns(self) -> "Schema":
        """Schema of the same rows without the columns that step 2 fills."""
        return self._replace(
            columns=tuple(name for name in self.columns if COLUMNS[name].when not in STEP_2_CONDITIONS)
        )

    @property
    def packed(self) -> "Schema":
        """Schema of packed rows whose windows have this schema."""
        conditions = {COLUMNS[name].when for name in self.columns} | {When.PACK}
        return self._replace(
            columns=row_columns(conditions), segment_columns=(*self.batch_columns, *SEGMENT_POSITION_KEYS)
        )
