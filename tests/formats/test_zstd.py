import random
import subprocess

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.errors import DatasetError
from gristmill.formats import zstd
from gristmill.formats.zstd import ZstdJsonlFile, compress_rows, encode_table, read_table


def rows(count, size=2000):
    random.seed(count)
    return [random.randbytes(size // 2).hex().encode() + b"\n" for _ in range(count)]


def write(path, *batches):
    frames = []
    with path.open("wb") as stream:
        for batch in batches:
            content, table = compress_rows(batch)
            stream.write(content)
            frames += table
        stream.write(encode_table(frames))
    return path


def test_any_row_is_read_without_the_rows_before_it(tmp_path):
    all_rows = rows(1000)
    file = ZstdJsonlFile(write(tmp_path / "a.zst", all_rows[:300], all_rows[300:]), 1000)
    for row in (999, 0, 300, 299, 512):
        assert file[row] == all_rows[row]
    assert list(file) == all_rows
    assert len(read_table(tmp_path / "a.zst")) > 5


def test_other_readers_see_a_single_stream(tmp_path):
    all_rows = rows(500)
    path = write(tmp_path / "a.zst", all_rows)
    with (
        path.open("rb") as stream,
        zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True) as reader,
    ):
        assert reader.read() == b"".join(all_rows)


def test_zstd_command_decompresses_the_file(tmp_path):
    all_rows = rows(300)
    path = write(tmp_path / "a.zst", all_rows)
    try:
        result = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("the zstd command is not installed")
    assert result.stdout == b"".join(all_rows)


def test_seek_table_follows_the_published_format(tmp_path):
    path = write(tmp_path / "a.zst", rows(300))
    content = path.read_bytes()
    assert content[-4:] == bytes.fromhex("b1ea928f")
    count = int.from_bytes(content[-9:-5], "little")
    table = content[-9 - 8 * count - 8 :]
    assert table[:4] == bytes.fromhex("5e2a4d18")
    assert int.from_bytes(table[4:8], "little") == 8 * count + 9
    sizes = [int.from_bytes(table[8 + 8 * index : 12 + 8 * index], "little") for index in range(count)]
    at = 0
    for size in sizes:
        assert content[at : at + 4] == bytes.fromhex("28b52ffd")
        at += size


@given(st.lists(st.binary(min_size=1).map(lambda raw: raw.hex().encode() + b"\n"), max_size=30))
def test_same_rows_give_the_same_bytes(batch):
    assert compress_rows(batch) == compress_rows(batch)
    assert sum(frame.num_rows for frame in compress_rows(batch)[1]) == len(batch)


@pytest.mark.parametrize("damage", [lambda raw: raw[:-5], lambda raw: b"", lambda raw: raw[-9:]])
def test_truncated_file_is_reported(tmp_path, damage):
    path = write(tmp_path / "a.zst", rows(300))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match="damaged"):
        ZstdJsonlFile(path, 300)[0]


@pytest.mark.parametrize("at", range(3, 3000, 97))
def test_file_with_a_flipped_bit_is_reported(tmp_path, at):
    path = write(tmp_path / "a.zst", rows(300))
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="damaged in frame 0"):
        ZstdJsonlFile(path, 300)[0]


def test_huge_size_in_the_table_is_not_allocated(tmp_path):
    path = write(tmp_path / "a.zst", rows(300))
    content = bytearray(path.read_bytes())
    count = int.from_bytes(content[-9:-5], "little")
    content[-9 - 8 * count + 4 : -9 - 8 * count + 8] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="damaged"):
        ZstdJsonlFile(path, 300)[0]


def test_file_with_wrong_number_of_rows_is_reported(tmp_path):
    with pytest.raises(DatasetError, match="300 rows, but the manifest records 301"):
        ZstdJsonlFile(write(tmp_path / "a.zst", rows(300)), 301)[0]


def test_frames_are_small(tmp_path):
    _, frames = compress_rows(rows(1000))
    assert all(frame.num_bytes < zstd.FRAME_BYTES + 4000 for frame in frames)
