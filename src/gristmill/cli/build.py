"""gristmill build"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import gristmill
from gristmill.cli.parsers import parse_settings, parser_for, print_summary
from gristmill.cli.signals import delay_signals
from gristmill.config.config import load_config
from gristmill.core.errors import ConfigError
from gristmill.core.extras import require_report
from gristmill.core.layout import FILES
from gristmill.core.names import is_remote_address, printable

if TYPE_CHECKING:
    from gristmill.config.config import Config

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h


def build(arguments: Sequence[str]) -> int:
    parser = parser_for(
        "build SOURCE... --out DIR [options]",
        "Build a training dataset from source code. For example: gristmill build my-repo --out dataset",
    )
    parser.add_argument("--report", action="store_true", help="also write DIR/report.html (needs gristmill[report])")
    given, values = parse_settings(parser, arguments, "the summary")
    config = load_config(values, given.config)
    if given.report:
        _require_report(config)
    with delay_signals("gristmill.pipeline.build"):
        importlib.import_module("gristmill.pipeline.summary")
    if not given.quiet:
        _advise(config)
    _keep_freed_memory()
    progress = gristmill.Progress(quiet=given.quiet or given.json)
    manifest = gristmill.build(config, progress)
    report = gristmill.report(config.out, progress=progress) if given.report else None
    print_summary(manifest, config.out, given)
    if report is not None and not (given.quiet or given.json):
        print(f"report   {printable(str(report))}")
    return 0


def _keep_freed_memory() -> None:
    """Let glibc keep up to 16 MB of freed memory for reuse. This makes a build 2 % faster.

    Otherwise, each array of a few MB needs new memory pages. Workers inherit the setting. `gristmill.build` does not
    change the setting, because a library must not change the allocator of its host program.
    """
    import ctypes  # noqa: PLC0415 - NumPy has imported it already

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, 16 << 20)
        mallopt(M_MMAP_THRESHOLD, 8 << 20)


def _require_report(config: "Config") -> None:
    """Raise an error before the build if the report could not be written after the build."""
    if is_remote_address(config.out):
        raise ConfigError(
            "--report needs a local dataset, and --out is remote. Build into a local folder, or omit --report."
        )
    require_report()


def _advise(config: "Config") -> None:
    """Print a note if the build does not use the splits that the tokenizer was trained on."""
    name = config.tokenizer.name
    is_open = config.split.previous is None and (config.split.fresh or not (Path(config.out) / FILES).is_file())
    if not is_open or not os.path.exists(os.path.expanduser(name)):
        return
    from gristmill.lab.vocabulary.location import find_trained_splits, splits_argument  # noqa: PLC0415 - most builds do not need it

    if find_trained_splits(name) is not None:
        argument = printable(splits_argument(name))
        line = (
            f"the tokenizer was trained with splits that this build does not use. Add --splits {argument} to hold out "
            "only files that the tokenizer has not seen."
        )
        print(f"gristmill: note: {line}", file=sys.stderr)
