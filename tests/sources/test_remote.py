"""Tests of remote files with a local S3 server, behind a proxy that can drop or stall connections."""

import json
import socket
import sys
import threading
from functools import cache
from pathlib import Path

import boto3
import fsspec
import pytest

from gristmill import build
from gristmill.config.config import Config
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import ConfigError, InputError, MissingExtraError, OutputError
from gristmill.core.layout import CARDS
from gristmill.runners.local import LocalRunner
from gristmill.sources import remote
from gristmill.sources.documents import read_bytes
from gristmill.sources.fetch import fetch, scan_rows
from gristmill.sources.remote import download, list_files, require_empty_prefix, upload_dataset
from gristmill.sources.trees import scan
from support.s3_server import BUCKET, clear_instances
from support.source_trees import write_tree


def jsonl(*texts):
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def fetch_sources(names, cache):
    config = Config(sources=names, out="unused")
    return fetch(config.sources, config, cache, map)


@cache
def content():
    return bytes(range(256)) * 4096 * 20


def test_download_has_the_content_of_the_file(s3, tmp_path):
    s3("a/x.bin", content())
    (file,) = list_files("s3://bucket/a/x.bin")
    assert (file.name, file.size) == ("x.bin", len(content()))
    download(file, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == content()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_download_continues_after_a_dropped_connection(s3, proxy, tmp_path):
    s3("x.bin", content())
    (file,) = list_files("s3://bucket/x.bin")
    proxy.drop_after = [10, 100_000, 4_000_000, 300_000]
    proxy.requests.clear()
    download(file, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == content()
    assert not proxy.drop_after
    assert sum(request.startswith(b"HEAD") for request in proxy.requests) >= 3, (
        "not every attempt checked that the file is unchanged"
    )


def test_interrupted_download_keeps_its_partial_file(s3, proxy, tmp_path):
    s3("x.bin", content())
    (file,) = list_files("s3://bucket/x.bin")
    proxy.drop_after = [9_000_000] + [0] * 20
    with pytest.raises(InputError, match=r"cannot download 's3://bucket/x.bin'"):
        download(file, tmp_path / "x")
    (part,) = tmp_path.iterdir()
    assert part.name.endswith(".part")
    num_bytes = part.stat().st_size
    assert num_bytes >= remote.BLOCK_BYTES
    proxy.drop_after = []
    part.write_bytes(b"!" * num_bytes)  # different bytes, to show that the download keeps the partial file
    download(file, tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"!" * num_bytes + content()[num_bytes:]


def test_stalled_read_is_retried(s3, proxy, tmp_path):
    s3("x.bin", content()[:100_000])
    (file,) = list_files("s3://bucket/x.bin", timeout_seconds=0.5)
    proxy.num_to_stall = 2
    download(file, tmp_path / "x", timeout_seconds=0.5)
    assert (tmp_path / "x").read_bytes() == content()[:100_000]
    assert (proxy.num_to_stall, proxy.num_stalled) == (0, 2), "expected two connections that still stall"


def test_download_fails_after_all_attempts(s3, proxy, tmp_path):
    s3("x.bin", content()[:100_000])
    (file,) = list_files("s3://bucket/x.bin")
    proxy.drop_after = [0] * 50
    with pytest.raises(InputError, match=r"cannot download 's3://bucket/x.bin': ") as caught:
        download(file, tmp_path / "x")
    assert "\n" not in str(caught.value)
    # The HTTP library may replace a closed connection once per attempt, so an attempt can use two drops.
    assert remote.ATTEMPTS <= 50 - len(proxy.drop_after) <= 2 * remote.ATTEMPTS
    assert not (tmp_path / "x").exists()


def test_file_that_changes_before_the_download_is_refused(s3, proxy, tmp_path):
    s3("x.bin", content())
    (file,) = list_files("s3://bucket/x.bin")
    s3("x.bin", content()[::-1])
    with pytest.raises(InputError, match="changed while it was being downloaded"):
        download(file, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_unreachable_server_is_reported(s3, proxy, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    clear_instances()
    with pytest.raises(InputError, match=r"cannot read 's3://bucket/x': Could not connect"):
        list_files("s3://bucket/x")


def test_tables_of_a_prefix_or_wildcard_are_in_name_order(s3, tmp_path):
    s3("data/b.jsonl", jsonl("b"))
    s3("data/a.jsonl", jsonl("a1", "a2"))
    s3("data/README.md", b"about")
    s3("data/sub/c.jsonl", jsonl("c"))
    for address, repos in {
        "s3://bucket/data/": "abc",
        "s3://bucket/data/*.jsonl": "ab",
        "s3://bucket/data": "abc",
    }.items():
        found = fetch_sources([address], tmp_path / "cache")
        assert [table.repo for table in found.tables] == list(repos)
    files, _ = scan_rows(found.tables, [], ScanConfig())
    assert [read_bytes(file, 9) for file in files] == [b"a1", b"a2", b"b", b"c"]
    assert not list((tmp_path / "cache/downloads").iterdir())
    with pytest.raises(InputError, match="given twice"):
        fetch_sources(["s3://bucket/data/", "s3://bucket/data/a.jsonl"], tmp_path / "cache")


def test_unpacked_table_is_not_downloaded_again(s3, proxy, tmp_path):
    s3("a.jsonl", jsonl("one"))
    fetch_sources(["s3://bucket/a.jsonl"], tmp_path / "cache")
    proxy.requests.clear()
    fetch_sources(["s3://bucket/a.jsonl"], tmp_path / "cache")
    assert not [request for request in proxy.requests if request.startswith(b"GET /bucket/a.jsonl")]
    s3("a.jsonl", jsonl("two"))
    found = fetch_sources(["s3://bucket/a.jsonl"], tmp_path / "cache")
    files, _ = scan_rows(found.tables, [], ScanConfig())
    assert [read_bytes(file, 9) for file in files] == [b"two"]


def test_remote_table_without_text_column_is_refused(s3, tmp_path):
    s3("a.jsonl", b'{"level": 3, "message": "x"}\n')
    with pytest.raises(InputError, match=r"Its columns: level, message. Set tables.text_column"):
        fetch_sources(["s3://bucket/a.jsonl"], tmp_path / "cache")


def test_prefix_with_plain_files_is_scanned_as_a_folder(s3, tmp_path):
    for name in ("a.py", "sub/b.py", "skip/c.py", ".gitignore", "empty.py"):
        s3(f"code/{name}", b"skip/\n" if name == ".gitignore" else b"" if name == "empty.py" else name.encode())
    s3("code/sub/", b"")
    for _ in range(2):
        (source,) = fetch_sources(["s3://bucket/code/"], tmp_path / "cache").sources
    assert (source.repo, source.origin, source.is_download) == ("code", "s3://bucket/code/", True)
    found = scan([source], ScanConfig())
    assert [file.path for file in found.files] == [".gitignore", "a.py", "empty.py", "sub/b.py"]
    assert found.commits == {"code": None}
    (source,) = fetch_sources(["s3://bucket/code/a.py"], tmp_path / "cache").sources
    assert (source.repo, source.only_files) == ("code", ("a.py",))
    (source,) = fetch_sources(["s3://bucket/code/*.py"], tmp_path / "cache").sources
    assert [file.path for file in scan([source], ScanConfig()).files] == ["a.py", "empty.py"]


@pytest.mark.parametrize("key", ["code/../../x.py", "code//x.py", "code/.git/config", "code/a.py/b.py"])
def test_keys_that_cannot_be_local_files_are_refused(s3, tmp_path, key):
    s3("code/a.py", b"a")
    s3(key, b"x")
    with pytest.raises(InputError, match=r"cannot be a local file|part of a git repository"):
        fetch_sources(["s3://bucket/code/"], tmp_path / "cache")
    assert not (tmp_path / "x.py").exists()


def test_missing_files_are_reported(s3, tmp_path):
    for address in ("s3://bucket/none", "s3://bucket/none/", "s3://bucket/*.jsonl", "s3://no-bucket/x"):
        with pytest.raises(InputError, match=r"no files found|does not exist"):
            list_files(address)


def test_web_addresses_are_single_files_and_credentials_are_not_printed(s3, proxy, tmp_path):
    s3("data/a.jsonl", jsonl("a"))
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{proxy.port}")
    signed = client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "data/a.jsonl"})
    client.close()
    found = fetch_sources([signed], tmp_path / "cache")
    assert [(table.repo, table.origin) for table in found.tables] == [("a", signed.partition("?")[0])]
    files, _ = scan_rows(found.tables, [], ScanConfig())
    assert [read_bytes(file, 9) for file in files] == [b"a"]
    with pytest.raises(InputError, match="is a folder"):
        list_files(f"http://127.0.0.1:{proxy.port}/bucket/")
    with pytest.raises(InputError, match="cannot read") as caught:
        list_files(f"http://me:s3cr3t@127.0.0.1:{proxy.port}/none/x.jsonl?signature=s3cr3t")
    assert "s3cr3t" not in str(caught.value)


def test_memory_and_file_addresses_are_read(tmp_path):
    files = fsspec.filesystem("memory")
    files.pipe_file("/data/a.jsonl", jsonl("a"))
    write_tree(tmp_path / "data", {"b.jsonl": jsonl("b")})
    found = fetch_sources(["memory://data/", f"file://{tmp_path}/data/*.jsonl"], tmp_path / "cache")
    rows, _ = scan_rows(found.tables, [], ScanConfig())
    assert {(file.repo, read_bytes(file, 9)) for file in rows} == {("a", b"a"), ("b", b"b")}
    files.rm("/data", recursive=True)


def test_call_that_does_not_return_times_out():
    is_answered = threading.Event()
    with pytest.raises(TimeoutError):
        remote._call_with_timeout(0.05, lambda: is_answered.wait(60))
    is_answered.set()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uploading")
    source = write_tree(folder / "src", {f"{n}.py": f"value_{n} = {n}\nprint(value_{n})\n" for n in range(20)})
    build(Config(sources=[str(source)], out=str(folder / "dataset")))
    return folder / "dataset"


def test_manifest_is_uploaded_last(s3, proxy, dataset, tmp_path):
    (dataset / "check.json").write_text("{}")  # the manifest does not list this file
    require_empty_prefix("s3://bucket/sets/one")
    proxy.requests.clear()
    upload_dataset(dataset, "s3://bucket/sets/one/")
    puts = [request.split()[1].decode() for request in proxy.requests if request.startswith(b"PUT")]
    assert puts[-1] == "/bucket/sets/one/manifest.json"
    files = sorted(json.loads((dataset / "manifest.json").read_text())["files"])
    assert [Path(put).name for put in puts[:-1]] == [*files, *CARDS]
    for file in list_files("s3://bucket/sets/one/"):
        download(file, tmp_path / "back" / file.name)
        assert (tmp_path / "back" / file.name).read_bytes() == (dataset / file.name).read_bytes()
    for taken in ("s3://bucket/sets/one", "s3://bucket/sets/"):
        with pytest.raises(OutputError, match="already contains"):
            require_empty_prefix(taken)


def test_upload_is_retried_and_then_reported(s3, proxy, dataset):
    proxy.refused = [b"/again/train.jsonl"] * 3
    upload_dataset(dataset, "s3://bucket/again")
    assert not proxy.refused
    assert {file.name: file.size for file in list_files("s3://bucket/again/")}["manifest.json"]
    proxy.refused = [b"/broken/train.jsonl"] * 99
    with pytest.raises(OutputError, match=r"cannot upload 's3://bucket/broken/train.jsonl': ") as caught:
        upload_dataset(dataset, "s3://bucket/broken")
    assert "\n" not in str(caught.value)
    proxy.refused = []
    assert "manifest.json" not in {file.name for file in list_files("s3://bucket/broken/")}


def test_workers_download_tables(s3, tmp_path):
    s3("data/a.jsonl", jsonl("a"))
    s3("data/b.jsonl", jsonl("b"))
    s3("code/a.py", b"a = 1")
    config = Config(sources=["s3://bucket/data/", "s3://bucket/code/"], out="unused")
    with LocalRunner(2) as runner:
        found = fetch(config.sources, config, tmp_path / "cache", runner.map)
        with pytest.raises(InputError, match=r"does not exist|no files found"):
            fetch(["s3://bucket/none"], config, tmp_path / "cache", runner.map)
    files, _ = scan_rows(found.tables, found.sources, ScanConfig())
    assert [read_bytes(file, 9) for file in files] == [b"a", b"b"]
    assert [file.path for file in scan(found.sources, ScanConfig()).files] == ["a.py"]


def test_dataset_is_written_only_to_an_empty_prefix(tmp_path):
    for address in ("https://host/x", "s3://bucket/*"):
        with pytest.raises(OutputError, match="cannot be written"):
            require_empty_prefix(address)
    (tmp_path / "empty").mkdir()
    require_empty_prefix(f"file://{tmp_path}/empty")


@pytest.mark.parametrize(
    ("address", "missing", "message"),
    [
        ("s3://b/x", "fsspec", r"s3:// needs fsspec. Install it: pip install 'gristmill\[remote\]'"),
        ("s3://b/x", "s3fs", r"s3:// needs s3fs. Install it: pip install 'gristmill\[remote\]'"),
        ("gs://b/x", "gcsfs", r"gs:// needs gcsfs. Install it: pip install gcsfs"),
        (
            "hf://datasets/x/y",
            "huggingface_hub",
            r"hf:// needs huggingface_hub. Install it: pip install huggingface_hub",
        ),
    ],
)
def test_missing_package_is_named(monkeypatch, address, missing, message):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, address.partition(":")[0], raising=False)
    with pytest.raises(MissingExtraError, match=message):
        list_files(address)
    assert issubclass(MissingExtraError, ConfigError)


def test_unknown_scheme_is_reported():
    with pytest.raises(InputError, match="unknown address scheme nowhere://"):
        list_files("nowhere://x")
