import hashlib
import os
import threading
from functools import partial

import pytest

from gristmill.config.settings import ScanConfig
from gristmill.core.plain_files import FolderReader
from gristmill.core.records import Document, Drop, DropReason, SourceFile
from gristmill.sources import documents
from gristmill.sources.documents import read_bytes, read_document
from support.environment import without_privileges
from support.source_trees import write_tree


def file_at(path):
    size = os.lstat(path).st_size if os.path.lexists(path) else 0
    return SourceFile(repo="r", path=os.path.basename(path), location=str(path), size=size)


@pytest.fixture(autouse=True, params=["alone", "in an open folder"])
def folder(request, monkeypatch):
    """Run each test twice: files are read by their path, or through an open folder."""
    if request.param == "alone":
        yield
        return
    with FolderReader() as folder:
        monkeypatch.setattr(documents, "read_bytes", partial(read_bytes, folder=folder))
        yield


def read(path, **config):
    return read_document(file_at(path), ScanConfig(**config))


def test_text_file_becomes_a_document(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"x = 1\r\n")
    document = read(path)
    assert isinstance(document, Document)
    assert (document.text, document.language) == (b"x = 1\r\n", "python")
    assert document.sha256 == hashlib.sha256(b"x = 1\r\n").hexdigest()


@pytest.mark.parametrize(
    ("content", "config", "reason"),
    [
        (b"", {}, DropReason.EMPTY),
        (b"\xef\xbb\xbf", {}, DropReason.EMPTY),
        (b"\0\1\2", {}, DropReason.BINARY),
        (b"x" * 11, {"max_file_bytes": 10}, DropReason.TOO_LARGE),
        (b"x = 1", {"languages": ["rust"]}, DropReason.LANGUAGE_NOT_WANTED),
    ],
)
def test_unusable_content_gives_a_drop_with_the_reason(tmp_path, content, config, reason):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    drop = read(path, **config)
    assert isinstance(drop, Drop)
    assert drop.reason is reason
    assert drop.detail


def test_file_of_the_maximum_size_is_read(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"x" * 10)
    assert isinstance(read(path, max_file_bytes=10), Document)


def test_missing_files_links_and_special_files_give_drops(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert read(tmp_path / "none").reason is DropReason.VANISHED
    assert read(tmp_path / "fifo").reason is DropReason.NOT_A_FILE
    assert read(tmp_path / "link").reason is DropReason.SYMLINK
    assert read(tmp_path).reason is DropReason.NOT_A_FILE


def test_only_files_below_a_linked_folder_give_drops(tmp_path):
    write_tree(tmp_path, {"real/a.py": "x = 1\n", "real/b.py": "x = 2\n"})
    (tmp_path / "way").symlink_to("real")
    for _ in range(2):
        assert read(tmp_path / "way/a.py").reason is DropReason.SYMLINK
        assert [read(tmp_path / f"real/{name}.py").text for name in "abb"] == [b"x = 1\n", b"x = 2\n", b"x = 2\n"]


def test_permission_error_gives_a_drop(tmp_path):
    write_tree(tmp_path, {"a.py": "x"})
    (tmp_path / "a.py").chmod(0)
    with without_privileges():
        drop = read(tmp_path / "a.py")
    assert drop.reason is DropReason.UNREADABLE
    assert drop.detail == "Permission denied"


def test_file_that_keeps_changing_gives_a_drop(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_bytes(b"x")
    original_read = os.read

    def read_while_it_grows(descriptor, count):
        with path.open("ab") as stream:
            stream.write(b"more")
        return original_read(descriptor, count)

    monkeypatch.setattr(documents.os, "read", read_while_it_grows)
    assert read(path).reason is DropReason.CHANGED_WHILE_READ


def test_file_that_changes_once_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_bytes(b"before")
    original_read = os.read
    changes = [b"afterwards"]

    def read_with_one_change(descriptor, count):
        if changes:
            path.write_bytes(changes.pop())
        return original_read(descriptor, count)

    monkeypatch.setattr(documents.os, "read", read_with_one_change)
    assert read(path).text == b"afterwards"


def test_document_is_consistent_during_concurrent_writes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a" * 5000)
    stop = threading.Event()

    def replace_repeatedly():
        count = 0
        while not stop.is_set() and count < 100_000:
            count += 1
            replacement = tmp_path / "beside"
            replacement.write_bytes(b"ab"[count % 2 : count % 2 + 1] * 5000)
            replacement.replace(path)

    writer = threading.Thread(target=replace_repeatedly)
    writer.start()
    try:
        for _ in range(200):
            document = read(path)
            assert isinstance(document, Document)
            assert len(set(document.text)) == 1
    finally:
        stop.set()
        writer.join()
