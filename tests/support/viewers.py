"""A viewer on loopback, a client for the viewer, and small datasets to view."""

import http.client
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gristmill import Config, OutputConfig, SamplingConfig, VariantsConfig, WindowConfig, build
from gristmill.views.viewer.view import RunningViewer, open_viewer
from support.source_trees import write_tree

HOSTILE = "<img src=x onerror=alert(1)>.py"
WORDS = [
    "alpha",
    "beta",
    "Gamma",
    "delta",
    "straße",
    "ſharp",
    "Kelvin",
    "İstanbul",
    "emit",
    "parse",
    "window",
    "piece",
    "数据",
    "value",
]
SUFFIXES = {"python": ".py", "javascript": ".js", "rust": ".rs"}


def prose(rng: random.Random, count: int) -> str:
    """Return lines that are valid code in most languages."""

    def word() -> str:
        return f"{rng.choice(WORDS)}{rng.randrange(99)}"

    return "".join(f"{word()} = {word()}({word()}) + {rng.randrange(9)}\n" for _ in range(count))


def sources(root: Path, num_files: int = 24) -> Path:
    """Write files in three languages with several licenses. One has a hostile name. A build drops some of the files."""
    rng = random.Random(7)
    files: dict[str, str | bytes] = {}
    for number in range(num_files):
        language = list(SUFFIXES)[number % 3]
        license_line = ("", "# SPDX-License-Identifier: MIT\n", "# SPDX-License-Identifier: ISC\n")[number // 3 % 3]
        files[f"{'src' if number % 2 else 'lib/Deep'}/m{number:02d}{SUFFIXES[language]}"] = license_line + prose(
            rng, 36
        )
    files |= {
        HOSTILE: prose(rng, 20) + "x = '\u202e'  # </script>\n",
        "src/tab\tand [x]*.py": prose(rng, 20),
        "zcopy.py": files["src/m01.js"],
        "gen_pb2.py": "x = 1\n",
        "empty.py": "",
    }
    return write_tree(root / "repo", files)


SECTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "packed": {"window": WindowConfig(length=128, pack="best-fit")},
    "zstd": {"output": OutputConfig(compress="zstd")},
    "parquet": {"output": OutputConfig(formats=["parquet"])},
    "shards": {"output": OutputConfig(pad=True, shard_bytes=1 << 16)},
    "documents": {"window": WindowConfig(), "output": OutputConfig(rows="documents")},
    "drawn": {"sampling": SamplingConfig(target_windows=200, max_epochs=3), "variants": VariantsConfig(rates={"noise": 0.5, "rename": 1.0})},
}  # fmt: skip


def built(root: Path, way: str) -> Path:
    sections = {"window": WindowConfig(length=64, overlap=16), **SECTIONS[way]}
    build(Config(sources=[str(sources(root))], out=str(root / way), **sections))
    return root / way


class ViewerClient:
    """HTTP client that keeps the cookie of a viewer, as a browser does."""

    def __init__(self, viewing: RunningViewer) -> None:
        self.port, self.address, self.note = viewing.server.server_port, viewing.address, viewing.note
        self.key = viewing.address.partition("key=")[2]
        self.current, self.once = viewing.server.current, viewing.one_time_address
        self.server = viewing.server
        self.cookie = {"Cookie": self.ask(f"/?key={self.key}")[1]["Set-Cookie"].partition(";")[0]}

    def ask(self, address: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request with only these headers. In their names, `_` stands for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, address, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()
        finally:
            connection.close()

    def get(self, address: str, /, **fields: object) -> tuple[int, Any]:
        query = f"?{urlencode(fields)}" if fields else ""
        status, _, body = self.ask(address + query, **self.cookie)
        return status, json.loads(body)

    def found(self, address: str, /, **fields: object) -> Any:
        """Send a request that must succeed, and return the JSON of the answer."""
        status, answer = self.get(address, **fields)
        assert status == 200, answer
        return answer

    def indexed(self) -> "ViewerClient":
        assert self.current.get().index.wait(30)
        return self


@contextmanager
def viewer(folder: Path, port: int = 0) -> Iterator[ViewerClient]:
    with open_viewer(folder, port) as viewing:
        thread = threading.Thread(target=viewing.server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield ViewerClient(viewing)
        finally:
            viewing.server.shutdown()
            thread.join()
