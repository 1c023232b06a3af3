import gzip
import json
import mmap
import os
import resource
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from identify.vendor.licenses import LICENSES
from pyarrow import parquet

from gristmill import build, check
from gristmill.cleaning.folder_licenses import LicenseText
from gristmill.config.config import Config
from gristmill.config.settings import RunConfig, ScanConfig, TablesConfig
from gristmill.core.errors import ConfigError, InputError, OutputError
from gristmill.core.records import Drop, DropReason
from gristmill.pipeline.inputs import read_license_files
from gristmill.runners.local import LocalRunner
from gristmill.sources import table_cache
from gristmill.sources import tables as tables_module
from gristmill.sources.documents import read_bytes, read_document
from gristmill.sources.fetch import fetch, scan_rows
from gristmill.sources.tables import license_expression, split_lines
from gristmill.sources.trees import Scan, scan
from support.source_trees import write_tree

STACK = [
    {"content": "a = 1\n", "max_stars_repo_path": "src/a.py", "max_stars_repo_name": "org/one", "max_stars_repo_licenses": ["MIT"]},
    {"content": "b = 'é'\n", "max_stars_repo_path": "b.py", "max_stars_repo_name": "org/one", "max_stars_repo_licenses": ["MIT", "apache-2.0"]},
    {"content": "c", "max_stars_repo_path": "/c.py", "max_stars_repo_name": "org/two", "max_stars_repo_licenses": []},
    {"content": "", "max_stars_repo_path": "d.py", "max_stars_repo_name": "org/two", "max_stars_repo_licenses": ["my own"]},
]  # fmt: skip


def write_parquet(path, rows, **options):
    parquet.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def write_jsonl(path, rows):
    lines = b"".join(json.dumps(row).encode() + b"\n" if not isinstance(row, bytes) else row for row in rows)
    if path.name.endswith(".gz"):
        lines = gzip.compress(lines)
    elif path.name.endswith(".zst"):
        half = len(lines) // 2  # where the second of two zstd frames starts
        compressor = zstandard.ZstdCompressor(write_checksum=True)
        lines = compressor.compress(lines[:half]) + compressor.compress(lines[half:])
    path.write_bytes(lines)
    return path


def fetch_sources(names, cache, **settings):
    config = Config(sources=[str(name) for name in names], out="unused", **settings)
    return fetch(config.sources, config, Path(cache), map)


def read_texts(names, cache, scan=None, **settings):
    """Return the text of each row, keyed by repo and path, and the drops."""
    found = fetch_sources(names, cache, **settings)
    files, drops = scan_rows(found.tables, found.sources, scan or ScanConfig())
    return {(file.repo, file.path): read_bytes(file, 1 << 20) for file in files}, drops


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl", "t.jsonl.gz", "t.jsonl.zst", "t.ndjson", "T.PARQUET"])
def test_columns_of_the_stack_are_found(tmp_path, name):
    path = (write_parquet if name.lower().endswith("parquet") else write_jsonl)(tmp_path / name, STACK)
    found = fetch_sources([path], tmp_path / "cache")
    assert found.sources == []
    files, drops = scan_rows(found.tables, found.sources, ScanConfig())
    assert [(file.repo, file.path, file.license, read_bytes(file, 99)) for file in files] == [
        ("org/one", "b.py", "Apache-2.0 OR MIT", "b = 'é'\n".encode()),
        ("org/one", "src/a.py", "MIT", b"a = 1\n"),
        ("org/two", "c.py", None, b"c"),
        ("org/two", "d.py", "NOASSERTION", b""),
    ]
    assert drops == []
    assert read_document(files[0], ScanConfig()).language == "python"
    assert read_document(files[3], ScanConfig()).reason is DropReason.EMPTY


def test_row_groups_are_parts_with_continuous_row_numbers(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", [{"text": f"text {n}"} for n in range(10)], row_group_size=3)
    found, _ = read_texts([path], tmp_path / "cache")
    assert found == {("t", f"rows/{n:08d}"): f"text {n}".encode() for n in range(10)}
    assert len(list((tmp_path / "cache/tables").glob("*/*.rows"))) == 4


def test_rows_are_the_same_with_and_without_workers(tmp_path):
    names = [
        write_parquet(tmp_path / "t.parquet", STACK * 9, row_group_size=5),
        write_jsonl(tmp_path / "u.jsonl", STACK),
    ]
    config = Config(sources=[str(name) for name in names], out="unused")
    with LocalRunner(2) as runner:
        found = fetch(config.sources, config, tmp_path / "cache", runner.map)
    files, _ = scan_rows(found.tables, [], ScanConfig())
    without_workers, _ = read_texts(names, tmp_path / "other")
    assert {(file.repo, file.path): read_bytes(file, 99) for file in files} == without_workers


def test_bad_rows_of_jsonl_give_drops(tmp_path):
    path = write_jsonl(
        tmp_path / "t.jsonl",
        [
            b"\xef\xbb\xbf",
            {"text": "good", "path": "good.py"},
            {"text": None, "path": "null.py"},
            {"text": 5},
            b"\n",
            {"path": "none.py"},
            b"{not json\n",
            b"[1, 2]\n",
            b'{"text": "\xff"}\n',
            b'{"text": "\\ud800"}\n',
            b'{"text": "last", "path": 7}',
        ],
    )
    found, drops = read_texts([path], tmp_path / "cache")
    assert found == {("t", "good.py"): b"good", ("t", "rows/00000008"): b"last"}
    assert {drop.path: (drop.reason, drop.detail.partition(":")[0]) for drop in drops} == {
        "null.py": (DropReason.BAD_ROW, "row 1 of t"),
        "rows/00000002": (DropReason.BAD_ROW, "row 2 of t"),
        "none.py": (DropReason.BAD_ROW, "row 3 of t"),
        "rows/00000004": (DropReason.BAD_ROW, "row 4 of t"),
        "rows/00000005": (DropReason.BAD_ROW, "row 5 of t"),
        "rows/00000006": (DropReason.BAD_ROW, "row 6 of t"),
        "rows/00000007": (DropReason.BAD_ROW, "row 7 of t"),
    }
    details = [drop.detail.partition(": ")[2] for drop in sorted(drops, key=lambda drop: drop.detail)]
    assert details[:3] == ["column text is null", "column text is a number", "column text is missing"]
    assert details[4] == "expected a JSON object, found a list"
    assert details[3].startswith("invalid JSON")


def test_bad_rows_of_parquet_give_drops(tmp_path):
    texts = pa.array([b"good", b"\xff\xfe", None], pa.binary())
    names = pa.array(["a\x00\n.py", "b\\c.py", "../../x.py"]).dictionary_encode()
    licenses = pa.array([[b"MIT"], [b"\xff"], None], pa.list_(pa.binary())).cast(pa.list_(pa.string()), safe=False)
    schema = pa.schema([("text", pa.string()), ("path", names.type), ("license", licenses.type)])
    table = pa.Table.from_arrays([texts.view(pa.string()), names, licenses], schema=schema)
    parquet.write_table(table, tmp_path / "t.parquet")
    found, drops = read_texts([tmp_path / "t.parquet"], tmp_path / "cache")
    assert found == {("t", "a\\x00\\x0a.py"): b"good"}
    assert {drop.path: drop.detail for drop in drops} == {
        "b\\\\c.py": "row 1 of t: column text is not UTF-8 at offset 0",
        "../../x.py": "row 2 of t: column text is null",
    }


def test_configured_columns_are_used(tmp_path):
    data = [{"mine": "text", "text": "not this", "where": "x.py", "from": "org/x", "under": "isc"}]
    columns = TablesConfig(text_column="mine", path_column="where", repo_column="from", license_column="under")
    for path in (write_parquet(tmp_path / "t.parquet", data), write_jsonl(tmp_path / "t.jsonl", data)):
        found = fetch_sources([path], tmp_path / "cache", tables=columns)
        (file,), _ = scan_rows(found.tables, [], ScanConfig())
        assert (file.repo, file.path, file.license, read_bytes(file, 9)) == ("org/x", "x.py", "ISC", b"text")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (TablesConfig(text_column="none"), "no column 'none' for tables.text_column. Its columns: text, size"),
        (TablesConfig(path_column="none"), "no column 'none' for tables.path_column"),
        (TablesConfig(text_column="size"), "'size' .* contains no text"),
    ],
)
@pytest.mark.parametrize("write", [write_parquet, write_jsonl])
def test_missing_or_wrong_configured_column_is_refused(tmp_path, columns, message, write):
    path = write(tmp_path / f"t.{'parquet' if write is write_parquet else 'jsonl'}", [{"text": "x", "size": 3}])
    with pytest.raises(ConfigError, match=message):
        fetch_sources([path], tmp_path / "cache", tables=columns)


def test_file_without_text_column_is_a_plain_file(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [{"level": 3, "message": "hello"}])
    empty = write_jsonl(tmp_path / "empty.jsonl", [])
    found = fetch_sources([log, empty], tmp_path / "cache")
    assert found.tables == []
    assert [source.only_files for source in found.sources] == [("log.jsonl", "empty.jsonl")]


def test_rows_that_are_too_long_give_drops(tmp_path, monkeypatch):
    monkeypatch.setattr(tables_module, "MAX_ROW_BYTES", 3 << 20)
    data = [{"text": "x" * (2 << 20), "path": "big.txt"}, {"text": "y" * (4 << 20)}, {"text": "small"}]
    path = write_jsonl(tmp_path / "t.jsonl.zst", data)
    found, drops = read_texts([path], tmp_path / "cache")
    assert isinstance(found["t", "big.txt"], Drop)
    assert found["t", "big.txt"].reason is DropReason.TOO_LARGE
    assert found["t", "rows/00000002"] == b"small"
    assert [(drop.reason, drop.detail) for drop in drops] == [
        (DropReason.BAD_ROW, f"row 1 of t: longer than {3 << 20} bytes")
    ]


def test_lines_do_not_depend_on_chunk_boundaries():
    raw = b"ab\n\ncde\nf"
    for cut in permutations(range(1, len(raw)), 2):
        first, second = sorted(cut)
        chunks = iter([raw[:first], raw[first:second], raw[second:]])
        assert list(split_lines(chunks, 2)) == [b"ab", b"", None, b"f"]


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl.gz", "t.jsonl.zst"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "nonsense"])
def test_damaged_table_is_reported_by_name(tmp_path, name, damage):
    data = [{"text": os.urandom(2000).hex()} for _ in range(300)]
    if name.endswith("parquet"):
        write_parquet(tmp_path / name, data, write_page_checksum=True)
    else:
        write_jsonl(tmp_path / name, data)
    raw = bytearray((tmp_path / name).read_bytes())
    if damage == "cut":
        del raw[len(raw) * 2 // 3 :]
    elif damage == "flipped":
        for position in range(len(raw) // 2, len(raw) // 2 + 200):
            raw[position] ^= 0x55
    else:
        raw = bytearray(b"nonsense, and more of it")
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError, match=rf"the table '.*{name}' is damaged: ") as caught:
        read_texts([tmp_path / name], tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_unpacked_rows_are_used_again_unless_changed(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", STACK, row_group_size=2)
    first, _ = read_texts([path], tmp_path / "cache")
    blobs = sorted((tmp_path / "cache/tables").glob("*/*.rows"))
    written_at = [blob.stat().st_mtime_ns for blob in blobs]
    assert read_texts([path], tmp_path / "cache")[0] == first
    assert [blob.stat().st_mtime_ns for blob in blobs] == written_at
    raw = bytearray(blobs[1].read_bytes())
    raw[0] ^= 1
    blobs[1].write_bytes(raw)
    assert read_texts([path], tmp_path / "cache")[0] == first
    assert blobs[0].stat().st_mtime_ns == written_at[0]
    blobs[0].with_suffix(".index").write_bytes(b"nonsense")
    assert read_texts([path], tmp_path / "cache")[0] == first
    (blobs[0].parent / "survey").unlink()
    assert read_texts([path], tmp_path / "cache")[0] == first


def test_changed_table_is_unpacked_again(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": "one"}])
    read_texts([path], tmp_path / "cache")
    write_jsonl(path, [{"text": "two"}])
    os.utime(path, ns=(1, 1))
    assert set(read_texts([path], tmp_path / "cache")[0].values()) == {b"two"}


def test_row_in_a_truncated_rows_file_gives_a_drop(tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": "one"}, {"text": "two"}])
    found = fetch_sources([path], tmp_path / "cache")
    files, _ = scan_rows(found.tables, [], ScanConfig())
    os.truncate(files[1].location, 4)
    assert read_bytes(files[0], 9) == b"one"
    assert read_bytes(files[1], 9).reason is DropReason.VANISHED
    assert read_bytes(files[1], 2).reason is DropReason.TOO_LARGE


def test_rows_with_the_same_name_get_unique_names(tmp_path):
    one = write_jsonl(tmp_path / "one.jsonl", [{"text": n, "path": "a/b.tar.gz", "repo": "r"} for n in "123"])
    two = write_jsonl(
        tmp_path / "two.jsonl",
        [
            {"text": "4", "path": "a/b.tar~2.gz", "repo": "r"},
            {"text": "5", "path": "b.tar.gz", "repo": "r/a"},
            {"text": "6", "path": ".env", "repo": "r"},
            {"text": "7", "path": ".env", "repo": "r"},
        ],
    )
    scan = ScanConfig(default_excludes=False)
    found, _ = read_texts([one, two], tmp_path / "cache", scan)
    assert found == {
        ("r", "a/b.tar.gz"): b"1",
        ("r", "a/b.tar~3.gz"): b"2",
        ("r", "a/b.tar~4.gz"): b"3",
        ("r", "a/b.tar~2.gz"): b"4",
        ("r/a", "b.tar~5.gz"): b"5",
        ("r", ".env"): b"6",
        ("r", ".env~2"): b"7",
    }
    assert len({"/".join(key) for key in found}) == len(found)
    assert read_texts([two, one], tmp_path / "cache", scan)[0] == found


def test_row_names_differ_from_source_files(tmp_path):
    tree = write_tree(tmp_path / "org", {"name/a.py": "tree", "LICENSE": "x"})
    table = write_jsonl(
        tmp_path / "org.jsonl", [{"text": "row", "path": "a.py", "repo": "org/name"}, {"text": "plain"}]
    )
    found = fetch_sources([tree, table], tmp_path / "cache")
    assert [(source.repo, source.origin) for source in found.sources] == [("org", str(tree))]
    files, _ = scan_rows(found.tables, found.sources, ScanConfig())
    assert [(file.repo, file.path) for file in files] == [("org~2", "rows/00000001"), ("org~3/name", "a.py")]


def test_tables_with_the_same_name_get_unique_names(tmp_path):
    names = [tmp_path / folder / "t.jsonl" for folder in "ab"]
    for name in names:
        name.parent.mkdir()
        write_jsonl(name, [{"text": str(name.parent.name)}])
    found, _ = read_texts(names, tmp_path / "cache")
    assert found == {("t", "rows/00000000"): b"a", ("t~2", "rows/00000000"): b"b"}
    assert read_texts(names[::-1], tmp_path / "cache")[0] == found
    with pytest.raises(InputError, match="given twice"):
        read_texts([names[0], tmp_path / "a/../a/t.jsonl"], tmp_path / "cache")


def test_path_filter_applies_to_rows(tmp_path):
    names = ["src/a.py", "node_modules/x.js", "logo.png", "build/b.py", "tests/t.py", "../../etc/LICENSE"]
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": "x", "path": name} for name in names])
    found, drops = read_texts([path], tmp_path / "cache", ScanConfig(exclude=["tests/", "LICENSE"]))
    assert {name for _, name in found} == {"src/a.py", "build/b.py"}
    assert {drop.path: drop.reason for drop in drops} == {
        "node_modules/x.js": DropReason.EXCLUDED,
        "logo.png": DropReason.EXCLUDED,
        "tests/t.py": DropReason.EXCLUDED_BY_USER,
        "../../etc/LICENSE": DropReason.EXCLUDED_BY_USER,
    }


def test_license_rows_are_read_only_from_the_table(tmp_path):
    mit, apache = (dict(LICENSES)[spdx] for spdx in ("MIT", "Apache-2.0"))
    outside = write_tree(tmp_path / "outside", {"LICENSE": apache})
    beyond = f"../../../..{outside}/LICENSE"
    manifest = json.dumps({"license": f"SEE LICENSE IN {beyond}"})
    texts = {"LICENSE": mit, beyond: mit, "package.json": manifest}
    path = write_jsonl(tmp_path / "t.jsonl", [{"text": text, "path": name} for name, text in texts.items()])
    found = fetch_sources([path], tmp_path / "cache")
    files, drops = scan_rows(found.tables, [], ScanConfig(exclude=["outside/"]))
    licenses = read_license_files([], Scan(files, drops, {}, [], {}))
    assert licenses["t"].texts == {"LICENSE": LicenseText("MIT")}
    assert licenses["t"].manifests["package.json"].declared.file.endswith("/LICENSE")
    assert licenses["t"].named_texts == {}


def test_source_inside_a_skipped_folder_is_scanned(tmp_path):
    root = write_tree(tmp_path / "work/cache/clone", {"a.py": "a"})
    (found,) = fetch_sources([root], tmp_path / "cache").sources
    assert [file.path for file in scan([found], ScanConfig(), leave_out=[tmp_path / "work"]).files] == ["a.py"]
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("declared", "expression"),
    [
        (["MIT"], "MIT"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        (["MIT", "Apache-2.0", "no such"], "Apache-2.0 OR MIT"),
        (["no such"], "NOASSERTION"),
        ("x" * 2000, "NOASSERTION"),
        ([], None),
        ("", None),
        (None, None),
        (7, None),
        ([7, None], None),
    ],
)
def test_declared_licenses_become_an_expression(declared, expression):
    assert license_expression(declared) == expression


def code_of(number):
    return "".join(
        f"def function_{number}_{line}(value):\n    return value + {number * 100 + line}\n" for line in range(9)
    )


def code_row(number, **columns):
    return {"content": code_of(number), "path": f"src/{number}.py", **columns}


def test_dataset_of_rows_from_many_repositories_passes_the_check(tmp_path):
    """The rows of one table can come from several repositories. Only files.jsonl records these repositories."""
    table = write_jsonl(tmp_path / "t.jsonl", [code_row(number, repo=f"org/r{number % 3}") for number in range(12)])
    tree = write_tree(tmp_path / "tree", {f"{number}.py": code_of(100 + number) for number in range(4)})
    manifest = build(Config(sources=[str(table), str(tree)], out=str(tmp_path / "dataset")))
    assert [(source.repo, source.found, source.is_table) for source in manifest.sources] == [
        ("t", 12, True),
        ("tree", 4, False),
    ]
    result = check(tmp_path / "dataset")
    assert result.ok, result
    rows = (tmp_path / "dataset/files.jsonl").read_text().replace('"repo":"tree"', '"repo":"t"', 1)
    (tmp_path / "dataset/files.jsonl").write_text(rows)
    assert "sources" in str(check(tmp_path / "dataset")["files_table"].examples)


def test_secret_in_the_repo_column_is_not_written(tmp_path):
    token = "ghp_" + "aB3dE5gH7jK9" * 3
    rows = [code_row(number, repo="org/plain") for number in range(6)] + [code_row(9, repo=f"org/{token}")]
    table = write_jsonl(tmp_path / "t.jsonl", rows)
    manifest = build(Config(sources=[str(table)], out=str(tmp_path / "dataset")))
    assert manifest.counts.dropped_by_reason == {DropReason.HOLDS_SECRET: 1}
    for path in (tmp_path / "dataset").iterdir():
        assert token not in path.read_text(), path.name
    assert check(tmp_path / "dataset").ok
    leaked = (tmp_path / "dataset/files.jsonl").read_text().replace("org/plain", f"org/{token}", 1)
    (tmp_path / "dataset/files.jsonl").write_text(leaked)
    faults = str(check(tmp_path / "dataset")["secrets"].examples)
    assert "in the file name" in faults
    assert token not in faults


def test_secret_in_a_source_name_is_not_written(tmp_path):
    token = "ghp_" + "aB3dE5gH7jK9" * 3
    write_tree(tmp_path / token, {"a.py": code_of(1)})
    write_tree(tmp_path / "tree", {f"{number}.py": code_of(number) for number in range(2, 6)})
    build(Config(sources=[str(tmp_path / token), str(tmp_path / "tree")], out=str(tmp_path / "dataset")))
    for path in (tmp_path / "dataset").iterdir():
        assert token not in path.read_text(), path.name
    assert check(tmp_path / "dataset").ok


def write_repeated_value(path, value, num_rows):
    """Write rows that share one value. The file contains the value only once."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * num_rows, pa.int32()), pa.array([value]))
    parquet.write_table(pa.table({"content": texts}), path, compression="zstd", write_statistics=False)
    return path


def test_table_that_expands_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(table_cache, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    table = write_repeated_value(tmp_path / "t.parquet", "x" * 1000, 3_000)
    size = table.stat().st_size
    with pytest.raises(
        InputError, match=rf"takes {size:,} bytes and unpacks to more than 100 times .* --max-expansion"
    ):
        fetch_sources([table], tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.part"))
    assert len(fetch_sources([table], tmp_path / "cache", run=RunConfig(max_expansion=10_000)).tables) == 1


def test_rows_without_text_count_as_expansion(tmp_path, monkeypatch):
    monkeypatch.setattr(table_cache, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    with pytest.raises(InputError, match="max-expansion"):
        fetch_sources([write_repeated_value(tmp_path / "t.parquet", "", 5_000)], tmp_path / "cache")


def test_expansion_is_counted_over_all_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(table_cache, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    table = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"content": ["x" * 1000] * 3_000}), table, compression="zstd", row_group_size=500)
    with pytest.raises(InputError, match="max-expansion"):
        fetch_sources([table], tmp_path / "cache", run=RunConfig(max_expansion=1))


def test_unpacking_stops_before_the_disk_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(table_cache, "BYTES_BETWEEN_CHECKS", 1000)
    monkeypatch.setattr(table_cache, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(OutputError, match="fills the disk"):
        fetch_sources(
            [write_jsonl(tmp_path / "t.jsonl", [code_row(number) for number in range(5)])], tmp_path / "cache"
        )
    assert not list((tmp_path / "cache").rglob("*.part"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_value_shared_by_rows_is_in_memory_once(tmp_path):
    """Measure the peak memory (VmHWM) of a new process. getrusage would include the memory of its parent."""
    table = write_repeated_value(tmp_path / "t.parquet", "a" * 10_000_000, 100)
    script = (
        "import re, sys\n"
        "from gristmill.sources.tables import Columns, read_part\n"
        "columns = Columns(text='content', path=None, repo=None, license=None)\n"
        "assert sum(len(row.text) for row in read_part(sys.argv[1], 't', columns, 0)) == 1_000_000_000\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])\n"
    )
    process = subprocess.run([sys.executable, "-c", script, table], capture_output=True, text=True, check=True)
    assert int(process.stdout) * 1024 < 500_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts address space")
def test_table_that_takes_too_much_memory_is_reported(tmp_path):
    """A Parquet page declares its unpacked size, and pyarrow allocates this size at once."""
    table = write_repeated_value(tmp_path / "t.parquet", "a" * 120_000_000, 1)
    script = (
        "import sys\n"
        "from gristmill.sources.tables import Columns, read_part\n"
        "from gristmill.sources.table_cache import bounded_memory\n"
        "import pyarrow.parquet\n"
        "columns = Columns(text='content', path=None, repo=None, license=None)\n"
        "with bounded_memory(60_000_000):\n"
        "    list(read_part(sys.argv[1], 't', columns, 0))\n"
    )
    process = subprocess.run([sys.executable, "-c", script, table], capture_output=True, text=True, check=False)
    assert "InputError: reading the table 't' takes too much memory" in process.stderr


@pytest.mark.parametrize("max_bytes", [0, 64 << 20])
def test_large_columns_are_not_read_as_dictionaries(tmp_path, monkeypatch, max_bytes):
    """A dictionary would keep all texts of a row group in memory. A dictionary does not change the rows."""
    monkeypatch.setattr(tables_module, "MAX_DICTIONARY_BYTES", max_bytes)
    table = write_parquet(tmp_path / "t.parquet", [*STACK, {**STACK[0], "content": None}])
    names = ["content", "max_stars_repo_path"]
    assert tables_module._dictionary_columns(str(table), 0, names) == (names if max_bytes else [])
    texts, drops = read_texts([table], tmp_path / "cache")
    assert sorted(texts.values()) == [b"", b"a = 1\n", "b = 'é'\n".encode(), b"c"]
    assert len(drops) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts address space")
def test_memory_limit_can_be_renewed():
    with table_cache.bounded_memory(1 << 30) as renew:
        before = resource.getrlimit(resource.RLIMIT_AS)[0]
        with mmap.mmap(-1, 200_000_000) as held:  # not a bytearray, which could reuse freed memory
            renew()
            assert resource.getrlimit(resource.RLIMIT_AS)[0] >= before + len(held) // 2


def test_memory_limit_is_removed_at_the_end():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with table_cache.bounded_memory(1 << 30):
        pass
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_unpacked_rows_are_private(tmp_path):
    before = os.umask(0)
    try:
        fetch_sources([write_jsonl(tmp_path / "t.jsonl", [code_row(1)])], tmp_path / "cache")
    finally:
        os.umask(before)
    assert not (tmp_path / "cache").stat().st_mode & 0o077
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert files
    assert not any(path.stat().st_mode & 0o077 for path in files)
