"""Cut the power at every step of a rebuild: is the dataset that is found afterwards whole, the earlier or the new one?

    sudo .venv/bin/python tools/cut_power.py

The dataset lies on ext4 in an image file. A build over it stops before each change that it makes to a file or folder.
The image is copied there twice: as it is, and after another program's fsync, which makes the file system write down all
names and sizes so far but not the content behind them. That is the worst a cut can do. The last copies are of the time
after the build. Each copy is mounted, which replays its journal as after a cut, and must hold a dataset that passes
`gristmill check`, with the user's own file in it. In every fifth, the next build must give the new one, and `clean`
must work.

Linux only, as root: it mounts images. `--without-sync` shows what happens to a build that syncs nothing.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import gristmill
from gristmill import Config, OutputConfig, RunConfig, build
from gristmill.core import layout
from gristmill.core.manifest import read_manifest
from gristmill.pipeline.work_folder import Workspace

IMAGE_BYTES = 256 << 20
PACKAGES = ("json", "logging")
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
SECONDS_AFTER = (0, 1, 3, 6)
IMAGES_BETWEEN_BUILDS = 5
NOTE = "notes.txt"


class Copy(NamedTuple):
    image: Path
    when: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--options", default="commit=600", help="for mount; default: %(default)s")
    parser.add_argument("--compress", choices=("none", "zstd"), default="none", help="of the dataset; default: none")
    parser.add_argument("--without-sync", action="store_true", help="see what a build without syncs would leave")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cut-power-") as name:
        folder = Path(name)
        before, after = _sources(folder)
        output = OutputConfig(compress=given.compress)
        copies: list[Copy] = []
        fingerprints: list[str] = []
        image = folder / "image"
        _make_image(image)
        with _mounted(image, folder / "disk", given.options) as disk:
            config = Config(sources=[str(before)], out=str(disk / "out"), output=output, run=RunConfig(workers=1))
            _apart(build, config)
            fingerprints.append(read_manifest(disk / "out").fingerprint)
            (disk / "out" / NOTE).write_text("mine")
            os.sync()
            config = Config(sources=[str(after)], out=str(disk / "out"), output=output, run=RunConfig(workers=1))
            for when in _steps(config, is_synced=not given.without_sync):
                copies += _copies(image, disk, folder / "copies", when, len(copies))
            fingerprints.append(read_manifest(disk / "out").fingerprint)
        found = Counter(
            _found(copy, folder / "disk", config, fingerprints, goes_on=number % IMAGES_BETWEEN_BUILDS == 0)
            for number, copy in enumerate(copies)
        )
    for what, count in found.most_common():
        print(f"{count:4} images: {what}")
    return 0 if set(found) <= {"the earlier dataset", "the new dataset"} else 1


def _sources(folder: Path) -> tuple[Path, Path]:
    """The same files before and after an edit."""
    for state in ("before", "after"):
        for package in PACKAGES:
            shutil.copytree(
                Path(sysconfig.get_path("stdlib"), package),
                folder / state / "stdlib" / package,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
    for path in sorted((folder / "after").rglob("*.py"))[::3]:
        path.write_text(path.read_text() + "\n\ndef added_later(value):\n    return value + 1\n")
    return folder / "before/stdlib", folder / "after/stdlib"


def _make_image(image: Path) -> None:
    with image.open("wb") as stream:
        stream.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)  # noqa: S607


@contextmanager
def _mounted(image: Path, place: Path, options: str = "") -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", ",".join(filter(None, ("loop", options))), str(image), str(place)], check=True)  # noqa: S607
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)  # noqa: S607


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """In a process of its own, which keeps no file open when it has ended; an error becomes its text."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except (gristmill.GristmillError, OSError) as error:
            return str(error)


def _steps(config: Config, *, is_synced: bool) -> Iterator[str]:
    """What the build does next, while it waits; then how long ago it ended."""
    near, far = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_build_in_steps, args=(far, config, is_synced))
    process.start()
    far.close()
    try:
        while True:
            yield near.recv()
            near.send(None)
    except EOFError:
        process.join()
    if process.exitcode:
        sys.exit("the build failed")
    ended = time.monotonic()
    for seconds in SECONDS_AFTER:
        time.sleep(max(0.0, ended + seconds - time.monotonic()))
        yield f"{seconds} s after the build"


def _build_in_steps(pipe: Connection, config: Config, is_synced: bool) -> None:
    place = os.path.dirname(config.out)

    def step(what: str) -> None:
        pipe.send(what)
        pipe.recv()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            is_ours = isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        else:
            is_ours = event in CHANGES
        if is_ours and not isinstance(arguments[0], int):
            path = os.fsdecode(arguments[0])
            if path.startswith(place) or (event in CHANGES and arguments[-1] != -1):
                step(f"{event} {path.removeprefix(place)}")

    def stopping(function: Callable[..., None], what: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            step(f"before {what}")
            function(*arguments)
            step(f"after {what}")

        return call

    sync: Callable[..., None] = stopping(layout._sync, "a sync") if is_synced else lambda _: None  # noqa: SLF001
    layout._sync = sync  # noqa: SLF001
    layout.SYNCS_AT_ONCE = 1  # one pipe
    Workspace._exchange = stopping(Workspace._exchange, "the exchange")  # type: ignore[method-assign]  # noqa: SLF001
    sys.addaudithook(look)
    build(config)


def _copies(image: Path, disk: Path, folder: Path, when: str, number: int) -> Iterator[Copy]:
    """As it is, and once the file system was made to write its journal; only where something was written since."""
    folder.mkdir(exist_ok=True)
    for how in ("", ", journal written"):
        if how:
            with (disk / "of-another-program").open("ab") as stream:
                stream.write(b"x")
                stream.flush()
                os.fsync(stream.fileno())
        target = folder / f"{number:05d}{'-journal' if how else ''}"
        if _copied(image, target):
            yield Copy(target, when + how)


_last_copied = [0]


def _copied(image: Path, target: Path) -> bool:
    """Between two writes to it, so that the copy is of one moment."""
    while (written_at := image.stat().st_mtime_ns) != _last_copied[0]:
        subprocess.run(["cp", "--sparse=always", str(image), str(target)], check=True)  # noqa: S607
        if image.stat().st_mtime_ns == written_at:
            _last_copied[0] = written_at
            return True
    return False


def _found(copy: Copy, place: Path, config: Config, fingerprints: list[str], *, goes_on: bool) -> str:
    """In a sentence; what is wrong is printed with the step that it was at."""
    with _mounted(copy.image, place):
        what = str(_apart(_judged, config, fingerprints, goes_on))
    copy.image.unlink()
    if what not in ("the earlier dataset", "the new dataset"):
        print(f"{copy.when}: {what}")
    return what


def _judged(config: Config, fingerprints: list[str], goes_on: bool) -> str:
    out = Path(config.out)
    fingerprint = read_manifest(out).fingerprint
    if not gristmill.check(out).ok:
        return "a damaged dataset"
    if fingerprint not in fingerprints:
        return "another dataset"
    if goes_on:
        if build(config).fingerprint != fingerprints[1] or not gristmill.check(out).ok:
            return "the next build gives another dataset"
        Workspace(str(out)).clean()
    if goes_on and (out / NOTE).read_text() != "mine":
        return "the user's own file is lost"
    return ("the earlier dataset", "the new dataset")[fingerprints.index(fingerprint)]


if __name__ == "__main__":
    sys.exit(main())
