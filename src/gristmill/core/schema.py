"""Schema: what is known of all rows of a dataset before one is read."""

from typing import NamedTuple

import numpy as np

from gristmill.core.columns import COLUMNS, DECIDED_LATER, IDS, MASK, SEGMENT_PLACE, SEGMENTS, TEXT, When, row_columns
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest

IDS_AT_ONCE = 1 << 22
DOCUMENT_IDS = 1 << 14
"""Ids of a document, with room: the mean of the standard library is 8,100. Readers and Parquet's row groups take 256
documents at once, which the Hub's viewer shows even if each has 1 MiB, the default limit of files."""


class Schema(NamedTuple):
    """What there is to know of rows before one is read."""

    columns: tuple[str, ...]
    """As rows have them: `input_ids` first, or `text` where rows are documents."""
    length: int
    """Ids in a window, at most; of documents NO_LIMIT."""
    vocab_size: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    """Special ids around each window."""
    pad_id: int | None
    """With which rows are padded to the full length; None: they are not."""
    end_id: int | None
    """What ends a document in a stream of tokens; None: the tokenizer has no such token."""
    closing: tuple[int, ...] = ()
    """Special ids behind the last window of a document."""
    segment_columns: tuple[str, ...] = ()
    """What `segments` tell of each, where there are any."""

    @classmethod
    def of(cls, manifest: Manifest) -> "Schema":
        facts = manifest.tokenizer
        first, *others = manifest.columns or [""]
        is_known = first in {IDS, TEXT} and set(others) <= COLUMNS.keys() - {IDS, first}
        if not is_known or not (SEGMENTS in others or set(others) >= {"repo", "path", "start"}):
            raise DatasetError(
                f"the manifest is damaged: no rows have the columns {', '.join(manifest.columns)[:200]}."
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
    def others(self) -> tuple[str, ...]:
        """All columns but the ids."""
        return self.columns[1:] if self.has_ids else self.columns

    @property
    def has_ids(self) -> bool:
        """Rows are windows of ids; else each is a document's text."""
        return self.columns[:1] == (IDS,)

    @property
    def row_ids(self) -> int:
        """Ids that a row stands for: at most, or about where rows are documents."""
        return self.length if self.has_ids else DOCUMENT_IDS

    @property
    def num_special(self) -> int:
        """Most special ids that a window can have."""
        return len(self.prefix) + len(self.suffix) + len(self.closing)

    def num_rows_at_once(self, most: int) -> int:
        """Return how many rows to hold in memory: `most`, or fewer if rows are long."""
        return max(1, min(most, IDS_AT_ONCE // max(1, self.row_ids)))

    @property
    def is_packed(self) -> bool:
        """A row holds windows of several files."""
        return SEGMENTS in self.columns

    @property
    def natural(self) -> tuple[str, ...]:
        """Those that a batch has beside the ids."""
        return tuple(name for name in self.others if name != MASK)

    @property
    def plain(self) -> "Schema":
        """Of the same rows without what step 2 decides."""
        return self._replace(columns=tuple(name for name in self.columns if COLUMNS[name].when not in DECIDED_LATER))

    @property
    def packed(self) -> "Schema":
        """Of rows that hold windows with this one."""
        met = {COLUMNS[name].when for name in self.columns} | {When.PACK}
        return self._replace(columns=row_columns(met), segment_columns=(*self.natural, *SEGMENT_PLACE))
