"""gristmill bench"""

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gristmill
from gristmill.cli.parsers import add_output_options, parse_intermixed, parser_for, worker_count
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError
from gristmill.core.extras import require_bench_chart
from gristmill.core.names import printable, shell_quote

if TYPE_CHECKING:
    from gristmill.cli.parsers import Parser
    from gristmill.lab.bench.bench_markdown import Page

NOT_WITH_TOKENIZERS = ("only", "expand_to", "keep", "workers")
"""Options that apply only to methods that build a dataset."""


def bench(arguments: Sequence[str]) -> int:
    given = parse_intermixed(_parser(), arguments)
    if len(given.sources) > 1:
        raise ConfigError(f"bench takes only one SOURCE, got {len(given.sources)}.")
    require_bench_chart()
    command = " ".join(shell_quote(word) for word in ("gristmill", "bench", *arguments))
    if given.tokenizers:
        _bench_tokenizers(given, command)
    else:
        _bench_methods(given, command)
    return 0


def _bench_methods(given: argparse.Namespace, command: str) -> None:
    with delay_signals("gristmill.lab.bench.bench"):
        from gristmill.lab.bench.bench import BenchOptions, bench  # noqa: PLC0415 - not needed for --help
        from gristmill.lab.bench.bench_markdown import Page, bench_markdown  # noqa: PLC0415
        from gristmill.lab.bench.bench_svg import chart_svg  # noqa: PLC0415
        from gristmill.lab.bench.bench_text import bench_json, bench_text  # noqa: PLC0415
    page = Page(given.out or "bench.md")  # raises before the benchmark if the page cannot be written
    names = ("only", "sample", "expand_to", "keep", "tokenizer", "device")
    options = BenchOptions(
        **{name: getattr(given, name) for name in names},
        runs=1 if given.runs is None else given.runs,
        workers=worker_count(given.workers) or "auto",
    )
    result = bench(next(iter(given.sources), None), options, progress=_progress(given), command=command)
    page.write(bench_markdown(result, page.chart.name), chart_svg(result))
    _print_result(bench_json(result) if given.json else bench_text(result), page, given)


def _bench_tokenizers(given: argparse.Namespace, command: str) -> None:
    for name in NOT_WITH_TOKENIZERS:
        if getattr(given, name) not in (None, []):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"--tokenizers builds no dataset, so it cannot be combined with {option}. Omit one of the two."
            )
    with delay_signals("gristmill.lab.bench.tokenizers.bench_tokenizers"):
        from gristmill.lab.bench.bench_markdown import Page  # noqa: PLC0415 - not needed for --help
        from gristmill.lab.bench.tokenizers.bench_tokenizers import (  # noqa: PLC0415
            DEFAULT_RUNS,
            TokenizerBenchOptions,
            bench_tokenizers,
        )
        from gristmill.lab.bench.tokenizers.speed_markdown import HEADING, tokenizers_markdown  # noqa: PLC0415
        from gristmill.lab.bench.tokenizers.speed_svg import tokenizers_svg  # noqa: PLC0415
        from gristmill.lab.bench.tokenizers.speed_text import tokenizers_json, tokenizers_text  # noqa: PLC0415
    page = Page(given.out or "bench-tokenizers.md", HEADING)
    options = TokenizerBenchOptions(
        tokenizer=given.tokenizer,
        device=given.device,
        runs=DEFAULT_RUNS if given.runs is None else given.runs,
        sample=given.sample,
    )
    result = bench_tokenizers(next(iter(given.sources), None), options, progress=_progress(given), command=command)
    page.write(tokenizers_markdown(result, page.chart.name), tokenizers_svg(result))
    _print_result(tokenizers_json(result) if given.json else tokenizers_text(result), page, given)


def _progress(given: argparse.Namespace) -> gristmill.Progress:
    return gristmill.Progress(quiet=given.quiet or given.json)


def _print_result(text: str, page: "Page", given: argparse.Namespace) -> None:
    if given.json:
        print(text)
    elif not given.quiet:
        print(text)
        print(f"page     {printable(str(page.path))}, with {printable(page.chart.name)}")


def _parser() -> "Parser":
    from gristmill.lab.bench.methods import METHODS  # noqa: PLC0415 - only this command needs it

    parser = parser_for(
        "bench [SOURCE] [options]",
        "Measure several ways to build a dataset, on your code and your machine: a plain script, threads, batches in "
        "processes, Hugging Face datasets, gristmill with and without each of its steps, and a lower bound. The "
        "command prints tables and writes a page with a chart. "
        "For example: gristmill bench my-repo --sample 300. "
        "With --tokenizers, measure only tokenizing: gristmill bench my-repo --tokenizers --device cuda",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(parser.description or "", 80)
    parser.epilog = "methods:\n" + "\n".join(f"  {method.name:<30} {method.what}" for method in METHODS)
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="*", help="a folder or a file (default: Python's standard library)"
    )
    _add_common_options(parser)
    _add_options_of_methods(parser)
    add_output_options(parser, "the result")
    return parser


def _add_common_options(parser: "Parser") -> None:
    parser.add_argument(
        "--tokenizers",
        action="store_true",
        help="measure only tokenizing, with empty caches, with warm caches and on unseen text, and compare all ids. "
        "The libraries tokenizers and gigatoken are measured and, with --device cuda, also the GPU",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="with cuda, also measure tokenizing on the GPU (default: cpu)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="page to write; the chart is written next to it (default: bench.md, or bench-tokenizers.md with "
        "--tokenizers)",
    )
    parser.add_argument(
        "--runs",
        metavar="N",
        type=int,
        help="time each method N times and report the median (default: 1, or 5 with --tokenizers). If N is even, the "
        "median is the slower of the two middle times, or their mean with --tokenizers",
    )
    parser.add_argument(
        "--sample", metavar="N", type=int, help="run slow methods on only N files; the result marks these methods"
    )
    parser.add_argument(
        "--tokenizer", metavar="NAME", default="codebert", help="tokenizer, as in gristmill build (default: codebert)"
    )


def _add_options_of_methods(parser: "Parser") -> None:
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="run only this method, one of the methods listed below; repeatable",
    )
    parser.add_argument(
        "--expand-to",
        metavar="N",
        type=int,
        help="number of rows, including copies, that the plain script writes (default: 2.75 times the number of rows "
        "before copying)",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="keep the output of each method in DIR, as a dataset that open_dataset can read"
    )
    parser.add_argument("--workers", metavar="auto|N", help="number of processes (default: auto)")
