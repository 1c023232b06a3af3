import gzip
import json

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from gristmill.core.errors import InputError, MissingExtraError
from gristmill.sources.benchmark_files import read_benchmark, read_benchmarks

ROWS = [{"task_id": "t/1", "prompt": "def f(x):\n", "solution": "    return x\n", "tests": ["assert f(1)"], "n": 3}]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_row_becomes_one_text_with_all_strings_of_the_row(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines(ROWS) + b"\n")
    found = read_benchmark(str(tmp_path / "b.jsonl"))
    assert found.name == "b.jsonl"
    ((joined, with_line_feeds),) = found.texts.values()
    assert joined == b"t/1def f(x):\n    return x\nassert f(1)"
    assert with_line_feeds.startswith(b"t/1\ndef f(x):")


@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.jsonl.zst", "b.json", "b.parquet", "B.JSONL"])
def test_all_formats_give_the_same_texts(tmp_path, name):
    (tmp_path / "b.jsonl").write_bytes(lines(ROWS))
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines(ROWS)))
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.compress(lines(ROWS)))
    elif name == "B.JSONL":
        path.write_bytes(lines(ROWS))
    elif name.endswith(".json"):
        path.write_text(json.dumps(ROWS))
    else:
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    assert read_benchmark(str(path)).texts == read_benchmark(str(tmp_path / "b.jsonl")).texts


def test_file_in_no_table_format_is_one_text(tmp_path):
    (tmp_path / "b.py").write_bytes(b"def f(): pass\n\xff")
    assert read_benchmark(str(tmp_path / "b.py")).texts == {0: ("def f(): pass\n\ufffd".encode(),)}


@pytest.mark.parametrize(
    ("name", "content"),
    [("b.jsonl", b"{"), ("b.jsonl", b'{"n": 1}\n'), ("b.txt", b""), ("b.jsonl.gz", b"no"), ("b.jsonl.zst", b"no"), ("b.txt.zst", zstandard.compress(b"words " * 999)[:-9]),
     ("b.parquet", b"no"), ("b.json", b"[" * 100_000), ("b.jsonl", b"\xff\xfe")],
)  # fmt: skip
def test_unusable_benchmark_is_reported(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        read_benchmark(str(tmp_path / name))


def test_damaged_gzip_data_is_reported(tmp_path):
    content = bytearray(gzip.compress(lines([{"a": f"text {number}"} for number in range(200)])))
    content[12:40] = b"\xff" * 28
    (tmp_path / "b.jsonl.gz").write_bytes(content)
    with pytest.raises(InputError, match=r"cannot parse the benchmark .*: Error -3 while decompressing data"):
        read_benchmark(str(tmp_path / "b.jsonl.gz"))


def test_damaged_parquet_metadata_is_reported_in_one_line(tmp_path):
    parquet.write_table(pa.table({"a": ["text"]}), tmp_path / "b.parquet")
    content = bytearray((tmp_path / "b.parquet").read_bytes())
    size = int.from_bytes(content[-8:-4], "little")
    content[-8 - size : -8] = b"\xff" * size
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"^cannot parse the benchmark [^\n]*$"):
        read_benchmark(str(tmp_path / "b.parquet"))


def test_texts_are_keyed_by_row(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(lines([{"n": 1}, {"a": "x"}, {"a": "x"}, {"a": "y"}]))
    assert read_benchmark(str(tmp_path / "b.jsonl")).texts == {1: (b"x",), 3: (b"y",)}


def test_benchmarks_with_the_same_name_get_unique_names(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "b.txt").write_text(folder)
    found = read_benchmarks([str(tmp_path / folder / "b.txt") for folder in ("one", "two")])
    assert [benchmark.name for benchmark in found] == ["b.txt", "b.txt~2"]


def test_missing_file_is_reported():
    with pytest.raises(InputError, match="No such file"):
        read_benchmark("/nowhere/b.jsonl")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "b.parquet").write_bytes(b"x")
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[parquet\]'"):
        read_benchmark(str(tmp_path / "b.parquet"))
