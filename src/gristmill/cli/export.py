"""gristmill export"""

import json
from collections.abc import Sequence

import gristmill
from gristmill.cli.parsers import add_output_options, parser_for, words_of, worker_count
from gristmill.cli.signals import signals_held
from gristmill.core.errors import ConfigError
from gristmill.core.names import printable
from gristmill.core.output_formats import FORMATS


def export(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "export DIR --format NAME",
        "Add formats to a finished dataset: the same windows, with the same content digest. "
        "For example: gristmill export dataset --format parquet,mds",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made")
    parser.add_argument(
        "--format", metavar="NAME", action="append", help=f"one or several of {', '.join(FORMATS)}; repeatable"
    )
    parser.add_argument("--workers", metavar="auto|N", default="auto", help="processes to use (default: auto)")
    add_output_options(parser, "what was written")
    given = parser.parse_intermixed_args(arguments)
    wanted = words_of(given.format)
    if wanted is None:
        raise ConfigError("export needs a format to write. Try --format parquet.")
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    with signals_held("gristmill.publish.export"):
        from gristmill.pipeline.summary import formats_text  # noqa: PLC0415 - --help does without
    before = gristmill.open_dataset(given.folder).manifest.formats
    manifest = gristmill.export(given.folder, wanted, progress=progress, workers=worker_count(given.workers) or "auto")
    if given.json:
        files = {name: facts.bytes for name, facts in manifest.files.items() if facts.format in wanted}
        print(json.dumps({"formats": manifest.formats, "files": files, "content_sha256": manifest.content_sha256}))
    elif not given.quiet:
        for name in wanted:
            if name in before:
                print(f"{name} was there already, and stays as it is")
        print(formats_text(manifest))
        print(f"content  sha256 {manifest.content_sha256}")
        print(f"dataset  {printable(given.folder)}")
    return 0
