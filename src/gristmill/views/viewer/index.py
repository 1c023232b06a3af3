"""Index of the files and windows of a dataset. A background thread builds it once. Later viewers memory-map it.

The name of the index contains a digest of the dataset. The index is built under a temporary name and renamed when it is
complete. Checksums detect damage, and a damaged index is built again.
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
from gristmill.views.viewer.file_index import FileTable, write_file_index
from gristmill.views.viewer.viewer_dataset import ViewerDataset
from gristmill.views.viewer.viewer_folder import INDEX_PREFIX, ViewerFolder
from gristmill.views.viewer.window_index import WindowTable, write_window_index

MAX_YIELD_SECONDS = 0.05
"""Maximum duration of one pause, so that continuous searching cannot stop the index from being built."""


class RequestPriority:
    """Gives requests priority over background work: the work pauses while a request is answered."""

    def __init__(self) -> None:
        self._num_requests = 0
        self._lock = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Mark a request as being answered."""
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

    def yield_to_requests(self) -> None:
        """Pause while a request is answered, for at most MAX_YIELD_SECONDS. Background work calls this often."""
        self._is_idle.wait(MAX_YIELD_SECONDS)


INDEX_VERSION = 1
CHECKSUMS = "sums.json"
READ_BYTES = 1 << 20
FILES_FRACTION = 0.05
"""Approximate fraction of the work that is spent on files.jsonl."""


class IndexState(msgspec.Struct, frozen=True):
    """State of the index, for display on the page."""

    is_ready: bool
    fraction_done: float
    error: str | None
    """Reason why the index cannot be built, or None."""


class _StoppedError(Exception):
    pass


def _dataset_stamp(folder: Path, record: RowsRecord) -> str:
    """Return a digest that identifies the dataset and the current state of the files that the index is built from.

    Changes to other files, such as an added format, do not change the digest.
    """
    format_read = record.formats[0]
    names = {FILES, *(name for name, facts in record.files.items() if facts.format == format_read)}
    stats = {name: _size_and_time(folder / name) for name in sorted(names)}
    facts = [INDEX_VERSION, record.fingerprint, record.content_sha256, format_read, stats]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:20]


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        facts = path.stat()
    except (OSError, ValueError):  # ValueError if the name contains a NUL
        return -1, -1
    return facts.st_size, facts.st_mtime_ns


class Index:
    """The index of one dataset, opened or built by a background thread."""

    def __init__(self, dataset: ViewerDataset, viewer_folder: ViewerFolder, priority: RequestPriority) -> None:
        self._dataset, self._viewer_folder, self._priority = dataset, viewer_folder, priority
        self._name = f"{INDEX_PREFIX}{_dataset_stamp(dataset.folder, dataset.record)}"
        self.files: FileTable | None = None
        """None until files.jsonl is indexed. Windows are indexed after the files."""
        self.windows: WindowTable | None = None
        """None until the index is complete."""
        self.has_manifest = isinstance(dataset.record, Manifest)
        self.failure: str | None = None
        self._fraction_done = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended and deleted any unfinished index."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the thread. Return True if the index is complete or has failed."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def state(self) -> IndexState:
        """State of the index for filters and file pages, which need a dataset with files.jsonl."""
        is_ready = self.windows is not None and self.has_manifest
        error = self.failure if self.has_manifest else _no_manifest_message(self._dataset.record)
        return IndexState(is_ready, 1.0 if is_ready else round(self._fraction_done, 3), error)

    @property
    def progress(self) -> IndexState:
        """Progress for requests that need only the row offsets of the index. Such requests work without files.jsonl."""
        return IndexState(is_ready=False, fraction_done=round(self._fraction_done, 3), error=None)

    def _run(self) -> None:
        try:
            with self._viewer_folder.hold_lock(on_wait=self._raise_if_stopped):
                self._viewer_folder.delete_other_indexes(keep=self._name)
                folder = self._viewer_folder.folder / self._name
                if not _is_intact(folder) or not self._try_open(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    self._build(folder)
        except _StoppedError:
            pass
        except GristmillError as error:
            self.failure = str(error)
        except OSError as error:
            self.failure = (
                f"the index cannot be written to {str(self._viewer_folder.folder)!r}: {error.strerror or error}."
            )
        except Exception:  # noqa: BLE001 - otherwise every page would wait forever for the index
            traceback.print_exc()
            self.failure = (
                "the index cannot be built: internal error in gristmill. See the terminal in which the viewer runs."
            )

    def _build(self, folder: Path) -> None:
        """Build the index under a temporary name, then rename it. Files that are already memory-mapped remain valid."""
        unfinished, edition = self._viewer_folder.create_unfinished(self._name), self._dataset.edition
        try:
            if self.has_manifest:
                table = self._dataset.folder / FILES
                with edition.guard_reading():
                    fraction_per_byte = FILES_FRACTION / max(_size_and_time(table)[0], 1)
                    write_file_index(table, unfinished, partial(self._advance, fraction_per_byte))
                self.files = FileTable(unfinished, table, edition)
            fraction_per_row = (1 - FILES_FRACTION) / max(self._dataset.row_numbers.num_rows, 1)
            write_window_index(self._dataset, self.files, unfinished, partial(self._advance, fraction_per_row))
            write_atomically(unfinished / CHECKSUMS, msgspec.json.encode(_checksums(unfinished)), is_synced=False)
            os.rename(unfinished, folder)
            if not self._try_open(folder):
                raise OSError("the written files cannot be read")
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _try_open(self, folder: Path) -> bool:
        try:
            files = (
                FileTable(folder, self._dataset.folder / FILES, self._dataset.edition) if self.has_manifest else None
            )
            windows = WindowTable(folder)
        except (DatasetError, OSError, ValueError):
            return False
        self._dataset.offsets = windows.offset if self._dataset.is_plain else None
        self.files, self.windows = files, windows
        return True

    def _advance(self, fraction: float, count: int) -> None:
        self._fraction_done = min(self._fraction_done + fraction * count, 1.0)
        self._raise_if_stopped()
        self._priority.yield_to_requests()

    def _raise_if_stopped(self) -> None:
        if self._stopped.is_set():
            raise _StoppedError


def _no_manifest_message(record: RowsRecord) -> str:
    return (
        f"this dataset was made by {record.made_by} and has no {FILES}. Its rows can be read and searched. The "
        "only filter is the split, and there are no pages for files."
    )


def _checksums(folder: Path) -> dict[str, int]:
    """Return the CRC-32 of each file except CHECKSUMS. Files are read, not memory-mapped, to save memory."""
    checksums = {}
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            raise OSError(f"{path.name} is not a regular file")
        checksum = 0
        with open_plain(path) as stream:
            while content := stream.read(READ_BYTES):
                checksum = zlib.crc32(content, checksum)
        if path.name != CHECKSUMS:
            checksums[path.name] = checksum
    return checksums


def _is_intact(folder: Path) -> bool:
    try:
        checksums = _checksums(folder)
        return bool(checksums) and checksums == msgspec.json.decode(read_plain(folder / CHECKSUMS), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
