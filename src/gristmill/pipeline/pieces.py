"""Pieces of JSONL data files: where each goes, which are known already, and the files as they come in.

Those of the dataset that is replaced are known, and those of a build that was killed.

Each dataset has a log of its pieces in the work folder: by which key, where in which file, with which checksum.
Whatever a log says, a piece is taken over only if its bytes have that checksum.
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
from gristmill.core.partition import neighbours, steady_neighbours
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.records import PlacedDocument, Split
from gristmill.formats.jsonl import piece_bytes
from gristmill.formats.shares import AllFiles
from gristmill.formats.zstd import Frame, table_of
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.parts import read_at
from gristmill.pipeline.work_folder import Workspace

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

HEAD = struct.Struct("<II")
"""Length and checksum of a line of the log: the last one may be cut short."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of one split's documents, in path order, and its place in the output."""

    split: Split
    file: str
    offset: int
    num_bytes: int
    """Of rows; compressed they take less, and then the offset counts for nothing."""
    documents: list[PlacedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        """In a message to another process: there are thousands of documents, and pickle takes longer for them."""
        return _unpacked, (msgspec.msgpack.encode(self),)


def _unpacked(packed: bytes) -> Piece:
    return msgspec.msgpack.decode(packed, type=Piece)


def lay_out(documents: Iterable[PlacedDocument], config: OutputConfig) -> Iterator[Piece]:
    """Pieces depend on the documents alone, not on batches or workers, and so do the bytes written."""
    by_split: dict[Split, list[PlacedDocument]] = {split: [] for split in Split}
    for document in documents:
        if document.num_windows:
            by_split[document.split].append(document)
    for split, members in by_split.items():
        runs = steady_neighbours(
            members, lambda one: one.path, lambda one: one.num_row_bytes, piece_bytes(config.shard_bytes)
        )
        files = list(neighbours(runs, _num_bytes, config.shard_bytes))
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
    num_rows: int
    num_bytes: int
    crc32: int
    """Of its bytes: quick to take again when they are read back. The file's sha256 is taken then, once."""
    content: bytes
    """The digest of each row: what is in it, however it is written."""
    frames: list[Frame] | None = None
    """Of a compressed piece: where it goes is known only once those before it are, so it is copied there later."""
    is_taken_over: bool = False
    """It lies where an earlier build has written it."""


class KnownPiece(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    key: str
    file: str
    """Its name in the dataset folder; its path, once the log is read."""
    offset: int
    num_bytes: int
    num_rows: int
    crc32: int
    content: bytes
    """The digest of each row."""
    frames: list[Frame] | None

    def read(self) -> bytes | None:
        """Its bytes, if they are what they were."""
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
    piece: Piece
    key: str
    known: KnownPiece | None = None

    @property
    def told(self) -> str:
        first, last = self.piece.documents[0], self.piece.documents[-1]
        return f"the rows of {first.name} to {last.name} in {self.piece.file}"


def pieces_of(context: Context, decision: Decision) -> list[Piece]:
    return list(lay_out(decision.shown(), context.config.output))


def piece_tasks(context: Context, pieces: Sequence[Piece], work: Workspace) -> list[Task]:
    """Of JSONL rows; none where they are not wanted, or written in another way."""
    if not context.writes_pieces:
        return []
    if context.config.output.compress == "none":  # compressed they take less, nobody knows how much
        work.require_space(sum(piece.num_bytes for piece in pieces))
    return tasks_of(context, pieces, work)


def tasks_of(context: Context, pieces: Sequence[Piece], work: Workspace) -> list[Task]:
    """With what is known of them."""
    known = _placed(work.target, work.pieces) | _placed(context.dataset, _go_on(context, work))
    keys = (piece_key(context, piece) for piece in pieces)
    return [Task(piece, key, known.get(key)) for piece, key in zip(pieces, keys, strict=True)]


def _placed(folder: Path, log: Path) -> dict[str, KnownPiece]:
    """Those that can be there: a dataset may have been moved away, or be cut short."""
    known = list(_read_log(log))
    sizes = {name: _size_of(folder / name) for name in {one.file for one in known}}
    return {
        one.key: msgspec.structs.replace(one, file=str(folder / one.file))
        for one in known
        if one.offset + one.num_bytes <= sizes[one.file]
    }


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _go_on(context: Context, work: Workspace) -> Path:
    """The log of what builds that were killed have left in the dataset that grows.

    Plain rows are found at their place. Compressed files are written from their start, so they go out of the way.
    """
    known = {one.key: one for log in (work.half_pieces, work.log) for one in _read_log(log)}
    moved: dict[str, str] = {}
    for number, path in enumerate(sorted(context.dataset.glob("*.zst"))):
        moved[path.name] = f"half-{secrets.token_hex(4)}-{number}"
        os.replace(path, context.dataset / moved[path.name])
    lines = [_line(msgspec.structs.replace(one, file=moved.get(one.file, one.file))) for one in known.values()]
    write_atomically(work.half_pieces, lines, is_synced=False)
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
    """Written as pieces come in; what a kill leaves of it is good up to its last whole line."""

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
        self._stream.write(_line(piece))
        self._stream.flush()


def _line(piece: KnownPiece) -> bytes:
    line = msgspec.msgpack.encode(piece)
    return HEAD.pack(len(line), zlib.crc32(line)) + line


def _read_log(path: Path) -> Iterator[KnownPiece]:
    try:
        content = read_plain(path)
    except OSError:
        return
    at = 0
    while at + HEAD.size <= len(content):
        length, checksum = HEAD.unpack_from(content, at)
        line = content[at + HEAD.size : at + HEAD.size + length]
        if len(line) != length or zlib.crc32(line) != checksum:
            return
        try:
            yield msgspec.msgpack.decode(line, type=KnownPiece)
        except msgspec.MsgspecError:  # another version's
            return
        at += HEAD.size + length


# Pieces -> data files: they arrive in order, and the size, rows and sha256 of each file are counted.

BYTES_AT_ONCE = 1 << 22


class DataFiles:
    """The data files of a dataset as their pieces come in, file after file; and the log of these pieces."""

    def __init__(
        self, context: Context, log: Path, *, keeps_compressed: bool = False, reads_back_beside: bool = False
    ) -> None:
        """`keeps_compressed`: pieces stay where they lay, for whoever is killed over this and begins again.

        `reads_back_beside`: in threads, so that workers are not kept waiting for digests.
        """
        self._context, self._keeps_compressed = context, keeps_compressed
        self._log = PieceLog(log)
        self._files: list[_DataFile] = []
        self._make_lane = _thread if reads_back_beside else None
        self.all = AllFiles()

    def __enter__(self) -> Self:
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._end_file()
                self.all.facts |= {file.name: file.facts() for file in self._files}
        finally:
            for file in self._files:
                file.give_up()
            self._log.__exit__(kind, error, trace)

    def add(self, task: Task, shaped: ShapedPiece) -> None:
        piece = task.piece
        if not self._files or self._files[-1].name != piece.file:
            self._end_file()
            self._files.append(_DataFile(self._context.dataset, piece, self._make_lane))
        self.all.add_content("jsonl", piece.split, shaped.content)
        compressed = compressed_content(self._context, task, shaped) if shaped.frames is not None else None
        offset = self._files[-1].add(shaped, compressed)
        if compressed is not None and not self._keeps_compressed:
            forget_compressed(self._context, task)
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

    def _end_file(self) -> None:
        if self._files:
            self._files[-1].end()


def _thread() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - small builds do without

    return ThreadPoolExecutor(1)


class _DataFile:
    """With lanes, digest and checksums are taken each in its own: the digest of a file can only be taken in one go."""

    def __init__(self, folder: Path, first: Piece, make_lane: "Callable[[], ThreadPoolExecutor] | None") -> None:
        self.name, self._split = first.file, first.split
        self._path = folder / self.name
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._num_rows = 0
        self._frames: list[Frame] = []
        self._lanes = [] if make_lane is None else [make_lane(), make_lane()]
        self._pending: list[Future[None]] = []

    def add(self, shaped: ShapedPiece, compressed: bytes | None) -> int:
        """Where it begins."""
        offset = self._num_bytes
        self._num_rows += shaped.num_rows
        if compressed is not None:
            self._require(zlib.crc32(compressed), shaped)
            self._append(compressed)
            self._frames += shaped.frames or []
        else:
            self._num_bytes += shaped.num_bytes
            if self._lanes:
                digests, checks = self._lanes
                self._pending.append(checks.submit(self._read_back, shaped, offset, is_digested=False))
                self._pending.append(digests.submit(self._read_back, shaped, offset, is_checked=False))
            else:
                self._read_back(shaped, offset)
        return offset

    def end(self) -> None:
        """All its pieces are there."""
        if self._stream is not None:
            self._append(table_of(self._frames))
            self._stream.close()
        else:
            os.truncate(self._path, self._num_bytes)  # an earlier attempt may have had more in it
        for lane in self._lanes:
            lane.shutdown(wait=False)

    def give_up(self) -> None:
        for lane in self._lanes:
            lane.shutdown(cancel_futures=True)

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
            for at in range(0, shaped.num_bytes, BYTES_AT_ONCE):
                some = stream.read(min(BYTES_AT_ONCE, shaped.num_bytes - at))
                if is_checked:
                    crc32 = zlib.crc32(some, crc32)
                if is_digested:
                    self._digest.update(some)
        if is_checked:
            self._require(crc32, shaped)

    def _require(self, crc32: int, shaped: ShapedPiece) -> None:
        if crc32 != shaped.crc32:
            raise OutputError(
                f"{str(self._path)!r} does not give back what was written. Check the disk, or the network."
            )


def compressed_content(context: Context, task: Task, shaped: ShapedPiece) -> bytes:
    """From where it lies."""
    if shaped.is_taken_over:
        assert task.known is not None, "or it would not have been taken over"
        return task.known.read_unchecked()
    return read_plain(compressed_file(context, task))


def forget_compressed(context: Context, task: Task) -> None:
    """Once it has been copied to its place, by a build that does not go on from there if it is killed."""
    compressed_file(context, task).unlink(missing_ok=True)


def compressed_file(context: Context, task: Task) -> Path:
    return context.scratch / f"{task.key}.zst"
