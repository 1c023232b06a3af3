"""A chat server on loopback that implements OpenAI's protocol and fails as tests request."""

import contextlib
import http.server
import json
import re
import socket
import struct
import threading
import time

PARENT = """\
def area_{name}(width, height):
    # the size of it
    result = width * height
    return result
"""
CHILD = """\
def area_{name}(width, height):
    return height * width  # the product
"""
KEY = "sk-very-secret-0123456789"


def fenced(name):
    return f"Here it is:\n\n```python\n{CHILD.format(name=name)}```\nIt does the same.\n```\nother\n```"


def unfenced(name):
    return CHILD.format(name=name)


class ChatServer(http.server.ThreadingHTTPServer):
    """Server that answers requests as `script` defines.

    `script` maps the name NAME of a function area_NAME to a list of acts. An act is a function that answers a request.
    The acts answer the first requests with prompts about this function, in order. Later requests get good answers. The
    acts of the name "models" answer requests for the list of models.
    """

    daemon_threads = True
    request_queue_size = 128  # with the default of 5, the sixth connection waits a second

    def __init__(self, script=None, host="127.0.0.1", wrap=None):
        super().__init__((host, 0), ChatHandler)
        self.script = {name: list(acts) for name, acts in (script or {}).items()}
        self.seconds = 0.0
        self.requests = []
        """Path, headers and JSON body of each request."""
        self.num_active = self.max_active = self.num_sent = self.num_acted = 0
        self.lock = threading.Lock()
        self.is_closing = threading.Event()
        self.scheme = "http"
        if wrap is not None:
            self.scheme, self.socket = "https", wrap(self.socket)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_port}/v1"

    @property
    def num_asked(self):
        return sum(path.endswith("/chat/completions") for path, _, _ in self.requests)

    def num_asked_about(self, name):
        return sum(f"area_{name}(" in prompt for prompt in self.prompts())

    def prompts(self):
        return [request["messages"][0]["content"] for _, _, request in self.requests if request is not None]

    def handle_error(self, request, client_address):
        """Print nothing, because tests close connections on purpose."""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.is_closing.set()
        self.shutdown()
        self.server_close()
        self._thread.join(10)


class ChatHandler(http.server.BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise each answer waits 40 ms between headers and body

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers), None))
        act = (self.server.script.get("models") or [None]).pop(0)
        if act is not None:
            return act(self, "models")
        return self.send_json({"object": "list", "data": [{"id": "first"}, {"id": "second"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = request["messages"][0]["content"]
        name = re.search(r"area_(\w+)", prompt)[1]
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), request))
            self.server.num_active += 1
            self.server.max_active = max(self.server.max_active, self.server.num_active)
            acts = self.server.script.get(name) or []
            act = acts.pop(0) if acts else good
        time.sleep(self.server.seconds)
        with self.server.lock:  # before the answer, because an answer lets the client send its next request
            self.server.num_active -= 1
        if prompt.startswith("Describe") and act is good:
            act = answers_with(f"A function area_{name} that multiplies.")
        act(self, name)
        self.server.num_acted += 1

    def send_json(self, value, status=200, **headers):
        self.send_bytes(json.dumps(value).encode(), status, "application/json", **headers)

    def send_bytes(self, body, status=200, kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self):
        """Close the connection with a reset, as a dying process does."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def completion(content, finish_reason="stop"):
    return {"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}]}


def good(chat, name):
    chat.send_json(completion(fenced(name)))


def answers_with(content, finish_reason="stop"):
    return lambda chat, _name: chat.send_json(completion(content, finish_reason))


def sends(body, status=200, kind="application/json", **headers):
    return lambda chat, _name: chat.send_bytes(body, status, kind, **headers)


def fails(status, **headers):
    """Return an act that answers with an error. The body contains the key and a name, which no output may contain."""
    return lambda chat, name: chat.send_json({"error": {"message": f"{KEY} area_{name}"}}, status, **headers)


def hangs_up(chat, _name):
    chat.hang_up()


def breaks_off(chat, name):
    body = json.dumps(completion(fenced(name))).encode()
    chat.send_response(200)
    chat.send_header("Content-Length", str(len(body)))
    chat.end_headers()
    chat.wfile.write(body[: len(body) // 2])
    chat.close_connection = True


def breaks_off_in_a_chunk(chat, _name):
    chat.send_response(200)
    chat.send_header("Transfer-Encoding", "chunked")
    chat.end_headers()
    chat.wfile.write(b'400\r\n{"choices": [')
    chat.close_connection = True


def is_silent(chat, _name):
    chat.server.is_closing.wait(20)


def drips(chat, name, pause=0.05):
    """Send the answer byte by byte. No pause is long enough for a socket timeout."""
    chat.send_response(200)
    body = json.dumps(completion(fenced(name))).encode()
    chat.send_header("Content-Length", str(len(body)))
    chat.end_headers()
    _drip(chat, body, pause)


def drips_headers(chat, _name):
    _drip(chat, b"HTTP/1.1 200 OK\r\n" + b"X-Slow: yes\r\n" * 100, 0.05)


def _drip(chat, data, pause):
    for byte in data:
        chat.wfile.write(bytes([byte]))
        if chat.server.is_closing.wait(pause):
            return


def never_ends(chat, _name):
    """Send a body without a length for as long as the client reads."""
    chat.send_response(200)
    chat.send_header("Connection", "close")
    chat.end_headers()
    with contextlib.suppress(OSError):
        while chat.server.num_sent < 1 << 30:
            chat.server.num_sent += chat.connection.send(b" " * (1 << 16))
    chat.close_connection = True


def sends_other_protocol(chat, _name):
    chat.wfile.write(b"220 mail.example.org ESMTP\r\n\r\n")
    chat.close_connection = True
