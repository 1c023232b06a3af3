"""What was trained, and what was compared, as tables for people and as JSON for scripts."""

from collections.abc import Sequence

import msgspec

from gristmill.naming import counted, printable
from gristmill.records import Split
from gristmill.summary import previous_lines
from gristmill.text import size_text, table_text
from gristmill.vocabulary.format import NUM_BYTES
from gristmill.vocabulary.result import Vocabulary
from gristmill.vocabulary.table import TextFacts, TokenizerTable

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
