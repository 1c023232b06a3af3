"""A real HTTP server on loopback with the part of the Hugging Face Hub's API that huggingface_hub needs to push."""

import base64
import fnmatch
import hashlib
import http.server
import json
import socket
import struct
import threading
import urllib.parse
from contextlib import contextmanager, suppress

TOKEN = "hf_NeverToBeSeenAnywhere0123456789"
READS = {"GET", "HEAD"}


class Repo:
    def __init__(self, *, private):
        self.private = private
        self.commits = {}
        self.branches = {}
        self.messages = []
        self.commit("main", {".gitattributes": b"*.jsonl filter=lfs\n"}, "initial commit")

    def commit(self, branch, files, message):
        oid = hashlib.sha1(f"{len(self.commits)} {message}".encode()).hexdigest()
        self.commits[oid] = dict(files)
        self.branches[branch] = oid
        self.messages.append(message)
        return oid

    def files(self, revision="main"):
        return self.commits[self.branches.get(revision, revision)]


class HubServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repos = {}
        self.large = {}
        """Contents that were uploaded to large file storage, keyed by digest. Commits refer to these contents."""
        self.requests = []
        self.acts = []
        """Tuples (method, part of the path, function). The function answers matching requests. `*` is any method."""
        self.lock = threading.Lock()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def writes(self):
        return [(method, path) for method, path in self.requests if method not in READS]

    def add(self, repo_id, files=None, *, private=True):
        repo = self.repos[repo_id] = Repo(private=private)
        if files is not None:
            repo.commit("main", {**repo.files(), **files}, "manual commit")
        return repo


class HubHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes, and Nagle's algorithm delays the second by 40 ms

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer()

    def do_HEAD(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def do_PUT(self):
        self.answer()

    def answer(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        with self.server.lock:
            self.server.requests.append((self.command, path))
            for method, part, act in self.server.acts:
                if method in {self.command, "*"} and part in path:
                    return act(self)
            if path.startswith("/storage/"):
                return self.store(path.removeprefix("/storage/"))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.send_json({"error": f"Invalid token {self.headers.get('Authorization')}"}, 401)
            return self.route(path)

    def route(self, path):
        if path == "/api/repos/create":
            return self.create()
        if path == "/api/validate-yaml":
            return self.send_json({"errors": [], "warnings": [{"message": "no license"}]})
        if path.endswith(".git/info/lfs/objects/batch"):
            return self.batch()
        parts = path.strip("/").split("/")
        if parts[0] == "api":
            owner, name, resource, *rest = [*parts[2:], *[""] * 3][:5] if len(parts) < 6 else [*parts[2:5], *parts[5:]]
        else:
            _, owner, name, resource, *rest = parts
        repo = self.server.repos.get(f"{owner}/{name}")
        if repo is None:
            return self.send_json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        revision = next(iter(rest), "") or "main"
        if resource == "branch":
            repo.branches[revision] = repo.branches["main"]
            return self.send_json({})
        if revision not in repo.branches and revision not in repo.commits:
            return self.send_json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        act = {
            "": self.repo_info,
            "revision": self.repo_info,
            "tree": self.tree,
            "paths-info": self.paths_info,
            "preupload": self.preupload,
            "commit": self.commit,
            "resolve": self.resolve,
        }.get(resource)
        if act is None:
            return self.send_json({"error": f"unknown path: {path}"}, 404)
        return act(repo, f"{owner}/{name}", revision, "/".join(rest[1:]))

    def create(self):
        request = json.loads(self.body)
        repo_id = f"{request['organization']}/{request['name']}"
        assert request["type"] == "dataset"
        if repo_id in self.server.repos:
            return self.send_json({"error": "You already created this dataset repo", "url": self.server.address}, 409)
        self.server.add(repo_id, private=request.get("visibility") == "private" or request.get("private") is True)
        return self.send_json({"url": f"{self.server.address}/datasets/{repo_id}"})

    def repo_info(self, repo, repo_id, revision, _):
        oid = repo.branches.get(revision, revision)
        siblings = [{"rfilename": name} for name in sorted(repo.files(oid))]
        return self.send_json({"id": repo_id, "sha": oid, "private": repo.private, "siblings": siblings, "tags": []})

    def tree(self, repo, _repo_id, revision, folder):
        files = repo.files(revision)
        return self.send_json([self.entry(name, files[name]) for name in sorted(files) if name.startswith(folder)])

    def paths_info(self, repo, _repo_id, revision, _):
        names = urllib.parse.parse_qs(self.body.decode()).get("paths") or json.loads(self.body)["paths"]
        files = repo.files(revision)
        return self.send_json([self.entry(name, files[name]) for name in names if name in files])

    def entry(self, name, content):
        found = {"type": "file", "path": name, "size": len(content), "oid": git_sha1(content)}
        if name.endswith(".jsonl"):
            sha256 = hashlib.sha256(content).hexdigest()
            found |= {
                "oid": git_sha1(sha256.encode()),
                "lfs": {"oid": sha256, "size": len(content), "pointerSize": 130},
            }
        return found

    def preupload(self, repo, _repo_id, revision, _):
        request = json.loads(self.body)
        ignored = request.get("gitIgnore", repo.files(revision).get(".gitignore", b"").decode()).split("\n")
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".jsonl") else "regular",
                "shouldIgnore": any(fnmatch.fnmatch(file["path"], pattern) for pattern in ignored if pattern),
            }
            for file in request["files"]
        ]
        return self.send_json({"files": files})

    def batch(self):
        objects = []
        for one in json.loads(self.body)["objects"]:
            href = f"{self.server.address}/storage/{one['oid']}?signature=TopSecretSignature"
            is_stored = one["oid"] in self.server.large
            objects.append({**one, **({} if is_stored else {"actions": {"upload": {"href": href}}})})
        return self.send_json({"transfer": "basic", "objects": objects})

    def store(self, oid):
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.server.large[oid] = self.body
        return self.send_json({})

    def commit(self, repo, repo_id, revision, _):
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit", repo.branches[revision]) != repo.branches[revision]:
            return self.send_json({"error": "A commit has happened since. Please refresh and try again."}, 412)
        files = dict(repo.files(revision))
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
            else:
                assert line["key"] == "deletedFile"
                del files[value["path"]]
        oid = repo.commit(revision, files, header["summary"])
        return self.send_json({"commitUrl": f"{self.server.address}/datasets/{repo_id}/commit/{oid}", "commitOid": oid})

    def resolve(self, repo, _repo_id, revision, name):
        content = repo.files(revision).get(name)
        if content is None:
            return self.send_json({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")
        headers = {"ETag": f'"{git_sha1(content)}"', "X_Repo_Commit": repo.branches.get(revision, revision)}
        return self.send(content, 200, "application/octet-stream", **headers)

    def send_json(self, value, status=200, **headers):
        self.send(json.dumps(value).encode(), status, "application/json", **headers)

    def send(self, body, status, kind, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def hang_up(self):
        """Close the connection with a reset, as a dying process does."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def fails(status):
    """Return an act that answers with an error. The body contains the token, which no output may contain."""
    return lambda handler: handler.send_json({"error": f"you sent {handler.headers.get('Authorization')}"}, status)


def sends_html(handler):
    handler.send(b"<html>It works!</html>", 200, "text/html")


def hangs_up(handler):
    handler.hang_up()


@contextmanager
def running():
    server = HubServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
