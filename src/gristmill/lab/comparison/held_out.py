"""Which files are held out in every one of several datasets, and their text as the rows show it.

A file is the same in two datasets if it has the same repo, path and text (`text_sha256` in files.jsonl). Rows that no
build made come without files.jsonl: there a file counts as held out if it has rows in validation or test and none in
train, and its text is the same if it contradicts nobody's. A token is in the text if any dataset shows it: what one
has cut, sampled away or left at a tail, another may have, and what train shows is taken out later in any case.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.core.errors import ConfigError
from gristmill.core.files_table import file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import path_text
from gristmill.core.records import FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import read_rows, read_windows
from gristmill.dataset.stretches import Stretch, join

# What the datasets of a comparison are called in tables: their folders' names, with as much before as it takes.


def names_of(datasets: Sequence[Dataset]) -> list[str]:
    """`runs/a/out` and `runs/b/out` -> `a/out`, `b/out`; no two are the same."""
    paths = [dataset.folder.resolve().parts for dataset in datasets]
    if len(set(paths)) < len(paths):
        twice = next(dataset.folder for number, dataset in enumerate(datasets) if paths[number] in paths[:number])
        raise ConfigError(f"{str(twice)!r} is named twice. Name each dataset once.")
    for count in range(1, max(map(len, paths)) + 1):
        names = [path_text("/".join(parts[-count:])) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [path_text(str(dataset.folder)) for dataset in datasets]


HELD_OUT = (Split.VALIDATION, Split.TEST)


class HeldOutFile(NamedTuple):
    key: FileKey
    stretches: list[Stretch]

    @property
    def num_tokens(self) -> int:
        return sum(len(stretch.ids) for stretch in self.stretches)


def held_out_in_all(datasets: Sequence[Dataset]) -> list[HeldOutFile]:
    """In the order of their names, whatever the order of the datasets."""
    wanted = _same_in_all([_held_out_in(dataset) for dataset in datasets])
    return _texts(((dataset, split) for dataset in datasets for split in HELD_OUT), wanted)


def files_of_test(test: Dataset) -> list[HeldOutFile]:
    """All files of its `test` split."""
    return _texts([(test, Split.TEST)], _files_in(test, Split.TEST))


def _same_in_all(held_out: Sequence[Mapping[FileKey, str | None]]) -> set[FileKey]:
    in_all = set.intersection(*(set(files) for files in held_out))
    digests = {key: {files[key] for files in held_out} - {None} for key in in_all}
    return {key for key in in_all if len(digests[key]) <= 1}


def _held_out_in(dataset: Dataset) -> dict[FileKey, str | None]:
    """By file, its text's digest where one is on record."""
    if not isinstance(dataset.record, Manifest):
        shown = set.union(*(_files_in(dataset, split) for split in HELD_OUT))
        return dict.fromkeys(shown - _files_in(dataset, Split.TRAIN))
    rows = file_rows(dataset.folder / FILES)
    return {row.key: row.text_sha256 for row in rows if row.status == "kept" and row.split in HELD_OUT}


def _texts(splits: Iterable[tuple[Dataset, Split]], wanted: set[FileKey]) -> list[HeldOutFile]:
    windows: defaultdict[FileKey, list[Stretch]] = defaultdict(list)
    for dataset, split in splits:
        for row in read_rows(dataset, split):
            for window in row.windows:
                if window.file in wanted and not window.variant:
                    windows[window.file].append(row.shown(window).stretch)
    joined = ((key, join(shown)) for key, shown in sorted(windows.items()))
    return [HeldOutFile(key, stretches) for key, stretches in joined if stretches is not None]


def _files_in(dataset: Dataset, split: Split) -> set[FileKey]:
    """Of which it has rows."""
    return {window.file for row in read_windows(dataset, split) for window in row.windows}
