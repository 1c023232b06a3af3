"""Between step 3 and step 4: pieces arrive in order -> each data file's size, rows and sha256.

Plain rows are at their place already and are only read back, from the page cache, for the digest. Compressed pieces are
appended here, and the file is closed with its table of frames.
"""

import hashlib
from pathlib import Path
from typing import BinaryIO

from gristmill.formats.zstd import Frame, table_of
from gristmill.manifest import FileFacts
from gristmill.records import Split
from gristmill.steps.decide import Piece
from gristmill.steps.shape import ShapedPiece


class DataFiles:
    """The data files of a dataset as their pieces come in, file after file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: _DataFile | None = None
        self._facts: dict[str, FileFacts] = {}

    def add(self, piece: Piece, shaped: ShapedPiece) -> None:
        if self._open is None or self._open.name != piece.file:
            self._close_file()
            self._open = _DataFile(self._folder, piece.file, piece.split)
        self._open.add(piece, shaped)

    def close(self) -> dict[str, FileFacts]:
        self._close_file()
        return self._facts

    def _close_file(self) -> None:
        if self._open is not None:
            self._facts[self._open.name] = self._open.close()
            self._open = None


class _DataFile:
    def __init__(self, folder: Path, name: str, split: Split) -> None:
        self.name, self._split = name, split
        self._path = folder / name
        self._stream: BinaryIO | None = None
        self._digest = hashlib.sha256()
        self._num_bytes = 0
        self._num_rows = 0
        self._frames: list[Frame] = []

    def add(self, piece: Piece, shaped: ShapedPiece) -> None:
        self._num_rows += shaped.num_rows
        if shaped.compressed is not None:
            self._append(shaped.compressed)
            self._frames += shaped.frames or []
        else:
            with self._path.open("rb") as stream:
                stream.seek(piece.offset)
                self._count(stream.read(piece.num_bytes))

    def close(self) -> FileFacts:
        if self._stream is not None:
            self._append(table_of(self._frames))
            self._stream.close()
        return FileFacts(bytes=self._num_bytes, sha256=self._digest.hexdigest(), rows=self._num_rows, split=self._split)

    def _append(self, content: bytes) -> None:
        if self._stream is None:
            self._stream = self._path.open("wb")
        self._stream.write(content)
        self._count(content)

    def _count(self, content: bytes) -> None:
        self._digest.update(content)
        self._num_bytes += len(content)
