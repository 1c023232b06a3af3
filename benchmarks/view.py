"""Measure the response times and the memory of the viewer for a dataset of a million windows.

    python benchmarks/view.py [SOURCE] [--windows 1000000]     # prints the contents of benchmarks/view.md

The windows of SOURCE are repeated until there are as many as --windows. A million windows need 3 GB in the folder for
temporary files.
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
from measure import GRISTMILL, STDLIB, machine_text

from gristmill import Config, Manifest, SamplingConfig, build
from gristmill.core.records import Split
from gristmill.views.viewer.viewer_folder import viewer_folder_path

ABSENT_WORD = "quicksilver"
"""Word that no window contains, so that a search reads all windows."""
MEMORY_SAMPLE_SECONDS = 0.02
NUM_RANDOM_ROWS = 50


class Timed(NamedTuple):
    request: str
    milliseconds: float


class Measured(NamedTuple):
    timings: list[Timed]
    memory: dict[str, float]
    """Memory in MB, keyed by the moment of the measurement, such as "after the start"."""
    seconds: dict[str, float]
    index_bytes: int


class Viewer:
    """A viewer in a separate process. A thread samples the memory of that process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.address = json.loads(process.stdout.readline())["address"]
        self.peak_mb = 0.0
        self._process = psutil.Process(process.pid)
        self._connection = http.client.HTTPConnection(self.address.split("/")[2])
        self._cookie: dict[str, str] = {}
        self._stop_sampling = threading.Event()
        self._sampler = threading.Thread(target=self._sample_memory, daemon=True)
        self._sampler.start()

    def mb(self) -> float:
        return float(self._process.memory_info().rss) / 1e6

    def log_in(self) -> None:
        """Open the viewer's address, which contains an access token, and keep the cookie of the response."""
        self._connection.request("GET", "/?" + self.address.partition("?")[2])
        response = self._connection.getresponse()
        response.read()
        self._cookie = {"Cookie": (response.headers["Set-Cookie"] or "").partition(";")[0]}

    def request(self, address: str, /, **fields: object) -> Any:
        self._connection.request("GET", f"{address}?{urlencode(fields)}", headers=self._cookie)
        response = self._connection.getresponse()
        content = response.read()
        assert response.status == http.HTTPStatus.OK, content
        return json.loads(content) if address.startswith("/api/") else content

    def milliseconds(self, address: str, /, **fields: object) -> float:
        started = time.perf_counter()
        self.request(address, **fields)
        return 1000 * (time.perf_counter() - started)

    def _sample_memory(self) -> None:
        while not self._stop_sampling.wait(MEMORY_SAMPLE_SECONDS):
            self.peak_mb = max(self.peak_mb, self.mb())

    def close(self) -> None:
        self._stop_sampling.set()
        self._sampler.join()


@contextmanager
def open_viewer(folder: Path) -> Iterator[Viewer]:
    command = [GRISTMILL, "view", str(folder), "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        viewer = Viewer(process)
        try:
            yield viewer
        finally:
            viewer.close()
            process.terminate()


def first_page_milliseconds(viewer: Viewer) -> float:
    """Return the milliseconds to load the page, the facts about the dataset, and the first rows."""
    return sum(viewer.milliseconds(path) for path in ("/", "/api/dataset", "/api/windows"))


def index_seconds(viewer: Viewer) -> float:
    started = time.perf_counter()
    while not viewer.request("/api/dataset")["index"]["is_ready"]:
        time.sleep(0.1)
    return time.perf_counter() - started


def search_seconds(viewer: Viewer, **fields: object) -> float:
    started = time.perf_counter()
    after: dict[str, object] = {}
    while True:
        found = viewer.request("/api/search", q=ABSENT_WORD, **fields, **after)
        assert not found["hits"]
        if found["next"] is None:
            return time.perf_counter() - started
        after = {"after": found["next"]}


REQUESTS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("first page, filtered by path and language", "/api/windows", {"path": "json", "language": "python"}),
    ("second page, filtered by path and language", "/api/windows", {"path": "json", "language": "python", "from": 50}),
    ("first page, filtered by a glob", "/api/windows", {"path": "*/test/*.py"}),
    ("a file with its windows", "/api/file", {"repo": Path(STDLIB).name, "path": "json/decoder.py"}),
    ("dropped files", "/api/files", {"status": "dropped"}),
    ("part of a search through all windows", "/api/search", {"q": ABSENT_WORD}),
)


def time_requests(viewer: Viewer, num_rows: int) -> Iterator[Timed]:
    rng = random.Random(0)
    rows = [rng.randrange(num_rows) for _ in range(NUM_RANDOM_ROWS)]
    yield Timed("first page, with an index", first_page_milliseconds(viewer))
    yield Timed("last page", viewer.milliseconds("/api/windows", **{"from": num_rows - 50}))
    timings = [viewer.milliseconds("/api/row", split="train", row=row) for row in rows]
    yield Timed(f"a row, median of {NUM_RANDOM_ROWS} random rows", median(timings))
    for request, address, fields in REQUESTS:
        yield Timed(request, viewer.milliseconds(address, **fields))


def build_windows(source: str, out: Path, num_windows: int) -> Manifest:
    sampling = SamplingConfig(target_windows=num_windows, max_epochs=1000)
    return build(Config(sources=[source], out=str(out), sampling=sampling))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default=STDLIB)
    parser.add_argument("--windows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "dataset")
        manifest = build_windows(options.source, folder, options.windows)
        num_rows = sum(facts.windows for facts in manifest.splits.values())
        num_bytes = sum(facts.bytes for facts in manifest.files.values() if facts.split)
        measured = measure(folder, manifest.splits[Split.TRAIN].windows)
    print("# Viewing a million windows\n")
    print(f"`python benchmarks/view.py`. {machine_text('gristmill', 'numpy', 'orjson')}.\n")
    print(f"The standard library, repeated to {num_rows:,} windows: {num_bytes / 1e9:.1f} GB.\n")
    print_page(measured)


def measure(folder: Path, num_rows: int) -> Measured:
    with open_viewer(folder) as viewer:
        viewer.log_in()
        memory = {"after the start": viewer.mb()}
        timings = [Timed("first page, while the index is built", first_page_milliseconds(viewer))]
        seconds = {"index": index_seconds(viewer)}
        memory["with the index"] = viewer.mb()
        timings += time_requests(viewer, num_rows)
        memory["after these requests"] = viewer.mb()
        seconds |= {"folder": search_seconds(viewer, path="/asyncio/"), "all": search_seconds(viewer)}
        memory |= {"after a search through all windows": viewer.mb(), "maximum": viewer.peak_mb}
    with open_viewer(folder) as viewer:
        viewer.log_in()
        seconds["again"] = index_seconds(viewer)
    index_bytes = sum(path.stat().st_size for path in viewer_folder_path(folder).rglob("*") if path.is_file())
    return Measured(timings, memory, seconds, index_bytes)


def print_page(measured: Measured) -> None:
    seconds = measured.seconds
    print("| request | ms |\n| --- | --: |")
    for request, milliseconds in measured.timings:
        print(f"| {request} | {milliseconds:.0f} |")
    print(
        f"\nThe index is built once, in {seconds['index']:.1f} s, and takes {measured.index_bytes / 1e6:.0f} MB on "
        "disk."
    )
    print(
        f"A viewer that starts later loads the index in {seconds['again']:.1f} s. A search for a word that does not "
        "occur takes"
    )
    print(
        f"{seconds['all']:.0f} s through all windows, and {seconds['folder']:.1f} s through the windows of asyncio.\n"
    )
    print("| memory of the process, including mapped files | MB |\n| --- | --: |")
    for when, megabytes in measured.memory.items():
        print(f"| {when} | {megabytes:.0f} |")


if __name__ == "__main__":
    main()
