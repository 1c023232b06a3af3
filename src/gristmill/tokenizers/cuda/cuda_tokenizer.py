"""The GPU's tokenizer: the ids of the CPU's, from a card.

tokenizer = load_tokenizer("codebert", device="cuda")
batch = tokenizer.encode_batch([b"def f(): pass", b"x = 1"])
batch.ids[batch.offsets[0] : batch.offsets[1]]
"""

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DeviceError, InputError, TokenizerError
from gristmill.core.plain_files import open_plain
from gristmill.tokenizers.cuda.availability import require_cuda
from gristmill.tokenizers.cuda.card import Card
from gristmill.tokenizers.cuda.character_classes import character_classes
from gristmill.tokenizers.cuda.chunks import Joined, Listed, Pieces, Span, Staging, pieces_of, spans_of
from gristmill.tokenizers.cuda.engine import Engine, Text
from gristmill.tokenizers.cuda.file_reader import FileReader, FileTooLargeError
from gristmill.tokenizers.cuda.id_batch import Batch, Gathered, GatheredOnCard
from gristmill.tokenizers.cuda.merge_tables import MergeTables
from gristmill.tokenizers.cuda.patterns import Pattern, compile_options
from gristmill.tokenizers.cuda.structs import LONGEST_CHUNK, Sizes
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import AnyText, Encoded, EncodedTexts, Ids, Tokenizer, tokenizer_for, utf8_of_each

# What the card could not do, done by the CPU and put into its place.

Offsets = npt.NDArray[np.int64]


class Spliced(NamedTuple):
    ids: Ids
    offsets: Offsets


def splice(ids: Ids, offsets: Offsets, missing: Sequence[int], encode: Callable[[int], Ids]) -> Spliced:
    """Pieces by number -> with the ids of the missing ones, whatever there was in their place.

    ids a a x b, offsets 0 2 3 4, missing [1] -> a a y y b, offsets 0 2 4 5
    """
    if not len(missing):
        return Spliced(ids, offsets)
    parts, counts, done = list[Ids](), np.diff(offsets), 0
    for number in missing:
        found = encode(number).astype(ids.dtype)
        counts[number] = len(found)
        parts += [ids[offsets[done] : offsets[number]], found]
        done = number + 1
    parts.append(ids[offsets[done] :])
    return Spliced(np.concatenate(parts), np.concatenate(([0], np.cumsum(counts))))


Bytes = npt.NDArray[np.uint8]
Place = Literal["machine", "card"]
TextOf = Callable[[int], bytes]
"""A piece by its number."""
NO_BYTES: Bytes = np.zeros(0, np.uint8)
MakeCard = Callable[[tuple[str, ...]], Card]
"""From what its kernels are to be compiled with."""

USUAL_CHUNK = LONGEST_CHUNK
"""Smaller ones fill the card worse; with larger ones all waits longer for the first and the last."""
SMALLEST_CHUNK = 1 << 20
IDS_PER_FILE = 8192
IDS_PER_BYTE = 0.6
"""Expected: code has 0.45 to 0.5. Where there are more, memory for them is taken again."""


class CudaTokenizer:
    def __init__(self, cpu: Tokenizer, card: Card, engine: Engine) -> None:
        self._cpu, self._card, self._engine = cpu, card, engine
        self.definition = cpu.definition
        self.engine = f"{cpu.engine} and CUDA kernels on {card.name}"
        self.device_name: str = card.name
        self.vocab_size, self.gives_text_back = cpu.vocab_size, cpu.gives_text_back
        self._kind = np.uint16 if engine.sizes.id_bytes == np.dtype(np.uint16).itemsize else np.uint32
        self._staging: Staging | None = None
        self._reader: FileReader | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls, definition: Definition, *, chunk_bytes: int = USUAL_CHUNK, architecture: str | None = None
    ) -> "CudaTokenizer":
        def cupy_card(options: tuple[str, ...]) -> Card:
            require_cuda()
            from gristmill.tokenizers.cuda.cupy_card import CupyCard  # noqa: PLC0415 - an extra

            return CupyCard(options, architecture=architecture)

        return cls.over(definition, cupy_card, chunk_bytes=chunk_bytes)

    @classmethod
    def over(
        cls,
        definition: Definition,
        make_card: MakeCard,
        *,
        chunk_bytes: int = USUAL_CHUNK,
        num_slots: int | None = None,
    ) -> "CudaTokenizer":
        """Any card. `num_slots`: entries of the word table, where not as many as a chunk may fill."""
        pattern, tables = Pattern.of(definition), MergeTables.of(definition)
        card = make_card(compile_options(pattern, tables.id_bits))
        engine = _with_room(card, tables, character_classes(pattern), chunk_bytes, num_slots)
        return cls(tokenizer_for(definition), card, engine)

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        """One text is not worth the way to the card: the CPU's."""
        return self._cpu.encode(text, with_starts=with_starts)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(utf8_of_each(texts, self.definition.name), with_starts=with_starts).each()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        """Where the CPU's engine cannot say which token is where, it does all of it."""
        if not isinstance(self._cpu, FastTokenizer):
            return self._cpu.encode_all(texts, with_starts=with_starts)
        batch = self.encode_batch(texts)
        return self._cpu.understood(batch.ids, batch.offsets, texts, with_starts=with_starts)

    def decode(self, ids: npt.ArrayLike) -> bytes:
        return self._cpu.decode(ids)

    def encode_batch(self, texts: Sequence[AnyText], *, to: Place = "machine") -> Batch:
        """Encode each text. Raise TokenizerError, with the document's number, for one that is not UTF-8.

        The card finds those itself while it looks for words, at no cost for the others.
        """
        return self._encode_batch(_as_bytes(texts, self.definition.name), to)

    def _encode_batch(self, texts: Sequence[bytes], to: Place) -> Batch:
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
        if np.diff(offsets).max(initial=0) > self._engine.sizes.chunk_bytes:
            return self.encode_joined(np.frombuffer(b"".join(texts), np.uint8), offsets, to=to)
        pieces = pieces_of(NO_BYTES, offsets, self._engine.sizes.chunk_bytes)
        with self._turn():
            staged = self._stage().filled(self._spans(pieces), Listed(list(texts), offsets).fill)
            return self._encode(staged, pieces, lambda number: texts[number], to)

    def encode_joined(self, text: Bytes, offsets: Offsets, *, to: Place = "machine") -> Batch:
        """Documents one behind the other: `offsets` has where each begins and, at the end, the length.

        From memory of `pinned()` it goes at the wire's speed.
        """
        _refuse_nonsense(text, offsets)
        pieces = pieces_of(text, offsets, self._engine.sizes.chunk_bytes)
        with self._turn():
            if text.flags.c_contiguous and self._card.is_pinned(text):
                texts: Iterable[Text] = self._in_place(text, pieces)
            else:
                texts = self._stage().filled_ahead(self._spans(pieces), Joined(text, pieces.offsets).fill)
            edges = pieces.offsets
            return self._encode(texts, pieces, lambda number: text[edges[number] : edges[number + 1]].tobytes(), to)

    def pinned(self, num_bytes: int) -> Bytes:
        """Memory that the card reads by itself."""
        return self._card.pinned(num_bytes)

    def pin(self, memory: Bytes) -> None:
        """Memory that is there already, until `unpin`."""
        self._card.pin(memory)

    def unpin(self, memory: Bytes) -> None:
        self._card.unpin(memory)

    def forget(self) -> None:
        """Words that were seen: the next call is as the first."""
        with self._turn():
            self._engine.forget()

    def stage_seconds(self, text: Bytes, offsets: Offsets) -> dict[str, float]:
        pieces = pieces_of(text, offsets, self._engine.sizes.chunk_bytes)
        with self._turn():
            return self._engine.stage_seconds(self._in_place(text, pieces))

    def wire_seconds(self, num_bytes_in: int, num_bytes_out: int) -> dict[str, float]:
        return self._card.wire_seconds(num_bytes_in, num_bytes_out)

    def encode_files(self, paths: Sequence[str], *, to: Place = "machine") -> Batch:
        """One document a file, read by a few processes straight into memory that the card reads."""
        sizes: list[int] = []
        with self._turn():
            self._reader = self._reader or FileReader(self._card, self._engine.sizes.chunk_bytes, os.cpu_count() or 1)
            gather = self._gather(len(paths) * IDS_PER_FILE, to)
            try:
                self._engine.run(self._reader.texts([os.fsencode(path) for path in paths], sizes), gather)
            except FileTooLargeError:
                pass
            except BaseException:  # whatever its processes are at: the next call has new ones
                self._reader.close()
                self._reader = None
                raise
            else:
                pieces = pieces_of(NO_BYTES, np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), sys.maxsize)
                return self._spliced(gather, pieces, lambda number: _content(paths[number]), to)
        return self.encode_batch([_content(path) for path in paths], to=to)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One call at a time, whichever thread it comes from."""
        with self._lock, self._card.in_use():
            yield

    def _spans(self, pieces: Pieces) -> Iterator[Span]:
        return spans_of(pieces, self._engine.sizes.chunk_bytes, self._engine.sizes.max_documents)

    def _in_place(self, text: Bytes, pieces: Pieces) -> Iterator[Text]:
        edges = pieces.offsets
        for first, end in self._spans(pieces):
            yield Text(text[edges[first] : edges[end]], edges[first:end] - edges[first])

    def _stage(self) -> Staging:
        self._staging = self._staging or Staging(self._card, self._engine.sizes.chunk_bytes)
        return self._staging

    def _gather(self, expected_ids: int, to: Place) -> Gathered:
        return (GatheredOnCard if to == "card" else Gathered)(self._card, self._kind, expected_ids)

    def _encode(self, texts: Iterable[Text], pieces: Pieces, text_of: TextOf, to: Place) -> Batch:
        gather = self._gather(int((pieces.offsets[-1] - pieces.offsets[0]) * IDS_PER_BYTE), to)
        self._engine.run(texts, gather)
        return self._spliced(gather, pieces, text_of, to)

    def _on_cpu(self, number: int, pieces: Pieces, text_of: TextOf) -> Ids:
        try:
            return self._cpu.encode(text_of(number)).ids
        except TokenizerError as error:
            document = int(np.searchsorted(pieces.first_pieces, number, "right")) - 1
            begin = int(pieces.offsets[number] - pieces.offsets[pieces.first_pieces[document]])
            where = f", from byte {begin} on" if begin else ""
            raise TokenizerError(f"document {document}{where}: {error}") from None

    def _spliced(self, gather: Gathered, pieces: Pieces, text_of: TextOf, to: Place) -> Batch:
        counts = np.zeros(len(pieces.too_long), np.int64)
        missing = pieces.too_long.copy()
        if gather.counts:
            counts[~pieces.too_long] = np.concatenate(gather.counts)
            missing[~pieces.too_long] = np.concatenate(gather.flags)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        left = np.flatnonzero(missing).tolist()
        there = self._card.array_of if to == "card" else np.asarray
        ids, offsets = splice(gather.ids, offsets, left, lambda number: there(self._on_cpu(number, pieces, text_of)))
        return Batch(ids, there(offsets[pieces.first_pieces]), len(left))


def _as_bytes(texts: Sequence[AnyText], tokenizer: str) -> Sequence[bytes]:
    """Bytes as they are, unchecked: a look at each here would take longer than the card does."""
    if any(type(text) is not bytes for text in texts):
        return utf8_of_each(texts, tokenizer)
    return cast("Sequence[bytes]", texts)


def _refuse_nonsense(text: Bytes, offsets: Offsets) -> None:
    """The card goes by them without a look."""
    is_sound = text.dtype == np.uint8 and text.ndim == 1 and offsets.dtype == np.int64 and len(offsets) > 0
    if not is_sound or offsets[0] < 0 or offsets[-1] > len(text) or bool((offsets[1:] < offsets[:-1]).any()):
        raise InputError(
            "encode_joined takes a text of uint8 and offsets of int64 that ascend from where the first document begins "
            f"to the end of the last, within the text; got {text.dtype} and {offsets.dtype}, {len(offsets):,} offsets "
            f"for {len(text):,} bytes."
        )


def _content(path: str) -> bytes:
    try:
        with open_plain(path) as stream:
            return stream.read()
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}.") from None


def _with_room(card: Card, tables: MergeTables, classes: Bytes, chunk_bytes: int, num_slots: int | None) -> Engine:
    """Smaller chunks where the card's memory is short."""
    size = chunk_bytes = min(chunk_bytes, LONGEST_CHUNK)
    while True:
        try:
            engine = Engine(card, tables, classes, Sizes.of(size, tables.id_bits, num_slots=num_slots))
        except MemoryError:
            card.free()
            size //= 2
            if size < SMALLEST_CHUNK:
                raise DeviceError(
                    f"{card.name} has too little free memory to tokenize. Free some, or leave --device cuda out."
                ) from None
            continue
        if size < chunk_bytes:
            warnings.warn(f"little memory is free on {card.name}: chunks of {size >> 20} MB", stacklevel=3)
        return engine
