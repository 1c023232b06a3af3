"""Items -> a batch: input_ids, attention_mask and labels, all at once for the whole batch.

Labels stand below the ids they are about, unshifted as transformers expects, and are -100 where nothing is asked. With
`fresh_only` each token of a file is asked for once, in the window that is the first to show it: for evaluation.

collate = dataset.masked_collator(whole_identifiers=True)
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from gristmill.core.columns import IDS, IGNORED_LABEL, LABELS, MASK, POSITION_IDS
from gristmill.core.errors import ConfigError
from gristmill.dataset.frame import Flags, Frame, Numbers, Pad, check_pad
from gristmill.dataset.items import Item
from gristmill.dataset.masking import MASK_RATE, Masking
from gristmill.dataset.token_edges import Vocabulary
from gristmill.tokenizers.control_tokens import MASK_NAMES
from gristmill.tokenizers.tokenizer import Tokenizer

Batch = dict[str, torch.Tensor]
PACKED = (IDS, POSITION_IDS, LABELS)


class Padded(NamedTuple):
    """Windows side by side."""

    windows: Sequence[Numbers]
    """Without padding."""
    ids: Numbers
    lengths: Numbers
    is_there: Flags
    """Not padding."""

    def batch(self, ids: Numbers, labels: Numbers) -> Batch:
        mask = self.is_there.astype(np.int64)
        return {name: torch.from_numpy(array) for name, array in ((IDS, ids), (MASK, mask), (LABELS, labels))}


class Padding(NamedTuple):
    frame: Frame
    pad: Pad = "batch"
    multiple_of: int = 1
    """With pad "batch": the longest window's length is rounded up to one."""

    def padded(self, items: Sequence[Item]) -> Padded:
        windows = [_without_padding(item) for item in items]
        lengths = np.array([len(window) for window in windows], np.int64)
        self.frame.require_sound(windows, items)
        width = self._width(int(lengths.max(initial=0)))
        is_there: Flags = np.arange(width) < lengths[:, None]
        ids = np.full((len(windows), width), self.frame.pad_id, np.int64)
        ids[is_there] = np.concatenate(windows)
        return Padded(windows, ids, lengths, is_there)

    def _width(self, longest: int) -> int:
        if self.pad == "length":
            return max(self.frame.length, longest)
        return -(-longest // self.multiple_of) * self.multiple_of


class CausalCollator:
    """Batches for causal models, with labels for the tokens of the text and the token that ends a document.

    Other special tokens have no label.

    A batch of packed rows has `position_ids` and no mask: models of transformers keep the files of a row apart by
    them, with use_cache=False. There, every id except the first of a segment has a label. With `fresh_only`, only the
    fresh tokens of each file and the end of a document have labels.
    """

    def __init__(self, frame: Frame, *, fresh_only: bool = False, pad: Pad = "batch", multiple_of: int = 1) -> None:
        self.fresh_only = fresh_only
        self._padding = _padding(frame, pad, multiple_of)

    def __call__(self, items: Sequence[Item]) -> Batch:
        padded = self._padding.padded(items)
        if any(POSITION_IDS in item for item in items):
            return self._packed(items, padded)
        frame, width = self._padding.frame, padded.ids.shape[1]
        is_asked = _is_asked(items, padded, frame, fresh_only=self.fresh_only)
        is_asked |= frame.is_closing(padded.windows, width)
        return padded.batch(padded.ids, np.where(is_asked, padded.ids, IGNORED_LABEL))

    def _packed(self, items: Sequence[Item], padded: Padded) -> Batch:
        """Rows of several files: positions keep them apart, in the place of a mask."""
        positions = np.zeros_like(padded.ids)
        positions[padded.is_there] = np.concatenate([_per_id(item, POSITION_IDS) for item in items])
        # What comes first in its segment follows from nothing.
        is_asked = padded.is_there & (positions > 0)
        if self.fresh_only:
            is_asked[padded.is_there] &= np.concatenate([_per_id(item, "fresh") for item in items]) > 0
        labels = np.where(is_asked, padded.ids, IGNORED_LABEL)
        return {
            name: torch.from_numpy(array) for name, array in zip(PACKED, (padded.ids, positions, labels), strict=True)
        }


class MaskedCollator:
    """Find out hidden tokens. Control tokens and padding are never hidden, nor put in place of a token."""

    def __init__(
        self,
        frame: Frame,
        tokenizer: Tokenizer,
        *,
        seed: int = 0,
        rate: float = MASK_RATE,
        whole_identifiers: bool = False,
        fresh_only: bool = False,
        pad: Pad = "batch",
        multiple_of: int = 1,
    ) -> None:
        if not 0 < rate <= 1:
            raise ConfigError(f"the rate of masking must be above 0 and at most 1, got {rate}. 0.15 is usual.")
        vocabulary = Vocabulary.of(tokenizer)
        mask_id = _mask_id(tokenizer)
        self.fresh_only = fresh_only
        self._padding = _padding(frame, pad, multiple_of)
        self._is_control = vocabulary.is_control
        self._masking = Masking(mask_id, vocabulary.plain_ids[vocabulary.plain_ids != mask_id], rate, seed)
        if whole_identifiers:
            if vocabulary.edges is None:
                raise ConfigError(
                    f"the tokens of {tokenizer.definition.name!r} do not spell the text, so nobody can tell which "
                    "belong to one identifier. Leave out whole_identifiers, or use a tokenizer like codebert."
                )
            self._masking = self._masking._replace(joins=vocabulary.edges)

    def __call__(self, items: Sequence[Item]) -> Batch:
        if any(POSITION_IDS in item for item in items):
            raise ConfigError("rows that were packed (--pack) are for causal training: use causal_collator.")
        padded = self._padding.padded(items)
        frame, width = self._padding.frame, padded.ids.shape[1]
        is_maskable = frame.is_content(padded.windows, width) & ~self._is_control.take(padded.ids)
        epochs, positions = _numbers(items, "epoch"), _numbers(items, "position")
        hidden = self._masking.hide(padded.ids, is_maskable, epochs, positions)
        is_asked = hidden.is_hidden & _is_asked(items, padded, frame, fresh_only=self.fresh_only)
        return padded.batch(hidden.ids, np.where(is_asked, padded.ids, IGNORED_LABEL))


def _padding(frame: Frame, pad: Pad, multiple_of: int) -> Padding:
    check_pad(pad)
    if multiple_of < 1:
        raise ConfigError(f"multiple_of must be at least 1, got {multiple_of}.")
    return Padding(frame, pad, multiple_of)


def _is_asked(items: Sequence[Item], padded: Padded, frame: Frame, *, fresh_only: bool) -> Flags:
    width = padded.ids.shape[1]
    if not fresh_only:
        return frame.is_content(padded.windows, width)
    return frame.is_fresh(padded.windows, _numbers(items, "fresh"), width)


def _without_padding(item: Item) -> Numbers:
    ids: Numbers = item[IDS].numpy()
    return ids[: int(np.count_nonzero(item[MASK].numpy()))] if MASK in item else ids


def _per_id(item: Item, column: str) -> Numbers:
    """Numbers of a packed row, one for each id, without padding."""
    if POSITION_IDS not in item:
        raise ConfigError("one of these rows is packed and another is not: they are of two datasets.")
    if column not in item:
        raise _unknown(column)
    numbers: Numbers = item[column].numpy()
    return numbers[: len(_without_padding(item))]


def _numbers(items: Sequence[Item], column: str) -> Numbers:
    try:
        return np.array([item[column] for item in items], np.int64)
    except KeyError:
        raise _unknown(column) from None


def _unknown(column: str) -> ConfigError:
    return ConfigError(
        f"a collator of gristmill needs to know {column!r} of each window. Let dataset.loader(…) draw them, or index "
        "the dataset with a Draw."
    )


def _mask_id(tokenizer: Tokenizer) -> int:
    found = tokenizer.definition.named_id("mask_token", MASK_NAMES)
    if found is None or found >= tokenizer.vocab_size:
        raise ConfigError(
            f"the tokenizer {tokenizer.definition.name!r} has no mask token, which masked training needs. Train "
            "causally, or use a tokenizer with one, like codebert."
        )
    return found
