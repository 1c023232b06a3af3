"""Download files from https:// and from fsspec addresses such as s3://, gs:// and hf://, and upload datasets.

All retries of file transfers are in this module. A transfer fails after five attempts in a row without progress. An
interrupted download continues where it stopped, if the size and a stamp such as the ETag show that the file is
unchanged. The retries of the libraries are switched off, because five attempts here with five attempts each in a
library would make twenty-five.
"""

import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from gristmill.core.errors import GristmillError, InputError, MissingExtraError, OutputError
from gristmill.core.layout import CARDS, MANIFEST, sync_file, sync_folder
from gristmill.core.manifest import read_manifest
from gristmill.core.names import printable
from gristmill.sources.addresses import fixed_part, is_glob, scheme_of, without_credentials

Result = TypeVar("Result")

ATTEMPTS = 5
RETRY_DELAY_SECONDS = (0.2, 0.5, 1.0, 3.0)
READ_TIMEOUT_SECONDS = 60.0
"""Timeout of a read. A read that times out is repeated."""
BLOCK_BYTES = 8 << 20
MIN_BLOCK_BYTES = 64 << 10
"""Minimum size of a block. After an error, blocks get smaller, so that a slow connection can deliver a block before the
read times out.
"""
LIST_TIMEOUT_SECONDS = 600.0
MIN_UPLOAD_BYTES_PER_SECOND = 64 << 10
"""A slower upload fails."""
RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Client errors (400 to 499) after which a retry may succeed."""
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "abfs": "adlfs"}
WEB = frozenset({"http", "https"})
LOCAL = frozenset({"file", "local"})
STAMPS = ("ETag", "etag", "blob_id", "oid", "md5Hash", "LastModified", "Last-Modified", "updated", "mtime", "created")
"""Properties that change with the content of a file, most reliable first. The names depend on the file system."""


class RemoteFile(NamedTuple):
    """A file at a remote address."""

    address: str
    """Address, which may contain credentials."""
    name: str
    """Path relative to the folder of the requested address, separated by `/`. For a single file, its file name."""
    size: int
    stamp: str | None
    """Value of the first property in STAMPS that the server reports. None if it reports none of them."""


class _Location(NamedTuple):
    """A path in a remote file system."""

    files: Any
    path: str
    address: str
    seconds: float
    """Default timeout of a call."""

    def call(self, method: str, *arguments: Any, seconds: float | None = None, **options: Any) -> Any:
        seconds = seconds or self.seconds
        if not self.files.async_impl:
            return _call_with_timeout(seconds, partial(getattr(self.files, method), *arguments, **options))
        from fsspec.asyn import sync  # noqa: PLC0415 - an extra

        return sync(self.files.loop, getattr(self.files, f"_{method}"), *arguments, timeout=seconds, **options)


def list_files(address: str, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> list[RemoteFile]:
    """List the files at an address, in name order. The address is a file, a prefix or a pattern with wildcards.

    Raise InputError if there are no files.
    """
    location = _locate(address, timeout_seconds)
    with _name_address_in_errors(address, InputError, "read"):
        found = _retry(lambda: _find(location))
    files = [_remote_file(location, key, properties) for key, properties in sorted(found.items())]
    if not files:
        raise InputError(f"no files found at {_quoted(address)}. Check the address.")
    return files


def download(file: RemoteFile, target: Path, timeout_seconds: float = READ_TIMEOUT_SECONDS) -> None:
    """Download a file to `target`. The file gets this name when it is complete."""
    location = _locate(file.address, timeout_seconds)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The state is part of the name, so that a download is not continued after the remote file has changed.
    state = hashlib.sha256(repr((file.address, file.size, file.stamp)).encode()).hexdigest()[:16]
    part = target.with_name(f"{target.name}.{state}.part")
    _require_disk_space(file, part)
    with _name_address_in_errors(file.address, InputError, "download"):
        (_download_stream if scheme_of(file.address) in WEB else _download_blocks)(location, file, part)
        _retry(lambda: _refuse_changed(location, file))
        if part.stat().st_size != file.size:
            raise OSError(f"received {part.stat().st_size} of {file.size} bytes")
        sync_file(part)
        os.replace(part, target)


def _require_disk_space(file: RemoteFile, part: Path) -> None:
    missing_bytes = file.size - (part.stat().st_size if part.exists() else 0)
    free_bytes = shutil.disk_usage(part.parent).free
    if missing_bytes > free_bytes:
        raise OutputError(
            f"downloading {_quoted(file.address)} takes {missing_bytes / 1e6:,.0f} MB, but only "
            f"{free_bytes / 1e6:,.0f} MB are free at {str(part.parent)!r}. Free some space, or use a different --out."
        )


def upload_dataset(folder: Path, address: str, stale: Iterable[str] = ()) -> None:
    """Upload the files that the manifest lists, then the cards (README.md and croissant.json), then the manifest.

    The manifest marks the dataset as complete. `stale` are the names of files from an interrupted upload. They are
    deleted first.
    """
    location = _locate(address)
    for name in stale:
        with _name_address_in_errors(f"{address.rstrip('/')}/{name}", OutputError, "delete"):
            _retry(partial(_delete, location, f"{location.path.rstrip('/')}/{name}"))
    for name in (*sorted(read_manifest(folder).files), *CARDS, MANIFEST):
        with _name_address_in_errors(f"{address.rstrip('/')}/{name}", OutputError, "upload"):
            _retry(partial(_upload, location, folder / name, f"{location.path.rstrip('/')}/{name}"))


def require_empty_prefix(address: str) -> None:
    """Raise OutputError if a dataset cannot be written to the address, or if files already exist there."""
    if scheme_of(address) in WEB or is_glob(address):
        raise OutputError(
            f"a dataset cannot be written to {_quoted(address)}. Use a prefix such as s3://bucket/dataset."
        )
    location = _locate(address)
    with _name_address_in_errors(address, OutputError, "list"):
        names = _retry(lambda: _list_names(location))
    if names:
        name = printable(names[0].rpartition("/")[2])
        raise OutputError(f"{_quoted(address)} already contains {name!r}. Use a different prefix, or empty this one.")


def _locate(address: str, seconds: float = READ_TIMEOUT_SECONDS) -> _Location:
    """Return the file system and path of an address."""
    scheme = scheme_of(address) or ""
    if scheme in WEB:
        from gristmill.sources.web import WebFiles  # noqa: PLC0415 - most builds fetch nothing

        return _Location(WebFiles(seconds), address, address, seconds)
    try:
        import fsspec  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingExtraError(f"{scheme}:// needs fsspec. Install it: pip install 'gristmill[remote]'") from None
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise MissingExtraError(_missing_package(scheme)) from None
    except ValueError:
        raise InputError(f"unknown address scheme {scheme}://. Use s3://, gs://, hf:// or https://.") from None
    with _name_address_in_errors(address, InputError, "open"):
        # fsspec's url_to_fs calls the same private methods, but does not allow choosing the class.
        files = kind(use_listings_cache=False, **kind._get_kwargs_from_urls(address), **_options(scheme, seconds))  # noqa: SLF001
        if hasattr(files, "retries"):
            files.retries = 1
        return _Location(files, kind._strip_protocol(address), address, seconds)  # noqa: SLF001


def _missing_package(scheme: str) -> str:
    package = PACKAGES.get(scheme)
    if package is None:
        return f"no installed package supports {scheme}://. Install its fsspec package, or use a local path."
    extra = "'gristmill[remote]'" if package == "s3fs" else package
    return f"{scheme}:// needs {package}. Install it: pip install {extra}"


def _options(scheme: str, timeout_seconds: float) -> dict[str, Any]:
    if scheme in {"s3", "s3a"}:
        limits = {"connect_timeout": min(timeout_seconds, 20), "read_timeout": timeout_seconds}
        return {"config_kwargs": limits | {"retries": {"max_attempts": 0}}}
    return {"auto_mkdir": True} if scheme in LOCAL else {}


def _find(location: _Location) -> dict[str, dict[str, Any]]:
    """Return the properties of all files at the location, keyed by path."""
    address, path = location.address, location.path
    if scheme_of(address) in WEB:
        if address.partition("?")[0].endswith("/"):
            raise InputError(
                f"{_quoted(address)} is a folder, and web servers do not list folders. Use the address of a file."
            )
        return {path: location.call("info", path)}
    if is_glob(path):
        found = location.call("glob", path, detail=True, seconds=LIST_TIMEOUT_SECONDS)
    else:
        properties = location.call("info", path)
        is_file = properties["type"] == "file" and not address.endswith("/")
        found = (
            {path: properties} if is_file else location.call("find", path, detail=True, seconds=LIST_TIMEOUT_SECONDS)
        )
    # The S3 console represents folders by keys that end in a slash.
    return {
        key: properties for key, properties in found.items() if properties["type"] == "file" and not key.endswith("/")
    }


def _remote_file(location: _Location, key: str, properties: dict[str, Any]) -> RemoteFile:
    size = properties.get("size")
    if size is None:
        quoted = _quoted(location.address)
        raise InputError(
            f"the server does not report the size of {quoted}. Download the file, and use the local copy as the source."
        )
    scheme = scheme_of(location.address)
    if scheme in WEB:
        return RemoteFile(location.address, without_credentials(key).rpartition("/")[2], int(size), _stamp(properties))
    base = fixed_part(location.path)
    name = key.removeprefix(base.rstrip("/") + "/") if key != base else key.rpartition("/")[2]
    return RemoteFile(f"{scheme}://{key}", name, int(size), _stamp(properties))


def _stamp(properties: dict[str, Any]) -> str | None:
    stamp = next((properties[name] for name in STAMPS if properties.get(name) is not None), None)
    # A listing may contain seconds where the properties of a single file contain a date.
    return str(stamp.timestamp() if isinstance(stamp, datetime) else stamp) if stamp is not None else None


def _download_blocks(location: _Location, file: RemoteFile, part: Path) -> None:
    """Append the missing blocks to a partial download. Each block that arrives resets the number of failures."""
    failures, block_bytes = 0, BLOCK_BYTES
    with part.open("ab") as stream:
        while (num_bytes := stream.tell()) < file.size:
            try:
                if failures:
                    _refuse_changed(location, file)
                block = _read_block(location, file.size, num_bytes, min(num_bytes + block_bytes, file.size))
            except Exception as error:
                failures += 1
                if failures == ATTEMPTS or _is_final(error):
                    raise
                block_bytes = max(MIN_BLOCK_BYTES, block_bytes // 4)
                time.sleep(RETRY_DELAY_SECONDS[failures - 1])
            else:
                failures, block_bytes = 0, min(BLOCK_BYTES, block_bytes * 2)
                stream.write(block)
                stream.flush()


def _download_stream(location: _Location, file: RemoteFile, part: Path) -> None:
    """Append the missing bytes to a partial download in one stream. Start over if the server ignores ranges.

    An attempt that gets at least MIN_BLOCK_BYTES further than earlier attempts resets the number of failures.
    """
    failures = most_bytes = 0
    with part.open("ab") as stream:
        while stream.tell() < file.size:
            try:
                if failures:
                    _refuse_changed(location, file)
                _append_stream(location, file, stream)
            except Exception as error:
                is_further = stream.tell() >= most_bytes + MIN_BLOCK_BYTES
                failures, most_bytes = (1, stream.tell()) if is_further else (failures + 1, most_bytes)
                if failures == ATTEMPTS or _is_final(error):
                    raise
                time.sleep(RETRY_DELAY_SECONDS[failures - 1])


def _append_stream(location: _Location, file: RemoteFile, stream: BinaryIO) -> None:
    num_bytes = stream.tell()
    with location.files.open_body(location.path, num_bytes, file.size) as (start, blocks):
        if start != num_bytes:
            stream.truncate(num_bytes := start)
            stream.seek(num_bytes)
        for block in blocks:
            num_bytes += len(block)
            if num_bytes > file.size:
                raise InputError(
                    f"the server sent more than the {file.size:,} bytes that it reported for {_quoted(file.address)}. "
                    "Download the file, and use the local copy as the source."
                )
            stream.write(block)
    if num_bytes < file.size:
        stream.flush()
        raise OSError(f"received {num_bytes} of {file.size} bytes")


def _read_block(location: _Location, size: int, start: int, end: int) -> bytes:
    block: bytes = location.call("cat_file", location.path, start=start, end=end)
    if not 0 < len(block) <= size - start:
        raise OSError(f"received {len(block)} of {end - start} requested bytes")
    return block


def _refuse_changed(location: _Location, file: RemoteFile) -> None:
    properties = location.call("info", location.path)
    if (properties.get("size"), _stamp(properties)) != (file.size, file.stamp):
        raise InputError(f"{_quoted(file.address)} changed while it was being downloaded. Try again.")


def _upload(location: _Location, source: Path, path: str) -> None:
    size = source.stat().st_size
    location.call("put_file", str(source), path, seconds=location.seconds + size / MIN_UPLOAD_BYTES_PER_SECOND)
    num_received = location.call("info", path)["size"]
    if num_received != size:
        raise OSError(f"the server received {num_received} of {size} bytes")
    if scheme_of(location.address) in LOCAL:  # remote storage makes uploads durable itself
        sync_file(path)
        sync_folder(os.path.dirname(path))


def _delete(location: _Location, path: str) -> None:
    with suppress(FileNotFoundError):
        location.call("rm_file", path, seconds=LIST_TIMEOUT_SECONDS)


def _list_names(location: _Location) -> list[str]:
    try:
        return list(location.call("ls", location.path, detail=False, seconds=LIST_TIMEOUT_SECONDS))
    except FileNotFoundError:
        return []


def _retry(attempt: Callable[[], Result]) -> Result:
    for seconds in RETRY_DELAY_SECONDS:
        try:
            return attempt()
        except Exception as error:  # each file system raises its own errors
            if _is_final(error):
                raise
        time.sleep(seconds)
    return attempt()


def _is_final(error: BaseException) -> bool:
    """Return True if a retry cannot succeed."""
    cause = error.__cause__
    if cause is not None and not isinstance(error, GristmillError) and type(cause).__module__.startswith("aiohttp"):
        return _is_final(cause)  # some file systems report every error of a web server as a missing file
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in RETRYABLE_STATUSES  # noqa: PLR2004
    is_permanent = isinstance(
        error, GristmillError | FileNotFoundError | PermissionError | NotImplementedError | TypeError
    )
    return (
        is_permanent
        or type(error).__name__ in {"NoCredentialsError", "PartialCredentialsError"}
        or _is_disk_full(error)
    )


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def _name_address_in_errors(address: str, kind: type[GristmillError], verb: str) -> Iterator[None]:
    """Turn an error of the file system into a one-line error of type `kind` that names the address."""
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:
        if _is_disk_full(error):  # the local disk is full, not the remote one
            raise
        is_missing = _is_missing(error)
        advice = "Check the address." if is_missing else "Check the network and the credentials, then try again."
        reason = "the address does not exist" if is_missing else _reason(error, address)
        raise kind(f"cannot {verb} {_quoted(address)}: {reason}. {advice}") from None


def _is_missing(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) and error.__cause__ is None


def _reason(error: Exception, address: str) -> str:
    if isinstance(error, TimeoutError):
        return f"the last of {ATTEMPTS} attempts timed out"
    cause = error.__cause__ or error
    text = " ".join(str(cause).split()).rstrip(".")
    # The error may quote the address, so its text is not printed if the address contains a login or a signature.
    is_secret = without_credentials(address) != address
    return f"the request failed ({type(cause).__name__})" if is_secret or not text else printable(text)


def _quoted(address: str) -> str:
    return repr(printable(without_credentials(address)))


def _call_with_timeout(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function in a separate thread. Raise TimeoutError if it takes longer than `seconds`.

    The call cannot be interrupted, so its thread continues after a timeout.
    """
    results: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
