"""Layout of a window: special tokens, content and padding.

<s> x = 1 </s> <pad> <pad>      num_prefix 1, num_suffix 1
x = 1 <|endoftext|>             num_suffix 0, closing (50256,): the last window of a document
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
    """Window length in ids, including special tokens and padding."""
    num_prefix: int
    num_suffix: int
    pad_id: int
    vocab_size: int
    closing: tuple[int, ...] = ()
    """Special ids at the end of the last window of a document."""

    @classmethod
    def of(cls, record: RowsRecord) -> "Frame":
        facts = record.tokenizer
        # Without a padding token, any id can be padding, because padding has no attention and no label.
        pad_id = 0 if facts.pad_id is None else facts.pad_id
        return cls(record.window_length, len(facts.prefix), len(facts.suffix), pad_id, facts.vocab_size, facts.closing)

    def require_valid_ids(self, windows: Sequence[Numbers], items: Sequence[Mapping[str, Any]]) -> None:
        """Raise DatasetError if a window is too long or has an id outside the vocabulary.

        An id outside the vocabulary would crash a GPU, or wrap around and select a different token.
        """
        for window, item in zip(windows, items, strict=True):
            if len(window) > self.length or (len(window) and not 0 <= window.min() <= window.max() < self.vocab_size):
                name = f"row {item['row']}" if "row" in item else "a row"
                raise DatasetError(
                    f"{name} is damaged: it has {counted(len(window), 'id')} from {window.min()} to {window.max()}, "
                    f"expected at most {self.length} ids below {self.vocab_size:,}. Build the dataset again."
                )

    def num_trailing(self, ids: Sequence[int] | npt.NDArray[Any]) -> int:
        """Count the special ids after the content of a window. `ids` must not be padded."""
        num_closing = len(self.closing)
        is_closed = bool(num_closing) and tuple(ids[-num_closing:]) == self.closing
        return self.num_suffix + (num_closing if is_closed else 0)

    def num_content(self, ids: Sequence[int] | npt.NDArray[Any]) -> int:
        """Count the tokens of a window that are not special tokens. `ids` must not be padded."""
        return max(0, len(ids) - self.num_prefix - self.num_trailing(ids))

    def is_content(self, windows: Sequence[Numbers], width: int) -> Flags:
        """Flag the tokens between the special tokens, in a batch of these windows padded to `width`."""
        ends = np.array([len(window) - self.num_trailing(window) for window in windows], np.int64)
        positions = np.arange(width)
        flags: Flags = (positions >= self.num_prefix) & (positions < ends[:, None])
        return flags

    def is_fresh(self, windows: Sequence[Numbers], fresh: Numbers, width: int) -> Flags:
        """Flag the last `fresh[n]` content tokens of window n: the tokens that are in no earlier window of the file."""
        ends = np.array([len(window) - self.num_trailing(window) for window in windows], np.int64)
        return self.is_content(windows, width) & (np.arange(width) >= (ends - fresh)[:, None])

    def is_closing(self, windows: Sequence[Numbers], width: int) -> Flags:
        """Flag the special ids that end a document."""
        ends = np.array([len(window) for window in windows], np.int64)
        starts = ends - [self.num_trailing(window) - self.num_suffix for window in windows]
        positions = np.arange(width)
        flags: Flags = (positions >= starts[:, None]) & (positions < ends[:, None])
        return flags


def check_pad(pad: Any) -> None:
    if pad not in {"batch", "length"}:
        raise ConfigError(f"pad must be 'batch' or 'length', got {pad!r}.")
