"""Compare two revisions: CPU seconds, wall seconds and peak memory of builds, and the distance to a lower bound.

    python benchmarks/gather.py all --files 32000 --bytes 1e8 --pack corpus.tar.xz
    python -m tarfile -e corpus.tar.xz corpus                     # 20,000 files
    python benchmarks/speed.py BEFORE [AFTER] --corpus corpus     # prints the contents of benchmarks/speed.md
    python benchmarks/speed.py HEAD~20 --corpus corpus --only build --only start --runs 9

BEFORE and AFTER are git revisions. AFTER defaults to the working tree. The interpreter that runs this script also runs
the two revisions, alternately, each from a separate folder. Both revisions must write the same bytes into the data
files and files.jsonl. --only selects one of these parts:

build      a build of all files in one process
floor      a build of 2,000 files with two workers, and the method `floor` of `gristmill bench` on the same files. The
           floor is a lower bound: a script that reads files, tokenizes and writes rows, but applies no rules, searches
           for no duplicates and makes no splits
tokenizer  builds of 2,300 files with two workers, with the tokenizer of Qwen 2.5 and with the bundled tokenizer
start      a build of ten small files with default settings
memory     peak memory of all processes, in one build of all files per revision with default settings. This build is
           not timed, because sampling memory takes time
rebuild    rebuilds of all files in one process, without changes, and with one line added to 1 % of the files
"""

import argparse
import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from measure import measure_peak_mb
from revisions import (
    Pair,
    RunCost,
    Setting,
    Side,
    UsageError,
    add_options,
    build_command,
    cold_build,
    command_text,
    data_digests,
    files_in,
    in_turns,
    open_setting,
    python,
    ratio,
    refuse_different,
    remove,
    run,
)

from gristmill import Progress, load_tokenizer
from gristmill.lab.bench.bench_files import gather
from gristmill.lab.bench.job import Job
from gristmill.views.table import Cell, Table, markdown_table

QWEN = Path(sys.prefix, "tokenizers/qwen2_5-3.7.2.json")
"""File to which `make test` downloads the tokenizer of Qwen 2.5."""
FLOOR_FILES = 2000
TOKENIZER_FILES = 2300
SMALL_FILES = 10
SMALL_BYTES = range(200, 4000)
CHANGED_ONE_IN = 100
ONE_WORKER = ("--workers", "1")
TWO_WORKERS = ("--workers", "2")


class Line(NamedTuple):
    """A row of the table."""

    label: str
    unit: str
    before: float
    after: float

    def cells(self) -> list[Cell]:
        digits = 0 if self.unit == "MB" else 2
        numbers = [f"{number:,.{digits}f}" for number in (self.before, self.after)]
        return [self.label, self.unit, *numbers, ratio(self.before, self.after)]


def cost_lines(label: str, pair: Pair) -> list[Line]:
    cpu = Line(label, "CPU s", pair.before.cpu, pair.after.cpu)
    return [cpu, Line(label, "wall s", pair.before.wall, pair.after.wall)]


def ratio_lines(label: str, pair: Pair, baseline: Pair) -> list[Line]:
    """Return the ratios `pair` / `baseline` of CPU time and of wall time, for each revision."""
    (cpu, wall), (base_cpu, base_wall) = cost_lines(label, pair), cost_lines(label, baseline)
    return [
        Line(label, unit, one.before / other.before, one.after / other.after)
        for unit, one, other in (("CPU", cpu, base_cpu), ("wall", wall, base_wall))
    ]


def measure_build(setting: Setting) -> list[Line]:
    pairs = in_turns({"build": cold_build(setting.corpus, *ONE_WORKER)}, setting)
    return cost_lines("all files, one process", pairs["build"])


def measure_floor(setting: Setting) -> list[Line]:
    """Measure a build and the floor on files that the floor can read: UTF-8, with at least one token."""
    source = copy_sample(setting, "floor", FLOOR_FILES)
    tokenizer = load_tokenizer()
    found = gather(str(source), tokenizer, Progress())
    for path in found.withheld:
        (source / path).unlink()
    definition = tokenizer.definition
    tokenizer_file = setting.folder / "tokenizer.json"
    tokenizer_file.write_bytes(definition.json)
    job = Job(
        files=found.files,
        root=str(source),
        tokenizer=str(tokenizer_file),
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id or 0,
        out="",
        workers=1,
        expand_to=None,
    )
    pairs = in_turns({"build": cold_build(source, *TWO_WORKERS), "floor": lambda side: run_floor(side, job)}, setting)
    label = f"{len(found.files):,} files, two workers"
    return [
        *cost_lines(label, pairs["build"]),
        *cost_lines("floor, one process", pairs["floor"]),
        *ratio_lines("two workers : floor", pairs["build"], pairs["floor"]),
    ]


def run_floor(side: Side, job: Job) -> RunCost:
    out, job_file = side.results / "floor", side.results / "job.json"
    out.mkdir()
    job_file.write_bytes(msgspec.json.encode(msgspec.structs.replace(job, out=str(out))))
    try:
        cost = run(python(side, "-m", "gristmill.lab.bench.scripts.floor", str(job_file)), out)
    finally:
        shutil.rmtree(out)
    return cost._replace(data={name: digest for name, digest in cost.data.items() if name != "phases.json"})


def measure_tokenizer(setting: Setting, tokenizer: Path) -> list[Line]:
    source = copy_sample(setting, "tokenizer", TOKENIZER_FILES)
    cases = {
        "Qwen 2.5": cold_build(source, *TWO_WORKERS, "--tokenizer", str(tokenizer)),
        "CodeBERT": cold_build(source, *TWO_WORKERS),
    }
    pairs = in_turns(cases, setting)
    files_text = f"{len(files_in(source)):,} files, two workers"
    return [
        *(line for name, pair in pairs.items() for line in cost_lines(f"{files_text}, {name}", pair)),
        *ratio_lines("Qwen 2.5 : CodeBERT", pairs["Qwen 2.5"], pairs["CodeBERT"]),
    ]


def measure_start(setting: Setting) -> list[Line]:
    source = copy_sample(setting, "start", SMALL_FILES, SMALL_BYTES)
    pairs = in_turns({"start": cold_build(source)}, setting)
    return cost_lines(f"{len(files_in(source))} small files", pairs["start"])


def measure_memory(setting: Setting) -> list[Line]:
    peaks, data = [], []
    for side in setting.sides:
        out = side.results / "dataset"
        peaks.append(measure_peak_mb(build_command(side, setting.corpus, out)))
        data.append(data_digests(out))
        remove(out)
    refuse_different("memory", *data)
    return [Line("all files, peak memory", "MB", *peaks)]


def measure_rebuild(setting: Setting) -> list[Line]:
    """Measure rebuilds without and with changed files. Each side has a separate copy of the corpus."""
    turns = dict.fromkeys(setting.sides, 0)
    for side in setting.sides:
        shutil.copytree(setting.corpus, corpus_copy(side))
        rebuild(side)

    def change_and_rebuild(side: Side) -> RunCost:
        turns[side] += 1
        change_one_percent(setting.corpus, corpus_copy(side), turns[side])
        return rebuild(side)

    pairs = in_turns({"nothing changed": rebuild, "1 % changed": change_and_rebuild}, setting)
    return [line for name, pair in pairs.items() for line in cost_lines(f"all files again, one process, {name}", pair)]


def corpus_copy(side: Side) -> Path:
    """Return the folder of this side's copy of the corpus.

    The folder has the same name on both sides, because rows contain the name.
    """
    return side.results / "corpus"


def rebuild(side: Side) -> RunCost:
    out = side.results / "again"
    return run(build_command(side, corpus_copy(side), out, ONE_WORKER), out)


def change_one_percent(corpus: Path, copy: Path, turn: int) -> None:
    """Write one in a hundred files of the corpus into the copy, with a line inserted that contains `turn`."""
    for path in files_by_hash(corpus)[::CHANGED_ONE_IN]:
        lines = path.read_bytes().split(b"\n")
        lines.insert(len(lines) // 2, b"changed = %d" % turn)
        (copy / path.relative_to(corpus)).write_bytes(b"\n".join(lines))


def copy_sample(setting: Setting, name: str, num_files: int, sizes: Sequence[int] | None = None) -> Path:
    """Copy up to `num_files` files with a size in `sizes`, chosen by hashed path, and return the folder of copies."""
    folder = setting.folder / name
    fitting = (path for path in files_by_hash(setting.corpus) if sizes is None or path.stat().st_size in sizes)
    for _, path in zip(range(num_files), fitting, strict=False):
        target = folder / path.relative_to(setting.corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if not folder.exists():
        raise UsageError(
            f"--corpus: no file has {SMALL_BYTES.start:,} to {SMALL_BYTES.stop:,} bytes. Choose a larger corpus."
        )
    return folder


@functools.cache
def files_by_hash(corpus: Path) -> list[Path]:
    """Return all files, sorted by a hash of their paths."""
    return sorted(files_in(corpus), key=lambda path: hashlib.sha256(os.fsencode(path.relative_to(corpus))).digest())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Setting], list[Line]]] = {
        "build": measure_build,
        "floor": measure_floor,
        "tokenizer": lambda setting: measure_tokenizer(setting, tokenizer),
        "start": measure_start,
        "memory": measure_memory,
        "rebuild": measure_rebuild,
    }
    add_options(parser, parts)
    parser.add_argument(
        "--tokenizer-file",
        type=Path,
        default=QWEN,
        metavar="FILE",
        help="tokenizer.json for the part `tokenizer` (default: the tokenizer of Qwen 2.5)",
    )
    given = parser.parse_args()
    chosen = [name for name in parts if not given.only or name in given.only]
    tokenizer = given.tokenizer_file.resolve()
    if "tokenizer" in chosen and not tokenizer.is_file():
        parser.error(
            f"--tokenizer-file: {given.tokenizer_file} does not exist. `make test` downloads the default file."
        )
    print(f"# Speed of two revisions\n\n{command_text('speed.py', given)}. ", end="")
    with open_setting(parser, given) as setting:
        lines = [line for name in chosen for line in parts[name](setting)]
    heads = ("measurement", "unit", "before", "after", "before : after")
    print(markdown_table(Table("speed", heads, [line.cells() for line in lines])))


if __name__ == "__main__":
    main()
