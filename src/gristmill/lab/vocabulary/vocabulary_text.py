"""Render a trained vocabulary and a comparison of tokenizers as text tables and as JSON."""

from collections.abc import Sequence

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.records import Split
from gristmill.core.text import size_text, table_text
from gristmill.lab.vocabulary.tokenizer_files import NUM_BYTES
from gristmill.lab.vocabulary.vocabulary import Vocabulary
from gristmill.pipeline.summary import previous_lines

# Result of `compare_tokenizers`.


class TextCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Amount of text in a split or language."""

    files: int
    bytes: int


class TokenizerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and features of one tokenizer."""

    name: str
    engine: str
    """Library that encoded the text."""
    vocab_size: int
    tokens: int
    bytes_per_token: float
    """Bytes per token in all text. If a tokenizer was trained on part of the text, compare `tokens_by_split` of
    the held-out splits instead."""
    windows: int
    """Number of windows with the configured length and overlap, including the special tokens of the tokenizer."""
    tokens_by_split: dict[Split, int]
    tokens_by_language: dict[str, int]
    unknown_tokens: int
    """Number of unknown tokens, which stand for text that the vocabulary does not cover."""
    around: list[str]
    """Special tokens around a window."""
    mask: str | None
    """Mask token for masked language modeling, or null if the tokenizer has none."""
    has_fim: bool
    """True if the tokenizer has special tokens for fill-in-the-middle."""
    decodes_exactly: bool
    """True if decoding always returns the exact bytes."""


class TokenizerTable(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of several tokenizers on the same text."""

    window_length: int
    overlap: int
    splits: dict[Split, TextCounts]
    languages: dict[str, TextCounts]
    """Amount of text by language, largest first."""
    tokenizers: list[TokenizerCounts]
    splits_of: str | None
    """Tokenizer whose training splits are used, so that it was not trained on the held-out text. Null if other splits
    are used."""
    warnings: list[str]


MAX_LANGUAGES = 8


def vocabulary_json(vocabulary: Vocabulary, command: str) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(vocabulary), "command": command}).decode()


def vocabulary_text(vocabulary: Vocabulary, out: str, command: str, seconds: float) -> str:
    before = printable(vocabulary.split_tokenizer.name)
    rows = [
        (
            *(str(split), f"{one.files:,}", size_text(one.bytes), f"{one.tokens:,}"),
            *((f"{one.bytes_per_token:.2f}", f"{one.bytes_per_token_before:.2f}") if one.bytes else ("-", "-")),
        )
        for split, one in vocabulary.splits.items()
    ]
    around = "<s> … </s> around a window" if vocabulary.template == "roberta" else "nothing around a window"
    special_tokens, learned = (
        counted(len(vocabulary.special_tokens), "special token"),
        size_text(vocabulary.learned_bytes),
    )
    parts = f"{special_tokens}, {NUM_BYTES} bytes, {counted(vocabulary.merges, 'merge')}"
    engines = " and ".join(f"{name} {number}" for name, number in vocabulary.versions.items())
    return "\n".join(
        (
            table_text(("split", "files", "text", "tokens", "bytes/token", f"with {before}"), rows),
            f"vocabulary  {vocabulary.size:,} ids: {parts}",
            f"            learned from {learned} of train, pattern {vocabulary.pattern}, {around}",
            f"verified    ids of {engines} are equal on {size_text(vocabulary.compared_bytes)} from all splits",
            *(f"            {line.removeprefix('splits   ')}" for line in previous_lines(vocabulary.previous_splits)),
            f"seconds     {seconds:.1f}",
            f"tokenizer   {printable(out)}. To build a dataset with the same splits:",
            "",
            f"            {printable(command)}",
        )
    )


def table_json(table: TokenizerTable) -> str:
    return msgspec.json.encode(table).decode()


def tokenizers_text(table: TokenizerTable) -> str:
    return "\n".join((_counts_table(table), _language_table(table), _feature_table(table), *_held_out_note(table)))


def _counts_table(table: TokenizerTable) -> str:
    splits = [split for split in Split if table.splits[split].bytes]
    headings = ("tokenizer", "vocabulary", "bytes/token", *splits, "tokens", f"windows of {table.window_length}")
    rows = [
        (
            *(printable(one.name), f"{one.vocab_size:,}", f"{one.bytes_per_token:.2f}"),
            *(_per_token(table.splits[split], one.tokens_by_split[split]) for split in splits),
            *(f"{one.tokens:,}", f"{one.windows:,}"),
        )
        for one in table.tokenizers
    ]
    return table_text(headings, rows)


def _per_token(text: TextCounts, num_tokens: int) -> str:
    return f"{text.bytes / num_tokens:.2f}" if num_tokens else "-"


def _language_table(table: TokenizerTable) -> str:
    """Render the bytes per token of each tokenizer in each language."""
    largest, others = list(table.languages)[:MAX_LANGUAGES], list(table.languages)[MAX_LANGUAGES:]
    rows = [_language_row(table, printable(name), [name]) for name in largest]
    rows += [_language_row(table, counted(len(others), "other"), others)] if others else []
    return table_text(("language", "files", "text", *(printable(one.name) for one in table.tokenizers)), rows)


def _language_row(table: TokenizerTable, name: str, members: Sequence[str]) -> tuple[str, ...]:
    counts = [table.languages[member] for member in members]
    text = TextCounts(files=sum(one.files for one in counts), bytes=sum(one.bytes for one in counts))
    tokens = (sum(one.tokens_by_language[member] for member in members) for one in table.tokenizers)
    return (name, f"{text.files:,}", size_text(text.bytes), *(_per_token(text, number) for number in tokens))


def _feature_table(table: TokenizerTable) -> str:
    headings = (
        "tokenizer",
        "around a window",
        "mask",
        "fill-in-the-middle",
        "unknown tokens",
        "exact decoding",
        "engine",
    )
    rows = [
        (
            *(printable(one.name), " ".join(map(printable, one.around)) or "-", printable(one.mask or "-")),
            *(
                "yes" if one.has_fim else "no",
                f"{one.unknown_tokens:,}",
                "yes" if one.decodes_exactly else "not always",
            ),
            one.engine,
        )
        for one in table.tokenizers
    ]
    return table_text(headings, rows, num_left_aligned=len(headings)).rstrip("\n")


def _held_out_note(table: TokenizerTable) -> list[str]:
    if table.splits_of is None:
        return []
    return ["", f"{printable(table.splits_of)} was trained on train; validation and test were held out"]
