"""The next build resumes a killed build and makes damaged files again."""

import fcntl
import importlib
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from gristmill import Config, OutputConfig, RunConfig, ScanConfig, build
from gristmill.pipeline import prepare, work_folder
from gristmill.pipeline.separate_steps import Shard, prepare_shard
from support.builds import (
    KILLED,
    called,
    copy_with_work,
    count_changes,
    everything,
    files_table,
    in_a_process,
    kill_this_process,
    make,
    parts,
    refusal,
    run,
    run_until_killed,
    started,
    wait_for,
    work_folder_of,
)
from support.source_trees import git, write_tree


@pytest.fixture(scope="module")
def sources(tmp_path_factory, corpus):
    return before_and_after(tmp_path_factory.mktemp("sources"), corpus, "email", "importlib", "json")


@pytest.fixture(scope="module")
def small(tmp_path_factory, corpus):
    """Like `sources`, but with fewer files, for tests with many builds."""
    return before_and_after(tmp_path_factory.mktemp("small"), corpus, "importlib", "json")


def before_and_after(folder, corpus, *packages):
    """Return two folders with the same name: a source before and after some edits."""
    for package in packages:
        shutil.copytree(corpus / package, folder / "before/stdlib" / package)
    after = shutil.copytree(folder / "before/stdlib", folder / "after/stdlib")
    paths = sorted(after.rglob("*.py"))
    for path in paths[::9]:
        path.write_bytes(path.read_bytes() + b"\n# changed\n")
    for path in paths[4::19]:
        path.unlink()
    write_tree(after, {f"new/{index}.py": f"value_{index} = {index}\n" * index for index in range(1, 9)})
    return folder / "before/stdlib", after


# Builds that are killed at random moments.


class Stages:
    """States of a dataset at the start and after each of several uninterrupted builds."""

    def __init__(self, start, words, uninterrupted):
        self.words, self._uninterrupted = words, copy_with_work(start, uninterrupted)
        self._states = [state_of(start)]
        self.cpu_seconds = []

    def after(self, state):
        """Return the state after one more build.

        Raises ValueError if `state` is not a known state, for example because the dataset is incomplete.
        """
        index = self._states.index(state) + 1
        if index == len(self._states):
            self.cpu_seconds.append(in_a_process(cpu_seconds_of_build, (*self.words, "--out", self._uninterrupted)))
            self._states.append(state_of(self._uninterrupted))
        return self._states[index]


def state_of(out):
    return everything(out) if out.exists() else None


def cpu_seconds_of_build(words):
    began = sum(os.times()[:4])
    assert called("build", *words).returncode == 0
    return sum(os.times()[:4]) - began


def cpu_seconds_of(pid):
    """Return the CPU time of a process and its children. CPU time measures progress independently of other load."""
    seconds = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                seconds += times.user + times.system
    return seconds


def build_in_own_process_group(words):
    os.setsid()
    sys.exit(called("build", *words).returncode)


def kill_build(words, cpu_seconds, *, with_workers):
    """Kill a build once it has used `cpu_seconds`. Return False if the build ends earlier."""
    with started(build_in_own_process_group, words) as process:
        while process.exitcode is None and cpu_seconds_of(process.pid) < cpu_seconds:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            (os.killpg if with_workers else os.kill)(process.pid, signal.SIGKILL)
        process.join(60)
        assert process.exitcode in {0, KILLED}
        return process.exitcode == KILLED


@pytest.mark.parametrize(("compress", "has_earlier"), [("none", False), ("zstd", True)])
def test_build_killed_at_random_moments_is_resumed_to_the_same_bytes(sources, tmp_path, compress, has_earlier):
    """Kill builds nine times, with or without their workers, up to seven times in a row."""
    before, after = sources
    (tmp_path / "settings.toml").write_text("[output]\nshard_bytes = 300_000\n")
    words = ("--config", tmp_path / "settings.toml", "--batch-bytes", 30_000, "--workers", 2, "--compress", compress)
    start = tmp_path / "start"
    if has_earlier:
        assert called("build", before, "--out", start, *words).returncode == 0
    words = (after, *words)
    stages = Stages(start, words, tmp_path / "undisturbed")
    stages.after(stages.after(state_of(start)))
    from_scratch, with_all_parts = stages.cpu_seconds[:2]
    rng = random.Random(f"{compress} {has_earlier}")
    moments = [(number + rng.random()) / 9 for number in range(9)]
    rng.shuffle(moments)
    num_killed = 0
    for name, num_kills in (("two", 2), ("seven", 7)):
        out = copy_with_work(start, tmp_path / name)
        for is_again in [False] + [True] * (num_kills - 1):
            cpu_seconds = with_all_parts if is_again else from_scratch
            moment = moments.pop() * cpu_seconds
            num_killed += kill_build((*words, "--out", out), moment, with_workers=rng.random() < 0.5)
            stages.after(state_of(out))
        expected = stages.after(state_of(out))
        done = run("build", *words, "--out", out, "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        assert everything(out) == expected
    assert num_killed >= 5


# Builds that are killed at given points.


class BuildSequence(NamedTuple):
    """An earlier dataset, and its expected states after successive builds into the same folder."""

    config: Config
    start: Path
    stages: list[Any]

    def begin(self, out):
        return msgspec.structs.replace(self.config, out=str(copy_with_work(self.start, out)))

    def finish(self, config):
        """Assert that a killed build left one of the states, and that a new build gives the next state."""
        out = Path(config.out)
        expected = self.stages[self.stages.index(everything(out)) + 1]
        before = parts(out)
        in_a_process(build, config)
        assert everything(out) == expected
        assert config.run.cache_bytes < LARGE_CACHE or parts(out).items() >= before.items()


LARGE_CACHE = 1 << 30
SMALL_CACHE = 200_000


@pytest.fixture(scope="module")
def sequences(tmp_path_factory, small):
    before, after = small

    @cache
    def sequence(compress, cache_bytes):
        folder = tmp_path_factory.mktemp("prospect")
        config = Config(
            sources=[str(after)],
            out=str(folder / "out"),
            output=OutputConfig(compress=compress, shard_bytes=100_000),
            run=RunConfig(workers=1, batch_bytes=10_000, cache_bytes=cache_bytes),
        )
        build(msgspec.structs.replace(config, sources=[str(before)]))
        start = copy_with_work(folder / "out", folder / "start")
        stages = [everything(start)]
        for _ in range(2):
            build(config)
            stages.append(everything(folder / "out"))
        return BuildSequence(config, start, stages)

    return sequence


def build_until(config, function, calls, is_after):
    """Build, and kill the process before a call of a function, or after the call if `is_after`.

    `function` is "module:name" or "module:class.name". `calls` is the number of the call, from 1.
    """
    module, _, names = function.partition(":")
    *owners, name = names.split(".")
    where = importlib.import_module(f"gristmill.{module}")
    for owner in owners:
        where = getattr(where, owner)
    plain = getattr(where, name)
    calls_left = [calls]

    def call(*arguments, **options):
        calls_left[0] -= 1
        if not calls_left[0] and not is_after:
            kill_this_process()
        answer = plain(*arguments, **options)
        if not calls_left[0]:
            kill_this_process()
        return answer

    setattr(where, name, call)
    build(config)


@pytest.mark.parametrize(
    ("compress", "point"),
    [
        ("none", ("pipeline.prepare:prepare", 1, True)),
        ("none", ("pipeline.prepare:prepare", 7, False)),
        ("none", ("pipeline.decide:deduplicate_and_split", 1, True)),
        ("none", ("pipeline.shape:shape", 1, True)),
        ("zstd", ("pipeline.shape:shape", 1, True)),
        ("none", ("pipeline.shape:shape", 5, False)),
        ("zstd", ("pipeline.shape:shape", 5, False)),
        ("none", ("pipeline.pieces:DataFiles.add", 4, True)),
        ("zstd", ("pipeline.pieces:DataFiles.add", 4, True)),
        ("none", ("pipeline.pieces:DataFiles.add", 9, False)),
        ("zstd", ("pipeline.pieces:DataFiles.add", 9, False)),
        ("none", ("pipeline.build:delete_stale_files", 1, True)),
        ("none", ("pipeline.build:write_manifest", 1, False)),
        ("none", ("pipeline.build:write_manifest", 1, True)),
        ("none", ("pipeline.work_folder:foreign_names", 1, True)),
        ("none", ("pipeline.work_folder:Workspace._exchange", 1, False)),
        ("none", ("pipeline.work_folder:Workspace._exchange", 1, True)),
        ("zstd", ("pipeline.work_folder:Workspace._exchange", 1, True)),
        ("none", ("pipeline.work_folder:Workspace._retire", 1, True)),
        ("none", ("pipeline.build:write_cached", 1, False)),
        ("none", ("pipeline.work_folder:Workspace.prune", 1, False)),
    ],
)
def test_build_killed_at_a_function_call_is_resumed(sequences, tmp_path, compress, point):
    sequence = sequences(compress, LARGE_CACHE)
    config = sequence.begin(tmp_path / "out")
    run_until_killed(build_until, config, *point)
    sequence.finish(config)


def build_counting_changes(config, kill_before):
    return count_changes(Path(config.out).parent, kill_before, build, config)


@pytest.mark.parametrize(("compress", "cache_bytes"), [("none", SMALL_CACHE), ("zstd", LARGE_CACHE)])
def test_build_killed_at_a_file_change_is_resumed(sequences, tmp_path, compress, cache_bytes):
    sequence = sequences(compress, cache_bytes)
    num_steps = in_a_process(build_counting_changes, sequence.begin(tmp_path / "counted"), None)
    rng = random.Random(f"{compress} {cache_bytes}")
    anywhere, at_the_end = (
        rng.sample(range(1, num_steps - 30), 3),
        rng.sample(range(num_steps - 30, num_steps + 1), 4),
    )
    for step in (*anywhere, *at_the_end):
        config = sequence.begin(tmp_path / f"out{step}")
        run_until_killed(build_counting_changes, config, step)
        sequence.finish(config)


# Files that are damaged between two builds.


def cut_short(path):
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(content)


def empty(path):
    os.truncate(path, 0)


def fill_with_noise(path):
    path.write_bytes(random.Random(path.name[:4]).randbytes(path.stat().st_size or 1))


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, empty, fill_with_noise, remove])
@pytest.mark.parametrize(
    ("where", "compress"),
    [
        ("work/prepared/*", "none"),
        ("out/train*", "none"),
        ("out/train*", "zstd"),
        ("work/*", "none"),
        ("work/*", "zstd"),
    ],
)
def test_damaged_files_are_made_again(sequences, tmp_path, where, damage, compress):
    """Damage all parts, all train files of the earlier dataset, or all records such as the log of pieces."""
    sequence = sequences(compress, LARGE_CACHE)
    config = sequence.begin(tmp_path / "out")
    kind, _, pattern = where.partition("/")
    folder = tmp_path / ("out" if kind == "out" else "out.work")
    damaged = [path for path in sorted(folder.glob(pattern)) if path.is_file() and path.name != "lock"]
    assert len(damaged) > 3
    for path in damaged:
        damage(path)
    build(config)
    assert everything(tmp_path / "out") == sequence.stages[1]


@pytest.mark.parametrize("compress", ["none", "zstd"])
@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, empty, fill_with_noise])
def test_files_damaged_after_a_kill_are_made_again(sequences, tmp_path, damage, compress):
    """Damage all files in the folder of the unfinished dataset."""
    sequence = sequences(compress, LARGE_CACHE)
    config = sequence.begin(tmp_path / "out")
    run_until_killed(build_until, config, "pipeline.pieces:DataFiles.add", 9, True)
    half_done = [path for path in sorted((tmp_path / "out.work/dataset").iterdir()) if path.stat().st_size]
    assert len(half_done) > 3
    for path in half_done:
        damage(path)
    in_a_process(build, config)
    assert everything(tmp_path / "out") == sequence.stages[1]


def test_log_entries_with_wrong_keys_are_ignored(sequences, tmp_path):
    from gristmill.pipeline import pieces

    sequence = sequences("none", LARGE_CACHE)
    config = sequence.begin(tmp_path / "out")
    log = tmp_path / "out.work/pieces"
    entries = list(pieces._read_log(log))
    assert len(entries) > 5
    shifted = zip(entries, entries[1:] + entries[:1], strict=True)
    log.write_bytes(
        b"".join(
            pieces._record(msgspec.structs.replace(one, key=other.key, crc32=other.crc32)) for one, other in shifted
        )
    )
    build(config)
    assert everything(tmp_path / "out") == sequence.stages[1]


# Builds into the same folder run one at a time.


def wait_forever(mark, *_):
    mark.touch()
    time.sleep(600)


def build_that_waits(config, mark):
    """Build, but wait forever instead of preparing the first batch."""
    prepare.prepare = partial(wait_forever, mark)
    build(config)


def shard_that_waits(config, mark):
    prepare.prepare = partial(wait_forever, mark)
    prepare_shard(config, Shard(1, 2))


@contextmanager
def waiting_process(function, config, mark):
    with started(function, config, mark) as process:
        wait_for(mark)
        yield process


@pytest.fixture
def short_wait_for_lock(monkeypatch):
    monkeypatch.setattr(work_folder, "SECONDS_FOR_LOCK", 0.1)


@pytest.mark.usefixtures("short_wait_for_lock")
@pytest.mark.parametrize("workers", [1, 2])
def test_other_commands_are_refused_until_a_running_build_is_killed(small, tmp_path, workers):
    source, out = small[1], tmp_path / "out"
    config = Config(sources=[str(source)], out=str(out), run=RunConfig(workers=workers))
    with waiting_process(build_that_waits, config, tmp_path / "mark") as process:
        expected = (3, f"another build into {str(out)!r} is running. Wait until it has ended.")
        assert refusal(called("build", source, "--out", out)) == expected
        assert refusal(called("clean", out)) == expected
        assert refusal(called("prepare", source, "--out", out, "--shard", "1/2")) == expected
        assert refusal(called("decide", source, "--out", out)) == expected
        process.kill()
    assert run("build", source, "--out", out).returncode == 0
    assert called("clean", out).returncode == 0
    make(source, tmp_path / "undisturbed")
    assert everything(out) == everything(tmp_path / "undisturbed")


def test_build_waits_briefly_for_workers_of_a_killed_build(small, tmp_path):
    work = work_folder_of(tmp_path / "out")
    work.mkdir()
    lock = os.open(work / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [lock]).start()
    make(small[1], tmp_path / "out")


@pytest.mark.usefixtures("short_wait_for_lock")
def test_shards_can_be_prepared_concurrently_but_builds_are_refused(small, tmp_path):
    source, out = small[1], tmp_path / "out"
    config = Config(sources=[str(source)], out=str(out), run=RunConfig(workers=1))
    with waiting_process(shard_that_waits, config, tmp_path / "mark") as process:
        expected = (3, f"another build into {str(out)!r} is running. Wait until it has ended.")
        assert refusal(called("build", source, "--out", out)) == expected
        assert refusal(called("clean", out)) == expected
        assert refusal(called("decide", source, "--out", out)) == expected
        assert refusal(called("finish", source, "--out", out)) == expected
        assert called("prepare", source, "--out", out, "--shard", "2/2", "--workers", 1).returncode == 0
        process.kill()
    assert run("build", source, "--out", out).returncode == 0


# The work folder.


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_cache_of_zero_bytes_leaves_no_work_folder(small, tmp_path):
    before, after = small
    for source in (before, after):
        make(source, tmp_path / "out", run=RunConfig(cache_bytes=0))
        assert os.listdir(tmp_path) == ["out"]


def test_cache_limit_keeps_the_most_recently_used_parts(small, tmp_path):
    before, after = small
    run = RunConfig(workers=1, batch_bytes=15_000)
    make(before, tmp_path / "out", run=run)
    make(after, tmp_path / "out", run=run)
    folder = tmp_path / "out.work/prepared"
    make(after, tmp_path / "other", run=run)
    used_names = {path.name for path in (tmp_path / "other.work/prepared").iterdir()}
    all_names = {path.name for path in folder.iterdir()}
    assert all_names > used_names
    other_bytes = size_of(tmp_path / "out.work") - size_of(folder) + 1000  # bytes of the records and the tokenizer
    for max_bytes in (size_of(folder) - 1, size_of(tmp_path / "other.work/prepared"), 200_000):
        make(after, tmp_path / "out", run=msgspec.structs.replace(run, cache_bytes=max_bytes + other_bytes))
        remaining_names = {path.name for path in folder.iterdir()}
        assert 0 < size_of(folder) <= max_bytes + 1000
        assert size_of(tmp_path / "out.work") <= max_bytes + other_bytes
        assert remaining_names <= all_names if remaining_names > used_names else remaining_names <= used_names


def test_part_with_the_name_of_another_part_is_ignored(small, tmp_path):
    run = RunConfig(workers=1, batch_bytes=15_000)
    make(small[0], tmp_path / "out", run=run)
    before = everything(tmp_path / "out")[0]
    parts = sorted((tmp_path / "out.work/prepared").iterdir())
    shutil.copyfile(parts[0], parts[1])
    (tmp_path / "out.work/files").unlink(missing_ok=True)
    make(small[0], tmp_path / "out", run=msgspec.structs.replace(run, workers=2))
    assert everything(tmp_path / "out")[0] == before


def test_clean_deletes_the_work_folder_and_keeps_the_dataset(small, tmp_path):
    out = tmp_path / "out"
    make(small[0], out)
    before, num_bytes = everything(out), size_of(work_folder_of(out))
    done = called("clean", out, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"deleted_bytes": num_bytes})
    assert os.listdir(tmp_path) == ["out"]
    assert everything(out) == before
    done = called("clean", out)
    assert (done.returncode, done.stdout) == (0, f"deleted  0 bytes in {work_folder_of(out)}\n")
    code, line = refusal(called("clean", tmp_path / "nothing"))
    assert (code, line) == (
        4,
        f"{tmp_path / 'nothing'} does not exist and has no work folder. Name the folder of a dataset.",
    )


def test_clean_deletes_files_of_a_killed_build(sequences, tmp_path):
    config = sequences("none", LARGE_CACHE).begin(tmp_path / "out")
    run_until_killed(build_until, config, "pipeline.pieces:DataFiles.add", 4, True)
    before = everything(tmp_path / "out")
    assert called("clean", tmp_path / "out").returncode == 0
    assert os.listdir(tmp_path) == ["out"]
    assert everything(tmp_path / "out") == before


def test_clean_refuses_a_folder_that_is_not_a_work_folder(tmp_path):
    write_tree(tmp_path, {"out/notes.txt": "mine", "out.work/notes.txt": "mine"})
    code, line = refusal(called("clean", tmp_path / "out"))
    assert code == 4
    assert "not a work folder of gristmill" in line
    assert (tmp_path / "out.work/notes.txt").exists()


@pytest.mark.parametrize("is_git", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_work_folder_inside_a_source_is_not_scanned(small, tmp_path, is_git, is_killed):
    source = shutil.copytree(small[0], tmp_path / "stdlib")
    if is_git:
        git(source, "init", "-q")
        git(source, "add", ".")
        git(source, "commit", "-qm", "x")
    make(source, tmp_path / "expected", scan=ScanConfig(default_excludes=False))
    expected = set(files_table(tmp_path / "expected"))
    inside = Config(sources=[str(source)], out=str(source / "data/set"), run=RunConfig(workers=1))
    if is_killed:
        run_until_killed(build_until, inside, "pipeline.pieces:DataFiles.add", 1, True)
    else:
        build(inside)
    assert (
        (source / "data/set.work/CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    )
    make(source, tmp_path / "elsewhere", scan=ScanConfig(default_excludes=False))
    table = files_table(tmp_path / "elsewhere")
    assert not [path for path in table if path.startswith("data/set.work")]
    assert {path for path, row in table.items() if row["detail"] != "part of a gristmill dataset"} == expected
    if is_git:
        assert b"set.work" not in git(source, "status", "--porcelain", "-uall")
    build(inside)
    assert set(files_table(source / "data/set")) == expected


def test_build_record_is_readable_only_by_its_owner(small, tmp_path):
    make(small[0], tmp_path / "out")
    assert (tmp_path / "out.work/built").stat().st_mode & 0o777 == 0o600
