"""gristmill check"""

import argparse
import json
import sys
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, worker_count
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.names import printable

ANSWER_IS_NO = 1


def check(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "check DIR [--source SOURCE]... | DIR --against-clean",
        "Verify a finished dataset from its files alone: digests, rows, windows, splits that do not leak, secrets. "
        "Prints a table, writes DIR/check.json, and answers 1 if anything fails.",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        action="append",
        default=[],
        help="also compare the windows with the source they were built from; repeatable, in the order of the build",
    )
    parser.add_argument(
        "--against-clean",
        action="store_true",
        help="instead, build it anew without the cache and say whether every byte is the same",
    )
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    add_output_options(parser, "the report")
    given = parser.parse_args(arguments)
    if given.against_clean:
        return _against_clean(given)
    with signals_held("gristmill.checks.check"):
        from gristmill.checks.findings import report_json, report_text  # noqa: PLC0415 - --help does without
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    workers = worker_count(given.workers) or "auto"
    report = gristmill.check(given.folder, given.source, progress=progress, workers=workers)
    if given.json:
        print(report_json(report))
    elif not (given.quiet and report.ok):  # a check that fails is an error
        print(report_text(report))
    if not report.written:
        print(f"gristmill: note: check.json could not be written into {printable(given.folder)}.", file=sys.stderr)
    return 0 if report.ok else ANSWER_IS_NO


def _against_clean(given: argparse.Namespace) -> int:
    if given.source:
        raise ConfigError("--against-clean goes by the sources of the build; leave --source out.")
    with signals_held("gristmill.checks.rebuild"):
        from gristmill.checks.rebuild import against_clean  # noqa: PLC0415 - --help does without
    found = against_clean(given.folder, gristmill.Progress(quiet=given.quiet or given.json))
    if given.json:
        print(json.dumps({"ok": not found, "differences": found}))
    elif found or not given.quiet:
        for one in found:
            print(printable(one))
        print(f"{'differs from' if found else 'the same, byte for byte, as'} a build from scratch: {given.folder}")
    return ANSWER_IS_NO if found else 0
