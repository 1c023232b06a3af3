"""The record of a trained vocabulary, written as vocabulary.json next to the tokenizer."""

from typing import Any

import msgspec

from gristmill.core.manifest import PreviousSplits
from gristmill.core.records import Split


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the text of one split, in bytes and in tokens."""

    files: int
    bytes: int
    """Size of the text in windows. Text in several windows is counted once."""
    tokens: int
    """Number of tokens according to the new tokenizer."""
    tokens_before: int
    """Number of tokens according to the tokenizer that was used to assign the splits."""

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / max(1, self.tokens)

    @property
    def bytes_per_token_before(self) -> float:
        return self.bytes / max(1, self.tokens_before)


class SplitTokenizer(msgspec.Struct, frozen=True, kw_only=True):
    """Tokenizer whose ids were used to find duplicates, assign splits and cut spans."""

    name: str
    sha256: str
    revision: str | None


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a trained vocabulary. It is reproducible, because it has no times and no facts about the machine."""

    gristmill: str
    """Version of gristmill that trained the vocabulary."""
    versions: dict[str, str]
    """Versions of the tokenizer libraries."""
    size: int
    """Number of ids, including special tokens. If there is too little text, this is less than the requested number,
    `requested_size`."""
    requested_size: int
    merges: int
    special_tokens: dict[str, int]
    pattern: str
    """Name of the pattern that splits text into words. Tokens are merged only within words."""
    template: str
    """Tokens around a window: `<s> … </s>` for `roberta`, nothing for `none`."""
    learned_bytes: int
    """Size of the text that the vocabulary was learned from: all of train, or a sample of about 2 GB if train is
    larger."""
    compared_bytes: int
    """Size of the text, from all splits, for which gigatoken and `tokenizers` gave the same ids."""
    splits: dict[Split, Compression]
    previous_splits: PreviousSplits | None
    """Earlier splits that were reused, or null."""
    split_tokenizer: SplitTokenizer
    settings: dict[str, Any] | None
    """Settings of the build that determined the text and splits, or null for a dataset."""
    sha256: str
    """SHA-256 of tokenizer.json."""
    splits_sha256: str
    """SHA-256 of files.jsonl, which records the split of each file."""
    warnings: list[str]
