"""The licence files of a scan, read: path -> text. Whether a file is wanted as source does not matter here."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence

from gristmill.intake.decoding import decode
from gristmill.intake.reading import read_bytes
from gristmill.intake.sources import Source
from gristmill.intake.trees import Scan
from gristmill.records import Drop, SourceFile

MAX_LICENSE_BYTES = 1 << 18


def read_license_files(
    sources: Sequence[Source], scan: Scan, is_license_name: Callable[[str], bool]
) -> dict[str, dict[str, str | None]]:
    """By source, then by path; None for one that cannot be read."""
    roots = {source.repo: source.root for source in sources}
    found = {(file.repo, file.path): file.location for file in scan.files}
    for drop in scan.drops:
        found.setdefault((drop.repo, drop.path), os.path.join(roots[drop.repo], drop.path))
    for source in sources:
        if source.only is not None:  # files named one by one: the scan has not looked beside them
            beside = os.listdir(source.root)
            found |= {(source.repo, name): os.path.join(source.root, name) for name in beside}
    texts: dict[str, dict[str, str | None]] = defaultdict(dict)
    for (repo, path), location in sorted(found.items()):
        if is_license_name(path.rpartition("/")[2]):
            file = SourceFile(repo=repo, path=path, location=location, size=0)
            raw = read_bytes(file, MAX_LICENSE_BYTES)
            decoded = decode(raw) if not isinstance(raw, Drop) else None
            texts[repo][path] = None if decoded is None or isinstance(decoded, str) else decoded.text.decode()
    return dict(texts)
