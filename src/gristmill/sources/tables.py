"""Read the rows of a local Parquet or JSONL file one by one, in little memory. An unusable row has a `defect`.

The parts of a table can be read independently. Each row group of a Parquet file is a part. A JSONL file is one part.
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
SURVEYED_ROWS = 100
"""Number of rows of a JSONL file that are read to find its columns."""
CHUNK_BYTES = 1 << 20
ZSTD_CHUNK_BYTES = 4 << 10
"""Zstandard can expand one byte to 32,768 bytes, so a chunk of this size never expands to more than 128 MiB."""
BATCH_ROWS = 256
MAX_DICTIONARY_BYTES = 64 << 20
"""Larger columns are not read as dictionaries."""
UTF8_BOM = b"\xef\xbb\xbf"
TOO_LONG = object()
"""Placeholder for a text of more than MAX_ROW_BYTES."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the columns to read. A name is None if the table has no such column."""

    text: str | None
    """None if no column is configured and none in TEXT_COLUMNS contains text. The file is then not a table of texts."""
    path: str | None
    repo: str | None
    license: str | None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Columns and parts of a table, found before its rows are read."""

    columns: Columns
    known: tuple[str, ...]
    """Names of all columns."""
    first_rows: tuple[int, ...]
    """Index of the first row of each part, from 0."""


class TableRow(NamedTuple):
    """A row of a table."""

    text: bytes
    """UTF-8. Empty if the row has a defect."""
    defect: str | None
    """Reason why the row cannot be used, or None."""
    path: str | None
    repo: str | None
    license: str | None


def survey(location: str, origin: str, config: TablesConfig) -> Survey:
    """Find the columns and parts of a table. `origin` is the name of the table in messages."""
    with _name_table_in_errors(origin):
        if _is_parquet(location):
            has_text, first_rows = _parquet_columns(location)
        else:
            has_text, first_rows = _jsonl_columns(location), (0,)
    columns = Columns(
        text=_choose_column("text", config.text_column, TEXT_COLUMNS, has_text, origin),
        path=_choose_column("path", config.path_column, PATH_COLUMNS, has_text, origin),
        repo=_choose_column("repo", config.repo_column, REPO_COLUMNS, has_text, origin),
        license=_choose_column("license", config.license_column, LICENSE_COLUMNS, has_text, origin),
    )
    return Survey(columns=columns, known=tuple(has_text), first_rows=first_rows)


def read_part(location: str, origin: str, columns: Columns, part: int) -> Iterator[TableRow]:
    """Read the rows of one part of a table. `origin` is the name of the table in messages."""
    with _name_table_in_errors(origin):
        yield from _parquet_rows(location, columns, part) if _is_parquet(location) else _jsonl_rows(location, columns)


def license_expression(declared: Any) -> str | None:
    """Combine declared licenses: `["MIT", "apache-2.0", "other"]` -> `Apache-2.0 OR MIT`.

    Return NOASSERTION if licenses are declared but none is a valid SPDX expression. Return None if none is declared.
    """
    entries = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    entries = [entry for entry in entries if isinstance(entry, str) and entry.strip()]
    expressions = sorted({expression for entry in entries if (expression := _canonical(entry)) is not None})
    return " OR ".join(expressions) or NOASSERTION if entries else None


@lru_cache(maxsize=4096)
def _canonical(entry: str) -> str | None:
    try:
        return str(canonicalize_license_expression(entry)) if len(entry) <= MAX_EXPRESSION_CHARACTERS else None
    except InvalidLicenseExpression:
        return None


def _is_parquet(location: str) -> bool:
    return location.lower().endswith(".parquet")


def _choose_column(
    role: str, configured: str | None, common_names: Sequence[str], has_text: dict[str, bool], origin: str
) -> str | None:
    """Return the configured column, or else the first of `common_names` that is a column with text, or None.

    `has_text` records for each column of the table whether it contains text. A license column may also contain lists.
    """
    if configured is None:
        return next((name for name in common_names if name in has_text and (has_text[name] or role == "license")), None)
    if configured not in has_text:
        names = ", ".join(map(printable, has_text)) or "none"
        raise ConfigError(f"{origin!r} has no column {configured!r} for tables.{role}_column. Its columns: {names}.")
    if role == "text" and not has_text[configured]:
        raise ConfigError(
            f"column {configured!r} of {origin!r} contains no text. Set tables.text_column to a different column."
        )
    return configured


@contextmanager
def _name_table_in_errors(origin: str) -> Iterator[None]:
    """Turn an error in reading a table into an InputError that names the table."""
    try:
        yield
    except (ConfigError, InputError):
        raise
    except OSError as error:
        if error.strerror:
            raise InputError(f"cannot read the table {origin!r}: {error.strerror}.") from None
        raise _damage_error(origin, error) from None
    except MemoryError:
        raise InputError(
            f"reading the table {origin!r} takes too much memory. Rewrite it with shorter rows or smaller row groups."
        ) from None
    except NotImplementedError as error:
        raise InputError(
            f"cannot read the table {origin!r}: {_one_line(error)}. Write the table with a different compression or "
            "column type, or remove it from the sources."
        ) from None
    except (ValueError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise _damage_error(origin, error) from None
    except Exception as error:
        if type(error).__module__.startswith("pyarrow"):  # an optional dependency: its classes cannot be imported here
            raise _damage_error(origin, error) from None
        raise


def _damage_error(origin: str, error: BaseException) -> InputError:
    return InputError(
        f"the table {origin!r} is damaged: {_one_line(error)}. Replace the file, or remove it from the sources."
    )


def _one_line(error: BaseException) -> str:
    return printable(" ".join(str(error).split())).rstrip(".") or type(error).__name__


# --- Parquet


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to import
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'gristmill[parquet]'.") from None
    return pa, parquet


def _open_parquet(location: str, dictionary_columns: Sequence[str] = ()) -> Any:
    """Open a Parquet file. `dictionary_columns` are read as dictionaries."""
    require_plain(location)
    _, parquet = _parquet()
    options = {"pre_buffer": False, "buffer_size": CHUNK_BYTES, "page_checksum_verification": True}
    return parquet.ParquetFile(location, read_dictionary=dictionary_columns, **options)


def _dictionary_columns(location: str, part: int, names: Sequence[str]) -> list[str]:
    """Return the text columns that are read as dictionaries: those that are small in the file.

    In a dictionary, a value that many rows share is in memory only once. A batch of 256 rows may share one value of ten
    million bytes. A column that is large in the file has few shared values, and its dictionary would remain in memory
    from the first row to the last.
    """
    has_text, _ = _parquet_columns(location)
    with _open_parquet(location) as file:
        group = file.metadata.row_group(part)
        chunks = [group.column(number) for number in range(group.num_columns)]
    small_columns = {chunk.path_in_schema for chunk in chunks if chunk.total_uncompressed_size <= MAX_DICTIONARY_BYTES}
    return [name for name in names if has_text[name] and name in small_columns]


def _parquet_columns(location: str) -> tuple[dict[str, bool], tuple[int, ...]]:
    """Return whether each column contains text, and the index of the first row of each row group."""
    with _open_parquet(location) as file:
        schema = file.schema_arrow
        has_text = {field.name: _is_text_type(field.type) for field in schema if schema.names.count(field.name) == 1}
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    return has_text, tuple(accumulate(sizes, initial=0))[:-1]


def _is_text_type(arrow_type: Any) -> bool:
    types = _parquet()[0].types
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return any(
        test(arrow_type) for test in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _parquet_rows(location: str, columns: Columns, part: int) -> Iterator[TableRow]:
    pa, _ = _parquet()
    names = list(dict.fromkeys(name for name in msgspec.structs.astuple(columns) if name is not None))
    with _open_parquet(location, _dictionary_columns(location, part, names)) as file:
        batches = file.iter_batches(BATCH_ROWS, row_groups=[part], columns=names, use_threads=False)
        for batch in batches:
            value_columns = [_column_values(pa, batch.column(name)) for name in names]
            for values in zip(*value_columns, strict=True):
                row = dict(zip(names, values, strict=True))
                if any(value is TOO_LONG for value in values):
                    yield TableRow(b"", f"longer than {MAX_ROW_BYTES} bytes", None, None, None)
                else:
                    yield _row(row, columns)


def _column_values(pa: Any, column: Any) -> Iterator[Any]:
    """Yield the values of a column. A text is yielded as bytes, which may be invalid UTF-8."""
    if pa.types.is_dictionary(column.type) and _is_text_type(column.type):
        texts = column.dictionary.cast(pa.large_binary())
        for index in column.indices.to_pylist():
            yield None if index is None else _text_bytes(texts[index])
    elif _is_text_type(column.type):
        yield from map(_text_bytes, column.cast(pa.large_binary()))
    else:
        yield from map(_python_value, column)


def _text_bytes(value: Any) -> Any:
    buffer = value.as_buffer()
    if buffer is None:
        return None
    return buffer.to_pybytes() if buffer.size <= MAX_ROW_BYTES else TOO_LONG


def _python_value(value: Any) -> Any:
    try:
        return value.as_py()
    except (UnicodeDecodeError, ValueError, OverflowError):  # for example invalid UTF-8 in a list
        return None


# --- JSONL


def _jsonl_columns(location: str) -> dict[str, bool]:
    """Return for each column whether it contains text in one of the first SURVEYED_ROWS rows."""
    has_text: dict[str, bool] = {}
    for line in islice(_lines(location), SURVEYED_ROWS):
        values = _parse_row(line)
        if isinstance(values, dict):
            for name, value in values.items():
                has_text[name] = has_text.get(name, False) or isinstance(value, str)
    return has_text


def _jsonl_rows(location: str, columns: Columns) -> Iterator[TableRow]:
    for line in _lines(location):
        values = _parse_row(line)
        yield _row(values, columns) if isinstance(values, dict) else TableRow(b"", values, None, None, None)


def _parse_row(line: bytes | None) -> dict[str, Any] | str:
    """Return the row, or its defect."""
    if line is None:
        return f"longer than {MAX_ROW_BYTES} bytes"
    try:
        row = orjson.loads(line)
    except ValueError as error:
        return f"invalid JSON: {str(error).partition(': line')[0]}"
    return row if isinstance(row, dict) else f"expected a JSON object, found {_type_name(row)}"


def _lines(location: str) -> Iterator[bytes | None]:
    """Yield the lines that are not blank, and None for a line that is too long."""
    with open_plain(location) as stream:
        lowered = location.lower()
        chunks = _zstd_chunks(stream) if lowered.endswith(".zst") else _chunks(stream, is_gzip=lowered.endswith(".gz"))
        is_first = True
        for line in split_lines(chunks, MAX_ROW_BYTES):
            content = line.removeprefix(UTF8_BOM) if is_first and line is not None else line
            is_first = False
            if content is None or content.strip():
                yield content


def split_lines(chunks: Iterator[bytes], max_bytes: int) -> Iterator[bytes | None]:
    """Split chunks into lines, with at most one line and one chunk in memory. A line over `max_bytes` becomes None."""
    pending = bytearray()
    is_too_long = False
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        for index, piece in enumerate(pieces):
            if is_too_long or len(pending) + len(piece) > max_bytes:
                is_too_long = True
                pending.clear()
            else:
                pending += piece
            if index < len(pieces) - 1:
                yield None if is_too_long else bytes(pending)
                pending.clear()
                is_too_long = False
    if pending or is_too_long:
        yield None if is_too_long else bytes(pending)


def _chunks(stream: BinaryIO, *, is_gzip: bool) -> Iterator[bytes]:
    source: Any = gzip.GzipFile(fileobj=stream) if is_gzip else stream
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _zstd_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Decompress frame by frame, because zstandard's own reader accepts a truncated file without an error."""
    frame = None
    while packed := stream.read(ZSTD_CHUNK_BYTES):
        while packed:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(packed)
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the Zstandard data is truncated")


# --- Both formats


def _row(values: dict[str, Any], columns: Columns) -> TableRow:
    assert columns.text is not None
    names = (_name(values.get(column)) if column is not None else None for column in (columns.path, columns.repo))
    path, repo = names
    declared = values.get(columns.license) if columns.license is not None else None
    spdx = license_expression(declared.decode("utf-8", "replace") if isinstance(declared, bytes) else declared)
    text, defect = _text(values, columns.text)
    return TableRow(text, defect, path, repo, spdx)


def _name(value: Any) -> str | None:
    """Decode a name without loss. Invalid bytes become surrogates, which `path_text` escapes."""
    return (
        value.decode("utf-8", "surrogateescape")
        if isinstance(value, bytes)
        else value
        if isinstance(value, str)
        else None
    )


def _text(values: dict[str, Any], column: str) -> tuple[bytes, str | None]:
    """Return the text and None, or empty bytes and the defect."""
    value = values.get(column)
    if isinstance(value, str):
        return value.encode("utf-8"), None
    if not isinstance(value, bytes):
        return b"", f"column {column} is {_type_name(value)}" if column in values else f"column {column} is missing"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return b"", f"column {column} is not UTF-8 at offset {error.start}"
    return value, None


def _type_name(value: Any) -> str:
    type_names = {type(None): "null", bool: "a boolean", dict: "an object", list: "a list", str: "a string"}
    return type_names.get(type(value), "a number")
