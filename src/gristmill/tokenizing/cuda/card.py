"""The card's own encoder, as the process that owns the card is given it."""

from pathlib import Path

from gristmill.errors import NotOnGpuError
from gristmill.tokenizing.cuda.serving import Encoder


def card_encoder(folder: Path) -> Encoder:
    """For the tokenizer in that folder."""
    raise NotOnGpuError(f"no kernels are there for the tokenizer in {str(folder)!r}")
