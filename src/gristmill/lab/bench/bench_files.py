"""Gather the files of a benchmark: UTF-8 text, found and read with the code of `gristmill build`.

`Documents` holds the texts of these files in memory, for the tokenizer benchmark.
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
    """Paths of files that gristmill accepts but other methods cannot read: the text or the file name is not UTF-8, or
    the file has no tokens."""


def default_source() -> str:
    """Return the folder of the Python standard library, which every machine has."""
    return sysconfig.get_path("stdlib")


def gather(name: str, tokenizer: Tokenizer, progress: Progress, *, work: Path | None = None) -> GatheredFiles:
    """Find and read the files of a source. `work` is the output folder, which must be outside the source."""
    (source,) = resolve_sources([name])
    if work is not None and source.only_files is None and Path(source.root) in (work, *work.parents):
        raise ConfigError(
            f"the output folder {str(work)!r} is inside the source. Choose a --keep folder or TMPDIR outside the "
            "source."
        )
    found = GatheredFiles(source, [], [])
    config = ScanConfig()
    listed_files = scan([name], config).files
    with progress.phase("read", total=len(listed_files)) as step:
        for file in listed_files:
            document = read_document(file, config)
            if isinstance(document, Document):  # `gristmill build` drops all other files itself
                job_file = _job_file(document, tokenizer)
                if job_file is None:
                    found.withheld.append(file.path)
                else:
                    found.files.append(job_file)
            step.advance(1)
    if not found.files:
        found_text = (
            f"no usable file among {counted(len(listed_files), 'file')} (name and text must be UTF-8, and the text "
            "must have tokens)"
            if listed_files
            else "no files were found"
        )
        raise InputError(f"nothing to measure in {printable(name)!r}: {found_text}. Choose a different source.")
    return found


def _job_file(document: Document, tokenizer: Tokenizer) -> JobFile | None:
    """Return the JobFile of a document, or None if other methods cannot read the file."""
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
    """Choose `size` files by a hash of their paths, and return them in path order. The choice is the same each time."""
    spread = sorted(files, key=lambda file: hashlib.sha256(f"{file.repo}/{file.path}".encode()).digest())
    return sorted(spread[:size], key=lambda file: file.path)


def num_bytes(files: Sequence[JobFile]) -> int:
    return sum(file.num_bytes for file in files)


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:  # other bytes in a name become surrogates, which JSON cannot represent
        return False
    return True


# Documents in memory, for the tokenizer benchmark. They can be split into a seen and an unseen half.


SEED = 0
"""Seed of the random order by which documents are split into a seen and an unseen half."""


class Documents:
    """Files and their texts, in the same order. `joined`, one buffer with all texts, is made on first use."""

    def __init__(self, files: Sequence[JobFile], texts: Sequence[bytes], indices: npt.NDArray[np.int64]) -> None:
        self.files, self.texts = files, list(texts)
        self.indices = indices
        """Index of each document, from 0, in the list of all documents of the benchmark."""

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
        """Split the documents at random into halves of about equal size. Return None if a half would be empty."""
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
