"""gristmill tokenizer train and gristmill tokenizer show"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gristmill
from gristmill.cli.parsers import parse_settings, parse_whole_number, parser_for, planned_out, print_notes
from gristmill.cli.signals import delay_signals
from gristmill.config.config import load_config
from gristmill.config.options import Option, build_command
from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean

if TYPE_CHECKING:
    from gristmill.config.config import Config

PATTERNS = ("cl100k", "qwen2", "gpt2")
TEMPLATES = ("roberta", "none")
DEFAULT_SIZE = 32_000

OUTPUT = Option("--out", "out", "DIR", "new folder for the tokenizer, or a file that ends in .json")
SPLITTING_TOKENIZER = Option(
    "--tokenizer",
    "tokenizer.name",
    "NAME",
    "existing tokenizer for finding duplicates, assigning splits and cutting spans",
)
COMPARED_TOKENIZERS = Option(
    "--tokenizer",
    "tokenizer.name",
    "NAME",
    "tokenizer to compare, as in gristmill build (default: the tokenizer of DATASET, or codebert)",
    is_repeatable=True,
)
SPLITS_FROM = Option("--out", "out", "DIR", "dataset whose splits are used, as in gristmill plan")


def tokenizer(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]][0](arguments[1:])
    parser = parser_for(
        "tokenizer train|show ...",
        "Train a tokenizer on the train split of your code, or count the tokens that several tokenizers need for it.",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "commands:\n"
        + "\n".join(f"  {name:<6} {text}" for name, (_, text) in COMMANDS.items())
        + "\n\nRun 'gristmill tokenizer COMMAND --help' for details."
    )
    if not arguments:
        parser.print_help(sys.stderr)
        return ConfigError.exit_code
    if not arguments[0].startswith("-"):
        hint = did_you_mean(arguments[0], COMMANDS, "Try 'gristmill tokenizer --help'.")
        raise ConfigError(f"unknown command 'tokenizer {arguments[0]}'. {hint}")
    parser.parse_args(arguments)
    return 0


def train(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "tokenizer train SOURCE...|DATASET --out DIR|FILE.json [options]",
        "Train a byte-level BPE tokenizer on the cleaned and redacted files that a build with the same options would "
        "put into train, or on the train split of a DATASET. The splits are written next to the tokenizer, so that a "
        "later build can reuse them. For example: gristmill tokenizer train my-repo --out my-tokenizer",
    )
    group = parser.add_argument_group("vocabulary")
    group.add_argument(
        "--size",
        metavar="N",
        type=parse_whole_number,
        default=DEFAULT_SIZE,
        help=f"number of tokens in the vocabulary (default: {DEFAULT_SIZE})",
    )
    group.add_argument(
        "--pattern",
        metavar="|".join(PATTERNS),
        choices=PATTERNS,
        default=PATTERNS[0],
        help="regular expression that splits text into words; no token spans two words. cl100k splits numbers into "
        "groups of up to three digits, and joins a punctuation mark to the word after it. qwen2 is like cl100k, but "
        "splits numbers into single digits. gpt2 is the expression of CodeBERT (default: cl100k)",
    )
    group.add_argument(
        "--template",
        metavar="|".join(TEMPLATES),
        choices=TEMPLATES,
        default=TEMPLATES[0],
        help="special tokens around each window: <s> and </s> (roberta), or none (default: roberta)",
    )
    instead = {"out": OUTPUT, "tokenizer.name": SPLITTING_TOKENIZER}
    given, values = parse_settings(parser, arguments, "the result", instead)
    if "out" not in values:
        raise ConfigError("no output folder is given. Try: gristmill tokenizer train SOURCE --out my-tokenizer")
    config = load_config(values, given.config)
    with delay_signals("gristmill.lab.vocabulary.train_tokenizer"):
        from gristmill.lab.vocabulary.vocabulary_text import vocabulary_json, vocabulary_text  # noqa: PLC0415 - not needed for --help
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    made = gristmill.train_tokenizer(
        config, given.size, pattern=given.pattern, template=given.template, progress=progress
    )
    command = _build_command(values, config, given.config)
    if given.json:
        print(vocabulary_json(made, command))
    elif not given.quiet:
        print(vocabulary_text(made, config.out, command, sum(progress.seconds.values())))
    print_notes(made.warnings, quiet=given.quiet)
    return 0


def _build_command(values: dict[str, Any], config: "Config", toml: Path | None) -> str:
    """Return the command that builds with the new tokenizer and with the splits that it was trained on."""
    with delay_signals("gristmill.lab.vocabulary.location"):
        from gristmill.lab.vocabulary.corpus import find_dataset_source  # noqa: PLC0415 - not needed for --help
        from gristmill.lab.vocabulary.location import splits_argument  # noqa: PLC0415
    out = values["out"]
    own = {name: value for name, value in values.items() if name not in {"out", "split.fresh"}}
    own |= {"tokenizer.name": out, "split.previous": splits_argument(out)}
    if find_dataset_source(config) is not None:  # a dataset does not record its sources' paths
        return build_command({**own, "sources": ["SOURCE"], "out": "DIR"}, toml)
    planned = planned_out(values.get("sources", ()))
    if load_config(own, toml, out=planned).out == planned:
        own["out"] = planned
    return build_command(own, toml)


def show(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "tokenizer show SOURCE...|DATASET --tokenizer A --tokenizer B ... [options]",
        "Count the tokens that several tokenizers need for the files of a build. The table has the bytes per token by "
        "split and language, the number of windows, and supported features. If gristmill trained one of the "
        "tokenizers, the default splits are those of the first such tokenizer. For example: gristmill tokenizer show "
        "my-repo --tokenizer codebert --tokenizer my-tokenizer",
    )
    instead = {"out": SPLITS_FROM, "tokenizer.name": COMPARED_TOKENIZERS}
    given, values = parse_settings(parser, arguments, "the table", instead, is_answer=True)
    names = values.pop("tokenizer.name", ())
    config = load_config(values, given.config, out=planned_out(values.get("sources", ())))
    with delay_signals("gristmill.lab.vocabulary.compare_tokenizers"):
        from gristmill.lab.vocabulary.vocabulary_text import table_json, tokenizers_text  # noqa: PLC0415 - not needed for --help
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    table = gristmill.compare_tokenizers(config, names, progress=progress)
    print(table_json(table) if given.json else tokenizers_text(table))
    print_notes(table.warnings, quiet=given.quiet)
    return 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train, "train a tokenizer on the train split"),
    "show": (show, "compare the bytes per token of several tokenizers"),
}
