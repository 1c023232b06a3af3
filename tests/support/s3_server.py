"""Fixtures for a real S3 server on loopback and for a proxy in front of the server."""

import socket
import threading
from contextlib import suppress

import fsspec
import pytest

from gristmill.sources import remote

BUCKET = "bucket"


class Proxy:
    """Proxy that forwards bytes, and cuts or stalls connections as configured."""

    def __init__(self, port):
        self.target = port
        self.drop_after: list[int] = []
        """Numbers of bytes. Each number cuts one of the next answers with partial content, after this many bytes."""
        self.num_to_stall = 0
        """Number of connections to stall from now on. A stalled connection gets no answer until the proxy is closed."""
        self.num_stalled = 0
        """Number of connections that are stalled at the moment."""
        self._is_closing = threading.Event()
        self.refused: list[bytes] = []
        """Parts of URLs. For each entry, the connection of one PUT request whose URL contains the part is cut."""
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self._sockets += [client, server]
                for arguments in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=arguments, daemon=True).start()

    def _pass_on(self, source, sink, is_request):
        num_left = None
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_request and self.refused and data.startswith(b"PUT ") and self.refused[0] in data[:200]:
                    self.refused.pop(0)
                    break
                if is_request:
                    self.requests += (
                        [data.partition(b"\r\n")[0]] if data[:4] in {b"GET ", b"PUT ", b"HEAD", b"POST"} else []
                    )
                elif b"PartialContent" in data[:200] or b" 206 " in data[:20]:
                    if self.num_to_stall:
                        self.num_to_stall -= 1
                        self.num_stalled += 1
                        self._is_closing.wait(60)
                        self.num_stalled -= 1
                        break
                    num_left = self.drop_after.pop(0) if self.drop_after else None
                if num_left is not None:
                    data = data[:num_left]
                    num_left -= len(data)
                sink.sendall(data)
                if num_left == 0:
                    break
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._is_closing.set()
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._thread.join()


@pytest.fixture(scope="module")
def moto():
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def proxy(moto, monkeypatch):
    proxy = Proxy(moto)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nowhere",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "RETRY_DELAY_SECONDS", (0.01, 0.01, 0.01, 0.01))
    clear_instances()
    yield proxy
    clear_instances()
    proxy.close()


def clear_instances():
    """Clear the cached file systems, because each cached file system is bound to one server."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    fsspec.get_filesystem_class("http").clear_instance_cache()


@pytest.fixture
def s3(proxy, moto):
    import boto3

    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{moto}")
    client.create_bucket(Bucket=BUCKET)
    yield lambda key, content: client.put_object(Bucket=BUCKET, Key=key, Body=content)
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()
