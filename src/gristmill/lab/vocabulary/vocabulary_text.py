"""What was trained, and what was compared, as tables for people and as JSON for scripts."""

from collections.abc import Sequence

import msgspec

from gristmill.core.names import counted, printable
from gristmill.core.records import Split
from gristmill.core.text import size_text, table_text
from gristmill.lab.vocabulary.tokenizer_files import NUM_BYTES
from gristmill.lab.vocabulary.vocabulary import Vocabulary
from gristmill.pipeline.summary import previous_lines

# What `compare_tokenizers` gives: several tokenizers on the same text, side by side.


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


LANGUAGES_SHOWN = 8


def vocabulary_json(made: Vocabulary, command: str) -> str:
    return msgspec.json.encode({**msgspec.to_builtins(made), "command": command}).decode()


def vocabulary_text(made: Vocabulary, out: str, command: str, seconds: float) -> str:
    before = printable(made.decided_by.name)
    rows = [
        (
            *(str(split), f"{one.files:,}", size_text(one.bytes), f"{one.tokens:,}"),
            *((f"{one.bytes_per_token:.2f}", f"{one.bytes_per_token_before:.2f}") if one.bytes else ("-", "-")),
        )
        for split, one in made.splits.items()
    ]
    around = "<s> … </s> around a window" if made.template == "roberta" else "nothing around a window"
    parts = f"{counted(len(made.special_tokens), 'special token')}, {NUM_BYTES} bytes, {counted(made.merges, 'merge')}"
    engines = " and ".join(f"{name} {number}" for name, number in made.versions.items())
    return "\n".join(
        (
            table_text(("split", "files", "text", "tokens", "bytes/token", f"with {before}"), rows),
            f"vocabulary  {made.size:,} ids: {parts}",
            f"            learnt from {size_text(made.learnt_bytes)} of train; pattern {made.pattern}, {around}",
            f"proved      ids of {engines} are equal on {size_text(made.compared_bytes)} of all splits",
            *(f"            {line.removeprefix('splits   ')}" for line in previous_lines(made.previous_splits)),
            f"seconds     {seconds:.1f}",
            f"tokenizer   {printable(out)}, and with it who was held out, for --splits:",
            "",
            f"            {printable(command)}",
        )
    )


def table_json(table: TokenizerTable) -> str:
    return msgspec.json.encode(table).decode()


def tokenizers_text(table: TokenizerTable) -> str:
    return "\n".join((_counts(table), _languages(table), _facts(table), *_held_out(table)))


def _counts(table: TokenizerTable) -> str:
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


def _per_token(text: TextFacts, num_tokens: int) -> str:
    return f"{text.bytes / num_tokens:.2f}" if num_tokens else "-"


def _languages(table: TokenizerTable) -> str:
    """Bytes per token in each."""
    shown, others = list(table.languages)[:LANGUAGES_SHOWN], list(table.languages)[LANGUAGES_SHOWN:]
    rows = [_language_row(table, printable(name), [name]) for name in shown]
    rows += [_language_row(table, counted(len(others), "other"), others)] if others else []
    return table_text(("language", "files", "text", *(printable(one.name) for one in table.tokenizers)), rows)


def _language_row(table: TokenizerTable, name: str, members: Sequence[str]) -> tuple[str, ...]:
    facts = [table.languages[member] for member in members]
    text = TextFacts(files=sum(one.files for one in facts), bytes=sum(one.bytes for one in facts))
    tokens = (sum(one.tokens_by_language[member] for member in members) for one in table.tokenizers)
    return (name, f"{text.files:,}", size_text(text.bytes), *(_per_token(text, number) for number in tokens))


def _facts(table: TokenizerTable) -> str:
    headings = ("tokenizer", "around a window", "mask", "fill in the middle", "unknown tokens", "text given back", "by")
    rows = [
        (
            *(printable(one.name), " ".join(map(printable, one.around)) or "-", printable(one.mask or "-")),
            *(
                "yes" if one.has_fim else "no",
                f"{one.unknown_tokens:,}",
                "yes" if one.gives_text_back else "not always",
            ),
            one.engine,
        )
        for one in table.tokenizers
    ]
    return table_text(headings, rows, left=len(headings)).rstrip("\n")


def _held_out(table: TokenizerTable) -> list[str]:
    if table.splits_of is None:
        return []
    return ["", f"validation and test were held out when {printable(table.splits_of)} was trained; train it has seen"]
