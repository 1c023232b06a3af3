"""What speed.py and cores.py share: gristmill of two revisions, run in turns on the same files, and equal bytes.

Each revision lies in a folder of its own and is run by this interpreter, with that folder first on PYTHONPATH.
Libraries may come from the PYTHONPATH that the script was given.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import machine

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import compare_builds  # noqa: E402 - beside this folder

Side = compare_builds.Side
UsageError = compare_builds.UsageError
LIBRARIES = os.environ.get("PYTHONPATH", "")
OF_THE_USER = ("GRISTMILL_", "PYTHON")
"""Variables that change what is measured: without compiled modules, each start would compile them."""
HAS_GIT = shutil.which("git") is not None
STDERR_SHOWN = 2000


class Ran(NamedTuple):
    cpu: float
    """Seconds of all its processes, user and system."""
    wall: float
    """Seconds from the start of the interpreter to its end."""
    phases: Mapping[str, float]
    """Wall seconds of a build, from its manifest."""
    data: Mapping[str, str]
    """SHA-256 of each data file and of files.jsonl."""


class Pair(NamedTuple):
    before: Ran
    after: Ran


Way = Callable[[Side], Ran]
"""What is measured, with one of the two revisions."""


def add_options(parser: argparse.ArgumentParser, parts: Mapping[str, object]) -> None:
    parser.add_argument("before", nargs="?", metavar="BEFORE", help="a git revision")
    parser.add_argument("after", nargs="?", metavar="AFTER", help="another one; default: the working tree")
    parser.add_argument("--before-tree", type=Path, metavar="DIR", help="a source tree in place of BEFORE")
    parser.add_argument("--after-tree", type=Path, metavar="DIR", help="a source tree in place of AFTER")
    parser.add_argument("--corpus", type=Path, metavar="DIR", required=True, help="the files to build from")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="of each; default: %(default)s")
    parser.add_argument("--only", action="append", choices=list(parts), help="this part; repeatable")


def command_of(script: str, given: argparse.Namespace) -> str:
    """The command for the page, without what lies elsewhere on another machine."""
    return f"`python benchmarks/{script} --runs {given.runs}{''.join(f' --only {part}' for part in given.only or ())}`"


class Setting(NamedTuple):
    """What a script measures with."""

    sides: tuple[Side, Side]
    corpus: Path
    runs: int
    folder: Path
    """For what is made on the way; removed in the end."""


@contextmanager
def setting_of(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Iterator[Setting]:
    """Export both revisions and print what is measured."""
    try:
        if given.before is None and given.before_tree is None:
            raise UsageError("name a git revision, or a folder with --before-tree")
        if given.runs < 1:
            raise UsageError(f"--runs must be 1 or more, got {given.runs}")
        corpus = given.corpus.resolve()
        if not files_in(corpus):
            raise UsageError(f"--corpus: there are no files in {given.corpus}")
        for variable in [name for name in os.environ if name.startswith(OF_THE_USER)]:
            del os.environ[variable]
        with tempfile.TemporaryDirectory(prefix="gristmill-speed-") as name:
            folder = Path(name).resolve()
            before = side_of("before", given.before, given.before_tree, folder)
            after = side_of("after", given.after, given.after_tree, folder)
            labels = [label_of(given.before, given.before_tree), label_of(given.after, given.after_tree)]
            print(f"{machine('gigatoken', 'numpy')}.\n")
            print(f"Before: {labels[0]}. After: {labels[1]}. The corpus: {amount(corpus)}.")
            print(f"Builds of both take turns: minima of {given.runs}. All data files are equal, byte by byte.\n")
            yield Setting((before, after), corpus, given.runs, folder)
    except UsageError as error:
        parser.error(str(error))


def side_of(name: str, revision: str | None, tree: Path | None, folder: Path) -> Side:
    results = folder / name
    results.mkdir()
    if tree is None:
        if revision is not None and not HAS_GIT:
            raise UsageError(f"there is no git to read {revision!r} with: give --{name}-tree")
        source = compare_builds.extract(revision, results / "code")
    else:
        if not (tree / "src/gristmill").is_dir():
            raise UsageError(f"--{name}-tree: there is no src/gristmill in {tree}")
        source = results / "code/src"
        shutil.copytree(tree / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    side = Side(name, source, results)
    side.check_package()
    return side


def label_of(revision: str | None, tree: Path | None) -> str:
    if tree is not None:
        return tree.resolve().name
    if not HAS_GIT:
        return "the working tree"
    command = ["git", "rev-parse", "--short", revision or "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return commit if revision is not None else f"the working tree on {commit or 'no commit'}"


def python(side: Side, *words: str) -> list[str]:
    """Command that runs Python with this side's gristmill."""
    path = os.pathsep.join(filter(None, (str(side.source), LIBRARIES)))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-P", *words]


def build_command(side: Side, source: Path, out: Path, options: Sequence[str] = ()) -> list[str]:
    return python(side, "-m", "gristmill", "build", str(source), "--out", str(out), "--quiet", *options)


def build_of(source: Path, *options: str) -> Way:
    """A build from nothing, of which nothing stays."""

    def build(side: Side) -> Ran:
        out = side.results / "dataset"
        try:
            return run(build_command(side, source, out, options), out)
        finally:
            remove(out)

    return build


def run(command: Sequence[str], out: Path) -> Ran:
    """Cost of the command, and the data files that are in `out` after it."""
    with tempfile.TemporaryFile() as words:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=words)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            words.seek(0)
            said = words.read().decode(errors="replace")[-STDERR_SHOWN:]
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{said}")
    manifest = out / "manifest.json"
    phases = json.loads(manifest.read_bytes())["run"]["seconds"] if manifest.is_file() else {}
    return Ran(used.ru_utime + used.ru_stime, wall, phases, data_digests(out))


def data_digests(out: Path) -> dict[str, str]:
    """Of each data file. Parquet and Arrow may be cut into other files: of these the content counts."""
    digests = {}
    manifest = out / "manifest.json"
    if manifest.is_file():
        digests["content"] = json.loads(manifest.read_bytes())["content_sha256"]
    for path in files_in(out):
        is_data = path.name not in compare_builds.FACTS and path.parent.name not in {"parquet", "arrow"}
        if is_data:
            with path.open("rb") as file:
                digests[str(path.relative_to(out))] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def remove(out: Path) -> None:
    for folder in (out, out.with_name(f"{out.name}.work")):
        shutil.rmtree(folder, ignore_errors=True)


def in_turns(ways: Mapping[str, Way], setting: Setting) -> dict[str, Pair]:
    """Minima of each way. The side that goes first changes with each turn, and both must write the same data."""
    turns: dict[str, list[Pair]] = {name: [] for name in ways}
    for turn in range(setting.runs):
        for name, way in ways.items():
            ran = {side.name: way(side) for side in setting.sides[:: -1 if turn % 2 else 1]}
            pair = Pair(ran["before"], ran["after"])
            costs = ", ".join(f"{one.cpu:.2f} s CPU {one.wall:.2f} s" for one in pair)
            print(f"  {turn + 1}: {name}: {costs}", file=sys.stderr, flush=True)
            refuse_different(name, pair.before.data, pair.after.data)
            turns[name].append(pair)
    return {name: Pair(*(least(ran) for ran in zip(*pairs, strict=True))) for name, pairs in turns.items()}


def least(ran: Sequence[Ran]) -> Ran:
    """The fewest CPU seconds, and the rest of the run with the fewest wall seconds."""
    return min(ran, key=lambda one: one.wall)._replace(cpu=min(one.cpu for one in ran))


def refuse_different(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    if not before:
        raise SystemExit(f"{name}: no data files were written")
    differ = sorted(file for file, _ in before.items() ^ after.items())
    if differ:
        raise SystemExit(f"{name}: {differ[0]} is not the same in both datasets")


def amount(folder: Path) -> str:
    paths = files_in(folder)
    return f"{len(paths):,} files, {sum(path.stat().st_size for path in paths) / 1e6:,.1f} MB"


def files_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def ratio(before: float, after: float) -> str:
    """Times as fast, or as small."""
    return f"{before / after:.2f}" if after else "-"
