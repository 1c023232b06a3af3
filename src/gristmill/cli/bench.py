"""gristmill bench"""

import argparse
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gristmill
from gristmill.cli.parsers import add_output_options, parse_intermixed, parser_for, worker_count
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.extras import require_bench_chart
from gristmill.core.names import printable, shell_word

if TYPE_CHECKING:
    from gristmill.cli.parsers import Parser
    from gristmill.lab.bench.bench_markdown import Page

NOT_WITH_TOKENIZERS = ("only", "expand_to", "keep", "workers")
"""They are about methods that make datasets."""


def bench(arguments: Sequence[str]) -> int:
    given = parse_intermixed(_parser(), arguments)
    if len(given.sources) > 1:
        raise ConfigError(f"bench takes one SOURCE, got {len(given.sources)}.")
    require_bench_chart()
    command = " ".join(shell_word(word) for word in ("gristmill", "bench", *arguments))
    if given.tokenizers:
        _bench_tokenizers(given, command)
    else:
        _bench_methods(given, command)
    return 0


def _bench_methods(given: argparse.Namespace, command: str) -> None:
    with signals_held("gristmill.lab.bench.bench"):
        from gristmill.lab.bench.bench import Asked, bench  # noqa: PLC0415 - --help does without
        from gristmill.lab.bench.bench_markdown import Page, bench_markdown  # noqa: PLC0415
        from gristmill.lab.bench.bench_svg import chart_svg  # noqa: PLC0415
        from gristmill.lab.bench.bench_text import bench_json, bench_text  # noqa: PLC0415
    page = Page(given.out or "bench.md")  # refuses at once what it must not overwrite
    names = ("only", "sample", "expand_to", "keep", "tokenizer", "device")
    asked = Asked(
        **{name: getattr(given, name) for name in names},
        runs=1 if given.runs is None else given.runs,
        workers=worker_count(given.workers) or "auto",
    )
    result = bench(next(iter(given.sources), None), asked, progress=_progress(given), command=command)
    page.write(bench_markdown(result, page.chart.name), chart_svg(result))
    _tell(bench_json(result) if given.json else bench_text(result), page, given)


def _bench_tokenizers(given: argparse.Namespace, command: str) -> None:
    for name in NOT_WITH_TOKENIZERS:
        if getattr(given, name) not in (None, []):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"--tokenizers takes no {option}: it makes no datasets. Leave one of the two out.")
    with signals_held("gristmill.lab.bench.tokenizers.bench_tokenizers"):
        from gristmill.lab.bench.bench_markdown import Page  # noqa: PLC0415 - --help does without
        from gristmill.lab.bench.tokenizers.bench_tokenizers import DEFAULT_RUNS, AskedOfTokenizers, bench_tokenizers  # noqa: PLC0415
        from gristmill.lab.bench.tokenizers.speed_markdown import HEADING, tokenizers_markdown  # noqa: PLC0415
        from gristmill.lab.bench.tokenizers.speed_svg import tokenizers_svg  # noqa: PLC0415
        from gristmill.lab.bench.tokenizers.speed_text import tokenizers_json, tokenizers_text  # noqa: PLC0415
    page = Page(given.out or "bench-tokenizers.md", HEADING)
    asked = AskedOfTokenizers(
        tokenizer=given.tokenizer,
        device=given.device,
        runs=DEFAULT_RUNS if given.runs is None else given.runs,
        sample=given.sample,
    )
    result = bench_tokenizers(next(iter(given.sources), None), asked, progress=_progress(given), command=command)
    page.write(tokenizers_markdown(result, page.chart.name), tokenizers_svg(result))
    _tell(tokenizers_json(result) if given.json else tokenizers_text(result), page, given)


def _progress(given: argparse.Namespace) -> gristmill.Progress:
    return gristmill.Progress(quiet=given.quiet or given.json)


def _tell(told: str, page: "Page", given: argparse.Namespace) -> None:
    if given.json:
        print(told)
    elif not given.quiet:
        print(told)
        print(f"page     {printable(str(page.path))} and {printable(page.chart.name)} beside it")


def _parser() -> "Parser":
    from gristmill.lab.bench.methods import METHODS  # noqa: PLC0415 - no other command needs them

    parser = parser_for(
        "bench [SOURCE] [options]",
        "Measure what each way of making the dataset costs and gives, on your code and your machine: the plain script "
        "that people have, threads, batches in processes, Hugging Face datasets, gristmill with and without each of "
        "its steps, and the floor. Prints tables and writes a page with a chart. "
        "For example: gristmill bench my-repo --sample 300. "
        "With --tokenizers, how fast tokenizers alone are: gristmill bench my-repo --tokenizers --device cuda",
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
        help="instead: tokenizers, gigatoken and the GPU on the same bytes, cold, warm and on unseen text; "
        "every id is compared",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: measure tokenizing on a GPU as well (default: cpu)",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the page to write (default: bench.md, or bench-tokenizers.md); its chart lies beside it",
    )
    parser.add_argument(
        "--runs",
        metavar="N",
        type=int,
        help="time each method N times and report the median, of an even N the slower of the middle two "
        "(default: 1, or 5 with --tokenizers)",
    )
    parser.add_argument("--sample", metavar="N", type=int, help="give the slow methods only N files, and say so")
    parser.add_argument("--tokenizer", metavar="NAME", default="codebert", help="as in build (default: codebert)")


def _add_options_of_methods(parser: "Parser") -> None:
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="run only this method (see below); repeatable"
    )
    parser.add_argument(
        "--expand-to",
        metavar="N",
        type=int,
        help="rows the plain script copies up to (default: 2.75 times what there are)",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="leave each method's output there as a dataset that open_dataset reads"
    )
    parser.add_argument("--workers", metavar="auto|N", help="processes to use (default: auto)")
