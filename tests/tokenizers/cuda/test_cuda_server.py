"""Test that a GPU process never changes the bytes of a build, even if the process fails, and leaves nothing in use."""

import os
import re
import shutil
import signal
import threading
import time
from contextlib import contextmanager
from ctypes.util import find_library
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from gristmill import (
    Config,
    ConfigError,
    MissingExtraError,
    OutputConfig,
    Progress,
    RunConfig,
    build,
    load_tokenizer,
    plan,
)
from gristmill.core.errors import DeviceError, TokenizerError
from gristmill.core.manifest import GpuFacts
from gristmill.pipeline.build import build_excluding
from gristmill.pipeline.separate_steps import Shard, prepare_shard
from gristmill.pipeline.summary import _bottleneck
from gristmill.tokenizers import huggingface
from gristmill.tokenizers.cuda import availability, client
from gristmill.tokenizers.cuda.exchange import Address
from gristmill.tokenizers.cuda.serving import server_for
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from support import fake_encoders, trained_tokenizers
from support.builds import everything, files_table, in_a_process, refusal, run, started, wait_for
from support.source_trees import write_tree

BATCHES = {"batch_bytes": 20_000, "task_seconds": 4}
SECONDS = 30


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("serving") / "stdlib"
    for package in ("importlib", "json", "logging"):
        shutil.copytree(corpus / package, root / package)
    return root


@pytest.fixture(scope="module")
def expected(tmp_path_factory, source):
    out = tmp_path_factory.mktemp("expected") / "out"
    build(config_for(source, out, device="cpu"))
    return everything(out)


def config_for(source, out, *, output=None, **options):
    run_config = RunConfig(**{"workers": 2, "device": "cuda", **BATCHES, **options})
    return Config(sources=[str(source)], out=str(out), run=run_config, output=output or OutputConfig())


class OnceReady(Progress):
    """Delay step 1 until the GPU process has started, listens or has ended, because step 1 could end earlier."""

    def __init__(self, marks, *, waits_for="socket"):
        super().__init__()
        self._marks, self._waits_for, self.notes = marks, waits_for, []

    @contextmanager
    def phase(self, name, total=0, unit="files"):
        if name == "prepare":
            pid = pid_in(self._marks)
            until(lambda: {"socket": is_listening, "start": psutil.pid_exists, "end": is_gone}[self._waits_for](pid))
        with super().phase(name, total, unit) as step:
            yield step

    def note(self, text):
        self.notes.append(text)


def pid_in(marks):
    until(lambda: (marks / "pid").exists() and (marks / "pid").read_text())
    return int((marks / "pid").read_text())


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_listening(pid):
    return any("gristmill-" in str(one.laddr) for one in psutil.Process(pid).net_connections("unix"))


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def served_build(config, make_encoder, marks, waits_for="socket"):
    """Build, and return the facts about the GPU, the notes, and the resources that remain in use in this process."""
    before = leftovers()
    progress = OnceReady(marks, waits_for=waits_for)
    manifest = build_excluding(config, progress, (), make_encoder)
    assert is_gone(pid_in(marks))
    return manifest.run.gpu, progress.notes, leftovers() - before


def leftovers():
    """Return child processes, threads, and open or mapped anonymous files."""
    links = {f"{number}" for number in os.listdir("/proc/self/fd") if "memfd" in link_of(number)}
    maps = {line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:gristmill" in line}
    return {*links, *maps, *(child.pid for child in psutil.Process().children()), *threading.enumerate()}


def link_of(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


@pytest.fixture
def built(source, tmp_path):
    """Return a function that builds with a stand-in for the GPU, in a separate process that forks the workers."""

    def builds(stand_in, *, waits_for="socket", **options):
        make_encoder = partial(
            *((fake_encoders.make, stand_in) if isinstance(stand_in, type) else (stand_in,)), tmp_path
        )
        config = config_for(source, tmp_path / "out", **options)
        gpu, notes, left = in_a_process(served_build, config, make_encoder, tmp_path, waits_for)
        assert not left
        return gpu, notes

    return builds


@pytest.mark.parametrize("workers", [1, 2])
def test_a_build_gives_the_same_bytes(built, source, expected, tmp_path, workers):
    gpu, notes = built(fake_encoders.CpuEncoder, workers=workers)
    assert everything(tmp_path / "out") == expected
    assert notes == []
    rows = [row for row in files_table(tmp_path / "out").values() if row["tokens"]]
    assert gpu.documents == len(rows)
    assert gpu.bytes == sum(
        (source / row["path"]).stat().st_size for row in files_table(tmp_path / "out").values() if row["tokens"]
    )
    assert gpu.documents_on_cpu == sum(row["bytes"] >= fake_encoders.LARGE for row in rows) > 0
    assert 0 < gpu.seconds_busy < gpu.seconds_ready
    assert gpu.trouble is None


def test_texts_of_windows_are_the_same(built, source, tmp_path):
    output = OutputConfig(with_text=True)
    build(config_for(source, tmp_path / "cpu", device="cpu", output=output))
    gpu, _ = built(fake_encoders.CpuEncoder, output=output)
    assert gpu.documents
    assert everything(tmp_path / "out") == everything(tmp_path / "cpu")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "case",
    [
        (fake_encoders.DyingEncoder, "socket", r"the GPU process died \(exit code -9\)"),
        (fake_encoders.FailingEncoder, "socket", "RuntimeError: an illegal memory access was encountered"),
        (fake_encoders.WrongEncoder, "socket", "the GPU process sent invalid ids or offsets"),
        (fake_encoders.never_ready, "start", r"the GPU process was not ready at the end of step 1, after [\d.]+ s"),
        (fake_encoders.refusing, "end", "this tokenizer has its own rules"),
        (fake_encoders.broken, "end", r"the GPU process died \(exit code 3\): libnvrtc.so.12: cannot open"),
    ],
)
def test_a_build_gives_the_same_bytes_if_the_gpu_process_fails(built, expected, tmp_path, workers, case):
    stand_in, waits_for, trouble = case
    gpu, notes = built(stand_in, waits_for=waits_for, workers=workers)
    assert everything(tmp_path / "out") == expected
    assert re.fullmatch(trouble, gpu.trouble)
    assert notes == [f"the CPU tokenized some or all documents, with the same ids: {gpu.trouble}."]


def test_a_hanging_gpu_process_does_not_block_the_build(built, expected, tmp_path):
    """The GPU process hangs for ten minutes, but each worker waits only for a quarter of its time limit."""
    gpu, notes = built(fake_encoders.HangingEncoder)
    assert everything(tmp_path / "out") == expected
    assert gpu.trouble == "the GPU process no longer answers"
    assert len(notes) == 1


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def build_dying_over_batches(config, make_encoder, marks):
    client.ServedTokenizer.encode_many = die
    return served_build(config, make_encoder, marks)


def test_a_worker_death_on_a_batch_is_retried_file_by_file(source, expected, tmp_path):
    make_encoder = partial(fake_encoders.make, fake_encoders.CpuEncoder, tmp_path)
    in_a_process(build_dying_over_batches, config_for(source, tmp_path / "out"), make_encoder, tmp_path)
    assert everything(tmp_path / "out") == expected


BAD = "json/decoder.py"


def build_dying_over_a_text(config, make_encoder, marks, text):
    plain = FastTokenizer._annotate

    def annotate(self, ids, edges, texts, **options):
        if text in texts:
            die()
        return plain(self, ids, edges, texts, **options)

    FastTokenizer._annotate = annotate
    return served_build(config, make_encoder, marks)


def test_a_text_that_kills_workers_is_found_in_its_batch(source, tmp_path):
    make_encoder = partial(fake_encoders.make, fake_encoders.CpuEncoder, tmp_path)
    config = config_for(source, tmp_path / "out", skip_failed=True)
    in_a_process(build_dying_over_a_text, config, make_encoder, tmp_path, (source / BAD).read_bytes())
    failed = {path for path, row in files_table(tmp_path / "out").items() if row["reason"] == "failed"}
    assert failed == {BAD}


class Refusing(OnceReady):
    @contextmanager
    def phase(self, name, total=0, unit="files"):
        with super().phase(name, total, unit) as step:
            if name == "prepare":
                raise ConfigError("enough")
            yield step


def build_that_ends(config, make_encoder, marks):
    before = leftovers()
    with pytest.raises(ConfigError, match="enough"):
        build_excluding(config, Refusing(marks), (), make_encoder)
    return is_gone(pid_in(marks)), leftovers() - before


def test_a_failed_build_leaves_no_gpu_process(source, tmp_path):
    make_encoder = partial(fake_encoders.make, fake_encoders.CpuEncoder, tmp_path)
    config = config_for(source, tmp_path / "out")
    assert in_a_process(build_that_ends, config, make_encoder, tmp_path) == (True, set())


def build_and_stay(config, make_encoder, marks, waits_for):
    class Staying(OnceReady):
        @contextmanager
        def phase(self, name, total=0, unit="files"):
            with super().phase(name, total, unit) as step:
                if name == "prepare":
                    (marks / "there").touch()
                    time.sleep(600)
                yield step

    build_excluding(config, Staying(marks, waits_for=waits_for), (), make_encoder)


@pytest.mark.parametrize(
    ("stand_in", "waits_for"),
    [(partial(fake_encoders.make, fake_encoders.CpuEncoder), "socket"), (fake_encoders.never_ready, "start")],
)
def test_a_killed_build_ends_its_gpu_process(source, tmp_path, stand_in, waits_for):
    config = config_for(source, tmp_path / "out")
    with started(build_and_stay, config, partial(stand_in, tmp_path), tmp_path, waits_for) as process:
        wait_for(tmp_path / "there")
        server = pid_in(tmp_path)
        assert not is_gone(server)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: is_gone(server))


@contextmanager
def served(tokenizer, folder, kind=fake_encoders.CpuEncoder):
    """Start a GPU process without a build. Yield the tokenizer of a worker, and the GPU process."""
    tokenizer.definition.write(folder)
    run_config = RunConfig(device="cuda")
    with server_for(run_config, tokenizer, folder, partial(fake_encoders.make, kind, folder)) as server:
        until(lambda: is_listening(pid_in(folder)))
        yield client.with_gpu_server(tokenizer, server.address), server


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        for column in ("ids", "newline_tokens", "starts"):
            left, right = getattr(one, column), getattr(other, column)
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        assert one.control_id == other.control_id


def with_far_ids():
    tree = trained_tokenizers.byte_level().replace('"vocab":{', '"vocab":{"far":100000,', 1)
    return FastTokenizer.load(Definition(name="far", json=tree.encode(), config=b"{}"))


@pytest.mark.parametrize(
    "make_tokenizer", [partial(load_tokenizer, "codebert"), with_far_ids], ids=["uint16", "uint32"]
)
def test_empty_documents_and_batches_larger_than_shared_memory(tmp_path, make_tokenizer):
    cpu = make_tokenizer()
    large = b"def largest(of_them):\n    return max(of_them)\n\n" * 20_000
    with served(cpu, tmp_path, fake_encoders.PinningEncoder) as (tokenizer, server):
        small = [b"", b"x = 1\n\n", b"", "größe 😀\r\n".encode(), b""]
        batches = ([b""], small, [large, b"", large], [large.swapcase(), b"", large], [])
        found = [tokenizer.encode_many(texts, with_starts=True) for texts in batches]
        for texts, encoded in zip(batches, found, strict=True):
            assert_same(encoded, cpu.encode_many(texts, with_starts=True))
        assert tokenizer.is_connected
        assert server.end().documents == 12
    grown, first = (int(line) for line in (tmp_path / "memory").read_text().splitlines()[2:0:-1])
    assert grown > 5 * len(large) > -first > 0


@pytest.mark.parametrize("engine", [FastTokenizer.load, huggingface.ReferenceTokenizer])
def test_encode_many_equals_encode_for_each(codebert, engine):
    tokenizer = engine(codebert.definition)
    texts = [b"x = 1\n", b"", "größe\n\n".encode()]
    expected = [tokenizer.encode(text, with_starts=True) for text in texts]
    assert_same(tokenizer.encode_many(texts, with_starts=True), expected)


def test_invalid_utf8_is_an_error_and_the_gpu_process_continues(tmp_path, codebert):
    with served(codebert, tmp_path) as (tokenizer, server):
        for bad in (b"\xff", "\ud800"):
            with pytest.raises(TokenizerError, match=r"^document 1: "):
                tokenizer.encode_many([b"x", bad])
        assert_same(
            tokenizer.encode_many(["größe"], with_starts=True), codebert.encode_many(["größe"], with_starts=True)
        )
        assert server.end().documents == 1


def test_a_batch_that_is_too_large_is_encoded_on_the_cpu(tmp_path, codebert, monkeypatch):
    monkeypatch.setattr(client, "MAX_BATCH_BYTES", 5)
    with served(codebert, tmp_path) as (tokenizer, server):
        assert [len(one.ids) for one in tokenizer.encode_many([b"x = 1\n"])] == [len(codebert.encode(b"x = 1\n").ids)]
        assert tokenizer.is_connected
        assert len(tokenizer.encode_many([b"x"])) == 1
        assert server.end().documents == 1


def test_the_cpu_continues_after_the_gpu_process_ends(tmp_path, codebert):
    with served(codebert, tmp_path) as (tokenizer, server):
        tokenizer.encode_many([b"x = 1\n"])
        server.end()
        assert_same(
            tokenizer.encode_many([b"x = 2\n"], with_starts=True), [codebert.encode(b"x = 2\n", with_starts=True)]
        )
        assert not tokenizer.is_connected


def test_the_cpu_encodes_if_no_process_listens(codebert):
    tokenizer = client.ServedTokenizer(codebert, Address.new(1.0))
    assert not tokenizer.is_connected
    assert_same(tokenizer.encode_many([b"x"], with_starts=True), codebert.encode_many([b"x"], with_starts=True))
    assert (tokenizer.engine, tokenizer.decode(tokenizer.encode(b"x").ids)) == (codebert.engine, b"x")


def test_a_tokenizer_without_gigatoken_is_left_to_the_cpu(tmp_path):
    tokenizer = huggingface.ReferenceTokenizer(
        Definition(name="wp", json=trained_tokenizers.word_piece().encode(), config=b"{}")
    )
    make_encoder = partial(fake_encoders.never_ready, tmp_path)
    with server_for(RunConfig(device="cuda"), tokenizer, tmp_path, make_encoder) as server:
        assert server.end() == GpuFacts(trouble="the tokenizer 'wp' is supported only on the CPU")
    assert client.with_gpu_server(tokenizer, Address.new(1.0)) is tokenizer


@pytest.mark.parametrize("begin", [build, plan, partial(prepare_shard, shard=Shard(1, 1))])
def test_a_missing_extra_stops_before_any_work(tmp_path, monkeypatch, begin):
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    source = write_tree(tmp_path / "repo", {"a.py": "x = 1\n"})
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[gpu\]'"):
        begin(config_for(source, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_library("cuda") is not None, reason="there may be a GPU")
def test_a_missing_gpu_stops_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(availability, "find_spec", lambda name: name)
    source = write_tree(tmp_path / "repo", {"a.py": "x = 1\n"})
    with pytest.raises(
        DeviceError, match=r"^--device cuda needs a GPU: .*\. Leave out --device cuda: the CPU gives the same ids\.$"
    ):
        build(config_for(source, tmp_path / "out"))


def test_a_gpu_cannot_be_combined_with_ray(tmp_path):
    code, line = refusal(run("build", tmp_path, "--out", tmp_path / "out", "--device", "cuda", "--runner", "ray"))
    assert code == 2
    assert line.startswith("--device cuda needs --runner local")


@pytest.mark.parametrize(
    ("busy", "prepare", "shape", "text"),
    [
        (0.4, 9, 3, "the GPU waited for reading and cleaning"),
        (0.4, 9, 20, "writing took"),
        (7, 9, 3, "workers waited for the GPU"),
    ],
)
def test_the_summary_names_the_limit(busy, prepare, shape, text):
    facts = GpuFacts(documents=1, seconds_busy=busy, seconds_ready=8.0)
    assert text in _bottleneck(facts, {"prepare": prepare, "shape": shape})
