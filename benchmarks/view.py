"""How soon does a viewer answer, and does its memory stay flat, over a million windows?

    python benchmarks/view.py [SOURCE] [--windows 1000000]     # prints benchmarks/view.md

SOURCE is shown so many times over that its windows are as many: that takes 3 GB in the folder for temporary files.
"""

import argparse
import http.client
import json
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlencode

import psutil
from measure import GRISTMILL, STDLIB, machine

from gristmill import Config, Manifest, SamplingConfig, build
from gristmill.core.records import Split
from gristmill.views.viewer.viewer_folder import view_folder

RARE = "quicksilver"
"""In no window: a search goes through all of them."""
SECONDS_BETWEEN_LOOKS = 0.02
DEEP_ROWS = 50


class Timed(NamedTuple):
    what: str
    milliseconds: float


class Measured(NamedTuple):
    timings: list[Timed]
    memory: dict[str, float]
    """In MB."""
    seconds: dict[str, float]
    index_bytes: int


class Viewer:
    """A process of its own, asked over HTTP, with an eye on its memory."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.address = json.loads(process.stdout.readline())["address"]
        self.peak_mb = 0.0
        self._process = psutil.Process(process.pid)
        self._connection = http.client.HTTPConnection(self.address.split("/")[2])
        self._cookie: dict[str, str] = {}
        self._is_watched = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def mb(self) -> float:
        return float(self._process.memory_info().rss) / 1e6

    def let_in(self) -> None:
        self._connection.request("GET", "/?" + self.address.partition("?")[2])
        response = self._connection.getresponse()
        response.read()
        self._cookie = {"Cookie": (response.headers["Set-Cookie"] or "").partition(";")[0]}

    def ask(self, address: str, /, **fields: object) -> Any:
        self._connection.request("GET", f"{address}?{urlencode(fields)}", headers=self._cookie)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status == http.HTTPStatus.OK, content
        return json.loads(content) if address.startswith("/api/") else content

    def milliseconds(self, address: str, /, **fields: object) -> float:
        started = time.perf_counter()
        self.ask(address, **fields)
        return 1000 * (time.perf_counter() - started)

    def _watch(self) -> None:
        while not self._is_watched.wait(SECONDS_BETWEEN_LOOKS):
            self.peak_mb = max(self.peak_mb, self.mb())

    def forget(self) -> None:
        self._is_watched.set()
        self._watcher.join()


@contextmanager
def viewing(folder: Path) -> Iterator[Viewer]:
    command = [GRISTMILL, "view", str(folder), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        viewer = Viewer(process)
        try:
            yield viewer
        finally:
            viewer.forget()
            process.terminate()


def first_page(viewer: Viewer) -> float:
    """The page, what it asks for about the dataset, and its first rows."""
    return sum(viewer.milliseconds(path) for path in ("/", "/api/dataset", "/api/windows"))


def index_seconds(viewer: Viewer) -> float:
    started = time.perf_counter()
    while not viewer.ask("/api/dataset")["index"]["is_ready"]:
        time.sleep(0.1)
    return time.perf_counter() - started


def searched_seconds(viewer: Viewer, **fields: object) -> float:
    started = time.perf_counter()
    after: dict[str, object] = {}
    while True:
        found = viewer.ask("/api/search", q=RARE, **fields, **after)
        assert not found["hits"]
        if found["next"] is None:
            return time.perf_counter() - started
        after = {"after": found["next"]}


PAGES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("a page by path and language, first", "/api/windows", {"path": "json", "language": "python"}),
    ("the page after it", "/api/windows", {"path": "json", "language": "python", "from": 50}),
    ("a page by a glob", "/api/windows", {"path": "*/test/*.py"}),
    ("a file and its windows", "/api/file", {"repo": Path(STDLIB).name, "path": "json/decoder.py"}),
    ("dropped files", "/api/files", {"status": "dropped"}),
    ("a search that is not over, per answer", "/api/search", {"q": RARE}),
)


def pages(viewer: Viewer, num_rows: int) -> Iterator[Timed]:
    anywhere = random.Random(0)
    rows = [anywhere.randrange(num_rows) for _ in range(DEEP_ROWS)]
    yield Timed("the first page, with an index", first_page(viewer))
    yield Timed("the last page", viewer.milliseconds("/api/windows", **{"from": num_rows - 50}))
    seen = [viewer.milliseconds("/api/row", split="train", row=row) for row in rows]
    yield Timed(f"a row, median of {DEEP_ROWS} anywhere", median(seen))
    for what, address, fields in PAGES:
        yield Timed(what, viewer.milliseconds(address, **fields))


def made(source: str, out: Path, num_windows: int) -> Manifest:
    sampling = SamplingConfig(target_windows=num_windows, max_epochs=1000)
    return build(Config(sources=[source], out=str(out), sampling=sampling))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--windows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "dataset")
        manifest = made(options.source, folder, options.windows)
        num_rows = sum(facts.windows for facts in manifest.splits.values())
        num_bytes = sum(facts.bytes for facts in manifest.files.values() if facts.split)
        measured = measure(folder, manifest.splits[Split.TRAIN].windows)
    print("# Looking through a million windows\n")
    print(f"`python benchmarks/view.py`. {machine('gristmill', 'numpy', 'orjson')}.\n")
    print(f"The standard library, drawn to {num_rows:,} windows: {num_bytes / 1e9:.1f} GB.\n")
    tell(measured)


def measure(folder: Path, num_rows: int) -> Measured:
    with viewing(folder) as viewer:
        viewer.let_in()
        memory = {"when it answers": viewer.mb()}
        timings = [Timed("the first page, while the index is made", first_page(viewer))]
        seconds = {"index": index_seconds(viewer)}
        memory["with the index"] = viewer.mb()
        timings += pages(viewer, num_rows)
        memory["after these requests"] = viewer.mb()
        seconds |= {"folder": searched_seconds(viewer, path="/asyncio/"), "all": searched_seconds(viewer)}
        memory |= {"after a search through all": viewer.mb(), "at most": viewer.peak_mb}
    with viewing(folder) as viewer:
        viewer.let_in()
        seconds["again"] = index_seconds(viewer)
    kept = sum(path.stat().st_size for path in view_folder(folder).rglob("*") if path.is_file())
    return Measured(timings, memory, seconds, kept)


def tell(measured: Measured) -> None:
    seconds = measured.seconds
    print("| what is asked for | ms |\n| --- | --: |")
    for what, milliseconds in measured.timings:
        print(f"| {what} | {milliseconds:.0f} |")
    print(f"\nThe index takes {seconds['index']:.1f} s, once, and {measured.index_bytes / 1e6:.0f} MB on disk.")
    print(
        f"A viewer that starts later has it after {seconds['again']:.1f} s. A search for a word that is nowhere takes"
    )
    print(f"{seconds['all']:.0f} s through all windows, and {seconds['folder']:.1f} s through those of asyncio.\n")
    print("| memory of the process, mapped files counted | MB |\n| --- | --: |")
    for when, megabytes in measured.memory.items():
        print(f"| {when} | {megabytes:.0f} |")


if __name__ == "__main__":
    main()
