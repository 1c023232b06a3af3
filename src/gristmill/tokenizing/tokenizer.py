"""The one small protocol behind which every engine stands, and the way to one.

tokenizer = load_tokenizer("codebert")
tokenizer.encode(b"def f(): pass").ids
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.definition import Definition
from gristmill.tokenizing.locating import locate

if TYPE_CHECKING:
    from gristmill.tokenizing.cuda.tokenizer import CudaTokenizer

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]


class Encoded(NamedTuple):
    ids: Ids
    newline_tokens: Indices
    """For each line feed in the text, the index of the last token that begins before it; -1 if there is none."""
    starts: Offsets | None
    """The byte at which each token begins, and at the end the text's length; where it was asked for."""
    control_id: int | None
    """A control token that the text has become after all: a reason not to use it."""


class Tokenizer(Protocol):
    engine: str
    """What does the encoding, with its version."""
    vocab_size: int
    """One more than the largest id."""
    gives_text_back: bool
    """Whatever was encoded: the bytes of the tokens, joined, are the text."""

    @property
    def definition(self) -> Definition: ...

    @property
    def encodes_in_batches(self) -> bool:
        """encode_many does more than encode for each: texts are better handed over together."""
        ...

    def encode(self, text: bytes, *, with_starts: bool = False) -> Encoded:
        """UTF-8 in. Control tokens spelled out in the text stay text."""
        ...

    def encode_many(self, texts: Sequence[bytes], *, with_starts: bool = False) -> list[Encoded]:
        """What encode gives for each."""
        ...

    def decode(self, ids: npt.ArrayLike) -> bytes: ...


@overload
def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cuda"]
) -> "CudaTokenizer": ...


@overload
def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cpu", "cuda"] = "cpu"
) -> Tokenizer: ...


def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cpu", "cuda"] = "cpu"
) -> Tokenizer:
    """`codebert`, a tokenizer.json, a folder with one or with vocab.json and merges.txt, or a Hub id (`org/name`)."""
    definition = locate(name, cache_dir=cache_dir)
    return _on_card(definition) if device == "cuda" else tokenizer_for(definition)


def _on_card(definition: Definition) -> "CudaTokenizer":
    """Nobody else has it: what it remembers of words is its caller's."""
    from gristmill.tokenizing.cuda.tokenizer import CudaTokenizer  # noqa: PLC0415 - it imports this module

    return CudaTokenizer.load(definition)


def tokenizer_for(definition: Definition) -> Tokenizer:
    """gigatoken where it gives the reference's ids and offsets, else the reference itself; once per process."""
    from gristmill.tokenizing import fast, reference  # noqa: PLC0415 - each imports its engine

    if definition.key not in _loaded:
        _loaded[definition.key] = fast.FastTokenizer.load(definition) or reference.ReferenceTokenizer(definition)
    return _loaded[definition.key]


def tokenizer_in(folder: Path, key: str | None = None) -> Tokenizer:
    """The tokenizer that a dataset folder carries; with its key, one that is loaded is found without reading it."""
    return _loaded[key] if key is not None and key in _loaded else tokenizer_for(Definition.read(folder))


_loaded: dict[str, Tokenizer] = {}
