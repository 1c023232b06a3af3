"""FORMATS: the table of all formats that a dataset's rows can be written in.

Configuration, command line, manifest, cards, checks and the reference read it; the code of each format is a module of
`gristmill.formats`. CONTRIBUTING.md says how to add one.
"""

from typing import NamedTuple


class OutputFormat(NamedTuple):
    name: str
    module: str
    """In `gristmill.formats`: its constant of the format's name, in capitals, is the Format."""
    text: str
    """What it is and what reads it, for the reference."""
    snippet: tuple[str, ...]
    """Python that reads the rows, for the dataset's card: a line of imports and an expression. `{split}`: the first
    split that has any; `{id_type}`: of the ids, in NumPy; `{files}`: the files of each split, as a dict."""
    extra: str | None = None
    """Of pyproject.toml, which brings the packages that it needs."""
    datasets_builder: str | None = None
    """What `datasets.load_dataset` calls it; None if it does not read it into the types of the columns. In the order of
    the table, the first one that a dataset has is what `load_dataset(DIR)` takes."""
    media_type: str | None = None
    """Of its files, for Croissant."""
    takes_documents: bool = False
    """It holds rows of documents too, which have no ids."""

    @property
    def folder(self) -> str:
        """In the dataset's folder; "" for JSONL, whose files are in that itself."""
        return "" if self.name == "jsonl" else self.name


_LOAD = ("from datasets import load_dataset", "load_dataset({builder}, data_files={files})")
_FORMATS = (
    OutputFormat(
        "jsonl",
        "jsonl",
        "JSON Lines, one row a line; `.jsonl.zst` with `--compress zstd`",
        _LOAD,
        datasets_builder="json",
        media_type="application/jsonlines",
        takes_documents=True,
    ),
    OutputFormat(
        "parquet",
        "parquet",
        "Parquet, as `datasets`, pandas, DuckDB and the Hub's viewer read it",
        _LOAD,
        extra="parquet",
        datasets_builder="parquet",
        media_type="application/x-parquet",
        takes_documents=True,
    ),
    OutputFormat(
        "arrow",
        "arrow",
        "a folder that `datasets.load_from_disk` maps into memory",
        ("from datasets import load_from_disk", 'load_from_disk("DIR/arrow")'),
        extra="arrow",
    ),
    OutputFormat(
        "npy",
        "token_streams",
        "one array of ids a split, each file's once, with its end token",
        ("import numpy", 'numpy.load("DIR/npy/{split}.npy", mmap_mode="r")'),
    ),
    OutputFormat(
        "bin",
        "token_streams",
        "the same as raw uint16 or uint32, as nanoGPT reads it",
        ("import numpy", 'numpy.memmap("DIR/bin/{split}.bin", numpy.{id_type}, mode="r")'),
    ),
    OutputFormat(
        "megatron",
        "megatron",
        "the same with the index of Megatron-Core's `IndexedDataset`",
        (
            "from megatron.core.datasets.indexed_dataset import IndexedDataset",
            'IndexedDataset("DIR/megatron/{split}")',
        ),
    ),
    OutputFormat(
        "mds",
        "mds",
        "shards of MosaicML's `streaming.StreamingDataset`",
        ("from streaming import StreamingDataset", 'StreamingDataset(local="DIR/mds", split="{split}")'),
    ),
    OutputFormat(
        "litdata",
        "litdata",
        "chunks of `litdata.StreamingDataset`",
        ("from litdata import StreamingDataset", 'StreamingDataset("DIR/litdata/{split}")'),
    ),
)
FORMATS = {one.name: one for one in _FORMATS}
"""By name. Each can be read back, so all that reads a dataset takes the first of these that is there."""
DOCUMENT_FORMATS = tuple(one.name for one in _FORMATS if one.takes_documents)
