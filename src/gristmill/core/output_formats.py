"""FORMATS: the table of all formats that a dataset's rows can be written in.

The configuration, command line, manifest, cards, checks and reference use this table. The code of each format is in
`gristmill.formats`. CONTRIBUTING.md explains how to add a format.
"""

from typing import NamedTuple


class OutputFormat(NamedTuple):
    name: str
    module: str
    """Name of the module in `gristmill.formats`. Its constant PARQUET, for example, is the Format for `parquet`."""
    text: str
    """Description for the reference, with the programs that can read the format."""
    snippet: tuple[str, ...]
    """Python code that reads the rows, for the dataset's card: an import line and an expression.

    `{split}` is the first split with rows, `{id_type}` the NumPy type of the ids, `{files}` a dict with the
    files of each split, and `{builder}` the `datasets_builder`."""
    extra: str | None = None
    """Extra in pyproject.toml that installs the packages that the format needs."""
    datasets_builder: str | None = None
    """Name of the format in `datasets.load_dataset`. None if `load_dataset` does not read the correct column types.

    If a dataset has several formats, `load_dataset(DIR)` reads the format that comes first in this table."""
    media_type: str | None = None
    """Media type of the format's files, for croissant.json."""
    takes_documents: bool = False
    """True if the format can also hold rows of documents, which have no ids."""

    @property
    def folder(self) -> str:
        """Folder inside the dataset folder. "" for JSONL, whose files are in the dataset folder itself."""
        return "" if self.name == "jsonl" else self.name


_LOAD = ("from datasets import load_dataset", "load_dataset({builder}, data_files={files})")
_FORMATS = (
    OutputFormat(
        "jsonl",
        "jsonl",
        "JSON Lines, one row per line; `.jsonl.zst` with `--compress zstd`",
        _LOAD,
        datasets_builder="json",
        media_type="application/jsonlines",
        takes_documents=True,
    ),
    OutputFormat(
        "parquet",
        "parquet",
        "Parquet, for `datasets`, pandas, DuckDB and the Hub's viewer",
        _LOAD,
        extra="parquet",
        datasets_builder="parquet",
        media_type="application/x-parquet",
        takes_documents=True,
    ),
    OutputFormat(
        "arrow",
        "arrow",
        "a folder that `datasets.load_from_disk` memory-maps",
        ("from datasets import load_from_disk", 'load_from_disk("DIR/arrow")'),
        extra="arrow",
    ),
    OutputFormat(
        "npy",
        "token_streams",
        "one array of ids per split: the ids of each file once, followed by the end token",
        ("import numpy", 'numpy.load("DIR/npy/{split}.npy", mmap_mode="r")'),
    ),
    OutputFormat(
        "bin",
        "token_streams",
        "the ids of `npy` as raw uint16 or uint32, for nanoGPT",
        ("import numpy", 'numpy.memmap("DIR/bin/{split}.bin", numpy.{id_type}, mode="r")'),
    ),
    OutputFormat(
        "megatron",
        "megatron",
        "the ids of `npy` with an index, for Megatron-Core's `IndexedDataset`",
        (
            "from megatron.core.datasets.indexed_dataset import IndexedDataset",
            'IndexedDataset("DIR/megatron/{split}")',
        ),
    ),
    OutputFormat(
        "mds",
        "mds",
        "shards for MosaicML's `streaming.StreamingDataset`",
        ("from streaming import StreamingDataset", 'StreamingDataset(local="DIR/mds", split="{split}")'),
    ),
    OutputFormat(
        "litdata",
        "litdata",
        "chunks for `litdata.StreamingDataset`",
        ("from litdata import StreamingDataset", 'StreamingDataset("DIR/litdata/{split}")'),
    ),
)
FORMATS = {one.name: one for one in _FORMATS}
"""All formats, keyed by name. If a dataset has several formats, gristmill reads the format that is first here."""
DOCUMENT_FORMATS = tuple(one.name for one in _FORMATS if one.takes_documents)
