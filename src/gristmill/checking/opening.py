"""Opens only what is an ordinary file: a FIFO would never answer, and a device may do anything."""

import os
import stat
from io import BufferedReader
from pathlib import Path


def open_plain(path: Path) -> BufferedReader:
    """Raises OSError for anything else, for a name that cannot be one too."""
    require_plain(path)
    return path.open("rb")


def require_plain(path: Path) -> None:
    try:
        mode = os.stat(path).st_mode
    except ValueError:
        raise OSError(0, "no file can have this name") from None
    if not stat.S_ISREG(mode):
        raise OSError(0, "not an ordinary file")
