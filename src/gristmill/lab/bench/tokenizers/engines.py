"""The tokenizers that are compared, behind one small protocol: documents in, one array of ids out.

What a method needs to be handed (an awkward array, pinned memory) is made before the clock runs; what it must do to a
text itself (`tokenizers` decodes it, and its ids come as objects) is inside.
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
"""`tokenizers` is given so many at a time: what it returns has over 100 bytes a token beside the id."""


class CardTokenizer(Protocol):
    """A tokenizer on a GPU, as far as it is measured here. One that has `wire_seconds` tells the floor too."""

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
    name: str
    engine: str
    is_slow: bool
    """It is timed on a sample of a large source."""

    def forget(self) -> None:
        """What it remembers of words it has seen."""
        ...

    def prepared(self, case: Case, documents: Documents) -> Encode | None:
        """What to time, all that it is handed made ready; None: it cannot be handed documents this way."""
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

    def prepared(self, case: Case, documents: Documents) -> Encode | None:
        match case:
            case Case.BYTES:
                return lambda: self._encode(documents.texts, documents)
            case Case.FILES:
                return lambda: self._encode(_contents(documents.paths), documents)
            case Case.JOINED:
                return None

    def _encode(self, texts: Sequence[bytes], documents: Documents) -> Batch:
        ids: list[Ids] = []
        for first, end in slices(documents.offsets):
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
        # Its first call takes 15 ms for tables of the vocabulary, whatever the text: a card's are made on loading.
        self._tokenizer.encode_batch([b"x"])

    def prepared(self, case: Case, documents: Documents) -> Encode:
        from gigatoken import TextFileSource  # noqa: PLC0415

        match case:
            case Case.JOINED:
                strings = bytestrings(documents)
                return lambda: _batch(self._tokenizer.encode_batch(strings))
            case Case.BYTES:
                return lambda: _batch(self._tokenizer.encode_batch(documents.texts))
            case Case.FILES:  # without a separator each file is one document
                return lambda: _batch(self._tokenizer.encode_files(TextFileSource(list(documents.paths))))


class CardEngine:
    name = "cuda"
    is_slow = False

    def __init__(self, tokenizer: CardTokenizer) -> None:
        self.tokenizer = tokenizer
        self.engine = tokenizer.engine

    def forget(self) -> None:
        self.tokenizer.forget()

    def prepared(self, case: Case, documents: Documents) -> Encode:
        match case:
            case Case.JOINED:
                text, offsets = self.in_pinned_memory(documents), documents.offsets
                return lambda: self.tokenizer.encode_joined(text, offsets)
            case Case.BYTES:
                return lambda: self.tokenizer.encode_batch(documents.texts)
            case Case.FILES:
                return lambda: self.tokenizer.encode_files(documents.paths)

    def in_pinned_memory(self, documents: Documents) -> npt.NDArray[np.uint8]:
        text = self.tokenizer.pinned(documents.num_bytes)[: documents.num_bytes]
        text[:] = documents.joined
        return text


def load_card(name: str) -> CardTokenizer:
    return load_tokenizer(name, device="cuda")


def why_no_tokenizers() -> str | None:
    return None if find_spec("tokenizers") else "tokenizers is not installed: pip install 'gristmill[bench]'"


def why_no_gigatoken(tokenizer: Tokenizer) -> str | None:
    """`tokenizer`: the one that a build takes, which is gigatoken wherever that is exact."""
    if tokenizer.engine.startswith(FAST_ENGINE):
        return None
    return f"gigatoken does not take this tokenizer ({tokenizer.definition.model.type})"


def bytestrings(documents: Documents) -> Any:
    """One buffer with offsets, as gigatoken takes it: the nearest there is to what a GPU is handed."""
    import awkward  # noqa: PLC0415 - slow to import

    content = awkward.contents.NumpyArray(documents.joined, parameters={"__array__": "byte"})
    offsets = awkward.index.Index64(documents.offsets)
    layout = awkward.contents.ListOffsetArray(offsets, content, parameters={"__array__": "bytestring"})
    return awkward.Array(layout)


def slices(offsets: Offsets) -> Iterator[tuple[int, int]]:
    """Half-open ranges of documents, each of `SLICE_BYTES` or one document more."""
    first, num_documents = 0, len(offsets) - 1
    while first < num_documents:
        end = int(np.searchsorted(offsets, offsets[first] + SLICE_BYTES))
        end = min(max(end, first + 1), num_documents)
        yield first, end
        first = end


def _batch(array: Any) -> Batch:
    """awkward's two arrays, as they are."""
    return Batch(array.layout.content.data, array.layout.offsets.data)


def _contents(paths: Sequence[str]) -> list[bytes]:
    texts = []
    for path in paths:
        with open_plain(path) as stream:
            texts.append(stream.read())
    return texts
