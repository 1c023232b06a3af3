"""What goes wrong on the way -> one line that says what, where, and what to do."""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from gristmill.cleaning.clean import without_secrets
from gristmill.config.config import Config
from gristmill.core.errors import InputError, NothingToBuildError, OutputError
from gristmill.core.names import counted, printable
from gristmill.core.plain_files import read_plain
from gristmill.core.records import Drop
from gristmill.sources.addresses import Source, without_credentials

GO_ON = "What is done is kept: the same command goes on from there"


@contextmanager
def as_ours(config: Config) -> Iterator[None]:
    """What the system refuses while writing; sources that cannot be read never come here."""
    try:
        yield
    except OSError as error:
        raise _output_error(error, config) from error


def _output_error(error: OSError, config: Config) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left while writing {config.out!r}; nothing was changed there. {GO_ON}, once there is room; "
            "--compress zstd takes a tenth."
        )
    place = f" at {str(error.filename)!r}" if error.filename else ""
    return OutputError(f"cannot write {config.out!r}: {error.strerror or error}{place}.")


def nothing_to_build(config: Config, drops: Iterable[Drop]) -> NothingToBuildError:
    """An empty result has a reason: say it."""
    where = ", ".join(repr(without_credentials(source)) for source in config.sources)
    counts: Counter[str] = Counter()
    first: dict[str, Drop] = {}
    for drop in drops:
        counts[drop.reason] += 1
        first.setdefault(drop.reason, drop)
    if not counts:
        return NothingToBuildError(
            f"there are no files in {where}. Check the path, and what its .gitignore leaves out."
        )
    reasons = counts.most_common(3)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons)
    one = without_secrets(first[reasons[0][0]], config.secrets)
    example = printable(f"{one.path}: {one.detail}")
    return NothingToBuildError(
        f"nothing to build from in {where}: {counted(counts.total(), 'file')} found, all dropped ({listed}). "
        f"For example {example}."
    )


class SourceRoots:
    """The sources as they were when the build began: one that is unmounted later must not look like an empty one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._places = {source.root: _identity(source.root) for source in sources}

    def refuse_vanished(self) -> None:
        for root, identity in self._places.items():
            if identity is None or _identity(root) != identity:
                raise InputError(f"the source {root!r} is gone. Bring it back. {GO_ON}.")


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class Whereabouts:
    """Which file of its batch a worker is at, written down where it is found if the worker dies over it."""

    def __init__(self, scratch: Path, batch_index: int) -> None:
        self._path = scratch / f"{batch_index:08d}.at"
        self._descriptor: int | None = None

        self.is_tried_again = False
        """A worker died at this batch: files are now to be taken one by one, so that it is clear over which."""

    def __enter__(self) -> Self:
        self.is_tried_again = self.last() is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        if error is None:
            self._path.unlink(missing_ok=True)

    def __call__(self, number: int) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._descriptor, number.to_bytes(8, "little"), 0)
        return number

    def last(self) -> int | None:
        try:
            return int.from_bytes(read_plain(self._path), "little")
        except OSError:
            return None
