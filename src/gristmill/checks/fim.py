"""Check `fim`: fill-in-the-middle rows give the text of their file when each middle is moved back.

Each row is split at its sentinels, the special tokens before the prefix, the middle and the suffix. Its prefix, middle
and suffix are then joined in this order to a piece of the original text. If the rows contain the complete file, its
joined pieces must have the digest in files.jsonl, and each piece must be at its recorded position. The text is encoded
again, and later checks read these tokens instead of the rows.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gristmill.checks.decoder import Decoder
from gristmill.checks.file_rows import FilesTable, KeptFile
from gristmill.checks.findings import Faults, Verdict, value_text
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import (
    END,
    FORM,
    FORMS,
    MIDDLE,
    MIDDLE_TOKENS,
    MIDDLES,
    ROW,
    START,
    Run,
    TokenSpan,
)
from gristmill.checks.tokens import Ids
from gristmill.checks.windows_by_file import Rows, RunEntry
from gristmill.core.layout import FILES, MANIFEST
from gristmill.core.names import counted
from gristmill.core.records import FimForm, MiddleKind, Split
from gristmill.runners.local import LocalRunner
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for
from gristmill.tokenizers.window_frame import FimFrame

CHECK = "fim"
TOKENS_PER_TASK = 1 << 18
NUM_SAMPLE_BYTES = 20


class FimRules(NamedTuple):
    """Everything that a worker needs to restore fill-in-the-middle rows."""

    frame: FimFrame
    decoder: Decoder
    max_middle_tokens: int
    has_documents: bool


class FimTask(NamedTuple):
    """Run to restore, and the row of its file in files.jsonl."""

    entry: RunEntry
    kept: KeptFile | None


class RestoredRun(NamedTuple):
    """Run with its original tokens, and the faults found while restoring it."""

    run: Run
    faults: Faults


def check_fim(
    rows: Rows, table: FilesTable, settings: Settings, runner: LocalRunner, faults: Faults
) -> tuple[Rows, Verdict]:
    """Check the files rewritten for fill-in-the-middle. Return the rows with the original tokens of these files."""
    if not settings.fim.is_enabled:
        return rows, Verdict("fill-in-the-middle is off", "skipped")
    _check_table(rows, table, settings, faults)
    frame = settings.rules.fim
    if frame is None or settings.decoder.tokenizer_key is None:
        reason = settings.no_tokenizer_reason or "the special ids of fill-in-the-middle rows cannot be determined"
        return rows, Verdict(reason, "skipped")
    max_middle_tokens = settings.fim.max_middle or settings.rules.length
    rules = FimRules(frame, settings.decoder, max_middle_tokens, settings.rules.has_documents)
    by_file = {key: list(runs) for key, runs in rows.by_file.items()}
    locations = [
        (key, index)
        for key, runs in by_file.items()
        for index, entry in enumerate(runs)
        if entry.run.fim_contents and not entry.run.repeat
    ]
    tasks = [FimTask(by_file[key][index], table.kept.get(key)) for key, index in locations]
    found = (one for batch in runner.map(partial(restore_files, rules), list(_batches(tasks))) for one in batch)
    for (key, index), one in zip(locations, found, strict=True):
        by_file[key][index] = by_file[key][index]._replace(run=one.run)
        faults.merge(one.faults)
    num_rows = sum(len(task.entry.run.fim_contents) for task in tasks)
    summary = f"{counted(num_rows, 'row')} of {counted(len(tasks), 'file')} checked"
    return rows._replace(by_file=by_file), Verdict(summary)


def _batches(tasks: list[FimTask]) -> Iterator[list[FimTask]]:
    batch, size = list[FimTask](), 0
    for task in tasks:
        batch.append(task)
        size += int(task.entry.run.windows[-1, END])
        if size >= TOKENS_PER_TASK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check_table(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> None:
    """Check that rows, files.jsonl and the manifest agree on the number of rewritten windows and on their forms."""
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        is_rewritten = file is not None and file.is_rewritten
        for entry in runs:
            forms = entry.run.windows[:, FORM]
            if (forms > 0).any() and (not is_rewritten or entry.split is not Split.TRAIN):
                message = (
                    f"the file has fill-in-the-middle rows, but is not in train, or {FILES} does not record a rewrite"
                )
                faults.add(CHECK, message, file=entry.file, path=entry.run.key.name)
        if file is not None and file.fim is not None and is_rewritten:
            num_forms = int((runs[0].run.windows[:, FORM] > 0).sum())
            is_all = file.draw is None or file.draw[0] > 0
            if num_forms > file.fim.rewritten or (is_all and num_forms != file.fim.rewritten):
                message = (
                    f"{FILES} records {counted(file.fim.rewritten, 'rewritten window')}, "
                    f"but the rows contain {num_forms}"
                )
                faults.add(CHECK, message, file=FILES, path=file.name)
    for name, recorded, found in _fim_facts(rows, table, settings):
        if recorded != found:
            faults.add(CHECK, f"fim.{name} is {value_text(recorded)}, expected {value_text(found)}", file=MANIFEST)


def _fim_facts(rows: Rows, table: FilesTable, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each fact, its value in the manifest, and the value computed from files.jsonl and the rows."""
    facts = settings.manifest.fim
    yield "rate", facts and facts.rate, settings.fim.rate
    if facts is None:
        return
    chosen = [(file, file.fim) for file in table.kept.values() if file.fim is not None]
    yield "chosen", facts.chosen, len(chosen)
    yield "rewritten", facts.rewritten, sum(one.missing is None for _, one in chosen)
    yield "missing", facts.missing, dict(Counter(one.missing for _, one in chosen if one.missing is not None))
    if any(file.draw is not None for file, _ in chosen):
        return  # windows are drawn, so the counts below do not apply
    runs = [
        rows.by_file[file.key][0].run.windows for file, one in chosen if not one.missing and file.key in rows.by_file
    ]
    windows = np.concatenate([np.zeros((0, MIDDLE_TOKENS + 1), np.int64), *runs])
    forms, middles = (np.bincount(windows[:, column], minlength=len(FORMS)).tolist() for column in (FORM, MIDDLE))
    yield "forms", facts.forms, {form: forms[FORMS.index(form)] for form in FimForm}
    yield (
        "middles",
        facts.middles,
        {kind: count for kind, count in zip(MIDDLES, middles, strict=False) if kind and count},
    )
    yield "plain", facts.plain, forms[0]


def restore_files(rules: FimRules, tasks: list[FimTask]) -> list[RestoredRun]:
    return [_restore_file(rules, task) for task in tasks]


def _restore_file(rules: FimRules, task: FimTask) -> RestoredRun:
    faults, run, kept = Faults(), task.entry.run, task.kept
    try:
        pieces = [_restore_piece(run, index, rules) for index in range(len(run.windows))]
        return RestoredRun(_encode_spans(run, pieces, kept, rules), faults)
    except _RowError as error:
        faults.add(CHECK, str(error), file=task.entry.file, row=error.row, path=run.key.name)
    except (LookupError, ValueError) as error:
        problem = "it is not valid UTF-8" if isinstance(error, UnicodeError) else "a row has an id without a token"
        faults.add(CHECK, f"the text cannot be restored: {problem}", file=task.entry.file, path=run.key.name)
    return RestoredRun(run, faults)


class _RowError(ValueError):
    """Fault in a row."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class _Piece(NamedTuple):
    """Original text of one window."""

    text: bytes
    num_before: int
    """Number of bytes before the middle."""
    num_middle: int
    """Number of bytes in the middle."""


def _restore_piece(run: Run, index: int, rules: FimRules) -> _Piece:
    """Return the text of a window with its middle moved back. Raises _RowError if the row is malformed."""
    window, ids = run.windows[index], run.fim_contents.get(index)
    row, start, end = (int(window[column]) for column in (ROW, START, END))
    tokenizer = rules.decoder.tokenizer
    continuing = tokenizer_for(tokenizer.definition.without_prefix_space)
    if isinstance(ids, bytes):
        ids = _encode_with_sentinels(ids, rules.frame, continuing, row)
    if ids is None:
        plain_span = next((one for one in run.spans if one.start <= start and end <= one.end), None)
        if plain_span is None:
            raise _RowError(row, f"tokens {start} to {end} are missing from the rows that are not rewritten")
        if plain_span.text is not None:
            return _Piece(plain_span.text, 0, 0)
        return _Piece(
            (continuing if start else tokenizer).decode(
                plain_span.ids[start - plain_span.start : end - plain_span.start]
            ),
            0,
            0,
        )
    frame, num_middle = rules.frame, int(window[MIDDLE_TOKENS])
    expected = [frame.prefix, frame.suffix, frame.middle, *([] if frame.end is None else [frame.end])]
    positions = np.flatnonzero(np.isin(ids, expected))
    found = ids[positions].tolist()
    is_end_last = frame.end is None or not len(positions) or positions[-1] == len(ids) - 1
    if found != expected or positions[0] != 0 or not is_end_last:
        at_end = "" if frame.end is None else f" and {frame.end} last"
        raise _RowError(
            row,
            f"expected the special ids {value_text(expected)}, with {frame.prefix} first{at_end} in the window, "
            f"but found {value_text(found)} (positions: {value_text(positions.tolist())})",
        )
    suffix_at, middle_at = int(positions[1]), int(positions[2])
    tail = ids[middle_at + 1 : len(ids) - (frame.end is not None)]
    is_spm = FORMS[int(window[FORM])] == FimForm.SPM
    if not 0 < num_middle <= min(len(tail), rules.max_middle_tokens) or (num_middle < len(tail) and not is_spm):
        raise _RowError(
            row,
            f"middle_tokens is {num_middle}, but the special id {frame.middle} is followed by "
            f"{counted(len(tail), 'token')}, and the limit is {rules.max_middle_tokens}",
        )
    if not window[MIDDLE]:
        raise _RowError(row, "the column middle is empty")
    if is_spm and suffix_at != 1:
        raise _RowError(row, f"fim is spm, but tokens are between the special ids {frame.prefix} and {frame.suffix}")
    prefix_ids = tail[: len(tail) - num_middle] if is_spm else ids[1:suffix_at]
    parts = [
        continuing.decode(part) for part in (prefix_ids, tail[len(tail) - num_middle :], ids[suffix_at + 1 : middle_at])
    ]
    return _Piece(b"".join(parts), len(parts[0]), len(parts[1]))


def _encode_with_sentinels(text: bytes, frame: FimFrame, continuing: Tokenizer, row: int) -> Ids:
    """Encode a text that contains sentinels. The text between two sentinels is encoded separately."""
    added_texts = continuing.definition.added_texts
    parts: list[Ids] = []
    sentinels = (frame.prefix, frame.suffix, frame.middle, *(() if frame.end is None else (frame.end,)))
    for sentinel in sentinels:
        name = added_texts.get(sentinel, "").encode()
        before, found, text = text.partition(name) if name else (b"", b"", text)
        if not found:
            token = name.decode() or f"with the id {sentinel}"
            raise _RowError(row, f"the special token {token} is missing from the text, or out of order")
        parts += [continuing.encode(before).ids, np.array([sentinel], np.uint32)]
    return np.concatenate([*parts, continuing.encode(text).ids])


def _encode_spans(run: Run, pieces: list[_Piece], kept: KeptFile | None, rules: FimRules) -> Run:
    """Return the run with new spans: adjacent pieces are joined and encoded. A complete file must match its digest."""
    tokenizer = rules.decoder.tokenizer
    starts, ends = run.windows[:, START].tolist(), run.windows[:, END].tolist()
    firsts = [index for index in range(len(starts)) if not index or starts[index] != ends[index - 1]]
    spans: list[TokenSpan] = []
    for first, last in pairwise([*firsts, len(starts)]):
        text = b"".join(piece.text for piece in pieces[first:last])
        is_complete = kept is not None and (starts[first], ends[last - 1]) == (0, kept.tokens)
        if kept is not None and is_complete and hashlib.sha256(text).hexdigest() != kept.text_sha256:
            raise _RowError(int(run.windows[first, ROW]), f"the restored text does not match text_sha256 in {FILES}")
        engine = tokenizer_for(tokenizer.definition.without_prefix_space) if starts[first] else tokenizer
        encoded = engine.encode(text.decode(), with_starts=True)
        num_tokens = ends[last - 1] - starts[first]
        if rules.has_documents:
            spans.append(TokenSpan(starts[first], encoded.ids, text, num_tokens))
        else:
            spans.append(TokenSpan(starts[first], encoded.ids.astype(_id_type(rules))))
        if is_complete:
            assert encoded.starts is not None, "encode(with_starts=True) must return starts"
            _require_positions(run, pieces, text, encoded.starts)
    return run._replace(spans=spans, fim_contents={})


def _id_type(rules: FimRules) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if rules.decoder.tokenizer.vocab_size <= 1 << 16 else np.uint32


def _require_positions(run: Run, pieces: list[_Piece], text: bytes, token_bytes: Ids) -> None:
    """Check the pieces of a complete file.

    Raises _RowError if a piece is not at its recorded token, or if a middle recorded as lines has incomplete lines.
    """
    at = 0
    for window, piece in zip(run.windows, pieces, strict=True):
        row, start = int(window[ROW]), int(window[START])
        if start >= len(token_bytes) or int(token_bytes[start]) != at:
            sample = piece.text[:NUM_SAMPLE_BYTES].decode(errors="replace")
            raise _RowError(row, f"the restored text that begins with {sample!r} is not at token {start} of the file")
        first, last = at + piece.num_before, at + piece.num_before + piece.num_middle
        if window[MIDDLE] == MIDDLES.index(MiddleKind.LINES):
            begins_line = first == 0 or text[first - 1 : first] == b"\n"
            if not begins_line or (last < len(text) and text[last - 1 : last] != b"\n"):
                raise _RowError(row, "the middle is recorded as lines, but has incomplete lines")
        at += len(piece.text)
