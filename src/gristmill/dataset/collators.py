"""Collate items into a batch of input_ids, attention_mask and labels. All windows of a batch are processed at once.

A batch of packed rows has position_ids instead of attention_mask. Labels are aligned with the ids, unshifted as
transformers expects, and are -100 for ids without a label. With `fresh_only`, for evaluation, a token of a file can
have a label only in the first window that contains the token.

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
from gristmill.dataset.token_edges import TokenProperties
from gristmill.tokenizers.control_tokens import MASK_NAMES
from gristmill.tokenizers.tokenizer import Tokenizer

Batch = dict[str, torch.Tensor]
PACKED_COLUMNS = (IDS, POSITION_IDS, LABELS)


class PaddedWindows(NamedTuple):
    """The windows of a batch, padded to one width."""

    windows: Sequence[Numbers]
    """Ids of each window, without padding."""
    ids: Numbers
    lengths: Numbers
    is_unpadded: Flags
    """True for the ids of a window, False for padding."""

    def batch(self, ids: Numbers, labels: Numbers) -> Batch:
        mask = self.is_unpadded.astype(np.int64)
        return {name: torch.from_numpy(array) for name, array in ((IDS, ids), (MASK, mask), (LABELS, labels))}


class Padder(NamedTuple):
    """Pads the windows of a batch to one width."""

    frame: Frame
    pad: Pad = "batch"
    multiple_of: int = 1
    """With pad "batch", the length of the longest window is rounded up to a multiple of this number."""

    def pad_items(self, items: Sequence[Item]) -> PaddedWindows:
        windows = [_without_padding(item) for item in items]
        lengths = np.array([len(window) for window in windows], np.int64)
        self.frame.require_valid_ids(windows, items)
        width = self._width(int(lengths.max(initial=0)))
        is_unpadded: Flags = np.arange(width) < lengths[:, None]
        ids = np.full((len(windows), width), self.frame.pad_id, np.int64)
        ids[is_unpadded] = np.concatenate(windows)
        return PaddedWindows(windows, ids, lengths, is_unpadded)

    def _width(self, longest: int) -> int:
        if self.pad == "length":
            return max(self.frame.length, longest)
        return -(-longest // self.multiple_of) * self.multiple_of


class CausalCollator:
    """Collator for causal models. The tokens of the text and the token that ends a document have labels.

    Other special tokens have no label.

    A packed row consists of segments, each from one file (with --pack repo, from one repository). A batch of packed
    rows has `position_ids` instead of a mask: with use_cache=False, models of transformers use these positions to keep
    the segments of a row apart. Every id except the first id of a segment has a label. With `fresh_only`, only the end
    of a document and the tokens that no earlier window of the file contains have labels.
    """

    def __init__(self, frame: Frame, *, fresh_only: bool = False, pad: Pad = "batch", multiple_of: int = 1) -> None:
        self.fresh_only = fresh_only
        self._padder = _make_padder(frame, pad, multiple_of)

    def __call__(self, items: Sequence[Item]) -> Batch:
        padded = self._padder.pad_items(items)
        if any(POSITION_IDS in item for item in items):
            return self._collate_packed(items, padded)
        frame, width = self._padder.frame, padded.ids.shape[1]
        has_label = _has_label(items, padded, frame, fresh_only=self.fresh_only)
        has_label |= frame.is_closing(padded.windows, width)
        return padded.batch(padded.ids, np.where(has_label, padded.ids, IGNORED_LABEL))

    def _collate_packed(self, items: Sequence[Item], padded: PaddedWindows) -> Batch:
        """Collate packed rows. Positions keep the segments of a row apart, so there is no mask."""
        positions = np.zeros_like(padded.ids)
        positions[padded.is_unpadded] = np.concatenate([_column_per_id(item, POSITION_IDS) for item in items])
        # The first id of a segment has no context to be predicted from.
        has_label = padded.is_unpadded & (positions > 0)
        if self.fresh_only:
            has_label[padded.is_unpadded] &= np.concatenate([_column_per_id(item, "fresh") for item in items]) > 0
        labels = np.where(has_label, padded.ids, IGNORED_LABEL)
        return {
            name: torch.from_numpy(array)
            for name, array in zip(PACKED_COLUMNS, (padded.ids, positions, labels), strict=True)
        }


class MaskedCollator:
    """Collator for masked models. Only the tokens that the model must predict have labels.

    Control tokens and padding are never masked. A token is replaced only by the mask token, or by a token that ordinary
    text may contain (`TokenProperties.plain_ids`).
    """

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
            raise ConfigError(f"rate must be larger than 0 and at most 1, got {rate}. The default is {MASK_RATE}.")
        vocabulary = TokenProperties.of(tokenizer)
        mask_id = _mask_id(tokenizer)
        self.fresh_only = fresh_only
        self._padder = _make_padder(frame, pad, multiple_of)
        self._is_control = vocabulary.is_control
        self._masking = Masking(mask_id, vocabulary.plain_ids[vocabulary.plain_ids != mask_id], rate, seed)
        if whole_identifiers:
            if vocabulary.edges is None:
                raise ConfigError(
                    f"the tokenizer {tokenizer.definition.name!r} does not restore the text, so the tokens of an "
                    "identifier cannot be found. Leave out whole_identifiers, or use a tokenizer like codebert."
                )
            self._masking = self._masking._replace(edges=vocabulary.edges)

    def __call__(self, items: Sequence[Item]) -> Batch:
        if any(POSITION_IDS in item for item in items):
            raise ConfigError("packed rows (--pack) are for causal training. Use causal_collator.")
        padded = self._padder.pad_items(items)
        frame, width = self._padder.frame, padded.ids.shape[1]
        is_maskable = frame.is_content(padded.windows, width) & ~self._is_control.take(padded.ids)
        epochs, positions = _column_numbers(items, "epoch"), _column_numbers(items, "position")
        masked = self._masking.mask(padded.ids, is_maskable, epochs, positions)
        has_label = masked.is_selected & _has_label(items, padded, frame, fresh_only=self.fresh_only)
        return padded.batch(masked.ids, np.where(has_label, padded.ids, IGNORED_LABEL))


def _make_padder(frame: Frame, pad: Pad, multiple_of: int) -> Padder:
    check_pad(pad)
    if multiple_of < 1:
        raise ConfigError(f"multiple_of must be at least 1, got {multiple_of}.")
    return Padder(frame, pad, multiple_of)


def _has_label(items: Sequence[Item], padded: PaddedWindows, frame: Frame, *, fresh_only: bool) -> Flags:
    width = padded.ids.shape[1]
    if not fresh_only:
        return frame.is_content(padded.windows, width)
    return frame.is_fresh(padded.windows, _column_numbers(items, "fresh"), width)


def _without_padding(item: Item) -> Numbers:
    ids: Numbers = item[IDS].numpy()
    return ids[: int(np.count_nonzero(item[MASK].numpy()))] if MASK in item else ids


def _column_per_id(item: Item, column: str) -> Numbers:
    """Return, without padding, a column with one number per id. The item must be a packed row."""
    if POSITION_IDS not in item:
        raise ConfigError("a batch has both packed rows and rows with one window. Use the rows of one dataset.")
    if column not in item:
        raise _missing_column(column)
    values: Numbers = item[column].numpy()
    return values[: len(_without_padding(item))]


def _column_numbers(items: Sequence[Item], column: str) -> Numbers:
    try:
        return np.array([item[column] for item in items], np.int64)
    except KeyError:
        raise _missing_column(column) from None


def _missing_column(column: str) -> ConfigError:
    return ConfigError(
        f"the collators of gristmill need the column {column!r}. Draw windows with dataset.loader(…), or index "
        "the dataset with a Draw."
    )


def _mask_id(tokenizer: Tokenizer) -> int:
    mask_id = tokenizer.definition.named_id("mask_token", MASK_NAMES)
    if mask_id is None or mask_id >= tokenizer.vocab_size:
        raise ConfigError(
            f"the tokenizer {tokenizer.definition.name!r} has no mask token, which masked training needs. Train "
            "a causal model, or use a tokenizer with a mask token, like codebert."
        )
    return mask_id
