"""gristmill build"""

from collections.abc import Sequence

import gristmill
from gristmill.commands.parsing import parse_settings, parser_for, print_notes, signals_held
from gristmill.configuring import load_config


def build(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "build SOURCE... --out DIR [options]",
        "Make a training dataset from source code. For example: gristmill build my-repo --out dataset",
    )
    given, values = parse_settings(parser, arguments, "the summary")
    config = load_config(values, given.config)
    with signals_held("gristmill.pipeline"):
        from gristmill.summary import summary_json, summary_text  # noqa: PLC0415 - --help does without
    manifest = gristmill.build(config, gristmill.Progress(quiet=given.quiet or given.json))
    if given.json:
        print(summary_json(manifest, config.out))
    elif not given.quiet:
        print(summary_text(manifest, config.out))
    print_notes(manifest.warnings, quiet=given.quiet)
    return 0
