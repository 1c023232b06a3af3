"""gristmill build"""

import importlib
from collections.abc import Sequence

import gristmill
from gristmill.commands.parsing import parse_settings, parser_for, print_summary
from gristmill.configuring import load_config
from gristmill.loading import signals_held


def build(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "build SOURCE... --out DIR [options]",
        "Make a training dataset from source code. For example: gristmill build my-repo --out dataset",
    )
    given, values = parse_settings(parser, arguments, "the summary")
    config = load_config(values, given.config)
    with signals_held("gristmill.pipeline"):
        importlib.import_module("gristmill.summary")
    manifest = gristmill.build(config, gristmill.Progress(quiet=given.quiet or given.json))
    print_summary(manifest, config.out, given)
    return 0
