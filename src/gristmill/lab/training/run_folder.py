"""Folder of a training run: its layout, its lock, and its checkpoints to resume from.

RUN/lock              locked while the run is active
RUN/run.json          dataset, settings and versions; written first
RUN/metrics.jsonl     a line per measurement
RUN/curves.svg, .html curves of the measurements, updated after evaluations
RUN/checkpoints/      the last two checkpoints, each with the best model up to its step
RUN/model/            the model with the lowest validation loss so far, with its tokenizer
RUN/tensorboard/      event files, if TensorBoard is installed
RUN/result.json       the result; written last, so its presence means that the run is finished
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
COMPLETE = "whole"
"""File in a checkpoint that is written last. Without it, the checkpoint is incomplete."""
BEST = "best"
"""Folder in a checkpoint with the best model up to the step of the checkpoint. RUN/model may be from a later step."""
CHANGEABLE_ON_RESUME = ("save_every", "workers", "device", "compile")
"""Settings that may differ when a run is resumed, because they affect its result at most by rounding."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of run.json."""

    gristmill: str
    dataset: str
    dataset_sha256: str
    """Digest of the dataset's rows and tokenizer, which is the same for every output format."""
    settings: dict[str, Any]
    versions: dict[str, str]
    device: str
    command: str


class RunFolder:
    """Folder of one training run."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not os.fspath(folder) or "\0" in os.fspath(folder):
            raise OutputError(f"{os.fspath(folder)!r} is not a valid folder name. Choose a new folder with --out.")
        self.path = Path(os.path.expanduser(folder))
        self._lock: int | None = None

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def find_checkpoint(self, facts: RunFacts, *, resume: bool) -> Path | None:
        """Return the checkpoint to resume from, or None to start from the beginning. Writes nothing.

        Raises OutputError if a new run would overwrite something, and ConfigError if the run to resume does not exist
        or has a different dataset or different settings.
        """
        if not resume:
            self._require_free()
            return None
        if not (self.path / RUN).is_file():
            raise ConfigError(f"no training run to resume in {str(self.path)!r}. Leave out --resume.")
        self._require_same(facts)
        return self.last_checkpoint()

    def begin(self, facts: RunFacts, checkpoint: Path | None) -> None:
        """Lock the folder. Write run.json for a new run, or reset the folder to the state of the checkpoint."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire_lock()
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None
        if checkpoint is None:
            self.drop_checkpoints()
            write_atomically(self.path / RUN, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
            return
        for other in (self.path / CHECKPOINTS).iterdir():
            if not _is_complete(other):  # the Trainer would count it among the two checkpoints to retain
                shutil.rmtree(other)
        if (checkpoint / BEST).is_dir():
            self.save_best_model(lambda folder: _link_all(checkpoint / BEST, folder))

    def _acquire_lock(self) -> None:
        """Lock the folder until `release` or the end of the process, so that no other run writes into it."""
        self._lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise OutputError(
                f"another training run is active in {str(self.path)!r}. Choose a new folder with --out."
            ) from None

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save_best_model(self, write: Callable[[Path], None]) -> None:
        """Replace the saved model. `write` writes the new model to a folder that is synced to disk and then renamed."""
        new, old = (self.path / f"{MODEL}{suffix}{UNFINISHED}" for suffix in ("", "-before"))
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        write(new)
        sync_tree(new)
        if self.model.is_dir():
            os.rename(self.model, old)
        os.rename(new, self.model)
        sync_folder(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def seal(self, checkpoint: Path, metrics: Metrics) -> None:
        """Add metrics and the best model to a checkpoint, sync it to disk and mark it complete.

        The Trainer deletes older checkpoints afterwards.
        """
        metrics.copy_to(checkpoint)
        shutil.rmtree(checkpoint / BEST, ignore_errors=True)
        if self.model.is_dir():
            _link_all(self.model, checkpoint / BEST)
        parts = {name: path.stat().st_size for name, path in _files_in(checkpoint).items()}
        sync_tree(checkpoint)
        sync_folder(checkpoint.parent)
        write_atomically(checkpoint / COMPLETE, msgspec.json.encode(parts))

    def facts(self) -> RunFacts:
        try:
            return msgspec.json.decode(read_plain(self.path / RUN), type=RunFacts)
        except msgspec.MsgspecError as error:
            raise DatasetError(f"{str(self.path / RUN)!r} is damaged: {error}. Train into a new folder.") from None

    def is_resumable(self) -> bool:
        """Return True if the run is finished or has a complete checkpoint."""
        return self.is_done() or self.last_checkpoint() is not None

    def is_done(self) -> bool:
        return (self.path / RESULT).is_file()

    def last_checkpoint(self) -> Path | None:
        """Return the last complete checkpoint, or None."""
        folder = self.path / CHECKPOINTS
        found = {path: CHECKPOINT.fullmatch(path.name) for path in folder.iterdir()} if folder.is_dir() else {}
        steps = {path: int(name[1]) for path, name in found.items() if name and _is_complete(path)}
        return max(steps, key=steps.__getitem__, default=None)

    def drop_checkpoints(self) -> None:
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def _require_free(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a file. Choose a new folder with --out.")
        if self.is_done():
            raise OutputError(f"{str(self.path)!r} contains a finished training run. Choose a new folder with --out.")
        if (self.path / RUN).is_file():
            if self.last_checkpoint() is not None:
                raise OutputError(
                    f"{str(self.path)!r} contains a stopped training run. Continue it with --resume, or choose a "
                    "new folder with --out."
                )
            return  # the earlier run has no checkpoint, so it cannot be resumed
        if any(path.name != LOCK and not path.name.endswith(UNFINISHED) for path in self.path.iterdir()):
            raise OutputError(
                f"{str(self.path)!r} is not empty and contains no training run. Choose a new folder with --out."
            )

    def _require_same(self, facts: RunFacts) -> None:
        earlier = self.facts()
        if earlier.dataset_sha256 != facts.dataset_sha256:
            raise ConfigError(
                f"the run in {str(self.path)!r} was started on a different dataset than {facts.dataset!r}, or on an "
                "earlier build of this dataset. Train into a new folder."
            )
        for name in TrainConfig.__struct_fields__:
            old_value, new_value = earlier.settings.get(name), facts.settings.get(name)
            if name not in CHANGEABLE_ON_RESUME and old_value != new_value:
                raise ConfigError(
                    f"the run in {str(self.path)!r} was started {_option_text(name, old_value)}, but would be resumed "
                    f"{_option_text(name, new_value)}. Resume with the same settings, or train into a new folder."
                )


def _option_text(name: str, value: Any) -> str:
    """Describe a setting as an option, such as `with --tokens 500` or `without --lora`."""
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return f"without {option}"
    return f"with {option}" if value is True else f"with {option} {value}"


def _link_all(source: Path, target: Path) -> None:
    """Hard-link all files of a folder into another folder, or copy them if linking fails."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        try:
            os.link(path, target / path.name)
        except OSError:
            shutil.copyfile(path, target / path.name)


def _files_in(folder: Path) -> dict[str, Path]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != COMPLETE)
    return {str(path.relative_to(folder)): path for path in paths}


def _is_complete(checkpoint: Path) -> bool:
    """Return True if the checkpoint was sealed and all its files still have the same size."""
    try:
        parts = msgspec.json.decode(read_plain(checkpoint / COMPLETE), type=dict[str, int])
        return all((checkpoint / name).stat().st_size == size for name, size in parts.items())
    except (OSError, msgspec.MsgspecError):
        return False
