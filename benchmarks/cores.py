"""How well does a build use many cores, before and after? Workers, formats, and seconds by phase.

    python benchmarks/cores.py BEFORE [AFTER] --corpus corpus     # prints benchmarks/cores.md; the corpus: see speed.py

On a machine without git and network, with two source trees, and with the libraries and one of the trees on PYTHONPATH:

    export PYTHONPATH=libraries:after/src
    python after/benchmarks/cores.py --before-tree before --after-tree after --corpus corpus

Both revisions are run in turns by this interpreter and must write the same data files and files.jsonl, byte by byte,
with any number of workers. The parts:

workers    default builds with 1, 2, 4, 8 and 16 workers, as far as there are cores
formats    `--format bin` and `--format parquet` against JSONL with all cores, and the seconds of each phase.
           Parquet is left out where there is no PyArrow
serial     the CPU seconds that a build with all cores spends in its first process, by phase. No worker shares in these
"""

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec

from revisions import (
    Pair,
    Ran,
    Setting,
    Side,
    add_options,
    build_of,
    command_of,
    in_turns,
    python,
    ratio,
    refuse_different,
    remove,
    run,
    setting_of,
)

from gristmill.runners.local import num_cores
from gristmill.views.table import Cell, Table, markdown_table

FIRST_PROCESS = """
import json, sys, time
from contextlib import contextmanager
import gristmill, gristmill.pipeline.build, msgspec
class Watched(gristmill.Progress):
    cpu = {}
    @contextmanager
    def phase(self, name, *arguments, **options):
        started = time.process_time()
        with super().phase(name, *arguments, **options) as step:
            yield step
        self.cpu[name] = self.cpu.get(name, 0) + time.process_time() - started
progress = Watched()
source, out, workers, answer = sys.argv[1:]
started = time.process_time()
settings = {"sources": [source], "out": out, "run": {"workers": int(workers)}}
gristmill.build(msgspec.convert(settings, gristmill.Config), progress)
total = time.process_time() - started
json.dump({"start": started, **progress.cpu, "the rest": total - sum(progress.cpu.values())}, open(answer, "w"))
"""
WORKERS = (1, 2, 4, 8, 16)
FORMATS = ("jsonl", "bin", "parquet")


def measure_workers(setting: Setting) -> list[Table]:
    counts = [count for count in WORKERS if count <= num_cores()]
    ways = {f"{count} workers": build_of(setting.corpus, "--workers", str(count)) for count in counts}
    pairs = in_turns(ways, setting)
    one, *more = pairs.values()
    for pair in more:
        refuse_different("with more workers", one.before.data, pair.before.data)
    heads = ("workers", *wall_heads("s"), *wall_heads("CPU s"), "1 worker : this, before", "after")
    rows: list[list[Cell]] = [
        [
            count,
            *seconds(pair.before.wall, pair.after.wall),
            *seconds(pair.before.cpu, pair.after.cpu),
            ratio(one.before.wall, pair.before.wall),
            ratio(one.after.wall, pair.after.wall),
        ]
        for count, pair in zip(counts, pairs.values(), strict=True)
    ]
    return [Table("Workers", heads, rows)]


def measure_formats(setting: Setting) -> list[Table]:
    formats = [name for name in FORMATS if name != "parquet" or find_spec("pyarrow") is not None]
    workers = str(num_cores())
    ways = {name: build_of(setting.corpus, "--workers", workers, "--format", name) for name in formats}
    pairs = in_turns(ways, setting)
    jsonl = pairs["jsonl"]
    heads = ("format", *wall_heads("s"), *wall_heads("CPU s"), "this : JSONL, before", "after")
    rows: list[list[Cell]] = [
        [
            name,
            *seconds(pair.before.wall, pair.after.wall),
            *seconds(pair.before.cpu, pair.after.cpu),
            ratio(pair.before.wall, jsonl.before.wall),
            ratio(pair.after.wall, jsonl.after.wall),
        ]
        for name, pair in pairs.items()
    ]
    return [Table(f"Formats, {workers} workers", heads, rows), phases_table(pairs, workers)]


def phases_table(pairs: dict[str, Pair], workers: str) -> Table:
    """Of the fastest run of each."""
    heads = ("phase", *(head for name in pairs for head in (f"{name}, before", f"{name}, after")))
    ran = [one for pair in pairs.values() for one in pair]
    names = sorted(dict.fromkeys(name for one in ran for name in one.phases), key="total".__eq__)
    rows: list[list[Cell]] = [
        [name, *(f"{one.phases[name]:.2f}" if name in one.phases else None for one in ran)] for name in names
    ]
    return Table(f"Seconds by phase, {workers} workers", heads, rows)


def measure_serial(setting: Setting) -> list[Table]:
    workers = str(num_cores())

    def build(side: Side) -> Ran:
        out, answer = side.results / "dataset", side.results / "answer.json"
        try:
            ran = run(python(side, "-c", FIRST_PROCESS, str(setting.corpus), str(out), workers, str(answer)), out)
        finally:
            remove(out)
        return ran._replace(phases=json.loads(answer.read_bytes()))

    before, after = in_turns({"first process": build}, setting)["first process"]
    heads = ("phase", *wall_heads("CPU s"), "share of all CPU, after")
    names = dict.fromkeys((*before.phases, *after.phases))
    rows: list[list[Cell]] = [
        [name, *seconds(before.phases.get(name, 0), after.phases.get(name, 0)), share(after.phases.get(name, 0), after)]
        for name in names
    ]
    sums = [sum(one.phases.values()) for one in (before, after)]
    rows += [["together", *seconds(*sums), share(sums[1], after)]]
    rows += [["all processes", *seconds(before.cpu, after.cpu), share(after.cpu, after)]]
    return [Table(f"The first process, {workers} workers", heads, rows)]


def share(cpu: float, ran: Ran) -> str:
    return f"{cpu / ran.cpu:.1%}"


def wall_heads(unit: str) -> tuple[str, str, str]:
    return (f"{unit}, before", f"{unit}, after", "before : after")


def seconds(before: float, after: float) -> list[Cell]:
    return [f"{before:.2f}", f"{after:.2f}", ratio(before, after)]


PARTS: dict[str, Callable[[Setting], list[Table]]] = {
    "workers": measure_workers,
    "formats": measure_formats,
    "serial": measure_serial,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, PARTS)
    given = parser.parse_args()
    print(f"# Many cores\n\n{command_of('cores.py', given)}. ", end="")
    with setting_of(parser, given) as setting:
        for name, measure in PARTS.items():
            if not given.only or name in given.only:
                for table in measure(setting):
                    print(f"## {table.title}\n\n{markdown_table(table)}\n", flush=True)


if __name__ == "__main__":
    main()
