"""Writers of TRAINERS: each fills a folder with what one trainer reads.

Rows of ids get labels here: -100 for what comes first in its document, as it follows from nothing, and for padding.
End tokens have labels, so that a model learns where a document ends.
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
from gristmill.formats.arrays import ArrayFile, no_head
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.litdata import write_token_chunks
from gristmill.formats.megatron import FILES as MEGATRON_FILES
from gristmill.formats.token_streams import Laid, StreamLaying, id_kind

ROWS_AT_ONCE = 250
"""In memory and in a row group of ids. A packed row of 2048 ids takes some 0.3 MB while it is read from JSON."""
FILE_IDS = 1 << 24
"""In a Parquet file of ids, about: some tens of MB."""
FILE_CHARACTERS = 250_000_000
"""In a Parquet file of text, about, as nanochat's own shards have."""
MOST_TEXTS = 1024
"""In a row group of text."""
MIN_GROUPS = 64
"""Row groups of a split, if it has as many documents: of each file, a GPU reads every n-th group."""
SEQ_LENGTHS = "seq_lengths"

Flags = npt.NDArray[np.bool_]
Columns = dict[str, Ragged]


class Source(NamedTuple):
    """Input and output of a writer."""

    dataset: Dataset
    splits: dict[Split, str]
    """Those that the trainer reads and that have rows, by the name that it reads them under."""
    folder: Path
    """Empty, and renamed when it is complete."""
    step: Step

    @property
    def schema(self) -> Schema:
        return Schema.of(self.dataset.manifest)

    def num_rows(self, split: Split) -> int:
        return self.dataset.manifest.splits[split].windows

    def batches(self, split: Split, rows: range | None = None) -> Iterator[WindowBatch]:
        """Rows of ids, without padding."""
        stored = self.dataset.stored(self.dataset.manifest.formats[0], split)
        rows = range(len(stored)) if rows is None else rows
        size = self.schema.num_rows_at_once(ROWS_AT_ONCE)
        for start in rows[::size]:
            stop = min(start + size, rows.stop)
            yield stored.read(start, stop)
            self.step.advance(stop - start)

    def texts(self, split: Split) -> Iterator[str]:
        """Documents, shuffled: trainers that read text take it as it comes, and neighbours are of one repository."""
        rows = self.dataset[split].unpacked()
        for row in Order(len(rows)).rows(0).tolist():
            yield rows[row]["text"]
            self.step.advance(1)


# Rows of ids: Parquet files that datasets.load_dataset(folder) takes as the splits they are named by.


def write_trl(source: Source) -> None:
    _write_rows(source, _trl_columns)


def write_transformers(source: Source) -> None:
    _write_rows(source, _transformers_columns)


def write_axolotl(source: Source) -> None:
    _write_rows(source, _axolotl_columns)


def _trl_columns(batch: WindowBatch, _: Schema, __: int) -> Columns:
    """Its collator makes positions from the lengths of segments."""
    ids, is_first = _flat(batch)
    starts = np.flatnonzero(is_first)
    lengths = np.diff(starts, append=len(ids.values))
    return {
        IDS: ids,
        LABELS: Ragged(_labels(ids.values, is_first), ids.offsets),
        SEQ_LENGTHS: Ragged(lengths, np.searchsorted(starts, ids.offsets)),
    }


def _transformers_columns(batch: WindowBatch, schema: Schema, pad_id: int) -> Columns:
    """Rows of one length, as the collator only stacks them. Padding is one more segment."""
    ids, is_first = _flat(batch)
    is_there: Flags = np.arange(schema.length) < ids.sizes[:, None]
    padded = np.full(is_there.shape, pad_id, np.int64)
    padded[is_there] = ids.values
    begins: Flags = np.arange(schema.length) == ids.sizes[:, None]
    begins[is_there] = is_first
    begins[:, 0] = True
    places = np.arange(begins.size)
    positions = places - np.maximum.accumulate(np.where(begins.ravel(), places, 0))
    labels = np.where(is_there & ~begins, padded, IGNORED_LABEL)
    offsets = np.arange(len(batch) + 1) * schema.length
    return {
        IDS: Ragged(padded.ravel(), offsets),
        LABELS: Ragged(labels.ravel(), offsets),
        POSITION_IDS: Ragged(positions, offsets),
    }


def _axolotl_columns(batch: WindowBatch, _: Schema, __: int) -> Columns:
    """A row for each segment. Axolotl counts positions over whole rows, so it must pack them itself."""
    ids, is_first = _flat(batch)
    offsets = np.append(np.flatnonzero(is_first), len(ids.values))
    return {
        IDS: Ragged(ids.values, offsets),
        MASK: Ragged(np.ones(len(ids.values), np.int8), offsets),
        LABELS: Ragged(_labels(ids.values, is_first), offsets),
    }


def _flat(batch: WindowBatch) -> tuple[Ragged, Flags]:
    """The ids, and which of them come first in a segment."""
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


def _write_rows(source: Source, columns_of: Callable[[WindowBatch, Schema, int], Columns]) -> None:
    pa, parquet = _import_parquet()
    schema, facts = source.schema, source.dataset.manifest.tokenizer
    pad_id = next((one for one in (facts.pad_id, facts.end_id) if one is not None), 0)  # it has no label in any case
    for split, name in source.splits.items():
        num_rows, in_file = source.num_rows(split), max(1, FILE_IDS // schema.length)
        firsts = range(0, num_rows, in_file)
        for number, first in enumerate(firsts):
            rows = range(first, min(first + in_file, num_rows))
            tables = (_table(pa, columns_of(batch, schema, pad_id)) for batch in source.batches(split, rows))
            path = source.folder / "data" / f"{name}-{number:05d}-of-{len(firsts):05d}.parquet"
            _write_tables(parquet, tables, path)


def _table(pa: Any, columns: Columns) -> Any:
    return pa.table({name: _list_array(pa, column, name) for name, column in columns.items()})


def _list_array(pa: Any, column: Ragged, name: str) -> Any:
    """As int32: PyTorch computes little with unsigned numbers."""
    values = pa.array(column.values.astype(np.int8 if name == MASK else np.int32, copy=False))
    return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), values)


def _write_tables(parquet: Any, tables: Iterable[Any], path: Path) -> None:
    """Each as a row group."""
    path.parent.mkdir(exist_ok=True)
    tables = iter(tables)
    first = next(tables)
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with parquet.ParquetWriter(path, first.schema, **options) as writer:
        for table in chain((first,), tables):
            writer.write_table(table, row_group_size=len(table))


def _import_parquet() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and not always there
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "this trainer reads Parquet, which needs pyarrow: pip install 'gristmill[parquet]'."
        ) from None
    return pa, parquet


# Streams of ids: all documents of a split one behind the other, each with its end token.


def write_nanogpt(source: Source) -> None:
    for split, name in source.splits.items():
        with ArrayFile(source.folder / f"{name}.bin", id_kind(source.schema), no_head) as file:
            for laid in _laid(source, split, id_kind(source.schema)):
                file.append(laid.content)
    tokenizer, vocab_size = source.dataset.tokenizer, source.schema.vocab_size
    texts = {number: tokenizer.decode([number]).decode(errors="replace") for number in range(vocab_size)}
    characters = {text: number for number, text in reversed(texts.items()) if len(text) == 1}
    meta = {"vocab_size": vocab_size, "itos": texts, "stoi": dict(sorted(characters.items()))}
    (source.folder / "meta.pkl").write_bytes(pickle.dumps(meta, protocol=4))


def write_megatron(source: Source) -> None:
    kind = MEGATRON_FILES.kind(source.schema)
    for split, name in source.splits.items():
        ends = []
        with ArrayFile(source.folder / f"{name}.bin", kind, no_head) as file:
            for laid in _laid(source, split, kind):
                file.append(laid.content)
                ends.append(laid.ends)
        MEGATRON_FILES.write_index(source.folder / f"{name}.idx", np.concatenate(ends), kind)


def write_litgpt(source: Source) -> None:
    kind = np.dtype("<u2" if source.schema.id_type is np.uint16 else "<i4")
    for split, name in source.splits.items():
        write_token_chunks((laid.content for laid in _laid(source, split, kind)), kind, source.folder / name)


def _laid(source: Source, split: Split, kind: np.dtype[Any]) -> Iterator[Laid]:
    laying = StreamLaying(source.schema, kind)
    for batch in source.batches(split):
        yield laying.lay(batch)
    yield laying.finish()


# Documents as text.


def write_nanochat(source: Source) -> None:
    """It takes the last file of the folder for validation."""
    folder = source.folder / "base_data_climbmix"
    train = _write_texts(source, Split.TRAIN, folder)
    validation = _write_texts(source, Split.VALIDATION, folder, is_one_file=True)
    for number, path in enumerate((*train, *validation)):
        path.rename(folder / f"shard_{number:05d}.parquet")


def write_torchtitan(source: Source) -> None:
    for split, name in source.splits.items():
        paths = _write_texts(source, split, source.folder / "data")
        for number, path in enumerate(paths):
            path.rename(path.with_name(f"{name}-{number:05d}-of-{len(paths):05d}.parquet"))


def _write_texts(source: Source, split: Split, folder: Path, *, is_one_file: bool = False) -> list[Path]:
    """Files with a column `text`, under names of no account."""
    pa, parquet = _import_parquet()
    size = min(MOST_TEXTS, max(1, source.num_rows(split) // MIN_GROUPS))
    groups = _in_groups(source.texts(split), size)
    paths: list[Path] = []
    for first in groups:
        own = chain((first,), groups) if is_one_file else _one_file(first, groups)
        path = folder / f"{split}-{len(paths)}"
        _write_tables(parquet, (pa.table({"text": group}) for group in own), path)
        paths.append(path)
    return paths


def _in_groups(texts: Iterator[str], size: int) -> Iterator[list[str]]:
    while group := list(islice(texts, size)):
        yield group


def _one_file(first: list[str], others: Iterator[list[str]]) -> Iterator[list[str]]:
    """Groups until there are FILE_CHARACTERS."""
    num_characters = 0
    for group in chain((first,), others):
        yield group
        num_characters += sum(map(len, group))
        if num_characters >= FILE_CHARACTERS:
            return
