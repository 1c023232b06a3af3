"""Every file name in a dataset folder, and writing one so that its final name means complete, even after a power cut.

A file system may bring a rename to the disk long before the content of what was renamed. So a file is synced before it
takes its final name, and the folder of that name before anything old is deleted. Files that carry a digest, which every
reader compares, do without: a torn one is made again.
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
"""Written last: its presence means complete."""
FILES = "files.jsonl"
"""One line per scanned file: kept or dropped, and why."""
CHECK = "check.json"
"""What `gristmill check` found; of no account to the dataset."""
REPORT = "report.html"
"""What `gristmill report` drew of it; of no account either, and gone with the next build."""
REPORT_MARK = '<meta name="generator" content="gristmill report">'
README = "README.md"
CROISSANT = "croissant.json"
"""Both are told from the manifest, which does not list them: people edit a README."""
CARDS = (README, CROISSANT)
SEAL = b"<!-- written by gristmill; sha256 of the lines above: %b -->\n"
UNFINISHED = ".tmp"
HALF_WRITTEN = re.compile(r"(.+)\.\d+-[0-9a-f]{8}\.tmp", re.DOTALL)
EXPORTING = ".export-"
"""Where another format grows, in the dataset's folder."""
TAKEN = "taken"
"""In there: names of what is moved from there into the dataset."""
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
SYNCS_AT_ONCE = 8


def data_file_name(split: Split, index: int, count: int, *, compressed: bool) -> str:
    """`train.jsonl`, or `train-00003-of-00012.jsonl` where a split takes several files."""
    part = "" if count == 1 else f"-{index:05d}-of-{count:05d}"
    return f"{split}{part}.jsonl{'.zst' if compressed else ''}"


def sealed(card: bytes) -> bytes:
    """With a last line by which it is known whether somebody has changed it."""
    return card + SEAL % hashlib.sha256(card).hexdigest().encode()


def is_as_sealed(path: Path) -> bool:
    """Whether it is a card of ours that nobody has changed."""
    try:
        content = read_plain(path) if path.is_file() else b""
    except OSError:
        return False
    return sealed(content[: content.rfind(SEAL[:20])]) == content


def is_report(path: Path) -> bool:
    """Whether it is a page that `gristmill report` has drawn; OSError where it cannot be read."""
    with open_plain(path) as stream:
        return REPORT_MARK.encode() in stream.read(2000)


def is_dataset_folder(folder: Path) -> bool:
    """Whether it looks like one of ours; reading its manifest says for sure."""
    try:
        with open_plain(folder / MANIFEST) as stream:
            return b'"gristmill"' in stream.read(200) and (folder / FILES).is_file()
    except OSError:
        return False


def can_hold_files(folder: Path) -> bool:
    """True if the folder, or else the nearest one above it that exists, can be written to."""
    if str(folder).startswith("~"):  # not expanded, so there is no such home
        return False
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    effective = os.access in os.supports_effective_ids
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=effective)


def half_written(name: str) -> str | None:
    """The name that a file was to have when `write_atomically` was killed; None for any other name."""
    match = HALF_WRITTEN.fullmatch(name)
    return match[1] if match else None


def half_exported(growing: Path, files: Iterable[str]) -> set[str]:
    """Names in a dataset's folder that an export has moved there before it broke off: no manifest names them.

    `files`: those that the manifest names.
    """
    known = {name.partition("/")[0] for name in files}
    taken = read_plain_text(growing / TAKEN).splitlines() if (growing / TAKEN).is_file() else ()
    return {name for name in taken if name not in known and not os.path.lexists(growing / name)}


def write_atomically(
    path: Path, content: bytes | Iterable[bytes], mode: int = 0o666, *, is_synced: bool = True
) -> None:
    """Whoever else writes the same at the same time, on this machine or another, does so under another name.

    `is_synced=False`: for a file with a digest in it, or in a folder that is synced as a whole before it counts.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as stream:
            stream.writelines([content] if isinstance(content, bytes) else content)
            if is_synced:
                stream.flush()
                _sync(descriptor)
        os.replace(beside, path)
        if is_synced:
            sync_folder(path.parent)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def sync_tree(folder: Path) -> None:
    """Bring all files below the folder to the disk, then the folders with their names, itself last."""
    files: list[str] = []
    folders: list[str] = []
    for place, _, names in os.walk(folder):
        folders.append(place)
        paths = [os.path.join(place, name) for name in names]
        files += [path for path in paths if stat.S_ISREG(os.lstat(path).st_mode)]
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:  # the file system brings many of them to the disk in one go
        for _ in pool.map(sync_file, files):
            pass
    for place in reversed(folders):
        sync_folder(place)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Bring its content to the disk, whichever process has written it."""
    _sync_and_close(open_descriptor(path))


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Bring the names in it to the disk, unless it cannot be opened or its file system cannot do that."""
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
    if sys.platform == "darwin":  # there, fsync leaves it in the memory of the disk
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:  # a file system that has no such thing
            pass
        else:
            return
    os.fsync(descriptor)
