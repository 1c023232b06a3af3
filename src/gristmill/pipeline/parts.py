"""Parts: files in the work folder that store documents between the steps of a build.

Step 1 writes the documents of each batch of files to a part. Step 2 writes the documents that it makes to other parts:
variants, documents rewritten for fill-in-the-middle, and benchmarks. A part is named by a digest of its inputs (only
the part of the benchmarks has a fixed name), and ends with a digest of its name and content:

    ids of each document | keys of near-duplicates | anchors of shared spans
    documents | renamed drops | facts | drops | keys of the files | missing variants | files not rewritten
    lengths | sha256

So any build can reuse an existing part, and detects a truncated or altered part. Anchors are short sequences of tokens
with which splits/shared_spans.py finds longer shared spans.
"""

import hashlib
import os
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import open_plain
from gristmill.core.records import (
    AnyStoredText,
    DocumentFacts,
    Drop,
    NotRewritten,
    NoVariant,
    PlacedDocument,
    TokenizedDocument,
)
from gristmill.dedup.signatures import NUM_BANDS, Keys
from gristmill.formats.document_columns import DocumentText, Tokens
from gristmill.splits.shared_spans import Anchors, KeyTable, Positions
from gristmill.tokenizers.tokenizer import Encoded, Tokenizer

# Between steps 1 and 3, the ids of a document are stored as a block in a part.

MAX_OPEN_PARTS = 200
NO_TOKENS = np.zeros(0, np.int32)
GAP_BYTES = 1 << 14
"""Largest gap between two blocks that are read together. Reading the gap costs less than a second read."""


class Block(NamedTuple):
    ids: npt.NDArray[Any]
    newline_tokens: npt.NDArray[np.int32]
    text: DocumentText | None
    clean_ids: npt.NDArray[Any] | None = None
    """Ids without noise, or None if `ids` has no noise."""

    @classmethod
    def of(cls, encoded: Encoded, utf8: bytes, vocab_size: int) -> "Block":
        text = None if encoded.starts is None else DocumentText(utf8, encoded.starts)
        return cls(encoded.ids.astype(_id_type(vocab_size)), encoded.newline_tokens, text)


def _id_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def block_bytes(block: Block) -> bytes:
    text = () if block.text is None else (block.text.starts.tobytes(), block.text.utf8)
    clean = b"" if block.clean_ids is None else block.clean_ids.tobytes()
    return b"".join((block.ids.tobytes(), block.newline_tokens.tobytes(), clean, *text))


def block_text(block: Block, text_sha256: str, tokenizer: Tokenizer) -> bytes | None:
    """Return the text that was tokenized, or None if the tokenizer cannot restore it."""
    text = block.text.utf8 if block.text is not None else tokenizer.decode(block.ids)
    return text if hashlib.sha256(text).hexdigest() == text_sha256 else None


def ids_bytes(ids: npt.NDArray[Any], vocab_size: int) -> bytes:
    return ids.astype(_id_type(vocab_size)).tobytes()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Read `size` bytes, or up to the end of the file. Loop, because one system call reads at most 2 GiB."""
    content = os.pread(descriptor, size, offset)
    while len(content) < size and (more := os.pread(descriptor, size - len(content), offset + len(content))):
        content += more
    return content


def read_ids(folder: Path, texts: Sequence[AnyStoredText], vocab_size: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the ids of each text in the given order. Consecutive texts of one part share one open file."""
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
    """Reader of the ids of single texts in any order. It keeps the most recently used parts open."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._folder, self._kind = str(folder), np.dtype(_id_type(vocab_size))
        self._descriptors: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def ids_of(self, text: AnyStoredText) -> npt.NDArray[Any]:
        size = text.num_tokens * self._kind.itemsize
        return np.frombuffer(read_at(self._descriptor(text.part), size, text.part_offset), self._kind)

    def _descriptor(self, part: str) -> int:
        if part not in self._descriptors:
            if len(self._descriptors) == MAX_OPEN_PARTS:
                os.close(self._descriptors.popitem(last=False)[1])
            self._descriptors[part] = os.open(f"{self._folder}/{part}", os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors.move_to_end(part)
        return self._descriptors[part]


def join_blocks(blocks: Sequence[Block]) -> Tokens:
    """Concatenate the blocks of several documents."""
    return Tokens(
        ids=np.concatenate([block.ids for block in blocks]) if blocks else np.zeros(0, np.uint16),
        edges=np.cumsum([0, *(len(block.ids) for block in blocks)]),
        newline_tokens=np.concatenate([NO_TOKENS, *(block.newline_tokens for block in blocks)]),
        newline_edges=np.cumsum([0, *(len(block.newline_tokens) for block in blocks)]),
        texts=[block.text for block in blocks if block.text is not None],
        clean_ids=[block.clean_ids for block in blocks],
    )


def read_blocks(
    folder: Path, documents: Sequence[PlacedDocument], vocab_size: int
) -> Iterator[tuple[PlacedDocument, Block]]:
    """Yield each document with its block, in the given order.

    A part is opened once for consecutive documents, and adjacent blocks are read together.
    """
    for part, group in groupby(documents, key=lambda document: document.part):
        descriptor = os.open(folder / part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for run in _adjacent_runs(list(group)):
                first, last = run[0], run[-1]
                size = last.part_offset + last.part_bytes - first.part_offset
                content = read_at(descriptor, size, first.part_offset)
                for document in run:
                    yield (
                        document,
                        _block_from_bytes(content, document.part_offset - first.part_offset, document, vocab_size),
                    )
        finally:
            os.close(descriptor)


def _adjacent_runs(documents: Sequence[PlacedDocument]) -> Iterator[Sequence[PlacedDocument]]:
    """Split documents of one part into runs whose blocks are close together and in the order of the part."""
    start = 0
    for index in range(1, len(documents) + 1):
        if index < len(documents):
            previous, document, first = documents[index - 1], documents[index], documents[start]
            gap = document.part_offset - previous.part_offset - previous.part_bytes
            if 0 <= gap <= GAP_BYTES and document.part_offset - first.part_offset <= CHUNK_BYTES:
                continue
        yield documents[start:index]
        start = index


def _block_from_bytes(content: bytes, offset: int, document: PlacedDocument, vocab_size: int) -> Block:
    end = offset + document.part_bytes
    ids = np.frombuffer(content, _id_type(vocab_size), document.num_tokens, offset)
    offset += ids.nbytes
    newline_tokens = np.frombuffer(content, np.int32, document.num_newlines, offset)
    offset += newline_tokens.nbytes
    variant, clean_ids = document.variant, None
    if variant is not None and variant.has_labels:
        clean_ids = np.frombuffer(content, ids.dtype, variant.num_file_tokens, offset)
        offset += clean_ids.nbytes
    if offset == end:
        return Block(ids, newline_tokens, None, clean_ids)
    num_starts = 1 + (document.num_tokens if clean_ids is None else len(clean_ids))
    starts = np.frombuffer(content, np.int64, num_starts, offset)
    return Block(ids, newline_tokens, DocumentText(content[offset + starts.nbytes : end], starts), clean_ids)


def with_interned_strings(document: PlacedDocument) -> PlacedDocument:
    """Return the document with its frequent strings interned, to save memory."""
    return msgspec.structs.replace(
        document,
        repo=sys.intern(document.repo),
        language=sys.intern(document.language),
        part=sys.intern(document.part),
        license=sys.intern(document.license),
        license_from=sys.intern(document.license_from) if document.license_from is not None else None,
    )


SUFFIX = ".part"
LENGTHS = struct.Struct("<10Q")
DIGEST_BYTES = 32
CHUNK_BYTES = 1 << 22

IDS, BANDS, ANCHORS, DOCUMENTS, RENAMED, FACTS, DROPS, KEYS, NO_VARIANTS, NOT_REWRITTEN = range(10)


class Part(NamedTuple):
    """Content of a part."""

    blocks: Sequence[bytes]
    bands: Keys
    anchors: Anchors
    documents: Sequence[TokenizedDocument] | Sequence[PlacedDocument]
    """Documents in the order of their blocks. Variants have the split and group of their files."""
    facts: Sequence[DocumentFacts]
    """Facts of the documents, in the same order."""
    drops: Sequence[Drop]
    """Drops in path order."""
    renamed: Sequence[Drop]
    """Drops whose file names contained a secret. Redaction changes the name, and so the position in path order."""
    keys: "FileKeys"
    no_variants: Sequence[NoVariant] = ()
    not_rewritten: Sequence[NotRewritten] = ()


class FileKeys(msgspec.Struct, frozen=True, array_like=True):
    """Digests of the files' names and contents. A later build uses them to find files that it can reuse."""

    documents: list[bytes] = []
    drops: list[bytes] = []


def write_part(path: Path, part: Part) -> None:
    encode = msgspec.msgpack.encode
    tables = [encode(part.documents), encode(part.renamed), encode(part.facts), encode(part.drops)]
    tables += [encode(part.keys), encode(part.no_variants), encode(part.not_rewritten)]
    tables = [part.bands.tobytes(), _anchor_bytes(part.anchors), *tables]
    content = [*part.blocks, *tables, LENGTHS.pack(sum(map(len, part.blocks)), *map(len, tables))]
    if sum(map(len, content)) <= CHUNK_BYTES:
        content = [b"".join(content)]
    write_atomically(path, [*content, _digest([path.name.encode(), *content])], is_synced=False)


def _anchor_bytes(anchors: Anchors) -> bytes:
    """Encode the number of anchors of each text, the distances between anchors (one byte each), and the keys."""
    steps = np.diff(anchors.positions, prepend=anchors.positions[:1])
    first_indices = _first_indices(anchors.counts)
    steps[first_indices] = anchors.positions[first_indices]
    return b"".join(
        (
            len(anchors.counts).to_bytes(4, "little"),
            anchors.counts.astype(np.uint32).tobytes(),
            steps.astype(np.uint8).tobytes(),
            anchors.keys.tobytes(),
        )
    )


def _anchors_from_bytes(content: bytes, rows: Sequence[int] | None, table: KeyTable | None) -> Anchors:
    num_texts = int.from_bytes(content[:4], "little")
    counts = np.frombuffer(content, np.uint32, num_texts, 4).astype(np.int64)
    total = int(counts.sum())
    steps = np.frombuffer(content, np.uint8, total, 4 + 4 * num_texts)
    keys = np.frombuffer(content[4 + 4 * num_texts + total :], np.uint32)
    if rows is not None and len(rows) < num_texts:
        is_selected = np.zeros(num_texts, np.bool_)
        is_selected[list(rows)] = True
        is_anchor_selected = np.repeat(is_selected, counts)
        counts, steps, keys = counts[is_selected], steps[is_anchor_selected], keys[is_anchor_selected]
    found = table.may_contain(keys) if table is not None else None
    if found is not None and not found.any():  # true for most parts if few files have changed
        return Anchors(np.zeros_like(counts), np.zeros(0, np.uint32), keys[:0])
    sums = np.cumsum(steps, dtype=np.uint32)
    first_indices = _first_indices(counts)
    positions = sums - np.repeat(sums[first_indices] - steps[first_indices], counts[counts > 0])
    if found is None:
        return Anchors(counts, positions, keys)
    texts = np.repeat(np.arange(len(counts)), counts)[found]
    return Anchors(np.bincount(texts, minlength=len(counts)), positions[found], keys[found])


def _first_indices(counts: Positions) -> Positions:
    """Return the index of the first anchor of each text that has anchors."""
    return (np.cumsum(counts) - counts)[counts > 0]


def _digest(content: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in content:
        digest.update(chunk)
    return digest.digest()


def is_intact(path: Path) -> bool:
    """True if the part exists and its digest matches its name and content."""
    digest = hashlib.sha256(path.name.encode())
    try:
        with open_plain(path) as stream:
            num_left = os.fstat(stream.fileno()).st_size - DIGEST_BYTES
            while num_left > 0 and (chunk := stream.read(min(num_left, CHUNK_BYTES))):
                digest.update(chunk)
                num_left -= len(chunk)
            return num_left == 0 and stream.read() == digest.digest()
    except OSError:
        return False


class PartStore(msgspec.Struct, frozen=True):
    """Access to a folder of parts. A store is small and picklable, and every process opens the parts itself."""

    folder: Path
    vocab_size: int

    def open(self) -> IdReader:
        return IdReader(self.folder, self.vocab_size)

    def read_ids(self, texts: Sequence[AnyStoredText]) -> Iterator[npt.NDArray[Any]]:
        return read_ids(self.folder, texts, self.vocab_size)

    def anchors(self, part: str, rows: Sequence[int], table: KeyTable | None) -> Anchors:
        return PartReader(self.folder, part).anchors(rows, table)


class PartReader:
    """Reader of the tables of one part. It reads each table on demand."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path, self._name = folder / name, name
        with open_plain(self._path) as stream:
            stream.seek(-LENGTHS.size - DIGEST_BYTES, os.SEEK_END)
            self._lengths = LENGTHS.unpack(stream.read(LENGTHS.size))

    def keys(self) -> FileKeys:
        return msgspec.msgpack.decode(self._read(KEYS), type=FileKeys)

    def bands(self) -> Keys:
        return np.frombuffer(self._read(BANDS), np.uint64).reshape(-1, NUM_BANDS)

    def anchors(self, rows: Sequence[int] | None = None, table: KeyTable | None = None) -> Anchors:
        """Return the anchors of all texts, or only of the texts with the indices `rows`, which must be ascending.

        If `table` is given, return only anchors whose keys the table may contain.
        """
        return _anchors_from_bytes(self._read(ANCHORS), rows, table)

    def documents(self) -> list[TokenizedDocument]:
        documents: list[TokenizedDocument] = self._table(DOCUMENTS, list[TokenizedDocument])
        return documents

    def variants(self) -> list[PlacedDocument]:
        variants: list[PlacedDocument] = self._table(DOCUMENTS, list[PlacedDocument])
        return list(map(with_interned_strings, variants))

    def renamed(self) -> list[Drop]:
        drops: list[Drop] = self._table(RENAMED, list[Drop])
        return drops

    def facts(self) -> list[DocumentFacts]:
        facts: list[DocumentFacts] = self._table(FACTS, list[DocumentFacts])
        return facts

    def drops(self) -> list[Drop]:
        drops: list[Drop] = self._table(DROPS, list[Drop])
        return drops

    def no_variants(self) -> list[NoVariant]:
        failed: list[NoVariant] = self._table(NO_VARIANTS, list[NoVariant])
        return failed

    def not_rewritten(self) -> list[NotRewritten]:
        files: list[NotRewritten] = self._table(NOT_REWRITTEN, list[NotRewritten])
        return files

    def _table(self, table: int, kind: Any) -> Any:
        return msgspec.msgpack.decode(self._read(table), type=kind)

    def _read(self, table: int) -> bytes:
        with open_plain(self._path) as stream:
            stream.seek(sum(self._lengths[:table]))
            return stream.read(self._lengths[table])
