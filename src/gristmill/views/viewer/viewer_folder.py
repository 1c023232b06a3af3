"""The folder DIR.view beside a dataset, for the index and the key of viewers. `gristmill clean` deletes the folder.

DIR.view/lock          held by the viewer that builds an index
DIR.view/key           identifies the user's browser, also after a restart of the viewer
DIR.view/index-…/      complete index, named after a digest of the dataset
DIR.view/index-….tmp/  unfinished index, left if a viewer was killed
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
INDEX_PREFIX = "index-"
VIEWER_FILES = (KEY, TAG, ".gitignore", LOCK)
KEY_BYTES = 43
KEY_PATTERN = re.compile(rf"[\w-]{{{KEY_BYTES}}}")
LOCK_RETRY_SECONDS = 0.1


def viewer_folder_path(dataset: Path) -> Path:
    """Return the path of the viewer folder of a dataset."""
    target = Path(os.path.realpath(dataset))
    return target.with_name(target.name + ".view")


class ViewerFolder:
    """The viewer folder of a dataset, created if necessary.

    If the folder cannot be created beside the dataset, a temporary folder is used, and `close` deletes it.
    """

    def __init__(self, dataset: Path) -> None:
        self.folder = viewer_folder_path(dataset)
        self._temporary = ExitStack()
        self.note: str | None = None
        """Reason why the folder is temporary, or None if it is beside the dataset."""
        try:
            _create(self.folder)
        except OSError as error:
            self.note = f"the index is temporary: {str(self.folder)!r} cannot be written ({error.strerror or error})."
            self.folder = self._temporary.enter_context(temporary_folder("gristmill-view-")) / self.folder.name
            _create(self.folder)

    def close(self) -> None:
        self._temporary.close()

    def load_or_create_key(self) -> str:
        """Return the stored key. If it is missing, malformed or readable by other users, store and return a new key."""
        with suppress(OSError, UnicodeDecodeError), open_plain(self.folder / KEY) as stream:
            stored = stream.read(KEY_BYTES + 1).decode("ascii")
            if KEY_PATTERN.fullmatch(stored) and not stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
                return stored
        key = secrets.token_urlsafe(32)
        write_atomically(self.folder / KEY, key.encode(), mode=0o600, is_synced=False)
        return key

    @contextmanager
    def hold_lock(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Hold the lock for building an index.

        While another viewer holds the lock, `on_wait` is called before each retry. It raises an exception to give up.
        """
        with (self.folder / LOCK).open("r+b") as stream:
            while not _try_lock(stream.fileno()):
                on_wait()
                time.sleep(LOCK_RETRY_SECONDS)
            yield

    def delete_other_indexes(self, keep: str) -> None:
        """Delete all indexes except one. Requires the lock, so that no other viewer is writing an index."""
        for entry in self.folder.iterdir():
            if entry.name.startswith(INDEX_PREFIX) and entry.name != keep:
                shutil.rmtree(entry, ignore_errors=True)

    def create_unfinished(self, name: str) -> Path:
        """Create an empty folder for an unfinished index."""
        folder = self.folder / f"{name}{UNFINISHED}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return folder


def _create(folder: Path) -> None:
    """Create the viewer folder and its fixed files.

    Raises OSError if the folder belongs to another user or was not created by a viewer.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise OSError("not a folder of the current user")
    # The folder may be part of a download. Writing through a link in the folder would change the target of the link.
    modes = {name: (folder / name).lstat().st_mode for name in VIEWER_FILES if os.path.lexists(folder / name)}
    if (LOCK not in modes and any(folder.iterdir())) or not all(map(stat.S_ISREG, modes.values())):
        raise OSError("the folder exists and was not created by a viewer")
    folder.chmod(0o700)
    (folder / LOCK).touch(0o600)
    for name, text in ((".gitignore", "*\n"), (TAG, TAG_TEXT)):
        if name not in modes:
            (folder / name).write_text(text)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def delete_viewer_folder(dataset: Path) -> int:
    """Delete the viewer folder of a dataset and return the number of bytes deleted. Files that users added are kept.

    Raises OutputError if a viewer is building its index or if a file cannot be deleted.
    """
    folder = viewer_folder_path(dataset)
    if not (folder / LOCK).is_file() or folder.is_symlink():
        return 0
    try:
        with open_plain(folder / LOCK) as stream:
            if not _try_lock(stream.fileno()):
                raise OutputError(f"a viewer is building its index in {str(folder)!r}. Wait, or stop the viewer.")
            return _delete_contents(folder)
    except OSError as error:
        raise OutputError(f"cannot delete {str(folder)!r}: {error.strerror}.") from None


def _delete_contents(folder: Path) -> int:
    num_bytes = 0
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(INDEX_PREFIX) and entry.is_dir() and not entry.is_symlink():
            num_bytes += sum(file.lstat().st_size for file in entry.iterdir())
            shutil.rmtree(entry)
    unfinished_keys = [path.name for path in folder.glob(f"{KEY}.*{UNFINISHED}")]
    for name in (*unfinished_keys, *VIEWER_FILES):
        if (folder / name).is_file():
            num_bytes += (folder / name).lstat().st_size
            (folder / name).unlink()
    with suppress(OSError):  # not empty if the user has put a file into the folder
        folder.rmdir()
    return num_bytes
