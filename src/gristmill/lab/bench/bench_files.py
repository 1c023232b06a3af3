"""A source -> the files that every method is given: UTF-8 text, found and read as `gristmill build` does."""

import hashlib
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gristmill.config.settings import ScanConfig
from gristmill.core.errors import ConfigError, InputError
from gristmill.core.names import counted, printable
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
