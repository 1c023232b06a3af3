"""gristmill show"""

import sys
from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for, row_number
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.records import Split

PLAIN_SIGNS: dict[str, str | int | None] = {"│": "|", "«": "<<", "»": ">>", "↵": "$", "⟨": "{", "⟩": "}"}
"""For a stream that cannot take the others."""


def show(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "show DIR [N | SPLIT:N] [options]",
        "Show one row of a dataset as its model sees it: token by token, with syntax, special tokens, and what the "
        "neighbouring windows of the file show too. For example: gristmill show dataset test:12",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "place", metavar="[SPLIT:]N", nargs="?", help="which row, counted from 0, like 12 or test:12; default: 0"
    )
    parser.add_argument("--row", metavar="[SPLIT:]N", help="the same")
    parser.add_argument("--split", choices=[*map(str, Split)], help="which rows are counted; default: train")
    parser.add_argument("--ids", action="store_true", help="with the id of each token behind it")
    parser.add_argument("--no-colour", "--no-color", action="store_true", help="signs between tokens, and no colours")
    add_output_options(parser, "the row", is_answer=True)
    given = parser.parse_intermixed_args(arguments)
    if given.place is not None and given.row is not None:
        raise ConfigError(f"{given.place!r} and --row {given.row} both name a row. Leave out one of them.")
    split, number = _row(given.place or given.row or "0", given.split)
    with signals_held("gristmill.views.row_text"):
        import msgspec  # noqa: PLC0415 - --help does without
        from rich.console import Console  # noqa: PLC0415

        from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415
        from gristmill.views.row import look_at  # noqa: PLC0415
        from gristmill.views.row_text import row_text  # noqa: PLC0415
    look = look_at(open_dataset(given.folder), split, number)
    if given.json:
        print(msgspec.json.encode(look).decode())
        return 0
    console = Console(file=sys.stdout)  # it knows of NO_COLOR, FORCE_COLOR, TERM and COLUMNS
    colour = console.color_system is not None and not console.no_color and not given.no_colour
    print(_encodable(row_text(look, colour=colour, width=console.width, ids=given.ids)), end="")
    return 0


def _row(asked: str, split: str | None) -> tuple[str, int]:
    named, _, digits = asked.rpartition(":")
    number = row_number(digits)
    if number is None:
        raise ConfigError(f"a row is a number, or a split and a number, like test:12, got {asked!r}.")
    if named and split and named != split:
        raise ConfigError(f"--row {asked} and --split {split} name two splits. Leave out one of them.")
    return named or split or str(Split.TRAIN), number


def _encodable(text: str) -> str:
    try:
        "".join(PLAIN_SIGNS).encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(str.maketrans(PLAIN_SIGNS))
    return text
