"""The `gristmill` command: find the subcommand, run it, and turn an error into one line and an exit code.

0    success
1    a check failed, or two datasets differ
2    the command line or the configuration is invalid
3    input cannot be read, or output cannot be written
4    a folder is not a dataset, or the dataset is damaged
5    training failed
70   bug in gristmill
130  interrupted
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

from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError, GristmillError, OutputError
from gristmill.core.names import did_you_mean, printable
from gristmill.core.plain_files import open_plain
from gristmill.core.version import __version__

ADVICE = "Try 'gristmill --help'."
ZEN_3_AND_4 = re.compile(rb"AuthenticAMD\ncpu family\s*: 25\n")
"""Lines in /proc/cpuinfo for AMD's CPU family 25, which contains Zen 4 and Zen 3. Zen 3 has no AVX-512."""
AVX_512 = "X86_V4 AVX512_ICL AVX512_SPR"
"""Names of the AVX-512 features in NumPy 2.4. Older versions of NumPy ignore these names."""
CPUINFO_BYTES = 200
INTERRUPTED = 130
INTERNAL_ERROR = 70

COMMANDS = {
    "plan": ("plan", "estimate rows, size, time and epochs of a build, without running it"),
    "build": ("build", "build a training dataset from source code"),
    "check": ("check", "verify a dataset: digests, rows, split leakage, secrets"),
    "report": ("report", "write an HTML report with charts and tables, for one dataset or two"),
    "view": ("view", "browse a dataset: windows, files, and why each file was kept or dropped"),
    "show": ("show", "print one row as the model sees it: tokens, syntax, overlaps"),
    "export": ("export", "write a dataset in other formats, or in the layout of a trainer"),
    "push": ("push", "upload a dataset to the Hugging Face Hub, if all safety checks pass"),
    "bench": ("bench", "measure time, size and quality of several ways to build a dataset"),
    "tokenizer": ("tokenizer", "train a tokenizer on your code, or compare tokenizers on it"),
    "train": ("train", "train a model on a dataset, with live curves"),
    "compare": ("compare", "train the same model on several datasets and compare the losses"),
    "explain": ("explain", "explain why a file was kept or dropped, or which file a row is from"),
    "diff": ("diff", "list the differences between two datasets, and the required version bump"),
    "clean": ("clean", "delete the cached work of earlier builds"),
    "prepare": ("steps", "step 1 of a build on many machines: prepare one shard of the files"),
    "decide": ("steps", "step 2, on one machine: find duplicates, assign splits, lay out the output"),
    "shape": ("steps", "step 3: write one shard of the rows"),
    "finish": ("steps", "step 4, on one machine: complete the dataset"),
}
"""Module in `cli` and one-line help text of each command."""


def command(name: str) -> Callable[[Sequence[str]], int]:
    module_name = f"gristmill.cli.{COMMANDS[name][0]}"
    with delay_signals(module_name):
        function: Callable[[Sequence[str]], int] = getattr(importlib.import_module(module_name), name)
    return function


def _top(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        return command(arguments[0])(arguments[1:])
    with delay_signals("gristmill.cli.parsers"):
        from gristmill.cli.parsers import Parser  # noqa: PLC0415 - with signals held
    parser = Parser(
        prog="gristmill",
        usage="gristmill COMMAND ...",
        description="Turn your own source code into a training dataset for code models: fast, clean, and provably so.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<9} {text}" for name, (_, text) in COMMANDS.items())
        + "\n\nRun 'gristmill COMMAND --help' for details.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this help and exit")
    parser.add_argument("--version", action="version", version=f"gristmill {__version__}", help="show the version")
    if not arguments:
        parser.print_help(sys.stderr)
        return ConfigError.exit_code
    if not arguments[0].startswith("-"):
        raise ConfigError(f"unknown command {arguments[0]!r}. {did_you_mean(arguments[0], COMMANDS, ADVICE)}")
    parser.parse_args(arguments)
    return 0


def main() -> None:
    """Run the `gristmill` command and exit."""
    _avoid_slow_sorts()
    # A stream that is closed, or that cannot encode a file name, must not turn a finished build into a failure.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Handle SIGTERM, which schedulers send, like Ctrl-C: clean up and print a line. If SIGTERM is ignored, ignore it.
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def _avoid_slow_sorts() -> None:
    """Disable AVX-512 in NumPy on AMD Zen 4, where NumPy's sort takes 4 times as long with AVX-512 as without it.

    One instruction of the sort is very slow on Zen 4 (numpy/x86-simd-sort#6). Without AVX-512, a build is 4 % faster.
    Call this function before NumPy is imported.
    """
    with suppress(OSError), open_plain("/proc/cpuinfo") as stream:
        if ZEN_3_AND_4.search(stream.read(CPUINFO_BYTES)):
            os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", AVX_512)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = _top(arguments)
        sys.stdout.flush()
    except SystemExit as ended:  # --help and --version
        return int(ended.code or 0)
    except GristmillError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "interrupted. No incomplete output was left behind.", INTERRUPTED)
    except OSError as error:
        # Discard the rest of the output. A reader that closed the pipe (`| head`) is not an error.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            return 0
        what = "write the output" if error.filename is None else f"read or write {error.filename!r}"
        return _fail(f"cannot {what}: {error.strerror or error}.", OutputError.exit_code)
    except Exception:  # noqa: BLE001 - anything else is a bug
        traceback.print_exc()
        return _fail("this is a bug in gristmill. Please report it with the lines above.", INTERNAL_ERROR)
    return code


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        print(f"gristmill: {printable(message)}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    main()
