"""gristmill prepare, decide, shape and finish: the four steps of a build as commands, for job schedulers."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import gristmill
from gristmill.cli.parsers import parse_settings, parser_for, print_summary
from gristmill.cli.signals import delay_signals
from gristmill.config.config import load_config
from gristmill.core.errors import ConfigError
from gristmill.core.names import counted_units

if TYPE_CHECKING:
    import argparse

    from gristmill.config.config import Config

SAME_OPTIONS = (
    "All four steps take the options of gristmill build. Give every step the same options, preferably in a --config "
    "file. All machines must share the work folder DIR.work."
)


def prepare(arguments: Sequence[str]) -> int:
    given, config = _parsed(
        "prepare", "Step 1 of 4: read, clean and tokenize shard I of N of the files.", arguments, takes_shard=True
    )
    with delay_signals("gristmill.pipeline.separate_steps"):
        from gristmill.pipeline.separate_steps import Shard, prepare_shard  # noqa: PLC0415 - not needed for --help
    shard = Shard.of(given.shard)
    num_batches = prepare_shard(config, shard, _progress(given))
    return _print_result(
        given, {"batches": num_batches}, f"shard {given.shard} prepared: {counted_units(num_batches, 'batches')}"
    )


def decide(arguments: Sequence[str]) -> int:
    given, config = _parsed(
        "decide",
        "Step 2 of 4, on one machine: find duplicates, assign splits, cut shared spans, lay out the output.",
        arguments,
    )
    with delay_signals("gristmill.pipeline.separate_steps"):
        from gristmill.pipeline.separate_steps import decide_all  # noqa: PLC0415
    num_pieces = decide_all(config, _progress(given))
    text = f"decided: the rows are divided into {counted_units(num_pieces, 'pieces')}"
    return _print_result(given, {"pieces": num_pieces}, text)


def shape(arguments: Sequence[str]) -> int:
    given, config = _parsed("shape", "Step 3 of 4: write shard I of N of the rows.", arguments, takes_shard=True)
    with delay_signals("gristmill.pipeline.separate_steps"):
        from gristmill.pipeline.separate_steps import Shard, shape_shard  # noqa: PLC0415
    shard = Shard.of(given.shard)
    num_rows = shape_shard(config, shard, _progress(given))
    return _print_result(given, {"rows": num_rows}, f"shard {given.shard} shaped: {counted_units(num_rows, 'rows')}")


def finish(arguments: Sequence[str]) -> int:
    given, config = _parsed(
        "finish", "Step 4 of 4, on one machine: write digests, files.jsonl and the manifest.", arguments
    )
    with delay_signals("gristmill.pipeline.separate_steps"):
        from gristmill.pipeline.separate_steps import finish_all  # noqa: PLC0415
    manifest = finish_all(config, _progress(given))
    print_summary(manifest, config.out, given)
    return 0


def _parsed(
    name: str, text: str, arguments: Sequence[str], *, takes_shard: bool = False
) -> "tuple[argparse.Namespace, Config]":
    usage = f"{name} SOURCE... --out DIR {'--shard I/N ' if takes_shard else ''}[options]"
    parser = parser_for(usage, f"{text} {SAME_OPTIONS}")
    if takes_shard:
        parser.add_argument(
            "--shard", metavar="I/N", help="shard to process and number of shards, like 3/16; I is counted from 1"
        )
    given, values = parse_settings(parser, arguments, "the result")
    if takes_shard and given.shard is None:
        raise ConfigError(f"{name} needs --shard I/N. Use --shard 1/1 to do this step on one machine.")
    return given, load_config(values, given.config)


def _progress(given: "argparse.Namespace") -> gristmill.Progress:
    return gristmill.Progress(quiet=given.quiet or given.json)


def _print_result(given: "argparse.Namespace", result: dict[str, int], text: str) -> int:
    if given.json:
        print(json.dumps(result))
    elif not given.quiet:
        print(text)
    return 0
