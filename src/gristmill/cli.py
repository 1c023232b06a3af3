"""Words on the command line -> Config -> one library call; errors -> one line and an exit code.

0 done · 1 a check failed · 2 usage or configuration · 3 input or output · 4 not a dataset, or damaged
70 a fault of ours · 130 interrupted
"""

import argparse
import difflib
import importlib
import io
import os
import signal
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NoReturn

import gristmill
from gristmill.configuring import load_config
from gristmill.errors import ConfigError, GristmillError, OutputError
from gristmill.naming import printable, shell_word
from gristmill.options import add_options, all_options, build_line

ANSWER_IS_NO = 1
LONGEST_ROW_DIGITS = 18
INTERRUPTED = 130
OUR_FAULT = 70


def build(arguments: Sequence[str]) -> int:
    parser = _parser(
        "build SOURCE... --out DIR [options]",
        "Make a training dataset from source code. For example: gristmill build my-repo --out dataset",
    )
    given, values = _parse_settings(parser, arguments, "the summary")
    config = load_config(values, given.config)
    with _signals_held("gristmill.pipeline"):
        from gristmill.summary import summary_json, summary_text  # noqa: PLC0415 - --help does without
    manifest = gristmill.build(config, gristmill.Progress(quiet=given.quiet or given.json))
    if given.json:
        print(summary_json(manifest, config.out))
    elif not given.quiet:
        print(summary_text(manifest, config.out))
    _print_notes(manifest.warnings, quiet=given.quiet)
    return 0


def _parse_settings(
    parser: "_Parser", arguments: Sequence[str], what: str
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """What `build` and `plan` take: all that was given, and by name those settings that were."""
    parser.add_argument("sources", metavar="SOURCE", nargs="*", help="folders, git work trees or single files")
    add_options(parser)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="settings from a TOML file; options come on top of it"
    )
    _add_output_options(parser, what)
    given = _parse_intermixed(parser, arguments)
    values = {option.setting: getattr(given, option.setting) for option in all_options()}
    values |= {"sources": given.sources or None, "run.workers": _workers(values["run.workers"])}
    return given, {name: value for name, value in values.items() if value is not None}


def _parse_intermixed(parser: "_Parser", arguments: Sequence[str]) -> argparse.Namespace:
    """Sources anywhere between options; what follows `--` is one, whatever it looks like."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    given = parser.parse_intermixed_args(arguments[:cut])
    given.sources += arguments[cut + 1 :]
    return given


def plan(arguments: Sequence[str]) -> int:
    parser = _parser(
        "plan SOURCE... [options]",
        "Say what a build would give, before building: windows, sizes and seconds for several overlaps, what each "
        "language and folder brings, what is taken out, what training on it means, and which overlap to take. "
        "For example: gristmill plan my-repo --epochs 200 --sequences 11000",
    )
    group = parser.add_argument_group("what to plan for")
    asked = [
        group.add_argument("--batch-size", metavar="N", type=int, help="windows in a step (default: 32)"),
        group.add_argument("--budget-tokens", metavar="N", type=_whole, help="how many ids the training goes through"),
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
    given, values = _parse_settings(parser, arguments, "the plan")
    planned_out = _planned_out(values.get("sources", ()))
    config = load_config(values, given.config, out=planned_out)
    with _signals_held("gristmill.planning.plan"):
        from gristmill.planning.budget import Wanted  # noqa: PLC0415 - --help does without
        from gristmill.planning.telling import plan_json, plan_text  # noqa: PLC0415
    wanted = Wanted(**{one.dest: value for one in asked if (value := getattr(given, one.dest)) is not None})
    made = gristmill.plan(config, wanted, gristmill.Progress(quiet=given.quiet or given.json))
    picked: dict[str, Any] = {"window.overlap": made.pick.overlap}
    picked |= {"output.compress": "zstd"} if made.pick.compress else {}
    if config.out == planned_out:
        picked["out"] = planned_out
    command = build_line(values | picked, given.config)
    if given.json:
        print(plan_json(made, command))
    elif not given.quiet:
        print(plan_text(made, command))
    _print_notes(made.warnings, quiet=given.quiet)
    return 0


def _planned_out(sources: Sequence[str]) -> str:
    """Where a planned build would go, if nobody says: a folder for each source, so that none takes another's place."""
    name = os.path.basename(os.path.realpath(os.path.expanduser(sources[0]))) if sources else ""
    return f"{name}-dataset" if name else "dataset"


def _print_notes(warnings: Sequence[str], *, quiet: bool) -> None:
    for warning in () if quiet else warnings:
        print(f"gristmill: note: {printable(warning)}", file=sys.stderr)


def check(arguments: Sequence[str]) -> int:
    parser = _parser(
        "check DIR [--source SOURCE]...",
        "Verify a finished dataset from its files alone: digests, rows, windows, splits that do not leak, secrets. "
        "Prints a table, writes DIR/check.json, and answers 1 if anything fails.",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "--source",
        metavar="SOURCE",
        action="append",
        default=[],
        help="also compare the windows with the source they were built from; repeatable, in the order of the build",
    )
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    _add_output_options(parser, "the report")
    given = parser.parse_args(arguments)
    with _signals_held("gristmill.checking.check"):
        from gristmill.checking.result import report_json, report_text  # noqa: PLC0415 - --help does without
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    workers = _workers(given.workers) or "auto"
    report = gristmill.check(given.folder, given.source, progress=progress, workers=workers)
    if given.json:
        print(report_json(report))
    elif not given.quiet:
        print(report_text(report))
    if not report.written:
        print(f"gristmill: note: check.json could not be written into {printable(given.folder)}.", file=sys.stderr)
    return 0 if report.ok else ANSWER_IS_NO


def bench(arguments: Sequence[str]) -> int:
    from gristmill.bench.methods import METHODS  # noqa: PLC0415 - no other command needs them

    parser = _parser(
        "bench [SOURCE] [options]",
        "Measure what each way of making the dataset costs and gives, on your code and your machine: the plain script "
        "that people have, threads, batches in processes, Hugging Face datasets, gristmill with and without each of "
        "its steps, and the floor. Prints tables and writes a page with a chart. "
        "For example: gristmill bench my-repo --sample 300",
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = textwrap.fill(parser.description or "", 80)
    parser.epilog = "methods:\n" + "\n".join(f"  {method.name:<30} {method.what}" for method in METHODS)
    parser.add_argument(
        "sources", metavar="SOURCE", nargs="*", help="a folder or a file (default: Python's standard library)"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        default="bench.md",
        help="the page to write (default: bench.md); its chart lies beside it",
    )
    parser.add_argument(
        "--runs", metavar="N", type=int, default=1, help="time each method so often; medians are told (default: 1)"
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="run only this method (see below); repeatable"
    )
    parser.add_argument("--sample", metavar="N", type=int, help="give the slow methods only N files, and say so")
    parser.add_argument(
        "--expand-to",
        metavar="N",
        type=int,
        help="rows the plain script copies up to (default: 2.75 times what there are)",
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="leave each method's output there as a dataset that open_dataset reads"
    )
    parser.add_argument("--tokenizer", metavar="NAME", default="codebert", help="as in build (default: codebert)")
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    _add_output_options(parser, "the result")
    given = _parse_intermixed(parser, arguments)
    if len(given.sources) > 1:
        raise ConfigError(f"bench takes one SOURCE, got {len(given.sources)}.")
    with _signals_held("gristmill.bench.bench"):
        from gristmill.bench.bench import Asked, bench  # noqa: PLC0415 - --help does without
        from gristmill.bench.page import Page  # noqa: PLC0415
        from gristmill.bench.telling import bench_json, bench_text  # noqa: PLC0415
    page = Page(given.out)  # refuses at once what it must not overwrite
    names = ("runs", "only", "sample", "expand_to", "keep", "tokenizer")
    asked = Asked(**{name: getattr(given, name) for name in names}, workers=_workers(given.workers) or "auto")
    command = " ".join(shell_word(word) for word in ("gristmill", "bench", *arguments))
    result = bench(
        next(iter(given.sources), None),
        asked,
        progress=gristmill.Progress(quiet=given.quiet or given.json),
        command=command,
    )
    page.write(result)
    if given.json:
        print(bench_json(result))
    elif not given.quiet:
        print(bench_text(result))
        print(f"page     {printable(given.out)} and {printable(page.chart.name)} beside it")
    return 0


def explain(arguments: Sequence[str]) -> int:
    parser = _parser(
        "explain DIR PATH[:LINE] | DIR --row SPLIT:N",
        "Say why a file is in a dataset, out of it, or in its split: rules with value and limit, licence, twin, "
        "redactions, cuts and windows; or which file and lines a row shows. "
        "For example: gristmill explain dataset src/app.py:120",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "path", metavar="PATH[:LINE]", nargs="?", help="a file by its path, the end of it, or repo/path"
    )
    parser.add_argument("--row", metavar="SPLIT:N", help="a row by its number, counted from 0, like test:123")
    _add_output_options(parser, "the explanation")
    given = parser.parse_intermixed_args(arguments)
    if (given.path is None) == (given.row is None):
        raise ConfigError("explain takes a PATH or a --row. Try 'gristmill explain --help'.")
    with _signals_held("gristmill.explaining"):
        from gristmill.explaining import explain_row, explanation_json, explanation_text  # noqa: PLC0415
    if given.row is None:
        explained = gristmill.explain(given.folder, given.path)
    else:
        split, _, number = given.row.partition(":")
        if not number.isascii() or not number.isdecimal() or len(number) > LONGEST_ROW_DIGITS:
            raise ConfigError(f"--row takes a split and a number, like test:123, got {given.row!r}.")
        explained = explain_row(given.folder, split, int(number))
    if not given.quiet:
        print(explanation_json(explained) if given.json else explanation_text(explained))
    return 0


def _add_output_options(parser: "_Parser", what: str) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON, for scripts")


COMMANDS = {
    "plan": (plan, "say what a build would give: how many, how large, how long, how many epochs"),
    "build": (build, "make a training dataset from source code"),
    "check": (check, "verify a finished dataset: is it what it says it is"),
    "bench": (bench, "what each way of making the dataset costs and gives, measured here"),
    "explain": (explain, "why a file is in, out or in its split; where a row comes from"),
}


def _top(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]][0](arguments[1:])
    parser = _Parser(
        prog="gristmill",
        usage="gristmill COMMAND ...",
        description="Turns your own source code into a training dataset for code models: fast, clean, and provably so.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<8} {text}" for name, (_, text) in COMMANDS.items())
        + "\n\n'gristmill COMMAND --help' tells more.",
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument(
        "--version", action="version", version=f"gristmill {gristmill.__version__}", help="show the version"
    )
    if not arguments:
        parser.print_help(sys.stderr)
        return ConfigError.exit_code
    if not arguments[0].startswith("-"):
        raise ConfigError(f"there is no command {arguments[0]!r}. {_nearest(arguments[0], COMMANDS)}")
    parser.parse_args(arguments)
    return 0


class _Parser(argparse.ArgumentParser):
    """Complains as everything else does: one line, with the way out."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if message.startswith("unrecognized") and unknown[0].startswith("-"):
            flags = [flag for action in self._actions for flag in action.option_strings]
            raise ConfigError(f"there is no option {unknown[0]!r}. {_nearest(unknown[0], flags)}")
        raise ConfigError(f"{message[0].lower()}{message[1:]}. Try '{self.prog} --help'.")


def _nearest(word: str, known: Sequence[str] | dict[str, Any]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean {near[0]!r}?" if near else "Try --help."


def _parser(usage: str, text: str) -> _Parser:
    parser = _Parser(
        prog=f"gristmill {usage.partition(' ')[0]}",
        usage=f"gristmill {usage}",
        description=text,
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    return parser


def _whole(text: str) -> int:
    """`2000000000`, or `2e9`."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _workers(text: str | None) -> int | Literal["auto"] | None:
    if text is None:
        return None
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise ConfigError(f"--workers takes 'auto' or a number, got {text!r}.") from None


def main() -> None:
    """The `gristmill` command."""
    # A closed stream, or one that cannot show a name, must not end a build that is done.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A scheduler's polite end is handled like Ctrl-C: cleared up, and said.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """One call of the command line -> its exit code."""
    try:
        code = _top(arguments)
        sys.stdout.flush()
    except SystemExit as ended:  # --help and --version
        return int(ended.code or 0)
    except GristmillError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing half-written was left behind.", INTERRUPTED)
    except OSError as error:
        # What is left of the output goes nowhere. That its reader has gone (`| head`) is no fault.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            return 0
        return _fail(f"cannot write the output: {error.strerror}.", OutputError.exit_code)
    except Exception:  # noqa: BLE001 - the last resort, which must name itself as a fault of ours
        traceback.print_exc()
        return _fail("this is a fault in gristmill, please report it with the lines above.", OUR_FAULT)
    return code


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        print(f"gristmill: {printable(message)}", file=sys.stderr, flush=True)
    return code


@contextmanager
def _signals_held(module: str) -> Iterator[None]:
    """Ctrl-C in the middle of loading a C extension would crash the interpreter: it waits until that is done."""
    held = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        importlib.import_module(module)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)


if __name__ == "__main__":
    main()
