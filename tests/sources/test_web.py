"""Tests of downloads from real web servers on the loopback interface. The servers misbehave in different ways."""

import json
import threading
import time
import tracemalloc
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gristmill.config.config import Config
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import InputError, OutputError
from gristmill.sources import remote, web
from gristmill.sources.documents import read_bytes
from gristmill.sources.fetch import fetch, scan_rows
from gristmill.sources.remote import download, list_files


@cache
def content():
    return bytes(range(256)) * 4096 * 32


class Server(ThreadingHTTPServer):
    """Web server that sends `content` for every path. The attributes control how the server misbehaves."""

    daemon_threads = True

    def __init__(self, host="127.0.0.1"):
        super().__init__((host, 0), Handler)
        self.content = content()
        self.ignores_ranges = False
        self.drops: list[int] = []
        """For each of the next responses, the number of body bytes after which the server closes the connection."""
        self.announced: int | None = None
        """Size that the server announces instead of the size of the body."""
        self.refuses_head = False
        self.head_is_empty = False
        self.redirects_to: str | None = None
        self.pause = 0.0
        """Seconds that the server waits before each byte of a body."""
        self.requests: list[tuple[str, str | None, str | None]] = []

    def handle_error(self, *_):
        pass  # a test may close the connection early

    @property
    def address(self):
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.respond(has_body=False)

    def do_GET(self):
        self.respond(has_body=True)

    def respond(self, *, has_body):
        server, content, start = self.server, self.server.content, 0
        server.requests.append((self.command, self.headers["Range"], self.headers["Authorization"]))
        if server.redirects_to is not None:
            self.send_response(302)
            self.send_header("Location", server.redirects_to)
            self.end_headers()
            return
        if server.refuses_head and not has_body:
            self.send_error(405)
            return
        if self.headers["Range"] and not server.ignores_ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        size = 0 if server.head_is_empty and not has_body else server.announced or len(content) - start
        self.send_header("Content-Length", str(size))
        self.send_header("ETag", '"one"')
        self.end_headers()
        if has_body:
            self.send_body(memoryview(content)[start:])  # no copy, because a test measures the memory of this process

    def send_body(self, body):
        body = body[: self.server.drops.pop(0)] if self.server.drops else body
        if not self.server.pause:
            self.wfile.write(body)
        for byte in body if self.server.pause else b"":
            self.wfile.write(bytes([byte]))
            time.sleep(self.server.pause)

    def log_message(self, *_):
        pass


@contextmanager
def run_server(host="127.0.0.1"):
    server = Server(host)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(remote, "RETRY_DELAY_SECONDS", (0.01, 0.01, 0.01, 0.01))
    with run_server() as running:
        yield running


def download_bytes(address, folder, **options):
    (file,) = list_files(address)
    download(file, folder / "file", **options)
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_interrupted_download_is_completed(server, tmp_path, ignores_ranges):
    server.ignores_ranges, server.drops = ignores_ranges, [100_000, 5_000_000, 10]
    assert download_bytes(f"{server.address}/a", tmp_path) == content()
    assert [requested_range for method, requested_range, _ in server.requests if method == "GET"][1] == "bytes=100000-"


def test_download_without_progress_fails(server, tmp_path):
    server.ignores_ranges, server.drops = True, [1000] * 50
    with pytest.raises(InputError, match="cannot download"):
        download_bytes(f"{server.address}/a", tmp_path)
    assert len(server.requests) < 20


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_download_takes_little_memory_with_and_without_ranges(server, tmp_path, ignores_ranges):
    server.ignores_ranges, server.drops = ignores_ranges, [100_000]
    (file,) = list_files(f"{server.address}/a")
    tracemalloc.start()
    try:
        download(file, tmp_path / "file")
        assert tracemalloc.get_traced_memory()[1] < len(content()) / 4
    finally:
        tracemalloc.stop()


def test_body_larger_than_its_announced_size_is_refused(server, tmp_path):
    server.announced = 1000
    (file,) = list_files(f"{server.address}/a")
    server.announced = None
    with pytest.raises(InputError, match="sent more than the 1,000 bytes"):
        download(file, tmp_path / "file")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000


def test_download_larger_than_the_disk_is_not_started(server, tmp_path):
    server.announced = 1 << 60
    with pytest.raises(OutputError, match=r"takes .* MB, but only .* MB are free"):
        download_bytes(f"{server.address}/a", tmp_path)
    assert [method for method, _, _ in server.requests] == ["HEAD"]


def test_very_slow_body_times_out(server, tmp_path):
    server.content, server.pause = content()[:1000], 0.05
    with pytest.raises(InputError, match="the last of 5 attempts timed out"):
        download_bytes(f"{server.address}/a", tmp_path, timeout_seconds=0.1)


def test_get_is_used_if_the_server_refuses_head(server, tmp_path):
    server.refuses_head = True
    assert download_bytes(f"{server.address}/a", tmp_path) == content()


def test_get_is_used_if_head_reports_size_zero(server, tmp_path):
    server.head_is_empty = True
    assert download_bytes(f"{server.address}/a", tmp_path) == content()


def test_login_is_not_sent_to_a_redirect_target(server, tmp_path):
    with run_server("127.0.0.2") as other:
        server.redirects_to = f"{other.address}/b"
        assert download_bytes(server.address.replace("//", "//me:p%2Fw@") + "/a", tmp_path) == content()
        assert {login for _, _, login in server.requests} == {"Basic bWU6cC93"}
        assert {login for _, _, login in other.requests} == {None}


def test_redirect_from_public_to_private_address_is_refused(server, tmp_path, monkeypatch):
    """The first server is treated as public, because tests have no public server."""
    monkeypatch.setattr(web, "_is_private", lambda address: address != "127.0.0.1")
    with run_server("127.0.0.2") as inside:
        server.redirects_to = f"{inside.address}/secret"
        with pytest.raises(
            InputError, match=r"redirects to '127\.0\.0\.2', an address of this machine or its local network"
        ):
            download_bytes(f"{server.address}/a", tmp_path)
        assert inside.requests == []
        server.redirects_to = None
        inside.redirects_to = f"{server.address}/b"
        assert download_bytes(f"{inside.address}/a", tmp_path) == content()  # a private server may redirect anywhere


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirect_to_a_different_scheme_is_refused(server, target):
    server.redirects_to = target
    with pytest.raises(InputError, match="cannot read"):
        list_files(f"{server.address}/a")


@pytest.mark.parametrize(
    ("address", "is_private"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", True), ("172.16.0.1", True), ("192.168.1.1", True),
        ("169.254.169.254", True), ("fe80::1%eth0", True), ("fd00::1", True), ("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", True),
        ("100.64.0.1", True), ("0.0.0.0", True), ("8.8.8.8", False), ("2606:4700::1111", False), ("::ffff:8.8.8.8", False),
    ],
)  # fmt: skip
def test_private_addresses_are_recognized(address, is_private):
    assert web._is_private(address) is is_private


def test_table_at_an_address_with_spaces_is_read(server, tmp_path):
    server.content = json.dumps({"text": "a = 1"}).encode() + b"\n"
    config = Config(sources=[f"{server.address}/my data/é.jsonl?x=1"], out="unused")
    found = fetch(config.sources, config, tmp_path / "cache", map)
    files, _ = scan_rows(found.tables, [], ScanConfig())
    assert [read_bytes(file, 99) for file in files] == [b"a = 1"]
