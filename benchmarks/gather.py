"""Download and unpack source distributions with 100,000 files and 2 GB of real code, for measurements at scale.

    python benchmarks/gather.py DIR [--tenth OTHER] [--files 100000] [--bytes 2e9]
    python benchmarks/gather.py DIR --files 32000 --bytes 1e8 --pack corpus.tar.xz     # for speed.py and cores.py

1. Download the packages in benchmarks/corpus.txt, in the order of that file, from the package index that pip uses.
   The code of the packages is not run. (`pip download` would run code of a source distribution.)
2. Check the SHA-256 of each package and unpack its regular files into DIR/name-version/. A package whose folder
   exists is not downloaded again.
3. Stop after the package that completes both --files and --bytes. Only files that may be source code are counted:
   1 byte to 1 MiB, with no NUL in the first 8 KiB. This rule does not depend on gristmill, so DIR is the same on every
   machine and with every version.
4. With --tenth, make hard links in OTHER to a tenth of the files, chosen by hashed path.
5. With --pack, write an archive for machines without a network. It contains 20,000 files of up to 64 kB, chosen by
   hashed path. `python -m tarfile -e corpus.tar.xz DIR` unpacks the archive. In the archive, folders named `vendor`
   are renamed to `code`, because a build excludes `vendor`, and most C, C++ and CUDA code of these packages is in
   such folders.
"""

import argparse
import hashlib
import html
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import Request, urlopen

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from gristmill.sources.languages import language_of

CORPUS = Path(__file__).with_name("corpus.txt")
DOWNLOADS_AT_ONCE = 4
MAX_TRIES = 4
TIMEOUT_SECONDS = 60
PIECE_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 20
NUL_SEARCH_BYTES = 8192
MAX_LANGUAGES = 10
PACKED_FILES = 20_000
PACKED_FILE_BYTES = 64_000
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 28}]
"""Compression with a dictionary of 256 MiB, which is larger than the packed files."""
INDEX_CONTENT_TYPES = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
ANCHOR = re.compile(r"""<a\s[^>]*?href=["']([^"']+)""", re.IGNORECASE)
DEFAULT_INDEX = re.compile(r"--index-url <url>[^(]*\(default\s+(\S+)\)")


class Pin(NamedTuple):
    """A package of benchmarks/corpus.txt, with its exact version."""

    name: str
    version: str

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"


class Link(NamedTuple):
    filename: str
    url: str
    sha256: str


class Amount(NamedTuple):
    files: int = 0
    num_bytes: int = 0

    def plus(self, sizes: Sequence[int]) -> "Amount":
        return Amount(self.files + len(sizes), self.num_bytes + sum(sizes))

    def reaches(self, wanted: "Amount") -> bool:
        return self.files >= wanted.files and self.num_bytes >= wanted.num_bytes

    def __str__(self) -> str:
        return f"{self.files:,} files, {self.num_bytes / 1e6:,.1f} MB"


class GatherError(Exception):
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--bytes", type=float, default=2e9)
    parser.add_argument(
        "--tenth",
        metavar="OTHER",
        type=Path,
        help="new folder for a tenth of the files, on the same file system as DIR",
    )
    parser.add_argument(
        "--pack", metavar="FILE", type=Path, help="write a sample of the files into this .tar.xz archive"
    )
    options = parser.parse_args()
    if not hasattr(tarfile, "data_filter"):
        parser.error("Python 3.11.4 or later is needed to unpack untrusted archives safely.")
    if options.tenth is not None and options.tenth.exists():
        parser.error(f"--tenth: {options.tenth} already exists. Remove it, or choose a new folder.")
    try:
        packages = gather(options.folder, Amount(options.files, int(options.bytes)))
        summarize(options.folder, packages)
        if options.tenth is not None:
            link_tenth(options.folder, packages, options.tenth)
            summarize(options.tenth, [name for name in packages if (options.tenth / name).is_dir()])
        if options.pack is not None:
            print(f"\n{options.pack}: {pack(options.folder, packages, options.pack)}")
    except GatherError as error:
        sys.exit(f"gather.py: {error}")


def gather(folder: Path, wanted: Amount) -> list[str]:
    """Download packages until `wanted` is reached, and return the names of their folders in download order."""
    pins = read_pins(CORPUS)
    folder.mkdir(parents=True, exist_ok=True)
    check_folder(folder, [pin.folder for pin in pins])
    amount, packages = Amount(), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as work,
        closing(fetch_in_order(pins, folder, Path(work))) as fetched,
    ):
        for pin, archive in fetched:
            if archive is not None:
                unpack(archive, folder / pin.folder, Path(work))
                archive.unlink()
            sizes = [size for _, size in iter_source_files(folder / pin.folder)]
            amount = amount.plus(sizes)
            packages.append(pin.folder)
            print(f"{len(packages):3} {pin.folder}: {Amount().plus(sizes)}; total {amount}", flush=True)
            if amount.reaches(wanted):
                break
    if not amount.reaches(wanted):
        raise GatherError(
            f"the packages in {CORPUS} contain only {amount}, but {wanted} are required. Add packages, or lower "
            "--files or --bytes."
        )
    check_folder(folder, packages)
    return packages


def check_folder(folder: Path, packages: Sequence[str]) -> None:
    """Raise if the folder contains other files or folders, because builds of the folder would include them."""
    unexpected = sorted({path.name for path in folder.iterdir()} - set(packages))
    if unexpected:
        more = f" and {len(unexpected) - 1} more" if len(unexpected) > 1 else ""
        raise GatherError(
            f"{folder} must contain only packages of the corpus, but contains {unexpected[0]}{more}. Choose a new "
            "folder, or delete the other files."
        )


def read_pins(listing: Path) -> list[Pin]:
    lines = [line.partition("#")[0].strip() for line in listing.read_text(encoding="utf-8").splitlines()]
    return [Pin(*line.split("==")) for line in lines if line]


def fetch_in_order(pins: Sequence[Pin], folder: Path, work: Path) -> Generator[tuple[Pin, Path | None]]:
    """Yield each pin with its archive, or with None if the package is already unpacked.

    Up to DOWNLOADS_AT_ONCE downloads run in the background.
    """
    index = index_url()
    rest = iter(pins)
    pool = ThreadPoolExecutor(DOWNLOADS_AT_ONCE)

    def start(pin: Pin) -> tuple[Pin, Future[Path | None]]:
        is_unpacked = (folder / pin.folder).is_dir()
        return pin, pool.submit(lambda: None if is_unpacked else fetch(pin, index, work))

    try:
        ahead = deque(start(pin) for pin in islice(rest, DOWNLOADS_AT_ONCE))
        while ahead:
            pin, archive = ahead.popleft()
            yield pin, archive.result()
            ahead.extend(start(pin) for pin in islice(rest, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def index_url() -> str:
    """Return the URL of the package index that pip uses, from pip's help text.

    The URL depends on environment variables and configuration files.
    """
    command = [sys.executable, "-m", "pip", "download", "--help"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "500"})
    found = DEFAULT_INDEX.search(process.stdout)
    if found is None:
        raise GatherError(f"`{' '.join(command)}` printed no index URL: {process.stderr.strip()}. Is pip installed?")
    return found[1].rstrip("/")


def fetch(pin: Pin, index: str, work: Path) -> Path:
    """Download the source distribution of a package, in up to MAX_TRIES attempts."""
    for attempt in range(1, MAX_TRIES + 1):
        try:
            link = find_sdist(pin, index)
            return download(link, work / link.filename)
        except (OSError, HTTPException, ValueError) as error:
            if attempt == MAX_TRIES:
                raise GatherError(
                    f"cannot download {pin.name}=={pin.version} in {MAX_TRIES} attempts: {error!r}."
                ) from error
            print(f"    {pin.folder}: {error!r}, retrying", file=sys.stderr, flush=True)
            time.sleep(2**attempt)
    raise AssertionError


def find_sdist(pin: Pin, index: str) -> Link:
    links = [link for link in read_page(f"{index}/{canonicalize_name(pin.name)}/") if is_sdist_of(link.filename, pin)]
    if not links:
        raise GatherError(
            f"{index} has no source distribution of {pin.name}=={pin.version}. Change the version in {CORPUS}."
        )
    return min(links, key=lambda link: (link.filename.endswith(".zip"), link.filename))


def read_page(url: str) -> list[Link]:
    """Return the links with a SHA-256 on the index page of a project, in JSON (PEP 691) or HTML (PEP 503)."""
    with urlopen(Request(url, headers={"Accept": INDEX_CONTENT_TYPES}), timeout=TIMEOUT_SECONDS) as page:  # noqa: S310 - URL from pip
        is_json = page.headers.get_content_type().endswith("json")
        text, base = page.read().decode("utf-8"), page.url
    if is_json:
        files: list[dict[str, Any]] = json.loads(text)["files"]
        found = [Link(file["filename"], urljoin(base, file["url"]), file["hashes"].get("sha256", "")) for file in files]
    else:
        parts = [urldefrag(urljoin(base, html.unescape(href))) for href in ANCHOR.findall(text)]
        names = [unquote(urlsplit(url).path.rpartition("/")[2]) for url, _ in parts]
        digests = [digest.removeprefix("sha256=") for _, digest in parts]
        found = [Link(name, url, digest) for name, (url, _), digest in zip(names, parts, digests, strict=True)]
    return [link for link in found if re.fullmatch("[0-9a-f]{64}", link.sha256)]


def is_sdist_of(filename: str, pin: Pin) -> bool:
    try:
        return parse_sdist_filename(filename) == (canonicalize_name(pin.name), Version(pin.version))
    except (InvalidSdistFilename, InvalidVersion):
        return False


def download(link: Link, path: Path) -> Path:
    digest = hashlib.sha256()
    with urlopen(link.url, timeout=TIMEOUT_SECONDS) as response, path.open("wb") as file:  # noqa: S310 - URL from the index
        while piece := response.read(PIECE_BYTES):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != link.sha256:
        raise ValueError(f"the SHA-256 of {link.filename} is {digest.hexdigest()}, but the index lists {link.sha256}")
    return path


def unpack(archive: Path, folder: Path, work: Path) -> None:
    """Unpack the regular files of an archive. Links are left out, because they could point outside the folder."""
    part = work / folder.name
    part.mkdir()
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            # extractall removes `..` and leading slashes from names, and writes a link as a file with the target path.
            packed.extractall(part)  # noqa: S202 - see above
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(part, filter=keep_files)  # noqa: S202 - filtered
    inner = list(part.iterdir())
    (inner[0] if len(inner) == 1 and inner[0].is_dir() else part).rename(folder)
    shutil.rmtree(part, ignore_errors=True)


def keep_files(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    try:
        return tarfile.data_filter(member, path) if member.isfile() or member.isdir() else None
    except tarfile.FilterError:
        return None


def iter_source_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the path and the size of each file that may be source code."""
    for path in iter_files(folder):
        size = os.stat(path).st_size
        if 0 < size <= MAX_FILE_BYTES:
            with open(path, "rb") as file:
                if b"\0" not in file.read(NUL_SEARCH_BYTES):
                    yield path, size


def iter_files(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names)


def link_tenth(folder: Path, packages: Sequence[str], other: Path) -> None:
    for package in packages:
        for path in iter_files(folder / package):
            relative = os.path.relpath(path, folder)
            if int.from_bytes(path_digest(relative)) % 10 == 0:
                linked = os.path.join(other, relative)
                os.makedirs(os.path.dirname(linked), exist_ok=True)
                os.link(path, linked)


def pack(folder: Path, packages: Sequence[str], archive: Path) -> Amount:
    """Write a sample of the files into an archive, with the same bytes on every machine.

    Files with the same name are adjacent, because this improves compression.
    """
    sizes = {
        os.path.relpath(path, folder): size
        for package in packages
        for path, size in iter_source_files(folder / package)
        if size <= PACKED_FILE_BYTES and os.path.basename(path) != ".git"
    }
    chosen = sorted(sizes, key=path_digest)[:PACKED_FILES]
    chosen.sort(key=lambda path: (os.path.splitext(path)[1], os.path.basename(path), path))
    with lzma.open(archive, "wb", filters=XZ_FILTERS) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for path in chosen:
            member = tarfile.TarInfo(path.replace("/vendor/", "/code/"))
            member.size = sizes[path]
            with open(folder / path, "rb") as file:
                tar.addfile(member, file)
    return Amount().plus([sizes[path] for path in chosen])


def path_digest(relative: str) -> bytes:
    return hashlib.sha256(os.fsencode(relative)).digest()


def summarize(folder: Path, packages: Sequence[str]) -> None:
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for package in packages:
        for path, size in iter_source_files(folder / package):
            language = language_of(path, b"")
            files[language] += 1
            sizes[language] += size
    print(f"\n{folder}: {len(packages)} packages, {Amount(files.total(), sizes.total())}")
    for language, size in sizes.most_common(MAX_LANGUAGES):
        print(f"  {language:12} {Amount(files[language], size)}")


if __name__ == "__main__":
    main()
