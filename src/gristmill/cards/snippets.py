"""Data files of each format, and the Python code that loads them."""

from gristmill.core.manifest import FileFacts, Manifest
from gristmill.core.markdown import literal
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.core.schema import Schema

LOADABLE_FORMATS = tuple(name for name, one in FORMATS.items() if one.datasets_builder is not None)
"""Formats that `datasets.load_dataset` reads, the preferred format first. `load_dataset` also reads .jsonl.zst."""
DIR = "DIR"
"""Placeholder for the path of the dataset folder."""


def data_files(manifest: Manifest, name: str) -> dict[Split, dict[str, FileFacts]]:
    """Return the files of a format, keyed by split and file name. Splits without files are left out."""
    files: dict[Split, dict[str, FileFacts]] = {}
    for split in Split:
        split_files = {
            file: facts for file, facts in manifest.files.items() if facts.split is split and facts.format == name
        }
        if split_files:
            files[split] = split_files
    return files


def default_format(manifest: Manifest) -> str | None:
    """Return the format that `load_dataset(DIR)` loads, or None if it cannot load any format of the dataset.

    A second format cannot be a second configuration, because `datasets` (5.2) reads all configurations of a folder with
    the reader of the first configuration.
    """
    return next((name for name in LOADABLE_FORMATS if name in manifest.formats and data_files(manifest, name)), None)


def loading_code(manifest: Manifest) -> dict[str, list[str]]:
    """Return lines of Python code that load the dataset, keyed by format."""
    return {name: _lines(manifest, name) for name in manifest.formats if data_files(manifest, name)}


def _lines(manifest: Manifest, name: str) -> list[str]:
    if name == default_format(manifest):
        return ["from datasets import load_dataset", f"load_dataset({literal(DIR)})"]
    files, format_ = data_files(manifest, name), FORMATS[name]
    paths = {str(one): [f"{DIR}/{name}" for name in found] for one, found in files.items()}
    file_lists = ", ".join(f"{literal(one)}: [{', '.join(map(literal, names))}]" for one, names in paths.items())
    values = {
        "split": next(iter(files)),
        "id_type": Schema.of(manifest).id_type.__name__,
        "files": f"{{{file_lists}}}",
        "builder": literal(format_.datasets_builder),
    }
    return [line.format(**values) for line in format_.snippet]
