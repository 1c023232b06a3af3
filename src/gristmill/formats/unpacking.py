"""Rows by number, within microseconds each, of a format that has to unpack many to give one: all of it, to disk, once.

A row in random order costs a frame of 256 KB of a .jsonl.zst otherwise, some hundred rows; of Parquet a row group.
Memory stays flat: the file has no name, goes with the process, and is mapped like any other.
"""

import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from gristmill.errors import OutputError
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.stored_split import StoredSplit
from gristmill.formats.zstd import ZstdJsonlFile

Packed = ZstdJsonlFile | StoredSplit


class UnpackedJsonlFile(JsonlFile):
    def __init__(self, packed: Packed) -> None:
        super().__init__(packed.path, len(packed))
        self._packed = packed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._packed)

    def __getstate__(self) -> Packed:  # type: ignore[override]
        return self._packed

    def __setstate__(self, state: Packed) -> None:  # type: ignore[override]
        self.__init__(state)  # type: ignore[misc]

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
