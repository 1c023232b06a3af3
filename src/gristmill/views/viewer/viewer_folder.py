"""DIR.view, beside a dataset: the index and the key of its viewers. `gristmill clean` deletes it.

DIR.view/lock          held by the one that makes an index
DIR.view/key           by which a browser is known, also after a restart
DIR.view/index-…/      complete, and of the dataset with this stamp
DIR.view/index-….tmp/  left by one that was killed
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gristmill.core.errors import OutputError
from gristmill.core.layout import UNFINISHED, write_atomically
from gristmill.core.plain_files import open_plain
from gristmill.pipeline.work_folder import TAG, TAG_TEXT, temporary_folder

LOCK, KEY = "lock", "key"
INDEX = "index-"
OWN_FILES = (KEY, TAG, ".gitignore", LOCK)
KEY_BYTES = 43
KEY_FORM = re.compile(rf"[\w-]{{{KEY_BYTES}}}")
SECONDS_BETWEEN_TRIES = 0.1


def view_folder(dataset: Path) -> Path:
    target = Path(os.path.realpath(dataset))
    return target.with_name(target.name + ".view")


class Keeping:
    """The folder while a viewer runs; where none can be beside the dataset, one that goes with the viewer."""

    def __init__(self, dataset: Path) -> None:
        self.folder = view_folder(dataset)
        self._temporary = ExitStack()
        self.note: str | None = None
        """Why it is not beside the dataset."""
        try:
            _lay_out(self.folder)
        except OSError as error:
            self.note = f"the index is not kept: {str(self.folder)!r} cannot be written ({error.strerror or error})."
            self.folder = self._temporary.enter_context(temporary_folder("gristmill-view-")) / self.folder.name
            _lay_out(self.folder)

    def close(self) -> None:
        self._temporary.close()

    def key(self) -> str:
        with suppress(OSError, UnicodeDecodeError), open_plain(self.folder / KEY) as stream:
            kept = stream.read(KEY_BYTES + 1).decode("ascii")
            if KEY_FORM.fullmatch(kept) and not stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
                return kept
        key = secrets.token_urlsafe(32)
        write_atomically(self.folder / KEY, key.encode(), mode=0o600, is_synced=False)
        return key

    @contextmanager
    def alone(self, wait: Callable[[], None]) -> Iterator[None]:
        """One at a time makes an index; `wait` is called while it is another's turn, and may raise."""
        with (self.folder / LOCK).open("r+b") as stream:
            while not _locks(stream.fileno()):
                wait()
                time.sleep(SECONDS_BETWEEN_TRIES)
            yield

    def clear(self, keep: str) -> None:
        """All indexes but this one; for the one whose turn it is, so that nobody writes to an unfinished one."""
        for entry in self.folder.iterdir():
            if entry.name.startswith(INDEX) and entry.name != keep:
                shutil.rmtree(entry, ignore_errors=True)

    def unfinished(self, name: str) -> Path:
        folder = self.folder / f"{name}{UNFINISHED}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return folder


def _lay_out(folder: Path) -> None:
    """Raises OSError where the folder is somebody else's, or of something else."""
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise OSError("it is somebody else's")
    # It may have come with somebody's dataset: a link in it would have us write to where it leads.
    own = {name: (folder / name).lstat().st_mode for name in OWN_FILES if os.path.lexists(folder / name)}
    if (LOCK not in own and any(folder.iterdir())) or not all(map(stat.S_ISREG, own.values())):
        raise OSError("it is there already, and no viewer's")
    folder.chmod(0o700)
    (folder / LOCK).touch(0o600)
    for name, text in ((".gitignore", "*\n"), (TAG, TAG_TEXT)):
        if name not in own:
            (folder / name).write_text(text)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def forget(dataset: Path) -> int:
    """Delete what viewers have kept of a dataset -> how many bytes that were. What is not theirs stays."""
    folder = view_folder(dataset)
    if not (folder / LOCK).is_file() or folder.is_symlink():
        return 0
    try:
        with open_plain(folder / LOCK) as stream:
            if not _locks(stream.fileno()):
                raise OutputError(f"a viewer is making its index in {str(folder)!r}. Wait for it, or end it.")
            return _remove(folder)
    except OSError as error:
        raise OutputError(f"cannot delete {str(folder)!r}: {error.strerror}.") from None


def _remove(folder: Path) -> int:
    num_bytes = 0
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(INDEX) and entry.is_dir() and not entry.is_symlink():
            num_bytes += sum(file.lstat().st_size for file in entry.iterdir())
            shutil.rmtree(entry)
    half_written = [path.name for path in folder.glob(f"{KEY}.*{UNFINISHED}")]
    for name in (*half_written, *OWN_FILES):
        if (folder / name).is_file():
            num_bytes += (folder / name).lstat().st_size
            (folder / name).unlink()
    with suppress(OSError):  # something of the user's is in it
        folder.rmdir()
    return num_bytes
