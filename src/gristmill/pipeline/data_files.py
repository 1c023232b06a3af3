"""The data files of a build: pieces arrive in order, and each file's size, rows and sha256 are counted."""

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

from gristmill.core.errors import OutputError
from gristmill.core.manifest import FileFacts, PackingFacts
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.progress import Step
from gristmill.core.records import FileKey, Split
from gristmill.formats.format import folder_of
from gristmill.formats.shares import AllFiles, ShareTask, WrittenFiles
from gristmill.formats.zstd import Frame, table_of
from gristmill.pipeline.context import Context
from gristmill.pipeline.pieces import KnownPiece, Piece, PieceLog, ShapedPiece, Task
from gristmill.runners.runner import Runner

BYTES_AT_ONCE = 1 << 22


class MadeFiles(NamedTuple):
    """Step 3: rows, in every format."""

    files: AllFiles
    shards: dict[Split, list[int]]
    packing: dict[Split, PackingFacts] | None = None
    segments: dict[FileKey, int] | None = None
    """With --pack repo: in how many stretches each file is in the rows. Only packing tells."""


class DataFiles:
    """The data files of a dataset as their pieces come in, file after file; and the log of these pieces."""

    def __init__(self, context: Context, log: Path, *, keeps_compressed: bool = False) -> None:
        """`keeps_compressed`: pieces stay where they lay, for whoever is killed over this and begins again."""
        self._context, self._keeps_compressed = context, keeps_compressed
        self._log = PieceLog(log)
        self._open: _DataFile | None = None
        self.all = AllFiles()

    def __enter__(self) -> Self:
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._close_file()
        self._log.__exit__(kind, error, trace)

    def add(self, task: Task, shaped: ShapedPiece) -> None:
        piece = task.piece
        if self._open is None or self._open.name != piece.file:
            self._close_file()
            self._open = _DataFile(self._context.dataset, piece)
        self.all.add_content("jsonl", piece.split, shaped.content)
        compressed = compressed_content(self._context, task, shaped) if shaped.frames is not None else None
        offset = self._open.add(shaped, compressed)
        if compressed is not None and not self._keeps_compressed:
            forget_compressed(self._context, task)
        self._log.add(
            KnownPiece(
                key=task.key,
                file=piece.file,
                offset=offset,
                num_bytes=shaped.num_bytes,
                num_rows=shaped.num_rows,
                sha256=shaped.sha256,
                content=shaped.content,
                frames=shaped.frames,
            )
        )

    def _close_file(self) -> None:
        if self._open is not None:
            self.all.facts[self._open.name] = self._open.close()
            self._open = None


class _DataFile:
    def __init__(self, folder: Path, first: Piece) -> None:
        self.name, self._split = first.file, first.split
        self._path = folder / self.name
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._num_rows = 0
        self._frames: list[Frame] = []

    def add(self, shaped: ShapedPiece, compressed: bytes | None) -> int:
        """Where it begins."""
        offset = self._num_bytes
        self._num_rows += shaped.num_rows
        if compressed is not None:
            crc32 = zlib.crc32(compressed)
            self._append(compressed)
            self._frames += shaped.frames or []
        else:
            crc32 = self._read_back(shaped.num_bytes)
        if crc32 != shaped.crc32:
            raise OutputError(
                f"{str(self._path)!r} does not give back what was written. Check the disk, or the network."
            )
        return offset

    def close(self) -> FileFacts:
        if self._stream is not None:
            self._append(table_of(self._frames))
            self._stream.close()
        else:
            os.truncate(self._path, self._num_bytes)  # an earlier attempt may have had more in it
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
        self._count(content)

    def _read_back(self, num_bytes: int) -> int:
        crc32 = 0
        with open_plain(self._path) as stream:
            stream.seek(self._num_bytes)
            for at in range(0, num_bytes, BYTES_AT_ONCE):
                some = stream.read(min(BYTES_AT_ONCE, num_bytes - at))
                crc32 = zlib.crc32(some, crc32)
                self._count(some)
        return crc32

    def _count(self, content: bytes) -> None:
        self._digest.update(content)
        self._num_bytes += len(content)


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


def clear_formats(context: Context) -> None:
    """Their folders are new: an earlier attempt may have left something."""
    for name in context.other_formats:
        folder = folder_of(context.dataset, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def write_all(
    write: Callable[[Any], WrittenFiles], tasks: Sequence[ShareTask], files: AllFiles, runner: Runner, step: Step
) -> None:
    """Each task's share of a format, in order."""
    for task, written in zip(tasks, runner.map(write, tasks), strict=True):
        files.add(task.share, written)
        step.advance(task.share.num_rows)
