"""File names in a dataset folder, and atomic writes: a file with its final name is complete, even after a power cut.

A file system may write a rename to disk long before the content of the renamed file. So a file is synced before it gets
its final name, and the folder is synced before older files are deleted. Files that contain a digest are not synced:
every reader checks the digest, and a damaged file is made again.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gristmill.core.plain_files import open_descriptor, open_plain, read_plain, read_plain_text
from gristmill.core.records import Split

MANIFEST = "manifest.json"
"""Written last: a folder with a manifest is complete."""
FILES = "files.jsonl"
"""One line per scanned file: its split, or the reason why it was dropped."""
CHECK = "check.json"
"""Findings of `gristmill check`. Not part of the dataset."""
REPORT = "report.html"
"""Page written by `gristmill report`. Not part of the dataset, and deleted by the next build."""
REPORT_MARK = '<meta name="generator" content="gristmill report">'
README = "README.md"
CROISSANT = "croissant.json"
"""README.md and croissant.json are written from the manifest. The manifest does not list them, because people edit
README.md."""
CARDS = (README, CROISSANT)
SEAL = b"<!-- written by gristmill; sha256 of the lines above: %b -->\n"
UNFINISHED = ".tmp"
TEMPORARY_NAME = re.compile(r"(.+)\.\d+-[0-9a-f]{8}\.tmp", re.DOTALL)
EXPORT_PREFIX = ".export-"
"""Prefix of the temporary folder, inside the dataset folder, to which an export writes new formats."""
MOVED_NAMES = "taken"
"""File in the temporary folder of an export that lists the names to move into the dataset folder."""
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SYNCS_AT_ONCE = 8


def data_file_name(split: Split, index: int, count: int, *, compressed: bool) -> str:
    """Return `train.jsonl`, or `train-00003-of-00012.jsonl` if the split has several files."""
    part = "" if count == 1 else f"-{index:05d}-of-{count:05d}"
    return f"{split}{part}.jsonl{'.zst' if compressed else ''}"


def with_digest_line(card: bytes) -> bytes:
    """Append a line with the card's digest, so that later changes can be detected."""
    return card + SEAL % hashlib.sha256(card).hexdigest().encode()


def is_unchanged_card(path: Path) -> bool:
    """Return True if gristmill wrote the card and the card has not been changed since."""
    try:
        content = read_plain(path) if path.is_file() else b""
    except OSError:
        return False
    return with_digest_line(content[: content.rfind(SEAL[:20])]) == content


def is_report(path: Path) -> bool:
    """Return True if `gristmill report` wrote the page. Raise OSError if the page cannot be read."""
    with open_plain(path) as stream:
        return REPORT_MARK.encode() in stream.read(2000)


def is_dataset_folder(folder: Path) -> bool:
    """Return True if the folder looks like a dataset. The manifest may still be invalid."""
    try:
        with open_plain(folder / MANIFEST) as stream:
            return b'"gristmill"' in stream.read(200) and (folder / FILES).is_file()
    except OSError:
        return False


def is_writable_folder(folder: Path) -> bool:
    """Return True if the folder, or its nearest existing parent, can be written to."""
    if str(folder).startswith("~"):  # expanduser() found no such home directory
        return False
    existing = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    can_use_effective_ids = os.access in os.supports_effective_ids
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK, effective_ids=can_use_effective_ids)


def unfinished_file_name(name: str) -> str | None:
    """Return the final name of a file that `write_atomically` did not finish, or None for any other name."""
    match = TEMPORARY_NAME.fullmatch(name)
    return match[1] if match else None


def partly_exported_names(export_folder: Path, files: Iterable[str]) -> set[str]:
    """Return names that an interrupted export moved into the dataset folder, but did not add to the manifest.

    `export_folder` is the temporary folder of the export. `files` are the names in the manifest.
    """
    manifest_names = {name.partition("/")[0] for name in files}
    path = export_folder / MOVED_NAMES
    names_to_move = read_plain_text(path).splitlines() if path.is_file() else ()
    return {name for name in names_to_move if name not in manifest_names and not os.path.lexists(export_folder / name)}


def write_atomically(
    path: Path, content: bytes | Iterable[bytes], mode: int = 0o666, *, is_synced: bool = True
) -> None:
    """Write the file under a temporary name and rename it. Concurrent writers use different temporary names.

    Use `is_synced=False` if the file contains a digest, or if the complete folder is synced before the file is used.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as stream:
            stream.writelines([content] if isinstance(content, bytes) else content)
            if is_synced:
                stream.flush()
                _sync(descriptor)
        os.replace(temporary, path)
        if is_synced:
            sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def sync_tree(folder: Path) -> None:
    """Flush all files below the folder to disk, then all folders below it, and finally the folder itself."""
    files: list[str] = []
    folders: list[str] = []
    for parent, _, names in os.walk(folder):
        folders.append(parent)
        paths = [os.path.join(parent, name) for name in names]
        files += [path for path in paths if stat.S_ISREG(os.lstat(path).st_mode)]
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:  # the file system flushes many files at once
        for _ in pool.map(sync_file, files):
            pass
    for parent in reversed(folders):
        sync_folder(parent)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Flush the file's content to disk, even if another process wrote it."""
    _sync_and_close(open_descriptor(path))


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush the folder's entries to disk. Do nothing if access is denied or the file system cannot sync folders."""
    try:
        _sync_and_close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EINVAL, errno.ENOTSUP}:
            raise


def _sync_and_close(descriptor: int) -> None:
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":  # on macOS, fsync leaves the data in the disk's cache
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # the file system does not support F_FULLFSYNC
            pass
        else:
            return
    os.fsync(descriptor)
