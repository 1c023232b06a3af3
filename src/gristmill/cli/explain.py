"""gristmill explain"""

from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, row_number
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError


def explain(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "explain DIR PATH[:LINE] | DIR --row SPLIT:N",
        "Explain why a file was kept or dropped, and how its split was chosen: the value and limit of each rule, "
        "license, duplicates, redactions, cuts and windows. With --row, print which file and lines a row contains. For "
        "example: gristmill explain dataset src/app.py:120",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument(
        "path", metavar="PATH[:LINE]", nargs="?", help="path of a file, the end of the path, or repo/path"
    )
    parser.add_argument("--row", metavar="SPLIT:N", help="a split and a row number, counted from 0, like test:123")
    add_output_options(parser, "the explanation", is_answer=True)
    given = parser.parse_intermixed_args(arguments)
    if (given.path is None) == (given.row is None):
        raise ConfigError("explain takes either a PATH or --row. Try 'gristmill explain --help'.")
    with delay_signals("gristmill.planning.explain"):
        from gristmill.planning.explain import explain_row, explanation_json, explanation_text  # noqa: PLC0415
    if given.row is None:
        explained = gristmill.explain(given.folder, given.path)
    else:
        split, _, digits = given.row.partition(":")
        number = row_number(digits)
        if number is None:
            raise ConfigError(f"--row takes a split and a number, like test:123, got {given.row!r}.")
        explained = explain_row(given.folder, split, number)
    print(explanation_json(explained) if given.json else explanation_text(explained))
    return 0
