"""How a window lies: special tokens, content, special tokens, padding.

<s> x = 1 </s> <pad> <pad>      num_prefix 1, num_suffix 1
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.manifest import RowsRecord
from gristmill.core.names import counted

Pad = Literal["batch", "length"]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Frame(NamedTuple):
    length: int
    """Of a window, special tokens and padding included."""
    num_prefix: int
    num_suffix: int
    pad_id: int
    vocab_size: int

    @classmethod
    def of(cls, record: RowsRecord) -> "Frame":
        facts = record.tokenizer
        # Where a tokenizer has no padding token any id will do: the attention mask is 0 there, and no label asks.
        pad_id = 0 if facts.pad_id is None else facts.pad_id
        return cls(record.window_length, len(facts.prefix), len(facts.suffix), pad_id, facts.vocab_size)

    def require_sound(self, windows: Sequence[Numbers], items: Sequence[Mapping[str, Any]]) -> None:
        """An id that no token has would crash a GPU, or wrap around and be another."""
        for window, item in zip(windows, items, strict=True):
            if len(window) > self.length or (len(window) and not 0 <= window.min() <= window.max() < self.vocab_size):
                row = f" {item['row']}" if "row" in item else ""
                raise DatasetError(
                    f"row{row} is damaged: {counted(len(window), 'id')} of at most {self.length}, from "
                    f"{window.min()} to {window.max()} of {self.vocab_size:,}. Build the dataset again."
                )

    def num_content(self, num_ids: int) -> int:
        """Tokens between the special ones, of a window of so many ids without padding."""
        return max(0, num_ids - self.num_prefix - self.num_suffix)

    def is_content(self, lengths: Numbers, width: int) -> Flags:
        """In a batch of windows of these lengths, padded to `width`."""
        place = np.arange(width)
        flags: Flags = (place >= self.num_prefix) & (place < (lengths - self.num_suffix)[:, None])
        return flags

    def is_fresh(self, lengths: Numbers, fresh: Numbers, width: int) -> Flags:
        """The last `fresh` content tokens of each window: those that no earlier window of its file has shown."""
        first = lengths - self.num_suffix - fresh
        return self.is_content(lengths, width) & (np.arange(width) >= first[:, None])


def check_pad(pad: Any) -> None:
    if pad not in {"batch", "length"}:
        raise ConfigError(f"pad must be 'batch' or 'length', got {pad!r}.")
