"""`fim`: rows of fill in the middle, with each middle moved back, are the text of their file.

Each row is split at its sentinels, and prefix, middle and suffix are joined. The joined pieces of a file must have the
digest in files.jsonl, and each piece its recorded place. They are encoded again, and all further checks read these
tokens instead of the rows.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gristmill.checks.file_rows import FilesTable, KeptFile
from gristmill.checks.findings import Faults, Verdict
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
    Stretch,
)
from gristmill.checks.spelling import Spelling
from gristmill.checks.tokens import Ids
from gristmill.checks.windows_by_file import PlacedRun, Rows
from gristmill.core.layout import FILES, MANIFEST
from gristmill.core.names import counted
from gristmill.core.records import FimForm, MiddleKind, Split
from gristmill.runners.local import LocalRunner
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for
from gristmill.tokenizers.window_frame import FimFrame

CHECK = "fim"
TOKENS_PER_TASK = 1 << 18
SHOWN_BYTES = 20


class FimRules(NamedTuple):
    frame: FimFrame
    spelling: Spelling
    max_middle_tokens: int
    has_documents: bool


class FimTask(NamedTuple):
    placed: PlacedRun
    kept: KeptFile | None


class Rejoined(NamedTuple):
    run: Run
    faults: Faults


def check_fim(
    rows: Rows, table: FilesTable, settings: Settings, runner: LocalRunner, faults: Faults
) -> tuple[Rows, Verdict]:
    """Return the rows with the files' own tokens where these are rewritten."""
    if not settings.fim.is_on:
        return rows, Verdict("none was asked for", "skipped")
    _check_table(rows, table, settings, faults)
    frame = settings.rules.fim
    if frame is None or settings.spelling.tokenizer_key is None:
        return rows, Verdict("the tokenizer cannot be read", "skipped")
    most = settings.fim.max_middle or settings.rules.length
    rules = FimRules(frame, settings.spelling, most, settings.rules.has_documents)
    by_file = {key: list(runs) for key, runs in rows.by_file.items()}
    places = [
        (key, number)
        for key, runs in by_file.items()
        for number, placed in enumerate(runs)
        if placed.run.infilled and not placed.run.repeat
    ]
    tasks = [FimTask(by_file[key][number], table.kept.get(key)) for key, number in places]
    found = (one for batch in runner.map(partial(rejoin, rules), list(_batches(tasks))) for one in batch)
    for (key, number), one in zip(places, found, strict=True):
        by_file[key][number] = by_file[key][number]._replace(run=one.run)
        faults.merge(one.faults)
    num_rows = sum(len(task.placed.run.infilled) for task in tasks)
    summary = f"{counted(num_rows, 'row')} of {counted(len(tasks), 'file')} put together again"
    return rows._replace(by_file=by_file), Verdict(summary)


def _batches(tasks: list[FimTask]) -> Iterator[list[FimTask]]:
    batch, size = list[FimTask](), 0
    for task in tasks:
        batch.append(task)
        size += int(task.placed.run.windows[-1, END])
        if size >= TOKENS_PER_TASK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _check_table(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> None:
    """Rows, files.jsonl and the manifest agree on which files are rewritten, and how."""
    for key, runs in rows.by_file.items():
        file = table.kept.get(key)
        is_rewritten = file is not None and file.is_rewritten
        for placed in runs:
            forms = placed.run.windows[:, FORM]
            if (forms > 0).any() and (not is_rewritten or placed.split is not Split.TRAIN):
                faults.add(CHECK, f"rewritten, but not in {FILES}", file=placed.file, path=placed.run.key.name)
        if file is not None and file.fim is not None and is_rewritten:
            num_forms = int((runs[0].run.windows[:, FORM] > 0).sum())
            is_all = file.draw is None or file.draw[0] > 0
            if num_forms > file.fim.rewritten or (is_all and num_forms != file.fim.rewritten):
                what = f"{num_forms} of its windows are rewritten, {FILES} has {file.fim.rewritten}"
                faults.add(CHECK, what, file=FILES, path=file.name)
    for name, said, found in _facts(rows, table, settings):
        if said != found:
            faults.add(CHECK, f"fim.{name} is {said}, and it should be {found}", file=MANIFEST)


def _facts(rows: Rows, table: FilesTable, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    facts = settings.manifest.fim
    yield "rate", facts and facts.rate, settings.fim.rate
    if facts is None:
        return
    chosen = [(file, file.fim) for file in table.kept.values() if file.fim is not None]
    yield "chosen", facts.chosen, len(chosen)
    yield "rewritten", facts.rewritten, sum(one.missing is None for _, one in chosen)
    yield "missing", facts.missing, dict(Counter(one.missing for _, one in chosen if one.missing is not None))
    if any(file.draw is not None for file, _ in chosen):
        return  # not every window is shown once
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


def rejoin(rules: FimRules, tasks: list[FimTask]) -> list[Rejoined]:
    return [_rejoined(rules, task) for task in tasks]


def _rejoined(rules: FimRules, task: FimTask) -> Rejoined:
    faults, run, kept = Faults(), task.placed.run, task.kept
    try:
        pieces = [_piece(run, number, rules) for number in range(len(run.windows))]
        return Rejoined(_with_own_tokens(run, pieces, kept, rules), faults)
    except _RowError as error:
        faults.add(CHECK, str(error), file=task.placed.file, row=error.row, path=run.key.name)
    except (LookupError, ValueError) as error:  # ids that no token has, or bytes that are no text
        faults.add(CHECK, f"it cannot be put together: {error!r}", file=task.placed.file, path=run.key.name)
    return Rejoined(run, faults)


class _RowError(ValueError):
    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


class _Piece(NamedTuple):
    text: bytes
    num_before: int
    """Bytes before the middle."""
    num_middle: int
    """Bytes of the middle."""


def _piece(run: Run, number: int, rules: FimRules) -> _Piece:
    """The text of a window, with the middle back in its place."""
    window, ids = run.windows[number], run.infilled.get(number)
    row, start, end = (int(window[column]) for column in (ROW, START, END))
    tokenizer = rules.spelling.tokenizer
    continuing = tokenizer_for(tokenizer.definition.continuing)
    if isinstance(ids, bytes):
        ids = _encoded(ids, rules.frame, continuing, row)
    if ids is None:
        own = next((one for one in run.stretches if one.start <= start and end <= one.end), None)
        if own is None:
            raise _RowError(row, f"tokens {start} to {end} are not among those of its other rows")
        if own.text is not None:
            return _Piece(own.text, 0, 0)
        return _Piece((continuing if start else tokenizer).decode(own.ids[start - own.start : end - own.start]), 0, 0)
    frame, num_middle = rules.frame, int(window[MIDDLE_TOKENS])
    wanted = [frame.prefix, frame.suffix, frame.middle, *([] if frame.end is None else [frame.end])]
    places = np.flatnonzero(np.isin(ids, wanted))
    found = ids[places].tolist()
    is_end_last = frame.end is None or not len(places) or places[-1] == len(ids) - 1
    if found != wanted or places[0] != 0 or not is_end_last:
        raise _RowError(row, f"the sentinels {found}, where {wanted} should be")
    at, to = int(places[1]), int(places[2])
    tail = ids[to + 1 : len(ids) - (frame.end is not None)]
    is_spm = FORMS[int(window[FORM])] == FimForm.SPM
    if not 0 < num_middle <= min(len(tail), rules.max_middle_tokens) or (num_middle < len(tail) and not is_spm):
        raise _RowError(row, f"middle_tokens is {num_middle}, and {counted(len(tail), 'token')} follow the sentinel")
    if not window[MIDDLE]:
        raise _RowError(row, "it does not name the kind of its middle")
    if is_spm and at != 1:
        raise _RowError(row, "it is spm, and something is between the sentinels of prefix and suffix")
    before = tail[: len(tail) - num_middle] if is_spm else ids[1:at]
    parts = [continuing.decode(part) for part in (before, tail[len(tail) - num_middle :], ids[at + 1 : to])]
    return _Piece(b"".join(parts), len(parts[0]), len(parts[1]))


def _encoded(text: bytes, frame: FimFrame, continuing: Tokenizer, row: int) -> Ids:
    """The ids of a text with sentinels in it, each part by itself."""
    spelled = continuing.definition.added_texts
    parts: list[Ids] = []
    sentinels = (frame.prefix, frame.suffix, frame.middle, *(() if frame.end is None else (frame.end,)))
    for sentinel in sentinels:
        name = spelled.get(sentinel, "").encode()
        before, found, text = text.partition(name) if name else (b"", b"", text)
        if not found:
            raise _RowError(row, f"its text does not spell the token {name.decode() or sentinel} where it should")
        parts += [continuing.encode(before).ids, np.array([sentinel], np.uint32)]
    return np.concatenate([*parts, continuing.encode(text).ids])


def _with_own_tokens(run: Run, pieces: list[_Piece], kept: KeptFile | None, rules: FimRules) -> Run:
    """Encode what follows without a gap, and compare a whole file with its digest."""
    tokenizer = rules.spelling.tokenizer
    starts, ends = run.windows[:, START].tolist(), run.windows[:, END].tolist()
    firsts = [number for number in range(len(starts)) if not number or starts[number] != ends[number - 1]]
    stretches: list[Stretch] = []
    for first, last in pairwise([*firsts, len(starts)]):
        text = b"".join(piece.text for piece in pieces[first:last])
        is_whole = kept is not None and (starts[first], ends[last - 1]) == (0, kept.tokens)
        if kept is not None and is_whole and hashlib.sha256(text).hexdigest() != kept.text_sha256:
            raise _RowError(int(run.windows[first, ROW]), f"its rejoined rows do not match text_sha256 in {FILES}")
        engine = tokenizer_for(tokenizer.definition.continuing) if starts[first] else tokenizer
        encoded = engine.encode(text.decode(), with_starts=True)
        num_tokens = ends[last - 1] - starts[first]
        if rules.has_documents:
            stretches.append(Stretch(starts[first], encoded.ids, text, num_tokens))
        else:
            stretches.append(Stretch(starts[first], encoded.ids.astype(_id_type(rules))))
        if is_whole:
            assert encoded.starts is not None, "they were asked for"
            _require_places(run, pieces, text, encoded.starts)
    return run._replace(stretches=stretches, infilled={})


def _id_type(rules: FimRules) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if rules.spelling.tokenizer.vocab_size <= 1 << 16 else np.uint32


def _require_places(run: Run, pieces: list[_Piece], text: bytes, token_bytes: Ids) -> None:
    """Raise if a piece of a whole file is not where it says, or its middle is not whole lines although it says so."""
    at = 0
    for window, piece in zip(run.windows, pieces, strict=True):
        row, start = int(window[ROW]), int(window[START])
        if start >= len(token_bytes) or int(token_bytes[start]) != at:
            shown = piece.text[:SHOWN_BYTES]
            raise _RowError(row, f"put together it is {shown!r} …, which is not at token {start} of its file")
        first, last = at + piece.num_before, at + piece.num_before + piece.num_middle
        if window[MIDDLE] == MIDDLES.index(MiddleKind.LINES):
            begins = first == 0 or text[first - 1 : first] == b"\n"
            if not begins or (last < len(text) and text[last - 1 : last] != b"\n"):
                raise _RowError(row, "its middle is said to be lines, and is not")
        at += len(piece.text)
