"""gristmill show"""

import sys
from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for, row_number
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError
from gristmill.core.records import Split

ASCII_REPLACEMENTS: dict[str, str | int | None] = {"│": "|", "«": "<<", "»": ">>", "↵": "$", "⟨": "{", "⟩": "}"}
"""Replacements for special characters, for streams that cannot encode them."""


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
    parser.add_argument("--row", metavar="[SPLIT:]N", help="row number, as an option instead of an argument")
    parser.add_argument("--split", choices=[*map(str, Split)], help="split of the row (default: train)")
    parser.add_argument("--ids", action="store_true", help="print the id after each token")
    parser.add_argument(
        "--no-color", action="store_true", help="mark token boundaries with characters instead of colors"
    )
    add_output_options(parser, "the row", is_answer=True)
    given = parser.parse_intermixed_args(arguments)
    if given.place is not None and given.row is not None:
        raise ConfigError(f"{given.place!r} and --row {given.row} both name a row. Omit one of them.")
    split, number = _parse_row(given.place or given.row or "0", given.split)
    with delay_signals("gristmill.views.row_text"):
        import msgspec  # noqa: PLC0415 - not needed for --help
        from rich.console import Console  # noqa: PLC0415

        from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415
        from gristmill.views.row import view_row  # noqa: PLC0415
        from gristmill.views.row_text import row_text  # noqa: PLC0415
    row_view = view_row(open_dataset(given.folder), split, number)
    if given.json:
        print(msgspec.json.encode(row_view).decode())
        return 0
    console = Console(file=sys.stdout)  # honors NO_COLOR, FORCE_COLOR, TERM and COLUMNS
    use_color = console.color_system is not None and not console.no_color and not given.no_color
    print(_encodable(row_text(row_view, color=use_color, width=console.width, ids=given.ids)), end="")
    return 0


def _parse_row(text: str, split: str | None) -> tuple[str, int]:
    split_name, _, digits = text.rpartition(":")
    number = row_number(digits)
    if number is None:
        raise ConfigError(f"a row must be a number, or a split and a number like test:12, got {text!r}.")
    if split_name and split and split_name != split:
        raise ConfigError(f"the row {text} and --split {split} name different splits. Omit one of them.")
    return split_name or split or str(Split.TRAIN), number


def _encodable(text: str) -> str:
    try:
        "".join(ASCII_REPLACEMENTS).encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(str.maketrans(ASCII_REPLACEMENTS))
    return text
