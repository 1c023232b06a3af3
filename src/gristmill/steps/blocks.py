"""A document's ids on disk between prepare and shape: a block in the part of its batch.

ids (uint16 or uint32) | last tokens before each line feed (int32) | of noise: the clean ids | with text: token starts
(int64), UTF-8
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from gristmill.formats.jsonl import DocumentText
from gristmill.records import PreparedDocument, StoredText, VariantKind
from gristmill.tokenizing.tokenizer import Encoded

MAX_OPEN_PARTS = 200


class Block(NamedTuple):
    ids: npt.NDArray[Any]
    newline_tokens: npt.NDArray[np.int32]
    text: DocumentText | None
    clean_ids: npt.NDArray[Any] | None = None
    """Of a document with noise in its ids."""

    @classmethod
    def of(cls, encoded: Encoded, utf8: bytes, vocab_size: int) -> "Block":
        text = None if encoded.starts is None else DocumentText(utf8, encoded.starts)
        return cls(encoded.ids.astype(_id_type(vocab_size)), encoded.newline_tokens, text)


def _id_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def to_bytes(block: Block) -> bytes:
    text = () if block.text is None else (block.text.starts.tobytes(), block.text.utf8)
    clean = b"" if block.clean_ids is None else block.clean_ids.tobytes()
    return b"".join((block.ids.tobytes(), block.newline_tokens.tobytes(), clean, *text))


def ids_bytes(ids: npt.NDArray[Any], vocab_size: int) -> bytes:
    return ids.astype(_id_type(vocab_size)).tobytes()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """All of it: the system reads no more than 2 GiB at once."""
    content = os.pread(descriptor, size, offset)
    while len(content) < size and (more := os.pread(descriptor, size - len(content), offset + len(content))):
        content += more
    return content


def read_ids(folder: Path, texts: Sequence[StoredText], vocab_size: int) -> Iterator[npt.NDArray[Any]]:
    """In the order given; texts of one part next to each other cost one open."""
    kind = _id_type(vocab_size)
    for part, group in groupby(texts, key=lambda text: text.part):
        descriptor = os.open(folder / part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for text in group:
                size = text.num_tokens * np.dtype(kind).itemsize
                yield np.frombuffer(read_at(descriptor, size, text.part_offset), kind)
        finally:
            os.close(descriptor)


class IdReader:
    """Ids of single texts, in any order; the parts last used stay open."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._folder, self._kind = str(folder), np.dtype(_id_type(vocab_size))
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def ids_of(self, text: StoredText) -> npt.NDArray[Any]:
        size = text.num_tokens * self._kind.itemsize
        return np.frombuffer(read_at(self._descriptor(text.part), size, text.part_offset), self._kind)

    def _descriptor(self, part: str) -> int:
        if part not in self._descriptors:
            if len(self._descriptors) == MAX_OPEN_PARTS:
                os.close(self._descriptors.popitem(last=False)[1])
            self._descriptors[part] = os.open(f"{self._folder}/{part}", os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors.move_to_end(part)
        return self._descriptors[part]


def read_blocks(
    folder: Path, documents: Sequence[PreparedDocument], vocab_size: int
) -> Iterator[tuple[PreparedDocument, Block]]:
    """In the order given; documents of one part next to each other cost one open."""
    for part, group in groupby(documents, key=lambda document: document.part):
        descriptor = os.open(folder / part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for document in group:
                content = read_at(descriptor, document.part_bytes, document.part_offset)
                yield document, _from_bytes(content, document, vocab_size)
        finally:
            os.close(descriptor)


def _from_bytes(content: bytes, document: PreparedDocument, vocab_size: int) -> Block:
    ids = np.frombuffer(content, _id_type(vocab_size), document.num_tokens)
    at = ids.nbytes
    newline_tokens = np.frombuffer(content, np.int32, document.num_newlines, at)
    at += newline_tokens.nbytes
    variant, clean_ids = document.variant, None
    if variant is not None and variant.kind is VariantKind.NOISE:
        clean_ids = np.frombuffer(content, ids.dtype, variant.num_file_tokens, at)
        at += clean_ids.nbytes
    if at == len(content):
        return Block(ids, newline_tokens, None, clean_ids)
    num_starts = 1 + (document.num_tokens if clean_ids is None else len(clean_ids))
    starts = np.frombuffer(content, np.int64, num_starts, at)
    return Block(ids, newline_tokens, DocumentText(content[at + starts.nbytes :], starts), clean_ids)
