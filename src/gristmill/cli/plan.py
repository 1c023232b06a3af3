"""gristmill plan"""

from collections.abc import Sequence
from typing import Any

import gristmill
from gristmill.cli.parsers import parse_settings, parse_whole_number, parser_for, planned_out, print_notes
from gristmill.cli.signals import delay_signals
from gristmill.config.config import load_config
from gristmill.config.options import build_command


def plan(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "plan SOURCE... [options]",
        "Estimate a build without running it: windows, size and seconds for several overlaps, the share of each "
        "language and folder, dropped files, steps and epochs of a training run, and a recommended overlap. For "
        "example: gristmill plan my-repo --epochs 200 --sequences 11000",
    )
    group = parser.add_argument_group("training run to plan for")
    actions = [
        group.add_argument("--batch-size", metavar="N", type=int, help="windows per training step (default: 32)"),
        group.add_argument(
            "--budget-tokens",
            metavar="N",
            type=parse_whole_number,
            help="number of tokens that the training run processes",
        ),
        group.add_argument(
            "--epochs",
            metavar="N",
            type=float,
            help="instead of --budget-tokens: number of epochs of a known training run; needs --sequences",
        ),
        group.add_argument(
            "--sequences",
            metavar="N",
            type=int,
            help="with --epochs: number of sequences per epoch of that run, each of --window tokens",
        ),
        group.add_argument(
            "--sample", metavar="N", type=int, help="read only about N files, and print margins of error"
        ),
    ]
    given, values = parse_settings(parser, arguments, "the plan", is_answer=True)
    out = planned_out(values.get("sources", ()))
    config = load_config(values, given.config, out=out)
    with delay_signals("gristmill.planning.plan"):
        from gristmill.planning.overlap_choice import PlanOptions  # noqa: PLC0415 - not needed for --help
        from gristmill.planning.plan_text import plan_json, plan_text  # noqa: PLC0415
    options = PlanOptions(**{one.dest: value for one in actions if (value := getattr(given, one.dest)) is not None})
    made = gristmill.plan(config, options, gristmill.Progress(quiet=given.quiet or given.json))
    recommended: dict[str, Any] = {} if made.has_documents else {"window.overlap": made.pick.overlap}
    recommended |= {"output.compress": "zstd"} if made.pick.compress else {}
    if config.out == out:
        recommended["out"] = out
    command = build_command(values | recommended, given.config)
    print(plan_json(made, command) if given.json else plan_text(made, command, config.sampling))
    print_notes(made.warnings, quiet=given.quiet)
    return 0
