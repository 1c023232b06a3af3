"""gristmill view"""

import json
import sys
from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parse_whole_number, parser_for
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError
from gristmill.core.names import printable

LARGEST_PORT = 65535


def view(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "view DIR [--port N] [--no-browser]",
        "Browse a dataset in a browser: windows with filters and search, token boundaries and overlaps, files and why "
        "each file was kept or dropped. The viewer serves only this machine, until you press Ctrl-C. For example: "
        "gristmill view dataset",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument(
        "--port", metavar="N", type=parse_whole_number, default=0, help="port to listen on (default: a free port)"
    )
    parser.add_argument("--no-browser", action="store_true", help="print the address, but do not open a browser")
    add_output_options(parser, "the address", is_answer=True)
    given = parser.parse_args(arguments)
    if not 0 <= given.port <= LARGEST_PORT:
        raise ConfigError(f"--port must be between 0 and {LARGEST_PORT}, got {given.port}.")
    with delay_signals("gristmill.views.viewer.view"):
        from gristmill.views.viewer.view import RunningViewer  # noqa: PLC0415 - not needed for --help
        from gristmill.views.viewer.view import view as serve  # noqa: PLC0415

    def print_address(viewing: RunningViewer) -> None:
        if given.json:
            print(json.dumps({"address": viewing.address}), flush=True)
        else:
            print(f"viewing  {viewing.address}\n         press Ctrl-C to stop", flush=True)
        if viewing.note is not None and not given.quiet:
            print(f"gristmill: note: {printable(viewing.note)}", file=sys.stderr, flush=True)

    serve(given.folder, print_address, port=given.port, opens_browser=not given.no_browser)
    return 0
