"""The one small protocol behind which every engine stands, and the way to one.

tokenizer = load_tokenizer("codebert")
tokenizer.encode(b"def f(): pass").ids
"""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.definition import Definition, Template
from gristmill.tokenizing.locating import locate

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


class Encoded(NamedTuple):
    ids: Ids
    newline_tokens: Ids
    """For each line feed in the text, the index of the token that holds it."""
    starts: Offsets | None
    """The byte at which each token begins, and at the end the text's length; where it was asked for."""
    control_id: int | None
    """A control token that the text has become after all: a reason not to use it."""


class Tokenizer(Protocol):
    engine: str
    """What does the encoding, with its version."""
    vocab_size: int
    """One more than the largest id."""

    @property
    def definition(self) -> Definition: ...

    def encode(self, text: bytes, *, with_starts: bool = False) -> Encoded:
        """UTF-8 in. Control tokens spelled out in the text stay text."""
        ...

    def decode(self, ids: npt.ArrayLike) -> bytes: ...


def load_tokenizer(name: str = "codebert", *, cache_dir: str | None = None) -> Tokenizer:
    """`codebert`, a tokenizer.json, a folder with one or with vocab.json and merges.txt, or a Hub id (`org/name`)."""
    return tokenizer_for(locate(name, cache_dir=cache_dir))


def tokenizer_for(definition: Definition) -> Tokenizer:
    """gigatoken where it gives the reference's ids and offsets, else the reference itself."""
    from gristmill.tokenizing import fast, reference  # noqa: PLC0415 - each imports its engine

    return fast.FastTokenizer.load(definition) or reference.ReferenceTokenizer(definition)


@lru_cache(maxsize=2)
def tokenizer_in(folder: Path) -> Tokenizer:
    """The tokenizer that a dataset folder carries, once per process."""
    return tokenizer_for(Definition.read(folder))


__all__ = ["Encoded", "Ids", "Offsets", "Template", "Tokenizer", "load_tokenizer", "tokenizer_for", "tokenizer_in"]
