"""Engines that the tokenizer benchmark compares, with one interface: documents in, one array of ids out.

If a method needs its input in a special form (an awkward array, pinned memory), this input is made before timing
starts. Conversions of each text are timed: for `tokenizers`, decoding bytes to text and copying ids to an array.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gristmill.core.plain_files import open_plain
from gristmill.lab.bench.bench_files import Documents
from gristmill.lab.bench.methods import FAST_ENGINE
from gristmill.lab.bench.tokenizers.speeds import Case
from gristmill.tokenizers.cuda.id_batch import Batch
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.tokenizer import Ids, Offsets, Tokenizer, load_tokenizer

SLICE_BYTES = 1 << 24
"""Approximate number of bytes per call of `tokenizers`, whose result takes more than 100 bytes of memory per token."""


class GpuTokenizer(Protocol):
    """Interface of a GPU tokenizer. The optional method `copy_seconds` measures copies to and from the GPU."""

    @property
    def engine(self) -> str: ...
    @property
    def device_name(self) -> str: ...
    def pinned(self, num_bytes: int) -> npt.NDArray[np.uint8]: ...
    def encode_joined(self, text: npt.NDArray[np.uint8], offsets: Offsets) -> Batch: ...
    def encode_batch(self, texts: Sequence[bytes]) -> Batch: ...
    def encode_files(self, paths: Sequence[str]) -> Batch: ...
    def forget(self) -> None: ...
    def stage_seconds(self, text: npt.NDArray[np.uint8], offsets: Offsets) -> dict[str, float]: ...


Encode = Callable[[], Batch]


class Engine(Protocol):
    """A tokenizer to time."""

    name: str
    engine: str
    """Name and version of the library."""
    is_slow: bool
    """True if the engine is timed on a sample of a large source."""

    def forget(self) -> None:
        """Clear the cache of encoded words."""
        ...

    def prepare_encode(self, case: Case, documents: Documents) -> Encode | None:
        """Prepare the input, and return the function to time, or None if this kind of input is not supported."""
        ...


class TokenizersEngine:
    name = "tokenizers"
    is_slow = True

    def __init__(self, definition: Definition) -> None:
        self.engine = f"tokenizers {version('tokenizers')}"
        self._json = definition.plain_json().decode()
        self.forget()

    def forget(self) -> None:
        import tokenizers  # noqa: PLC0415 - an extra

        self._tokenizer = tokenizers.Tokenizer.from_str(self._json)

    def prepare_encode(self, case: Case, documents: Documents) -> Encode | None:
        match case:
            case Case.BYTES:
                return lambda: self._encode(documents.texts, documents)
            case Case.FILES:
                return lambda: self._encode(_contents(documents.paths), documents)
            case Case.JOINED:
                return None

    def _encode(self, texts: Sequence[bytes], documents: Documents) -> Batch:
        ids: list[Ids] = []
        for first, end in document_slices(documents.offsets):
            encodings = self._tokenizer.encode_batch_fast(
                [text.decode() for text in texts[first:end]], add_special_tokens=False
            )
            ids += [np.array(encoding.ids, np.uint32) for encoding in encodings]
        counts = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        return Batch(np.concatenate(ids), counts)


class GigatokenEngine:
    name = "gigatoken"
    is_slow = False

    def __init__(self, definition: Definition) -> None:
        self.engine = f"gigatoken {version('gigatoken')}"
        self._json = definition.plain_json()
        self.forget()

    def forget(self) -> None:
        import gigatoken  # noqa: PLC0415 - slow to import

        self._tokenizer = gigatoken.Tokenizer.from_json(self._json)
        # The first call takes 15 ms to build tables of the vocabulary. A GPU tokenizer builds them when it is loaded.
        self._tokenizer.encode_batch([b"x"])

    def prepare_encode(self, case: Case, documents: Documents) -> Encode:
        from gigatoken import TextFileSource  # noqa: PLC0415

        match case:
            case Case.JOINED:
                strings = bytestrings(documents)
                return lambda: _batch(self._tokenizer.encode_batch(strings))
            case Case.BYTES:
                return lambda: _batch(self._tokenizer.encode_batch(documents.texts))
            case Case.FILES:  # without a separator, each file is one document
                return lambda: _batch(self._tokenizer.encode_files(TextFileSource(list(documents.paths))))


class GpuEngine:
    name = "cuda"
    is_slow = False

    def __init__(self, tokenizer: GpuTokenizer) -> None:
        self.tokenizer = tokenizer
        self.engine = tokenizer.engine

    def forget(self) -> None:
        self.tokenizer.forget()

    def prepare_encode(self, case: Case, documents: Documents) -> Encode:
        match case:
            case Case.JOINED:
                text, offsets = self.copy_to_pinned_memory(documents), documents.offsets
                return lambda: self.tokenizer.encode_joined(text, offsets)
            case Case.BYTES:
                return lambda: self.tokenizer.encode_batch(documents.texts)
            case Case.FILES:
                return lambda: self.tokenizer.encode_files(documents.paths)

    def copy_to_pinned_memory(self, documents: Documents) -> npt.NDArray[np.uint8]:
        """Copy the joined documents to pinned memory."""
        text = self.tokenizer.pinned(documents.num_bytes)[: documents.num_bytes]
        text[:] = documents.joined
        return text


def load_gpu_tokenizer(name: str) -> GpuTokenizer:
    return load_tokenizer(name, device="cuda")


def tokenizers_skip_reason() -> str | None:
    return None if find_spec("tokenizers") else "tokenizers is not installed: pip install 'gristmill[bench]'"


def gigatoken_skip_reason(tokenizer: Tokenizer) -> str | None:
    """Return why gigatoken cannot be measured, or None if a build with this tokenizer would use gigatoken."""
    if tokenizer.engine.startswith(FAST_ENGINE):
        return None
    return f"gigatoken does not support this tokenizer ({tokenizer.definition.model.type})"


def bytestrings(documents: Documents) -> Any:
    """Return one buffer with offsets: the input of gigatoken that is most similar to that of a GPU tokenizer."""
    import awkward  # noqa: PLC0415 - slow to import

    content = awkward.contents.NumpyArray(documents.joined, parameters={"__array__": "byte"})
    offsets = awkward.index.Index64(documents.offsets)
    layout = awkward.contents.ListOffsetArray(offsets, content, parameters={"__array__": "bytestring"})
    return awkward.Array(layout)


def document_slices(offsets: Offsets) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of document indices, each with about `SLICE_BYTES` bytes and at least one document."""
    first, num_documents = 0, len(offsets) - 1
    while first < num_documents:
        end = int(np.searchsorted(offsets, offsets[first] + SLICE_BYTES))
        end = min(max(end, first + 1), num_documents)
        yield first, end
        first = end


def _batch(array: Any) -> Batch:
    """Return the ids and offsets inside an awkward array, without copying."""
    return Batch(array.layout.content.data, array.layout.offsets.data)


def _contents(paths: Sequence[str]) -> list[bytes]:
    texts = []
    for path in paths:
        with open_plain(path) as stream:
            texts.append(stream.read())
    return texts
