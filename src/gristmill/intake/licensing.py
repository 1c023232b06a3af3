"""The licence files of a scan: path -> the licence of its text, whether the file is wanted as source or not."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence

from gristmill.intake.decoding import decode
from gristmill.intake.reading import read_bytes
from gristmill.intake.sources import Source
from gristmill.intake.trees import Scan
from gristmill.naming import path_text, system_path
from gristmill.records import Drop, DropReason, SourceFile

MAX_LICENSE_BYTES = 1 << 17
# Inside the source, and a file: whatever else a drop stands for is not opened.
STILL_A_LICENSE = frozenset({DropReason.EXCLUDED_BY_USER, DropReason.NOT_INCLUDED})


def read_license_files(
    sources: Sequence[Source], scan: Scan, is_license_name: Callable[[str], bool], identify: Callable[[str], str | None]
) -> dict[str, dict[str, str | None]]:
    """By source, then by path; None for one that is not known or cannot be read."""
    roots = {source.repo: source.root for source in sources}
    found = {(file.repo, file.path): file for file in scan.files if is_license_name(_name(file.path))}

    def add(repo: str, path: str, location: str) -> None:
        if is_license_name(_name(path)):
            found.setdefault((repo, path), SourceFile(repo=repo, path=path, location=location, size=0))

    for drop in scan.drops:
        # The row of a table has no source and no place: its path is only a name.
        if drop.repo in roots and drop.reason in STILL_A_LICENSE and not drop.path.endswith("/"):
            add(drop.repo, drop.path, os.path.join(roots[drop.repo], system_path(drop.path)))
    for source in sources:
        if source.only is not None:  # files named one by one: the scan has not looked beside them
            for name in _names_in(source.root):
                add(source.repo, path_text(name), os.path.join(source.root, name))
    licenses: dict[str, dict[str, str | None]] = defaultdict(dict)
    for (repo, path), file in sorted(found.items(), key=lambda item: item[0]):
        text = _read(file)
        licenses[repo][path] = identify(text) if text is not None else None
    return dict(licenses)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # one may open a file in it, and not look around
        return []


def _read(file: SourceFile) -> str | None:
    raw = read_bytes(file, MAX_LICENSE_BYTES)
    decoded = decode(raw) if not isinstance(raw, Drop) else None
    return None if decoded is None or isinstance(decoded, str) else decoded.text.decode()
