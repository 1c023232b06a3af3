"""A source -> the files that every method is given: UTF-8 text, found and read as `gristmill build` does.

Tokenizers are given them as documents, in memory.
"""

import hashlib
import sysconfig
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config.settings import ScanConfig
from gristmill.core.errors import ConfigError, InputError
from gristmill.core.names import counted, printable
from gristmill.core.plain_files import read_plain
from gristmill.core.progress import Progress
from gristmill.core.records import Document
from gristmill.lab.bench.job import JobFile
from gristmill.sources.addresses import Source, resolve_sources
from gristmill.sources.documents import read_document
from gristmill.sources.trees import scan
from gristmill.tokenizers.tokenizer import Tokenizer


class Found(NamedTuple):
    source: Source
    files: list[JobFile]
    """In path order."""
    withheld: list[str]
    """Paths that gristmill would take and the others cannot: text that is not UTF-8, or under such a name; and files
    without tokens."""


def default_source() -> str:
    """Code that every machine has."""
    return sysconfig.get_path("stdlib")


def gather(name: str, tokenizer: Tokenizer, progress: Progress, *, work: Path | None = None) -> Found:
    """`work` is the folder that outputs will lie in, where there are any."""
    (source,) = resolve_sources([name])
    if work is not None and source.only is None and Path(source.root) in (work, *work.parents):
        raise ConfigError(
            f"the outputs would lie inside the source, at {str(work)!r}. Name a --keep folder or TMPDIR elsewhere."
        )
    found = Found(source, [], [])
    config = ScanConfig()
    listed = scan([name], config).files
    with progress.phase("read", total=len(listed)) as step:
        for file in listed:
            document = read_document(file, config)
            if isinstance(document, Document):  # gristmill drops the others by itself
                job_file = _job_file(document, tokenizer)
                if job_file is None:
                    found.withheld.append(file.path)
                else:
                    found.files.append(job_file)
            step.advance(1)
    if not found.files:
        what = (
            f"none of the {counted(len(listed), 'file')} found is UTF-8 text under such a name"
            if listed
            else "no files were found"
        )
        raise InputError(f"nothing to measure in {printable(name)!r}: {what}. Name another source.")
    return found


def _job_file(document: Document, tokenizer: Tokenizer) -> JobFile | None:
    file = document.file
    if document.encoding != "utf-8" or not _is_utf8(file.location):
        return None
    num_tokens = len(tokenizer.encode(document.text).ids)
    if not num_tokens:
        return None
    return JobFile(
        location=file.location,
        path=file.path,
        repo=file.repo,
        language=document.language,
        num_bytes=document.size,
        num_tokens=num_tokens,
    )


def sample_of(files: Sequence[JobFile], size: int) -> list[JobFile]:
    """The same ones each time, spread over the tree; in path order."""
    spread = sorted(files, key=lambda file: hashlib.sha256(f"{file.repo}/{file.path}".encode()).digest())
    return sorted(spread[:size], key=lambda file: file.path)


def num_bytes(files: Sequence[JobFile]) -> int:
    return sum(file.num_bytes for file in files)


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # the system's form of other bytes: no JSON can hold it
        return False
    return True


# The documents that tokenizers are compared on: in memory, by name, and as parts that are seen and unseen.


SEED = 0
"""Of the order by which documents are seen or unseen."""


class Documents:
    """One text per file, in the order given. What is joined is joined when it is asked for."""

    def __init__(self, files: Sequence[JobFile], texts: Sequence[bytes], indices: npt.NDArray[np.int64]) -> None:
        self.files, self.texts = files, list(texts)
        self.indices = indices
        """Of each document among all."""

    @classmethod
    def read(cls, files: Sequence[JobFile], progress: Progress) -> "Documents":
        texts = []
        with progress.phase("read again", total=len(files)) as step:
            for file in files:
                texts.append(_read(file))
                step.advance(1)
        return cls(files, texts, np.arange(len(files)))

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def paths(self) -> list[str]:
        return [file.location for file in self.files]

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        return np.concatenate((np.zeros(1, np.int64), np.cumsum([len(text) for text in self.texts], dtype=np.int64)))

    @cached_property
    def joined(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(self.texts), np.uint8)

    @property
    def num_bytes(self) -> int:
        return int(self.offsets[-1])

    def taken(self, places: npt.NDArray[np.int64]) -> "Documents":
        chosen = places.tolist()
        return Documents(
            [self.files[place] for place in chosen], [self.texts[place] for place in chosen], self.indices[places]
        )

    def halves(self) -> "tuple[Documents, Documents] | None":
        """By bytes, of documents in a seeded order; None where one of them would be empty."""
        order = np.random.default_rng(SEED).permutation(len(self))
        sizes = np.diff(self.offsets)[order]
        cut = int(np.searchsorted(np.cumsum(sizes), self.num_bytes / 2, "right"))
        cut = min(max(cut, 1), len(self) - 1)
        return (self.taken(order[:cut]), self.taken(order[cut:])) if cut else None


def _read(file: JobFile) -> bytes:
    try:
        text = read_plain(Path(file.location))
    except OSError as error:
        raise InputError(f"cannot read {file.path!r}: {error.strerror}. Let nothing write to the source.") from None
    if len(text) != file.num_bytes:
        raise InputError(
            f"{file.path!r} has {counted(len(text), 'byte')} and had {file.num_bytes:,} just before. "
            "Let nothing write to the source."
        )
    return text
