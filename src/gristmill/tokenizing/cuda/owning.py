"""The card's own encoder, as the process that owns the card is given it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.cuda.serving import Encoder
from gristmill.tokenizing.definition import Definition

if TYPE_CHECKING:
    from gristmill.tokenizing.cuda.tokenizer import CudaTokenizer


class CardEncoder:
    def __init__(self, tokenizer: "CudaTokenizer") -> None:
        self._tokenizer = tokenizer

    def encode(
        self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], int]:
        batch = self._tokenizer.encode_joined(text, offsets)
        out[: len(batch.ids)] = batch.ids
        return batch.offsets, batch.num_on_cpu

    def register(self, memory: npt.NDArray[np.uint8]) -> None:
        self._tokenizer.pin(memory)

    def unregister(self, memory: npt.NDArray[np.uint8]) -> None:
        self._tokenizer.unpin(memory)


def card_encoder(folder: Path) -> Encoder:
    """For the tokenizer in that folder."""
    from gristmill.tokenizing.cuda.tokenizer import CudaTokenizer  # noqa: PLC0415 - slow to import, and only where it is used

    return CardEncoder(CudaTokenizer.load(Definition.read(folder)))
