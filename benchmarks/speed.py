"""How much faster is one revision than another? CPU and wall seconds, memory, and the floor, each as a ratio.

    python benchmarks/gather.py all --files 32000 --bytes 1e8 --pack corpus.tar.xz
    python -m tarfile -e corpus.tar.xz corpus                     # 20,000 files
    python benchmarks/speed.py BEFORE [AFTER] --corpus corpus     # prints benchmarks/speed.md
    python benchmarks/speed.py HEAD~20 --corpus corpus --only build --only start --runs 9

BEFORE and AFTER are git revisions; without AFTER it is the working tree. Both are run in turns by this interpreter,
each from a folder of its own, and must write the same data files and files.jsonl, byte by byte. The parts:

build      all files, one process
floor      2,000 files, two workers, and the floor on the same files: `gristmill bench --only floor`, which reads them,
           tokenizes, and writes rows. Nothing is judged there
tokenizer  2,300 files, two workers, with the tokenizer of Qwen 2.5 and with the bundled one
start      ten small files, as it comes
memory     peak over all processes of a build of all files, as it comes; one build each, as looking costs time
rebuild    all files, one process, over an earlier build: nothing changed, and a line more in 1 % of the files
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
from measure import peak_mb_of
from revisions import (
    Pair,
    Ran,
    Setting,
    Side,
    UsageError,
    add_options,
    build_command,
    build_of,
    command_of,
    data_digests,
    files_in,
    in_turns,
    python,
    ratio,
    refuse_different,
    remove,
    run,
    setting_of,
)

from gristmill import Progress, load_tokenizer
from gristmill.lab.bench.bench_files import gather
from gristmill.lab.bench.job import Job
from gristmill.views.table import Cell, Table, markdown_table

QWEN = Path(sys.prefix, "tokenizers/qwen2_5-3.7.2.json")
"""Where `make test` puts it."""
FLOOR_FILES = 2000
TOKENIZER_FILES = 2300
SMALL_FILES = 10
SMALL_BYTES = range(200, 4000)
CHANGED_ONE_IN = 100
ONE_WORKER = ("--workers", "1")
TWO_WORKERS = ("--workers", "2")


class Line(NamedTuple):
    what: str
    unit: str
    before: float
    after: float

    def cells(self) -> list[Cell]:
        digits = 0 if self.unit == "MB" else 2
        numbers = [f"{number:,.{digits}f}" for number in (self.before, self.after)]
        return [self.what, self.unit, *numbers, ratio(self.before, self.after)]


def lines_of(what: str, pair: Pair) -> list[Line]:
    cpu = Line(what, "CPU s", pair.before.cpu, pair.after.cpu)
    return [cpu, Line(what, "wall s", pair.before.wall, pair.after.wall)]


def quotients(what: str, pair: Pair, by: Pair) -> list[Line]:
    (cpu, wall), (cpu_by, wall_by) = lines_of(what, pair), lines_of(what, by)
    return [
        Line(what, unit, one.before / other.before, one.after / other.after)
        for unit, one, other in (("CPU", cpu, cpu_by), ("wall", wall, wall_by))
    ]


def measure_build(setting: Setting) -> list[Line]:
    pairs = in_turns({"build": build_of(setting.corpus, *ONE_WORKER)}, setting)
    return lines_of("all files, one process", pairs["build"])


def measure_floor(setting: Setting) -> list[Line]:
    """Both are given the files that the floor takes: UTF-8, and with tokens."""
    source = sample(setting, "floor", FLOOR_FILES)
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
    pairs = in_turns({"build": build_of(source, *TWO_WORKERS), "floor": lambda side: run_floor(side, job)}, setting)
    what = f"{len(found.files):,} files, two workers"
    return [
        *lines_of(what, pairs["build"]),
        *lines_of("the floor, one process", pairs["floor"]),
        *quotients("two workers : the floor", pairs["build"], pairs["floor"]),
    ]


def run_floor(side: Side, job: Job) -> Ran:
    out, job_file = side.results / "floor", side.results / "job.json"
    out.mkdir()
    job_file.write_bytes(msgspec.json.encode(msgspec.structs.replace(job, out=str(out))))
    try:
        ran = run(python(side, "-m", "gristmill.lab.bench.scripts.floor", str(job_file)), out)
    finally:
        shutil.rmtree(out)
    return ran._replace(data={name: digest for name, digest in ran.data.items() if name != "phases.json"})


def measure_tokenizer(setting: Setting, tokenizer: Path) -> list[Line]:
    source = sample(setting, "tokenizer", TOKENIZER_FILES)
    ways = {
        "Qwen 2.5": build_of(source, *TWO_WORKERS, "--tokenizer", str(tokenizer)),
        "CodeBERT": build_of(source, *TWO_WORKERS),
    }
    pairs = in_turns(ways, setting)
    counted = f"{len(files_in(source)):,} files, two workers"
    return [
        *(line for name, pair in pairs.items() for line in lines_of(f"{counted}, {name}", pair)),
        *quotients("Qwen 2.5 : CodeBERT", pairs["Qwen 2.5"], pairs["CodeBERT"]),
    ]


def measure_start(setting: Setting) -> list[Line]:
    source = sample(setting, "start", SMALL_FILES, SMALL_BYTES)
    pairs = in_turns({"start": build_of(source)}, setting)
    return lines_of(f"{len(files_in(source))} small files", pairs["start"])


def measure_memory(setting: Setting) -> list[Line]:
    peaks, data = [], []
    for side in setting.sides:
        out = side.results / "dataset"
        peaks.append(peak_mb_of(build_command(side, setting.corpus, out)))
        data.append(data_digests(out))
        remove(out)
    refuse_different("memory", *data)
    return [Line("all files, peak memory", "MB", *peaks)]


def measure_rebuild(setting: Setting) -> list[Line]:
    """Each side has a copy of the corpus, which changes before each of its builds after a change."""
    turns = dict.fromkeys(setting.sides, 0)
    for side in setting.sides:
        shutil.copytree(setting.corpus, corpus_of(side))
        rebuild(side)

    def changed(side: Side) -> Ran:
        turns[side] += 1
        change_one_percent(setting.corpus, corpus_of(side), turns[side])
        return rebuild(side)

    pairs = in_turns({"nothing changed": rebuild, "1 % changed": changed}, setting)
    return [line for name, pair in pairs.items() for line in lines_of(f"all files again, one process, {name}", pair)]


def corpus_of(side: Side) -> Path:
    """By one name for both, as rows hold it."""
    return side.results / "corpus"


def rebuild(side: Side) -> Ran:
    out = side.results / "again"
    return run(build_command(side, corpus_of(side), out, ONE_WORKER), out)


def change_one_percent(corpus: Path, copy: Path, turn: int) -> None:
    """Give the same files a line that they have not had before."""
    for path in hashed(corpus)[::CHANGED_ONE_IN]:
        lines = path.read_bytes().split(b"\n")
        lines.insert(len(lines) // 2, b"changed = %d" % turn)
        (copy / path.relative_to(corpus)).write_bytes(b"\n".join(lines))


def sample(setting: Setting, name: str, num_files: int, sizes: Sequence[int] | None = None) -> Path:
    """Copy so many files, those that come first by hashed path."""
    folder = setting.folder / name
    fitting = (path for path in hashed(setting.corpus) if sizes is None or path.stat().st_size in sizes)
    for _, path in zip(range(num_files), fitting, strict=False):
        target = folder / path.relative_to(setting.corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if not folder.exists():
        raise UsageError(f"--corpus: no file has {SMALL_BYTES.start:,} to {SMALL_BYTES.stop:,} bytes")
    return folder


@functools.cache
def hashed(corpus: Path) -> list[Path]:
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
    parser.add_argument("--tokenizer-file", type=Path, default=QWEN, metavar="FILE", help="default: Qwen 2.5's")
    given = parser.parse_args()
    chosen = [name for name in parts if not given.only or name in given.only]
    tokenizer = given.tokenizer_file.resolve()
    if "tokenizer" in chosen and not tokenizer.is_file():
        parser.error(f"--tokenizer-file: there is no file {given.tokenizer_file}. `make test` fetches Qwen's.")
    print(f"# How much faster\n\n{command_of('speed.py', given)}. ", end="")
    with setting_of(parser, given) as setting:
        lines = [line for name in chosen for line in parts[name](setting)]
    heads = ("what", "unit", "before", "after", "before : after")
    print(markdown_table(Table("speed", heads, [line.cells() for line in lines])))


if __name__ == "__main__":
    main()
