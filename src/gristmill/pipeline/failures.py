"""What goes wrong on the way -> one line that says what, where, and what to do."""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gristmill.cleaning.clean import without_secret, without_secrets
from gristmill.config.config import Config
from gristmill.core.errors import InputError, NothingToBuildError, OutputError
from gristmill.core.names import counted, printable
from gristmill.core.records import Drop
from gristmill.pipeline.context import Context
from gristmill.pipeline.prepare import Batch, Whereabouts
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


def without_failed(context: Context, batch: Batch, reason: str) -> Batch:
    """The batch without the file over which its worker died; where that is not wanted, an error that names it."""
    number = Whereabouts(context.scratch, batch).last()
    if number is None or number in batch.given_up or number >= len(batch.files):
        raise OutputError(f"batch {batch.index} could not be prepared: {reason}. {GO_ON}; try fewer --workers.")
    file = batch.files[number]
    if not context.config.run.skip_failed:
        name = without_secret(f"{file.repo}/{file.path}", context.config.secrets)
        raise OutputError(
            f"{name} (batch {batch.index}) could not be prepared: {reason}. {GO_ON}; try fewer --workers, or "
            "--skip-failed to leave the file out."
        )
    return msgspec.structs.replace(batch, given_up={**batch.given_up, number: reason})


class Anchors:
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
