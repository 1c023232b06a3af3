"""Define the protocol that all tokenizer engines implement, and load tokenizers.

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
"""Text passed by a caller: UTF-8, or a str that can be encoded as UTF-8."""


class Encoded(NamedTuple):
    """Token ids and positions of one text."""

    ids: Ids
    newline_tokens: Indices
    """For each line feed in the text, the index of the last token that starts at or before the line feed.

    The index is -1 if there is no such token.
    """
    starts: Offsets | None
    """Byte offset of each token, followed by the length of the text. None if not requested."""
    control_id: int | None
    """Id of a control token that the engine found in the text, or None. Such a text must not be used."""


class EncodedTexts(NamedTuple):
    """Token ids and positions of several texts, concatenated."""

    ids: npt.NDArray[Any]
    edges: Offsets
    """Offset of each text's first id, followed by the number of ids."""
    newline_tokens: Indices
    """Index of a token for each line feed, as in Encoded. The first token of each text has index 0."""
    newline_edges: Offsets
    """Offset of each text's first entry in `newline_tokens`, followed by the number of entries."""
    starts: list[Offsets]
    """Byte offsets of the tokens of each text, as in Encoded. Empty if not requested."""
    control_ids: dict[int, int]
    """Id of a control token that the engine found in a text, keyed by the index of the text."""

    @classmethod
    def of(cls, texts: Sequence[Encoded]) -> "EncodedTexts":
        """Concatenate texts that were encoded one by one."""
        return cls(
            ids=np.concatenate([np.zeros(0, np.uint32), *(one.ids for one in texts)]),
            edges=np.cumsum([0, *(len(one.ids) for one in texts)]),
            newline_tokens=np.concatenate([np.zeros(0, np.int32), *(one.newline_tokens for one in texts)]),
            newline_edges=np.cumsum([0, *(len(one.newline_tokens) for one in texts)]),
            starts=[one.starts for one in texts if one.starts is not None],
            control_ids={index: one.control_id for index, one in enumerate(texts) if one.control_id is not None},
        )

    def split(self) -> list[Encoded]:
        """Return one record per text."""
        ids, newlines = (list(pairwise(edges.tolist())) for edges in (self.edges, self.newline_edges))
        starts: Sequence[Offsets | None] = self.starts or [None] * len(ids)
        return [
            Encoded(
                self.ids[slice(*ids[index])].astype(np.uint32, copy=False),
                self.newline_tokens[slice(*newlines[index])],
                starts[index],
                self.control_ids.get(index),
            )
            for index in range(len(ids))
        ]


class Tokenizer(Protocol):
    """A loaded tokenizer. All engines return the same ids for the same definition."""

    engine: str
    """Names and versions of the libraries that encode."""
    vocab_size: int
    """Largest id plus one."""
    decodes_exactly: bool
    """True if the joined bytes of the tokens are exactly the encoded text, for every text."""

    @property
    def definition(self) -> Definition: ...

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        """Encode one text. Literal control tokens in the text are encoded as ordinary text.

        Raise TokenizerError if the text is not valid Unicode.
        """
        ...

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        """Encode each text. An error message contains the index of the text, counted from 0."""
        ...

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        """Encode all texts into one record. This is faster than `encode_many`."""
        ...

    def decode(self, ids: npt.ArrayLike) -> bytes:
        """Return the UTF-8 text of ids, with control tokens as their literal text."""
        ...


def to_utf8(text: AnyText, tokenizer: str) -> bytes:
    """Return the text as UTF-8. Raise TokenizerError if the text is not valid Unicode.

    Engines must not get invalid input: gigatoken aborts the process or returns wrong ids for a truncated character.
    The check takes 1/40 of the time that the fastest engine needs.
    """
    try:
        if isinstance(text, str):
            return text.encode()
        if isinstance(text, bytes):
            if not text.isascii():
                text.decode()
            return text
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"the tokenizer {tokenizer!r} accepts only valid Unicode: byte {error.start} "
            f"({error.object[error.start]:#04x}) is not valid UTF-8 ({error.reason}). Decode the text with its actual "
            "encoding first."
        ) from None
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the tokenizer {tokenizer!r} accepts only valid Unicode: character {error.start} "
            f"(U+{ord(error.object[error.start]):04X}) is a surrogate, which UTF-8 cannot encode. Decode the text with "
            "its actual encoding first."
        ) from None
    raise TokenizerError(f"the tokenizer {tokenizer!r} accepts bytes or str, not {type(text).__name__}.")


def all_to_utf8(texts: Sequence[AnyText], tokenizer: str) -> list[bytes]:
    """Return each text as UTF-8. Raise TokenizerError with the index of the first text that is not valid Unicode."""
    checked: list[bytes] = []
    for index, text in enumerate(texts):
        try:
            checked.append(to_utf8(text, tokenizer))
        except TokenizerError as error:
            raise TokenizerError(f"document {index}: {error}") from None
    return checked


def decode_with_added(
    ids: Ids, added_texts: Mapping[int, bytes], decode: Callable[[Ids], bytes], engine_vocab_size: int
) -> bytes:
    """Decode ids, and insert the text of added tokens that the engine does not have, such as <fim_prefix>.

    `added_texts` contains the text of these tokens, keyed by id. Raise LookupError for an id that is neither in
    `added_texts` nor below `engine_vocab_size`.
    """
    pieces, done = list[bytes](), 0
    for at in np.flatnonzero((ids >= engine_vocab_size) | np.isin(ids, list(added_texts))).tolist():
        pieces += [decode(ids[done:at]), added_texts[int(ids[at])]]
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
    """Load a tokenizer.

    `name` is `codebert`, the path of a tokenizer.json, a folder with tokenizer.json or with vocab.json and merges.txt,
    or a Hub id such as `org/name` or `org/name@revision`. `cache_dir` replaces the user's Hugging Face cache. With
    `device="cuda"`, the first GPU encodes batches of texts.

    Raise TokenizerError if the tokenizer cannot be loaded or is not supported on a GPU, MissingExtraError if a package
    is not installed, and DeviceError if there is no usable GPU.
    """
    definition = locate(name, cache_dir=cache_dir)
    return _load_on_gpu(definition) if device == "cuda" else tokenizer_for(definition)


def _load_on_gpu(definition: Definition) -> "CudaTokenizer":
    """Load a new tokenizer on the GPU. It is not shared, because its table of known words changes with every text."""
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer  # noqa: PLC0415 - that module imports this one

    return CudaTokenizer.load(definition)


def tokenizer_for(definition: Definition) -> Tokenizer:
    """Load the engine for a definition, once per process.

    The engine is gigatoken if it returns the same ids and offsets as `tokenizers` for this definition. Otherwise the
    engine is `tokenizers`.
    """
    from gristmill.tokenizers import gigatoken, huggingface  # noqa: PLC0415 - each imports its engine

    if definition.key not in _loaded:
        _loaded[definition.key] = gigatoken.FastTokenizer.load(definition) or huggingface.ReferenceTokenizer(definition)
    return _loaded[definition.key]


def tokenizer_in(folder: Path, key: str | None = None) -> Tokenizer:
    """Load the tokenizer in a folder. If a tokenizer with this `Definition.key` is loaded, the folder is not read."""
    return _loaded[key] if key is not None and key in _loaded else tokenizer_for(Definition.read(folder))


_loaded: dict[str, Tokenizer] = {}
