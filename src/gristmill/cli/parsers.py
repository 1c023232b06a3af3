"""Argument parsing shared by the commands: one-line errors, common options, and conversion of option values."""

import argparse
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from gristmill.config.options import NO_REPLACEMENTS, Option, add_options, all_options
from gristmill.config.settings import MIDDLES, NO_FIM_VARIANT, REWRITE_WAYS
from gristmill.core.errors import ConfigError
from gristmill.core.names import did_you_mean, printable
from gristmill.core.records import VariantKind

if TYPE_CHECKING:
    from gristmill.core.manifest import Manifest


MAX_ROW_DIGITS = 18
DEFAULT_RATE = 0.5
"""Rate of a variant in --variants, if no rate is given."""


SUFFIX_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
"""Suffixes that people append to a number, with their factors."""


class Parser(argparse.ArgumentParser):
    """Argument parser that raises ConfigError with one line: what is wrong, what was given, and what to do."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.register("type", int, parse_whole_number)
        self.register("type", float, parse_number)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(self._reworded(message))

    def _reworded(self, message: str) -> str:
        kind, _, rest = message.partition(": ")
        if kind == "unrecognized arguments":
            word = rest.split(" ", 1)[0]
            if word.startswith("-"):
                flags = [flag for action in self._actions for flag in action.option_strings]
                return f"unknown option {word!r}. {did_you_mean(word.partition('=')[0], flags, self._advice)}"
            return f"{self._command} does not take the argument {word!r}. Usage: {self.usage}"
        if kind == "the following arguments are required":
            return f"{self._command} needs {rest.replace(', ', ' and ')}. Usage: {self.usage}"
        if kind.startswith("argument "):
            return self._about_argument(kind.removeprefix("argument "), rest)
        return f"{message[0].lower()}{message[1:]}. {self._advice}"

    def _about_argument(self, name: str, what: str) -> str:
        """Reword an argparse error. `name` is the name that argparse prints, such as `-q/--quiet`."""
        flag = max(name.split("/"), key=len)
        action = next((one for one in self._actions if flag in (*one.option_strings, one.metavar, one.dest)), None)
        if what.startswith("expected ") and action is not None:
            value = action.metavar or action.dest.upper()
            return f"{flag} needs a value: {flag} {value}, or {flag}={value} if the value begins with a dash."
        if found := re.match(r"invalid choice: (.*) \(choose from", what, re.DOTALL):
            words = ", ".join(map(str, (action and action.choices) or ()))
            return f"{flag} must be one of {words}, got {found[1]}."
        if what.startswith("ignored explicit argument "):
            return f"{flag} takes no value, got {what.removeprefix('ignored explicit argument ')}."
        if what.startswith("not allowed with argument "):
            return (
                f"{flag} and {what.removeprefix('not allowed with argument ')} contradict each other. Use one of them."
            )
        return f"{flag} {what}"

    @property
    def _command(self) -> str:
        return self.prog.removeprefix("gristmill ")

    @property
    def _advice(self) -> str:
        return f"Try '{self.prog} --help'."


def parser_for(usage: str, text: str) -> Parser:
    """Create the parser of a command. `usage` begins with the command's name, as in `tokenizer train SOURCE...`."""
    words = takewhile(lambda word: word.isalpha() and word.islower(), usage.split())
    parser = Parser(
        prog=" ".join(("gristmill", *words)),
        usage=f"gristmill {usage}",
        description=text,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this help and exit")
    return parser


def parse_settings(
    parser: "Parser",
    arguments: Sequence[str],
    what: str,
    instead: Mapping[str, Option] = NO_REPLACEMENTS,
    *,
    is_answer: bool = False,
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse the sources and options of a build.

    Returns all parsed arguments, and the given settings by name. `instead` maps settings to the options that replace
    their usual options. `what` and `is_answer` are passed to `add_output_options`.
    """
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="*",
        help="folder, git repository, file, table, git URL, or address like s3://…; repeatable",
    )
    add_options(parser, instead)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="read settings from a TOML file; options override its settings"
    )
    add_output_options(parser, what, is_answer=is_answer)
    given = parse_intermixed(parser, arguments)
    values = {option.setting: getattr(given, option.setting) for option in all_options()}
    values |= {"sources": given.sources or None, "run.workers": worker_count(values["run.workers"])}
    values["sampling.weights"] = weights_of(values["sampling.weights"])
    values["fim.middles"] = middles_of(values["fim.middles"])
    values["output.formats"] = words_of(values["output.formats"])
    named = values["variants.rates"]
    values |= {"variants.rates": rates_of(named), "rewrite.way": way_of(named)}
    return given, {name: value for name, value in values.items() if value is not None}


def row_number(text: str) -> int | None:
    """Parse a row number of at most MAX_ROW_DIGITS digits. Return None for any other text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_ROW_DIGITS
    return int(text) if is_number else None


def parse_intermixed(parser: "Parser", arguments: Sequence[str]) -> argparse.Namespace:
    """Parse sources and options, which may be mixed. Arguments after `--` are sources."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_intermixed_args(arguments[:cut])
    given.sources += arguments[cut + 1 :]
    return given


def add_output_options(parser: "Parser", what: str, *, is_answer: bool = False) -> None:
    """Add --quiet and --json. `what` names the output. If `is_answer`, --quiet prints the output too."""
    quiet = f"print only {what}, without progress and notes" if is_answer else "print nothing but errors"
    parser.add_argument("-q", "--quiet", action="store_true", help=quiet)
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, for scripts")


def print_summary(manifest: "Manifest", out: str, given: argparse.Namespace) -> None:
    from gristmill.pipeline.summary import summary_json, summary_text  # noqa: PLC0415 - not needed for --help

    if given.json:
        print(summary_json(manifest, out))
    elif not given.quiet:
        print(summary_text(manifest, out))
    print_notes(manifest.warnings, quiet=given.quiet)


def print_notes(warnings: Sequence[str], *, quiet: bool) -> None:
    for warning in () if quiet else warnings:
        print(f"gristmill: note: {printable(warning)}", file=sys.stderr)


def planned_out(sources: Sequence[str]) -> str:
    """Suggest an output folder that is named after the first source."""
    name = os.path.basename(os.path.realpath(os.path.expanduser(sources[0]))) if sources else ""
    return f"{name}-dataset" if name else "dataset"


def parse_whole_number(text: str) -> int:
    """Parse a whole number such as `2000000000` or `2e9`."""
    try:
        return int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not value.is_integer():
            raise argparse.ArgumentTypeError(
                f"takes a whole number, like 20000 or 2e4, got {text!r}.{_suggestion(text)}"
            ) from None
        return int(value)


def parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a number, like 0.5 or 20, got {text!r}.{_suggestion(text)}") from None


def _suggestion(text: str) -> str:
    """Return a suggestion for a number with a suffix: `5k` -> " Try 5000."."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([kmgb])", text.strip(), re.IGNORECASE | re.ASCII)
    return f" Try {float(found[1]) * SUFFIX_FACTORS[found[2].lower()]:.0f}." if found else ""


def worker_count(text: str | None) -> int | Literal["auto"] | None:
    if text is None:
        return None
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise ConfigError(f"--workers takes 'auto' or a number, got {text!r}.") from None


def weights_of(texts: Sequence[str] | None) -> dict[str, float] | None:
    """Parse the values of --weight: `src/**=3` -> {"src/**": 3.0}."""
    weights: dict[str, float] = {}
    for text in texts or ():
        what, _, number = text.rpartition("=")
        try:
            weights.pop(what, None)  # a repeated pattern moves to the end, because the last match decides
            weights[what] = float(number)
        except ValueError:
            what = ""
        if not what:
            raise ConfigError(f"--weight takes WHAT=N, like 'src/**=3' or language:rust=2, got {text!r}.")
    return weights or None


def words_of(texts: Sequence[str] | None) -> list[str] | None:
    """Split values at commas: `["parquet,bin", "mds"]` -> ["parquet", "bin", "mds"]."""
    return [word.strip() for text in texts for word in text.split(",")] if texts else None


def way_of(texts: Sequence[str] | None) -> str | None:
    """Return the setting rewrite.way from --variants.

    The variant `paraphrase=0.2` means `rewrite=0.2` with `rewrite.way = "paraphrase"`.
    """
    kinds = [word.partition("=")[0] for word in words_of(texts) or ()]
    ways = {REWRITE_WAYS[kind] for kind in kinds if kind in REWRITE_WAYS}
    if len(ways) > 1:
        raise ConfigError(
            f"--variants names {' and '.join(sorted(ways))}, but a build can use only one of the two. Omit one."
        )
    return next(iter(ways), None)


def rates_of(texts: Sequence[str] | None) -> dict[str, float] | None:
    """Parse the values of --variants: `rename,noise=0.9` -> {"rename": 0.5, "noise": 0.9}."""
    rates: dict[str, float] = {}
    for text in ",".join(texts or ()).split(",") if texts else ():
        kind, has_rate, number = text.strip().partition("=")
        kind = VariantKind.REWRITE if kind in REWRITE_WAYS else kind
        if kind == "fim":
            raise ConfigError(f"--variants fim: {NO_FIM_VARIANT}")
        if kind not in list(VariantKind):
            known = [*map(str, VariantKind), *(way for way in REWRITE_WAYS if "_" not in way)]
            hint = did_you_mean(kind, known, "Try --variants rename.")
            raise ConfigError(f"--variants takes {', '.join(VariantKind)}, got {kind!r}. {hint}")
        try:
            rates[kind] = float(number) if has_rate else DEFAULT_RATE
        except ValueError:
            raise ConfigError(f"--variants takes KIND or KIND=RATE, like rename=0.5, got {text!r}.") from None
    return rates or None


def middles_of(texts: Sequence[str] | None) -> dict[str, float] | None:
    """Parse the values of --fim-middles: `syntax,lines=0.5` -> {"syntax": 1.0, "lines": 0.5}."""
    shares: dict[str, float] = {}
    for word in words_of(texts) or ():
        kind, has_share, number = word.partition("=")
        if kind not in MIDDLES:
            hint = did_you_mean(kind, list(MIDDLES), "Try --fim-middles syntax.")
            raise ConfigError(f"--fim-middles takes {', '.join(MIDDLES)}, got {kind!r}. {hint}")
        try:
            shares[kind] = float(number) if has_share else 1.0
        except ValueError:
            raise ConfigError(f"--fim-middles takes KIND or KIND=SHARE, like syntax=0.5, got {word!r}.") from None
    return shares or None
