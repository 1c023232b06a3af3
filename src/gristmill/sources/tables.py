"""A local Parquet or JSONL file -> its rows, one after the other, in little memory; what is wrong with a row is said.

A table comes in parts that can be read apart from each other: a Parquet file's row groups, or all of a JSONL file.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, BinaryIO, NamedTuple

import msgspec
import orjson
import zstandard
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from gristmill.config.settings import TablesConfig
from gristmill.core.errors import ConfigError, InputError, MissingExtraError
from gristmill.core.names import printable
from gristmill.core.plain_files import open_plain, require_plain

TEXT_COLUMNS = ("content", "text", "code", "source", "body")
PATH_COLUMNS = ("max_stars_repo_path", "path", "file_path", "file_name", "filename")
REPO_COLUMNS = ("max_stars_repo_name", "repo_name", "repository_name", "repo")
LICENSE_COLUMNS = ("max_stars_repo_licenses", "licenses", "license", "detected_licenses")
NOASSERTION = "NOASSERTION"
MAX_EXPRESSION_CHARACTERS = 1000

MAX_ROW_BYTES = 64 << 20
ROWS_TO_LOOK_AT = 100
"""Of a JSONL file, to see which columns it has."""
CHUNK_BYTES = 1 << 20
ZSTD_CHUNK_BYTES = 4 << 10
"""Zstandard can make 32,768 bytes of one: from so few at a time never more than 128 MiB come at once."""
BATCH_ROWS = 256
SHARED_BYTES = 64 << 20
UTF8_MARK = b"\xef\xbb\xbf"
TOO_LONG = object()
"""Stands for a text of more than MAX_ROW_BYTES."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    text: str | None
    """None: there is no column of text, so this is no table of texts."""
    path: str | None
    repo: str | None
    license: str | None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known of a table before it is read."""

    columns: Columns
    known: tuple[str, ...]
    """All columns there are."""
    first_rows: tuple[int, ...]
    """Of each part, the number of its first row, counted from 0."""


class TableRow(NamedTuple):
    text: bytes
    """UTF-8; empty where the row is bad."""
    defect: str | None
    path: str | None
    repo: str | None
    license: str | None


def survey(location: str, origin: str, config: TablesConfig) -> Survey:
    """`origin`: how messages call the table."""
    with _damage_told(origin):
        if _is_parquet(location):
            kinds, first_rows = _parquet_kinds(location)
        else:
            kinds, first_rows = _jsonl_kinds(location), (0,)
    columns = Columns(
        text=_choose("text", config.text_column, TEXT_COLUMNS, kinds, origin),
        path=_choose("path", config.path_column, PATH_COLUMNS, kinds, origin),
        repo=_choose("repo", config.repo_column, REPO_COLUMNS, kinds, origin),
        license=_choose("license", config.license_column, LICENSE_COLUMNS, kinds, origin),
    )
    return Survey(columns=columns, known=tuple(kinds), first_rows=first_rows)


def rows_of(location: str, origin: str, columns: Columns, part: int) -> Iterator[TableRow]:
    with _damage_told(origin):
        yield from _parquet_rows(location, columns, part) if _is_parquet(location) else _jsonl_rows(location, columns)


def license_expression(said: Any) -> str | None:
    """`["MIT", "apache-2.0", "other"]` -> `Apache-2.0 OR MIT`; NOASSERTION if none is an id, None if none is there."""
    words = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    words = [word for word in words if isinstance(word, str) and word.strip()]
    known = sorted({expression for word in words if (expression := _canonical(word)) is not None})
    return " OR ".join(known) or NOASSERTION if words else None


@lru_cache(maxsize=4096)
def _canonical(word: str) -> str | None:
    try:
        return str(canonicalize_license_expression(word)) if len(word) <= MAX_EXPRESSION_CHARACTERS else None
    except InvalidLicenseExpression:
        return None


def _is_parquet(location: str) -> bool:
    return location.lower().endswith(".parquet")


def _choose(what: str, named: str | None, usual: Sequence[str], kinds: dict[str, bool], origin: str) -> str | None:
    """The column that the settings name, else the first of the usual ones. `kinds`: whether a column holds text."""
    if named is None:
        return next((name for name in usual if name in kinds and (kinds[name] or what == "license")), None)
    if named not in kinds:
        there = ", ".join(map(printable, kinds)) or "none"
        raise ConfigError(f"{origin!r} has no column {named!r} for tables.{what}_column. It has: {there}.")
    if what == "text" and not kinds[named]:
        raise ConfigError(f"the column {named!r} of {origin!r} holds no text. Name another as tables.text_column.")
    return named


@contextmanager
def _damage_told(origin: str) -> Iterator[None]:
    try:
        yield
    except (ConfigError, InputError):
        raise
    except OSError as error:
        if error.strerror:
            raise InputError(f"cannot read the table {origin!r}: {error.strerror}.") from None
        raise _damaged(origin, error) from None
    except MemoryError:
        raise InputError(
            f"reading the table {origin!r} takes too much memory. Write it with shorter rows or smaller row groups."
        ) from None
    except (ValueError, EOFError, zlib.error, zstandard.ZstdError, NotImplementedError) as error:
        raise _damaged(origin, error) from None
    except Exception as error:
        if type(error).__module__.startswith("pyarrow"):  # of an extra: its classes cannot be named here
            raise _damaged(origin, error) from None
        raise


def _damaged(origin: str, error: BaseException) -> InputError:
    why = printable(" ".join(str(error).split())).rstrip(".") or type(error).__name__
    return InputError(f"the table {origin!r} is damaged: {why}.")


# --- Parquet


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'gristmill[parquet]'.") from None
    return pa, parquet


def _open_parquet(location: str, shared: Sequence[str] = ()) -> Any:
    """`shared`: columns that are to come as dictionaries."""
    require_plain(location)
    _, parquet = _parquet()
    options = {"pre_buffer": False, "buffer_size": CHUNK_BYTES, "page_checksum_verification": True}
    return parquet.ParquetFile(location, read_dictionary=shared, **options)


def _shared_columns(location: str, part: int, names: Sequence[str]) -> list[str]:
    """Columns of text that are small in the file: what many rows share is then in memory once.

    Ten million bytes may stand for 256 rows. A large column is no such thing, and as a dictionary it would stay in
    memory from the first row to the last.
    """
    kinds, _ = _parquet_kinds(location)
    with _open_parquet(location) as file:
        group = file.metadata.row_group(part)
        chunks = [group.column(number) for number in range(group.num_columns)]
    small = {chunk.path_in_schema for chunk in chunks if chunk.total_uncompressed_size <= SHARED_BYTES}
    return [name for name in names if kinds[name] and name in small]


def _parquet_kinds(location: str) -> tuple[dict[str, bool], tuple[int, ...]]:
    with _open_parquet(location) as file:
        schema = file.schema_arrow
        kinds = {field.name: _holds_text(field.type) for field in schema if schema.names.count(field.name) == 1}
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    return kinds, tuple(accumulate(sizes, initial=0))[:-1]


def _holds_text(kind: Any) -> bool:
    types = _parquet()[0].types
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


def _parquet_rows(location: str, columns: Columns, part: int) -> Iterator[TableRow]:
    pa, _ = _parquet()
    names = list(dict.fromkeys(name for name in msgspec.structs.astuple(columns) if name is not None))
    with _open_parquet(location, _shared_columns(location, part, names)) as file:
        batches = file.iter_batches(BATCH_ROWS, row_groups=[part], columns=names, use_threads=False)
        for batch in batches:
            held = [_values(pa, batch.column(name)) for name in names]
            for values in zip(*held, strict=True):
                row = dict(zip(names, values, strict=True))
                if any(value is TOO_LONG for value in values):
                    yield TableRow(b"", f"longer than {MAX_ROW_BYTES} bytes", None, None, None)
                else:
                    yield _row(row, columns)


def _values(pa: Any, column: Any) -> Iterator[Any]:
    """Values one by one; text as bytes, not yet known to be UTF-8."""
    if pa.types.is_dictionary(column.type) and _holds_text(column.type):
        texts = column.dictionary.cast(pa.large_binary())
        for index in column.indices.to_pylist():
            yield None if index is None else _bytes_of(texts[index])
    elif _holds_text(column.type):
        yield from map(_bytes_of, column.cast(pa.large_binary()))
    else:
        yield from map(_plain, column)


def _bytes_of(value: Any) -> Any:
    buffer = value.as_buffer()
    if buffer is None:
        return None
    return buffer.to_pybytes() if buffer.size <= MAX_ROW_BYTES else TOO_LONG


def _plain(value: Any) -> Any:
    try:
        return value.as_py()
    except (UnicodeDecodeError, ValueError, OverflowError):  # a list of texts that are none, a date of no calendar
        return None


# --- JSONL


def _jsonl_kinds(location: str) -> dict[str, bool]:
    """Column -> whether any of the first rows has text in it."""
    kinds: dict[str, bool] = {}
    for line in islice(_lines(location), ROWS_TO_LOOK_AT):
        values = _parsed(line)
        if isinstance(values, dict):
            for name, value in values.items():
                kinds[name] = kinds.get(name, False) or isinstance(value, str)
    return kinds


def _jsonl_rows(location: str, columns: Columns) -> Iterator[TableRow]:
    for line in _lines(location):
        values = _parsed(line)
        yield _row(values, columns) if isinstance(values, dict) else TableRow(b"", values, None, None, None)


def _parsed(line: bytes | None) -> dict[str, Any] | str:
    """The row, or what is wrong with it."""
    if line is None:
        return f"longer than {MAX_ROW_BYTES} bytes"
    try:
        row = orjson.loads(line)
    except ValueError as error:
        return f"invalid JSON: {str(error).partition(': line')[0]}"
    return row if isinstance(row, dict) else f"no JSON object but {_kind(row)}"


def _lines(location: str) -> Iterator[bytes | None]:
    """Those that are not blank; None for one that is too long."""
    with open_plain(location) as stream:
        lowered = location.lower()
        chunks = _zstd_chunks(stream) if lowered.endswith(".zst") else _chunks(stream, is_gzip=lowered.endswith(".gz"))
        is_first = True
        for line in split_lines(chunks, MAX_ROW_BYTES):
            content = line.removeprefix(UTF8_MARK) if is_first and line is not None else line
            is_first = False
            if content is None or content.strip():
                yield content


def split_lines(chunks: Iterator[bytes], max_bytes: int) -> Iterator[bytes | None]:
    """Never holds more than one line and one chunk; a longer line is None."""
    held = bytearray()
    is_too_long = False
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        for index, piece in enumerate(pieces):
            if is_too_long or len(held) + len(piece) > max_bytes:
                is_too_long = True
                held.clear()
            else:
                held += piece
            if index < len(pieces) - 1:
                yield None if is_too_long else bytes(held)
                held.clear()
                is_too_long = False
    if held or is_too_long:
        yield None if is_too_long else bytes(held)


def _chunks(stream: BinaryIO, *, is_gzip: bool) -> Iterator[bytes]:
    source: Any = gzip.GzipFile(fileobj=stream) if is_gzip else stream
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _zstd_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Frame after frame. zstandard's own reader takes a file that is cut short for one that ends."""
    frame = None
    while packed := stream.read(ZSTD_CHUNK_BYTES):
        while packed:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(packed)
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it is cut short")


# --- Both


def _row(values: dict[str, Any], columns: Columns) -> TableRow:
    assert columns.text is not None
    names = (_name(values.get(column)) if column is not None else None for column in (columns.path, columns.repo))
    path, repo = names
    said = values.get(columns.license) if columns.license is not None else None
    spdx = license_expression(said.decode("utf-8", "replace") if isinstance(said, bytes) else said)
    text, defect = _text(values, columns.text)
    return TableRow(text, defect, path, repo, spdx)


def _name(value: Any) -> str | None:
    """In the system's form, which `path_text` escapes."""
    return (
        value.decode("utf-8", "surrogateescape")
        if isinstance(value, bytes)
        else value
        if isinstance(value, str)
        else None
    )


def _text(values: dict[str, Any], column: str) -> tuple[bytes, str | None]:
    value = values.get(column)
    if isinstance(value, str):
        return value.encode("utf-8"), None
    if not isinstance(value, bytes):
        return b"", f"{column} is {_kind(value)}" if column in values else f"it has no {column}"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return b"", f"{column} is not UTF-8 at byte {error.start}"
    return value, None


def _kind(value: Any) -> str:
    kinds = {type(None): "null", bool: "true or false", dict: "an object", list: "a list", str: "a text"}
    return kinds.get(type(value), "a number")
