"""gristmill export"""

import argparse
import json
import os
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, words_of, worker_count
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.names import counted, printable
from gristmill.core.output_formats import FORMATS
from gristmill.publish.trainers import TRAINERS


def export(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "export DIR --format NAME | --for TRAINER",
        "Add formats to a dataset: the same windows, with the same content digest. Or write a new folder in the layout "
        "that a trainer reads. For example: gristmill export dataset --format parquet,mds",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset")
    parser.add_argument(
        "--format",
        metavar="NAME",
        action="append",
        help=f"{', '.join(FORMATS)}; several separated by commas, or repeated",
    )
    parser.add_argument("--for", metavar="TRAINER", dest="trainer", help=f"one of {', '.join(TRAINERS)}")
    parser.add_argument("--out", metavar="FOLDER", help="with --for: the folder to write (default: DIR-TRAINER)")
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    add_output_options(parser, "what was written")
    given = parser.parse_intermixed_args(arguments)
    if given.trainer is not None:
        return _export_for(given)
    if given.out is not None:
        raise ConfigError(
            "--out is the folder for a trainer. Formats are written into the dataset. Add --for TRAINER, or omit --out."
        )
    return _export_formats(given)


def _export_for(given: argparse.Namespace) -> int:
    if given.format is not None:
        raise ConfigError("--format and --for contradict each other; use one of them.")
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    with signals_held("gristmill.publish.export_for"):
        from gristmill.publish.export_for import render_command  # noqa: PLC0415 - not needed for --help
    folder = gristmill.export_for(given.folder, given.trainer, given.out, progress=progress)
    trainer, named = TRAINERS[given.trainer], given.out or os.fspath(folder)
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    if given.json:
        print(json.dumps({"trainer": trainer.name, "folder": str(folder), "files": dict(sorted(files.items()))}))
    elif not given.quiet:
        print(f"wrote    {counted(len(files), 'file')} of {sum(files.values()) / 1e6:,.1f} MB: {trainer.description}")
        print(f"config   {printable(f'{named}/{trainer.snippet_name}')}")
        print(f"train    {printable(render_command(trainer, named))}")
        print(f"page     {trainer.page}")
    return 0


def _export_formats(given: argparse.Namespace) -> int:
    wanted = words_of(given.format)
    if wanted is None:
        raise ConfigError("export needs a format or a trainer. Try --format parquet, or --for trl.")
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    with signals_held("gristmill.publish.export"):
        from gristmill.pipeline.summary import formats_text  # noqa: PLC0415 - not needed for --help
    before = gristmill.open_dataset(given.folder).manifest.formats
    manifest = gristmill.export(given.folder, wanted, progress=progress, workers=worker_count(given.workers) or "auto")
    if given.json:
        files = {name: facts.bytes for name, facts in manifest.files.items() if facts.format in wanted}
        print(json.dumps({"formats": manifest.formats, "files": files, "content_sha256": manifest.content_sha256}))
    elif not given.quiet:
        for name in wanted:
            if name in before:
                print(f"{name} exists already and was not changed")
        print(formats_text(manifest))
        print(f"content  sha256 {manifest.content_sha256}")
        print(f"dataset  {printable(given.folder)}")
    return 0
