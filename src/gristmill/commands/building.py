"""gristmill build"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import gristmill
from gristmill.commands.parsing import parse_settings, parser_for, print_summary
from gristmill.configuring import load_config
from gristmill.layout import FILES
from gristmill.loading import signals_held
from gristmill.naming import printable

if TYPE_CHECKING:
    from gristmill.config import Config


def build(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "build SOURCE... --out DIR [options]",
        "Make a training dataset from source code. For example: gristmill build my-repo --out dataset",
    )
    given, values = parse_settings(parser, arguments, "the summary")
    config = load_config(values, given.config)
    with signals_held("gristmill.pipeline"):
        importlib.import_module("gristmill.summary")
    if not given.quiet:
        _advise(config)
    manifest = gristmill.build(config, gristmill.Progress(quiet=given.quiet or given.json))
    print_summary(manifest, config.out, given)
    return 0


def _advise(config: "Config") -> None:
    """A vocabulary is only new to what is held out if both go by the same splits."""
    name = config.tokenizer.name
    is_open = config.split.previous is None and (config.split.fresh or not (Path(config.out) / FILES).is_file())
    if not is_open or not os.path.exists(os.path.expanduser(name)):
        return
    from gristmill.vocabulary.place import splits_beside, splits_word  # noqa: PLC0415 - most builds do without

    if splits_beside(name) is not None:
        word = printable(splits_word(name))
        line = f"this vocabulary was learnt by splits of its own: --splits {word} holds nothing out that it has seen."
        print(f"gristmill: note: {line}", file=sys.stderr)
