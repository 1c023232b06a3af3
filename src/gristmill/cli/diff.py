"""gristmill diff"""

from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for
from gristmill.cli.signals import delay_signals

DIFFERS = 1


def diff(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "diff OLD NEW",
        "List the differences between two datasets: files added, removed, changed, moved between splits, dropped or no "
        "longer dropped; windows and tokens; settings, versions and tokenizer; and the version bump that Croissant's "
        "rules require. The exit code is 0 if the rows are the same, even in different formats, and 1 if they differ.",
    )
    parser.add_argument("before", metavar="OLD", help="the earlier dataset")
    parser.add_argument("after", metavar="NEW", help="the later dataset")
    parser.add_argument(
        "--all", action="store_true", help="list all files, not only the first 10 of each kind of change"
    )
    add_output_options(parser, "the differences", is_answer=True)
    given = parser.parse_args(arguments)
    with delay_signals("gristmill.planning.diff"):
        from gristmill.planning.diff import DEFAULT_EXAMPLES, diff  # noqa: PLC0415 - not needed for --help
        from gristmill.planning.diff_text import difference_json, difference_text  # noqa: PLC0415
    difference = diff(given.before, given.after, examples=None if given.all else DEFAULT_EXAMPLES)
    print(difference_json(difference) if given.json else difference_text(difference))
    return 0 if difference.is_same else DIFFERS
