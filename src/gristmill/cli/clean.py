"""gristmill clean"""

from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for
from gristmill.cli.signals import signals_held
from gristmill.core.errors import DatasetError
from gristmill.core.names import printable


def clean(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "clean DIR",
        "Delete what builds keep beside a dataset, in DIR.work, to do only what has changed the next time, and what "
        "viewers keep in DIR.view. The dataset itself stays. For example: gristmill clean dataset",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset that gristmill build has made, or began to make")
    add_output_options(parser, "the result")
    given = parser.parse_args(arguments)
    with signals_held("gristmill.pipeline.work_folder"):
        from gristmill.core.text import size_text  # noqa: PLC0415 - --help does without
        from gristmill.pipeline.work_folder import Workspace  # noqa: PLC0415
        from gristmill.views.viewer.viewer_folder import forget, view_folder  # noqa: PLC0415
    work = Workspace(given.folder)
    if not work.folder.is_dir() and not work.target.exists():
        raise DatasetError(f"there is neither {printable(str(work.target))} nor a work folder beside it.")
    deleted = {work.folder: work.clean(), view_folder(work.target): forget(work.target)}
    if given.json:
        print(f'{{"deleted_bytes":{sum(deleted.values())}}}')
    elif not given.quiet:
        for folder, num_bytes in deleted.items():
            if num_bytes or folder == work.folder:
                print(f"deleted  {size_text(num_bytes)} in {printable(str(folder))}")
    return 0
