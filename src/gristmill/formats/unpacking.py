"""Rows of a .jsonl.zst by number, without a frame to unpack for each: all of it is unpacked once, to disk.

A row in random order costs a frame of 256 KB otherwise, some hundred rows. Memory stays flat: the file has no name,
goes with the process, and is mapped like any other.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gristmill.errors import OutputError
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.zstd import ZstdJsonlFile


class UnpackedJsonlFile(JsonlFile):
    def __init__(self, path: Path, num_rows: int) -> None:
        super().__init__(path, num_rows)
        self._packed = ZstdJsonlFile(path, num_rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._packed)

    def _content(self) -> BinaryIO:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            stream.writelines(self._packed)
            stream.flush()
        except OSError as error:
            stream.close()
            raise OutputError(
                f"cannot unpack {str(self._path)!r} into {tempfile.gettempdir()!r}: {error.strerror}. "
                "Set TMPDIR to a folder with more room, or read it with streaming=True."
            ) from None
        return stream
