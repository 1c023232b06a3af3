"""Run two revisions of gristmill alternately on the same files, and require equal data.

speed.py and cores.py use this module. Each revision is in a separate folder. The interpreter that runs the script also
runs both revisions, with the folder of the revision first on PYTHONPATH. Libraries may come from the PYTHONPATH of the
script.
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

from measure import machine_text

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))
import compare_builds  # noqa: E402 - a module in tools/

Side = compare_builds.Side
UsageError = compare_builds.UsageError
LIBRARIES = os.environ.get("PYTHONPATH", "")
REMOVED_VARIABLES = ("GRISTMILL_", "PYTHON")
"""Prefixes of environment variables that would distort the measurements.

With PYTHONDONTWRITEBYTECODE, for example, each run would compile all modules again.
"""
HAS_GIT = shutil.which("git") is not None
MAX_STDERR_CHARACTERS = 2000


class RunCost(NamedTuple):
    """Cost and output of one run."""

    cpu: float
    """CPU seconds of all processes, user and system."""
    wall: float
    """Wall seconds, including start and exit of the interpreter."""
    phases: Mapping[str, float]
    """Wall seconds by phase, from the manifest of a build."""
    data: Mapping[str, str]
    """Digests of the data, which must be equal on both sides. See `data_digests`."""


class Pair(NamedTuple):
    before: RunCost
    after: RunCost


Measurement = Callable[[Side], RunCost]
"""Function that runs a command with one of the two revisions and returns its cost."""


def add_options(parser: argparse.ArgumentParser, parts: Mapping[str, object]) -> None:
    parser.add_argument("before", nargs="?", metavar="BEFORE", help="a git revision")
    parser.add_argument("after", nargs="?", metavar="AFTER", help="a later git revision (default: the working tree)")
    parser.add_argument("--before-tree", type=Path, metavar="DIR", help="a source tree, instead of BEFORE")
    parser.add_argument("--after-tree", type=Path, metavar="DIR", help="a source tree, instead of AFTER")
    parser.add_argument("--corpus", type=Path, metavar="DIR", required=True, help="source files of the builds")
    parser.add_argument(
        "--runs", type=int, default=5, metavar="N", help="runs of each measurement (default: %(default)s)"
    )
    parser.add_argument("--only", action="append", choices=list(parts), help="measure only this part; repeatable")


def command_text(script: str, given: argparse.Namespace) -> str:
    """Return the command that the page shows, without options that depend on the machine."""
    return f"`python benchmarks/{script} --runs {given.runs}{''.join(f' --only {part}' for part in given.only or ())}`"


class Setting(NamedTuple):
    """The two revisions, the corpus, and the number of runs of a script."""

    sides: tuple[Side, Side]
    corpus: Path
    runs: int
    folder: Path
    """Folder for temporary files. It is removed at the end."""


@contextmanager
def open_setting(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Iterator[Setting]:
    """Copy both revisions into a temporary folder, and print the first paragraphs of the page."""
    try:
        if given.before is None and given.before_tree is None:
            raise UsageError("BEFORE is missing. Name a git revision, or a folder with --before-tree.")
        if given.runs < 1:
            raise UsageError(f"--runs must be 1 or more, got {given.runs}.")
        corpus = given.corpus.resolve()
        if not files_in(corpus):
            raise UsageError(f"--corpus: {given.corpus} contains no files. Make the corpus with benchmarks/gather.py.")
        for variable in [name for name in os.environ if name.startswith(REMOVED_VARIABLES)]:
            del os.environ[variable]
        with tempfile.TemporaryDirectory(prefix="gristmill-speed-") as name:
            folder = Path(name).resolve()
            before = export_side("before", given.before, given.before_tree, folder)
            after = export_side("after", given.after, given.after_tree, folder)
            labels = [revision_label(given.before, given.before_tree), revision_label(given.after, given.after_tree)]
            print(f"{machine_text('gigatoken', 'numpy')}.\n")
            print(f"Before: {labels[0]}. After: {labels[1]}. The corpus: {amount_text(corpus)}.")
            print(
                f"The two revisions run alternately. Values are minima of {given.runs} runs. Both revisions wrote the "
                "same bytes into the data files.\n"
            )
            yield Setting((before, after), corpus, given.runs, folder)
    except UsageError as error:
        parser.error(str(error))


def export_side(name: str, revision: str | None, tree: Path | None, folder: Path) -> Side:
    results = folder / name
    results.mkdir()
    if tree is None:
        if revision is not None and not HAS_GIT:
            raise UsageError(f"git is not installed, so {revision!r} cannot be read. Use --{name}-tree.")
        source = compare_builds.extract(revision, results / "code")
    else:
        if not (tree / "src/gristmill").is_dir():
            raise UsageError(f"--{name}-tree: {tree} does not contain src/gristmill. Name the root of a source tree.")
        source = results / "code/src"
        shutil.copytree(tree / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    side = Side(name, source, results)
    side.check_package()
    return side


def revision_label(revision: str | None, tree: Path | None) -> str:
    if tree is not None:
        return tree.resolve().name
    if not HAS_GIT:
        return "the working tree"
    command = ["git", "rev-parse", "--short", revision or "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return commit if revision is not None else f"the working tree on {commit or 'no commit'}"


def python(side: Side, *arguments: str) -> list[str]:
    """Return a command that runs Python with the gristmill of this side."""
    path = os.pathsep.join(filter(None, (str(side.source), LIBRARIES)))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-P", *arguments]


def build_command(side: Side, source: Path, out: Path, options: Sequence[str] = ()) -> list[str]:
    return python(side, "-m", "gristmill", "build", str(source), "--out", str(out), "--quiet", *options)


def cold_build(source: Path, *options: str) -> Measurement:
    """Return a function that builds from scratch and removes the dataset afterwards."""

    def build(side: Side) -> RunCost:
        out = side.results / "dataset"
        try:
            return run(build_command(side, source, out, options), out)
        finally:
            remove(out)

    return build


def run(command: Sequence[str], out: Path) -> RunCost:
    """Run the command and return its cost and the digests of the data files in `out`."""
    with tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            message = errors.read().decode(errors="replace")[-MAX_STDERR_CHARACTERS:]
            raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}\n{message}")
    manifest = out / "manifest.json"
    phases = json.loads(manifest.read_bytes())["run"]["seconds"] if manifest.is_file() else {}
    return RunCost(used.ru_utime + used.ru_stime, wall, phases, data_digests(out))


def data_digests(out: Path) -> dict[str, str]:
    """Return the SHA-256 of each data file and of files.jsonl, and as "content" the content digest in the manifest.

    Parquet and Arrow files are left out, because two revisions may divide rows into files differently. The content
    digest covers the rows in these files.
    """
    digests = {}
    manifest = out / "manifest.json"
    if manifest.is_file():
        digests["content"] = json.loads(manifest.read_bytes())["content_sha256"]
    for path in files_in(out):
        is_data = path.name not in compare_builds.DESCRIPTION_FILES and path.parent.name not in {"parquet", "arrow"}
        if is_data:
            with path.open("rb") as file:
                digests[str(path.relative_to(out))] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def remove(out: Path) -> None:
    for folder in (out, out.with_name(f"{out.name}.work")):
        shutil.rmtree(folder, ignore_errors=True)


def in_turns(cases: Mapping[str, Measurement], setting: Setting) -> dict[str, Pair]:
    """Measure each case on both sides, and return the minima. Exit if the two sides write different data.

    The side that runs first alternates.
    """
    turns: dict[str, list[Pair]] = {name: [] for name in cases}
    for turn in range(setting.runs):
        for name, measure in cases.items():
            costs = {side.name: measure(side) for side in setting.sides[:: -1 if turn % 2 else 1]}
            pair = Pair(costs["before"], costs["after"])
            seconds = ", ".join(f"{one.cpu:.2f} s CPU {one.wall:.2f} s" for one in pair)
            print(f"  {turn + 1}: {name}: {seconds}", file=sys.stderr, flush=True)
            refuse_different(name, pair.before.data, pair.after.data)
            turns[name].append(pair)
    return {name: Pair(*(minima(runs) for runs in zip(*pairs, strict=True))) for name, pairs in turns.items()}


def minima(runs: Sequence[RunCost]) -> RunCost:
    """Return the fastest run by wall time, with its CPU seconds replaced by the minimum over all runs."""
    return min(runs, key=lambda one: one.wall)._replace(cpu=min(one.cpu for one in runs))


def refuse_different(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Exit if the two sides wrote different data, or if the first side wrote no data."""
    if not before:
        raise SystemExit(f"{name}: the build wrote no data files")
    differ = sorted(file for file, _ in before.items() ^ after.items())
    if differ:
        raise SystemExit(f"{name}: {differ[0]} differs between the two datasets")


def amount_text(folder: Path) -> str:
    paths = files_in(folder)
    return f"{len(paths):,} files, {sum(path.stat().st_size for path in paths) / 1e6:,.1f} MB"


def files_in(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]


def ratio(before: float, after: float) -> str:
    """Return the ratio `before` / `after` as text. More than 1 means that `after` is faster or smaller."""
    return f"{before / after:.2f}" if after else "-"
