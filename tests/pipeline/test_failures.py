"""Tests of builds in which workers die, hang or run out of memory, files cannot be read, or sources disappear."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial

import pytest

from gristmill import Config, InputError, OutputError, RunConfig, ScanConfig, SplitConfig, build
from gristmill.core.layout import CARDS
from gristmill.pipeline import context, prepare, shape
from gristmill.sources import documents
from support.builds import everything, files_table, in_a_process, make, parts, refusal, run
from support.source_trees import write_tree

BAD = "json/decoder.py"
SMALL_BATCHES = {"batch_bytes": 20_000}


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("faults") / "stdlib"
    for package in ("importlib", "json", "logging"):
        shutil.copytree(corpus / package, root / package)
    return root


@pytest.fixture(scope="module")
def expected(tmp_path_factory, source):
    """Folder with two datasets built without failures: `all` from every file, `others` without the file BAD."""
    folder = tmp_path_factory.mktemp("expected")
    make(source, folder / "all", run=RunConfig(**SMALL_BATCHES))
    make(source, folder / "others", run=RunConfig(**SMALL_BATCHES), scan=ScanConfig(exclude=[BAD]))
    return folder


def assert_differs_only_in(out, others, path):
    """Assert that two datasets differ only in the row for `path` in files.jsonl. Return the row in `out`."""
    table, other_table = files_table(out), files_table(others)
    row, _ = table.pop(path), other_table.pop(path)
    assert table == other_table
    names = {file.name for file in out.iterdir()} - {"files.jsonl", "manifest.json", *CARDS}
    assert {name for name in names if (out / name).read_bytes() != (others / name).read_bytes()} == set()
    return row


# Failures. Each test patches a failure into a separate process, which forks the workers.


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


def run_out_of_memory():
    raise MemoryError


def fail_once(mark, failure):
    if not mark.exists():
        mark.touch()
        failure()


def build_with_failure(failure, config):
    """Build, and call `failure` when the file BAD is prepared."""
    plain = prepare.document_of

    def document_of(file, *rest):
        if file.path == BAD:
            failure()
        return plain(file, *rest)

    prepare.document_of = document_of
    return build(config)


def config_for(source, out, **options):
    return Config(sources=[str(source)], out=str(out), run=RunConfig(**{"workers": 2, **SMALL_BATCHES, **options}))


FAILURES = [
    (die, {}, r"its worker died \(exit code -9\), probably because it ran out of memory"),
    (hang, {"task_seconds": 1}, r"no answer within [\d.]+ s"),
    (run_out_of_memory, {}, "out of memory"),
    (run_out_of_memory, {"workers": 1}, "out of memory"),
]


@pytest.mark.parametrize("case", FAILURES)
def test_file_that_makes_workers_fail_is_named(source, expected, tmp_path, case):
    failure, options, reason = case
    config = config_for(source, tmp_path / "out", **options)
    advice = "Completed work is kept: run the same command again to resume, try fewer --workers, or use --skip-failed to drop"
    message = rf"^stdlib/{BAD} \(batch \d+\) could not be prepared: {reason}\. {advice} the file\.$"
    with pytest.raises(OutputError, match=message):
        in_a_process(build_with_failure, failure, config)
    assert not (tmp_path / "out").exists()
    kept = parts(tmp_path / "out")
    assert kept
    build(config)
    assert parts(tmp_path / "out").items() > kept.items()
    assert everything(tmp_path / "out") == everything(expected / "all")


@pytest.mark.parametrize("case", FAILURES)
def test_file_that_makes_workers_fail_is_dropped_with_skip_failed(source, expected, tmp_path, case):
    failure, options, reason = case
    config = config_for(source, tmp_path / "out", **options, skip_failed=True)
    manifest = in_a_process(build_with_failure, failure, config)
    assert manifest.counts.dropped_by_reason["failed"] == 1
    row = assert_differs_only_in(tmp_path / "out", expected / "others", BAD)
    assert (row["status"], row["reason"]) == ("dropped", "failed")
    assert row["detail"] == reason.replace("\\", "") or row["detail"].startswith("no answer within ")
    build(config)
    assert everything(tmp_path / "out")[0].keys() == everything(expected / "all")[0].keys()
    assert files_table(tmp_path / "out")[BAD]["status"] == "kept"


@pytest.mark.parametrize(("failure", "options"), [(failure, options) for failure, options, _ in FAILURES])
def test_worker_that_fails_once_does_not_change_the_dataset(source, expected, tmp_path, failure, options):
    config = config_for(source, tmp_path / "out", **options)
    in_a_process(build_with_failure, partial(fail_once, tmp_path / "mark", failure), config)
    assert (tmp_path / "mark").exists()
    assert everything(tmp_path / "out") == everything(expected / "all")


plain_prepare = prepare.prepare


def prepare_on_second_attempt(folder, context, batch):
    mark = folder / str(batch.index)
    if not mark.exists():
        mark.touch()
        die()
    return plain_prepare(context, batch)


def build_dying_once_per_batch(config, folder):
    prepare.prepare = partial(prepare_on_second_attempt, folder)
    return build(config)


def test_worker_that_dies_once_per_batch_does_not_change_the_dataset(source, expected, tmp_path):
    (tmp_path / "marks").mkdir()
    in_a_process(build_dying_once_per_batch, config_for(source, tmp_path / "out"), tmp_path / "marks")
    assert len(os.listdir(tmp_path / "marks")) > 5
    assert everything(tmp_path / "out") == everything(expected / "all")


def test_several_failing_files_of_one_batch_are_all_dropped(tmp_path):
    names = {f"{letter}.py": f"letter_{letter} = {number}\n" * 9 for number, letter in enumerate("abcdef")}
    source = write_tree(tmp_path / "repo", names)
    manifest = in_a_process(
        build_dying_at, {"b.py", "c.py", "f.py"}, config_for(source, tmp_path / "out", skip_failed=True)
    )
    assert manifest.counts.dropped_by_reason == {"failed": 3}
    table = files_table(tmp_path / "out")
    assert {path for path, row in table.items() if row["status"] == "kept"} == {"a.py", "d.py", "e.py"}


def build_dying_at(paths, config):
    plain = prepare.document_of

    def document_of(file, *rest):
        if file.path in paths:
            die()
        return plain(file, *rest)

    prepare.document_of = document_of
    return build(config)


# A disk that stores different bytes than were written.


def build_with_corrupt_writes(config):
    plain = shape._write_at
    shape._write_at = lambda path, content, offset: plain(path, content[:-3] + b"?}\n", offset)
    return build(config)


@pytest.mark.parametrize("workers", [1, 2])
def test_corrupt_rows_are_an_error(source, expected, tmp_path, workers):
    config = config_for(source, tmp_path / "out", workers=workers)
    with pytest.raises(
        OutputError, match=r"train\.jsonl' does not contain the bytes that were written\. Check the disk"
    ):
        in_a_process(build_with_corrupt_writes, config)
    assert not (tmp_path / "out").exists()
    build(config)
    assert everything(tmp_path / "out") == everything(expected / "all")


# Files that cannot be read.


def path_of(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}")


def build_with_failing_reads(config, location, num_faults, call):
    """Run a build in which the first `num_faults` calls of os.open or os.read for `location` fail.

    Return the number of failed calls.
    """
    faults = [0]
    plain = getattr(os, call)

    def fail_first(file, *rest, **options):
        path = path_of(file) if isinstance(file, int) else os.fspath(file)
        if options.get("dir_fd") is not None:
            path = os.path.join(path_of(options["dir_fd"]), path)
        if path == str(location) and faults[0] < num_faults:
            faults[0] += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return plain(file, *rest, **options)

    setattr(os, call, fail_first)
    build(config)
    return faults[0]


@pytest.mark.parametrize("call", ["open", "read"])
@pytest.mark.parametrize("workers", [1, 2])
def test_read_that_fails_repeatedly_is_an_error_with_the_file_name(source, expected, tmp_path, call, workers):
    config = config_for(source, tmp_path / "out", workers=workers)
    message = (
        rf"^cannot read stdlib/{BAD}: Input/output error, in each of 3 attempts \(batch \d+\)\. Completed work is kept"
    )
    with pytest.raises(InputError, match=message):
        in_a_process(build_with_failing_reads, config, source / BAD, 1000, call)
    assert not (tmp_path / "out").exists()
    build(config)
    assert everything(tmp_path / "out") == everything(expected / "all")


@pytest.mark.parametrize("workers", [1, 2])
def test_read_that_fails_repeatedly_drops_the_file_with_skip_failed(source, expected, tmp_path, workers):
    config = config_for(source, tmp_path / "out", workers=workers, skip_failed=True)
    in_a_process(build_with_failing_reads, config, source / BAD, 1000, "open")
    row = assert_differs_only_in(tmp_path / "out", expected / "others", BAD)
    assert (row["status"], row["reason"]) == ("dropped", "failed")
    assert row["detail"] == f"cannot read stdlib/{BAD}: Input/output error, in each of 3 attempts"


@pytest.mark.parametrize("call", ["open", "read"])
@pytest.mark.parametrize("num_faults", [1, documents.ATTEMPTS - 1])
def test_read_that_succeeds_on_retry_does_not_change_the_dataset(source, expected, tmp_path, call, num_faults):
    config = config_for(source, tmp_path / "out", workers=1)
    assert in_a_process(build_with_failing_reads, config, source / BAD, num_faults, call) == num_faults
    assert everything(tmp_path / "out") == everything(expected / "all")


# Sources that disappear.


def build_and_rename(config, path, to, at_batch):
    """Build, and rename `path` when the batch with the index `at_batch` is prepared."""
    plain = prepare.prepare

    def prepare_after_renaming(context, batch):
        if batch.index == at_batch:
            os.rename(path, to)
        return plain(context, batch)

    prepare.prepare = prepare_after_renaming
    return build(config)


@pytest.mark.parametrize("skip_failed", [False, True])
def test_missing_source_ends_the_build_and_a_restored_source_resumes_the_build(source, expected, tmp_path, skip_failed):
    copied, out = shutil.copytree(source, tmp_path / "stdlib"), tmp_path / "out"
    config = config_for(copied, out, workers=1, skip_failed=skip_failed, batch_bytes=20_000)
    with pytest.raises(
        InputError, match=rf"^the source '{copied}' was deleted, .* Restore the source\. Completed work is kept"
    ):
        in_a_process(build_and_rename, config, copied, tmp_path / "away", 7)
    assert not out.exists()
    kept = parts(out)
    assert len(kept) >= 7
    os.rename(tmp_path / "away", copied)
    build(config)
    assert parts(out).items() > kept.items()
    assert everything(out) == everything(expected / "all")


def test_missing_source_leaves_the_earlier_dataset_unchanged(source, tmp_path):
    copied, out = shutil.copytree(source, tmp_path / "stdlib"), tmp_path / "out"
    make(copied, out, scan=ScanConfig(include=["json/**"]))
    before, previous = everything(out), shutil.copy(out / "files.jsonl", tmp_path)
    config = config_for(copied, out, workers=1, batch_bytes=20_000)
    with pytest.raises(InputError, match="was deleted, replaced or unmounted"):
        in_a_process(build_and_rename, config, copied, tmp_path / "away", 3)
    assert everything(out) == before
    os.rename(tmp_path / "away", copied)
    build(config)
    make(copied, tmp_path / "clean", split=SplitConfig(previous=str(previous)))
    assert everything(out) == everything(tmp_path / "clean")


def test_missing_source_among_several_is_named(source, tmp_path):
    one, two = shutil.copytree(source / "json", tmp_path / "one"), shutil.copytree(source / "logging", tmp_path / "two")
    config = Config(sources=[str(one), str(two)], out=str(tmp_path / "out"), run=RunConfig(workers=1, batch_files=1))
    with pytest.raises(InputError, match=rf"^the source '{two}' was deleted, replaced or unmounted"):
        in_a_process(build_and_rename, config, two, tmp_path / "away", 6)


def test_missing_file_is_dropped_as_vanished(source, tmp_path):
    copied = shutil.copytree(source, tmp_path / "stdlib")
    config = config_for(copied, tmp_path / "out", workers=1)
    manifest = in_a_process(build_and_rename, config, copied / BAD, tmp_path / "away", 0)
    assert manifest.counts.dropped_by_reason["vanished"] == 1
    assert files_table(tmp_path / "out")[BAD]["reason"] == "vanished"


def test_files_of_a_missing_folder_are_dropped_as_vanished(source, tmp_path):
    copied = shutil.copytree(source, tmp_path / "stdlib")
    config = config_for(copied, tmp_path / "out", workers=1)
    manifest = in_a_process(build_and_rename, config, copied / "logging", tmp_path / "away", 0)
    assert manifest.counts.dropped_by_reason["vanished"] == 3


# Large files.


def build_with_large_file_limit(config, large_bytes, notes):
    context.LARGE_BYTES = large_bytes
    plain = prepare.document_of

    def document_of(file, *rest):
        (notes / f"{os.getpid()}-{file.path.replace('/', ':')}").touch()
        return plain(file, *rest)

    prepare.document_of = document_of
    build(config)


@pytest.mark.parametrize("workers", [1, 2])
def test_large_file_is_prepared_in_its_own_process_and_adds_only_a_warning(source, expected, tmp_path, workers):
    (tmp_path / "notes").mkdir()
    config = config_for(source, tmp_path / "out", workers=workers)
    in_a_process(build_with_large_file_limit, config, 60_000, tmp_path / "notes")
    by_process = defaultdict(set)
    for note in (tmp_path / "notes").iterdir():
        process, _, path = note.name.partition("-")
        by_process[int(process)].add(path.replace(":", "/"))
    large = {path for path, row in files_table(expected / "all").items() if row["bytes"] > 60_000}
    assert len(large) >= 2
    alone = [paths for paths in by_process.values() if paths & large]
    assert sorted(alone, key=sorted) == [{path} for path in sorted(large)]
    assert workers > 1 or len(by_process) == len(large) + 1
    files, manifest = everything(tmp_path / "out")
    expected_files, expected_manifest = everything(expected / "all")
    assert files == expected_files
    notes = [warning for warning in manifest.pop("warnings") if warning not in expected_manifest["warnings"]]
    expected_manifest.pop("warnings")
    assert manifest == expected_manifest
    assert [note.partition(" is 0 MB: a separate process prepares this file")[0] for note in notes] == [
        f"stdlib/{path}" for path in sorted(large)
    ]


def test_command_reports_dying_workers_in_one_line(source, tmp_path):
    """Workers die at every file. The command prints only one line."""
    code = (
        "import os\n"
        "from gristmill.cli import main as cli\n"
        "from gristmill.pipeline import prepare\n"
        "prepare.document_of = lambda *_: os.kill(os.getpid(), 9)\n"
        "cli.main()\n"
    )
    words = ("build", source, "--out", tmp_path / "out", "--workers", 2)
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    code, line = refusal(done)
    assert code == 3
    assert re.match(r"stdlib/importlib/\S+ \(batch \d+\) could not be prepared: its worker died", line)
    assert run(*words).returncode == 0
