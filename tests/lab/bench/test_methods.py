"""Benchmark methods on a tiny tree: they make the expected rows, lose no tokens and leave no files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import psutil
import pytest

from gristmill import Config, ConfigError, InputError, OutputError, Progress, build, load_tokenizer
from gristmill.core.layout import FILES
from gristmill.core.records import Split
from gristmill.lab.bench import bench as benching
from gristmill.lab.bench.bench import BenchOptions, bench, this_machine
from gristmill.lab.bench.bench_files import gather, sample_files
from gristmill.lab.bench.bench_result import PHASES, REBUILD
from gristmill.lab.bench.job import Job, JobFile, window_spans
from gristmill.lab.bench.methods import (
    METHODS,
    Setup,
    gpu_skip_reason,
    method_command,
    read_phase_seconds,
    select_methods,
    skip_reason,
)
from gristmill.lab.bench.process import ProcessResult, run
from gristmill.lab.bench.scripts.original import expand
from support.builds import called, running
from support.source_trees import write_tree
from support.trained_tokenizers import word_piece

SAME_ROWS_WITH_COPIES = ("original", "threads", "batch")
SAME_ROWS_WITHOUT = ("datasets", "floor", "gristmill-plain")
PYTHON_FILES = {
    f"pkg/long_{number}.py": "".join(
        f"def f{number}_{line}(x):\n    return x + {line * number}\n" for line in range(90)
    )
    for number in range(1, 4)
}
TREE = {
    **PYTHON_FILES,
    "short.py": "x = 1\n",
    "windows.py": b"def f():\r\n    return 'carriage return'\r\n",
    "unicode ünï/naïve.py": "name = '日本語 🦀'\n# \u2028 \x0c end\n",
    "special.md": "between <s> and </s> and <mask>\n",
    "empty.py": "",
    "odd [1]!*#.py": b"x = 'caf\xe9'\n",
    "new\nline\\.py": b"x = 'na\xefve'\n",
    "a\nb.py": b"x = 'na\xefve, too'\n",
    "a b.py": "x = 'not the one above'\n",
    "latin.py": b"# na\xefve text in latin-1, and nothing else\n",
    "marked.py": b"\xef\xbb\xbfx = 2\n",
    "binary.dat": b"\0\1\2\3",
    "package-lock.json": "{}",
}
LISTED = ["a b.py", *PYTHON_FILES, "short.py", "special.md", "unicode ünï/naïve.py", "windows.py"]
WITHHELD = ["a\nb.py", "latin.py", "marked.py", "new\nline\\\\.py", "odd [1]!*#.py"]
BY_NAME = {method.name: method for method in METHODS}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("bench") / "repo", TREE)


@pytest.fixture(scope="module")
def job_and_setup(tmp_path_factory, source):
    """Return a job and a setup as bench() makes them."""
    work = tmp_path_factory.mktemp("work")
    tokenizer = load_tokenizer()
    found = gather(str(source), tokenizer, Progress(), work=work)
    job = benching._job(found, tokenizer.definition, work, BenchOptions(workers=2))
    setup = Setup(
        source=str(source), tokenizer="codebert", withheld=found.withheld, has_notebooks=False, workers="auto"
    )
    return job, setup


@pytest.fixture(scope="module")
def run_in_folder(job_and_setup, tmp_path_factory):
    """Return a function that runs a method once and returns (folder, output folder, measurements).

    The method writes to the subfolder `work`. Its home folder and temporary folder is the subfolder `outside`.
    """
    job, setup = job_and_setup
    cached = {}

    def run_once(name, **changes):
        key = (name, *changes.items())
        if key not in cached:
            folder = tmp_path_factory.mktemp("room")
            for name_in_folder in ("work", "outside"):
                (folder / name_in_folder).mkdir()
            changed = msgspec.structs.replace(job, out=str(folder / "work"), **changes)
            with pytest.MonkeyPatch.context() as patch:
                for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME"):
                    patch.setenv(variable, str(folder / "outside"))
                if name.startswith("gristmill-no-"):  # these methods differ only in options, so this process runs them
                    patch.setattr(benching, "run", run_in_this_process)
                runs = benching.MethodRuns(without_gpu(BY_NAME[name]), changed, setup, None)
                cached[key] = folder, runs.out, runs._run(Progress(), watched=False)
        return cached[key]

    return run_once


def run_in_this_process(name, command, **_):
    done = called(*command[command.index("gristmill") + 1 :])
    assert (done.returncode, name in BY_NAME) == (0, True)
    return ProcessResult(1.0, None, done.stdout.splitlines(keepends=True)[-1].encode())


def without_gpu(method):
    """Return the method, without its GPU options if there is no GPU."""
    return method._replace(options=()) if method.needs_gpu and gpu_skip_reason() is not None else method


@pytest.fixture(scope="module")
def run_method(run_in_folder):
    """Return a function that runs a method and returns its output folder and its measurements."""
    return lambda name, **changes: run_in_folder(name, **changes)[1:]


def rows_in(out):
    """Return all rows by split, read with the standard library."""
    rows = {}
    for split in Split:
        texts = [path.read_text(encoding="utf-8") for path in sorted(out.glob(f"{split}*.json*"))]
        as_list = (out / f"{split}.json").exists()
        rows[split] = [row for text in texts for row in (json.loads(text) if as_list else map(json.loads, lines(text)))]
    return rows


def lines(text):
    return [line for line in text.split("\n") if line]


def all_rows(out):
    return [row for rows in rows_in(out).values() for row in rows]


def with_copies(row):
    return (
        row["repo"],
        row["path"],
        row["language"],
        row["start"],
        row["copy"],
        *row["input_ids"],
        *row["attention_mask"],
    )


def without_copies(row):
    return row["repo"], row["path"], row["language"], row["start"], *row["input_ids"]


def test_corpus_equals_the_files_of_a_build(source, job_and_setup, tmp_path):
    job, setup = job_and_setup
    assert [file.path for file in job.files] == LISTED
    assert sorted(setup.withheld) == WITHHELD
    build(Config(sources=[str(source)], out=str(tmp_path / "out")))
    table = [json.loads(line) for line in (tmp_path / "out" / FILES).read_text().splitlines()]
    utf8 = {row["path"]: row for row in table if row.get("encoding") == "utf-8"}
    for file in job.files:
        if file.path in utf8:  # the build drops files that are too short
            assert (file.num_tokens, file.num_bytes) == (utf8[file.path]["tokens"], utf8[file.path]["bytes"])
    assert utf8.keys() <= set(LISTED)
    assert set(PYTHON_FILES) <= utf8.keys()


def test_only_files_that_are_not_utf8_are_withheld_from_gristmill(run_method):
    out, _ = run_method("gristmill-plain")
    table = [json.loads(line) for line in (out / FILES).read_text().splitlines()]
    assert sorted(row["path"] for row in table if row["status"] == "kept") == sorted(LISTED)
    excluded = [row["path"] for row in table if row.get("reason") == "excluded_by_user"]
    assert sorted(excluded) == WITHHELD


def reference_windows(job_and_setup, overlap):
    """Yield the windows of the text that the plain script reads, one token at a time. Slow, obvious reference."""
    job, _ = job_and_setup
    tokenizer = load_tokenizer()
    for file in job.files:
        text = Path(file.location).read_text(encoding="utf-8", errors="ignore")
        ids = tokenizer.encode(text.encode()).ids.tolist()
        start = 0
        while True:
            window = [ids[index] for index in range(start, start + 510) if index < len(ids)]
            yield file, start, window
            if start + 510 >= len(ids):
                break
            start += 510 - overlap


@pytest.mark.parametrize("name", SAME_ROWS_WITH_COPIES)
def test_original_rows_equal_those_of_a_slow_reference(name, run_method, job_and_setup):
    expected = {
        (file.path, start): [0, *window, 2]
        for file, start, window in reference_windows(job_and_setup, 128)
        if file.path != "special.md"  # the plain script turns text in this file into control tokens
    }
    rows = [row for row in all_rows(run_method(name)[0]) if row["path"] != "special.md"]
    assert {(row["path"], row["start"]) for row in rows} == expected.keys()
    assert max(start for _, start in expected) > 0
    for row in rows:
        window = expected[row["path"], row["start"]]
        num_padding = 512 - len(window)
        assert row["input_ids"] == window + [1] * num_padding
        assert row["attention_mask"] == [1] * len(window) + [0] * num_padding


@pytest.mark.parametrize("name", SAME_ROWS_WITH_COPIES)
def test_copies_make_2_75_times_as_many_rows(name, run_method):
    rows = all_rows(run_method(name)[0])
    original_rows = [row for row in rows if row["copy"] == 0]
    assert len(rows) == -(-len(original_rows) * 11 // 4)
    originals = {(row["path"], row["start"]): row for row in original_rows}
    assert len(originals) == len(original_rows)
    for row in rows:
        assert row == {**originals[row["path"], row["start"]], "copy": row["copy"]}


def test_threads_and_batch_make_the_same_splits_as_the_original(run_method):
    expected = rows_in(run_method("original")[0])
    for name in ("threads", "batch"):
        assert rows_in(run_method(name)[0]) == expected
    total = sum(map(len, expected.values()))
    assert len(expected[Split.TRAIN]) == int(0.85 * total)
    assert len(expected[Split.VALIDATION]) == int(0.10 * total)


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_batch_makes_the_same_rows_with_every_start_method(
    start_method, run_method, job_and_setup, tmp_path, monkeypatch
):
    code = f"import multiprocessing; multiprocessing.set_start_method({start_method!r})"
    write_tree(tmp_path, {"sitecustomize.py": code})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job, setup = job_and_setup
    job = msgspec.structs.replace(job, out=str(tmp_path))
    runs = benching.MethodRuns(BY_NAME["batch"], job, setup, None)
    runs._run(Progress(), watched=False)
    assert rows_in(runs.out) == rows_in(run_method("batch")[0])


@pytest.mark.parametrize(("expand_to", "num_rows"), [(50, 50), (1, None)])
def test_expand_to_is_a_number_of_rows_and_never_removes_one(expand_to, num_rows, run_method):
    original_rows = [row for row in all_rows(run_method("original")[0]) if row["copy"] == 0]
    rows = all_rows(run_method("original", expand_to=expand_to)[0])
    assert len(rows) == (num_rows or len(original_rows))
    assert len({with_copies(row) for row in rows}) == len(rows)


def test_expanding_no_rows_gives_no_rows():
    rows = []
    expand(rows, 10)
    assert rows == []


def test_original_writes_an_indented_list_and_the_others_json_lines(run_method):
    out, _ = run_method("original")
    text = (out / "train.json").read_text()
    assert text.startswith('[\n  {\n    "input_ids": [\n      0,\n')
    assert text == json.dumps(json.loads(text), indent=2)
    assert sorted(path.name for path in run_method("batch")[0].glob("*.jsonl")) == [
        "test.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]


def test_datasets_floor_and_plain_gristmill_make_the_same_rows(run_method):
    expected = sorted(map(without_copies, all_rows(run_method("floor")[0])))
    assert {path for _, path, *_ in expected} == set(LISTED)
    for name in SAME_ROWS_WITHOUT:
        assert sorted(map(without_copies, all_rows(run_method(name)[0]))) == expected


def test_floor_rows_have_the_ids_of_the_reference(run_method, job_and_setup, source):
    tokenizer = load_tokenizer()
    for row in all_rows(run_method("floor")[0]):
        ids = tokenizer.encode((source / row["path"]).read_bytes()).ids.tolist()
        assert row["input_ids"] == [0, *ids[row["start"] : row["start"] + 510], 2]


def test_datasets_caches_only_in_its_output_folder(run_method):
    out, _ = run_method("datasets")
    allowed = {"phases.json", "train.jsonl", "validation.jsonl", "test.jsonl", "cache"}
    assert {path.name for path in out.iterdir()} <= allowed


@pytest.mark.parametrize("name", ["original", "threads", "batch", "datasets", "floor", "gristmill-plain"])
def test_every_method_reports_its_phases(name, run_method):
    out, result = run_method(name)
    phases = read_phase_seconds(BY_NAME[name], out, result.last_line)
    assert list(phases) == list(PHASES)
    assert all(phases[phase] is not None for phase in ("load", "scan", "tokenize", "write"))
    assert (phases["shape"] is None) == (name not in SAME_ROWS_WITH_COPIES)
    assert 0 < sum(seconds or 0 for seconds in phases.values()) <= result.seconds


@pytest.mark.parametrize("num_tokens", [0, 1, 509, 510, 511, 764, 765, 5000])
def test_window_spans_cover_every_token_and_end_once(num_tokens):
    job = Job(files=[], root="", tokenizer="", prefix=(0,), suffix=(2,), pad_id=1, out="", workers=1, expand_to=None)
    spans = list(window_spans(num_tokens, job))
    assert {index for start, end in spans for index in range(start, end)} == set(range(num_tokens))
    assert sum(end == num_tokens for _, end in spans) == min(num_tokens, 1)
    assert all(later - earlier == 254 for (earlier, _), (later, _) in pairwise(spans))


def test_sample_is_deterministic_and_in_path_order():
    file = partial(JobFile, repo="repo", location="", language="", num_bytes=1, num_tokens=1)
    files = [file(path=f"{number:03d}.py") for number in range(100)]
    sample = sample_files(files, 10)
    assert sample == sample_files(files[::-1], 10)
    assert [one.path for one in sample] == sorted(one.path for one in sample)
    assert len(sample) == 10
    assert set(sample) < set(sample_files(files, 20))
    assert sample_files(files, 1000) == files


@pytest.mark.parametrize("files", [{"a.py": ""}, {"a.py": b"# na\xefve text in latin-1\n"}, {}])
def test_source_without_text_is_a_one_line_error(files, tree, tmp_path):
    root = tree(files)
    with pytest.raises(InputError, match="nothing to measure in") as raised:
        gather(str(root), load_tokenizer(), Progress(), work=tmp_path / "work")
    assert "\n" not in str(raised.value)


def test_outputs_inside_the_source_are_refused(tree):
    root = tree({"a.py": "x = 1\n"})
    with pytest.raises(ConfigError, match="inside the source"):
        bench(str(root), BenchOptions(keep=str(root / "kept"), only=["floor"]))
    assert [path.name for path in root.iterdir()] == ["a.py"]


def test_unknown_method_is_refused_with_a_suggestion():
    assert [method.name for method in select_methods(["floor", "original"])] == ["original", "floor"]
    with pytest.raises(ConfigError, match="Did you mean 'gristmill-no-rules'"):
        select_methods(["gristmill-no-rule"])
    with pytest.raises(ConfigError, match="Known: original, threads"):
        select_methods(["xyz"])


def test_missing_package_skips_the_method(monkeypatch, codebert):
    monkeypatch.setattr("gristmill.lab.bench.methods.find_spec", lambda name: None if name == "datasets" else name)
    assert skip_reason(BY_NAME["datasets"], codebert) == "datasets is not installed: pip install 'gristmill[bench]'"
    assert skip_reason(BY_NAME["original"], codebert) is None


def test_tokenizer_unsupported_by_gigatoken_skips_the_floor(codebert, source, tmp_path, monkeypatch):
    monkeypatch.setattr(benching, "LONG_RUN_SECONDS", 0.0)  # one run is enough
    assert skip_reason(BY_NAME["floor"], codebert) is None
    (tmp_path / "words.json").write_text(word_piece())
    result = bench(str(source), BenchOptions(tokenizer=str(tmp_path / "words.json"), only=["gristmill-plain", "floor"]))
    assert [method.name for method in result.methods] == ["gristmill-plain"]
    assert [one.why for one in result.skipped] == ["gigatoken does not support this tokenizer (WordPiece)"]


def test_every_gristmill_command_is_valid(job_and_setup, tmp_path):
    from gristmill.config.config import load_config

    _, setup = job_and_setup
    for method in METHODS:
        if method.module is None:
            command = method_command(method, setup, job_file=tmp_path / f"{method.name}.job.json", out=tmp_path / "out")
            assert command[1:5] == ["-P", "-m", "gristmill", "build"]
            config = load_config({"sources": ["a"], "out": "b"}, tmp_path / f"{method.name}.job.toml")
            rules = {name: value for name, value in msgspec.to_builtins(config.rules).items() if name != "languages"}
            assert rules == dict.fromkeys(rules, not method.without_rules)


@pytest.mark.parametrize("keep", ["full", "a file"])
def test_keep_folder_in_use_is_refused_before_anything_runs(keep, tmp_path, monkeypatch):
    write_tree(tmp_path, {"full/mine.txt": "mine", "a file": "mine"})
    monkeypatch.setattr(benching, "gather", None)
    with pytest.raises(OutputError):
        bench(None, BenchOptions(keep=str(tmp_path / keep), only=["floor"]))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a file", "full", "mine.txt"]


@pytest.mark.parametrize("options", [{"runs": 0}, {"sample": 0}, {"expand_to": 0}, {"workers": 0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ConfigError, match="must be at least 1"):
        bench(None, BenchOptions(**options))


def test_bench_measures_each_method_and_leaves_no_files(source, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = bench(str(source), BenchOptions(only=["original", "gristmill-plain"], runs=2, sample=3))
    assert list(tmp_path.iterdir()) == []
    assert [method.name for method in result.methods] == ["original", "gristmill-plain"]
    assert (result.corpus.files, result.corpus.source) == (len(LISTED), "repo")
    original, plain = result.methods
    assert (original.files, plain.files) == (3, len(LISTED))
    assert original.scale > 1
    assert plain.scale == 1
    for method in result.methods:
        assert method.runs == 2
        assert 0 < method.seconds_min <= method.seconds <= method.seconds_max
        assert method.peak_mb > 1
        assert method.bytes > 0
        assert list(method.phases) == list(PHASES)
    assert plain.tokens_lost == 0


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_run_starts_without_files_of_earlier_runs(method, run_in_folder, job_and_setup, tmp_path, monkeypatch):
    job, setup = job_and_setup
    shutil.copytree(run_in_folder(method.name)[0], tmp_path, dirs_exist_ok=True)
    runs = benching.MethodRuns(
        without_gpu(method), msgspec.structs.replace(job, out=str(tmp_path / "work")), setup, None
    )
    assert list(runs.out.glob("train*"))
    found = []

    def record_files_and_stop(*_, **__):
        found.extend(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
        raise StoppedError

    monkeypatch.setattr(benching, "run", record_files_and_stop)
    with pytest.raises(StoppedError):
        runs._run(Progress(), watched=False)
    allowed = {Path("work", f"{method.name}.job{ending}") for ending in (".json", ".toml")}
    assert set(found) <= allowed


def test_rebuild_is_timed_after_a_build_into_the_same_folder(job_and_setup, tmp_path, monkeypatch):
    job, setup = job_and_setup
    runs = benching.MethodRuns(BY_NAME[REBUILD], msgspec.structs.replace(job, out=str(tmp_path)), setup, None)
    had_parts = []

    def record_and_run(*arguments, **more):
        had_parts.append((runs.out / FILES).is_file() and (tmp_path / f"{REBUILD}/{REBUILD}.work/prepared").is_dir())
        return run(*arguments, **more)

    monkeypatch.setattr(benching, "run", record_and_run)
    last = runs._run(Progress(), watched=False)
    assert had_parts == [False, True]
    assert last.seconds > 0
    assert sum(method.is_rebuild for method in METHODS) == 1


def test_slower_of_two_runs_is_reported():
    assert benching._median_index([1.0, 2.0]) == 1
    assert benching._median_index([2.0, 1.0]) == 0
    assert benching._median_index([4.0, 1.0, 3.0, 2.0]) == 2


def test_output_of_a_method_is_kept_in_the_keep_folder(source, tmp_path, monkeypatch):
    monkeypatch.setattr(benching, "LONG_RUN_SECONDS", 0.0)
    bench(str(source), BenchOptions(only=["floor"], keep=str(tmp_path / "kept")))
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["floor"]
    assert (tmp_path / "kept/floor/train.jsonl").is_file()


def test_failed_bench_leaves_no_files(source, tmp_path, monkeypatch):
    monkeypatch.setattr(
        benching, "method_command", lambda *_, **__: [sys.executable, "-c", "raise SystemExit('no\\nway')"]
    )
    with pytest.raises(OutputError, match="'floor' ended with exit code 1: way"):
        bench(str(source), BenchOptions(only=["floor"], keep=str(tmp_path / "kept")))
    assert list(tmp_path.iterdir()) == []


def test_run_returns_seconds_memory_and_last_line(tmp_path):
    code = "x = bytearray(50_000_000); import time; time.sleep(0.2); print('one'); print('two')"
    result = run("m", [sys.executable, "-c", code], progress=Progress(), watched=True)
    assert result.seconds > 0.2
    assert result.peak_mb > 50
    assert result.last_line == b"two\n"
    unwatched = run("m", [sys.executable, "-c", "pass"], progress=Progress(), watched=False)
    assert unwatched.peak_mb is None


def test_memory_includes_child_processes(tmp_path):
    inner = "x = bytearray(60_000_000); import time; time.sleep(0.3)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    result = run("m", [sys.executable, "-c", code], progress=Progress(), watched=True)
    assert result.peak_mb > 60


def test_failing_process_is_a_one_line_error_with_its_last_output(tmp_path):
    with pytest.raises(OutputError) as raised:
        run("m", [sys.executable, "-c", "1 / 0"], progress=Progress(), watched=False)
    assert str(raised.value).startswith("the method 'm' ended with exit code 1: ZeroDivisionError: division by zero.")
    assert "\n" not in str(raised.value)
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(OutputError, match="by signal 9: killed, probably because memory ran out"):
        run("m", [sys.executable, "-c", code], progress=Progress(), watched=False)


def test_phases_printed_by_the_process_are_displayed(tmp_path, capsys):
    code = "import json\nfor line in ({'phase': 'scan'}, {'done': 2, 'total': 3, 'unit': 'rows'}, 5, 'x'): print(json.dumps(line))\nprint('other')"
    steps = []

    class RecordedProgress(Progress):
        def _step(self, name, total, unit):
            steps.append(super()._step(name, total, unit))
            return steps[-1]

    run("m", [sys.executable, "-c", code], progress=RecordedProgress(), watched=False)
    assert [step.name for step in steps] == ["m", "m scan"]
    assert (steps[1].done, steps[1].total, steps[1].unit) == (2, 3, "rows")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_stopped_bench_leaves_no_process(sent, tmp_path):
    inner = "import subprocess, sys, os; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(os.getpid(), p.pid, flush=True); p.wait()"
    code = (
        "import signal, sys; from pathlib import Path; from gristmill import Progress; from gristmill.lab.bench import process as running\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"  # the command line does the same
        "running._PhaseReader.read_line = lambda self, line: print(line.decode(), flush=True)\n"
        f"running.run('m', [sys.executable, '-c', {inner!r}], progress=Progress(), watched=True)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "e")]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        pids = [int(pid) for pid in re.findall(r"\d+", process.stdout.readline())]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        os.kill(process.pid, sent)
        assert "KeyboardInterrupt" in process.communicate(timeout=20)[1]
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, pids))


def is_running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_machine_record_has_cores_memory_and_versions():
    facts = this_machine()
    assert facts.cores >= 1
    assert facts.memory_gb > 0
    assert {"gristmill", "gigatoken", "tokenizers"} <= facts.versions.keys()
