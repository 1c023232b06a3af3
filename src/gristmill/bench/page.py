"""The page that a benchmark leaves, and its chart beside it: written whole, over nothing but an earlier one."""

from pathlib import Path

from gristmill.bench.chart import chart_svg
from gristmill.bench.markdown import HEADING, bench_markdown
from gristmill.bench.results import Bench
from gristmill.errors import OutputError
from gristmill.layout import write_atomically

CHART_SUFFIX = ".svg"
CHART_HEAD = b"<svg"


class Page:
    def __init__(self, path: str) -> None:
        """Before anything runs: minutes of work are not lost to a name."""
        self.path = Path(path).expanduser()
        self.chart = self.path.with_suffix(CHART_SUFFIX)
        if self.path.suffix == CHART_SUFFIX:
            raise OutputError(f"{path!r} is the chart's name. Name the page with --out, like bench.md.")
        if not self.path.parent.is_dir():
            raise OutputError(
                f"there is no folder {str(self.path.parent)!r} for the page. Make it, or name another --out."
            )
        for place, head in ((self.path, HEADING.encode()), (self.chart, CHART_HEAD)):
            if not _may_replace(place, head):
                raise OutputError(f"{str(place)!r} exists and is no benchmark's. Name another page with --out.")

    def write(self, result: Bench) -> None:
        try:
            write_atomically(self.chart, chart_svg(result).encode())
            write_atomically(self.path, bench_markdown(result, self.chart.name).encode())
        except OSError as error:
            raise OutputError(f"cannot write {str(self.path)!r}: {error.strerror}.") from None


def _may_replace(path: Path, head: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(head)) == head
    except FileNotFoundError:
        return True
    except OSError:
        return False
