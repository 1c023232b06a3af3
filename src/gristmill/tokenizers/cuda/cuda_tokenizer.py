"""Encode batches of texts on a GPU, with the same ids as on the CPU.

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
from gristmill.tokenizers.cuda.character_classes import character_classes
from gristmill.tokenizers.cuda.chunks import (
    DocumentList,
    JoinedDocuments,
    PieceRange,
    Pieces,
    StagingBuffers,
    cut_into_pieces,
    group_into_chunks,
)
from gristmill.tokenizers.cuda.engine import Engine, Text
from gristmill.tokenizers.cuda.file_reader import FileReader, FileTooLargeError
from gristmill.tokenizers.cuda.gpu import Gpu
from gristmill.tokenizers.cuda.id_batch import Batch, GpuIdBuffer, IdBuffer
from gristmill.tokenizers.cuda.merge_tables import MergeTables
from gristmill.tokenizers.cuda.patterns import Pattern, compile_options
from gristmill.tokenizers.cuda.structs import MAX_CHUNK_BYTES, Sizes
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import AnyText, Encoded, EncodedTexts, Ids, Tokenizer, all_to_utf8, tokenizer_for

Offsets = npt.NDArray[np.int64]


class SplicedIds(NamedTuple):
    """Ids of all pieces, and the offset of each piece's ids. A piece is a document, or a part of a large document."""

    ids: Ids
    offsets: Offsets


def splice(ids: Ids, offsets: Offsets, missing: Sequence[int], encode: Callable[[int], Ids]) -> SplicedIds:
    """Replace the ids of missing pieces, which are absent or invalid. `encode` returns the ids of a piece by its index.

    For example, if `encode(1)` returns y y:

    ids a a x b, offsets 0 2 3 4, missing [1] -> ids a a y y b, offsets 0 2 4 5
    """
    if not len(missing):
        return SplicedIds(ids, offsets)
    parts, counts, done = list[Ids](), np.diff(offsets), 0
    for piece in missing:
        found = encode(piece).astype(ids.dtype)
        counts[piece] = len(found)
        parts += [ids[offsets[done] : offsets[piece]], found]
        done = piece + 1
    parts.append(ids[offsets[done] :])
    return SplicedIds(np.concatenate(parts), np.concatenate(([0], np.cumsum(counts))))


Bytes = npt.NDArray[np.uint8]
Destination = Literal["machine", "card"]
"""Memory for the ids: "machine" is host memory, "card" is GPU memory."""
GetText = Callable[[int], bytes]
"""Function that returns the text of a piece, given the index of the piece."""
NO_BYTES: Bytes = np.zeros(0, np.uint8)
MakeGpu = Callable[[tuple[str, ...]], Gpu]
"""Function that opens a GPU, given the compiler options for the kernels."""

DEFAULT_CHUNK_BYTES = MAX_CHUNK_BYTES
"""Number of bytes of text that the GPU processes at once. Smaller chunks leave part of the GPU idle."""
MIN_CHUNK_BYTES = 1 << 20
IDS_PER_FILE = 8192
"""Expected number of ids per file. The buffer grows if a batch has more."""
IDS_PER_BYTE = 0.6
"""Expected number of ids per byte of text. Code has 0.45 to 0.5. The buffer grows if a batch has more."""


class CudaTokenizer:
    """Thread-safe Tokenizer on a GPU, with a CPU engine for texts that the kernels cannot encode."""

    def __init__(self, cpu: Tokenizer, gpu: Gpu, engine: Engine) -> None:
        self._cpu, self._gpu, self._engine = cpu, gpu, engine
        self.definition = cpu.definition
        self.engine = f"{cpu.engine} and CUDA kernels on {gpu.name}"
        self.device_name: str = gpu.name
        self.vocab_size, self.decodes_exactly = cpu.vocab_size, cpu.decodes_exactly
        self._dtype = np.uint16 if engine.sizes.id_bytes == np.dtype(np.uint16).itemsize else np.uint32
        self._staging: StagingBuffers | None = None
        self._reader: FileReader | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls, definition: Definition, *, chunk_bytes: int = DEFAULT_CHUNK_BYTES, architecture: str | None = None
    ) -> "CudaTokenizer":
        """Load a tokenizer on the first GPU.

        Set `architecture`, for example to "80" for Ampere, to compile the kernels for an older GPU. Raise DeviceError
        or MissingExtraError if the machine has no usable GPU, and NotOnGpuError if the tokenizer is not supported on a
        GPU.
        """

        def cupy_gpu(options: tuple[str, ...]) -> Gpu:
            require_cuda()
            from gristmill.tokenizers.cuda.cupy_gpu import CupyGpu  # noqa: PLC0415 - an optional dependency

            return CupyGpu(options, architecture=architecture)

        return cls.with_gpu(definition, cupy_gpu, chunk_bytes=chunk_bytes)

    @classmethod
    def with_gpu(
        cls,
        definition: Definition,
        make_gpu: MakeGpu,
        *,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        num_slots: int | None = None,
    ) -> "CudaTokenizer":
        """Load a tokenizer on any implementation of the Gpu protocol.

        `num_slots` is the capacity of the word table, in which the GPU caches the ids of words. By default, the words
        of a chunk fill at most half of the table if they have eight bytes on average.
        """
        pattern, tables = Pattern.of(definition), MergeTables.of(definition)
        gpu = make_gpu(compile_options(pattern, tables.id_bits))
        engine = _create_engine(gpu, tables, character_classes(pattern), chunk_bytes, num_slots)
        return cls(tokenizer_for(definition), gpu, engine)

    def encode(self, text: AnyText, *, with_starts: bool = False) -> Encoded:
        """Encode one text on the CPU, because the transfer to the GPU would take longer."""
        return self._cpu.encode(text, with_starts=with_starts)

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(all_to_utf8(texts, self.definition.name), with_starts=with_starts).split()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        """Encode all texts into one record.

        Only gigatoken can derive positions from ids. If the CPU engine is not gigatoken, the CPU encodes all texts.
        """
        if not isinstance(self._cpu, FastTokenizer):
            return self._cpu.encode_all(texts, with_starts=with_starts)
        batch = self.encode_batch(texts)
        return self._cpu.annotate(batch.ids, batch.offsets, texts, with_starts=with_starts)

    def decode(self, ids: npt.ArrayLike) -> bytes:
        return self._cpu.decode(ids)

    def encode_batch(self, texts: Sequence[AnyText], *, to: Destination = "machine") -> Batch:
        """Encode each text. Raise TokenizerError with the index of a text that is not valid UTF-8.

        The GPU validates UTF-8 while it searches for words, at no extra cost.
        """
        return self._encode_batch(_as_bytes(texts, self.definition.name), to)

    def _encode_batch(self, texts: Sequence[bytes], to: Destination) -> Batch:
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
        if np.diff(offsets).max(initial=0) > self._engine.sizes.chunk_bytes:
            return self.encode_joined(np.frombuffer(b"".join(texts), np.uint8), offsets, to=to)
        pieces = cut_into_pieces(NO_BYTES, offsets, self._engine.sizes.chunk_bytes)
        with self._exclusive_use():
            staged = self._get_staging().fill_each(self._spans(pieces), DocumentList(list(texts), offsets).fill)
            return self._encode(staged, pieces, lambda piece: texts[piece], to)

    def encode_joined(self, text: Bytes, offsets: Offsets, *, to: Destination = "machine") -> Batch:
        """Encode concatenated documents. Document n is `text[offsets[n] : offsets[n + 1]]`.

        Text in pinned memory (see `pinned` and `pin`) is copied at the full speed of the bus. Raise InputError if the
        offsets do not ascend or are outside the text.
        """
        _check_offsets(text, offsets)
        pieces = cut_into_pieces(text, offsets, self._engine.sizes.chunk_bytes)
        with self._exclusive_use():
            if text.flags.c_contiguous and self._gpu.is_pinned(text):
                texts: Iterable[Text] = self._texts_in_place(text, pieces)
            else:
                texts = self._get_staging().fill_ahead(self._spans(pieces), JoinedDocuments(text, pieces.offsets).fill)
            edges = pieces.offsets
            return self._encode(texts, pieces, lambda piece: text[edges[piece] : edges[piece + 1]].tobytes(), to)

    def pinned(self, num_bytes: int) -> Bytes:
        """Return new page-locked host memory, which the GPU reads directly."""
        return self._gpu.pinned(num_bytes)

    def pin(self, memory: Bytes) -> None:
        """Page-lock existing host memory until `unpin`."""
        self._gpu.pin(memory)

    def unpin(self, memory: Bytes) -> None:
        self._gpu.unpin(memory)

    def forget(self) -> None:
        """Clear the word table, as if no text had been encoded yet."""
        with self._exclusive_use():
            self._engine.forget()

    def stage_seconds(self, text: Bytes, offsets: Offsets) -> dict[str, float]:
        """Measure the time that each kernel takes for these documents."""
        pieces = cut_into_pieces(text, offsets, self._engine.sizes.chunk_bytes)
        with self._exclusive_use():
            return self._engine.stage_seconds(self._texts_in_place(text, pieces))

    def copy_seconds(self, num_bytes_in: int, num_bytes_out: int) -> dict[str, float]:
        """Measure the duration of copies to the GPU (`in`), from the GPU (`out`), and in both directions (`both`)."""
        return self._gpu.copy_seconds(num_bytes_in, num_bytes_out)

    def encode_files(self, paths: Sequence[str], *, to: Destination = "machine") -> Batch:
        """Encode each file as one document. A few processes read the files into memory that the GPU accesses directly.

        If a file is larger than a buffer of these processes, this process reads all files instead.

        Raise InputError if a file cannot be read, and TokenizerError if a file is not valid UTF-8.
        """
        sizes: list[int] = []
        with self._exclusive_use():
            self._reader = self._reader or FileReader(self._gpu, self._engine.sizes.chunk_bytes, os.cpu_count() or 1)
            buffer = self._new_buffer(len(paths) * IDS_PER_FILE, to)
            try:
                self._engine.run(self._reader.texts([os.fsencode(path) for path in paths], sizes), buffer)
            except FileTooLargeError:
                pass
            except BaseException:  # the processes may still be busy, so the next call starts new ones
                self._reader.close()
                self._reader = None
                raise
            else:
                pieces = cut_into_pieces(NO_BYTES, np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), sys.maxsize)
                return self._merge_cpu_ids(buffer, pieces, lambda piece: _read_file(paths[piece]), to)
        return self.encode_batch([_read_file(path) for path in paths], to=to)

    @contextmanager
    def _exclusive_use(self) -> Iterator[None]:
        """Let one thread at a time use the GPU."""
        with self._lock, self._gpu.in_use():
            yield

    def _spans(self, pieces: Pieces) -> Iterator[PieceRange]:
        return group_into_chunks(pieces, self._engine.sizes.chunk_bytes, self._engine.sizes.max_documents)

    def _texts_in_place(self, text: Bytes, pieces: Pieces) -> Iterator[Text]:
        edges = pieces.offsets
        for first, end in self._spans(pieces):
            yield Text(text[edges[first] : edges[end]], edges[first:end] - edges[first])

    def _get_staging(self) -> StagingBuffers:
        self._staging = self._staging or StagingBuffers(self._gpu, self._engine.sizes.chunk_bytes)
        return self._staging

    def _new_buffer(self, expected_ids: int, to: Destination) -> IdBuffer:
        return (GpuIdBuffer if to == "card" else IdBuffer)(self._gpu, self._dtype, expected_ids)

    def _encode(self, texts: Iterable[Text], pieces: Pieces, get_text: GetText, to: Destination) -> Batch:
        buffer = self._new_buffer(int((pieces.offsets[-1] - pieces.offsets[0]) * IDS_PER_BYTE), to)
        self._engine.run(texts, buffer)
        return self._merge_cpu_ids(buffer, pieces, get_text, to)

    def _encode_on_cpu(self, piece: int, pieces: Pieces, get_text: GetText) -> Ids:
        try:
            return self._cpu.encode(get_text(piece)).ids
        except TokenizerError as error:
            document = int(np.searchsorted(pieces.first_pieces, piece, "right")) - 1
            begin = int(pieces.offsets[piece] - pieces.offsets[pieces.first_pieces[document]])
            where = f", in the part from byte {begin} on" if begin else ""
            raise TokenizerError(f"document {document}{where}: {error}") from None

    def _merge_cpu_ids(self, buffer: IdBuffer, pieces: Pieces, get_text: GetText, to: Destination) -> Batch:
        counts = np.zeros(len(pieces.too_long), np.int64)
        missing = pieces.too_long.copy()
        if buffer.counts:
            counts[~pieces.too_long] = np.concatenate(buffer.counts)
            missing[~pieces.too_long] = np.concatenate(buffer.flags)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        on_cpu = np.flatnonzero(missing).tolist()
        move = self._gpu.array_of if to == "card" else np.asarray
        ids, offsets = splice(
            buffer.ids, offsets, on_cpu, lambda piece: move(self._encode_on_cpu(piece, pieces, get_text))
        )
        return Batch(ids, move(offsets[pieces.first_pieces]), len(on_cpu))


def _as_bytes(texts: Sequence[AnyText], tokenizer: str) -> Sequence[bytes]:
    """Convert str to UTF-8. Bytes are not checked, because the check would take longer than encoding on the GPU."""
    if any(type(text) is not bytes for text in texts):
        return all_to_utf8(texts, tokenizer)
    return cast("Sequence[bytes]", texts)


def _check_offsets(text: Bytes, offsets: Offsets) -> None:
    """Raise InputError if the offsets are invalid. The kernels do not check them."""
    is_valid = text.dtype == np.uint8 and text.ndim == 1 and offsets.dtype == np.int64 and len(offsets) > 0
    if not is_valid or offsets[0] < 0 or offsets[-1] > len(text) or bool((offsets[1:] < offsets[:-1]).any()):
        raise InputError(
            "encode_joined needs a text of uint8, and int64 offsets that ascend from the start of the first document "
            f"to the end of the last document, within the text. Got {len(text):,} bytes of text as {text.dtype}, and "
            f"{len(offsets):,} offsets as {offsets.dtype}."
        )


def _read_file(path: str) -> bytes:
    try:
        with open_plain(path) as stream:
            return stream.read()
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}.") from None


def _create_engine(gpu: Gpu, tables: MergeTables, classes: Bytes, chunk_bytes: int, num_slots: int | None) -> Engine:
    """Create the engine, with smaller chunks if GPU memory is short."""
    size = chunk_bytes = min(chunk_bytes, MAX_CHUNK_BYTES)
    while True:
        try:
            engine = Engine(gpu, tables, classes, Sizes.of(size, tables.id_bits, num_slots=num_slots))
        except MemoryError:
            gpu.free()
            size //= 2
            if size < MIN_CHUNK_BYTES:
                raise DeviceError(
                    f"{gpu.name} has too little free memory to tokenize. Free some memory, or leave out --device cuda."
                ) from None
            continue
        if size < chunk_bytes:
            warnings.warn(f"{gpu.name} has little free memory: using chunks of {size >> 20} MB", stacklevel=3)
        return engine
