"""gristmill explain"""

from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, row_number
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError


def explain(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "explain DIR PATH[:LINE] | DIR --row SPLIT:N",
        "Say why a file is in a dataset, out of it, or in its split: rules with value and limit, licence, twin, "
        "redactions, cuts and windows; or which file and lines a row shows. "
        "For example: gristmill explain dataset src/app.py:120",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "path", metavar="PATH[:LINE]", nargs="?", help="a file by its path, the end of it, or repo/path"
    )
    parser.add_argument("--row", metavar="SPLIT:N", help="a row by its number, counted from 0, like test:123")
    add_output_options(parser, "the explanation", is_answer=True)
    given = parser.parse_intermixed_args(arguments)
    if (given.path is None) == (given.row is None):
        raise ConfigError("explain takes a PATH or a --row. Try 'gristmill explain --help'.")
    with signals_held("gristmill.planning.explain"):
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
