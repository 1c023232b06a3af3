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

import click
import typer

import gristmill
from gristmill.config import load_config
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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gristmill {gristmill.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


WHAT, HOW_CUT, HOW_SPLIT, WHICH, HOW_RUN = "What and where", "Windows and rows", "Splits", "Which files", "Running"


@app.command()
def build(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="SOURCE...", help="Folders, git work trees or single files.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="The dataset folder to make.", rich_help_panel=WHAT)
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="'codebert' (in the package), a tokenizer.json, a folder with one, or a Hub id like "
            "'org/name' or 'org/name@revision'.  [default: codebert]",
            rich_help_panel=WHAT,
        ),
    ] = None,
    cache_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where tokenizers from the Hub are kept.  [default: the Hugging Face cache]",
            rich_help_panel=WHAT,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings from a TOML file; options on the command line come on top.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Ids per window, special tokens included.  [default: 512]", rich_help_panel=HOW_CUT
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Content tokens that neighbouring windows share.  [default: 256]",
            rich_help_panel=HOW_CUT,
        ),
    ] = None,
    tail: Annotated[
        Tail | None,
        typer.Option(
            help="A file's last window: keep it short, shift it back to full length, or drop it if it brings fewer "
            "than 32 new tokens.  [default: keep]",
            rich_help_panel=HOW_CUT,
        ),
    ] = None,
    pad: Annotated[
        bool | None,
        typer.Option("--pad", help="Pad rows to the window length and add attention_mask.", rich_help_panel=HOW_CUT),
    ] = None,
    with_text: Annotated[
        bool | None,
        typer.Option("--with-text", help="Add each window's text to its row.", rich_help_panel=HOW_CUT),
    ] = None,
    compress: Annotated[
        Compression | None,
        typer.Option(help="Write .jsonl.zst, still readable row by row.  [default: none]", rich_help_panel=HOW_CUT),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="A/B/C",
            help="Percent of the tokens for train/validation/test.  [default: 85/10/5]",
            rich_help_panel=HOW_SPLIT,
        ),
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep files in the split they have in this files.jsonl.  [default: the one in DIR, if any]",
            rich_help_panel=HOW_SPLIT,
        ),
    ] = None,
    fresh_splits: Annotated[
        bool | None,
        typer.Option("--fresh-splits", help="Split anew, whatever an earlier build did.", rich_help_panel=HOW_SPLIT),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Decides who goes where.  [default: 0]", rich_help_panel=HOW_SPLIT),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Take only files that match, patterns as in a .gitignore; repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Leave out files that match; '!GLOB' brings back what is left out by default; repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take only this language, like 'python'; repeatable.", rich_help_panel=WHICH),
    ] = None,
    max_file_bytes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave out larger files.  [default: 1048576]", rich_help_panel=WHICH),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="auto|N", help="Processes to use; never changes the result.  [default: auto]", rich_help_panel=HOW_RUN
        ),
    ] = None,
    batch_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Source bytes that a worker takes at a time.  [default: 4194304]", rich_help_panel=HOW_RUN
        ),
    ] = None,
    batch_files: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Files that a worker takes at a time, at most.  [default: no limit]", rich_help_panel=HOW_RUN
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=HOW_RUN)] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, for scripts.", rich_help_panel=HOW_RUN)
    ] = False,
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
        outcome: Any = app(arguments, standalone_mode=False)
    except GristmillError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        hint = getattr(error, "ctx", None)
        where = f" Try '{hint.command_path} --help'." if hint is not None else ""
        return _fail(f"{error.format_message().rstrip('.')}.{where}", ConfigError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted; nothing was changed.", INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone: not a fault.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the last resort, which must name itself as a fault of ours
        traceback.print_exc()
        return _fail("this is a fault in gristmill, please report it with the lines above.", OUR_FAULT)
    return outcome if isinstance(outcome, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"gristmill: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
