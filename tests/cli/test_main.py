"""Tests of the command line. Commands run in this process unless a test needs a separate process."""

import fcntl
import json
import os
import pty
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import msgspec
import pytest

import gristmill
from gristmill import FimConfig, RulesConfig, TablesConfig
from gristmill.cli import main
from gristmill.cli.parsers import Parser, parse_whole_number
from gristmill.config.options import all_options
from support.builds import called, messages, refusal, running
from support.source_trees import ROOT, write_tree

COMMAND = str(Path(sys.executable).with_name("gristmill"))


def run(*arguments, **options):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def in_a_shell(line, *arguments):
    """Run a shell line in which {} stands for the gristmill command and its arguments."""
    words = ["bash", "-o", "pipefail", "-c", line.format(shlex.join([COMMAND, *map(str, arguments)]))]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture
def repo(tmp_path):
    return write_tree(tmp_path / "repo", {f"m{index}.py": f"x = {index}\n" * (index + 1) for index in range(40)})


def test_version_and_help():
    assert run("--version").stdout == f"gristmill {gristmill.__version__}\n"
    done = run("--help")
    assert done.returncode == 0
    assert "build" in done.stdout


def test_help_lists_every_option(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = called("build", "--help").stdout
    options = [option.flag for option in all_options()]
    assert len(options) >= 20
    for option in (*options, "--config", "--quiet", "--json"):
        assert option in text
    assert "(default: 512)" in text
    assert "(default: half of --window with --preset mlm; 0 with other presets, or if rows are packed)" in text


def test_build_prints_a_summary(repo, tmp_path):
    done = called("build", repo, "--out", tmp_path / "out")
    assert done.returncode == 0
    for text in (
        "train",
        "validation",
        "40 found, 40 kept, 0 dropped",
        "tokens",
        "KB of jsonl in 3 files",
        "seconds",
        "prepare",
    ):
        assert text in done.stdout
    assert messages(done.stderr) == []


def test_json_summary_is_parsable(repo, tmp_path):
    done = called("build", repo, "--out", tmp_path / "out", "--json")
    summary = json.loads(done.stdout)
    assert summary["counts"]["kept"] == 40
    assert summary["splits"]["train"]["windows"] > 0
    assert messages(done.stderr) == []


def test_quiet_prints_nothing(repo, tmp_path):
    done = run("build", repo, "--out", tmp_path / "out", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_quiet_prints_results_but_no_progress_or_notes(repo, tmp_path):
    dataset, other = tmp_path / "out", tmp_path / "other"
    gristmill.build(gristmill.Config(sources=[str(repo)], out=str(dataset)))
    gristmill.build(gristmill.Config(sources=[str(repo / "m1.py")], out=str(other)))
    for words, answer in (
        (("plan", repo / "m1.py"), "gristmill build "),
        (("plan", repo / "m1.py", "--json"), '"command":'),
        (("show", dataset), "m"),
        (("explain", dataset, "m1.py"), "m1.py"),
        (("explain", dataset, "m1.py", "--json"), "m1.py"),
        (("diff", dataset, other), "repo/m0.py"),
        (("tokenizer", "show", repo), "codebert"),
    ):
        done = called(*words, "--quiet")
        assert answer in done.stdout, words
        assert done.stderr == "", words
    assert called("check", dataset, "--quiet").stdout == ""
    (dataset / "train.jsonl").write_text("{}\n")
    failed = called("check", dataset, "--quiet")
    assert failed.returncode == 1
    assert "train.jsonl" in failed.stdout


def test_notes_are_printed_to_stderr(tmp_path):
    done = called("build", write_tree(tmp_path / "repo", {"a.py": "x"}), "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "gristmill: note: validation is empty" in done.stderr


def test_every_option_reaches_its_setting(repo, tmp_path):
    earlier, benchmark = tmp_path / "earlier", tmp_path / "benchmark.txt"
    benchmark.write_text("def solve(x):\n    return x\n")
    called("build", repo, "--out", earlier, "--near-duplicates", "keep")
    done = called(
        "build", repo, "--out", tmp_path / "out", "--window", 64, "--overlap", 16, "--tail", "shift", "--pad", "--with-text",
        "--split", "80/10/10", "--splits", earlier / "files.jsonl", "--seed", 5, "--workers", 2, "--batch-bytes", 100,
        "--compress", "zstd", "--include", "*.py", "--exclude", "m1.py", "--language", "python", "--max-file-bytes", 200,
        "--cache-dir", tmp_path / "cache", "--tokenizer", "codebert", "--split-by", "directory", "--decontaminate", "drop",
        "--decontaminate-against", benchmark, "--near-duplicates", "keep", "--secrets", "drop", "--redact-emails",
        "--license-allow", "mit,NOASSERTION", "--license-allow", "Apache-2.0",
        "--weights", "code", "--weight", "b/**=0.5", "--weight", "a/**=2", "--target-windows", 30, "--max-epochs", 3,
        "--sample-seed", 4, "--variants", "noise,rename=0.25", "--variant-seed", 6,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["settings"] == {
        "preset": "mlm",
        "window": {
            "length": 64,
            "overlap": 16,
            "tail": "shift",
            "min_fresh": 32,
            "pack": "none",
            "repo_order": "path",
            "repo_order_seed": 0,
            "special_tokens": "template",
            "end_token": None,
        },
        "output": {
            "rows": "windows",
            "control_spellings": "respell",
            "pad": True,
            "with_text": True,
            "compress": "zstd",
            "shard_bytes": 512 << 20,
        },
        "split": {"shares": "80/10/10", "seed": 5, "by": "directory", "decontaminate": "drop"},
        "scan": {
            "include": ["*.py"],
            "exclude": ["m1.py"],
            "default_excludes": True,
            "languages": ["python"],
            "max_file_bytes": 200,
            "notebooks": "cells",
        },
        "tables": msgspec.to_builtins(TablesConfig()),
        "rules": msgspec.to_builtins(RulesConfig()),
        "secrets": {"action": "drop", "emails": True},
        "licenses": {"allow": ["mit,NOASSERTION", "Apache-2.0"]},
        "duplicates": {"near": "keep"},
        "sampling": {
            "max_windows": None,
            "preset": "code",
            "weights": [["b/**", 0.5], ["a/**", 2.0]],
            "target_windows": 30,
            "max_epochs": 3.0,
            "weights_only": False,
            "seed": 4,
        },
        "fim": msgspec.to_builtins(FimConfig(rate=0.0)),
        "variants": {
            "rates": {"rename": 0.25, "noise": 0.5},
            "seed": 6,
            "noise_mask": 0.15,
            "noise_span": 3.0,
            "noise_delete": 0.05,
        },
        "rewrite": {"model": None, "way": "paraphrase"},
    }
    assert manifest["decontamination"]["against"][0]["name"] == "benchmark.txt"
    assert manifest["run"]["workers"] == 2
    assert manifest["previous_splits"]["num_files_kept_in_place"] > 20
    assert manifest["counts"]["dropped_by_reason"] == {"excluded_by_user": 1, "too_large": 12}
    done = called("build", repo, "--out", tmp_path / "texts", "--rows", "documents", "--control-spellings", "drop")
    assert done.returncode == 0, done.stderr
    output = json.loads((tmp_path / "texts/manifest.json").read_text())["settings"]["output"]
    assert (output["rows"], output["control_spellings"]) == ("documents", "drop")


def test_settings_are_read_from_a_file(repo, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "gristmill.toml").write_text('sources = ["repo"]\nout = "out"\n[window]\nlength = 32\noverlap = 0\n')
    assert called("build", "--config", tmp_path / "gristmill.toml", "--overlap", "8").returncode == 0
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (manifest["settings"]["window"]["length"], manifest["settings"]["window"]["overlap"]) == (32, 8)


@pytest.mark.parametrize(
    ("options", "overlap"),
    [("--window 256", 128), ("--window 101", 50), ("--window 5", 2), ("--window 4 --overlap 1", 1), ("--window 3 --overlap 0", 0)],
)  # fmt: skip
def test_overlap_defaults_to_half_of_any_window(repo, tmp_path, options, overlap):
    assert called("build", repo, "--out", tmp_path / "out", *options.split()).returncode == 0
    assert json.loads((tmp_path / "out/manifest.json").read_text())["settings"]["window"]["overlap"] == overlap
    assert gristmill.check(tmp_path / "out").ok
    planned = json.loads(called("plan", repo, "--out", tmp_path / "none", *options.split(), "--json").stdout)
    windows = sum(len(rows) for rows in gristmill.open_dataset(tmp_path / "out").values())
    assert {one["overlap"]: one["windows"] for one in planned["overlaps"]}[overlap] == windows


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["build"], 2, "no source is given"),
        (["build", "REPO"], 2, "no output folder is given"),
        (["build", "REPO/none", "--out", "OUT"], 3, "does not exist. Check the path."),
        (["build", "EMPTY", "--out", "OUT"], 3, "there are no files in"),
        (["build", "REPO", "--out", "REPO"], 4, "is not a dataset: it has no manifest.json. Name a new folder"),
        (
            ["build", "REPO", "--out", "OUT", "--overlap", "512"],
            2,
            "window.overlap must be smaller than window.length - 2",
        ),
        (["build", "REPO", "--out", "OUT", "--window", "4"], 2, "got 2. Try --overlap 1."),
        (["build", "REPO", "--out", "OUT", "--window", "3"], 2, "got 1. Try --overlap 0."),
        (
            ["build", "REPO", "--out", "OUT", "--window", "2"],
            2,
            "larger than the number of special tokens in each window (2), got 2",
        ),
        (["build", "REPO", "--out", "OUT", "--split", "85/10/10"], 2, "add up to 100"),
        (["build", "REPO", "--out", "OUT", "--workers", "many"], 2, "--workers takes 'auto' or a number"),
        (["build", "REPO", "--out", "OUT", "--workers", "0"], 2, "run.workers must be at least 1"),
        (
            ["build", "REPO", "--out", "OUT", "--window", "x"],
            2,
            "--window takes a whole number, like 20000 or 2e4, got 'x'.",
        ),
        (["build", "REPO", "--out", "OUT", "--max-windows", "5k"], 2, "got '5k'. Try 5000."),
        (["build", "REPO", "--out", "OUT", "--tail", "x"], 2, "--tail must be one of keep, shift, drop, got 'x'."),
        (["build", "REPO", "--out", "OUT", "--device", "gpu"], 2, "--device must be one of cpu, cuda, got 'gpu'."),
        (["build", "REPO", "--out", "OUT", "--nope"], 2, "unknown option '--nope'. Try 'gristmill build --help'."),
        (["build", "REPO", "--out", "OUT", "--max-window=5"], 2, "'--max-window=5'. Did you mean '--max-windows'?"),
        (["build", "REPO", "--out"], 2, "--out needs a value: --out DIR"),
        (["build", "REPO", "--quiet=yes"], 2, "--quiet takes no value, got 'yes'."),
        (["check"], 2, "check needs DIR. Usage: gristmill check DIR"),
        (["diff", "OUT"], 2, "diff needs NEW. Usage: gristmill diff OLD NEW"),
        (["train", "OUT"], 2, "train needs --out. Usage: gristmill train DIR --out RUN"),
        (["check", "OUT", "more"], 2, "check does not take the argument 'more'. Usage: gristmill check DIR"),
        (["push", "OUT", "a/b", "--public", "--private"], 2, "--private and --public contradict each other"),
        (["build", "REPO", "--out", "OUT", "--language", "pyton"], 2, "Did you mean 'python'"),
        (["build", "REPO", "--out", "OUT", "--tokenizer", "none.json"], 3, "there is no tokenizer"),
        (["build", "REPO", "--out", "OUT", "--tokenizer", "REPO/m0.py"], 3, "damaged"),
        (["build", "REPO", "--out", "OUT", "--splits", "none"], 3, "cannot read the splits of the earlier build"),
        (["build", "REPO", "--out", "OUT", "--splits", "x", "--fresh-splits"], 2, "contradict"),
        (["build", "REPO", "--out", "OUT", "--config", "TOML"], 2, "Did you mean 'window.overlap'"),
        (["build", "REPO", "--out", "OUT", "--exclude", "!"], 2, "--exclude"),
        (["build", "REPO", "--out", "OUT", "--exclude", "[[:foo:]]"], 2, "--exclude '[[:foo:]]'"),
        (["build", "REPO", "--out", "OUT", "--include", "[[:alpha:]"], 2, "--include '[[:alpha:]'"),
        (["build", "REPO", "--out", "OUT", "--weight", "[[:foo:]]=2"], 2, "--weight '[[:foo:]]'"),
        (["plan", "REPO", "--exclude", "a\\"], 2, "--exclude"),
        (["build", "REPO", "--out", "OUT", "--language", "cobol"], 2, "unknown language 'cobol'. Known: "),
        (["nonsense"], 2, "unknown command 'nonsense'. Try 'gristmill --help'."),
        (["biuld"], 2, "unknown command 'biuld'. Did you mean 'build'?"),
        (["--verison"], 2, "unknown option '--verison'. Did you mean '--version'?"),
    ],
)
def test_bad_input_is_refused_in_one_line(repo, tmp_path, arguments, code, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.toml").write_text("[window]\noverlapp = 1\n")
    paths = {"REPO": repo, "OUT": tmp_path / "out", "EMPTY": tmp_path / "empty", "TOML": tmp_path / "wrong.toml"}
    given = []
    for word in arguments:
        for name, path in paths.items():
            word = word.replace(name, str(path))  # noqa: PLW2901
        given.append(word)
    done = called(*given)
    assert done.returncode == code, done.stderr
    (line,) = messages(done.stderr)
    assert line.startswith("gristmill: ")
    assert words in line
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.work").exists()


def test_bad_value_of_any_option_is_refused_in_one_line(capsys, monkeypatch):
    """Pass an invalid value to every option of every command that takes a number or a choice."""
    parsers = []
    monkeypatch.setattr(Parser, "print_help", lambda self: parsers.append(self))  # noqa: PLW0108 - binds self
    for name in (*main.COMMANDS, "tokenizer train", "tokenizer show"):
        assert main.run([*name.split(), "--help"]) == 0
    num_tried = 0
    for parser in parsers:
        command = parser.prog.split()[1:]
        given = ["DIR", "--out", "x"] if command == ["train"] else ["A"]
        for action in parser._actions:
            if not action.option_strings or not (action.choices or action.type in {int, float, parse_whole_number}):
                continue
            flag = action.option_strings[-1] if action.option_strings[0].count("-") == 1 else action.option_strings[0]
            assert main.run([*command, *given, flag, "5k"]) == 2
            line = capsys.readouterr().err
            kind = "must be one of " if action.choices else "takes a "
            assert line.startswith(f"gristmill: {flag} {kind}"), line
            assert "'5k'" in line
            assert line.count("\n") == 1
            num_tried += 1
    assert num_tried > 50


def test_unexpected_exception_is_reported_as_a_bug(repo, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gristmill, "build", lambda *_: 1 / 0)
    assert main.run(["build", str(repo), "--out", str(tmp_path / "out")]) == 70
    assert "this is a bug in gristmill" in capsys.readouterr().err


def test_unexpected_os_error_names_the_file(repo, tmp_path):
    code = "import gristmill; from gristmill.cli import main as cli; gristmill.build = lambda *_: open('/nowhere'); cli.main()"
    words = [sys.executable, "-c", code, "build", str(repo), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refusal(done) == (3, "cannot read or write '/nowhere': No such file or directory.")


def test_interrupt_exits_with_130(repo, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(gristmill, "build", interrupted)
    assert main.run(["build", str(repo), "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "gristmill: interrupted. No incomplete output was left behind.\n"


def test_closed_pipe_is_not_an_error(repo, tmp_path):
    done = in_a_shell("{} | true", "build", repo, "--out", tmp_path / "out")
    assert (done.returncode, messages(done.stderr)) == (0, [])
    assert (tmp_path / "out/manifest.json").exists()


def test_full_output_device_is_reported(repo, tmp_path):
    done = in_a_shell("{} > /dev/full", "build", repo, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert messages(done.stderr)[0].startswith("gristmill: cannot write the output")
    assert (tmp_path / "out/manifest.json").exists()


def test_arguments_after_two_dashes_are_sources(tmp_path, monkeypatch):
    root = write_tree(tmp_path / "repo", {"-odd.py": "x", "--out": "y"})
    monkeypatch.chdir(root)
    done = called("build", "--out", tmp_path / "out", "--quiet", "--", "-odd.py", "--out")
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out/files.jsonl").read_text().splitlines()) == 2


def test_module_runs_with_python_m(repo, tmp_path):
    command = [sys.executable, "-m", "gristmill", "build", str(repo), "--out", str(tmp_path / "out"), "--json"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["counts"]["kept"] == 40


def test_terminal_gets_progress_bars(repo, tmp_path):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with running([COMMAND, "build", repo, "--out", tmp_path / "out"], stdout=slave, stderr=slave) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            output += part
        process.wait()
    os.close(master)
    assert process.returncode == 0
    assert "prepare" in output.decode()
    assert "files/s" in output.decode()


def test_control_characters_in_names_are_not_printed(tmp_path):
    root = write_tree(tmp_path / "repo", {"\x1b]0;title\x07.bin": b"\0"})
    done = run("build", root, "--out", tmp_path / "out")
    assert done.returncode == 3
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "settings", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"LC_ALL": "C.UTF-8"}]
)
def test_build_works_in_any_locale(tmp_path, settings):
    root = write_tree(tmp_path / "répo", {"é.py": "x", "日本.py": "y"})
    (root / os.fsdecode(b"caf\xe9.py")).write_text("z")
    done = run("build", root, "--out", tmp_path / "out", env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    paths = [
        json.loads(line)["path"] for line in (tmp_path / "out/files.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert paths == ["caf\\xe9.py", "é.py", "日本.py"]


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_build_works_with_closed_streams(repo, tmp_path, closed):
    done = in_a_shell(f"{{}} {closed}", "build", repo, "--out", tmp_path / "out")
    assert done.returncode == 0
    assert (tmp_path / "out/manifest.json").exists()


def test_examples_run(repo, tmp_path):
    examples = ROOT / "examples"
    script = [sys.executable, str(examples / "create_training_dataset.py"), str(repo), str(tmp_path / "out")]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert "sequences from" in done.stdout
    assert called("build", repo, "--out", tmp_path / "out", "--config", examples / "recommended.toml").returncode == 0


@pytest.mark.parametrize(
    ("vendor", "family", "is_slow"),
    [("AuthenticAMD", 25, True), ("AuthenticAMD", 26, False), ("GenuineIntel", 6, False)],
)
def test_processors_with_slow_avx512_sorts_are_recognized(vendor, family, is_slow):
    cpuinfo = f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\n"
    assert bool(main.ZEN_3_AND_4.search(cpuinfo.encode())) == is_slow
