"""Test downloads from the Hub, with a local HTTP server as the Hub."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill import Config, TokenizerConfig, build, load_tokenizer, plan
from gristmill.core.errors import HubError, TokenizerError
from support import trained_tokenizers as made
from support.source_trees import write_tree

COMMITS = {"main": "a" * 40, "v2": "b" * 40}


class Hub(http.server.ThreadingHTTPServer):
    files: dict[str, bytes]
    mode = "fine"

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {
            "tokenizer.json": made.byte_level().encode(),
            "tokenizer_config.json": b'{"model_max_length": 77}',
        }
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        org, name, resolve, revision, file = self.path.strip("/").split("/", 4)
        content = self.server.files.get(file)
        refused = {"401": 401, "500": 500}.get(self.server.mode)
        if refused or content is None or (org, name, resolve) != ("org", "name", "resolve") or revision not in COMMITS:
            self.send_response(refused or 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", f'"{file}-{revision}"')
        self.send_header("X-Repo-Commit", COMMITS[revision])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.server.mode == "broken" else content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def cache_files(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def test_a_tokenizer_is_downloaded_once_and_then_used_offline(hub, tmp_path):
    first = load_tokenizer("org/name", cache_dir=str(tmp_path / "cache"))
    assert first.definition.json == hub.files["tokenizer.json"]
    assert first.definition.config == hub.files["tokenizer_config.json"]
    assert first.definition.revision == COMMITS["main"]
    num_requests = len(hub.requests)
    hub.shutdown()
    hub.server_close()
    second = load_tokenizer("org/name", cache_dir=str(tmp_path / "cache"))
    assert second.definition.json == first.definition.json
    assert second.definition.config == first.definition.config
    assert len(hub.requests) == num_requests


def test_the_default_cache_is_that_of_hugging_face(hub, tmp_path):
    load_tokenizer("org/name")
    assert "models--org--name/refs/main" in cache_files(tmp_path / "home/hub")


def test_the_environment_is_restored(hub, tmp_path, monkeypatch):
    import os

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "theirs"))
    load_tokenizer("org/name", cache_dir=str(tmp_path / "ours"))
    assert os.environ["HF_HUB_CACHE"] == str(tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()


def test_each_revision_has_its_own_cache_entry(hub, tmp_path):
    cache = tmp_path / "cache"
    load_tokenizer("org/name", cache_dir=str(cache))
    hub.files["tokenizer.json"] = made.unigram().encode()
    newer = load_tokenizer("org/name@v2", cache_dir=str(cache))
    assert newer.definition.revision == COMMITS["v2"]
    assert newer.definition.json == made.unigram().encode()
    assert load_tokenizer("org/name", cache_dir=str(cache)).definition.json == made.byte_level().encode()
    assert load_tokenizer(f"org/name@{COMMITS['v2']}", cache_dir=str(cache)).definition.json == newer.definition.json


def test_a_model_with_vocab_and_merges(hub, tmp_path):
    vocab = json.loads(made.byte_level())["model"]
    hub.files = {
        "vocab.json": json.dumps(vocab["vocab"]).encode(),
        "merges.txt": "".join(f"{left} {right}\n" for left, right in vocab["merges"]).encode(),
    }
    tokenizer = load_tokenizer("org/name", cache_dir=str(tmp_path))
    assert tokenizer.decode(tokenizer.encode(b"x = 1\n").ids) == b"x = 1\n"
    hub.mode = "500"
    assert load_tokenizer("org/name", cache_dir=str(tmp_path)).definition.json == tokenizer.definition.json


@pytest.mark.parametrize(
    ("mode", "name", "message"),
    [
        ("fine", "org/other", r"has no tokenizer 'org/other' at revision 'main'.*Check the name"),
        ("fine", "org/name@v9", r"has no tokenizer 'org/name' at revision 'v9'"),
        ("401", "org/name", r"denies access to 'org/name'\. Set HF_TOKEN"),
        ("500", "org/name", r"downloading tokenizer\.json of 'org/name' .* failed: .*500.*Run the command again"),
        ("broken", "org/name", r"downloading tokenizer\.json of 'org/name' .* failed: "),
    ],
)
def test_each_failure_has_its_message(hub, tmp_path, mode, name, message):
    hub.mode = mode
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(name, cache_dir=str(tmp_path / "cache"))
    assert "\n" not in str(caught.value)


def test_a_broken_download_leaves_no_files_and_can_be_repeated(hub, tmp_path):
    hub.mode = "broken"
    with pytest.raises(TokenizerError):
        load_tokenizer("org/name", cache_dir=str(tmp_path))
    assert cache_files(tmp_path) == []
    hub.mode = "fine"
    assert load_tokenizer("org/name", cache_dir=str(tmp_path)).encode(b"x").ids.tolist()


def test_an_unreachable_hub_is_an_error(hub, tmp_path):
    hub.shutdown()
    hub.server_close()
    with pytest.raises(TokenizerError, match=r"downloading .* failed"):
        load_tokenizer("org/name", cache_dir=str(tmp_path))


def test_offline_mode_forbids_downloading(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(TokenizerError, match="HF_HUB_OFFLINE forbids"):
        load_tokenizer("org/name", cache_dir=str(tmp_path))
    assert hub.requests == []


@pytest.mark.parametrize("offline", ["no network", "HF_HUB_OFFLINE"])
def test_codeberts_hub_id_uses_the_bundled_copy_if_the_hub_is_unreachable(hub, tmp_path, monkeypatch, offline):
    if offline == "no network":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source = write_tree(tmp_path / "code", {"a.py": "x = 1\n" * 99})
    made = {
        name: build(
            Config(
                sources=[str(source)], out=str(tmp_path / name.replace("/", "-")), tokenizer=TokenizerConfig(name=name)
            )
        )
        for name in ("codebert", "microsoft/codebert-base")
    }
    ours, theirs = made.values()
    assert theirs.content_sha256 == ours.content_sha256
    assert theirs.tokenizer == ours.tokenizer
    assert (theirs.tokenizer.name, theirs.tokenizer.revision) == ("codebert", None)
    (note,) = set(theirs.warnings) - set(ours.warnings)
    assert note.startswith("microsoft/codebert-base could not be fetched: using the bundled 'codebert'")
    config = Config(
        sources=[str(source)], out=str(tmp_path / "none"), tokenizer=TokenizerConfig(name="microsoft/codebert-base")
    )
    assert note in plan(config).warnings
    for named in ("microsoft/codebert-base@main", "org/name"):
        with pytest.raises(HubError, match=r"forbids downloading|failed"):
            load_tokenizer(named)


def test_codeberts_hub_id_is_requested_from_a_reachable_hub(hub):
    with pytest.raises(TokenizerError, match="has no tokenizer 'microsoft/codebert-base' at revision 'main'"):
        load_tokenizer("microsoft/codebert-base")
    assert any("microsoft/codebert-base" in path for path in hub.requests)


@pytest.mark.parametrize("name", ["codebrt", "CodeBERT", "codeber"])
def test_a_misspelled_codebert_gets_a_suggestion(hub, monkeypatch, name):
    for endpoint in (hub.address, "http://127.0.0.1:9"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        with pytest.raises(TokenizerError, match="Did you mean 'codebert', which is part of gristmill"):
            load_tokenizer(name)
