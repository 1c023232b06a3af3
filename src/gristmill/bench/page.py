"""The page that a benchmark leaves, and its chart beside it: written whole, over nothing but an earlier one."""

import os
from pathlib import Path

from gristmill.bench.chart import CHART_HEAD
from gristmill.bench.markdown import HEADING
from gristmill.errors import OutputError
from gristmill.layout import can_hold_files, write_atomically
from gristmill.plainfile import open_plain

CHART_SUFFIX = ".svg"


class Page:
    def __init__(self, path: str, heading: str = HEADING) -> None:
        """Before anything runs: minutes of work are not lost to a name. `heading`: its first line, always."""
        self.path = Path(os.path.expanduser(path))
        if not self.path.name or self.path.is_dir() or self.path.suffix == CHART_SUFFIX:
            raise OutputError(f"{path!r} cannot be the page. Name a file with --out, like bench.md.")
        self.chart = self.path.with_suffix(CHART_SUFFIX)
        if not can_hold_files(self.path.parent):
            raise OutputError(f"cannot write into {str(self.path.parent)!r}. Name a page elsewhere with --out.")
        for place, head in ((self.path, heading.encode()), (self.chart, CHART_HEAD.encode())):
            if not _may_replace(place, head):
                raise OutputError(f"{str(place)!r} exists and is no benchmark's. Name another page with --out.")

    def write(self, markdown: str, svg: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.chart, svg.encode())
            write_atomically(self.path, markdown.encode())
        except OSError as error:
            raise OutputError(f"cannot write {str(self.path)!r}: {error.strerror}.") from None


def _may_replace(path: Path, head: bytes) -> bool:
    try:
        with open_plain(path) as stream:
            return stream.read(len(head)) == head
    except FileNotFoundError:
        return True
    except OSError:
        return False
