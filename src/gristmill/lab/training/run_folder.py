"""A training's folder: what lies in it, whose it is, and where a training that was stopped can go on.

RUN/lock              held while a training runs
RUN/run.json          what is trained on what, with which versions; written first
RUN/metrics.jsonl     a line per measurement
RUN/curves.svg, .html the same as pictures, drawn again at every evaluation
RUN/checkpoints/      the last two places to go on from, each with the best model until there
RUN/model/            the best model so far by validation, with its tokenizer
RUN/tensorboard/      where tensorboard is installed
RUN/result.json       how it ended; written last: its presence means done
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gristmill.core.errors import ConfigError, DatasetError, OutputError
from gristmill.core.layout import UNFINISHED, sync_folder, sync_tree, write_atomically
from gristmill.core.plain_files import read_plain
from gristmill.lab.training.metrics import Metrics
from gristmill.lab.training.train_config import TrainConfig

RUN, RESULT, LOCK = "run.json", "result.json", "lock"
CURVES_SVG, CURVES_HTML = "curves.svg", "curves.html"
MODEL, CHECKPOINTS, TENSORBOARD = "model", "checkpoints", "tensorboard"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
WHOLE = "whole"
"""In a checkpoint, written after all else: without it, it was cut off."""
BEST = "best"
"""In a checkpoint: the best model so far. A later one may be in its place when the run goes on from here."""
OF_NO_ACCOUNT = ("save_every", "workers", "device", "compile")
"""Settings that change how a run goes, not what comes of it."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    gristmill: str
    dataset: str
    dataset_sha256: str
    """Of its rows and tokenizer, whatever the format."""
    settings: dict[str, Any]
    versions: dict[str, str]
    device: str
    command: str


class RunFolder:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not os.fspath(folder) or "\0" in os.fspath(folder):
            raise OutputError(f"{os.fspath(folder)!r} cannot be a folder. Name a new one with --out.")
        self.path = Path(os.path.expanduser(folder))
        self._lock: int | None = None

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def look(self, facts: RunFacts, *, resume: bool) -> Path | None:
        """Refuses what is another's -> the checkpoint to go on from, if there is one. Nothing is written yet."""
        if not resume:
            self._require_free()
            return None
        if not (self.path / RUN).is_file():
            raise ConfigError(f"there is no training to go on with in {str(self.path)!r}. Leave out --resume.")
        self._require_same(facts)
        return self.last_checkpoint()

    def begin(self, facts: RunFacts, checkpoint: Path | None) -> None:
        """Makes it this training's, or puts it back to where the checkpoint is."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock_it()
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None
        if checkpoint is None:
            self.drop_checkpoints()
            write_atomically(self.path / RUN, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
            return
        for other in (self.path / CHECKPOINTS).iterdir():
            if not _is_whole(other):  # the Trainer keeps the last two: it would delete a whole one for its sake
                shutil.rmtree(other)
        if (checkpoint / BEST).is_dir():
            self.keep_model(lambda folder: _link_all(checkpoint / BEST, folder))

    def _lock_it(self) -> None:
        """Held until the process ends, or `release`: two trainings in one folder would write over each other."""
        self._lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise OutputError(
                f"another training is under way in {str(self.path)!r}. Name a new folder with --out."
            ) from None

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def keep_model(self, write: Callable[[Path], None]) -> None:
        """In the place of the one before, once it is whole and on the disk."""
        beside, before = (self.path / f"{MODEL}{which}{UNFINISHED}" for which in ("", "-before"))
        for left in (beside, before):
            shutil.rmtree(left, ignore_errors=True)
        write(beside)
        sync_tree(beside)
        if self.model.is_dir():
            os.rename(self.model, before)
        os.rename(beside, self.model)
        sync_folder(self.path)
        shutil.rmtree(before, ignore_errors=True)

    def seal(self, checkpoint: Path, metrics: Metrics) -> None:
        """All of it is on the disk, and what it is, is written down. The Trainer deletes older ones later."""
        metrics.copy_to(checkpoint)
        shutil.rmtree(checkpoint / BEST, ignore_errors=True)
        if self.model.is_dir():
            _link_all(self.model, checkpoint / BEST)
        parts = {name: path.stat().st_size for name, path in _files_in(checkpoint).items()}
        sync_tree(checkpoint)
        sync_folder(checkpoint.parent)
        write_atomically(checkpoint / WHOLE, msgspec.json.encode(parts))

    def facts(self) -> RunFacts:
        try:
            return msgspec.json.decode(read_plain(self.path / RUN), type=RunFacts)
        except msgspec.MsgspecError as error:
            raise DatasetError(f"{str(self.path / RUN)!r} is damaged: {error}. Train into a new folder.") from None

    def can_go_on(self) -> bool:
        return self.is_done() or self.last_checkpoint() is not None

    def is_done(self) -> bool:
        return (self.path / RESULT).is_file()

    def last_checkpoint(self) -> Path | None:
        """One that was written to its end."""
        folder = self.path / CHECKPOINTS
        found = {path: CHECKPOINT.fullmatch(path.name) for path in folder.iterdir()} if folder.is_dir() else {}
        whole = {path: int(name[1]) for path, name in found.items() if name and _is_whole(path)}
        return max(whole, key=whole.__getitem__, default=None)

    def drop_checkpoints(self) -> None:
        """Once the training is done there is nothing to go on with."""
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def _require_free(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a file. Name a new folder with --out.")
        if self.is_done():
            raise OutputError(f"{str(self.path)!r} holds a finished training. Name a new folder with --out.")
        if (self.path / RUN).is_file():
            if self.last_checkpoint() is not None:
                raise OutputError(
                    f"{str(self.path)!r} holds a training that was stopped. Go on with it by --resume, or name a new "
                    "folder with --out."
                )
            return  # it never got anywhere
        if any(path.name != LOCK and not path.name.endswith(UNFINISHED) for path in self.path.iterdir()):
            raise OutputError(f"{str(self.path)!r} is not empty and holds no training. Name a new folder with --out.")

    def _require_same(self, facts: RunFacts) -> None:
        earlier = self.facts()
        if earlier.dataset_sha256 != facts.dataset_sha256:
            raise ConfigError(
                f"{str(self.path)!r} was begun on other rows than those of {facts.dataset!r}: on another dataset, or "
                "an earlier build of it. Train into a new folder."
            )
        for name in TrainConfig.__struct_fields__:
            then, now = earlier.settings.get(name), facts.settings.get(name)
            if name not in OF_NO_ACCOUNT and then != now:
                option = "--" + name.replace("_", "-")
                raise ConfigError(
                    f"{str(self.path)!r} was begun with {option} {then}, got {now}. Go on with the same settings, or "
                    "train into a new folder."
                )


def _link_all(source: Path, target: Path) -> None:
    """The same files under another name, at no cost; where that cannot be, copies."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)


def _files_in(folder: Path) -> dict[str, Path]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != WHOLE)
    return {str(path.relative_to(folder)): path for path in paths}


def _is_whole(checkpoint: Path) -> bool:
    """With every part that was there when it was sealed, and as large."""
    try:
        parts = msgspec.json.decode(read_plain(checkpoint / WHOLE), type=dict[str, int])
        return all((checkpoint / name).stat().st_size == size for name, size in parts.items())
    except (OSError, msgspec.MsgspecError):
        return False
