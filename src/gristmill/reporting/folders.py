"""Kept files by folder, for a treemap: what is small is counted in the folder above it."""

from gristmill.filestable import FileRow
from gristmill.reporting.facts import Folder

MOST_FOLDERS = 400
DEEPEST = 12
"""Below it, a folder is counted in the one above: a path may have two thousand slashes."""
OTHERS = "other sources"

Parts = tuple[str, ...]
"""Of a folder: its source, then the names on its way."""


class _Sizes:
    __slots__ = ("num_files", "num_tokens")

    def __init__(self) -> None:
        self.num_files = self.num_tokens = 0

    def add(self, num_files: int, num_tokens: int) -> None:
        self.num_files += num_files
        self.num_tokens += num_tokens


class Folders:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], _Sizes] = {}
        """By repo and folder: files right there."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept":
            folder = row.path.rpartition("/")[0]
            self._own.setdefault((row.repo, folder), _Sizes()).add(1, row.shown_tokens)

    def tree(self) -> tuple[list[Folder], int]:
        """Parents first, the largest of each first; and how many folders are not among them."""
        sizes, num_too_deep = self._with_parents()
        # A folder is never larger than the one it is in, so a parent always comes before what is below it.
        order = sorted(sizes, key=lambda parts: (-sizes[parts].num_tokens, -sizes[parts].num_files, len(parts), parts))
        shown = order[:MOST_FOLDERS]
        left_out = order[MOST_FOLDERS:]
        ids = _ids(shown)
        folders = [
            Folder(
                id=ids[parts],
                parent=ids[parts[:-1]] if len(parts) > 1 else "",
                name=parts[-1] or "/",
                files=sizes[parts].num_files,
                tokens=sizes[parts].num_tokens,
            )
            for parts in shown
        ]
        others = [sizes[parts] for parts in left_out if len(parts) == 1]
        if others:
            folders.append(_others(others, set(ids.values())))
        return folders, num_too_deep + len(left_out)

    def _with_parents(self) -> tuple[dict[Parts, _Sizes], int]:
        sizes: dict[Parts, _Sizes] = {}
        num_too_deep = 0
        for (repo, folder), own in self._own.items():
            names = folder.split("/") if folder else []
            num_too_deep += len(names) > DEEPEST
            parts = (repo, *names[:DEEPEST])
            for length in range(1, len(parts) + 1):
                sizes.setdefault(parts[:length], _Sizes()).add(own.num_files, own.num_tokens)
        return sizes, num_too_deep


def _ids(shown: list[Parts]) -> dict[Parts, str]:
    """Names may be anything: a source `a/b` and the folder `b` of a source `a` must not be one."""
    ids: dict[Parts, str] = {}
    taken: set[str] = set()
    for parts in shown:
        above = f"{ids[parts[:-1]]}/" if len(parts) > 1 else ""
        ids[parts] = _free(f"{above}{parts[-1] or '/'}", taken)
        taken.add(ids[parts])
    return ids


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def _others(sizes: list[_Sizes], taken: set[str]) -> Folder:
    return Folder(
        id=_free(OTHERS, taken),
        parent="",
        name=f"{len(sizes):,} {OTHERS}",
        files=sum(one.num_files for one in sizes),
        tokens=sum(one.num_tokens for one in sizes),
    )
