"""The one small protocol behind which every engine stands, and the way to one.

tokenizer = load_tokenizer("codebert")
tokenizer.encode(b"def f(): pass").ids
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
AnyText = bytes | str
"""Text as callers hand it over: UTF-8, or a str that can be written as UTF-8."""


class Encoded(NamedTuple):
    ids: Ids
    newline_tokens: Indices
    """For each line feed in the text, the index of the last token that begins before it; -1 if there is none."""
    starts: Offsets | None
    """The byte at which each token begins, and at the end the text's length; where it was asked for."""
    control_id: int | None
    """A control token that the text has become after all: a reason not to use it."""


class EncodedTexts(NamedTuple):
    """Several texts, their ids end to end."""

    ids: npt.NDArray[Any]
    edges: Offsets
    """Where each text's ids begin, and the end."""
    newline_tokens: Indices
    """As in Encoded: counted from the start of each text."""
    newline_edges: Offsets
    starts: list[Offsets]
    """Of each text, where it was asked for; else empty."""
    control_ids: dict[int, int]
    """By the number of the text: a control token that it has become after all."""

    @classmethod
    def of(cls, texts: Sequence[Encoded]) -> "EncodedTexts":
        return cls(
            ids=np.concatenate([np.zeros(0, np.uint32), *(one.ids for one in texts)]),
            edges=np.cumsum([0, *(len(one.ids) for one in texts)]),
            newline_tokens=np.concatenate([np.zeros(0, np.int32), *(one.newline_tokens for one in texts)]),
            newline_edges=np.cumsum([0, *(len(one.newline_tokens) for one in texts)]),
            starts=[one.starts for one in texts if one.starts is not None],
            control_ids={number: one.control_id for number, one in enumerate(texts) if one.control_id is not None},
        )

    def each(self) -> list[Encoded]:
        ids, newlines = (list(pairwise(edges.tolist())) for edges in (self.edges, self.newline_edges))
        starts: Sequence[Offsets | None] = self.starts or [None] * len(ids)
        return [
            Encoded(
                self.ids[slice(*ids[number])].astype(np.uint32, copy=False),
                self.newline_tokens[slice(*newlines[number])],
                starts[number],
                self.control_ids.get(number),
            )
            for number in range(len(ids))
        ]


class Tokenizer(Protocol):
    engine: str
    """What does the encoding, with its version."""
    vocab_size: int
    """One more than the largest id."""
    gives_text_back: bool
    """Whatever was encoded: the bytes of the tokens, joined, are the text."""

    @property
    def definition(self) -> Definition: ...

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        """Encode UTF-8; control tokens spelled out in the text stay text.

        Raise TokenizerError if the text is not valid Unicode, whatever the engine.
        """
        ...

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        """Encode each text; an error names the document by its number."""
        ...

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        """The same, end to end; faster than one by one."""
        ...

    def decode(self, ids: npt.ArrayLike) -> bytes: ...


def utf8_of(text: AnyText, tokenizer: str) -> bytes:
    """Return the text as UTF-8; raise TokenizerError if it is not valid Unicode.

    No engine may see anything else: gigatoken ends the process over a character that is cut short, or makes ids up.
    The check takes a fortieth of the time of the fastest engine.
    """
    try:
        if isinstance(text, str):
            return text.encode()
        if isinstance(text, bytes):
            if not text.isascii():
                text.decode()
            return text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        unit, found = ("byte", text[error.start]) if isinstance(text, bytes) else ("character", ord(text[error.start]))
        raise TokenizerError(
            f"the tokenizer {tokenizer!r} takes valid Unicode only: {unit} {error.start} ({found:#04x}) is not UTF-8, "
            f"{error.reason}. Decode the text by its own encoding first."
        ) from None
    raise TokenizerError(f"the tokenizer {tokenizer!r} takes bytes or str, not {type(text).__name__}.")


def utf8_of_each(texts: Sequence[AnyText], tokenizer: str) -> list[bytes]:
    checked: list[bytes] = []
    for number, text in enumerate(texts):
        try:
            checked.append(utf8_of(text, tokenizer))
        except TokenizerError as error:
            raise TokenizerError(f"document {number}: {error}") from None
    return checked


def decoded_around(ids: Ids, spelled: Mapping[int, bytes], decode: Callable[[Ids], bytes], num_known: int) -> bytes:
    """Decode what lies between tokens that the engine does not have, like <fim_prefix>, and spell these out.

    Raise LookupError for an id beyond those that the engine has (`num_known`) which is no added token.
    """
    pieces, done = list[bytes](), 0
    for at in np.flatnonzero((ids >= num_known) | np.isin(ids, list(spelled))).tolist():
        pieces += [decode(ids[done:at]), spelled[int(ids[at])]]
        done = at + 1
    return b"".join((*pieces, decode(ids[done:]))) if pieces else decode(ids)


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
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer  # noqa: PLC0415 - it imports this module

    return CudaTokenizer.load(definition)


def tokenizer_for(definition: Definition) -> Tokenizer:
    """gigatoken where it gives the reference's ids and offsets, else the reference itself; once per process."""
    from gristmill.tokenizers import gigatoken, huggingface  # noqa: PLC0415 - each imports its engine

    if definition.key not in _loaded:
        _loaded[definition.key] = gigatoken.FastTokenizer.load(definition) or huggingface.ReferenceTokenizer(definition)
    return _loaded[definition.key]


def tokenizer_in(folder: Path, key: str | None = None) -> Tokenizer:
    """The tokenizer that a dataset folder carries; with its key, one that is loaded is found without reading it."""
    return _loaded[key] if key is not None and key in _loaded else tokenizer_for(Definition.read(folder))


_loaded: dict[str, Tokenizer] = {}
