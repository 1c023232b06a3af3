"""Tables -> blobs of text in the cache, which the rest reads as it reads files.

    cache/tables/<key>/survey         what the table is made of
    cache/tables/<key>/00003.rows     the texts of its fourth part, end to end
    cache/tables/<key>/00003.index    where each begins, what it is called, what is wrong with it; written last

The key is of the table's address, its state and the columns that were asked for. What is there already is used again,
but only where its digest is still that of the index: a cache is a place where anybody may have been.
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
from gristmill.sources.tables import Survey, TableRow, rows_of, survey

FORMAT = 1
TABLES_AT_ONCE = 8
"""Downloads that lie on the disk at the same time, unpacked and packed."""
WRITE_BYTES = 1 << 20
PRIVATE = 0o600
"""For texts that were unpacked: the table they are from may have been readable by its owner alone."""
ALWAYS_ALLOWED_BYTES = 1 << 30
"""A table may unpack to so much, however small it is."""
LEAST_ROW_BYTES = 512
"""A row of no text at all takes memory, too."""
MAX_MEMORY_BYTES = 2 << 30
BYTES_BETWEEN_LOOKS = 64 << 20
SPARE_BYTES = 256 << 20
"""Left free on the disk: several parts are unpacked at the same time."""


class Table(NamedTuple):
    """One to unpack."""

    repo: str
    """What rows go by that do not say where they are from."""
    origin: str
    """For messages."""
    location: str
    """Where it lies here, or will once it is downloaded."""
    remote: RemoteFile | None
    folder: str
    """Where its rows go."""
    config: TablesConfig
    max_expansion: int
    """It may unpack to this many times its own size."""


class UnpackedRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    number: int
    """In the table, counted from 0."""
    path: str | None
    """In the one documented escape; None where the row has none."""
    repo: str | None
    license: str | None
    offset: int
    size: int
    defect: str | None = None


class Index(msgspec.Struct, frozen=True, array_like=True):
    sha256: str
    """Of the rows' file."""
    rows: list[UnpackedRow]

    @property
    def num_bytes(self) -> int:
        """Size of all texts; a row counts as at least LEAST_ROW_BYTES."""
        return sum(max(row.size, LEAST_ROW_BYTES) for row in self.rows)


class _Part(NamedTuple):
    table: Table
    survey: Survey
    number: int


def local_table(word: str, config: Config, cache: Path) -> Table:
    location = os.path.realpath(os.path.expanduser(word))
    status = os.stat(location)
    key = _key(location, status.st_size, str(status.st_mtime_ns), config.tables)
    folder = str(cache / "tables" / key)
    return Table(_default_repo(location), word, location, None, folder, config.tables, config.run.max_expansion)


def remote_table(file: RemoteFile, config: Config, cache: Path) -> Table:
    origin = without_credentials(file.address)
    # A signed address is another one each time; its path and the file's ETag are not.
    key = _key(origin if file.stamp is not None else file.address, file.size, file.stamp, config.tables)
    location = str(cache / "downloads" / key / ("table" + file.name.lower()[len(table_stem(file.name)) :]))
    folder = str(cache / "tables" / key)
    return Table(_default_repo(file.name), origin, location, file, folder, config.tables, config.run.max_expansion)


def survey_table(table: Table) -> Survey:
    with bounded_memory(MAX_MEMORY_BYTES):
        return survey(table.location, printable(table.origin), table.config)


def unpack_tables(tables: Sequence[Table], map_tasks: MapFunction) -> None:
    """Afterwards the rows of each lie in its folder. A downloaded table is deleted once they do."""
    missing = [table for table, is_there in zip(tables, map_tasks(is_unpacked, tables), strict=True) if not is_there]
    for start in range(0, len(missing), TABLES_AT_ONCE):
        batch = missing[start : start + TABLES_AT_ONCE]
        for _ in map_tasks(_bring, batch):
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
            require_expansion(part.table, num_bytes[part.table.folder])
        for table in batch:
            if table.remote is not None:
                os.unlink(table.location)
                os.rmdir(os.path.dirname(table.location))


def is_unpacked(table: Table) -> bool:
    try:
        found = msgspec.msgpack.decode(Path(table.folder, "survey").read_bytes(), type=Survey)
    except (OSError, msgspec.MsgspecError, ValueError):
        return False
    return all(_is_intact(table.folder, number) for number in range(len(found.first_rows)))


def unpack(part: _Part) -> int:
    """Write the part's rows, unless they are there already -> how many bytes they count as."""
    table, _, number = part
    if _is_intact(table.folder, number):
        return _read_index(table.folder, number).num_bytes
    rows_path = _path(table.folder, number, "rows")
    beside = f"{rows_path}.part"
    try:
        index = _write_rows(part, beside)
        os.replace(beside, rows_path)
    except BaseException:  # it may have filled the disk
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
    write_atomically(Path(_path(table.folder, number, "index")), msgspec.msgpack.encode(index), mode=PRIVATE)
    return index.num_bytes


def _write_rows(part: _Part, path: str) -> Index:
    table, found, number = part
    rows: list[UnpackedRow] = []
    digest = hashlib.sha256()
    offset = 0
    with open(path, "wb", WRITE_BYTES, opener=_open_private) as stream, bounded_memory(MAX_MEMORY_BYTES) as renew:
        room = _Room(table, renew)
        read = rows_of(table.location, printable(table.origin), found.columns, number)
        for row_number, row in enumerate(read, found.first_rows[number]):
            room.take(len(row.text))
            stream.write(row.text)
            digest.update(row.text)
            rows.append(_unpacked(row_number, row, offset))
            offset += len(row.text)
    return Index(digest.hexdigest(), rows)


class _Room:
    """The room that a table has left to unpack into: a few hundred bytes of Parquet can stand for gigabytes."""

    def __init__(self, table: Table, renew: Callable[[], None]) -> None:
        """`renew`: lets what has been unpacked stay in memory, and bounds what comes next."""
        self._table, self._renew = table, renew
        self._num_bytes = self._num_looked_at = 0

    def take(self, num_bytes: int) -> None:
        self._num_bytes += max(num_bytes, LEAST_ROW_BYTES)
        require_expansion(self._table, self._num_bytes)
        if self._num_bytes - self._num_looked_at >= BYTES_BETWEEN_LOOKS:
            self._num_looked_at = self._num_bytes
            self._renew()
            free = shutil.disk_usage(self._table.folder).free
            if free < SPARE_BYTES:
                raise OutputError(
                    f"unpacking {printable(self._table.origin)!r} fills the disk: only {free / 1e6:,.0f} MB are free "
                    f"at {self._table.folder!r}. Free some, or name another --out."
                )


def require_expansion(table: Table, num_bytes: int) -> None:
    packed = os.path.getsize(table.location)
    if num_bytes > max(ALWAYS_ALLOWED_BYTES, table.max_expansion * packed):
        raise InputError(
            f"the table {printable(table.origin)!r} has {packed:,} bytes and unpacks to more than "
            f"{table.max_expansion} times that, a row counted as {LEAST_ROW_BYTES} bytes at least. If you trust it, "
            "raise --max-expansion."
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


@contextmanager
def bounded_memory(num_bytes: int) -> Iterator[Callable[[], None]]:
    """Let this process take so much more memory than it has now, where the system can count it (Linux).

    Calling what is yielded begins the count anew.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)

    def renew() -> None:
        with suppress(OSError), open("/proc/self/statm", encoding="ascii") as stream:
            limit = int(stream.read().split()[0]) * resource.getpagesize() + num_bytes
            if before[0] == resource.RLIM_INFINITY or limit < before[0]:
                resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))

    renew()
    try:
        yield renew
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def read_rows(table: Table) -> list[tuple[str, list[UnpackedRow]]]:
    """Part by part: the file that the texts lie in, and where in it."""
    found = msgspec.msgpack.decode(Path(table.folder, "survey").read_bytes(), type=Survey)
    parts = range(len(found.first_rows))
    return [(_path(table.folder, number, "rows"), _read_index(table.folder, number).rows) for number in parts]


def num_rows(table: Table) -> int:
    return sum(len(rows) for _, rows in read_rows(table))


def _unpacked(number: int, row: TableRow, offset: int) -> UnpackedRow:
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
    r"""Only a name, never opened: so `..` may stay. What no terminal takes becomes `\xNN`."""
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


def _bring(table: Table) -> None:
    if table.remote is not None and not os.path.isfile(table.location):
        download(table.remote, Path(table.location))


def _write_survey(table: Table, found: Survey) -> None:
    if found.columns.text is None:
        there = ", ".join(map(printable, found.known)) or "none"
        raise InputError(
            f"no column of {printable(table.origin)!r} is known to hold text. It has: {there}. "
            "Name one as tables.text_column."
        )
    os.makedirs(table.folder, exist_ok=True)
    write_atomically(Path(table.folder, "survey"), msgspec.msgpack.encode(found), mode=PRIVATE)


def _default_repo(name: str) -> str:
    return path_text(table_stem(os.path.basename(name))) or "table"


def _key(address: str, size: int, stamp: str | None, config: TablesConfig) -> str:
    what = [FORMAT, os.fsencode(address), size, stamp, msgspec.to_builtins(config)]
    return hashlib.sha256(msgspec.msgpack.encode(what)).hexdigest()[:32]
