"""Read and check rows that are documents: their texts, tokens, lines and spellings of control tokens.

Rows have no ids, so the text is tokenized again. A whole file must give as many tokens as the build counted. A piece
between two cuts may tokenize differently at its edges, since the build tokenized the whole file.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import orjson

from gristmill.checks.file_rows import KeptFile
from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row, wrong_field
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, ROW, START, Run
from gristmill.checks.spelling import Spelling
from gristmill.checks.tokens import Fields, Ids, RowRules, path_of
from gristmill.core.names import counted
from gristmill.tokenizers.tokenizer import tokenizer_for

EDGE_TOKENS = 8
"""Tokens of a piece beside a cut. They may differ from those in the whole file, so they are not compared with train."""
WORD = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
NAME = WORD + b".:/-"
LOW_LINE = "▁".encode()
BARS = (b"|", "\uff5c".encode())
NUMBERED = (b"extra_id_", b"mask_", b"SPECIAL_")
SHAPES = (*BARS, *NUMBERED)


def read_documents(
    lines: Sequence[bytes], first: int, rules: RowRules, spelling: Spelling, faults: Faults
) -> list[Row]:
    """The rows among these lines that have every column as it should be."""
    read: list[tuple[int, Fields]] = []
    for number, line in enumerate(lines, first):
        fields = _fields(line)
        what = fields if isinstance(fields, str) else wrong_field(fields, rules)
        if isinstance(fields, dict) and what is None and not fields["text"]:
            what = "it has no text"
        if what is not None:
            path = None if isinstance(fields, str) else path_of(fields)
            faults.add("schema", what, file=rules.file, row=number, path=path)
        elif isinstance(fields, dict):
            read.append((number, fields))
    rows = [
        Row(number, fields, ids, fields["tokens"], text=fields["text"].encode())
        for (number, fields), ids in zip(read, _tokenized([fields for _, fields in read], spelling), strict=True)
    ]
    for row in rows:
        _look_for_spellings(row, rules, faults)
    return rows


def _fields(line: bytes) -> Fields | str:
    """Return the columns of a line, or a sentence about its defect."""
    try:
        fields = orjson.loads(line)
        if isinstance(fields, dict) and orjson.dumps(fields) == line:
            return fields
        names = json.loads(line, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(fields, dict):
        return "not an object"
    if len(names) != len(fields):
        return "a column is there twice"
    return "a carriage return in its line" if b"\r" in line else fields


def _tokenized(rows: Sequence[Fields], spelling: Spelling) -> list[Ids]:
    """The ids of each text; none without a tokenizer."""
    if spelling.tokenizer_key is None:
        return [np.zeros(0, np.uint32) for _ in rows]
    ids: list[Ids] = [np.zeros(0, np.uint32)] * len(rows)
    for is_piece, definition in (
        (False, spelling.tokenizer.definition),
        (True, spelling.tokenizer.definition.continuing),
    ):
        numbers = [number for number, row in enumerate(rows) if (row["start"] > 0) is is_piece]
        encoded = tokenizer_for(definition).encode_many([rows[number]["text"] for number in numbers])
        for number, one in zip(numbers, encoded, strict=True):
            ids[number] = one.ids
    return ids


# Spellings of control tokens, by finding where one may begin and comparing what stands there.


def _look_for_spellings(row: Row, rules: RowRules, faults: Faults) -> None:
    if not rules.spellings or row.text is None:
        return
    text = row.text
    for own in rules.fim_spellings if row.fields.get("fim") else ():
        text = text.replace(own.encode(), b"\n", 1)
    for name in spellings_in(text, rules.spellings):
        what = f"its text spells the control token {name}"
        faults.add("special_tokens", what, file=rules.file, row=row.number, path=path_of(row.fields))
        return  # one a row is enough


def spellings_in(text: bytes, names: tuple[str, ...]) -> Iterator[str]:
    """The names that a text spells, and others of the shapes that control tokens have."""
    for opening, own in _by_opening(names):
        at = text.find(opening)
        while at >= 0:
            if text.startswith(own, at):
                yield next(name for name in own if text.startswith(name, at)).decode()
            at = text.find(opening, at + 1)
    # Between a `<` and the next one stands what may be a shape: none of them has two.
    for rest in text.split(b"<")[1:]:
        if rest.startswith(SHAPES) and (name := _shaped(rest)) is not None:
            yield name


def _shaped(rest: bytes) -> str | None:
    """`|im_start|>` and `extra_id_7>`, with what may stand behind; the `<` before it is known."""
    for bar in BARS:
        name, is_closed, _ = rest.removeprefix(bar).partition(bar + b">")
        plain = name.replace(LOW_LINE, b"_")
        if rest.startswith(bar) and is_closed and plain and plain[0] in WORD and not plain.translate(None, NAME):
            return f"<{(bar + name + bar).decode()}>"
    for start in NUMBERED:
        digits, is_closed, _ = rest.removeprefix(start).partition(b">")
        if rest.startswith(start) and is_closed and digits.isdigit():
            return f"<{(start + digits).decode()}>"
    return None


@cache
def _by_opening(names: tuple[str, ...]) -> list[tuple[bytes, tuple[bytes, ...]]]:
    """First characters, and the names that begin with each."""
    own: dict[str, list[bytes]] = {}
    for name in names:
        own.setdefault(name[0], []).append(name.encode())
    return [(opening.encode(), tuple(some)) for opening, some in own.items()]


# A file's rows against its row in files.jsonl.


def wrong_document(run: Run, kept: KeptFile) -> tuple[int, str] | None:
    """The row and what is wrong with it: tokens, lines and blanks of respellings."""
    for number, stretch in enumerate(run.stretches):
        text, windows = stretch.text or b"", run.windows[number]
        row, first, last = (int(windows[column]) for column in (ROW, FIRST_LINE, LAST_LINE))
        is_whole = stretch.start == 0 and stretch.end == kept.tokens
        if is_whole and len(stretch.ids) not in {0, kept.tokens}:
            return row, f"tokens is {kept.tokens}, and its text has {len(stretch.ids)}"
        num_leading = text[: len(text) - len(text.lstrip())].count(b"\n")  # a tokenizer may leave out blank lines
        is_wrong = is_whole and (first > 1 + num_leading or kept.lines != _num_lines(text))
        if is_wrong or last > first + text.count(b"\n"):
            return row, f"lines {first} to {last} of {kept.lines}, which its text has not"
        if is_whole and (what := _wrong_blank(text, kept)) is not None:
            return row, what
    return None


def _num_lines(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _wrong_blank(text: bytes, kept: KeptFile) -> str | None:
    for number, one in enumerate(kept.respellings):
        at = one.at + number
        if text[at : at + 1] != b" " or 1 + text.count(b"\n", 0, at) != one.line:
            return f"no blank in line {one.line}, where {one.spelling} was respelled"
    return None


def without_cut_edges(run: Run, kept: KeptFile | None) -> Run:
    """The same run; of pieces, without the tokens beside a cut."""
    num_tokens = 0 if kept is None else kept.tokens
    stretches = [
        one._replace(ids=one.ids[EDGE_TOKENS * (one.start > 0) : len(one.ids) - EDGE_TOKENS * (one.end < num_tokens)])
        for one in run.stretches
    ]
    return run._replace(stretches=stretches)


def wrong_texts_in_source(run: Run, text: bytes, spelling: Spelling) -> Iterator[str]:
    """Yield a fault if a piece differs from the source at its tokens, or is on other lines than recorded."""
    if spelling.tokenizer_key is None:
        return
    starts = spelling.tokenizer.encode(text, with_starts=True).starts
    assert starts is not None, "it was asked for"
    for stretch in run.stretches:
        start, end = stretch.start, stretch.end
        if end >= len(starts) or start >= end:
            yield f"tokens {start} to {end}, of {counted(len(starts) - 1, 'token')} in the source"
            return
        at, to = int(starts[start]), int(starts[end])
        if stretch.text != text[_to_character(text, at) : _to_character(text, to)]:
            yield f"its text from token {start} is not in the source there"
            return
    line_feeds = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    for window in run.windows if run.stretches else ():
        first, last = (int(starts[min(place, len(starts) - 1)]) for place in (window[START], window[END] - 1))
        found = tuple(1 + int(np.searchsorted(line_feeds, place)) for place in (first, last))
        # A tokenizer may leave out blank lines: its token then begins behind them.
        latest = tuple(1 + int(np.searchsorted(line_feeds, _behind_blanks(text, place))) for place in (first, last))
        said = tuple(int(window[column]) for column in (FIRST_LINE, LAST_LINE))
        if not all(low <= one <= high for low, one, high in zip(found, said, latest, strict=True)):
            yield f"the row at {window[START]} says lines {said[0]} to {said[1]}, the source {found[0]} to {found[1]}"
            return


def _behind_blanks(text: bytes, at: int) -> int:
    while at < len(text) and text[at : at + 1].isspace():
        at += 1
    return at


def _to_character(text: bytes, at: int) -> int:
    """The next place at which a character begins."""
    while at < len(text) and text[at] & 0xC0 == 0x80:  # noqa: PLR2004 - bytes that continue a character
        at += 1
    return at
