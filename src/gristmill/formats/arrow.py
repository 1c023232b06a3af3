"""Arrow: a folder that `datasets.load_from_disk` maps into memory, a split in a folder of its own.

    arrow/dataset_dict.json                       the splits that have rows: of `finish`, behind the last of them
    arrow/train/data-00000-of-00002.arrow …       record batches
    arrow/train/state.json                        names of these, and the fingerprint that the library caches by
    arrow/train/dataset_info.json

Features are not written down. They are those of the arrow types, as any version of the library finds out; the List of
version 4 is unknown to earlier ones. So pyarrow is all that is needed here.
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
from gristmill.formats.arrow_tables import arrow_schema, batch_of, import_pyarrow, reading, require_kinds, tables_of
from gristmill.formats.batch import WindowBatch
from gristmill.formats.format import Format, Target, files_of

NAME = "Arrow"
STEM, SUFFIX = "data", ".arrow"
STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
FILE_BYTES = 500_000_000
"""As the library cuts them; the record batch that reaches it is the last."""
FINGERPRINT_DIGITS = 16
END = b"\xff\xff\xff\xff\0\0\0\0"
"""Behind the last record batch. A stream that breaks off between two reads like a whole one."""


def write(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    folder = _new_folder(target)
    made = _write_files(folder, batches, target.schema)
    return _named(made, target, _fingerprint(made))


def join(pieces: Iterable[Path], target: Target) -> list[str]:
    """Their files as they are, under new names. A fingerprint of theirs is one of the content too."""
    folder = _new_folder(target)
    made: list[Path] = []
    whole = hashlib.sha256()
    for piece in pieces:
        state = json.loads(read_plain(piece / target.split / STATE))
        whole.update(state["_fingerprint"].encode())
        for path in files_of(piece / target.split, STEM, SUFFIX):
            made.append(_unfinished(folder, len(made)))
            os.replace(path, made[-1])
    return _named(made, target, whole.hexdigest()[:FINGERPRINT_DIGITS])


def _new_folder(target: Target) -> Path:
    folder = target.folder / target.split
    shutil.rmtree(folder, ignore_errors=True)  # what a build that broke off has left
    folder.mkdir()
    return folder


def _unfinished(folder: Path, number: int) -> Path:
    """How many there are is known at the end."""
    return folder / f"{STEM}-{number:05d}{SUFFIX}{UNFINISHED}"


def _named(made: Sequence[Path], target: Target, fingerprint: str) -> list[str]:
    folder = target.folder / target.split
    names = [f"{STEM}-{number:05d}-of-{len(made):05d}{SUFFIX}" for number in range(len(made))]
    for unfinished, name in zip(made, names, strict=True):
        os.replace(unfinished, folder / name)
    _write_json(folder / INFO, {"features": None})
    _write_json(folder / STATE, _state(target.split, names, fingerprint))
    return [f"{target.split}/{name}" for name in (*names, INFO, STATE)]


def _write_files(folder: Path, batches: Iterable[WindowBatch], schema: Schema) -> list[Path]:
    pa = import_pyarrow(NAME)
    kinds, tables = tables_of(pa, batches, schema)
    made: list[Path] = []
    first = list(islice(tables, 1))
    while first or not made:
        made.append(_unfinished(folder, len(made)))
        with pa.OSFile(str(made[-1]), "wb") as stream, pa.ipc.new_stream(stream, kinds) as writer:
            for table in chain(first, tables):
                writer.write_table(table)
                if stream.tell() >= FILE_BYTES:
                    break
        first = list(islice(tables, 1))
    return made


def _fingerprint(files: Iterable[Path]) -> str:
    """Of all bytes, by crc32: a sha256 of them would double the time that writing takes."""
    whole = hashlib.sha256()
    for path in files:
        with open_plain(path) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            whole.update(b"%d %d\n" % (len(content), zlib.crc32(content)))
    return whole.hexdigest()[:FINGERPRINT_DIGITS]


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
    _write_json(folder / SPLITS, {"splits": [split for split in Split if (folder / split / STATE).is_file()]})
    return [SPLITS]


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


class ArrowRows:
    """Mapped into memory: opening reads where record batches lie, reading takes views."""

    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        pa = import_pyarrow(NAME)
        self._folder, self._split, self._schema = folder, split, schema
        paths = files_of(folder / split, STEM, SUFFIX)
        _require_state(folder, split, [path.name for path in paths])
        tables = [_mapped(pa, path, schema) for path in paths]
        with reading(pa, folder / split):
            self._table = pa.concat_tables(tables or [arrow_schema(pa, schema).empty_table()])

    def __len__(self) -> int:
        return len(self._table)

    def read(self, start: int, stop: int) -> WindowBatch:
        with reading(import_pyarrow(NAME), self._folder / self._split):
            rows = self._table.slice(start, max(0, stop - start))
            rows.validate(full=True)
            return batch_of(rows, self._schema)

    def __reduce__(self) -> tuple[type["ArrowRows"], tuple[Path, Split, Schema]]:
        """A map cannot travel to another process; it is made again there."""
        return ArrowRows, (self._folder, self._split, self._schema)


def _require_state(folder: Path, split: Split, names: list[str]) -> None:
    """The library reads what these name."""
    if not names:
        return
    try:
        state = json.loads(read_plain(folder / split / STATE))
        splits = json.loads(read_plain(folder / SPLITS))["splits"] if (folder / SPLITS).exists() else [split]
        is_right = state == _state(split, names, state["_fingerprint"]) and split in splits
        is_right &= set(splits) <= set(Split)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise DatasetError(f"{str(folder / split)!r} is damaged: its JSON tells of other files. Build it again.")


def _mapped(pa: Any, path: Path, schema: Schema) -> Any:
    with reading(pa, path), pa.memory_map(str(path)) as content:
        if content.size() < len(END) or content.read_at(len(END), content.size() - len(END)) != END:
            raise ValueError("its end is missing")
        content.seek(0)
        with pa.ipc.open_stream(content) as stream:
            require_kinds(pa, stream.schema, schema)
            return stream.read_all()


ARROW = Format(
    name="arrow",
    write=write,
    open=ArrowRows,
    require=partial(import_pyarrow, NAME),
    join=join,
    finish=finish,
)
