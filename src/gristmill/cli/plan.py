"""gristmill plan"""

from collections.abc import Sequence
from typing import Any

import gristmill
from gristmill.cli.parsers import parse_settings, parser_for, planned_out, print_notes, whole
from gristmill.cli.signals import signals_held
from gristmill.config.config import load_config
from gristmill.config.options import build_line


def plan(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "plan SOURCE... [options]",
        "Say what a build would give, before building: windows, sizes and seconds for several overlaps, what each "
        "language and folder brings, what is taken out, what training on it means, and which overlap to take. "
        "For example: gristmill plan my-repo --epochs 200 --sequences 11000",
    )
    group = parser.add_argument_group("what to plan for")
    asked = [
        group.add_argument("--batch-size", metavar="N", type=int, help="windows in a step (default: 32)"),
        group.add_argument("--budget-tokens", metavar="N", type=whole, help="how many ids the training goes through"),
        group.add_argument(
            "--epochs", metavar="N", type=float, help="epochs of another training, whose number of ids is the budget"
        ),
        group.add_argument(
            "--sequences", metavar="N", type=int, help="sequences in each of those epochs, each as long as --window"
        ),
        group.add_argument(
            "--sample", metavar="N", type=int, help="read only about N files, and say how far off that may be"
        ),
    ]
    given, values = parse_settings(parser, arguments, "the plan", is_answer=True)
    out = planned_out(values.get("sources", ()))
    config = load_config(values, given.config, out=out)
    with signals_held("gristmill.planning.plan"):
        from gristmill.planning.overlap_choice import PlanOptions  # noqa: PLC0415 - --help does without
        from gristmill.planning.plan_text import plan_json, plan_text  # noqa: PLC0415
    wanted = PlanOptions(**{one.dest: value for one in asked if (value := getattr(given, one.dest)) is not None})
    made = gristmill.plan(config, wanted, gristmill.Progress(quiet=given.quiet or given.json))
    picked: dict[str, Any] = {} if made.has_documents else {"window.overlap": made.pick.overlap}
    picked |= {"output.compress": "zstd"} if made.pick.compress else {}
    if config.out == out:
        picked["out"] = out
    command = build_line(values | picked, given.config)
    print(plan_json(made, command) if given.json else plan_text(made, command, config.sampling))
    print_notes(made.warnings, quiet=given.quiet)
    return 0
