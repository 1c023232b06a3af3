"""Where the rows lie in each format, and the line of Python that reads them there."""

from gristmill.core.manifest import FileFacts, Manifest
from gristmill.core.markdown import literal
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.core.schema import Schema

LOADABLE = tuple(name for name, one in FORMATS.items() if one.datasets_builder is not None)
"""What `datasets.load_dataset` reads, in the order of preference; .jsonl.zst too."""
DIR = "DIR"
"""In the place of the dataset's folder: `datasets` takes a path or a name on the Hub, but not the current folder."""


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
    return {name: _lines(manifest, name) for name in manifest.formats if data_files(manifest, name)}


def _lines(manifest: Manifest, name: str) -> list[str]:
    if name == default_format(manifest):
        return ["from datasets import load_dataset", f"load_dataset({literal(DIR)})"]
    files, form = data_files(manifest, name), FORMATS[name]
    paths = {str(one): [f"{DIR}/{name}" for name in found] for one, found in files.items()}
    told = ", ".join(f"{literal(one)}: [{', '.join(map(literal, names))}]" for one, names in paths.items())
    values = {
        "split": next(iter(files)),
        "id_type": Schema.of(manifest).id_type.__name__,
        "files": f"{{{told}}}",
        "builder": literal(form.datasets_builder),
    }
    return [line.format(**values) for line in form.snippet]
