"""Output location of a trained tokenizer: a folder, or a .json file with other files next to it.

    OUT/tokenizer.json  OUT/tokenizer_config.json  OUT/files.jsonl  OUT/vocabulary.json
    OUT.json            (none)                     OUT.files.jsonl  OUT.vocabulary.json

A new folder is completed under a temporary name and then renamed. Only the output of an earlier run is replaced. When
files are replaced one by one, vocabulary.json is the first. Its digests show whether all files are from the same run.
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
from gristmill.core.names import is_remote_address
from gristmill.core.plain_files import read_plain

RECORD = "vocabulary.json"
JSON_SUFFIX = ".json"


class _Identity(msgspec.Struct, frozen=True):
    """Fields that vocabulary.json has in all versions of gristmill. They identify the output of an earlier run."""

    gristmill: str
    sha256: str
    splits_sha256: str


class TokenizerLocation(NamedTuple):
    """Paths of a tokenizer's output files."""

    out: Path
    """Absolute path without symbolic links."""
    is_file: bool

    @classmethod
    def of(cls, out: str) -> "TokenizerLocation":
        if is_remote_address(out):
            raise ConfigError(f"--out must be a local folder or .json file, got {out!r}.")
        path = Path(os.path.realpath(os.path.expanduser(out)))
        if not path.name:
            raise ConfigError(f"{out!r} cannot be the folder of a tokenizer. Name a new folder with --out.")
        return cls(path, is_file=path.name.endswith(JSON_SUFFIX) and not path.is_dir())

    @property
    def files(self) -> dict[str, Path]:
        """Paths of the files, keyed by the name that each file has if the output is a folder."""
        if not self.is_file:
            return {name: self.out / name for name in (FILES, TOKENIZER_CONFIG, TOKENIZER, RECORD)}
        stem = self.out.name.removesuffix(JSON_SUFFIX)
        others = {name: self.out.with_name(f"{stem}.{name}") for name in (FILES, RECORD)}
        return {FILES: others[FILES], TOKENIZER: self.out, RECORD: others[RECORD]}

    @property
    def splits(self) -> Path:
        """Path of the files.jsonl with the splits."""
        return self.files[FILES]

    def require_replaceable(self) -> None:
        """Raise unless the location is new, an empty folder, or the output of an earlier run.

        Also raise if the output is a .json file next to a tokenizer_config.json, which would be read with it.
        """
        is_from_earlier_run = self._read_identity() is not None
        if self.is_file:
            found = next((path for path in self.files.values() if os.path.lexists(path)), None)
            config = self.out.with_name(TOKENIZER_CONFIG)
            if not is_from_earlier_run and found is not None:
                raise OutputError(
                    f"{str(found)!r} exists and is not from an earlier run. Choose a different file with --out."
                )
            if config.exists():
                raise OutputError(
                    f"{str(config)!r} would be read as the new tokenizer's configuration. Name a folder with --out."
                )
        elif self.out.is_dir():
            if not is_from_earlier_run and any(self.out.iterdir()):
                raise OutputError(
                    f"{str(self.out)!r} is not empty and is not from an earlier run. Choose a different folder with "
                    "--out."
                )
        elif os.path.lexists(self.out):
            raise OutputError(
                f"{str(self.out)!r} exists and is not a folder. Name a new folder, or a file such as tok.json."
            )

    def _read_identity(self) -> _Identity | None:
        try:
            return msgspec.json.decode(read_plain(self.files[RECORD]), type=_Identity)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def is_complete(self) -> bool:
        """Return True if all files are from the same run, so no run was interrupted while it replaced files."""
        identity = self._read_identity()
        try:
            return identity is not None and (identity.sha256, identity.splits_sha256) == tuple(
                hashlib.sha256(read_plain(self.files[name])).hexdigest() for name in (TOKENIZER, FILES)
            )
        except OSError:
            return False

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Yield a locked temporary folder next to the output. `publish` moves its files into place."""
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
        """Delete the temporary folders of killed runs. A run that is still active holds a lock on its folder."""
        name = re.compile(re.escape(self.out.name) + r"\.\d+-[0-9a-f]{8}" + re.escape(UNFINISHED))
        siblings = self.out.parent.iterdir() if self.out.parent.is_dir() else ()
        for leftover in [path for path in siblings if name.fullmatch(path.name) and path.is_dir()]:
            with suppress(OSError):
                descriptor = os.open(leftover, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(leftover)
                finally:
                    os.close(descriptor)

    def publish(self, stage: Path) -> None:
        """Move the files into place: by renaming the folder if the output is new or empty, otherwise one by one."""
        sync_tree(stage)
        if not self.is_file and not (self.out.is_dir() and any(self.out.iterdir())):
            os.rename(stage, self.out)
        else:
            files = self.files
            for name in (RECORD, *(name for name in files if name != RECORD)):
                os.replace(stage / name, files[name])
                sync_folder(files[name].parent)
        sync_folder(self.out.parent)


def splits_argument(out: str) -> str:
    """Return the value of --splits for the tokenizer at `out`.

    If `out` is a folder, the value is `out`. Otherwise, the value is the path of the files.jsonl next to `out`. This
    path is absolute if `out` begins with `~`.
    """
    location = TokenizerLocation.of(out)
    named_path = Path(out).with_name(location.splits.name)
    return out if not location.is_file else str(named_path if named_path.exists() else location.splits)


def find_trained_splits(tokenizer: str) -> Path | None:
    """Return the path of the splits that a tokenizer was trained with, or None if gristmill did not train it."""
    if is_remote_address(tokenizer) or not os.path.exists(os.path.expanduser(tokenizer)):
        return None
    location = TokenizerLocation.of(tokenizer)
    return location.splits if location.is_complete() else None
