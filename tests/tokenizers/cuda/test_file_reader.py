"""Test the processes that read files directly into buffers for the GPU. The CPU simulates the GPU."""

import gc
import os
import signal

import numpy as np
import psutil
import pytest

from gristmill.core.errors import InputError, TokenizerError
from gristmill.tokenizers.cuda import file_reader
from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer
from gristmill.tokenizers.cuda.reader_process import read_files
from support.gpu_texts import definition_named

CHUNK_BYTES = 1 << 16


pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has anonymous files")


@pytest.fixture
def tokenizer(make_gpu):
    made = CudaTokenizer.with_gpu(definition_named("codebert"), make_gpu, chunk_bytes=CHUNK_BYTES)
    yield made
    if made._reader is not None:
        made._reader.close()


@pytest.fixture
def paths(tmp_path):
    """Write 300 files, which together fill many chunks. Some files are empty, and some are not ASCII."""
    generator = np.random.default_rng(0)
    names = [f"{number:03d} é.py" for number in range(300)]
    for number, name in enumerate(names):
        size = int(generator.integers(0, 3000)) if number % 7 else 0
        text = bytes(generator.choice(np.frombuffer(b"def x(): return y + 1\n", np.uint8), size))
        (tmp_path / name).write_bytes(text if number % 50 else "\ufeffé字🙂".encode() + text)
    return [str(tmp_path / name) for name in names]


def contents(paths):
    texts = []
    for path in paths:
        with open(path, "rb") as stream:
            texts.append(stream.read())
    return texts


def assert_read(tokenizer, paths):
    batch, expected = tokenizer.encode_files(paths), tokenizer.encode_batch(contents(paths))
    assert np.array_equal(batch.ids, expected.ids)
    assert np.array_equal(batch.offsets, expected.offsets)
    assert batch.num_on_cpu == expected.num_on_cpu


def test_files_give_the_ids_of_their_content(tokenizer, paths):
    assert_read(tokenizer, paths)


def test_an_invalid_file_is_named_by_its_number_and_the_next_call_works(tokenizer, paths, tmp_path):
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    with pytest.raises(TokenizerError, match=r"document 2: .* byte 5 \(0xe9\) is not valid UTF-8"):
        tokenizer.encode_files([*paths[:2], str(tmp_path / "latin.py"), *paths[2:]])
    assert_read(tokenizer, paths)
    assert_read(tokenizer, paths[::-1])
    assert_read(tokenizer, [])


def test_a_file_larger_than_a_buffer_is_read_with_the_others(tokenizer, paths, tmp_path):
    large = tmp_path / "large.py"
    large.write_bytes(b"x = 1\n" * CHUNK_BYTES)
    assert_read(tokenizer, [*paths[:5], str(large), *paths[5:9]])
    assert_read(tokenizer, paths[:20])


def test_a_missing_file_is_named_and_the_next_call_works(tokenizer, paths, tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere\.py.*No such file"):
        tokenizer.encode_files([*paths, str(tmp_path / "nowhere.py")])
    assert_read(tokenizer, paths)


def test_a_killed_reader_is_reported_and_the_next_call_works(tokenizer, paths):
    assert_read(tokenizer, paths[:3])
    for process in tokenizer._reader._processes:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with pytest.raises(InputError, match="died"):
        tokenizer.encode_files(paths)
    assert_read(tokenizer, paths)


def test_unreferenced_readers_end_their_processes(tokenizer):
    files = file_reader.FileReader(tokenizer._gpu, CHUNK_BYTES, num_cores=4)
    numbers = [process.pid for process in files._processes]
    assert all(map(psutil.pid_exists, numbers))
    del files
    gc.collect()
    assert not any(map(psutil.pid_exists, numbers))


def test_an_aborted_call_does_not_affect_the_next(tokenizer, paths):
    class AbortedError(Exception):
        pass

    def abort(*_):
        raise AbortedError

    gathered = tokenizer._new_buffer
    tokenizer._new_buffer = lambda *_: abort
    with pytest.raises(AbortedError) as kept:  # keep the traceback, as a notebook does
        tokenizer.encode_files(paths)
    tokenizer._new_buffer = gathered
    assert_read(tokenizer, paths[::-1])
    assert kept.value.__traceback__ is not None


def test_an_invalid_file_name_is_an_error(tokenizer):
    with pytest.raises(InputError, match=r"cannot read .*embedded null"):
        tokenizer.encode_files(["x\0y"])


def test_a_file_fits_if_a_byte_remains_free(tmp_path):
    for name, size in (("a", 3), ("b", 0), ("c", 4)):
        (tmp_path / name).write_bytes(name.encode() * size)
    memory = memoryview(bytearray(8))
    paths = [os.fsencode(tmp_path / name) for name in "abc"]
    assert read_files(memory, paths) == ([3, 0, 4], None)
    assert bytes(memory[:7]) == b"aaacccc"
    assert read_files(memory[:7], paths) == ([3, 0], None)
    assert read_files(memory, [paths[0], os.fsencode(tmp_path)]) == ([3], "not a regular file")
