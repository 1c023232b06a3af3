"""gristmill tokenizer train, and gristmill tokenizer show"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gristmill
from gristmill.cli.parsers import parse_settings, parser_for, planned_out, print_notes, whole
from gristmill.cli.signals import signals_held
from gristmill.config.config import load_config
from gristmill.config.options import Option, build_line
from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean

if TYPE_CHECKING:
    from gristmill.config.config import Config

PATTERNS = ("cl100k", "qwen2", "gpt2")
TEMPLATES = ("roberta", "none")
DEFAULT_SIZE = 32_000

OUT = Option("--out", "out", "DIR", "the folder to make for the tokenizer, or a file that ends with .json")
DECIDER = Option(
    "--tokenizer", "tokenizer.name", "NAME", "by whose tokens duplicates are found, splits made and spans cut"
)
COMPARED = Option(
    "--tokenizer",
    "tokenizer.name",
    "NAME",
    "one to compare, as in build; 'codebert', or a dataset's own, where none is named",
    repeats=True,
)
COUNTED_FOR = Option("--out", "out", "DIR", "a dataset whose splits count, as in plan")


def tokenizer(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]][0](arguments[1:])
    parser = parser_for(
        "tokenizer train|show ...",
        "Train a vocabulary of your own on the train text of a corpus, or say how many tokens each of several "
        "tokenizers needs for it.",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "commands:\n"
        + "\n".join(f"  {name:<6} {text}" for name, (_, text) in COMMANDS.items())
        + "\n\n'gristmill tokenizer COMMAND --help' tells more."
    )
    if not arguments:
        parser.print_help(sys.stderr)
        return ConfigError.exit_code
    if not arguments[0].startswith("-"):
        hint = did_you_mean(arguments[0], COMMANDS, "Try 'gristmill tokenizer --help'.")
        raise ConfigError(f"there is no command 'tokenizer {arguments[0]}'. {hint}")
    parser.parse_args(arguments)
    return 0


def train(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "tokenizer train SOURCE...|DATASET --out DIR|FILE.json [options]",
        "Train a byte-level BPE vocabulary on train's text alone: what the same options of build would put there, "
        "cleaned, redacted and without what is held out. Beside it lie the splits it went by, for the build that uses "
        "it. A dataset's train split is taken as it is. "
        "For example: gristmill tokenizer train my-repo --out my-tokenizer",
    )
    group = parser.add_argument_group("the vocabulary")
    group.add_argument(
        "--size", metavar="N", type=whole, default=DEFAULT_SIZE, help=f"ids in all (default: {DEFAULT_SIZE})"
    )
    group.add_argument(
        "--pattern",
        metavar="|".join(PATTERNS),
        choices=PATTERNS,
        default=PATTERNS[0],
        help="what splits text into words, which tokens never cross. cl100k: digits by three, and a sign in front goes "
        "with its word; qwen2: the same with each digit apart; gpt2: CodeBERT's (default: cl100k)",
    )
    group.add_argument(
        "--template",
        metavar="|".join(TEMPLATES),
        choices=TEMPLATES,
        default=TEMPLATES[0],
        help="what stands around each window: roberta, <s> and </s>; none, nothing (default: roberta)",
    )
    instead = {"out": OUT, "tokenizer.name": DECIDER}
    given, values = parse_settings(parser, arguments, "what was made", instead)
    if "out" not in values:
        raise ConfigError(
            "no place for the tokenizer was named. Try: gristmill tokenizer train SOURCE --out my-tokenizer"
        )
    config = load_config(values, given.config)
    with signals_held("gristmill.lab.vocabulary.train_tokenizer"):
        from gristmill.lab.vocabulary.vocabulary_text import vocabulary_json, vocabulary_text  # noqa: PLC0415 - --help does without
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
    """The build that keeps what was held out so."""
    with signals_held("gristmill.lab.vocabulary.location"):
        from gristmill.lab.vocabulary.corpus import dataset_in  # noqa: PLC0415 - --help does without
        from gristmill.lab.vocabulary.location import splits_word  # noqa: PLC0415
    out = values["out"]
    own = {name: value for name, value in values.items() if name not in {"out", "split.fresh"}}
    own |= {"tokenizer.name": out, "split.previous": splits_word(out)}
    if dataset_in(config) is not None:  # what that was built from, it does not say
        return build_line({**own, "sources": ["SOURCE"], "out": "DIR"}, toml)
    planned = planned_out(values.get("sources", ()))
    if load_config(own, toml, out=planned).out == planned:
        own["out"] = planned
    return build_line(own, toml)


def show(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "tokenizer show SOURCE...|DATASET --tokenizer A --tokenizer B ... [options]",
        "Say how many tokens each of several tokenizers needs for the text that a build would take: bytes per token by "
        "split and language, windows, and what each can do. The splits are those of the first tokenizer that was "
        "trained here. For example: gristmill tokenizer show my-repo --tokenizer codebert --tokenizer my-tokenizer",
    )
    instead = {"out": COUNTED_FOR, "tokenizer.name": COMPARED}
    given, values = parse_settings(parser, arguments, "the table", instead, is_answer=True)
    names = values.pop("tokenizer.name", ())
    config = load_config(values, given.config, out=planned_out(values.get("sources", ())))
    with signals_held("gristmill.lab.vocabulary.compare_tokenizers"):
        from gristmill.lab.vocabulary.vocabulary_text import table_json, tokenizers_text  # noqa: PLC0415 - --help does without
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    table = gristmill.compare_tokenizers(config, names, progress=progress)
    print(table_json(table) if given.json else tokenizers_text(table))
    print_notes(table.warnings, quiet=given.quiet)
    return 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "train": (train, "train a vocabulary on the train text of a corpus"),
    "show": (show, "bytes per token of several tokenizers on a corpus, side by side"),
}
