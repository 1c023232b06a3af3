"""Where a tokenizer goes: a folder, or one file that ends with .json; what else it made lies in or beside it.

    OUT/tokenizer.json  OUT/tokenizer_config.json  OUT/files.jsonl  OUT/vocabulary.json
    OUT.json            (none)                     OUT.files.jsonl  OUT.vocabulary.json

A new folder takes its place by rename. Only what such a run has made is ever replaced. Where files are put one by one,
vocabulary.json is the first: it says whose they are, and by their digests whether all of them are there.
"""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.core.errors import ConfigError, OutputError
from gristmill.core.layout import FILES, TOKENIZER, TOKENIZER_CONFIG, UNFINISHED, sync_folder, sync_tree
from gristmill.core.names import is_address
from gristmill.core.plain_files import read_plain

FACTS = "vocabulary.json"
ENDING = ".json"


class _Facts(msgspec.Struct, frozen=True):
    """By which what such a run has made is known, whichever version it was."""

    gristmill: str
    sha256: str
    splits_sha256: str


class Place(NamedTuple):
    out: Path
    """Absolute, without links."""
    is_file: bool

    @classmethod
    def of(cls, out: str) -> "Place":
        if is_address(out):
            raise ConfigError(f"--out must be a folder or a .json file here, got {out!r}.")
        path = Path(os.path.realpath(os.path.expanduser(out)))
        if not path.name:
            raise ConfigError(f"{out!r} cannot be a tokenizer's folder. Name a new one with --out.")
        return cls(path, is_file=path.name.endswith(ENDING) and not path.is_dir())

    @property
    def files(self) -> dict[str, Path]:
        """By the name each has in a folder."""
        if not self.is_file:
            return {name: self.out / name for name in (FILES, TOKENIZER_CONFIG, TOKENIZER, FACTS)}
        stem = self.out.name.removesuffix(ENDING)
        beside = {name: self.out.with_name(f"{stem}.{name}") for name in (FILES, FACTS)}
        return {FILES: beside[FILES], TOKENIZER: self.out, FACTS: beside[FACTS]}

    @property
    def splits(self) -> Path:
        return self.files[FILES]

    def refuse_foreign(self) -> None:
        """It may be new, an empty folder, or what an earlier run has made; anything else is somebody's and stays."""
        is_ours = self._facts() is not None
        if self.is_file:
            found = next((path for path in self.files.values() if os.path.lexists(path)), None)
            config = self.out.with_name(TOKENIZER_CONFIG)
            if not is_ours and found is not None:
                raise OutputError(f"{str(found)!r} is there, and not of an earlier run. Name another file with --out.")
            if config.exists():
                raise OutputError(
                    f"{str(config)!r} would be taken for the new one's configuration. Name a folder with --out."
                )
        elif self.out.is_dir():
            if not is_ours and any(self.out.iterdir()):
                raise OutputError(
                    f"{str(self.out)!r} is not empty, and no tokenizer that was trained here. Name another with --out."
                )
        elif os.path.lexists(self.out):
            raise OutputError(
                f"{str(self.out)!r} exists and is not a folder. Name a new folder, or a file like tok.json."
            )

    def _facts(self) -> _Facts | None:
        try:
            return msgspec.json.decode(read_plain(self.files[FACTS]), type=_Facts)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def is_whole(self) -> bool:
        """Whether a run has made all of it, and was not stopped while it put files in their places."""
        facts = self._facts()
        try:
            return facts is not None and (facts.sha256, facts.splits_sha256) == tuple(
                hashlib.sha256(read_plain(self.files[name])).hexdigest() for name in (TOKENIZER, FILES)
            )
        except OSError:
            return False

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """A folder beside it, in which the files grow; `publish` puts them in their places."""
        self._clear_stages()
        stage = self.out.with_name(f"{self.out.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
        stage.mkdir(parents=True)
        descriptor = os.open(stage, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield stage
        finally:
            os.close(descriptor)
            shutil.rmtree(stage, ignore_errors=True)

    def _clear_stages(self) -> None:
        """Delete what runs that were killed have left; one that still runs holds a lock."""
        name = re.compile(re.escape(self.out.name) + r"\.\d+-[0-9a-f]{8}" + re.escape(UNFINISHED))
        siblings = self.out.parent.iterdir() if self.out.parent.is_dir() else ()
        for left in [path for path in siblings if name.fullmatch(path.name) and path.is_dir()]:
            with suppress(OSError):
                descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left)
                finally:
                    os.close(descriptor)

    def publish(self, stage: Path) -> None:
        sync_tree(stage)
        if not self.is_file and not (self.out.is_dir() and any(self.out.iterdir())):
            os.rename(stage, self.out)
        else:
            files = self.files
            for name in (FACTS, *(name for name in files if name != FACTS)):
                os.replace(stage / name, files[name])
                sync_folder(files[name].parent)
        sync_folder(self.out.parent)


def splits_word(out: str) -> str:
    """What --splits takes, as its place was named."""
    place = Place.of(out)
    beside = Path(out).with_name(place.splits.name)
    return out if not place.is_file else str(beside if beside.exists() else place.splits)


def splits_beside(tokenizer: str) -> Path | None:
    """The splits that a tokenizer which was trained here was made with; None for any other."""
    if is_address(tokenizer) or not os.path.exists(os.path.expanduser(tokenizer)):
        return None
    place = Place.of(tokenizer)
    return place.splits if place.is_whole() else None
