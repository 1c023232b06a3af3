"""What the datasets of a comparison are called in tables: their folders' names, with as much before as it takes."""

from collections.abc import Sequence

from gristmill.dataset import Dataset
from gristmill.errors import ConfigError
from gristmill.naming import path_text


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
