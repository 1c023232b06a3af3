"""Files that all datasets of a comparison hold out, with their tokens read from the rows.

A file is the same in two datasets if it has the same repo, path and text (`text_sha256` in files.jsonl). A dataset that
gristmill did not build has no files.jsonl. In such a dataset, a file is held out if it has rows in validation or test
and no rows in train, and its text counts as the same if no rows contradict each other. A token is included if any
dataset contains it in a held-out row. Other datasets may lack the token, because they cut it out of the file, did not
sample it or dropped it at the end of the file. freeze.py later removes tokens that are also in train.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.core.errors import ConfigError
from gristmill.core.files_table import read_file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import path_text
from gristmill.core.records import FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import read_rows, read_windows
from gristmill.dataset.token_spans import TokenSpan, join_spans

# Names of the datasets in tables: the folder names, with as many parent folders as needed to make them unique.


def display_names(datasets: Sequence[Dataset]) -> list[str]:
    """Return a unique short name for each dataset. `runs/a/out` and `runs/b/out` become `a/out` and `b/out`."""
    paths = [dataset.folder.resolve().parts for dataset in datasets]
    if len(set(paths)) < len(paths):
        repeated = next(dataset.folder for number, dataset in enumerate(datasets) if paths[number] in paths[:number])
        raise ConfigError(f"the dataset {str(repeated)!r} is given twice. Give each dataset once.")
    for count in range(1, max(map(len, paths)) + 1):
        names = [path_text("/".join(parts[-count:])) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [path_text(str(dataset.folder)) for dataset in datasets]


HELD_OUT = (Split.VALIDATION, Split.TEST)


class HeldOutFile(NamedTuple):
    """A held-out file and its tokens."""

    key: FileKey
    spans: list[TokenSpan]
    """Contiguous spans of tokens, sorted by position. There may be gaps between the spans."""

    @property
    def num_tokens(self) -> int:
        return sum(len(span.ids) for span in self.spans)


def read_files_held_out_in_all(datasets: Sequence[Dataset]) -> list[HeldOutFile]:
    """Return the files that all datasets hold out, sorted by name."""
    keys = _same_in_all([_held_out_digests(dataset) for dataset in datasets])
    return _read_files(((dataset, split) for dataset in datasets for split in HELD_OUT), keys)


def read_test_files(test: Dataset) -> list[HeldOutFile]:
    """Return all files of the test split, sorted by name."""
    return _read_files([(test, Split.TEST)], _files_in(test, Split.TEST))


def _same_in_all(held_out: Sequence[Mapping[FileKey, str | None]]) -> set[FileKey]:
    in_all = set.intersection(*(set(files) for files in held_out))
    digests = {key: {files[key] for files in held_out} - {None} for key in in_all}
    return {key for key in in_all if len(digests[key]) <= 1}


def _held_out_digests(dataset: Dataset) -> dict[FileKey, str | None]:
    """Return the held-out files of a dataset, each with the digest of its text, or None if no digest is recorded."""
    if not isinstance(dataset.record, Manifest):
        held_out = set.union(*(_files_in(dataset, split) for split in HELD_OUT))
        return dict.fromkeys(held_out - _files_in(dataset, Split.TRAIN))
    rows = read_file_rows(dataset.folder / FILES)
    return {row.key: row.text_sha256 for row in rows if row.status == "kept" and row.split in HELD_OUT}


def _read_files(splits: Iterable[tuple[Dataset, Split]], keys: set[FileKey]) -> list[HeldOutFile]:
    """Read the spans of the files in `keys`, leaving out files whose rows contradict each other."""
    windows: defaultdict[FileKey, list[TokenSpan]] = defaultdict(list)
    for dataset, split in splits:
        for row in read_rows(dataset, split):
            for window in row.windows:
                if window.file in keys and not window.variant:
                    windows[window.file].append(row.with_ids(window).span)
    joined = ((key, join_spans(spans)) for key, spans in sorted(windows.items()))
    return [HeldOutFile(key, spans) for key, spans in joined if spans is not None]


def _files_in(dataset: Dataset, split: Split) -> set[FileKey]:
    """Return the files that have rows in a split."""
    return {window.file for row in read_windows(dataset, split) for window in row.windows}
