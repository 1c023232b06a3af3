"""Read a source file as a Document, or return a Drop with the reason. Links are not followed, and no FIFO blocks."""

import errno
import hashlib
import os
import time

from gristmill.config.settings import ScanConfig
from gristmill.core.errors import InputError
from gristmill.core.names import counted
from gristmill.core.plain_files import FolderReader, NotPlainError, descriptor_path, open_descriptor
from gristmill.core.records import Document, Drop, DropReason, SourceFile
from gristmill.sources.decode import decode
from gristmill.sources.languages import is_qt_translation, language_of

ATTEMPTS = 3
SECONDS_BETWEEN_ATTEMPTS = 0.2
SYSTEM_ERRNOS = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENXIO, errno.ENODEV, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors of a disk, a connection or a process limit. The file may be readable later, so it must not be dropped."""


class ReadError(InputError):
    """The system failed to read an existing file in each of several attempts."""


def read_document(file: SourceFile, config: ScanConfig) -> Document | Drop:
    """Read and decode a source file. Return a Drop with the reason if the file cannot be used."""
    raw = read_bytes(file, config.max_file_bytes)
    return raw if isinstance(raw, Drop) else document_of(file, raw, hashlib.sha256(raw).hexdigest(), config)


def document_of(file: SourceFile, raw: bytes, sha256: str, config: ScanConfig) -> Document | Drop:
    """Decode the bytes of a source file. Return a Drop with the reason if the bytes cannot be used."""
    if not raw:
        return Drop.of(file, DropReason.EMPTY, "0 bytes")
    decoded = decode(raw)
    if isinstance(decoded, str):
        return Drop.of(file, DropReason.BINARY, decoded)
    if not decoded.text:
        return Drop.of(file, DropReason.EMPTY, f"only a byte order mark of {len(raw)} bytes")
    if file.may_be_translation and is_qt_translation(file.path, decoded.text):
        return Drop.of(file, DropReason.TRANSLATION, "translations: .ts file of Qt Linguist")
    language = language_of(file.path, decoded.text)
    if config.languages and language not in config.languages:
        return Drop.of(file, DropReason.LANGUAGE_NOT_WANTED, language)
    return Document(
        file=file,
        text=decoded.text,
        encoding=decoded.encoding,
        language=language,
        size=len(raw),
        sha256=sha256,
        is_unmodified=decoded.encoding == "utf-8",
    )


def read_bytes(file: SourceFile, max_bytes: int, folder: FolderReader | None = None) -> bytes | Drop:
    """Read all bytes of a source file. If the file changes during reading, it is read again.

    The bytes of a table row are read from the file of unpacked rows. `folder` reads most other files faster. Return a
    Drop if the file cannot be used. Raise ReadError if the system cannot read the file in any of several attempts.
    """
    raw = folder.read(file.location, max_bytes) if folder is not None and file.offset is None else None
    if raw is not None:
        return raw
    for attempt in range(ATTEMPTS):
        try:
            return _read_unchanged(file, max_bytes)
        except FileNotFoundError:
            return Drop.of(file, DropReason.VANISHED, "missing when the build tried to read it")
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Drop.of(file, DropReason.SYMLINK, "became a symbolic link after the scan")
            if error.errno not in SYSTEM_ERRNOS:
                return Drop.of(file, DropReason.UNREADABLE, error.strerror or str(error))
            if attempt == ATTEMPTS - 1:
                reason = f"{error.strerror or error}, in each of {ATTEMPTS} attempts"
                raise ReadError(f"cannot read {file.repo}/{file.path}: {reason}") from None
            time.sleep(SECONDS_BETWEEN_ATTEMPTS * (attempt + 1))
    raise AssertionError


def _read_unchanged(file: SourceFile, max_bytes: int) -> bytes | Drop:
    for _ in range(ATTEMPTS):
        try:
            descriptor = open_descriptor(file.location, follow_links=False)
        except NotPlainError:
            return Drop.of(file, DropReason.NOT_A_FILE, "no longer a regular file")
        try:
            if not _was_opened_at(descriptor, file.location):
                return Drop.of(file, DropReason.SYMLINK, "a folder in its path became a symbolic link after the scan")
            before = os.fstat(descriptor)
            size = before.st_size if file.offset is None else file.size
            if size > max_bytes:
                return Drop.of(file, DropReason.TOO_LARGE, f"{counted(size, 'byte')}, limit {max_bytes:,}")
            if file.offset is not None:
                return _read_row(descriptor, file)
            raw = _read_all(descriptor, size)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        is_unchanged = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if is_unchanged and len(raw) == before.st_size:
            return raw
    return Drop.of(file, DropReason.CHANGED_WHILE_READ, f"changed during each of {ATTEMPTS} attempts")


def _read_row(descriptor: int, file: SourceFile) -> bytes | Drop:
    """Read the text of a table row from the file of unpacked rows."""
    assert file.offset is not None
    raw = b""
    while len(raw) < file.size:
        more = os.pread(descriptor, file.size - len(raw), file.offset + len(raw))
        if not more:
            return Drop.of(file, DropReason.VANISHED, "the unpacked rows of the table have been truncated")
        raw += more
    return raw


def _was_opened_at(descriptor: int, location: str) -> bool:
    """Return True if the descriptor was opened at this path without following a link.

    O_NOFOLLOW checks only the last name of the path, and a folder may have become a link since the scan.
    """
    opened = descriptor_path(descriptor)
    return os.path.realpath(location) == location if opened is None else opened in {location, f"{location} (deleted)"}


def _read_all(descriptor: int, size: int) -> bytes:
    """Read a file of the expected size. One more byte is requested, so that the caller notices a file that grew."""
    raw = os.read(descriptor, size + 1)
    while 0 < len(raw) < size:
        more = os.read(descriptor, size + 1 - len(raw))
        if not more:
            break
        raw += more
    return raw
