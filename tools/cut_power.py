"""Simulate a power cut at every step of a rebuild, and check that either the earlier or the new dataset remains intact.

    sudo .venv/bin/python tools/cut_power.py

1. The dataset is on an ext4 file system in an image file. A rebuild stops before each change to a file or folder.
2. At each stop the image is copied twice: unchanged, and after the fsync of another program. This fsync makes the file
   system write the names and sizes of all files, but not their content. This is the worst case of a power cut. The last
   copies are made a few seconds after the build.
3. Each copy is mounted. Mounting replays the journal, as after a power cut. The copy must contain a dataset that passes
   `gristmill check`. In every fifth copy, the next build must also give the new dataset, `clean` must work, and the
   file that a user has added to the dataset must still exist.

The script needs Linux and root, because it mounts images. `--without-sync` tests a build that syncs nothing.
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
"""Audit events that change files or folders."""
SECONDS_AFTER = (0, 1, 3, 6)
"""Times of the last copies, in seconds after the build."""
IMAGES_BETWEEN_BUILDS = 5
NOTE = "notes.txt"
"""Name of the file that a user has added to the dataset."""


class Copy(NamedTuple):
    """Copy of the disk image at one step of the build."""

    image: Path
    when: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--options", default="commit=600", help="options of mount (default: %(default)s)")
    parser.add_argument(
        "--compress", choices=("none", "zstd"), default="none", help="compression of the dataset (default: none)"
    )
    parser.add_argument("--without-sync", action="store_true", help="test a build without syncs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cut-power-") as name:
        folder = Path(name)
        before, after = _write_sources(folder)
        output = OutputConfig(compress=given.compress)
        copies: list[Copy] = []
        fingerprints: list[str] = []
        image = folder / "image"
        _make_image(image)
        with _mounted(image, folder / "disk", given.options) as disk:
            config = Config(sources=[str(before)], out=str(disk / "out"), output=output, run=RunConfig(workers=1))
            _run_in_process(build, config)
            fingerprints.append(read_manifest(disk / "out").fingerprint)
            (disk / "out" / NOTE).write_text("mine")
            os.sync()
            config = Config(sources=[str(after)], out=str(disk / "out"), output=output, run=RunConfig(workers=1))
            for when in _build_steps(config, is_synced=not given.without_sync):
                copies += _copy_images(image, disk, folder / "copies", when, len(copies))
            fingerprints.append(read_manifest(disk / "out").fingerprint)
        results = Counter(
            _inspect_copy(copy, folder / "disk", config, fingerprints, builds_again=number % IMAGES_BETWEEN_BUILDS == 0)
            for number, copy in enumerate(copies)
        )
    for result, count in results.most_common():
        print(f"{count:4} images: {result}")
    return 0 if set(results) <= {"the earlier dataset", "the new dataset"} else 1


def _write_sources(folder: Path) -> tuple[Path, Path]:
    """Write source files to one folder and edited copies of them to a second folder, and return both folders."""
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
def _mounted(image: Path, mount_point: Path, options: str = "") -> Iterator[Path]:
    mount_point.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", ",".join(filter(None, ("loop", options))), str(image), str(mount_point)], check=True)  # noqa: S607
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", str(mount_point)], check=True)  # noqa: S607


def _run_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function in a separate process, so that no file stays open. Return its result or error message."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except (gristmill.GristmillError, OSError) as error:
            return str(error)


def _build_steps(config: Config, *, is_synced: bool) -> Iterator[str]:
    """Build, and yield a description of each step while the build waits there. Then yield at SECONDS_AFTER the end."""
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=_build_in_steps, args=(theirs, config, is_synced))
    process.start()
    theirs.close()
    try:
        while True:
            yield ours.recv()
            ours.send(None)
    except EOFError:
        process.join()
    if process.exitcode:
        sys.exit("the build failed. See its output above.")
    ended = time.monotonic()
    for seconds in SECONDS_AFTER:
        time.sleep(max(0.0, ended + seconds - time.monotonic()))
        yield f"{seconds} s after the build"


def _build_in_steps(pipe: Connection, config: Config, is_synced: bool) -> None:
    """Build. Before each change to a file or folder, send a description of the change and wait for an answer."""
    disk = os.path.dirname(config.out)

    def stop(step: str) -> None:
        pipe.send(step)
        pipe.recv()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            is_change = isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        else:
            is_change = event in CHANGES
        if is_change and not isinstance(arguments[0], int):
            path = os.fsdecode(arguments[0])
            if path.startswith(disk) or (event in CHANGES and arguments[-1] != -1):
                stop(f"{event} {path.removeprefix(disk)}")

    def with_stops(function: Callable[..., None], name: str) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            stop(f"before {name}")
            function(*arguments)
            stop(f"after {name}")

        return call

    sync: Callable[..., None] = with_stops(layout._sync, "a sync") if is_synced else lambda _: None  # noqa: SLF001
    layout._sync = sync  # noqa: SLF001
    layout.SYNCS_AT_ONCE = 1  # several threads would share the pipe
    Workspace._exchange = with_stops(Workspace._exchange, "the exchange")  # type: ignore[method-assign]  # noqa: SLF001
    sys.addaudithook(audit)
    build(config)


def _copy_images(image: Path, disk: Path, folder: Path, when: str, number: int) -> Iterator[Copy]:
    """Copy the image unchanged, and again after a journal write. Skip a copy if the image has not changed."""
    folder.mkdir(exist_ok=True)
    for suffix in ("", ", journal written"):
        if suffix:
            with (disk / "of-another-program").open("ab") as stream:
                stream.write(b"x")
                stream.flush()
                os.fsync(stream.fileno())
        target = folder / f"{number:05d}{'-journal' if suffix else ''}"
        if _copy_if_changed(image, target):
            yield Copy(target, when + suffix)


_last_copied = [0]


def _copy_if_changed(image: Path, target: Path) -> bool:
    """Copy the image if it has changed since the last copy, and return whether it was copied.

    Copy again if the image changes during the copy, so that the copy is consistent.
    """
    while (written_at := image.stat().st_mtime_ns) != _last_copied[0]:
        subprocess.run(["cp", "--sparse=always", str(image), str(target)], check=True)  # noqa: S607
        if image.stat().st_mtime_ns == written_at:
            _last_copied[0] = written_at
            return True
    return False


def _inspect_copy(copy: Copy, mount_point: Path, config: Config, fingerprints: list[str], *, builds_again: bool) -> str:
    """Return a description of the dataset in the copy. If the dataset has a fault, print the fault and the step."""
    with _mounted(copy.image, mount_point):
        result = str(_run_in_process(_classify_dataset, config, fingerprints, builds_again))
    copy.image.unlink()
    if result not in ("the earlier dataset", "the new dataset"):
        print(f"{copy.when}: {result}")
    return result


def _classify_dataset(config: Config, fingerprints: list[str], builds_again: bool) -> str:
    """Return a description of the dataset in the mounted copy: the earlier dataset, the new dataset, or a fault."""
    out = Path(config.out)
    fingerprint = read_manifest(out).fingerprint
    if not gristmill.check(out).ok:
        return "a damaged dataset"
    if fingerprint not in fingerprints:
        return "an unknown dataset"
    if builds_again:
        if build(config).fingerprint != fingerprints[1] or not gristmill.check(out).ok:
            return "the next build gives a different dataset"
        Workspace(str(out)).clean()
    if builds_again and (out / NOTE).read_text() != "mine":
        return "the user's file is lost"
    return ("the earlier dataset", "the new dataset")[fingerprints.index(fingerprint)]


if __name__ == "__main__":
    sys.exit(main())
