"""gristmill report"""

import json
import webbrowser
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for
from gristmill.cli.signals import delay_signals
from gristmill.core.names import path_text, printable


def report(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "report DIR | OLD NEW [options]",
        "Write an HTML report of a dataset: one file with charts and all their data, which works offline. With two "
        "datasets, the report describes NEW and begins with its differences from OLD. This command needs "
        "gristmill[report].",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument("other", metavar="NEW", nargs="?", help="a later dataset, to compare with OLD")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        action="append",
        default=[],
        help="source that contains dropped near-duplicates, to show how they differ from kept files; repeatable, in "
        "the order given to gristmill build (default: the sources of the build, if they still exist)",
    )
    parser.add_argument("--out", metavar="FILE", help="file to write (default: report.html in DIR or NEW)")
    parser.add_argument("--open", action="store_true", help="open the report in the browser")
    add_output_options(parser, "the path of the report")
    given = parser.parse_intermixed_args(arguments)
    with delay_signals("gristmill.views.report.report"):
        progress = gristmill.Progress(quiet=given.quiet or given.json)
    path = gristmill.report(given.folder, given.other, sources=given.source, out=given.out, progress=progress)
    if given.json:
        print(json.dumps({"report": path_text(str(path)), "bytes": path.stat().st_size}))
    elif not given.quiet:
        print(f"report  {printable(str(path))}")
    if given.open:
        webbrowser.open(path.resolve().as_uri())
    return 0
