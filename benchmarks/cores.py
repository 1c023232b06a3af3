"""Measure how well builds of two revisions use many cores, by number of workers, format and phase.

    python benchmarks/cores.py BEFORE [AFTER] --corpus corpus     # prints the contents of benchmarks/cores.md

The docstring of speed.py shows how to make the corpus. On a machine without git or a network, pass two source trees,
and put the libraries and one of the trees on PYTHONPATH:

    export PYTHONPATH=libraries:after/src
    python after/benchmarks/cores.py --before-tree before --after-tree after --corpus corpus

The interpreter that runs this script also runs the two revisions, alternately. Both revisions must write the same
bytes into the data files and files.jsonl, with any number of workers. --only selects one of these parts:

workers    default builds with 1, 2, 4, 8 and 16 workers, up to the number of cores
formats    `--format bin` and `--format parquet` compared with JSONL, on all cores, with the seconds of each phase.
           Parquet needs PyArrow and is skipped without it
serial     CPU seconds of the main process by phase, in a build on all cores. More workers do not speed up this work
"""

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec

from revisions import (
    Pair,
    RunCost,
    Setting,
    Side,
    add_options,
    cold_build,
    command_text,
    in_turns,
    open_setting,
    python,
    ratio,
    refuse_different,
    remove,
    run,
)

from gristmill.runners.local import num_cores
from gristmill.views.table import Cell, Table, markdown_table

MAIN_PROCESS_BUILD = """
import json, sys, time
from contextlib import contextmanager
import gristmill, gristmill.pipeline.build, msgspec
class CpuProgress(gristmill.Progress):
    cpu = {}
    @contextmanager
    def phase(self, name, *arguments, **options):
        started = time.process_time()
        with super().phase(name, *arguments, **options) as step:
            yield step
        self.cpu[name] = self.cpu.get(name, 0) + time.process_time() - started
progress = CpuProgress()
source, out, workers, result = sys.argv[1:]
started = time.process_time()
settings = {"sources": [source], "out": out, "run": {"workers": int(workers)}}
gristmill.build(msgspec.convert(settings, gristmill.Config), progress)
total = time.process_time() - started
json.dump({"start": started, **progress.cpu, "outside phases": total - sum(progress.cpu.values())}, open(result, "w"))
"""
"""Script that builds a dataset and writes the CPU seconds of its own process by phase."""
WORKERS = (1, 2, 4, 8, 16)
FORMATS = ("jsonl", "bin", "parquet")


def measure_workers(setting: Setting) -> list[Table]:
    counts = [count for count in WORKERS if count <= num_cores()]
    cases = {f"{count} workers": cold_build(setting.corpus, "--workers", str(count)) for count in counts}
    pairs = in_turns(cases, setting)
    one, *more = pairs.values()
    for pair in more:
        refuse_different("build with more workers", one.before.data, pair.before.data)
    heads = ("workers", *pair_heads("s"), *pair_heads("CPU s"), "speedup over 1 worker, before", "speedup, after")
    rows: list[list[Cell]] = [
        [
            count,
            *pair_cells(pair.before.wall, pair.after.wall),
            *pair_cells(pair.before.cpu, pair.after.cpu),
            ratio(one.before.wall, pair.before.wall),
            ratio(one.after.wall, pair.after.wall),
        ]
        for count, pair in zip(counts, pairs.values(), strict=True)
    ]
    return [Table("Workers", heads, rows)]


def measure_formats(setting: Setting) -> list[Table]:
    formats = [name for name in FORMATS if name != "parquet" or find_spec("pyarrow") is not None]
    workers = str(num_cores())
    cases = {name: cold_build(setting.corpus, "--workers", workers, "--format", name) for name in formats}
    pairs = in_turns(cases, setting)
    jsonl = pairs["jsonl"]
    heads = ("format", *pair_heads("s"), *pair_heads("CPU s"), "relative to JSONL, before", "relative to JSONL, after")
    rows: list[list[Cell]] = [
        [
            name,
            *pair_cells(pair.before.wall, pair.after.wall),
            *pair_cells(pair.before.cpu, pair.after.cpu),
            ratio(pair.before.wall, jsonl.before.wall),
            ratio(pair.after.wall, jsonl.after.wall),
        ]
        for name, pair in pairs.items()
    ]
    return [Table(f"Formats, {workers} workers", heads, rows), phases_table(pairs, workers)]


def phases_table(pairs: dict[str, Pair], workers: str) -> Table:
    """Return a table of the seconds by phase, for the fastest run of each format and revision."""
    heads = ("phase", *(head for name in pairs for head in (f"{name}, before", f"{name}, after")))
    costs = [one for pair in pairs.values() for one in pair]
    names = sorted(dict.fromkeys(name for one in costs for name in one.phases), key="total".__eq__)
    rows: list[list[Cell]] = [
        [name, *(f"{one.phases[name]:.2f}" if name in one.phases else None for one in costs)] for name in names
    ]
    return Table(f"Seconds by phase, {workers} workers", heads, rows)


def measure_serial(setting: Setting) -> list[Table]:
    workers = str(num_cores())

    def build(side: Side) -> RunCost:
        out, result = side.results / "dataset", side.results / "result.json"
        try:
            cost = run(python(side, "-c", MAIN_PROCESS_BUILD, str(setting.corpus), str(out), workers, str(result)), out)
        finally:
            remove(out)
        return cost._replace(phases=json.loads(result.read_bytes()))

    before, after = in_turns({"main process": build}, setting)["main process"]
    heads = ("phase", *pair_heads("CPU s"), "share of all CPU, after")
    names = dict.fromkeys((*before.phases, *after.phases))
    rows: list[list[Cell]] = [
        [
            name,
            *pair_cells(before.phases.get(name, 0), after.phases.get(name, 0)),
            share(after.phases.get(name, 0), after),
        ]
        for name in names
    ]
    sums = [sum(one.phases.values()) for one in (before, after)]
    rows += [["together", *pair_cells(*sums), share(sums[1], after)]]
    rows += [["all processes", *pair_cells(before.cpu, after.cpu), share(after.cpu, after)]]
    return [Table(f"Main process, {workers} workers", heads, rows)]


def share(cpu: float, cost: RunCost) -> str:
    return f"{cpu / cost.cpu:.1%}"


def pair_heads(unit: str) -> tuple[str, str, str]:
    return (f"{unit}, before", f"{unit}, after", "before : after")


def pair_cells(before: float, after: float) -> list[Cell]:
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
    print(f"# Many cores\n\n{command_text('cores.py', given)}. ", end="")
    with open_setting(parser, given) as setting:
        for name, measure in PARTS.items():
            if not given.only or name in given.only:
                for table in measure(setting):
                    print(f"## {table.title}\n\n{markdown_table(table)}\n", flush=True)


if __name__ == "__main__":
    main()
