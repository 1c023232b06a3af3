"""Files behind an address (s3://, gs://, hf://, https:// and whatever fsspec knows) -> files here; and the way back.

The only place where the network can fail while a dataset is read or written, and so the only one with retries: five
attempts without a byte between them end it. A download goes on where it broke off, as long as the size and the ETag
say that it is still the same file. Libraries' own retries are switched off, lest five become twenty-five.
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
SECONDS_BETWEEN = (0.2, 0.5, 1.0, 3.0)
READ_SECONDS = 60.0
"""Without an answer for so long, a read is given up and asked for anew."""
BLOCK_BYTES = 8 << 20
LEAST_BLOCK_BYTES = 64 << 10
"""After a fault less is asked for at a time, so that on a slow line a block still comes within READ_SECONDS."""
LIST_SECONDS = 600.0
SLOWEST_BYTES_PER_SECOND = 64 << 10
"""An upload that is slower than this is given up."""
WORTH_ANOTHER_ATTEMPT = frozenset({408, 425, 429})
"""Of the answers 400 to 499, which blame the one who asks."""
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "abfs": "adlfs"}
WEB = frozenset({"http", "https"})
LOCAL = frozenset({"file", "local"})
STAMPS = ("ETag", "etag", "blob_id", "oid", "md5Hash", "LastModified", "Last-Modified", "updated", "mtime", "created")
"""What tells one state of a file from another, the surest first: each file system has another name for it."""


class RemoteFile(NamedTuple):
    address: str
    """As fsspec opens it; may hold credentials."""
    name: str
    """Relative to what was asked for, with `/`."""
    size: int
    stamp: str | None


class _System(NamedTuple):
    """A file system, and what was asked for in it."""

    files: Any
    path: str
    address: str
    seconds: float
    """Without an answer for so long, a call is given up."""

    def call(self, method: str, *arguments: Any, seconds: float | None = None, **options: Any) -> Any:
        seconds = seconds or self.seconds
        if not self.files.async_impl:
            return _within(seconds, partial(getattr(self.files, method), *arguments, **options))
        from fsspec.asyn import sync  # noqa: PLC0415 - an extra

        return sync(self.files.loop, getattr(self.files, f"_{method}"), *arguments, timeout=seconds, **options)


def list_files(address: str, read_seconds: float = READ_SECONDS) -> list[RemoteFile]:
    """What a file, a wildcard or a prefix stands for, in name order."""
    system = _open(address, read_seconds)
    with _told(address, InputError, "read"):
        found = _retried(lambda: _find(system))
    files = [_remote_file(system, key, facts) for key, facts in sorted(found.items())]
    if not files:
        raise InputError(f"there is nothing at {_shown(address)}. Check the address.")
    return files


def download(file: RemoteFile, target: Path, read_seconds: float = READ_SECONDS) -> None:
    """Puts the file at `target`, which is complete once it is there."""
    system = _open(file.address, read_seconds)
    target.parent.mkdir(parents=True, exist_ok=True)
    # What an interrupted download left is gone on with if it is of the same state of the file.
    state = hashlib.sha256(repr((file.address, file.size, file.stamp)).encode()).hexdigest()[:16]
    part = target.with_name(f"{target.name}.{state}.part")
    _require_room(file, part)
    with _told(file.address, InputError, "download"):
        (_fill_from_web if scheme_of(file.address) in WEB else _fill)(system, file, part)
        _retried(lambda: _refuse_changed(system, file))
        if part.stat().st_size != file.size:
            raise OSError(f"{part.stat().st_size} of {file.size} bytes came")
        sync_file(part)
        os.replace(part, target)


def _require_room(file: RemoteFile, part: Path) -> None:
    missing = file.size - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(part.parent).free
    if missing > free:
        raise OutputError(
            f"{_shown(file.address)} has {missing / 1e6:,.0f} MB to download, but only {free / 1e6:,.0f} MB are free "
            f"at {str(part.parent)!r}. Free some, or name another --out."
        )


def upload_dataset(folder: Path, address: str, stale: Iterable[str] = ()) -> None:
    """All that the manifest names, and the manifest last: there, too, its presence means complete.

    `stale`: names that an upload which broke off may have left.
    """
    system = _open(address)
    for name in stale:
        with _told(f"{address.rstrip('/')}/{name}", OutputError, "delete"):
            _retried(partial(_delete, system, f"{system.path.rstrip('/')}/{name}"))
    for name in (*sorted(read_manifest(folder).files), *CARDS, MANIFEST):
        with _told(f"{address.rstrip('/')}/{name}", OutputError, "upload"):
            _retried(partial(_upload, system, folder / name, f"{system.path.rstrip('/')}/{name}"))


def refuse_taken(address: str) -> None:
    """A dataset is only written where nothing is yet."""
    if scheme_of(address) in WEB or is_glob(address):
        raise OutputError(f"a dataset cannot be written to {_shown(address)}. Name a prefix like s3://bucket/dataset.")
    system = _open(address)
    with _told(address, OutputError, "look into"):
        held = _retried(lambda: _held(system))
    if held:
        name = printable(held[0].rpartition("/")[2])
        raise OutputError(f"{_shown(address)} already holds {name!r}. Name another prefix, or empty this one.")


def _open(address: str, read_seconds: float = READ_SECONDS) -> _System:
    scheme = scheme_of(address) or ""
    if scheme in WEB:
        from gristmill.sources.web import WebFiles  # noqa: PLC0415 - most builds fetch nothing

        return _System(WebFiles(read_seconds), address, address, read_seconds)
    try:
        import fsspec  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise MissingExtraError(f"{scheme}:// needs fsspec. Install it: pip install 'gristmill[remote]'") from None
    try:
        kind = fsspec.get_filesystem_class(scheme)
    except ImportError:
        raise MissingExtraError(_missing(scheme)) from None
    except ValueError:
        raise InputError(f"{scheme}:// is not known. Try s3://, gs://, hf:// or https://.") from None
    with _told(address, InputError, "open"):
        # The two underscored ones are what fsspec's own url_to_fs calls; that one has no say over the class.
        files = kind(use_listings_cache=False, **kind._get_kwargs_from_urls(address), **_options(scheme, read_seconds))  # noqa: SLF001
        if hasattr(files, "retries"):
            files.retries = 1
        return _System(files, kind._strip_protocol(address), address, read_seconds)  # noqa: SLF001


def _missing(scheme: str) -> str:
    package = PACKAGES.get(scheme, "another package")
    extra = "'gristmill[remote]'" if package == "s3fs" else package
    return f"{scheme}:// needs {package}. Install it: pip install {extra}"


def _options(scheme: str, read_seconds: float) -> dict[str, Any]:
    if scheme in {"s3", "s3a"}:
        limits = {"connect_timeout": min(read_seconds, 20), "read_timeout": read_seconds}
        return {"config_kwargs": limits | {"retries": {"max_attempts": 0}}}
    return {"auto_mkdir": True} if scheme in LOCAL else {}


def _find(system: _System) -> dict[str, dict[str, Any]]:
    address, path = system.address, system.path
    if scheme_of(address) in WEB:
        if address.partition("?")[0].endswith("/"):
            raise InputError(f"{_shown(address)} names a folder, which a web server does not list. Name one file.")
        return {path: system.call("info", path)}
    if is_glob(path):
        found = system.call("glob", path, detail=True, seconds=LIST_SECONDS)
    else:
        facts = system.call("info", path)
        is_file = facts["type"] == "file" and not address.endswith("/")
        found = {path: facts} if is_file else system.call("find", path, detail=True, seconds=LIST_SECONDS)
    # A key that ends in a slash stands for a folder, in S3's console.
    return {key: facts for key, facts in found.items() if facts["type"] == "file" and not key.endswith("/")}


def _remote_file(system: _System, key: str, facts: dict[str, Any]) -> RemoteFile:
    size = facts.get("size")
    if size is None:
        shown = _shown(system.address)
        raise InputError(f"the server does not say how large {shown} is. Download it, and name that file.")
    scheme = scheme_of(system.address)
    if scheme in WEB:
        return RemoteFile(system.address, without_credentials(key).rpartition("/")[2], int(size), _stamp(facts))
    base = fixed_part(system.path)
    name = key.removeprefix(base.rstrip("/") + "/") if key != base else key.rpartition("/")[2]
    return RemoteFile(f"{scheme}://{key}", name, int(size), _stamp(facts))


def _stamp(facts: dict[str, Any]) -> str | None:
    stamp = next((facts[name] for name in STAMPS if facts.get(name) is not None), None)
    # A listing may give seconds where a single look gives a date.
    return str(stamp.timestamp() if isinstance(stamp, datetime) else stamp) if stamp is not None else None


def _fill(system: _System, file: RemoteFile, part: Path) -> None:
    """Block by block to the end of what is there already. A block that comes begins a new count of attempts."""
    failures, block_bytes = 0, BLOCK_BYTES
    with part.open("ab") as stream:
        while (have := stream.tell()) < file.size:
            try:
                if failures:
                    _refuse_changed(system, file)
                block = _read_block(system, file.size, have, min(have + block_bytes, file.size))
            except Exception as error:
                failures += 1
                if failures == ATTEMPTS or _is_final(error):
                    raise
                block_bytes = max(LEAST_BLOCK_BYTES, block_bytes // 4)
                time.sleep(SECONDS_BETWEEN[failures - 1])
            else:
                failures, block_bytes = 0, min(BLOCK_BYTES, block_bytes * 2)
                stream.write(block)
                stream.flush()


def _fill_from_web(system: _System, file: RemoteFile, part: Path) -> None:
    """In one stream, to the end of what is there already or, if the server ignores ranges, from the beginning.

    An attempt that brings the file LEAST_BLOCK_BYTES further than any before it begins a new count of attempts.
    """
    failures = furthest = 0
    with part.open("ab") as stream:
        while stream.tell() < file.size:
            try:
                if failures:
                    _refuse_changed(system, file)
                _stream(system, file, stream)
            except Exception as error:
                is_further = stream.tell() >= furthest + LEAST_BLOCK_BYTES
                failures, furthest = (1, stream.tell()) if is_further else (failures + 1, furthest)
                if failures == ATTEMPTS or _is_final(error):
                    raise
                time.sleep(SECONDS_BETWEEN[failures - 1])


def _stream(system: _System, file: RemoteFile, stream: BinaryIO) -> None:
    have = stream.tell()
    with system.files.body(system.path, have, file.size) as (start, blocks):
        if start != have:
            stream.truncate(have := start)
            stream.seek(have)
        for block in blocks:
            have += len(block)
            if have > file.size:
                raise InputError(f"{_shown(file.address)} sends more than the {file.size:,} bytes it has announced.")
            stream.write(block)
    if have < file.size:
        stream.flush()
        raise OSError(f"{have} of {file.size} bytes came")


def _read_block(system: _System, size: int, start: int, end: int) -> bytes:
    block: bytes = system.call("cat_file", system.path, start=start, end=end)
    if not 0 < len(block) <= size - start:
        raise OSError(f"{len(block)} bytes came where {end - start} were asked for")
    return block


def _refuse_changed(system: _System, file: RemoteFile) -> None:
    facts = system.call("info", system.path)
    if (facts.get("size"), _stamp(facts)) != (file.size, file.stamp):
        raise InputError(f"{_shown(file.address)} changed while it was downloaded. Start again.")


def _upload(system: _System, source: Path, path: str) -> None:
    size = source.stat().st_size
    system.call("put_file", str(source), path, seconds=system.seconds + size / SLOWEST_BYTES_PER_SECOND)
    arrived = system.call("info", path)["size"]
    if arrived != size:
        raise OSError(f"{arrived} of {size} bytes arrived")
    if scheme_of(system.address) in LOCAL:  # elsewhere, what has arrived is kept by others
        sync_file(path)
        sync_folder(os.path.dirname(path))


def _delete(system: _System, path: str) -> None:
    with suppress(FileNotFoundError):
        system.call("rm_file", path, seconds=LIST_SECONDS)


def _held(system: _System) -> list[str]:
    try:
        return list(system.call("ls", system.path, detail=False, seconds=LIST_SECONDS))
    except FileNotFoundError:
        return []


def _retried(attempt: Callable[[], Result]) -> Result:
    for seconds in SECONDS_BETWEEN:
        try:
            return attempt()
        except Exception as error:  # each file system has errors of its own
            if _is_final(error):
                raise
        time.sleep(seconds)
    return attempt()


def _is_final(error: BaseException) -> bool:
    """Whether another attempt would end the same way."""
    cause = error.__cause__
    if cause is not None and not isinstance(error, GristmillError) and type(cause).__module__.startswith("aiohttp"):
        return _is_final(cause)  # fsspec calls every fault of a web server a missing file
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in WORTH_ANOTHER_ATTEMPT  # noqa: PLR2004
    is_ours = isinstance(error, GristmillError | FileNotFoundError | PermissionError | NotImplementedError | TypeError)
    return is_ours or type(error).__name__ in {"NoCredentialsError", "PartialCredentialsError"} or _is_full(error)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def _told(address: str, kind: type[GristmillError], verb: str) -> Iterator[None]:
    """Whatever goes wrong inside, in one line that names the address."""
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:
        if _is_full(error):  # of this machine's disk
            raise
        raise kind(f"cannot {verb} {_shown(address)}: {_why(error, address)}.") from None


def _why(error: Exception, address: str) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in time, in {ATTEMPTS} attempts"
    if isinstance(error, FileNotFoundError) and error.__cause__ is None:
        return "there is nothing of that name"
    text = " ".join(str(error.__cause__ or error).split()).rstrip(".")
    # An address with a login or a signature in it is not shown, nor is any part of one.
    is_secret = without_credentials(address) != address
    return type(error.__cause__ or error).__name__ if is_secret or not text else printable(text)


def _shown(address: str) -> str:
    return repr(printable(without_credentials(address)))


def _within(seconds: float, function: Callable[[], Result]) -> Result:
    """A call that cannot be interrupted is left to itself."""
    results: list[Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(function())
        except Exception as error:  # noqa: BLE001 - it is raised again by the one who waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError
    return results[0]
