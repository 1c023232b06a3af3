"""The index of a dataset: made once, by a thread, while its viewer already answers; mapped by every later one.

It goes by the dataset's stamp, grows under another name and is complete when it has its own. Sums tell whether it is
whole: a damaged one is made anew.
"""

import hashlib
import os
import shutil
import threading
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from gristmill.core.errors import DatasetError, GristmillError
from gristmill.core.layout import FILES, write_atomically
from gristmill.core.manifest import Manifest, RowsRecord
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.views.viewer.file_index import FileTable, write_files
from gristmill.views.viewer.viewed_rows import ViewedDataset
from gristmill.views.viewer.viewer_folder import INDEX, Keeping
from gristmill.views.viewer.window_index import WindowTable, write_windows

# Requests come first: what is done in the background waits while one is answered.

SECONDS_TO_WAIT = 0.05
"""At most, each time: someone who searches without a pause is not to keep the index from being made."""


class Precedence:
    def __init__(self) -> None:
        self._num_requests = 0
        self._lock = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        with self._lock:
            self._num_requests += 1
            self._is_idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._num_requests -= 1
                if not self._num_requests:
                    self._is_idle.set()

    def give_way(self) -> None:
        """Called often by what can wait."""
        self._is_idle.wait(SECONDS_TO_WAIT)


FORMAT = 1
SUMS = "sums.json"
SUM_BYTES = 1 << 20
FILES_SHARE = 0.05
"""Of the work, what reading files.jsonl is: about."""


class IndexState(msgspec.Struct, frozen=True):
    is_ready: bool
    share: float
    """Of the work that is done."""
    error: str | None
    """Why there will be none."""


class _StoppedError(Exception):
    pass


def _stamp_of(folder: Path, record: RowsRecord) -> str:
    """Another dataset, another stamp: also one whose files somebody has touched.

    Only files that the index is made of count: a format that is not read changes nothing.
    """
    read = record.formats[0]
    names = {FILES, *(name for name, facts in record.files.items() if facts.format == read)}
    stats = {name: _size_and_time(folder / name) for name in sorted(names)}
    facts = [FORMAT, record.fingerprint, record.content_sha256, read, stats]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:20]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        facts = path.stat()
    except (OSError, ValueError):  # ValueError: a name with a NUL in it
        return -1, -1
    return facts.st_size, facts.st_mtime_ns


class Index:
    def __init__(self, dataset: ViewedDataset, keeping: Keeping, precedence: Precedence) -> None:
        self._dataset, self._keeping, self._precedence = dataset, keeping, precedence
        self._name = f"{INDEX}{_stamp_of(dataset.folder, dataset.record)}"
        self.files: FileTable | None = None
        """There before the windows: files.jsonl is read first."""
        self.windows: WindowTable | None = None
        self.has_record = isinstance(dataset.record, Manifest)
        self.failure: str | None = None
        self._share = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is half made is deleted; the dataset's thread is gone after this."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Until it is made, or cannot be -> whether that is so by now."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def state(self) -> IndexState:
        is_ready = self.windows is not None and self.has_record
        error = self.failure if self.has_record else _no_record(self._dataset.record)
        return IndexState(is_ready, 1.0 if is_ready else round(self._share, 3), error)

    @property
    def progress(self) -> IndexState:
        """The same while it is made: rows without a record can be found by it too, if not filtered."""
        return IndexState(is_ready=False, share=round(self._share, 3), error=None)

    def _run(self) -> None:
        try:
            with self._keeping.alone(wait=self._require_wanted):
                self._keeping.clear(keep=self._name)
                folder = self._keeping.folder / self._name
                if not _is_whole(folder) or not self._opens(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    self._make(folder)
        except _StoppedError:
            pass
        except GristmillError as error:
            self.failure = str(error)
        except OSError as error:
            self.failure = f"the index cannot be written to {str(self._keeping.folder)!r}: {error.strerror or error}."
        except Exception:  # noqa: BLE001 - else every page waits for an index that nobody makes
            traceback.print_exc()
            self.failure = "the index cannot be made: this is a fault in gristmill; its terminal tells more."

    def _make(self, folder: Path) -> None:
        """What is mapped stays so when its folder gets its final name."""
        growing, edition = self._keeping.unfinished(self._name), self._dataset.edition
        try:
            if self.has_record:
                table = self._dataset.folder / FILES
                with edition.reading():
                    write_files(table, growing, partial(self._advance, FILES_SHARE / max(_size_and_time(table)[0], 1)))
                self.files = FileTable(growing, table, edition)
            num_rows = max(self._dataset.numbering.num_rows, 1)
            write_windows(self._dataset, self.files, growing, partial(self._advance, (1 - FILES_SHARE) / num_rows))
            write_atomically(growing / SUMS, msgspec.json.encode(_sums(growing)), is_synced=False)
            os.rename(growing, folder)
            if not self._opens(folder):
                raise OSError("what was written is not what is there")
        finally:
            shutil.rmtree(growing, ignore_errors=True)

    def _opens(self, folder: Path) -> bool:
        try:
            files = FileTable(folder, self._dataset.folder / FILES, self._dataset.edition) if self.has_record else None
            windows = WindowTable(folder)
        except (DatasetError, OSError, ValueError):
            return False
        self._dataset.offsets = windows.offset if self._dataset.is_plain else None
        self.files, self.windows = files, windows
        return True

    def _advance(self, share: float, count: int) -> None:
        self._share = min(self._share + share * count, 1.0)
        self._require_wanted()
        self._precedence.give_way()

    def _require_wanted(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


def _no_record(record: RowsRecord) -> str:
    return (
        f"this dataset was made by {record.made_by}, which keeps no record of files: its rows can be read and "
        "searched, but there is nothing to filter by, and no page of a file."
    )


def _sums(folder: Path) -> dict[str, int]:
    """Of every file in there but their list. Read, not mapped: it is to stay out of this process's memory."""
    sums = {}
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            raise OSError(f"{path.name} is not an ordinary file")
        total = 0
        with open_plain(path) as stream:
            while some := stream.read(SUM_BYTES):
                total = zlib.crc32(some, total)
        if path.name != SUMS:
            sums[path.name] = total
    return sums


def _is_whole(folder: Path) -> bool:
    try:
        sums = _sums(folder)
        return bool(sums) and sums == msgspec.json.decode(read_plain(folder / SUMS), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
