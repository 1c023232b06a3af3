"""Words on the command line -> Config -> one library call; errors -> one line and an exit code.

0 done · 1 the answer is no · 2 usage or configuration · 3 input or output · 4 not a dataset, or damaged
70 a fault of ours · 130 interrupted
"""

import os
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import gristmill
from gristmill.config import default_of, load_config
from gristmill.errors import ConfigError, GristmillError

INTERRUPTED = 130
OUR_FAULT = 70

app = typer.Typer(
    name="gristmill",
    help="Turns your own source code into a training dataset for code models: fast, clean, and provably so.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Tail(StrEnum):
    keep = "keep"
    shift = "shift"
    drop = "drop"


class Compression(StrEnum):
    none = "none"
    zstd = "zstd"


WHAT, ROWS, SPLITS, FILES, RUNNING = "What and where", "Windows and rows", "Splits", "Which files", "Running"


def _value(panel: str, metavar: str | None, text: str, setting: str | None = None, default: str | None = None) -> Any:
    """An option with a value. Its default lives in gristmill.config and is only told here."""
    told = str(default_of(setting)) if setting is not None else default
    return typer.Option(
        metavar=metavar, help=text if told is None else f"{text}  \\[default: {told}]", rich_help_panel=panel
    )


def _flag(panel: str, *names: str, text: str) -> Any:
    return typer.Option(*names, metavar=" ", help=text, rich_help_panel=panel)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gristmill {gristmill.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _show_version: Annotated[
        bool,
        typer.Option("--version", metavar=" ", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def build(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SOURCE", help="Folders, git work trees or single files, one or more.")
    ] = None,
    out: Annotated[str | None, _value(WHAT, "DIR", "The dataset folder to make.")] = None,
    tokenizer: Annotated[
        str | None,
        _value(
            WHAT,
            "NAME",
            "'codebert', which is in the package, a tokenizer.json, a folder with one, or a Hub id like 'org/name' or "
            "'org/name@revision'.",
            "tokenizer.name",
        ),
    ] = None,
    cache_dir: Annotated[
        str | None, _value(WHAT, "DIR", "Where tokenizers from the Hub are kept.", default="the Hugging Face cache")
    ] = None,
    config: Annotated[
        Path | None, _value(WHAT, "FILE", "Settings from a TOML file; options on the command line come on top.")
    ] = None,
    window: Annotated[
        int | None, _value(ROWS, "N", "Ids per window, special tokens included.", "window.length")
    ] = None,
    overlap: Annotated[
        int | None, _value(ROWS, "N", "Content tokens that neighbouring windows share.", "window.overlap")
    ] = None,
    tail: Annotated[
        Tail | None,
        _value(
            ROWS,
            None,
            "A file's last window: keep it short, shift it back to full length, or drop it if it brings fewer than 32 "
            "new tokens.",
            "window.tail",
        ),
    ] = None,
    pad: Annotated[
        bool | None, _flag(ROWS, "--pad", text="Pad rows to the window length and add attention_mask.")
    ] = None,
    with_text: Annotated[bool | None, _flag(ROWS, "--with-text", text="Add each window's text to its row.")] = None,
    compress: Annotated[
        Compression | None, _value(ROWS, None, "Write .jsonl.zst, still readable row by row.", "output.compress")
    ] = None,
    split: Annotated[
        str | None, _value(SPLITS, "A/B/C", "Percent of the tokens for train/validation/test.", "split.shares")
    ] = None,
    splits: Annotated[
        str | None,
        _value(
            SPLITS, "FILE", "Keep files in the split they have in this files.jsonl.", default="the one in --out, if any"
        ),
    ] = None,
    fresh_splits: Annotated[
        bool | None, _flag(SPLITS, "--fresh-splits", text="Split anew, whatever an earlier build did.")
    ] = None,
    seed: Annotated[int | None, _value(SPLITS, "N", "Decides which file goes where.", "split.seed")] = None,
    include: Annotated[
        list[str] | None,
        _value(FILES, "GLOB", "Take only files that match a pattern, as in a .gitignore; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        _value(FILES, "GLOB", "Leave out files that match; '!GLOB' brings back what is left out anyway; repeatable."),
    ] = None,
    language: Annotated[
        list[str] | None, _value(FILES, "NAME", "Take only this language, like 'python'; repeatable.")
    ] = None,
    max_file_bytes: Annotated[int | None, _value(FILES, "N", "Leave out larger files.", "scan.max_file_bytes")] = None,
    workers: Annotated[
        str | None, _value(RUNNING, "auto|N", "Processes to use; never changes the result.", "run.workers")
    ] = None,
    batch_bytes: Annotated[
        int | None, _value(RUNNING, "N", "Source bytes that a worker takes at a time.", "run.batch_bytes")
    ] = None,
    batch_files: Annotated[
        int | None, _value(RUNNING, "N", "Files that a worker takes at a time, at most.", default="no limit")
    ] = None,
    quiet: Annotated[bool, _flag(RUNNING, "--quiet", "-q", text="Print nothing but errors.")] = False,
    as_json: Annotated[bool, _flag(RUNNING, "--json", text="Print the summary as JSON, for scripts.")] = False,
) -> None:
    """Make a training dataset from source code.

    For example: gristmill build my-repo --out dataset
    """
    chosen = {
        "sources": sources or None,
        "out": out,
        "tokenizer.name": tokenizer,
        "tokenizer.cache_dir": cache_dir,
        "window.length": window,
        "window.overlap": overlap,
        "window.tail": tail,
        "output.pad": pad,
        "output.with_text": with_text,
        "output.compress": compress,
        "split.shares": split,
        "split.previous": splits,
        "split.fresh": fresh_splits,
        "split.seed": seed,
        "scan.include": include or None,
        "scan.exclude": exclude or None,
        "scan.languages": language or None,
        "scan.max_file_bytes": max_file_bytes,
        "run.workers": _workers(workers),
        "run.batch_bytes": batch_bytes,
        "run.batch_files": batch_files,
    }
    settings = load_config({name: value for name, value in chosen.items() if value is not None}, config)
    manifest = gristmill.build(settings, gristmill.Progress(quiet=quiet or as_json))
    from gristmill.summary import summary_json, summary_text  # noqa: PLC0415

    if as_json:
        typer.echo(summary_json(manifest, settings.out))
    elif not quiet:
        typer.echo(summary_text(manifest, settings.out))
    for warning in manifest.warnings if not quiet else ():
        typer.echo(f"gristmill: note: {warning}", err=True)


def _workers(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--workers takes 'auto' or a number, got {text!r}.") from None


def main(arguments: list[str] | None = None) -> None:
    """The `gristmill` command."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """One call of the command line -> its exit code."""
    try:
        # Without its own handling of errors, typer returns what a command or an Exit gives.
        outcome: Any = app(arguments, standalone_mode=False)
    except GristmillError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        if not error.format_message():  # it has shown its help
            return ConfigError.exit_code
        context = getattr(error, "ctx", None)
        advice = f" Try '{context.command_path} --help'." if context is not None else ""
        return _fail(f"{error.format_message().rstrip('.')}.{advice}", ConfigError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        outcome = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone: not a fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the last resort, which must name itself as a fault of ours
        traceback.print_exc()
        return _fail("this is a fault in gristmill, please report it with the lines above.", OUR_FAULT)
    if outcome == INTERRUPTED:
        return _fail("interrupted; nothing half-written was left behind.", INTERRUPTED)
    return outcome if isinstance(outcome, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"gristmill: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
