"""A training's folder: what lies in it, whose it is, and where a training that was stopped can go on.

RUN/run.json          what is trained on what, with which versions; written first
RUN/metrics.jsonl     a line per measurement
RUN/curves.svg, .html the same as pictures, drawn again at every evaluation
RUN/checkpoints/      the last two places to go on from
RUN/model/            the best model so far by validation, with its tokenizer
RUN/tensorboard/      where tensorboard is installed
RUN/result.json       how it ended; written last: its presence means done
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from gristmill.errors import ConfigError, DatasetError, OutputError
from gristmill.layout import write_atomically
from gristmill.training.settings import TrainConfig

RUN, RESULT = "run.json", "result.json"
CURVES_SVG, CURVES_HTML = "curves.svg", "curves.html"
MODEL, CHECKPOINTS, TENSORBOARD = "model", "checkpoints", "tensorboard"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")
LAST_IN_CHECKPOINT = "trainer_state.json"
"""Written after all else: a checkpoint without it was cut off."""
OF_NO_ACCOUNT = ("save_every", "workers", "device", "compile")
"""Settings that change how a run goes, not what comes of it."""


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    gristmill: str
    dataset: str
    dataset_sha256: str
    """Of its manifest, but for how the build went."""
    settings: dict[str, Any]
    versions: dict[str, str]
    device: str
    command: str


class RunFolder:
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.expanduser(folder))

    def claim(self, facts: RunFacts, *, resume: bool) -> Path | None:
        """Makes it this training's -> the checkpoint to go on from, if there is one."""
        try:
            if resume and (self.path / RUN).is_file():
                self._require_same(facts)
                return self.last_checkpoint()
            if resume:
                raise ConfigError(f"there is no training to go on with in {str(self.path)!r}. Leave out --resume.")
            self._require_empty()
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / RUN, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n")
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None
        return None

    def facts(self) -> RunFacts:
        try:
            return msgspec.json.decode((self.path / RUN).read_bytes(), type=RunFacts)
        except msgspec.MsgspecError as error:
            raise DatasetError(f"{str(self.path / RUN)!r} is damaged: {error}. Train into a new folder.") from None

    def is_done(self) -> bool:
        return (self.path / RESULT).is_file()

    def last_checkpoint(self) -> Path | None:
        """One that was written to its end."""
        folder = self.path / CHECKPOINTS
        found = {path: CHECKPOINT.fullmatch(path.name) for path in folder.iterdir()} if folder.is_dir() else {}
        whole = {path: int(name[1]) for path, name in found.items() if name and (path / LAST_IN_CHECKPOINT).is_file()}
        return max(whole, key=whole.__getitem__, default=None)

    def drop_checkpoints(self) -> None:
        """Once the training is done there is nothing to go on with."""
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)

    def _require_empty(self) -> None:
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a file. Name a new folder with --out.")
        if (self.path / RUN).is_file():
            said = "holds a finished training" if self.is_done() else "holds a training that was stopped"
            way = "Name a new folder with --out." if self.is_done() else "Go on with it by --resume, or name a new one."
            raise OutputError(f"{str(self.path)!r} {said}. {way}")
        if any(self.path.iterdir()):
            raise OutputError(f"{str(self.path)!r} is not empty and holds no training. Name a new folder with --out.")

    def _require_same(self, facts: RunFacts) -> None:
        earlier = self.facts()
        if earlier.dataset_sha256 != facts.dataset_sha256:
            raise ConfigError(
                f"{str(self.path)!r} was begun on another dataset than {facts.dataset!r}, or on an earlier build of "
                "it. Train into a new folder."
            )
        for name in TrainConfig.__struct_fields__:
            then, now = earlier.settings.get(name), facts.settings.get(name)
            if name not in OF_NO_ACCOUNT and then != now:
                option = "--" + name.replace("_", "-")
                raise ConfigError(
                    f"{str(self.path)!r} was begun with {option} {then}, got {now}. Go on with the same settings, or "
                    "train into a new folder."
                )
