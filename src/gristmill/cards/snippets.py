"""Where the rows lie in each format, and the line of Python that reads them there."""

from gristmill.core.manifest import FileFacts, Manifest
from gristmill.core.markdown import literal
from gristmill.core.records import Split
from gristmill.core.schema import Schema

LOADABLE = ("jsonl", "parquet")
"""What `datasets.load_dataset` reads, in the order of preference; .jsonl.zst too."""
DIR = "DIR"
"""In the place of the dataset's folder: `datasets` takes a path or a name on the Hub, but not the current folder."""
BUILDERS = {"jsonl": "json", "parquet": "parquet"}
"""What `datasets` calls them."""


def data_files(manifest: Manifest, name: str) -> dict[Split, dict[str, FileFacts]]:
    """A format's files, by split; a split without rows is not there."""
    files: dict[Split, dict[str, FileFacts]] = {}
    for split in Split:
        own = {file: facts for file, facts in manifest.files.items() if facts.split is split and facts.format == name}
        if own:
            files[split] = own
    return files


def default_format(manifest: Manifest) -> str | None:
    """What `load_dataset(DIR)` takes.

    There is one: it reads every configuration of a folder with the reader of the first (datasets 5.2), so that a second
    format cannot be another configuration.
    """
    return next((name for name in LOADABLE if name in manifest.formats and data_files(manifest, name)), None)


def reading_lines(manifest: Manifest) -> dict[str, list[str]]:
    """By format: Python that reads it."""
    by_format = {name: _lines(manifest, name) for name in manifest.formats if data_files(manifest, name)}
    return {name: lines for name, lines in by_format.items() if lines}


def _lines(manifest: Manifest, name: str) -> list[str]:
    files = data_files(manifest, name)
    split = next(iter(files))
    id_type = Schema.of(manifest).id_type.__name__
    if name in LOADABLE:
        if name == default_format(manifest):
            return ["from datasets import load_dataset", f"load_dataset({literal(DIR)})"]
        paths = {str(one): [f"{DIR}/{name}" for name in found] for one, found in files.items()}
        told = ", ".join(f"{literal(one)}: [{', '.join(map(literal, names))}]" for one, names in paths.items())
        return ["from datasets import load_dataset", f"load_dataset({literal(BUILDERS[name])}, data_files={{{told}}})"]
    others = {
        "arrow": ["from datasets import load_from_disk", f'load_from_disk("{DIR}/arrow")'],
        "npy": ["import numpy", f'numpy.load("{DIR}/npy/{split}.npy", mmap_mode="r")'],
        "bin": ["import numpy", f'numpy.memmap("{DIR}/bin/{split}.bin", numpy.{id_type}, mode="r")'],
        "megatron": [
            "from megatron.core.datasets.indexed_dataset import IndexedDataset",
            f'IndexedDataset("{DIR}/megatron/{split}")',
        ],
        "mds": ["from streaming import StreamingDataset", f'StreamingDataset(local="{DIR}/mds", split="{split}")'],
        "litdata": ["from litdata import StreamingDataset", f'StreamingDataset("{DIR}/litdata/{split}")'],
    }
    return others.get(name, [])
