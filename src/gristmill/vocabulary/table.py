"""What `compare_tokenizers` gives: several tokenizers on the same text, side by side."""

import msgspec

from gristmill.records import Split


class TextFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the text, by split or by language."""

    files: int
    bytes: int


class TokenizerCounts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    engine: str
    """What encoded the text."""
    vocab_size: int
    tokens: int
    bytes_per_token: float
    """Of all text; of a tokenizer that was trained on some of it, look at what was held out."""
    windows: int
    """Of the configured length and overlap, its own special tokens included."""
    tokens_by_split: dict[Split, int]
    tokens_by_language: dict[str, int]
    unknown_tokens: int
    """Text it has no tokens for."""
    around: list[str]
    """The special tokens around a window."""
    mask: str | None
    """The token that masks; null: none for masked language modelling."""
    has_fim: bool
    """It has tokens for fill in the middle."""
    gives_text_back: bool
    """Whatever is encoded can be decoded to the same bytes."""


class TokenizerTable(msgspec.Struct, frozen=True, kw_only=True):
    window_length: int
    overlap: int
    splits: dict[Split, TextFacts]
    languages: dict[str, TextFacts]
    """Most bytes first."""
    tokenizers: list[TokenizerCounts]
    splits_of: str | None
    """The tokenizer whose splits these are: what is held out here, it has never seen."""
    warnings: list[str]
