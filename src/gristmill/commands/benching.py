"""gristmill bench"""

import argparse
import textwrap
from collections.abc import Sequence

import gristmill
from gristmill.commands.parsing import add_output_options, parse_intermixed, parser_for, worker_count
from gristmill.errors import ConfigError
from gristmill.loading import signals_held
from gristmill.naming import printable, shell_word


def bench(arguments: Sequence[str]) -> int:
    from gristmill.bench.methods import METHODS  # noqa: PLC0415 - no other command needs them

    parser = parser_for(
        "bench [SOURCE] [options]",
        "Measure what each way of making the dataset costs and gives, on your code and your machine: the plain script "
        "that people have, threads, batches in processes, Hugging Face datasets, gristmill with and without each of "
        "its steps, and the floor. Prints tables and writes a page with a chart. "
        "For example: gristmill bench my-repo --sample 300",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(parser.description or "", 80)
    parser.epilog = "methods:\n" + "\n".join(f"  {method.name:<30} {method.what}" for method in METHODS)
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="*", help="a folder or a file (default: Python's standard library)"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="bench.md",
        help="the page to write (default: bench.md); its chart lies beside it",
    )
    parser.add_argument(
        "--runs", metavar="N", type=int, default=1, help="time each method so often; medians are told (default: 1)"
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="run only this method (see below); repeatable"
    )
    parser.add_argument("--sample", metavar="N", type=int, help="give the slow methods only N files, and say so")
    parser.add_argument(
        "--expand-to",
        metavar="N",
        type=int,
        help="rows the plain script copies up to (default: 2.75 times what there are)",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="leave each method's output there as a dataset that open_dataset reads"
    )
    parser.add_argument("--tokenizer", metavar="NAME", default="codebert", help="as in build (default: codebert)")
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    add_output_options(parser, "the result")
    given = parse_intermixed(parser, arguments)
    if len(given.sources) > 1:
        raise ConfigError(f"bench takes one SOURCE, got {len(given.sources)}.")
    with signals_held("gristmill.bench.bench"):
        from gristmill.bench.bench import Asked, bench  # noqa: PLC0415 - --help does without
        from gristmill.bench.page import Page  # noqa: PLC0415
        from gristmill.bench.telling import bench_json, bench_text  # noqa: PLC0415
    page = Page(given.out)  # refuses at once what it must not overwrite
    names = ("runs", "only", "sample", "expand_to", "keep", "tokenizer")
    asked = Asked(**{name: getattr(given, name) for name in names}, workers=worker_count(given.workers) or "auto")
    command = " ".join(shell_word(word) for word in ("gristmill", "bench", *arguments))
    result = bench(
        next(iter(given.sources), None),
        asked,
        progress=gristmill.Progress(quiet=given.quiet or given.json),
        command=command,
    )
    page.write(result)
    if given.json:
        print(bench_json(result))
    elif not given.quiet:
        print(bench_text(result))
        print(f"page     {printable(given.out)} and {printable(page.chart.name)} beside it")
    return 0
