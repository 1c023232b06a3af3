"""Read the user's benchmark files (HumanEval, MBPP and others), so that the build can cut their texts out of train.

In a Parquet, JSON or JSONL file, each row is one text. The text joins all strings of the row in their order, like a
file that contains the prompt and the solution. Some strings end without a line feed, so a second form of the text has a
line feed between all strings. Any other file is one text.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from gristmill.core.errors import InputError, MissingExtraError
from gristmill.core.names import path_text
from gristmill.core.plain_files import read_plain
from gristmill.sources.addresses import unique_name


class Benchmark(NamedTuple):
    """Texts of one benchmark file."""

    name: str
    """File name without the folder. A second file called `name` becomes `name~2`."""
    sha256: str
    texts: dict[int, tuple[bytes, ...]]
    """Forms of each distinct text, keyed by the index of the first row that contains it, from 0."""


def read_benchmarks(paths: Sequence[str]) -> list[Benchmark]:
    """Read benchmark files and give them unique names."""
    benchmarks: list[Benchmark] = []
    for path in paths:
        benchmark = read_benchmark(path)
        benchmarks.append(benchmark._replace(name=unique_name(benchmark.name, {other.name for other in benchmarks})))
    return benchmarks


def read_benchmark(path: str) -> Benchmark:
    """Read the rows of a Parquet, JSON or JSONL file, or any other file as one text.

    Raise InputError if the file cannot be read or parsed, or contains no text.
    """
    file = Path(os.path.expanduser(path))
    try:
        raw = read_plain(file)
        rows = {forms: row for row, forms in reversed(list(enumerate(_texts(file, raw)))) if forms}
        texts = {row: forms for forms, row in sorted(rows.items(), key=lambda item: item[1])}
    except (ValueError, zstandard.ZstdError, zlib.error, EOFError, RecursionError, gzip.BadGzipFile) as error:
        raise InputError(
            f"cannot parse the benchmark {path!r}: {_parse_error_text(error)}. Check the file, or remove it from "
            "--decontaminate-against."
        ) from None
    except OSError as error:
        raise InputError(f"cannot read the benchmark {path!r}: {error.strerror or error}. Check the path.") from None
    if not texts:
        raise InputError(f"the benchmark {path!r} contains no text. Remove it from --decontaminate-against.")
    return Benchmark(path_text(file.name), hashlib.sha256(raw).hexdigest(), texts)


def _texts(file: Path, raw: bytes) -> Iterator[tuple[bytes, ...]]:
    name = file.name.lower()
    if name.endswith(".parquet"):
        rows: Any = _parquet_rows(file, raw)
    else:
        if name.endswith(".gz"):
            raw = gzip.decompress(raw)
        elif name.endswith(".zst"):
            raw = b"".join(_zstd_frames(raw))
        name = name.removesuffix(".gz").removesuffix(".zst")
        if name.endswith((".jsonl", ".ndjson")):
            rows = [_row(line, number) for number, line in enumerate(raw.splitlines(), 1) if line.strip()]
        elif name.endswith(".json"):
            tree = json.loads(raw)
            rows = tree if isinstance(tree, list) else [tree]
        else:
            yield _forms(raw.decode("utf-8", "replace"))
            return
    for row in rows:
        strings = list(_strings(row))
        yield _forms("".join(strings), "\n".join(strings))


def _row(line: bytes, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {_parse_error_text(error).partition(':')[0]}") from None


def _parse_error_text(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not gzip data" if isinstance(error, gzip.BadGzipFile) else str(error).rstrip(".")


def _forms(*texts: str) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(text.encode("utf-8", "replace") for text in texts if text))


def _zstd_frames(raw: bytes) -> Iterator[bytes]:
    while raw:
        frame = zstandard.ZstdDecompressor().decompressobj()
        yield frame.decompress(raw)
        if not frame.eof:
            raise ValueError("the Zstandard data is truncated")
        raw = frame.unused_data


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _parquet_rows(file: Path, raw: bytes) -> list[Any]:
    try:
        from pyarrow import ArrowException, BufferReader, parquet  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingExtraError(
            f"reading the Parquet file {str(file)!r} needs pyarrow. Install it: pip install 'gristmill[parquet]'"
        ) from None
    try:
        rows: list[Any] = parquet.read_table(BufferReader(raw)).to_pylist()
    except (ArrowException, OSError) as error:  # OSError for damaged pages, although the bytes are in memory
        raise ValueError(str(error).partition("\n")[0]) from None
    return rows
