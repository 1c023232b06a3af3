"""Ids -> the bytes they spell, where a tokenizer gives every text back; and the `text` column compared with them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row, clean_labels
from gristmill.checks.tokens import Ids, RowRules
from gristmill.core.records import WITH_LABELS
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_in

CONTINUING = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""
MAX_CONTINUING = 3


class Spelling(NamedTuple):
    """Picklable: the tokenizer itself is loaded once in each process."""

    folder: Path
    tokenizer_key: str | None
    is_exact: bool
    """The ids' bytes end to end are the text."""
    is_close: bool
    """They are, but for spaces at an end and a sign that may stand for one."""

    @classmethod
    def of(cls, folder: Path, tokenizer: Tokenizer | None) -> "Spelling":
        if tokenizer is None:
            return cls(folder, None, is_exact=False, is_close=False)
        definition = tokenizer.definition
        # gigatoken is used only where one of the two holds; with byte_fallback, spaces are written as ▁.
        is_close = tokenizer.engine.startswith("gigatoken ")
        return cls(folder, definition.key, is_close and not definition.model.byte_fallback, is_close)

    @property
    def tokenizer(self) -> Tokenizer:
        return tokenizer_in(self.folder, self.tokenizer_key)

    def num_bytes(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Of each token, where it is exact."""
        return self._per_id(_NUM_BYTES, len).take(ids)

    def num_line_feeds(self, ids: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """In each token, where it is close."""
        return self._per_id(_NUM_LINE_FEEDS, lambda spelled: spelled.count(b"\n")).take(ids)

    def _per_id(self, known: dict[str, npt.NDArray[np.int64]], count: Callable[[bytes], int]) -> npt.NDArray[np.int64]:
        tokenizer = self.tokenizer
        key = tokenizer.definition.key
        if key not in known:
            counts = (count(_spelled(tokenizer, index)) for index in range(tokenizer.vocab_size))
            known[key] = np.fromiter(counts, np.int64, tokenizer.vocab_size)
        return known[key]


def _spelled(tokenizer: Tokenizer, index: int) -> bytes:
    try:
        return tokenizer.decode([index])
    except LookupError:  # a vocabulary may leave out ids before those of its added tokens
        return b""


_NUM_BYTES: dict[str, npt.NDArray[np.int64]] = {}
_NUM_LINE_FEEDS: dict[str, npt.NDArray[np.int64]] = {}
"""By tokenizer, then by id: a process may check many datasets with one tokenizer."""


def wrong_texts(rows: Sequence[Row], rules: RowRules, spelling: Spelling, faults: Faults) -> None:
    """A character whose bytes two tokens share belongs to the window in which the first of them is."""
    for row in rows:
        # Of fill in the middle, the text is what the ids spell with any tokenizer: no other is made.
        is_infilled = bool(row.fields.get("fim")) and spelling.tokenizer_key is not None
        if not spelling.is_exact and not is_infilled:
            continue
        text = row.fields["text"].encode()
        spelled = spelling.tokenizer.decode(_ids_of_text(row, rules)).lstrip(CONTINUING)
        more = text[len(spelled) :]
        if not text.startswith(spelled) or len(more) > MAX_CONTINUING or more.lstrip(CONTINUING):
            what = "its text is not what its ids spell"
            faults.add(
                "schema", what, file=rules.file, row=row.number, path=f"{row.fields['repo']}/{row.fields['path']}"
            )


def _ids_of_text(row: Row, rules: RowRules) -> Ids:
    """The ids of its text: of noise the clean ones."""
    if row.fields.get("variant") in WITH_LABELS:
        clean = clean_labels(row.fields)
        num_behind = len(rules.suffix) + (len(rules.closing) if row.is_ended else 0)
        return np.array(clean[len(rules.prefix) : len(clean) - num_behind], row.ids.dtype)
    return row.ids
