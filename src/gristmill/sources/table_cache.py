"""Unpack tables into the cache, so that later steps can read their texts like files.

    cache/tables/<key>/survey         columns and parts of the table
    cache/tables/<key>/00003.rows     texts of the fourth part, concatenated
    cache/tables/<key>/00003.index    offset, name and defect of each of these texts; written last

A part is a row group of a Parquet file, or a complete JSONL file. The key is a hash of the table's address, its state
and the configured columns. Rows in the cache are used again only if their digest still matches the index, because other
programs may have changed the files.
"""

import hashlib
import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.config.config import Config
from gristmill.config.settings import TablesConfig
from gristmill.core.errors import InputError, OutputError
from gristmill.core.layout import write_atomically
from gristmill.core.names import path_text, printable
from gristmill.core.progress import MapFunction
from gristmill.sources.addresses import table_stem, without_credentials
from gristmill.sources.remote import RemoteFile, download
from gristmill.sources.tables import Survey, TableRow, read_part, survey

CACHE_VERSION = 1
MAX_TABLES_AT_ONCE = 8
"""Maximum number of tables in a batch. The downloads of a batch are deleted after its tables are unpacked."""
WRITE_BYTES = 1 << 20
PRIVATE_MODE = 0o600
"""Mode of unpacked files. The table itself may be readable only by its owner."""
ALWAYS_ALLOWED_BYTES = 1 << 30
"""Unpacked size that is always allowed, even for a very small table."""
MIN_ROW_BYTES = 512
"""Each row is counted as at least this many bytes, because even a row without text takes memory."""
MAX_MEMORY_BYTES = 2 << 30
BYTES_BETWEEN_CHECKS = 64 << 20
MIN_FREE_BYTES = 256 << 20
"""Disk space that must remain free, because several parts are unpacked at the same time."""


class Table(NamedTuple):
    """A table to unpack."""

    repo: str
    """Repo of rows that do not name a repo."""
    origin: str
    """Name of the table in messages."""
    location: str
    """Local path. A remote table is downloaded to it."""
    remote: RemoteFile | None
    folder: str
    """Folder for the unpacked rows."""
    config: TablesConfig
    max_expansion: int
    """Maximum ratio of unpacked to packed size."""


class UnpackedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row of a table: the position of its text in the rows file, and the names that the row declares."""

    number: int
    """Index of the row in the table, from 0."""
    path: str | None
    """Path of the text, escaped as in core/names.py. None if the row has no path."""
    repo: str | None
    license: str | None
    offset: int
    size: int
    defect: str | None = None
    """Reason why the row cannot be used, or None."""


class Index(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one part of a table."""

    sha256: str
    """Digest of the rows file."""
    rows: list[UnpackedRow]

    @property
    def num_bytes(self) -> int:
        """Total size of all texts, each counted as at least MIN_ROW_BYTES."""
        return sum(max(row.size, MIN_ROW_BYTES) for row in self.rows)


class _Part(NamedTuple):
    table: Table
    survey: Survey
    number: int


def local_table(path: str, config: Config, cache: Path) -> Table:
    """Return the Table of a local file."""
    location = os.path.realpath(os.path.expanduser(path))
    status = os.stat(location)
    key = _key(location, status.st_size, str(status.st_mtime_ns), config.tables)
    folder = str(cache / "tables" / key)
    return Table(_default_repo(location), path, location, None, folder, config.tables, config.run.max_expansion)


def remote_table(file: RemoteFile, config: Config, cache: Path) -> Table:
    """Return the Table of a remote file. Nothing is downloaded yet."""
    origin = without_credentials(file.address)
    # A signed address has a different signature each time, but the path and the stamp of the file stay the same.
    key = _key(origin if file.stamp is not None else file.address, file.size, file.stamp, config.tables)
    location = str(cache / "downloads" / key / ("table" + file.name.lower()[len(table_stem(file.name)) :]))
    folder = str(cache / "tables" / key)
    return Table(_default_repo(file.name), origin, location, file, folder, config.tables, config.run.max_expansion)


def survey_table(table: Table) -> Survey:
    """Find the columns and parts of a local or downloaded table."""
    with bounded_memory(MAX_MEMORY_BYTES):
        return survey(table.location, printable(table.origin), table.config)


def unpack_tables(tables: Sequence[Table], map_tasks: MapFunction) -> None:
    """Unpack the rows of each table into its folder. A downloaded table is deleted afterwards."""
    missing = [table for table, is_done in zip(tables, map_tasks(is_unpacked, tables), strict=True) if not is_done]
    for start in range(0, len(missing), MAX_TABLES_AT_ONCE):
        batch = missing[start : start + MAX_TABLES_AT_ONCE]
        for _ in map_tasks(_download_if_missing, batch):
            pass
        surveys = list(map_tasks(survey_table, batch))
        parts = [
            _Part(table, found, number)
            for table, found in zip(batch, surveys, strict=True)
            for number in range(len(found.first_rows))
        ]
        for table, found in zip(batch, surveys, strict=True):
            _write_survey(table, found)
        num_bytes: Counter[str] = Counter()
        for part, size in zip(parts, map_tasks(unpack, parts), strict=True):
            num_bytes[part.table.folder] += size
            require_allowed_expansion(part.table, num_bytes[part.table.folder])
        for table in batch:
            if table.remote is not None:
                os.unlink(table.location)
                os.rmdir(os.path.dirname(table.location))


def is_unpacked(table: Table) -> bool:
    """Return True if the cache contains all rows of the table, unchanged."""
    try:
        found = msgspec.msgpack.decode(Path(table.folder, "survey").read_bytes(), type=Survey)
    except (OSError, msgspec.MsgspecError, ValueError):
        return False
    return all(_is_intact(table.folder, number) for number in range(len(found.first_rows)))


def unpack(part: _Part) -> int:
    """Write the rows of a part unless the cache contains them. Return their size as in `Index.num_bytes`."""
    table, _, number = part
    if _is_intact(table.folder, number):
        return _read_index(table.folder, number).num_bytes
    rows_path = _path(table.folder, number, "rows")
    part_path = f"{rows_path}.part"
    try:
        index = _write_rows(part, part_path)
        os.replace(part_path, rows_path)
    except BaseException:  # delete the incomplete file, which may have filled the disk
        with suppress(FileNotFoundError):
            os.unlink(part_path)
        raise
    write_atomically(Path(_path(table.folder, number, "index")), msgspec.msgpack.encode(index), mode=PRIVATE_MODE)
    return index.num_bytes


def _write_rows(part: _Part, path: str) -> Index:
    table, found, number = part
    rows: list[UnpackedRow] = []
    digest = hashlib.sha256()
    offset = 0
    with (
        open(path, "wb", WRITE_BYTES, opener=_open_private) as stream,
        bounded_memory(MAX_MEMORY_BYTES) as reset_memory_limit,
    ):
        limit = _SizeLimit(table, reset_memory_limit)
        read = read_part(table.location, printable(table.origin), found.columns, number)
        for row_number, row in enumerate(read, found.first_rows[number]):
            limit.add(len(row.text))
            stream.write(row.text)
            digest.update(row.text)
            rows.append(_unpacked_row(row_number, row, offset))
            offset += len(row.text)
    return Index(digest.hexdigest(), rows)


class _SizeLimit:
    """Limit on the unpacked size of a part of a table. A few hundred bytes of Parquet can expand to gigabytes."""

    def __init__(self, table: Table, reset_memory_limit: Callable[[], None]) -> None:
        """`reset_memory_limit` is the function that `bounded_memory` yields."""
        self._table, self._reset_memory_limit = table, reset_memory_limit
        self._num_bytes = self._num_checked_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Count a row. Raise InputError if the part expands too much, or OutputError if the disk is nearly full."""
        self._num_bytes += max(num_bytes, MIN_ROW_BYTES)
        require_allowed_expansion(self._table, self._num_bytes)
        if self._num_bytes - self._num_checked_bytes >= BYTES_BETWEEN_CHECKS:
            self._num_checked_bytes = self._num_bytes
            self._reset_memory_limit()
            free_bytes = shutil.disk_usage(self._table.folder).free
            if free_bytes < MIN_FREE_BYTES:
                raise OutputError(
                    f"unpacking {printable(self._table.origin)!r} fills the disk: only {free_bytes / 1e6:,.0f} MB are "
                    f"free at {self._table.folder!r}. Free some space, or use a different --out."
                )


def require_allowed_expansion(table: Table, num_bytes: int) -> None:
    """Raise InputError if the table unpacks to more than is allowed for its size."""
    packed_bytes = os.path.getsize(table.location)
    if num_bytes > max(ALWAYS_ALLOWED_BYTES, table.max_expansion * packed_bytes):
        raise InputError(
            f"the table {printable(table.origin)!r} takes {packed_bytes:,} bytes and unpacks to more than "
            f"{table.max_expansion} times its size (a row is counted as at least {MIN_ROW_BYTES} bytes). If you trust "
            "the table, raise --max-expansion."
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE_MODE)


@contextmanager
def bounded_memory(num_bytes: int) -> Iterator[Callable[[], None]]:
    """Limit the memory that this process may allocate in addition to its current memory.

    The limit works only on Linux. Yield a function that resets the limit to `num_bytes` more than the memory in use at
    the time of its call.
    """
    old_limit = resource.getrlimit(resource.RLIMIT_AS)

    def reset_memory_limit() -> None:
        with suppress(OSError), open("/proc/self/statm", encoding="ascii") as stream:
            limit = int(stream.read().split()[0]) * resource.getpagesize() + num_bytes
            if old_limit[0] == resource.RLIM_INFINITY or limit < old_limit[0]:
                resource.setrlimit(resource.RLIMIT_AS, (limit, old_limit[1]))

    reset_memory_limit()
    try:
        yield reset_memory_limit
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old_limit)


def read_rows(table: Table) -> list[tuple[str, list[UnpackedRow]]]:
    """Return the path of the rows file and the list of rows, for each part of an unpacked table."""
    found = msgspec.msgpack.decode(Path(table.folder, "survey").read_bytes(), type=Survey)
    parts = range(len(found.first_rows))
    return [(_path(table.folder, number, "rows"), _read_index(table.folder, number).rows) for number in parts]


def num_rows(table: Table) -> int:
    """Return the number of rows of an unpacked table."""
    return sum(len(rows) for _, rows in read_rows(table))


def _unpacked_row(number: int, row: TableRow, offset: int) -> UnpackedRow:
    return UnpackedRow(
        number,
        _name_text(row.path),
        _name_text(row.repo),
        row.license,
        offset,
        len(row.text),
        row.defect,
    )


def _name_text(name: str | None) -> str | None:
    r"""Escape a name from a row. The name is never opened, so `..` is allowed. Control characters become `\xNN`."""
    text = path_text(name or "").strip("/")
    return "".join(f"\\x{ord(char):02x}" if char < " " or char == "\x7f" else char for char in text) or None


def _is_intact(folder: str, number: int) -> bool:
    try:
        index = _read_index(folder, number)
        with open(_path(folder, number, "rows"), "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == index.sha256
    except (OSError, msgspec.MsgspecError, ValueError):
        return False


def _read_index(folder: str, number: int) -> Index:
    return msgspec.msgpack.decode(Path(_path(folder, number, "index")).read_bytes(), type=Index)


def _path(folder: str, number: int, kind: str) -> str:
    return os.path.join(folder, f"{number:05d}.{kind}")


def _download_if_missing(table: Table) -> None:
    if table.remote is not None and not os.path.isfile(table.location):
        download(table.remote, Path(table.location))


def _write_survey(table: Table, found: Survey) -> None:
    if not found.known:
        raise InputError(f"the table {printable(table.origin)!r} has no columns. Remove it from the sources.")
    if found.columns.text is None:
        names = ", ".join(map(printable, found.known))
        raise InputError(
            f"cannot find the text column of {printable(table.origin)!r}. Its columns: {names}. "
            "Set tables.text_column to one of them."
        )
    os.makedirs(table.folder, exist_ok=True)
    write_atomically(Path(table.folder, "survey"), msgspec.msgpack.encode(found), mode=PRIVATE_MODE)


def _default_repo(name: str) -> str:
    return path_text(table_stem(os.path.basename(name))) or "table"


def _key(address: str, size: int, stamp: str | None, config: TablesConfig) -> str:
    parts = [CACHE_VERSION, os.fsencode(address), size, stamp, msgspec.to_builtins(config)]
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:32]
