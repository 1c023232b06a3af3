"""Access control and robustness of the viewer's server, over real HTTP on loopback."""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import gristmill
from gristmill.views.viewer import index
from gristmill.views.viewer.request import RESPONSE_HEADERS
from gristmill.views.viewer.server import MAX_CONNECTIONS
from support.builds import command, refusal, running
from support.viewers import built, viewer

PAGES = ("/", "/row/test/0", "/file?repo=repo&path=a", "/dropped", "/?split=test&path=%2A.py")
DATA = ("/api/dataset", "/api/windows", "/api/row?split=train&row=0", "/api/files", "/api/search?q=a")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return built(tmp_path_factory.mktemp("served"), "plain")


@pytest.fixture(scope="module")
def client(folder):
    with viewer(folder) as client:
        yield client.indexed()


@pytest.mark.parametrize("address", [*PAGES, *DATA, "/app.js", "/nothing"])
def test_requests_without_the_key_are_refused(client, address):
    for cookie in (
        {},
        {"Cookie": "gristmill=1"},
        {"Cookie": f"gristmill-000000000000={client.key}"},
        {"Cookie": "=;;\x7f"},
    ):
        status, headers, body = client.ask(address, **cookie)
        assert status == 403
        assert b"Open the address that gristmill view printed" in body
        assert "Set-Cookie" not in headers


@pytest.mark.parametrize(
    "address", ["/?key=", "/?key=wrong", "/?key=wrong&key={key}", "/?monkey={key}", "/?x=key%3D{key}", "/?key=%ff%00"]
)
def test_wrong_keys_are_refused(client, address):
    status, headers, _ = client.ask(address.format(key=client.key))
    assert (status, "Set-Cookie" in headers) == (403, False)


@pytest.mark.parametrize(
    ("address", "location"),
    [("/?key={key}", "/"), ("/row/train/3?path=a%26b%2F&key={key}&split=", "/row/train/3?path=a%26b%2F"), ("//elsewhere.example/?key={key}", None), ("/api/dataset?key={key}", None)],
)  # fmt: skip
def test_key_is_removed_from_the_address(client, address, location):
    status, headers, _ = client.ask(address.format(key=client.key))
    if location is None:
        assert status == 403
        assert "Location" not in headers
        return
    assert (status, headers["Location"]) == (303, location)
    cookie = headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/"))
    assert client.ask(location, Cookie=f"other=1; {cookie.partition(';')[0]}")[0] == 200


def test_one_time_address_works_once(client):
    """The address must not work twice, because all users of the machine can read the command line of the browser."""
    address = "/?" + client.once().partition("/?")[2]
    assert client.key not in address
    status, headers, _ = client.ask(address)
    assert status == 303
    assert client.ask("/api/dataset", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
    assert client.ask(address)[0] == 403


@pytest.mark.parametrize("address", [*PAGES, *DATA])
def test_requests_with_the_cookie_are_answered_with_strict_headers(client, address):
    status, headers, body = client.ask(address, **client.cookie)
    assert status == 200
    assert {name: headers[name] for name in RESPONSE_HEADERS} == RESPONSE_HEADERS
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    is_page = address in PAGES
    assert headers["Content-Type"] == f"{'text/html' if is_page else 'application/json'}; charset=utf-8"
    if address != DATA[-1]:
        assert client.ask(address, "HEAD", **client.cookie)[::2] == (200, b"")
        assert client.ask(address, "HEAD", **client.cookie)[1]["Content-Length"] == str(len(body))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "localhost@evil.example", "127.0.0.1:80:80", "[::1]"])  # fmt: skip
def test_other_host_names_are_refused(client, host):
    """In a DNS rebinding attack, the host name of another site resolves to 127.0.0.1."""
    for address in ("/", f"/?key={client.key}", "/api/dataset"):
        status, headers, body = client.ask(address, Host=host.format(port=client.port), **client.cookie)
        assert status == 421
        assert "Set-Cookie" not in headers
        assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "LOCALHOST:1"])
def test_forwarded_ports_are_accepted(client, host):
    assert client.ask("/api/dataset", Host=host, **client.cookie)[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_only_link_to_pages(client, site):
    def status(**headers):
        return client.ask("/api/dataset", Sec_Fetch_Site=site, **headers, **client.cookie)[0]

    assert status() == status(Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script") == 403
    assert status(Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe") == 403
    assert status(Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document") == 200
    assert client.ask("/api/dataset", Sec_Fetch_Site="same-origin", **client.cookie)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "BREW"])
def test_only_get_and_head_are_allowed(client, method):
    status, headers, _ = client.ask("/api/dataset", method, **client.cookie)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert {name: headers[name] for name in RESPONSE_HEADERS} == RESPONSE_HEADERS


@pytest.mark.parametrize(
    "address",
    ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/assets/app.js", "/server.py", "/app.js/..", "/app.js%00",
     "/row/train/x", "/row/../../x/1", "/row/train/1/2", "/row/train/-1", "/row/train/" + "9" * 40, "/api/", "/api/../app.js", "/api/dataset/", "/favicon.ico", "//", "/\\..\\x"],
)  # fmt: skip
def test_request_paths_are_never_file_paths(client, address):
    status, headers, body = client.ask(address, **client.cookie)
    if address == "//":  # the same as /
        return
    assert status == 404
    if address.startswith("/api/"):
        assert headers["Content-Type"].startswith("application/json")
        assert json.loads(body) == {"error": "there is no API endpoint at this address."}
    else:
        assert headers["Content-Type"].startswith("text/plain")
        assert body == b"There is no page at this address. The list of windows is at /\n"


@pytest.mark.parametrize(
    ("address", "status"),
    [("/api/windows?split=../../x", 400), ("/api/windows?from=-1", 400), ("/api/windows?from=1e9", 400), ("/api/windows?from=" + "9" * 400, 400), ("/api/windows?from=%D9%A3", 400),
     ("/api/windows?count=x", 400), ("/api/windows?variant=x", 400), ("/api/windows?path=" + "x" * 2000, 400), ("/api/windows?" + "&".join(f"a{n}=1" for n in range(99)), 400),
     ("/api/windows?path=" + "x" * 9000, 414), ("/api/windows?path=" + "x" * 70000, 414), ("/api/row", 400), ("/api/row?split=train", 400), ("/api/row?split=train&row=99999999", 404),
     ("/api/row?split=test&row=1.5", 400), ("/api/row?split=%2e%2e%2fx&row=1", 400), ("/api/file?repo=repo", 400), ("/api/file?repo=..&path=../../etc/passwd", 404),
     ("/api/file?repo=repo&path=/etc/passwd", 404), ("/api/files?reason=x", 400), ("/api/files?status=x", 400), ("/api/search", 400), ("/api/search?q=", 400), ("/api/search?q=a&case=2", 400),
     ("/api/search?q=a&after=train", 400), ("/api/search?q=a&after=x:1:1", 400), ("/api/search?q=a&after=train:-1:0", 400),
     ("/api/nearest?q=a", 400), ("/api/nearest?cursor=train:0:0", 400), ("/api/nearest?q=a&cursor=train", 400), ("/api/nearest?q=a&cursor=train:0:0&back=2", 400)],
)  # fmt: skip
def test_invalid_requests_get_a_one_line_error(client, address, status):
    found, _, body = client.ask(address, **client.cookie)
    assert found == status
    (message,) = json.loads(body).values()
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 200


def test_huge_numbers_are_past_the_end(client):
    assert client.found("/api/windows", **{"from": 10**14, "count": 10**14})["rows"] == []
    assert client.found("/api/search", q="a", after="test:99999999:9")["next"] is None
    assert len(client.found("/api/windows", count=10**9)["rows"]) <= 200


def test_pathological_glob_is_fast(client):
    assert client.found("/api/windows", path="*a" * 200 + "?")["total"] == 0


def test_malformed_requests_close_the_connection(client):
    for sent in (
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\xff\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"A" * 70000,
    ):
        with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
            assert b"gristmill view" not in answer
    assert client.found("/api/dataset")["kept"] > 0


def read_to_end(connection):
    """Read until the connection is closed. Return no bytes if the connection was reset."""
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))
    except ConnectionResetError:
        return b""


@pytest.mark.timeout(60)
def test_number_of_connection_threads_is_limited(folder):
    with viewer(folder) as client, ExitStack() as held:
        client.indexed()
        before, threads = threading.active_count(), set(threading.enumerate())
        flood = [
            held.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=20))
            for _ in range(MAX_CONNECTIONS + 100)
        ]
        refused = [read_to_end(connection) for connection in flood[MAX_CONNECTIONS:]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)
        assert len(set(threading.enumerate()) - threads) == MAX_CONNECTIONS
        held.close()
        while threading.active_count() > before:
            time.sleep(0.01)
        assert client.found("/api/dataset")["kept"] > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_silent_client_is_disconnected(folder, sent):
    with viewer(folder) as client:
        client.server.timeout_seconds = 0.3
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
            connection.sendall(sent)
            assert read_to_end(connection).count(b"HTTP/1.1") == sent.count(b"\r\n\r\n")


@pytest.mark.timeout(60)
def test_client_that_sends_single_bytes_is_disconnected(folder):
    with viewer(folder) as client:
        client.server.timeout_seconds = 1
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection, suppress(OSError):
            connection.sendall(b"GET / HTTP/1.1\r\n")
            while True:  # until the connection is closed
                connection.sendall(b"x")
                time.sleep(0.05)


@pytest.mark.parametrize("head", ["Content-Length: {size}", "Transfer-Encoding: chunked"])
def test_request_body_is_not_parsed_as_a_request(client, head):
    inner = f"GET /api/dataset HTTP/1.1\r\nHost: localhost\r\nCookie: {client.cookie['Cookie']}\r\n\r\n"
    outer = f"GET / HTTP/1.1\r\nHost: localhost\r\n{head.format(size=len(inner))}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        connection.sendall((outer + inner).encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("other", ['a={"x":1}', "b", "c=;", '[d]="', "gristmill=", "é=ü", "x=" + "y" * 30_000])
def test_cookies_of_other_pages_do_no_harm(client, other):
    own = client.cookie["Cookie"]
    for sent in (f"{other}; {own}", f"{own};{other}", f"{own.partition('=')[0]}=wrong; {own}"):
        assert client.ask("/api/dataset", Cookie=sent)[0] == 200
    assert client.ask("/api/dataset", Cookie=f"{other}; {own}x")[0] == 403


def test_only_files_of_the_dataset_are_opened(folder, tmp_path):
    """An audit hook records all files that the viewer opens."""
    opened = []
    is_recording = [True]
    sys.addaudithook(
        lambda event, arguments: opened.append(arguments[0]) if is_recording[0] and event == "open" else None
    )
    with viewer(folder) as client:
        client.indexed()
        client.found("/api/row", split="train", row=0)  # loads the modules that prepare a row for display
        opened.clear()
        for address in ("/../../etc/passwd", "/api/file?repo=..&path=../../etc/passwd", "/api/windows?split=../../x", "/api/row?split=test&row=0", "/api/windows?path=../../", "/api/search?q=%2Fetc&after=train:1:0", "/api/file?repo=repo&path=src/m01.js"):  # fmt: skip
            client.ask(address, **client.cookie)
    is_recording[0] = False
    paths = {os.path.realpath(os.fsdecode(path)) for path in opened if isinstance(path, str | bytes)}
    allowed = (f"{folder}/", f"{folder}.view/", os.path.dirname(gristmill.__file__), sys.prefix, sys.base_prefix)
    assert paths
    assert not {path for path in paths if not path.startswith(tuple(map(os.path.realpath, allowed)))}


def test_damaged_dataset_is_reported_and_the_viewer_keeps_running(folder, tmp_path):
    copy = tmp_path / "dataset"
    shutil.copytree(folder, copy)
    content = (copy / "train.jsonl").read_bytes()
    (copy / "train.jsonl").write_bytes(content.replace(b'"lines":[', b'"lines":["x",', 1))
    with viewer(copy) as client:
        client.indexed()
        status, answer = client.get("/api/windows")
        assert status == 409
        assert "damaged" in answer["error"]
        assert client.get("/api/row", split="train", row=0)[0] == 409
        assert "row train:0 in" in client.found("/api/dataset")["index"]["error"]
        assert client.get("/api/windows", language="python")[0] == 409
        assert client.get("/api/row", split="test", row=0)[0] == 200
        (copy / "manifest.json").rename(copy / "hidden")
        assert client.get("/api/dataset")[0] == 409
        (copy / "hidden").rename(copy / "manifest.json")
        assert client.get("/api/dataset")[0] == 200


@pytest.mark.parametrize("name", ["files.jsonl", "tokenizer.json"])
def test_fifo_in_a_dataset_does_not_block(folder, name, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "dataset"))
    (copy / name).unlink()
    os.mkfifo(copy / name)
    with viewer(copy) as client:
        client.indexed()
        answer = client.get("/api/files" if name == "files.jsonl" else "/api/windows")[1]
        assert "regular file" in answer["error"]


def test_internal_error_of_the_index_is_reported(folder, tmp_path, monkeypatch, capfd):
    copy = Path(shutil.copytree(folder, tmp_path / "dataset"))
    monkeypatch.setattr(index, "write_window_index", lambda *_: {}["x"])
    with viewer(copy) as client:
        client.indexed()
        status, answer = client.get("/api/windows", language="python")
    assert status == 409
    assert "internal error in gristmill" in answer["error"]
    assert "KeyError" in capfd.readouterr().err


def test_command_serves_until_interrupted(folder):
    arguments = ("view", folder, "--no-browser", "--json")
    with running(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        address = json.loads(process.stdout.readline())["address"]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(address) as page:
            assert b"<html" in page.read()
        port = address.split(":")[2].split("/")[0]
        second = subprocess.run(
            command("view", folder, "--no-browser", "--port", port), capture_output=True, text=True, check=False
        )
        assert second.returncode == 3
        assert f"cannot listen on port {port}" in second.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    assert stat.S_IMODE(Path(f"{folder}.view").stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(f"{folder}.view/key").stat().st_mode) == 0o600


def test_unreadable_asset_is_reported(folder, tmp_path):
    """A broken link replaces the asset, because root can read files of any mode. The error must not blame the port."""
    package = shutil.copytree(os.path.dirname(gristmill.__file__), tmp_path / "gristmill")
    script = next((package / "views/viewer/assets").glob("*.js"))
    script.unlink()
    script.symlink_to(tmp_path / "nowhere")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = command("view", folder, "--no-browser")
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)
    code, line = refusal(done)
    assert code == 3
    assert line.startswith(f"cannot read {str(script)!r}, a part of gristmill: No such file or directory.")
    assert line.endswith("Install gristmill again so that the current user can read this file.")


@pytest.mark.parametrize(
    ("arguments", "code"), [(("nowhere",), 4), ((".", "--port", "70000"), 2), ((".", "--port", "x"), 2), ((), 2)]
)
def test_invalid_arguments_get_a_one_line_error(arguments, code):
    done = subprocess.run(command("view", *arguments, "--no-browser"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1)
    assert not Path("nowhere.view").exists()
