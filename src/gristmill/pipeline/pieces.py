"""Pieces of JSONL data files: their layout, the reuse of known pieces, and the data files that are made of pieces.

A piece is the rows of consecutive documents of one split. Known pieces are the pieces of the dataset that is being
replaced, and of a killed build. Each dataset has a log in the work folder that records the key, file, offset and
checksum of each piece. A piece is reused only if its bytes have the recorded checksum.
"""

import hashlib
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self

import msgspec

from gristmill.config.settings import OutputConfig
from gristmill.core.errors import OutputError
from gristmill.core.layout import data_file_name, write_atomically
from gristmill.core.manifest import FileFacts
from gristmill.core.partition import consecutive_groups, stable_groups
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.records import PlacedDocument, Split
from gristmill.formats.jsonl import max_piece_bytes
from gristmill.formats.shares import WrittenDataset
from gristmill.formats.zstd import Frame, encode_table
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.parts import read_at
from gristmill.pipeline.work_folder import Workspace

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

RECORD_HEADER = struct.Struct("<II")
"""Length and checksum before each record of the log. They reveal a truncated last record."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive documents of one split in path order, and the position of their rows in the output."""

    split: Split
    file: str
    offset: int
    num_bytes: int
    """Size of the uncompressed rows. For compressed files, `offset` is not used."""
    documents: list[PlacedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as msgpack, which is faster for thousands of documents."""
        return _decode_piece, (msgspec.msgpack.encode(self),)


def _decode_piece(packed: bytes) -> Piece:
    return msgspec.msgpack.decode(packed, type=Piece)


def make_pieces(documents: Iterable[PlacedDocument], config: OutputConfig) -> Iterator[Piece]:
    """Group documents into pieces. The pieces depend only on the documents and `config`, not on batches or workers."""
    by_split: dict[Split, list[PlacedDocument]] = {split: [] for split in Split}
    for document in documents:
        if document.num_windows:
            by_split[document.split].append(document)
    for split, members in by_split.items():
        runs = stable_groups(
            members, lambda one: one.path, lambda one: one.num_row_bytes, max_piece_bytes(config.shard_bytes)
        )
        files = list(consecutive_groups(runs, _num_bytes, config.shard_bytes))
        for index, file_runs in enumerate(files):
            name = data_file_name(split, index, len(files), compressed=config.compress == "zstd")
            offset = 0
            for run in file_runs:
                num_bytes = _num_bytes(run)
                yield Piece(split=split, file=name, offset=offset, num_bytes=num_bytes, documents=run)
                offset += num_bytes


def _num_bytes(documents: Sequence[PlacedDocument]) -> int:
    return sum(document.num_row_bytes for document in documents)


class ShapedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Result of shaping one piece."""

    num_rows: int
    num_bytes: int
    crc32: int
    """Checksum of the piece's bytes. It is verified when the bytes are read back for the SHA-256 of the file."""
    content: bytes
    """Concatenated digests of the rows, independent of the format."""
    frames: list[Frame] | None = None
    """Zstd frames of a compressed piece, or None if the piece is not compressed. A compressed piece is copied into the
    data file when the sizes of all pieces before it are known."""
    is_taken_over: bool = False
    """True if the piece was reused from an earlier build."""


class KnownPiece(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Record of a piece in the log."""

    key: str
    file: str
    """Name of the data file in the dataset folder. After the log is read, the path of the data file."""
    offset: int
    num_bytes: int
    num_rows: int
    crc32: int
    content: bytes
    """Concatenated digests of the rows."""
    frames: list[Frame] | None

    def read(self) -> bytes | None:
        """Return the bytes of the piece, or None if they are missing or do not have the recorded checksum."""
        try:
            content = self.read_unchecked()
        except OSError:
            return None
        return content if zlib.crc32(content) == self.crc32 else None

    def read_unchecked(self) -> bytes:
        descriptor = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_at(descriptor, self.num_bytes, self.offset)
        finally:
            os.close(descriptor)


class Task(NamedTuple):
    """A piece to shape, and the known piece with the same key, if there is one."""

    piece: Piece
    key: str
    known: KnownPiece | None = None

    @property
    def description(self) -> str:
        first, last = self.piece.documents[0].name, self.piece.documents[-1].name
        return f"the rows of {first if first == last else f'{first} to {last}'} in {self.piece.file}"


def pieces_of(context: Context, decision: Decision) -> list[Piece]:
    return list(make_pieces(decision.in_row_order(), context.config.output))


def piece_tasks(context: Context, pieces: Sequence[Piece], work: Workspace) -> list[Task]:
    """Return the tasks for JSONL rows. There are none if JSONL is not requested or rows are packed."""
    if not context.writes_pieces:
        return []
    if context.config.output.compress == "none":  # the size of compressed rows is not known in advance
        work.require_space(sum(piece.num_bytes for piece in pieces))
    return tasks_with_known(context, pieces, work)


def tasks_with_known(context: Context, pieces: Sequence[Piece], work: Workspace) -> list[Task]:
    """Return a task for each piece, with the known piece that has the same key, if there is one."""
    known = _pieces_in(work.target, work.pieces) | _pieces_in(context.dataset, _recover_log(context, work))
    keys = (piece_key(context, piece) for piece in pieces)
    return [Task(piece, key, known.get(key)) for piece, key in zip(pieces, keys, strict=True)]


def _pieces_in(folder: Path, log: Path) -> dict[str, KnownPiece]:
    """Return the pieces in a log, by key. Pieces whose data files are missing or too short are left out."""
    known = list(_read_log(log))
    sizes = {name: _file_size(folder / name) for name in {one.file for one in known}}
    return {
        one.key: msgspec.structs.replace(one, file=str(folder / one.file))
        for one in known
        if one.offset + one.num_bytes <= sizes[one.file]
    }


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _recover_log(context: Context, work: Workspace) -> Path:
    """Write the log of the pieces that killed builds have left in the incomplete dataset. Return the path of the log.

    Uncompressed pieces are already at their offsets. Compressed files are renamed, because this build writes new files
    with the same names.
    """
    known = {one.key: one for log in (work.half_pieces, work.log) for one in _read_log(log)}
    new_names: dict[str, str] = {}
    for index, path in enumerate(sorted(context.dataset.glob("*.zst"))):
        new_names[path.name] = f"half-{secrets.token_hex(4)}-{index}"
        os.replace(path, context.dataset / new_names[path.name])
    records = [_record(msgspec.structs.replace(one, file=new_names.get(one.file, one.file))) for one in known.values()]
    write_atomically(work.half_pieces, records, is_synced=False)
    return work.half_pieces


def piece_key(context: Context, piece: Piece) -> str:
    documents = [
        (
            one.repo,
            one.path,
            one.language,
            one.text_sha256,
            one.cuts,
            one.drops_touched_windows,
            one.draw,
            one.weight,
            one.variant,
            one.fim,
        )
        for one in piece.documents
    ]
    return key_of(context.rows_key, context.config.output.compress, documents)[:40]


class PieceLog:
    """Log of pieces, written piece by piece. After a kill, the log is valid up to its last complete record."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._stream = self._path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def add(self, piece: KnownPiece) -> None:
        self._stream.write(_record(piece))
        self._stream.flush()


def _record(piece: KnownPiece) -> bytes:
    record = msgspec.msgpack.encode(piece)
    return RECORD_HEADER.pack(len(record), zlib.crc32(record)) + record


def _read_log(path: Path) -> Iterator[KnownPiece]:
    try:
        content = read_plain(path)
    except OSError:
        return
    position = 0
    while position + RECORD_HEADER.size <= len(content):
        length, checksum = RECORD_HEADER.unpack_from(content, position)
        record = content[position + RECORD_HEADER.size : position + RECORD_HEADER.size + length]
        if len(record) != length or zlib.crc32(record) != checksum:
            return
        try:
            yield msgspec.msgpack.decode(record, type=KnownPiece)
        except msgspec.MsgspecError:  # written by a different version of gristmill
            return
        position += RECORD_HEADER.size + length


# Data files are made of pieces. The size, number of rows and SHA-256 of each data file are recorded.

BYTES_AT_ONCE = 1 << 22


class DataFiles:
    """Writer of a dataset's data files and of the log of pieces. Pieces must be added in the order of the rows."""

    def __init__(
        self, context: Context, log: Path, *, keeps_compressed: bool = False, reads_back_in_threads: bool = False
    ) -> None:
        """Create a writer of the data files.

        With `keeps_compressed`, compressed pieces are not deleted after copying, so that a killed step can be repeated.
        With `reads_back_in_threads`, pieces are read back in threads, so that workers do not wait for digests.
        """
        self._context, self._keeps_compressed = context, keeps_compressed
        self._log = PieceLog(log)
        self._files: list[_DataFile] = []
        self._make_executor = _new_executor if reads_back_in_threads else None
        self.written = WrittenDataset()

    def __enter__(self) -> Self:
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._close_file()
                self.written.facts |= {file.name: file.facts() for file in self._files}
        finally:
            for file in self._files:
                file.cancel()
            self._log.__exit__(kind, error, trace)

    def add(self, task: Task, shaped: ShapedPiece) -> None:
        piece = task.piece
        if not self._files or self._files[-1].name != piece.file:
            self._close_file()
            self._files.append(_DataFile(self._context.dataset, piece, self._make_executor))
        self.written.add_content("jsonl", piece.split, shaped.content)
        compressed = compressed_content(self._context, task, shaped) if shaped.frames is not None else None
        offset = self._files[-1].add(shaped, compressed)
        if compressed is not None and not self._keeps_compressed:
            delete_compressed(self._context, task)
        self._log.add(
            KnownPiece(
                key=task.key,
                file=piece.file,
                offset=offset,
                num_bytes=shaped.num_bytes,
                num_rows=shaped.num_rows,
                crc32=shaped.crc32,
                content=shaped.content,
                frames=shaped.frames,
            )
        )

    def _close_file(self) -> None:
        if self._files:
            self._files[-1].close()


def _new_executor() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - small builds do not need it

    return ThreadPoolExecutor(1)


class _DataFile:
    """Writer of one data file. With executors, one thread computes the SHA-256, and another verifies checksums."""

    def __init__(self, folder: Path, first: Piece, make_executor: "Callable[[], ThreadPoolExecutor] | None") -> None:
        self.name, self._split = first.file, first.split
        self._path = folder / self.name
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._num_rows = 0
        self._frames: list[Frame] = []
        self._executors = [] if make_executor is None else [make_executor(), make_executor()]
        self._pending: list[Future[None]] = []

    def add(self, shaped: ShapedPiece, compressed: bytes | None) -> int:
        """Add a piece and return its offset in the file."""
        offset = self._num_bytes
        self._num_rows += shaped.num_rows
        if compressed is not None:
            self._require_checksum(zlib.crc32(compressed), shaped)
            self._append(compressed)
            self._frames += shaped.frames or []
        else:
            self._num_bytes += shaped.num_bytes
            if self._executors:
                digests, checks = self._executors
                self._pending.append(checks.submit(self._read_back, shaped, offset, is_digested=False))
                self._pending.append(digests.submit(self._read_back, shaped, offset, is_checked=False))
            else:
                self._read_back(shaped, offset)
        return offset

    def close(self) -> None:
        """Close the file after its last piece."""
        if self._stream is not None:
            self._append(encode_table(self._frames))
            self._stream.close()
        else:
            os.truncate(self._path, self._num_bytes)  # an earlier attempt may have written a longer file
        for executor in self._executors:
            executor.shutdown(wait=False)

    def cancel(self) -> None:
        for executor in self._executors:
            executor.shutdown(cancel_futures=True)

    def facts(self) -> FileFacts:
        for one in self._pending:
            one.result()
        return FileFacts(
            bytes=self._num_bytes,
            sha256=self._digest.hexdigest(),
            rows=self._num_rows,
            split=self._split,
            format="jsonl",
        )

    def _append(self, content: bytes) -> None:
        if self._stream is None:
            self._stream = self._path.open("wb")
        self._stream.write(content)
        self._stream.flush()
        self._digest.update(content)
        self._num_bytes += len(content)

    def _read_back(
        self, shaped: ShapedPiece, offset: int, *, is_checked: bool = True, is_digested: bool = True
    ) -> None:
        crc32 = 0
        with open_plain(self._path) as stream:
            stream.seek(offset)
            for position in range(0, shaped.num_bytes, BYTES_AT_ONCE):
                chunk = stream.read(min(BYTES_AT_ONCE, shaped.num_bytes - position))
                if is_checked:
                    crc32 = zlib.crc32(chunk, crc32)
                if is_digested:
                    self._digest.update(chunk)
        if is_checked:
            self._require_checksum(crc32, shaped)

    def _require_checksum(self, crc32: int, shaped: ShapedPiece) -> None:
        if crc32 != shaped.crc32:
            raise OutputError(
                f"{str(self._path)!r} does not contain the bytes that were written. Check the disk or the network "
                "folder, then run the command again."
            )


def compressed_content(context: Context, task: Task, shaped: ShapedPiece) -> bytes:
    """Read the bytes of a compressed piece, from the file of the known piece if the piece is reused."""
    if shaped.is_taken_over:
        assert task.known is not None, "a reused piece has a known piece"
        return task.known.read_unchecked()
    return read_plain(compressed_file(context, task))


def delete_compressed(context: Context, task: Task) -> None:
    """Delete the file of a compressed piece after it has been copied to its data file."""
    compressed_file(context, task).unlink(missing_ok=True)


def compressed_file(context: Context, task: Task) -> Path:
    return context.scratch / f"{task.key}.zst"
