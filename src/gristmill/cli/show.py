"""gristmill show"""

import sys
from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for, row_number
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.records import Split

ASCII_SIGNS: dict[str, str | int | None] = {"│": "|", "«": "<<", "»": ">>", "↵": "$", "⟨": "{", "⟩": "}"}
"""Replacements for streams that cannot encode the originals."""


def show(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "show DIR [N | SPLIT:N] [options]",
        "Print one row of a dataset as the model sees it: token by token, with syntax colors, special tokens, and the "
        "parts that neighboring windows share. For example: gristmill show dataset test:12",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument(
        "place", metavar="[SPLIT:]N", nargs="?", help="row number, counted from 0, like 12 or test:12 (default: 0)"
    )
    parser.add_argument("--row", metavar="[SPLIT:]N", help="row number, like the argument")
    parser.add_argument("--split", choices=[*map(str, Split)], help="split of the row (default: train)")
    parser.add_argument("--ids", action="store_true", help="print the id after each token")
    parser.add_argument(
        "--no-colour", "--no-color", action="store_true", help="separate tokens by signs instead of colors"
    )
    add_output_options(parser, "the row", is_answer=True)
    given = parser.parse_intermixed_args(arguments)
    if given.place is not None and given.row is not None:
        raise ConfigError(f"{given.place!r} and --row {given.row} both name a row. Omit one of them.")
    split, number = _row(given.place or given.row or "0", given.split)
    with signals_held("gristmill.views.row_text"):
        import msgspec  # noqa: PLC0415 - not needed for --help
        from rich.console import Console  # noqa: PLC0415

        from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415
        from gristmill.views.row import view_row  # noqa: PLC0415
        from gristmill.views.row_text import row_text  # noqa: PLC0415
    look = view_row(open_dataset(given.folder), split, number)
    if given.json:
        print(msgspec.json.encode(look).decode())
        return 0
    console = Console(file=sys.stdout)  # honors NO_COLOR, FORCE_COLOR, TERM and COLUMNS
    colour = console.color_system is not None and not console.no_color and not given.no_colour
    print(_encodable(row_text(look, color=colour, width=console.width, ids=given.ids)), end="")
    return 0


def _row(asked: str, split: str | None) -> tuple[str, int]:
    named, _, digits = asked.rpartition(":")
    number = row_number(digits)
    if number is None:
        raise ConfigError(f"a row is a number, or a split and a number like test:12, got {asked!r}.")
    if named and split and named != split:
        raise ConfigError(f"--row {asked} and --split {split} name different splits. Omit one of them.")
    return named or split or str(Split.TRAIN), number


def _encodable(text: str) -> str:
    try:
        "".join(ASCII_SIGNS).encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(str.maketrans(ASCII_SIGNS))
    return text
