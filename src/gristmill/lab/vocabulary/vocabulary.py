"""What `train_tokenizer` gives: it lies as vocabulary.json beside the tokenizer, and says what that was made of."""

from typing import Any

import msgspec

from gristmill.core.manifest import PreviousSplits
from gristmill.core.records import Split


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    bytes: int
    """Of the text that windows show, each once."""
    tokens: int
    """By the new tokenizer."""
    tokens_before: int
    """By the one that decided about the splits."""

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / max(1, self.tokens)

    @property
    def bytes_per_token_before(self) -> float:
        return self.bytes / max(1, self.tokens_before)


class Decider(msgspec.Struct, frozen=True, kw_only=True):
    """The tokenizer by whose ids duplicates were found, splits made and spans cut."""

    name: str
    sha256: str
    revision: str | None


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The same input gives the same record: nothing in it is of a machine or a moment."""

    gristmill: str
    """The version that made it."""
    versions: dict[str, str]
    size: int
    """Ids, special tokens included: those asked for, or as many as there was text for."""
    size_asked: int
    merges: int
    special_tokens: dict[str, int]
    pattern: str
    """How text is split into words, within which tokens are merged."""
    template: str
    """What stands around a window: `roberta`, `<s> … </s>`; `none`, nothing."""
    learnt_bytes: int
    """Of train's text, all of it unless there is more than 2 GB."""
    compared_bytes: int
    """Of all splits' text: gigatoken and `tokenizers` gave the same ids for it."""
    splits: dict[Split, Compression]
    previous_splits: PreviousSplits | None
    """Earlier splits that were kept to."""
    decided_by: Decider
    settings: dict[str, Any] | None
    """Those of a build that decided what the text is; null where a dataset was named."""
    sha256: str
    """Of the tokenizer.json."""
    splits_sha256: str
    """Of the files.jsonl: who was in train and who was held out."""
    warnings: list[str]
