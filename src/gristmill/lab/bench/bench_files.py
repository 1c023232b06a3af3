"""Gather the files for all methods: UTF-8 text, found and read as `gristmill build` does.

The tokenizer benchmark reads them into memory as documents.
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


class GatheredFiles(NamedTuple):
    source: Source
    files: list[JobFile]
    """Files in path order."""
    withheld: list[str]
    """Paths of files that gristmill accepts and other methods cannot read: text or a file name that is not UTF-8, or no
    tokens."""


def default_source() -> str:
    """Return the folder of the Python standard library, which every machine has."""
    return sysconfig.get_path("stdlib")


def gather(name: str, tokenizer: Tokenizer, progress: Progress, *, work: Path | None = None) -> GatheredFiles:
    """Find and read the files of a source. `work` is the folder for outputs, which must be outside the source."""
    (source,) = resolve_sources([name])
    if work is not None and source.only_files is None and Path(source.root) in (work, *work.parents):
        raise ConfigError(
            f"the outputs would be inside the source, at {str(work)!r}. Choose a --keep folder or TMPDIR elsewhere."
        )
    found = GatheredFiles(source, [], [])
    config = ScanConfig()
    listed = scan([name], config).files
    with progress.phase("read", total=len(listed)) as step:
        for file in listed:
            document = read_document(file, config)
            if isinstance(document, Document):  # gristmill drops the others itself
                job_file = _job_file(document, tokenizer)
                if job_file is None:
                    found.withheld.append(file.path)
                else:
                    found.files.append(job_file)
            step.advance(1)
    if not found.files:
        found_text = (
            f"none of the {counted(len(listed), 'file')} found has a UTF-8 name and UTF-8 text"
            if listed
            else "no files were found"
        )
        raise InputError(f"nothing to measure in {printable(name)!r}: {found_text}. Choose another source.")
    return found


def _job_file(document: Document, tokenizer: Tokenizer) -> JobFile | None:
    """Return the file for a job, or None if other methods cannot read it."""
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


def sample_files(files: Sequence[JobFile], size: int) -> list[JobFile]:
    """Choose files spread over the tree, the same ones each time, in path order."""
    spread = sorted(files, key=lambda file: hashlib.sha256(f"{file.repo}/{file.path}".encode()).digest())
    return sorted(spread[:size], key=lambda file: file.path)


def num_bytes(files: Sequence[JobFile]) -> int:
    return sum(file.num_bytes for file in files)


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # a name with other bytes has surrogates, which JSON cannot hold
        return False
    return True


# Documents for the tokenizer benchmark: in memory, by path, and as a seen and an unseen half.


SEED = 0
"""Seed of the order that decides which documents are seen or unseen."""


class Documents:
    """Texts of the files, in the given order. The joined buffer is made on first use."""

    def __init__(self, files: Sequence[JobFile], texts: Sequence[bytes], indices: npt.NDArray[np.int64]) -> None:
        self.files, self.texts = files, list(texts)
        self.indices = indices
        """Index of each document among all documents."""

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

    def subset(self, positions: npt.NDArray[np.int64]) -> "Documents":
        chosen = positions.tolist()
        return Documents(
            [self.files[position] for position in chosen],
            [self.texts[position] for position in chosen],
            self.indices[positions],
        )

    def halves(self) -> "tuple[Documents, Documents] | None":
        """Split the documents, in a seeded order, into halves of about equal bytes. None if a half would be empty."""
        order = np.random.default_rng(SEED).permutation(len(self))
        sizes = np.diff(self.offsets)[order]
        cut = int(np.searchsorted(np.cumsum(sizes), self.num_bytes / 2, "right"))
        cut = min(max(cut, 1), len(self) - 1)
        return (self.subset(order[:cut]), self.subset(order[cut:])) if cut else None


def _read(file: JobFile) -> bytes:
    try:
        text = read_plain(Path(file.location))
    except OSError as error:
        raise InputError(
            f"cannot read {file.path!r}: {error.strerror}. Do not change the source during the benchmark."
        ) from None
    if len(text) != file.num_bytes:
        raise InputError(
            f"{file.path!r} now has {counted(len(text), 'byte')}, but had {file.num_bytes:,} before. "
            "Do not change the source during the benchmark."
        )
    return text
