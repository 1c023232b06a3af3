import base64

import pytest

from gristmill.core.errors import InputError
from gristmill.sources.addresses import (
    Kind,
    git_address,
    is_table_name,
    kind_of,
    last_part,
    table_stem,
    without_credentials,
)

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Kind.LOCAL,
            ["src", ".", "~/code", "a/b.parquet", "a:b", "user@file", "C:\\x", "", "ext::sh -c true", "./git@h:x"],
        ),
        (Kind.LOCAL, ["filecache::s3://bucket/x", "git@host:-oProxyCommand=x", "data/a@b:c"]),
        (Kind.GIT, ["https://host/org/name.git", "http://host/name.git/", "git@host:org/name.git", "me@host:name"]),
        (Kind.GIT, ["ssh://git@host/name", "git://host/name", "file:///srv/name.git", "git+file:///srv/name"]),
        (Kind.GIT, ["https://github.com/org/name", "https://www.github.com/org/name/", "https://bitbucket.org/o/n#v1"]),
        (Kind.GIT, ["https://gitlab.com/group/sub/name", "https://me:x@github.com/org/name", "git+https://h/name"]),
        (Kind.REMOTE, ["s3://bucket/a/*.parquet", "gs://bucket/a/", "hf://datasets/org/name", "memory://x"]),
        (Kind.REMOTE, ["https://host/rows.jsonl.gz", "file:///srv/data/", "https://github.com/o/n/raw/main/x.jsonl"]),
        (Kind.REMOTE, ["https://gitlab.com/o/n/-/raw/main/x.py", "https://[::1/x"]),
    ],
)
def test_kinds_of_words(kind, words):
    assert {word: kind_of(word) for word in words} == dict.fromkeys(words, kind)


@pytest.mark.parametrize(
    ("word", "url", "transport", "ref", "name"),
    [
        ("https://github.com/org/name", "https://github.com/org/name", "https", None, "name"),
        ("git+https://h/name.git#v1.2", "https://h/name.git", "https", "v1.2", "name"),
        ("git@host:org/name.git#feature/x", "git@host:org/name.git", "ssh", "feature/x", "name"),
        ("me@host:name", "me@host:name", "ssh", None, "name"),
        ("ssh://git@host:22/o/name.git", "ssh://git@host:22/o/name.git", "ssh", None, "name"),
        ("ssh://git:pw@host/name", "ssh://git@host/name", "ssh", None, "name"),
        ("file:///srv/name.git/", "file:///srv/name.git/", "file", None, "name"),
        ("https://h/.git", "https://h/.git", "https", None, "repository"),
    ],
)
def test_parts_of_a_git_address(word, url, transport, ref, name):
    address = git_address(word)
    assert address == (url, transport, ref, None)
    assert address.name == name


def test_credentials_leave_the_url_for_a_header():
    address = git_address(f"https://me:{SECRET}%2F@host:8080/name.git#main")
    assert address.url == "https://host:8080/name.git"
    encoded = base64.b64encode(f"me:{SECRET}/".encode()).decode()
    assert address.authorization == f"Authorization: Basic {encoded}"


@pytest.mark.parametrize(
    "word",
    [
        "git+ext://sh",
        "https://host/x.git#-b",
        "https://host/x.git#a..b",
        "https://-o/x.git",
        "git://host",
        "git+https://[::1/x",
    ],
)
def test_what_git_must_not_see_is_refused(word):
    with pytest.raises(InputError):
        git_address(word)


@pytest.mark.parametrize(
    "word", ["https://me:s3cr3t/x@host/a.git", "https://me:s3cr3t#x@host/a.git", "https://me:1?s3cr3t@host/a.git"]
)
def test_a_torn_password_is_refused_and_not_shown(word):
    assert SECRET not in without_credentials(word)
    with pytest.raises(InputError) as caught:
        git_address(word)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("https://me:s3cr3t@host/x.parquet?X-Signature=s3cr3t", "https://host/x.parquet"),
        ("https://s3cr3t@host/x.git#main", "https://host/x.git#main"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
        ("ssh://git:s3cr3t@host/x", "ssh://git@host/x"),
        ("git@host:x.git", "git@host:x.git"),
        ("s3://bucket/a?b", "s3://bucket/a?b"),
        ("a/b", "a/b"),
    ],
)
def test_what_is_shown_holds_no_credentials(word, shown):
    assert without_credentials(word) == shown


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.parquet", "a"),
        ("a.JSONL", "a"),
        ("train-00.v2.jsonl.zst", "train-00.v2"),
        ("a.ndjson.gz", "a"),
        ("a.json", "a.json"),
        ("a.parquet.gz", "a.parquet.gz"),
        ("parquet", "parquet"),
        ("a.zst", "a.zst"),
    ],
)
def test_tables_are_known_by_name(name, stem):
    assert table_stem(name) == stem
    assert is_table_name(name) is (stem != name)


def test_a_source_is_called_by_the_last_part_before_a_wildcard():
    assert last_part("s3://bucket/code/", "files") == "code"
    assert last_part("s3://bucket/code/v1-*/x.py", "files") == "code"
    assert last_part("s3://bucket/*", "files") == "bucket"
    assert last_part("memory://", "files") == "files"
    assert last_part("s3://bucket/..", "files") == "files"
