"""Arrow: a folder that `datasets.load_from_disk` memory-maps, with a subfolder for each split.

    arrow/dataset_dict.json                       list of the splits with rows; `finish` writes it last
    arrow/train/data-00000-of-00002.arrow …       record batches
    arrow/train/state.json                        file names, and a fingerprint that `datasets` uses as cache key
    arrow/train/dataset_info.json

dataset_info.json records no features, because `datasets` 3 and earlier cannot read the List feature of `datasets` 4.
All versions derive the features from the Arrow types. Writing needs only pyarrow, not `datasets`.
"""

import hashlib
import json
import mmap
import os
import shutil
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gristmill.core.errors import DatasetError
from gristmill.core.layout import UNFINISHED
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.arrow_tables import (
    arrow_schema,
    batch_from_table,
    convert_errors,
    import_pyarrow,
    make_tables,
    require_columns,
)
from gristmill.formats.batch import WindowBatch
from gristmill.formats.format import Format, Target, find_files

NAME = "Arrow"
STEM, SUFFIX = "data", ".arrow"
STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
FILE_BYTES = 500_000_000
"""If a file has reached this size, the next record batch begins a new file, as in `datasets`."""
FINGERPRINT_DIGITS = 16
END_MARKER = b"\xff\xff\xff\xff\0\0\0\0"
"""Last bytes of a complete file. They are checked, because a file could be truncated between two record batches."""


def write(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    """Write a split and return the names of its files."""
    folder = _make_folder(target)
    paths = _write_files(folder, batches, target.schema)
    return _finish_split(paths, target, _fingerprint(paths))


def join(pieces: Iterable[Path], target: Target) -> list[str]:
    """Join the pieces of a split, each written by one task, by renaming their files.

    The fingerprint is computed from the fingerprints of the pieces.
    """
    folder = _make_folder(target)
    paths: list[Path] = []
    digest = hashlib.sha256()
    for piece in pieces:
        state = json.loads(read_plain(piece / target.split / STATE))
        digest.update(state["_fingerprint"].encode())
        for path in find_files(piece / target.split, STEM, SUFFIX):
            paths.append(_temporary_path(folder, len(paths)))
            os.replace(path, paths[-1])
    return _finish_split(paths, target, digest.hexdigest()[:FINGERPRINT_DIGITS])


def _make_folder(target: Target) -> Path:
    folder = target.folder / target.split
    shutil.rmtree(folder, ignore_errors=True)  # left by an interrupted build
    folder.mkdir()
    return folder


def _temporary_path(folder: Path, number: int) -> Path:
    """Return a temporary path. The final name contains the number of files, which is known only at the end."""
    return folder / f"{STEM}-{number:05d}{SUFFIX}{UNFINISHED}"


def _finish_split(paths: Sequence[Path], target: Target, fingerprint: str) -> list[str]:
    """Rename the files to their final names, write the JSON files beside them, and return all names."""
    folder = target.folder / target.split
    names = [f"{STEM}-{number:05d}-of-{len(paths):05d}{SUFFIX}" for number in range(len(paths))]
    for path, name in zip(paths, names, strict=True):
        os.replace(path, folder / name)
    _write_json(folder / INFO, {"features": None})
    _write_json(folder / STATE, _state(target.split, names, fingerprint))
    return [f"{target.split}/{name}" for name in (*names, INFO, STATE)]


def _write_files(folder: Path, batches: Iterable[WindowBatch], schema: Schema) -> list[Path]:
    pa = import_pyarrow(NAME)
    table_schema, tables = make_tables(pa, batches, schema)
    paths: list[Path] = []
    first = list(islice(tables, 1))
    while first or not paths:
        paths.append(_temporary_path(folder, len(paths)))
        with pa.OSFile(str(paths[-1]), "wb") as stream, pa.ipc.new_stream(stream, table_schema) as writer:
            for table in chain(first, tables):
                writer.write_table(table)
                if stream.tell() >= FILE_BYTES:
                    break
        first = list(islice(tables, 1))
    return paths


def _fingerprint(files: Iterable[Path]) -> str:
    """Hash the size and CRC-32 of each file. A SHA-256 of all bytes would double the writing time."""
    digest = hashlib.sha256()
    for path in files:
        with open_plain(path) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            digest.update(b"%d %d\n" % (len(content), zlib.crc32(content)))
    return digest.hexdigest()[:FINGERPRINT_DIGITS]


def _state(split: Split, names: Iterable[str], fingerprint: str) -> dict[str, Any]:
    return {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": str(split),
    }


def finish(folder: Path, _schema: Schema) -> list[str]:
    """Write the list of splits to a file and return the name of the file."""
    _write_json(folder / SPLITS, {"splits": [split for split in Split if (folder / split / STATE).is_file()]})
    return [SPLITS]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


class ArrowRows:
    """Reader of a split. The constructor memory-maps the files and reads the positions of the record batches."""

    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        pa = import_pyarrow(NAME)
        self._folder, self._split, self._schema = folder, split, schema
        paths = find_files(folder / split, STEM, SUFFIX)
        _require_state(folder, split, [path.name for path in paths])
        tables = [_map_file(pa, path, schema) for path in paths]
        with convert_errors(pa, folder / split):
            self._table = pa.concat_tables(tables or [arrow_schema(pa, schema).empty_table()])

    def __len__(self) -> int:
        return len(self._table)

    def read(self, start: int, stop: int) -> WindowBatch:
        with convert_errors(import_pyarrow(NAME), self._folder / self._split):
            rows = self._table.slice(start, max(0, stop - start))
            rows.validate(full=True)
            return batch_from_table(rows, self._schema)

    def __reduce__(self) -> tuple[type["ArrowRows"], tuple[Path, Split, Schema]]:
        """Pickle only the arguments of the constructor, because a memory map cannot be pickled."""
        return ArrowRows, (self._folder, self._split, self._schema)


def _require_state(folder: Path, split: Split, names: list[str]) -> None:
    """Raise DatasetError if the JSON files do not list exactly these files. `datasets` reads only listed files."""
    if not names:
        return
    try:
        state = json.loads(read_plain(folder / split / STATE))
        splits = json.loads(read_plain(folder / SPLITS))["splits"] if (folder / SPLITS).exists() else [split]
        is_valid = state == _state(split, names, state["_fingerprint"]) and split in splits
        is_valid &= set(splits) <= set(Split)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise DatasetError(
            f"{str(folder / split)!r} is damaged: its JSON files do not list exactly its .arrow files. "
            "Build the dataset again."
        )


def _map_file(pa: Any, path: Path, schema: Schema) -> Any:
    with convert_errors(pa, path), pa.memory_map(str(path)) as content:
        if (
            content.size() < len(END_MARKER)
            or content.read_at(len(END_MARKER), content.size() - len(END_MARKER)) != END_MARKER
        ):
            raise ValueError("its end marker is missing")
        content.seek(0)
        with pa.ipc.open_stream(content) as stream:
            require_columns(pa, stream.schema, schema)
            return stream.read_all()


ARROW = Format(
    name="arrow",
    write=write,
    open=ArrowRows,
    require=partial(import_pyarrow, NAME),
    join=join,
    finish=finish,
)
