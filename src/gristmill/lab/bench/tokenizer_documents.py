"""The documents that tokenizers are compared on: in memory, by name, and as parts that are seen and unseen."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import InputError
from gristmill.core.names import counted
from gristmill.core.plain_files import read_plain
from gristmill.core.progress import Progress
from gristmill.lab.bench.job import JobFile

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
