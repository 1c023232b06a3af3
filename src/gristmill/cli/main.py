"""Words on the command line -> Config -> one library call; errors -> one line and an exit code.

0 done · 1 a check failed, or two datasets differ · 2 usage or configuration · 3 input or output
4 not a dataset, or damaged · 5 a training that cannot go on · 70 a fault of ours · 130 interrupted
"""

import argparse
import importlib
import io
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError, GristmillError, OutputError
from gristmill.core.names import did_you_mean, printable
from gristmill.core.plain_files import open_plain
from gristmill.core.version import __version__

ADVICE = "Try 'gristmill --help'."
ZEN_3_AND_4 = re.compile(rb"AuthenticAMD\ncpu family\s*: 25\n")
AVX_512 = "X86_V4 AVX512_ICL AVX512_SPR"
"""As numpy 2.4 names it; for an older one these are nothing."""
CPUINFO_BYTES = 200
INTERRUPTED = 130
OUR_FAULT = 70

COMMANDS = {
    "plan": ("plan", "say what a build would give: how many, how large, how long, how many epochs"),
    "build": ("build", "make a training dataset from source code"),
    "check": ("check", "verify a finished dataset: is it what it says it is"),
    "report": ("report", "draw a dataset, or two: one HTML file with charts and the tables behind them"),
    "view": ("view", "look through a dataset in a browser: windows, files, why they are in or out"),
    "show": ("show", "one row as a model sees it: its tokens, syntax, special tokens, overlaps"),
    "export": ("export", "the same windows in further formats, or a folder that a trainer reads as it is"),
    "push": ("push", "a finished dataset to the Hugging Face Hub, if nothing speaks against it"),
    "bench": ("bench", "what each way of making the dataset costs and gives, measured here"),
    "tokenizer": ("tokenizer", "train a vocabulary of your own, or compare tokenizers on your code"),
    "train": ("train", "train a model on a dataset, and watch it"),
    "compare": ("compare", "train the same model on several datasets: which one is better"),
    "explain": ("explain", "why a file is in, out or in its split; where a row comes from"),
    "diff": ("diff", "what is not the same in two datasets, and which new version that asks for"),
    "clean": ("clean", "delete what builds keep beside a dataset for the next one"),
    "prepare": ("steps", "a build in four steps, for many machines: 1, a shard of the files"),
    "decide": ("steps", "2, once: duplicates, splits, places"),
    "shape": ("steps", "3, a shard of the rows"),
    "finish": ("steps", "4, once: the dataset in its place"),
}
"""Each with its module in `cli`, and what it does."""


def command(name: str) -> Callable[[Sequence[str]], int]:
    name_of_module = f"gristmill.cli.{COMMANDS[name][0]}"
    with signals_held(name_of_module):
        function: Callable[[Sequence[str]], int] = getattr(importlib.import_module(name_of_module), name)
    return function


def _top(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return command(arguments[0])(arguments[1:])
    with signals_held("gristmill.cli.parsers"):
        from gristmill.cli.parsers import Parser  # noqa: PLC0415 - what every command needs, and they first
    parser = Parser(
        prog="gristmill",
        usage="gristmill COMMAND ...",
        description="Turns your own source code into a training dataset for code models: fast, clean, and provably so.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<9} {text}" for name, (_, text) in COMMANDS.items())
        + "\n\n'gristmill COMMAND --help' tells more.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument("--version", action="version", version=f"gristmill {__version__}", help="show the version")
    if not arguments:
        parser.print_help(sys.stderr)
        return ConfigError.exit_code
    if not arguments[0].startswith("-"):
        raise ConfigError(f"there is no command {arguments[0]!r}. {did_you_mean(arguments[0], COMMANDS, ADVICE)}")
    parser.parse_args(arguments)
    return 0


def main() -> None:
    """The `gristmill` command."""
    _avoid_slow_sorts()
    # A closed stream, or one that cannot show a name, must not end a build that is done.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A scheduler's polite end is handled like Ctrl-C: cleared up, and said. A signal that is ignored stays so.
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def _avoid_slow_sorts() -> None:
    """Keep numpy, before it is loaded, from sorting by AVX-512 on AMD's Zen 4, where that takes 4 times as long.

    One of its instructions is very slow there (numpy/x86-simd-sort#6). A build takes 4 % less time without it.
    """
    with suppress(OSError), open_plain("/proc/cpuinfo") as stream:
        if ZEN_3_AND_4.search(stream.read(CPUINFO_BYTES)):
            os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", AVX_512)


def run(arguments: Sequence[str]) -> int:
    """One call of the command line -> its exit code."""
    try:
        code = _top(arguments)
        sys.stdout.flush()
    except SystemExit as ended:  # --help and --version
        return int(ended.code or 0)
    except GristmillError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted; nothing half-written was left in its place.", INTERRUPTED)
    except OSError as error:
        # What is left of the output goes nowhere. That its reader has gone (`| head`) is no fault.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            return 0
        what = "write the output" if error.filename is None else f"read or write {error.filename!r}"
        return _fail(f"cannot {what}: {error.strerror or error}.", OutputError.exit_code)
    except Exception:  # noqa: BLE001 - the last resort, which must name itself as a fault of ours
        traceback.print_exc()
        return _fail("this is a fault in gristmill, please report it with the lines above.", OUR_FAULT)
    return code


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        print(f"gristmill: {printable(message)}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    main()
