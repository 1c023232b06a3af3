"""Writers for TRAINERS. Each writer fills a folder with the files that one trainer reads.

Writers for rows of ids add labels. The label is -100 for padding, and for the first id of each segment (the ids of one
document in a row), which no earlier id can predict. End tokens have labels, so that a model learns where a document
ends.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import IDS, IGNORED_LABEL, LABELS, MASK, POSITION_IDS
from gristmill.core.errors import MissingExtraError
from gristmill.core.progress import Step
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.dataset.batches import Order
from gristmill.dataset.dataset import Dataset
from gristmill.formats.arrays import ArrayFile, no_header
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.litdata import write_token_chunks
from gristmill.formats.megatron import FILES as MEGATRON_FILES
from gristmill.formats.token_streams import StreamAddition, StreamBuilder, id_dtype

ROWS_AT_ONCE = 250
"""Maximum number of rows of ids in memory and in a row group. Fewer rows are used if they are long.

A packed row of 2048 ids takes about 0.3 MB while it is read from JSON.
"""
FILE_IDS = 1 << 24
"""Approximate number of ids in a Parquet file. Such a file takes tens of MB."""
FILE_CHARACTERS = 250_000_000
"""Approximate number of characters in a Parquet file of text, the same as in nanochat's own shards."""
MAX_GROUP_TEXTS = 1024
"""Maximum number of documents in a row group of text."""
MIN_GROUPS = 64
"""Minimum number of row groups in a split with enough documents. With n GPUs, each GPU reads every n-th group."""
SEQ_LENGTHS = "seq_lengths"

Flags = npt.NDArray[np.bool_]
Columns = dict[str, Ragged]


class ExportJob(NamedTuple):
    """Input and output of a writer."""

    dataset: Dataset
    splits: dict[Split, str]
    """The trainer's name for each split to write. All these splits have rows."""
    folder: Path
    """Output folder, empty at first. The caller renames it when it is complete."""
    step: Step

    @property
    def schema(self) -> Schema:
        return Schema.of(self.dataset.manifest)

    def num_rows(self, split: Split) -> int:
        return self.dataset.manifest.splits[split].windows

    def batches(self, split: Split, rows: range | None = None) -> Iterator[WindowBatch]:
        """Yield rows of ids without padding."""
        stored = self.dataset.stored_split(self.dataset.manifest.formats[0], split)
        rows = range(len(stored)) if rows is None else rows
        size = self.schema.num_rows_at_once(ROWS_AT_ONCE)
        for start in rows[::size]:
            stop = min(start + size, rows.stop)
            yield stored.read(start, stop)
            self.step.advance(stop - start)

    def texts(self, split: Split) -> Iterator[str]:
        """Yield documents in random order.

        Trainers that read text do not shuffle it, and neighboring rows of the dataset are often from the same
        repository.
        """
        rows = self.dataset[split].unpacked()
        for row in Order(len(rows)).rows(0).tolist():
            yield rows[row]["text"]
            self.step.advance(1)


# Rows of ids in Parquet files. datasets.load_dataset(folder) derives the splits from the file names.


def write_trl(job: ExportJob) -> None:
    _write_rows(job, _trl_columns)


def write_transformers(job: ExportJob) -> None:
    _write_rows(job, _transformers_columns)


def write_axolotl(job: ExportJob) -> None:
    _write_rows(job, _axolotl_columns)


def _trl_columns(batch: WindowBatch, _: Schema, __: int) -> Columns:
    """Return ids, labels and segment lengths. TRL's collator computes positions from the segment lengths."""
    ids, is_first = _flatten(batch)
    starts = np.flatnonzero(is_first)
    lengths = np.diff(starts, append=len(ids.values))
    return {
        IDS: ids,
        LABELS: Ragged(_labels(ids.values, is_first), ids.offsets),
        SEQ_LENGTHS: Ragged(lengths, np.searchsorted(starts, ids.offsets)),
    }


def _transformers_columns(batch: WindowBatch, schema: Schema, pad_id: int) -> Columns:
    """Return rows padded to one length, because the collator only stacks rows. Padding forms an additional segment."""
    ids, is_first = _flatten(batch)
    is_id: Flags = np.arange(schema.length) < ids.sizes[:, None]
    padded = np.full(is_id.shape, pad_id, np.int64)
    padded[is_id] = ids.values
    is_start: Flags = np.arange(schema.length) == ids.sizes[:, None]
    is_start[is_id] = is_first
    is_start[:, 0] = True
    indices = np.arange(is_start.size)
    positions = indices - np.maximum.accumulate(np.where(is_start.ravel(), indices, 0))
    labels = np.where(is_id & ~is_start, padded, IGNORED_LABEL)
    offsets = np.arange(len(batch) + 1) * schema.length
    return {
        IDS: Ragged(padded.ravel(), offsets),
        LABELS: Ragged(labels.ravel(), offsets),
        POSITION_IDS: Ragged(positions, offsets),
    }


def _axolotl_columns(batch: WindowBatch, _: Schema, __: int) -> Columns:
    """Return one row per segment. Axolotl counts positions across a complete row, so it must pack segments itself."""
    ids, is_first = _flatten(batch)
    offsets = np.append(np.flatnonzero(is_first), len(ids.values))
    return {
        IDS: Ragged(ids.values, offsets),
        MASK: Ragged(np.ones(len(ids.values), np.int8), offsets),
        LABELS: Ragged(_labels(ids.values, is_first), offsets),
    }


def _flatten(batch: WindowBatch) -> tuple[Ragged, Flags]:
    """Return the ids, and for each id whether it is the first of a segment."""
    first, last = int(batch.ids.offsets[0]), int(batch.ids.offsets[-1])
    ids = Ragged(batch.ids.values[first:last].astype(np.int64), batch.ids.offsets - first)
    is_first = np.zeros(len(ids.values), np.bool_)
    is_first[ids.offsets[:-1][ids.sizes > 0]] = True
    if POSITION_IDS in batch.columns:
        positions = batch.columns[POSITION_IDS]
        is_first |= positions.values[positions.offsets[0] : positions.offsets[-1]] == 0
    return ids, is_first


def _labels(ids: npt.NDArray[np.int64], is_first: Flags) -> npt.NDArray[np.int64]:
    return np.where(is_first, IGNORED_LABEL, ids)


def _write_rows(job: ExportJob, make_columns: Callable[[WindowBatch, Schema, int], Columns]) -> None:
    pa, parquet = _import_parquet()
    schema, facts = job.schema, job.dataset.manifest.tokenizer
    pad_id = next(
        (token for token in (facts.pad_id, facts.end_id) if token is not None), 0
    )  # any id can pad, because padding has no label
    for split, name in job.splits.items():
        num_rows, rows_per_file = job.num_rows(split), max(1, FILE_IDS // schema.length)
        starts = range(0, num_rows, rows_per_file)
        for number, start in enumerate(starts):
            rows = range(start, min(start + rows_per_file, num_rows))
            tables = (_table(pa, make_columns(batch, schema, pad_id)) for batch in job.batches(split, rows))
            path = job.folder / "data" / f"{name}-{number:05d}-of-{len(starts):05d}.parquet"
            _write_tables(parquet, tables, path)


def _table(pa: Any, columns: Columns) -> Any:
    return pa.table({name: _list_array(pa, column, name) for name, column in columns.items()})


def _list_array(pa: Any, column: Ragged, name: str) -> Any:
    """Return the column as lists of signed integers, because PyTorch supports few operations on unsigned integers."""
    values = pa.array(column.values.astype(np.int8 if name == MASK else np.int32, copy=False))
    return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), values)


def _write_tables(parquet: Any, tables: Iterable[Any], path: Path) -> None:
    """Write each table as a row group."""
    path.parent.mkdir(exist_ok=True)
    tables = iter(tables)
    first = next(tables)
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with parquet.ParquetWriter(path, first.schema, **options) as writer:
        for table in chain((first,), tables):
            writer.write_table(table, row_group_size=len(table))


def _import_parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and optional
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "this trainer reads Parquet, which needs pyarrow: pip install 'gristmill[parquet]'."
        ) from None
    return pa, parquet


# Streams of ids: all documents of a split, each followed by its end token.


def write_nanogpt(job: ExportJob) -> None:
    """Write raw ids, and meta.pkl with the text of each id and the id of each single character."""
    for split, name in job.splits.items():
        with ArrayFile(job.folder / f"{name}.bin", id_dtype(job.schema), no_header) as file:
            for chunk in _stream_chunks(job, split, id_dtype(job.schema)):
                file.append(chunk.content)
    tokenizer, vocab_size = job.dataset.tokenizer, job.schema.vocab_size
    texts = {number: tokenizer.decode([number]).decode(errors="replace") for number in range(vocab_size)}
    characters = {text: number for number, text in reversed(texts.items()) if len(text) == 1}
    meta = {"vocab_size": vocab_size, "itos": texts, "stoi": dict(sorted(characters.items()))}
    (job.folder / "meta.pkl").write_bytes(pickle.dumps(meta, protocol=4))


def write_megatron(job: ExportJob) -> None:
    dtype = MEGATRON_FILES.id_dtype(job.schema)
    for split, name in job.splits.items():
        ends = []
        with ArrayFile(job.folder / f"{name}.bin", dtype, no_header) as file:
            for chunk in _stream_chunks(job, split, dtype):
                file.append(chunk.content)
                ends.append(chunk.ends)
        MEGATRON_FILES.write_index(job.folder / f"{name}.idx", np.concatenate(ends), dtype)


def write_litgpt(job: ExportJob) -> None:
    dtype = np.dtype("<u2" if job.schema.id_type is np.uint16 else "<i4")
    for split, name in job.splits.items():
        write_token_chunks((chunk.content for chunk in _stream_chunks(job, split, dtype)), dtype, job.folder / name)


def _stream_chunks(job: ExportJob, split: Split, dtype: np.dtype[Any]) -> Iterator[StreamAddition]:
    stream = StreamBuilder(job.schema, dtype)
    for batch in job.batches(split):
        yield stream.add(batch)
    yield stream.finish()


# Documents as text.


def write_nanochat(job: ExportJob) -> None:
    """Write the shards of train, then one shard of validation. nanochat uses the last shard for validation."""
    folder = job.folder / "base_data_climbmix"
    train = _write_texts(job, Split.TRAIN, folder)
    validation = _write_texts(job, Split.VALIDATION, folder, is_one_file=True)
    for number, path in enumerate((*train, *validation)):
        path.rename(folder / f"shard_{number:05d}.parquet")


def write_torchtitan(job: ExportJob) -> None:
    for split, name in job.splits.items():
        paths = _write_texts(job, split, job.folder / "data")
        for number, path in enumerate(paths):
            path.rename(path.with_name(f"{name}-{number:05d}-of-{len(paths):05d}.parquet"))


def _write_texts(job: ExportJob, split: Split, folder: Path, *, is_one_file: bool = False) -> list[Path]:
    """Write files with a column `text` under temporary names, and return their paths."""
    pa, parquet = _import_parquet()
    size = min(MAX_GROUP_TEXTS, max(1, job.num_rows(split) // MIN_GROUPS))
    groups = _row_groups(job.texts(split), size)
    paths: list[Path] = []
    for first in groups:
        file_groups = chain((first,), groups) if is_one_file else _groups_of_file(first, groups)
        path = folder / f"{split}-{len(paths)}"
        _write_tables(parquet, (pa.table({"text": group}) for group in file_groups), path)
        paths.append(path)
    return paths


def _row_groups(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    while group := list(islice(texts, size)):
        yield group


def _groups_of_file(first: list[str], others: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield groups until they have at least FILE_CHARACTERS characters in total."""
    num_characters = 0
    for group in chain((first,), others):
        yield group
        num_characters += sum(map(len, group))
        if num_characters >= FILE_CHARACTERS:
            return
