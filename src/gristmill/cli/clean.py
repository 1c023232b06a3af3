"""gristmill clean"""

from collections.abc import Sequence

from gristmill.cli.parsers import add_output_options, parser_for
from gristmill.cli.signals import delay_signals
from gristmill.core.errors import DatasetError
from gristmill.core.names import printable


def clean(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "clean DIR",
        "Delete the cache of earlier builds in DIR.work and the index of the viewer in DIR.view, so that the next "
        "build starts from scratch. The dataset itself is kept. For example: gristmill clean dataset",
    )
    parser.add_argument("folder", metavar="DIR", help="a dataset, or the output folder of an interrupted build")
    add_output_options(parser, "the result")
    given = parser.parse_args(arguments)
    with delay_signals("gristmill.pipeline.work_folder"):
        from gristmill.core.text import size_text  # noqa: PLC0415 - not needed for --help
        from gristmill.pipeline.work_folder import Workspace  # noqa: PLC0415
        from gristmill.views.viewer.viewer_folder import delete_viewer_folder, viewer_folder_path  # noqa: PLC0415
    work = Workspace(given.folder)
    if not work.folder.is_dir() and not work.target.exists():
        raise DatasetError(
            f"{printable(str(work.target))} does not exist and has no work folder. Name the folder of a dataset."
        )
    deleted = {work.folder: work.clean(), viewer_folder_path(work.target): delete_viewer_folder(work.target)}
    if given.json:
        print(f'{{"deleted_bytes":{sum(deleted.values())}}}')
    elif not given.quiet:
        for folder, num_bytes in deleted.items():
            if num_bytes or folder == work.folder:
                print(f"deleted  {size_text(num_bytes)} in {printable(str(folder))}")
    return 0
