"""gristmill check"""

import argparse
import json
import sys
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, worker_count
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError
from gristmill.core.names import printable

FAILED = 1


def check(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "check DIR [--source SOURCE]... | DIR --against-clean",
        "Verify a dataset: digests, rows, windows, leakage between splits, secrets. The checks read only the files of "
        "the dataset and of --source. They print a table and write DIR/check.json. The exit code is 1 if a check "
        "fails, or if --against-clean finds a difference.",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset made by gristmill build")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        action="append",
        default=[],
        help="also compare the rows with this source; repeatable, in the order given to gristmill build",
    )
    parser.add_argument(
        "--against-clean",
        action="store_true",
        help="instead of running the checks, build the dataset again without the cache and compare every byte",
    )
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="number of processes (default: auto)")
    add_output_options(parser, "the report")
    given = parser.parse_args(arguments)
    if given.against_clean:
        return _against_clean(given)
    with delay_signals("gristmill.checks.check"):
        from gristmill.checks.findings import report_json, report_text  # noqa: PLC0415 - not needed for --help
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    workers = worker_count(given.workers) or "auto"
    report = gristmill.check(given.folder, given.source, progress=progress, workers=workers)
    if given.json:
        print(report_json(report))
    elif not (given.quiet and report.ok):  # with --quiet, print failures only
        print(report_text(report))
    if not report.written:
        print(f"gristmill: note: cannot write check.json to {printable(given.folder)}.", file=sys.stderr)
    return 0 if report.ok else FAILED


def _against_clean(given: argparse.Namespace) -> int:
    if given.source:
        raise ConfigError("--against-clean uses the sources that the dataset was built from. Omit --source.")
    with delay_signals("gristmill.checks.rebuild"):
        from gristmill.checks.rebuild import compare_with_clean_build  # noqa: PLC0415 - not needed for --help
    found = compare_with_clean_build(given.folder, gristmill.Progress(quiet=given.quiet or given.json))
    if given.json:
        print(json.dumps({"ok": not found, "differences": found}))
    elif found or not given.quiet:
        for one in found:
            print(printable(one))
        print(f"{printable(given.folder)} {'differs from' if found else 'is byte-identical to'} a clean build")
    return FAILED if found else 0
