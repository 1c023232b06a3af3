"""Read and check document rows: texts, numbers of tokens, lines, and control tokens that appear as text.

Document rows have no ids, so the text is tokenized again. A complete file must have as many tokens as the build
counted. If the build cut spans out of a file, a piece between two cuts may have different tokens at its edges, because
the build tokenized the complete file.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import orjson

from gristmill.checks.decoder import Decoder
from gristmill.checks.file_rows import KeptFile
from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row, find_column_fault
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, ROW, START, Run
from gristmill.checks.tokens import Fields, Ids, RowRules, path_of
from gristmill.core.names import counted
from gristmill.tokenizers.tokenizer import tokenizer_for

EDGE_TOKENS = 8
"""Number of tokens next to a cut that are not compared with train. The complete file may have other tokens there."""
WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
NAME_BYTES = WORD_BYTES + b".:/-"
METASPACE = "▁".encode()
BARS = (b"|", "\uff5c".encode())
NUMBERED_NAMES = (b"extra_id_", b"mask_", b"SPECIAL_")
TOKEN_STARTS = (*BARS, *NUMBERED_NAMES)
"""Texts that may follow `<` in a control token."""


def read_documents(lines: Sequence[bytes], first: int, rules: RowRules, decoder: Decoder, faults: Faults) -> list[Row]:
    """Parse and tokenize these lines. Return the valid rows, and add a fault for every invalid line."""
    parsed: list[tuple[int, Fields]] = []
    for number, line in enumerate(lines, first):
        fields = _parse_line(line)
        message = fields if isinstance(fields, str) else find_column_fault(fields, rules)
        if isinstance(fields, dict) and message is None and not fields["text"]:
            message = "text is empty"
        if message is not None:
            path = None if isinstance(fields, str) else path_of(fields)
            faults.add("schema", message, file=rules.file, row=number, path=path)
        elif isinstance(fields, dict):
            parsed.append((number, fields))
    rows = [
        Row(number, fields, ids, fields["tokens"], text=fields["text"].encode())
        for (number, fields), ids in zip(parsed, _tokenize([fields for _, fields in parsed], decoder), strict=True)
    ]
    for row in rows:
        _check_control_spellings(row, rules, faults)
    return rows


def _parse_line(line: bytes) -> Fields | str:
    """Return the columns of a line, or a fault message."""
    try:
        fields = orjson.loads(line)
        if isinstance(fields, dict) and orjson.dumps(fields) == line:
            return fields
        names = json.loads(line, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except (ValueError, RecursionError):
        return "the line is not JSON"
    if not isinstance(fields, dict):
        return "the line is not a JSON object"
    if len(names) != len(fields):
        return "a column appears twice"
    return "the line contains a carriage return" if b"\r" in line else fields


def _tokenize(rows: Sequence[Fields], decoder: Decoder) -> list[Ids]:
    """Return the ids of the text of each row, or empty arrays if there is no tokenizer."""
    if decoder.tokenizer_key is None:
        return [np.zeros(0, np.uint32) for _ in rows]
    ids: list[Ids] = [np.zeros(0, np.uint32)] * len(rows)
    for is_piece, definition in (
        (False, decoder.tokenizer.definition),
        (True, decoder.tokenizer.definition.without_prefix_space),
    ):
        indices = [index for index, row in enumerate(rows) if (row["start"] > 0) is is_piece]
        encoded = tokenizer_for(definition).encode_many([rows[index]["text"] for index in indices])
        for index, one in zip(indices, encoded, strict=True):
            ids[index] = one.ids
    return ids


# Control tokens in texts: at each character that may begin a control token, compare the text with the names.


def _check_control_spellings(row: Row, rules: RowRules, faults: Faults) -> None:
    if not rules.control_spellings or row.text is None:
        return
    text = row.text
    for token in rules.fim_token_texts if row.fields.get("fim") else ():
        text = text.replace(token.encode(), b"\n", 1)
    for name in find_control_tokens(text, rules.control_spellings):
        message = f"text contains the control token {name}"
        faults.add("special_tokens", message, file=rules.file, row=row.number, path=path_of(row.fields))
        return  # one fault per row is enough


def find_control_tokens(text: bytes, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the control tokens that appear literally in a text.

    These are the given names, and other text in the form of a control token, for example `<|im_start|>`.
    """
    for opening, matching in _group_by_first_character(names):
        at = text.find(opening)
        while at >= 0:
            if text.startswith(matching, at):
                yield next(name for name in matching if text.startswith(name, at)).decode()
            at = text.find(opening, at + 1)
    # No control token of these forms contains a second `<`, so it is enough to test the text up to the next `<`.
    for rest in text.split(b"<")[1:]:
        if rest.startswith(TOKEN_STARTS) and (name := _match_token_form(rest)) is not None:
            yield name


def _match_token_form(rest: bytes) -> str | None:
    """Return the control token whose `<` precedes `rest`, or None: `|im_start|> you` -> `<|im_start|>`."""
    for bar in BARS:
        name, is_closed, _ = rest.removeprefix(bar).partition(bar + b">")
        plain = name.replace(METASPACE, b"_")
        if (
            rest.startswith(bar)
            and is_closed
            and plain
            and plain[0] in WORD_BYTES
            and not plain.translate(None, NAME_BYTES)
        ):
            return f"<{(bar + name + bar).decode()}>"
    for start in NUMBERED_NAMES:
        digits, is_closed, _ = rest.removeprefix(start).partition(b">")
        if rest.startswith(start) and is_closed and digits.isdigit():
            return f"<{(start + digits).decode()}>"
    return None


@cache
def _group_by_first_character(names: tuple[str, ...]) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """Group the names by their first character."""
    by_opening: dict[str, list[bytes]] = {}
    for name in names:
        by_opening.setdefault(name[0], []).append(name.encode())
    return [(opening.encode(), tuple(tokens)) for opening, tokens in by_opening.items()]


# Compare the document rows of a file with the row of the file in files.jsonl.


def find_document_fault(run: Run, kept: KeptFile) -> tuple[int, str] | None:
    """Return (row number, message) for the first row with wrong tokens, lines or respellings, or None."""
    for index, span in enumerate(run.spans):
        text, windows = span.text or b"", run.windows[index]
        row, first, last = (int(windows[column]) for column in (ROW, FIRST_LINE, LAST_LINE))
        is_complete = span.start == 0 and span.end == kept.tokens
        if is_complete and len(span.ids) not in {0, kept.tokens}:
            return row, f"tokens is {kept.tokens}, but the text has {counted(str(len(span.ids)), 'token')}"
        num_leading = text[: len(text) - len(text.lstrip())].count(b"\n")  # a tokenizer may skip blank lines
        is_wrong = is_complete and (first > 1 + num_leading or kept.lines != _num_lines(text))
        if is_wrong or last > first + text.count(b"\n"):
            return row, f"lines {first} to {last} of {kept.lines} do not match the line feeds in the text"
        if is_complete and (message := _find_respelling_fault(text, kept)) is not None:
            return row, message
    return None


def _num_lines(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _find_respelling_fault(text: bytes, kept: KeptFile) -> str | None:
    for index, one in enumerate(kept.respellings):
        at = one.at + index
        if text[at : at + 1] != b" " or 1 + text.count(b"\n", 0, at) != one.line:
            return f"line {one.line} has no space where the build inserted one into {one.spelling}"
    return None


def trim_cut_edges(run: Run, kept: KeptFile | None) -> Run:
    """Return the run without the EDGE_TOKENS tokens next to each cut."""
    num_tokens = 0 if kept is None else kept.tokens
    spans = [
        one._replace(ids=one.ids[EDGE_TOKENS * (one.start > 0) : len(one.ids) - EDGE_TOKENS * (one.end < num_tokens)])
        for one in run.spans
    ]
    return run._replace(spans=spans)


def find_source_text_faults(run: Run, text: bytes, decoder: Decoder) -> Iterator[str]:
    """Yield a fault if a span differs from the source text at the same tokens, or if the lines of a row are wrong."""
    if decoder.tokenizer_key is None:
        return
    starts = decoder.tokenizer.encode(text, with_starts=True).starts
    assert starts is not None, "encode(with_starts=True) must return starts"
    for span in run.spans:
        start, end = span.start, span.end
        if end >= len(starts) or start >= end:
            yield f"a row contains tokens {start} to {end}, but the source has {counted(len(starts) - 1, 'token')}"
            return
        at, to = int(starts[start]), int(starts[end])
        if span.text != text[_to_character(text, at) : _to_character(text, to)]:
            yield f"the text from token {start} on differs from the source"
            return
    line_feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    for window in run.windows if run.spans else ():
        first, last = (int(starts[min(position, len(starts) - 1)]) for position in (window[START], window[END] - 1))
        found = tuple(1 + int(np.searchsorted(line_feeds, offset)) for offset in (first, last))
        # If the tokenizer skips blank lines, the token begins after these lines.
        latest = tuple(1 + int(np.searchsorted(line_feeds, _skip_spaces(text, offset))) for offset in (first, last))
        recorded = tuple(int(window[column]) for column in (FIRST_LINE, LAST_LINE))
        if not all(low <= one <= high for low, one, high in zip(found, recorded, latest, strict=True)):
            yield (
                f"the row at token {window[START]} records lines {recorded[0]} to {recorded[1]}, "
                f"but its text is on lines {found[0]} to {found[1]} of the source"
            )
            return


def _skip_spaces(text: bytes, at: int) -> int:
    while at < len(text) and text[at : at + 1].isspace():
        at += 1
    return at


def _to_character(text: bytes, at: int) -> int:
    """Return the offset of the first byte, at or after `at`, that begins a character."""
    while at < len(text) and text[at] & 0xC0 == 0x80:  # noqa: PLR2004 - bytes that continue a character
        at += 1
    return at
