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
    ("kind", "addresses"),
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
def test_kind_of_address(kind, addresses):
    assert {address: kind_of(address) for address in addresses} == dict.fromkeys(addresses, kind)


@pytest.mark.parametrize(
    ("address", "url", "transport", "ref", "name"),
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
def test_git_address_is_split_into_parts(address, url, transport, ref, name):
    parsed = git_address(address)
    assert parsed == (url, transport, ref, None)
    assert parsed.name == name


def test_credentials_move_from_the_url_to_a_header():
    address = git_address(f"https://me:{SECRET}%2F@host:8080/name.git#main")
    assert address.url == "https://host:8080/name.git"
    encoded = base64.b64encode(f"me:{SECRET}/".encode()).decode()
    assert address.authorization == f"Authorization: Basic {encoded}"


@pytest.mark.parametrize(
    "address",
    [
        "git+ext://sh",
        "https://host/x.git#-b",
        "https://host/x.git#a..b",
        "https://-o/x.git",
        "git://host",
        "git+https://[::1/x",
    ],
)
def test_unsafe_git_address_is_refused(address):
    with pytest.raises(InputError):
        git_address(address)


@pytest.mark.parametrize(
    "address", ["https://me:s3cr3t/x@host/a.git", "https://me:s3cr3t#x@host/a.git", "https://me:1?s3cr3t@host/a.git"]
)
def test_unencoded_password_is_refused_and_not_printed(address):
    assert SECRET not in without_credentials(address)
    with pytest.raises(InputError) as caught:
        git_address(address)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "expected"),
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
def test_credentials_are_removed(address, expected):
    assert without_credentials(address) == expected


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
def test_tables_are_recognized_by_name(name, stem):
    assert table_stem(name) == stem
    assert is_table_name(name) is (stem != name)


def test_source_name_is_the_last_part_before_a_wildcard():
    assert last_part("s3://bucket/code/", "files") == "code"
    assert last_part("s3://bucket/code/v1-*/x.py", "files") == "code"
    assert last_part("s3://bucket/*", "files") == "bucket"
    assert last_part("memory://", "files") == "files"
    assert last_part("s3://bucket/..", "files") == "files"
