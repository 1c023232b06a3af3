"""gristmill export"""

import argparse
import json
import os
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, words_of, worker_count
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import ConfigError
from gristmill.core.names import counted, printable
from gristmill.core.output_formats import FORMATS
from gristmill.publish.trainers import TRAINERS


def export(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "export DIR --format NAME | --for TRAINER",
        "Add formats to a dataset. All formats have the same rows and the same content digest. With --for, write a "
        "new folder in the layout that a trainer reads. For example: gristmill export dataset --format parquet,mds",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument(
        "--format",
        metavar="NAME",
        action="append",
        help=f"format to add: {', '.join(FORMATS)}; repeatable, or several names separated by commas",
    )
    parser.add_argument(
        "--for", metavar="TRAINER", dest="trainer", help=f"trainer to write a folder for: one of {', '.join(TRAINERS)}"
    )
    parser.add_argument("--out", metavar="FOLDER", help="with --for, the folder to write (default: DIR-TRAINER)")
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="number of processes (default: auto)")
    add_output_options(parser, "the list of written files")
    given = parser.parse_intermixed_args(arguments)
    if given.trainer is not None:
        return _export_for(given)
    if given.out is not None:
        raise ConfigError(
            "--out needs --for, because formats are written into the dataset folder. Add --for TRAINER, or omit --out."
        )
    return _export_formats(given)


def _export_for(given: argparse.Namespace) -> int:
    if given.format is not None:
        raise ConfigError("--format and --for contradict each other. Use one of them.")
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    with delay_signals("gristmill.publish.export_for"):
        from gristmill.publish.export_for import render_command  # noqa: PLC0415 - not needed for --help
    folder = gristmill.export_for(given.folder, given.trainer, given.out, progress=progress)
    trainer, named = TRAINERS[given.trainer], given.out or os.fspath(folder)
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    if given.json:
        print(json.dumps({"trainer": trainer.name, "folder": str(folder), "files": dict(sorted(files.items()))}))
    elif not given.quiet:
        num_files, num_bytes = counted(len(files), "file"), sum(files.values())
        print(f"wrote    {num_files} ({num_bytes / 1e6:,.1f} MB in total): {trainer.description}")
        print(f"config   {printable(f'{named}/{trainer.snippet_name}')}")
        print(f"train    {printable(render_command(trainer, named))}")
        print(f"page     {trainer.page}")
    return 0


def _export_formats(given: argparse.Namespace) -> int:
    formats = words_of(given.format)
    if formats is None:
        raise ConfigError("export needs a format or a trainer. Try --format parquet, or --for trl.")
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    with delay_signals("gristmill.publish.export"):
        from gristmill.pipeline.summary import formats_text  # noqa: PLC0415 - not needed for --help
    old_formats = gristmill.open_dataset(given.folder).manifest.formats
    manifest = gristmill.export(given.folder, formats, progress=progress, workers=worker_count(given.workers) or "auto")
    if given.json:
        files = {name: facts.bytes for name, facts in manifest.files.items() if facts.format in formats}
        print(json.dumps({"formats": manifest.formats, "files": files, "content_sha256": manifest.content_sha256}))
    elif not given.quiet:
        for name in formats:
            if name in old_formats:
                print(f"the format {name} already exists and was not changed")
        print(formats_text(manifest))
        print(f"content  sha256 {manifest.content_sha256}")
        print(f"dataset  {printable(given.folder)}")
    return 0
