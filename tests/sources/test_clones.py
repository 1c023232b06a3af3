"""Tests of clones from file URLs, and from a web server on the loopback interface that runs `git http-backend`."""

import base64
import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gristmill.config.config import Config
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import InputError
from gristmill.sources import clones
from gristmill.sources.addresses import Source
from gristmill.sources.clones import clone
from gristmill.sources.fetch import fetch
from gristmill.sources.trees import scan
from support.source_trees import git, write_tree

LOGIN = ("me", "s3cr3t-t0ken")


@pytest.fixture(autouse=True)
def without_user_configuration(monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setattr(clones, "RETRY_DELAY_SECONDS", (0.01, 0.01))


@pytest.fixture
def upstream(tmp_path):
    """Make a work tree for commits, and the bare repository that the server serves. Return the work tree."""
    work = write_tree(tmp_path / "work", {"a.py": "a = 1\n", "sub/b.py": "b = 2\n"})
    git(work, "init", "-q", "-b", "main")
    commit(work, "first")
    git(work, "tag", "v1")
    served = tmp_path / "served/project.git"
    git(tmp_path, "clone", "-q", "--bare", str(work), str(served))
    git(work, "remote", "add", "origin", str(served))
    return work


def commit(work, message):
    git(work, "add", "-A", "-f")
    git(work, "commit", "-qm", message)
    return git(work, "rev-parse", "HEAD").decode().strip()


def push(work):
    git(work, "push", "-q", "--all", "origin")


def file_url(work):
    return f"file://{work.parent}/served/project.git"


class GitHandler(BaseHTTPRequestHandler):
    """Handler that answers requests with the CGI program `git http-backend`."""

    def do_GET(self):
        server = self.server
        server.seen.append(self.path)
        if server.num_faults:
            server.num_faults -= 1
            self.connection.close()
            return
        expected = "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()
        if server.is_private and self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        response = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        ).stdout
        head, _, content = response.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the server looks for this name

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(upstream):
    server = ThreadingHTTPServer(("127.0.0.1", 0), GitHandler)
    server.root, server.is_private, server.num_faults, server.seen = upstream.parent / "served", False, 0, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url_of(server, login=""):
    return f"http://{login}127.0.0.1:{server.server_port}/project.git"


def file_names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if ".git" not in path.parts and path.is_file()}


def test_clone_has_the_files_and_no_history(server, upstream, tmp_path):
    (upstream / "a.py").write_text("a = 2\n")
    newest = commit(upstream, "second")
    push(upstream)
    folder = clone(url_of(server), tmp_path / "cache")
    assert file_names(folder) == {"a.py", "sub/b.py"}
    assert git(folder, "rev-list", "--all", "HEAD").decode().split() == [newest]
    assert not git(folder, "tag").strip()
    found = scan([Source("project", str(folder), None, url_of(server))], ScanConfig())
    assert found.commits == {"project": newest}
    assert [file.path for file in found.files] == ["a.py", "sub/b.py"]


def test_existing_clone_is_updated(server, upstream, tmp_path):
    first = clone(url_of(server), tmp_path / "cache")
    (first / "left-over.py").write_text("x")
    (first / "sub/b.py").write_text("altered")
    (upstream / "a.py").unlink()
    write_tree(upstream, {"c.py": "c = 3\n"})
    commit(upstream, "second")
    push(upstream)
    again = clone(url_of(server), tmp_path / "cache")
    assert again == first
    assert file_names(again) == {"c.py", "sub/b.py"}
    assert (again / "sub/b.py").read_text() == "b = 2\n"


@pytest.mark.parametrize("ref", ["v1", "other", "COMMIT"])
def test_ref_is_a_tag_branch_or_commit(upstream, tmp_path, ref):
    first = git(upstream, "rev-parse", "HEAD").decode().strip()
    git(upstream, "branch", "other")
    (upstream / "a.py").write_text("a = 2\n")
    commit(upstream, "second")
    push(upstream)
    folder = clone(f"{file_url(upstream)}#{ref.replace('COMMIT', first)}", tmp_path / "cache")
    assert (folder / "a.py").read_text() == "a = 1\n"
    assert folder != clone(file_url(upstream), tmp_path / "cache")


def test_incomplete_clone_is_cloned_again(upstream, tmp_path):
    folder = clone(file_url(upstream), tmp_path / "cache")
    incomplete = folder.with_name(folder.name + ".part")
    os.rename(folder, incomplete)
    (incomplete / ".git/HEAD").write_text("nonsense")
    (incomplete / "stray.py").write_text("x")
    assert file_names(clone(file_url(upstream), tmp_path / "cache")) == {"a.py", "sub/b.py"}
    assert not incomplete.exists()


@pytest.mark.parametrize("damage", ["shallow.lock", "index.lock", "index", "objects", "HEAD"])
def test_damaged_clone_is_replaced(upstream, tmp_path, damage):
    folder = clone(file_url(upstream), tmp_path / "cache")
    (upstream / "a.py").write_text("a = 2\n")
    commit(upstream, "second")
    push(upstream)
    if damage == "objects":
        shutil.rmtree(folder / ".git/objects")
    else:
        (folder / ".git" / damage).write_text("nonsense")
    assert (clone(file_url(upstream), tmp_path / "cache") / "a.py").read_text() == "a = 2\n"


def test_credentials_are_used_and_not_stored(server, tmp_path):
    server.is_private = True
    folder = clone(url_of(server, login=":".join(LOGIN) + "@"), tmp_path / "cache")
    assert file_names(folder) == {"a.py", "sub/b.py"}
    secrets = [LOGIN[1].encode(), base64.b64encode(":".join(LOGIN).encode())]
    for path in folder.rglob("*"):
        assert not path.is_file() or not any(secret in path.read_bytes() for secret in secrets), path
    assert LOGIN[1] not in str(folder)


@pytest.mark.parametrize(("login", "message"), [("me:wr0ng@", "refused the credentials"), ("", "requires credentials")])
def test_wrong_credentials_are_reported_and_not_printed(server, tmp_path, login, message):
    server.is_private = True
    with pytest.raises(InputError, match=message) as caught:
        clone(url_of(server, login=login), tmp_path / "cache")
    assert "wr0ng" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.seen) <= 4, "clone() retried although the credentials are wrong"


def test_missing_repository_or_ref_is_reported(server, upstream, tmp_path):
    with pytest.raises(InputError, match="no git repository found at"):
        clone(url_of(server).replace("project", "none"), tmp_path / "cache")
    with pytest.raises(InputError, match="no git repository found at"):
        clone(f"file://{tmp_path}/none.git", tmp_path / "cache")
    with pytest.raises(InputError, match="no branch, tag or commit 'none'"):
        clone(file_url(upstream) + "#none", tmp_path / "cache")
    git(tmp_path, "init", "-q", "--bare", "empty.git")
    with pytest.raises(InputError, match="no commit yet"):
        clone(f"file://{tmp_path}/empty.git", tmp_path / "cache")


def test_network_error_is_retried(server, tmp_path):
    server.num_faults = 2
    assert file_names(clone(url_of(server), tmp_path / "cache")) == {"a.py", "sub/b.py"}


def test_network_error_is_reported_after_all_attempts(server, tmp_path):
    server.num_faults = 99
    with pytest.raises(InputError, match=r"cannot reach .* in 3 attempts"):
        clone(url_of(server), tmp_path / "cache")
    assert not list((tmp_path / "cache/clones").glob("*[!t]"))


def test_git_that_hangs_is_killed(tmp_path, monkeypatch):
    program = tmp_path / "bin/git"
    write_tree(tmp_path, {"bin/git": "#!/bin/sh\nsleep 60 & wait\n"})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(clones, "FETCH_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(InputError, match="timed out"):
        clone("https://127.0.0.1/x.git", tmp_path / "cache")


def test_no_code_of_a_hostile_repository_runs(upstream, tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    outside = write_tree(tmp_path / "outside", {"secret.py": "key = 1\n"})
    other = tmp_path / "served/other.git"
    git(tmp_path, "clone", "-q", "--bare", str(upstream), str(other))
    git(upstream, "submodule", "--quiet", "add", str(other), "module")
    (upstream / ".gitmodules").write_text(f'[submodule "module"]\npath = module\nurl = ext::touch {marker}-module\n')
    (upstream / "link").symlink_to(outside)
    (upstream / "link.py").symlink_to(outside / "secret.py")
    write_tree(upstream, {".gitattributes": "*.big filter=evil\n", "x.big": "x", "hooks/post-checkout": "touch x"})
    commit(upstream, "hostile")
    push(upstream)
    # Hooks and configured commands of the served repository must not run either.
    served = upstream.parent / "served/project.git"
    write_tree(served, {"hooks/post-checkout": f"#!/bin/sh\ntouch {marker}\n"})
    (served / "hooks/post-checkout").chmod(0o755)
    git(served, "config", "core.fsmonitor", f"touch {marker}")
    templates = write_tree(tmp_path / "templates", {"hooks/post-checkout": f"#!/bin/sh\ntouch {marker}-template\n"})
    (templates / "hooks/post-checkout").chmod(0o755)
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(templates))
    folder = clone(file_url(upstream), tmp_path / "cache")
    assert not list(tmp_path.glob("ran*"))
    assert (folder / "link").is_symlink()
    assert list((folder / "module").iterdir()) == []
    assert not (folder / ".git/hooks").exists()
    found = scan([Source("project", str(folder), None, "x")], ScanConfig(), leave_out=[tmp_path / "cache"])
    assert "key = 1" not in {Path(file.location).read_text().strip() for file in found.files}
    assert {file.path for file in found.files} >= {"a.py", "sub/b.py", "x.big"}
    assert not list(tmp_path.glob("ran*"))


def test_unsupported_transport_is_refused(upstream, tmp_path):
    with pytest.raises(InputError):
        clone(f"git+ext://sh -c 'touch {tmp_path}/ran'", tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


def test_missing_git_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="git is not installed"):
        clone("https://github.com/org/name", tmp_path / "cache")


def test_clones_and_folders_get_unique_names(upstream, tmp_path):
    local = write_tree(tmp_path / "project", {"x.py": "x = 1\n"})
    addresses = [file_url(upstream), str(local), file_url(upstream) + "#v1"]
    config = Config(sources=addresses, out="unused")
    expected = [("project", str(local)), ("project~2", addresses[0]), ("project~3", addresses[2])]
    for order in (addresses, addresses[::-1]):
        found = fetch(order, config, tmp_path / "cache", map)
        assert [(source.repo, source.origin) for source in found.sources] == expected
    with pytest.raises(InputError, match="given twice"):
        fetch([addresses[0], "git+" + addresses[0]], config, tmp_path / "cache", map)
