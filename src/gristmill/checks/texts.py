"""Decode the windows of each file in parallel. Compare the texts with files.jsonl and the source, and find secrets."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from gristmill.checks.decoder import Decoder
from gristmill.checks.documents import find_document_fault
from gristmill.checks.file_rows import FileKey, FilesTable, KeptFile
from gristmill.checks.findings import Faults, Verdict, Verdicts
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, ROW, START, Run, Table, TokenSpan
from gristmill.checks.secrets import LOOKAHEAD_BYTES, LOOKBACK_BYTES, scan_for_secrets
from gristmill.checks.source_texts import find_source_faults, locate_file
from gristmill.checks.windows_by_file import Rows
from gristmill.core.files_table import VariantRow
from gristmill.core.layout import FILES
from gristmill.core.names import counted
from gristmill.core.records import LABELED_KINDS
from gristmill.runners.local import LocalRunner

# Compare `lines` of windows and files with the line feeds in their tokens (check `windows`).

Fault = tuple[int, str]
"""Row number and fault message."""


def find_line_feed_fault(run: Run, file: KeptFile, decoder: Decoder) -> Fault | None:
    """Return a fault for the first window whose `lines` contradict the line feeds in the tokens, or None."""
    line = 1
    for span in run.spans:
        windows = _windows_of(run, span)
        if not len(windows):
            return None  # another check reports the wrong positions
        base = int(windows[0, FIRST_LINE]) if span.start else 1
        if base < line:
            return int(windows[0, ROW]), f"the window begins on line {base}, but the previous text ends on line {line}"
        num_line_feeds = decoder.num_line_feeds(span.ids)
        fault = _find_wrong_lines(windows, span, base + num_line_feeds.cumsum() - num_line_feeds)
        if fault is not None:
            return fault
        line = base + int(num_line_feeds.sum())
        if span.end == file.tokens:
            num_lines = line - decoder.tokenizer.decode(span.ids[-1:]).endswith(b"\n")
            if num_lines != file.lines:
                return int(windows[-1, ROW]), f"the file ends on line {num_lines}, expected {file.lines}"
    return None


def _windows_of(run: Run, span: TokenSpan) -> Table:
    starts, ends = run.windows[:, START], run.windows[:, END]
    return run.windows[(starts >= span.start) & (ends <= span.end) & (starts < ends)]


def _find_wrong_lines(windows: Table, span: TokenSpan, lines: Table) -> Fault | None:
    """Return a fault for the first window with wrong lines, or None. `lines` is the line of each token in the span."""
    first, last = lines[windows[:, START] - span.start], lines[windows[:, END] - 1 - span.start]
    is_wrong = (windows[:, FIRST_LINE] != first) | (windows[:, LAST_LINE] != last)
    if not is_wrong.any():
        return None
    at = int(np.argmax(is_wrong))
    row, first_line, last_line = windows[at, [ROW, FIRST_LINE, LAST_LINE]].tolist()
    return row, (
        f"the window records lines {first_line} to {last_line}, but its tokens are on lines {first[at]} to {last[at]} "
        "according to the line feeds"
    )


TOKENS_PER_TASK = 1 << 18


class TextRules(NamedTuple):
    """Everything that a worker needs to check texts."""

    decoder: Decoder
    scans_secrets: bool
    emails: bool
    notebooks: str


class TextTask(NamedTuple):
    """Run whose text is checked."""

    run: Run
    file: str
    """Data file that contains the run."""
    kept: KeptFile | None
    """Row of the file in files.jsonl."""
    location: str | None
    """Path of the source file, or None if it is not compared."""
    variant: VariantRow | None = None
    """Record of the variant in files.jsonl, or None if the run is not a variant."""


class TextFindings(NamedTuple):
    """Findings in a batch of texts."""

    num_at_cuts: int
    """Number of possible secrets next to a cut. The complete text may show that they are not secrets."""
    num_normalized: int
    """Number of texts with a different digest than the decoded ids, possibly only because the tokenizer normalizes."""
    faults: Faults


class Texts(NamedTuple):
    """Texts of all files and variants of a dataset."""

    rows: Rows
    table: FilesTable
    settings: Settings
    folders: dict[str, str]
    """Folders of the sources, keyed by repository."""

    @property
    def num_tasks(self) -> int:
        """Number of files, plus the number of variants other than noise."""
        variants = (entry for runs in self.rows.variants.values() for entry in runs)
        return len(self.rows.by_file) + len([one for one in variants if one.run.key.variant not in LABELED_KINDS])

    def check(self, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]) -> Verdicts:
        """Check all texts. Return the verdicts of `secrets` and `source`."""
        secrets = self.settings.secrets
        skip_reason = self._secrets_skip_reason()
        decoder, notebooks = self.settings.decoder, self.settings.notebooks
        rules = TextRules(decoder, skip_reason is None, secrets.emails, notebooks)
        if secrets.action != "keep":
            self._check_names(secrets.emails, faults)
        num_at_cuts = num_normalized = num_compared = 0
        if rules.decoder.is_close or self.folders or self.settings.rules.has_documents:
            tasks = list(self._tasks(faults))
            num_compared = sum(task.location is not None for batch in tasks for task in batch)
            for batch, found in zip(tasks, runner.map(partial(check_texts, rules), tasks), strict=True):
                faults.merge(found.faults)
                num_at_cuts += found.num_at_cuts
                num_normalized += found.num_normalized
                advance(len(batch))
        if self.folders and not num_compared:
            repos = ", ".join(sorted({repo for repo, _ in self.table.kept}))
            faults.add("source", f"the dataset was not built from these sources, but from {repos}")
        at_cuts = f"; {counted(num_at_cuts, 'possible secret')} next to a cut" if num_at_cuts else ""
        scanned = Verdict(
            f"{counted(len(self.rows.by_file), 'file')}{at_cuts}",
            "reported" if at_cuts else "ok",
            {"at_cuts": num_at_cuts},
        )
        compared = Verdict(f"{num_compared:,} of {counted(len(self.table.kept), 'file')} compared")
        normalized = (
            f"; the tokenizer normalizes text to NFC, so {counted(num_normalized, 'text')} can only be compared with "
            "the source"
            if num_normalized
            else ""
        )
        return {
            "secrets": scanned if skip_reason is None else Verdict(skip_reason, "skipped"),
            "source": compared if self.folders else Verdict(f"no source given{normalized}", "skipped"),
        }

    def _check_names(self, emails: bool, faults: Faults) -> None:
        """Scan file names for secrets, because names appear in rows, tables and pages.

        A fault gives the row in files.jsonl instead of the name, because the name contains the secret.
        """
        for number, (repo, path) in enumerate(sorted((*self.table.kept, *self.table.dropped)), 1):
            for found in scan_for_secrets(f"{repo}/{path}".encode(), emails=emails):
                faults.add("secrets", f"{found.kind} in the file name", file=FILES, row=number)

    def _secrets_skip_reason(self) -> str | None:
        """Return the reason why texts are not scanned for secrets, or None if they are scanned."""
        settings = self.settings
        if settings.secrets.action == "keep":
            return "the dataset was built with --secrets keep"
        if settings.decoder.is_close or "text" in settings.rules.columns:
            return None
        return settings.no_tokenizer_reason or "this tokenizer does not reproduce the text"

    def _variant_row(self, key: FileKey, kind: str) -> VariantRow | None:
        file = self.table.kept.get(key)
        return next((row for row in file.variants if row.kind == kind), None) if file is not None else None

    def _tasks(self, faults: Faults) -> Iterator[list[TextTask]]:
        """Yield the texts to check in batches. Add a fault for each path that leads out of the source folder."""
        batch, size = list[TextTask](), 0
        for key, runs in self.rows.by_file.items():
            folder = self.folders.get(key[0])
            location = locate_file(folder, key[1]) if folder is not None else None
            if folder is not None and location is None:
                faults.add("source", "the path leads out of the source folder", path="/".join(key))
            for run, file, _ in runs:
                if run.repeat:  # the check `windows` compares repeats with the first occurrence
                    continue
                batch.append(TextTask(run, file, self.table.kept.get(key), location))
                size += sum(len(span.ids) for span in run.spans)
            for run, file, _ in self.rows.variants.get(key, ()):
                if run.key.variant not in LABELED_KINDS:
                    row = self._variant_row(key, run.key.variant)
                    batch.append(TextTask(run, file, None, None, row))
                    size += sum(len(span.ids) for span in run.spans)
            if size >= TOKENS_PER_TASK:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def check_texts(rules: TextRules, tasks: list[TextTask]) -> TextFindings:
    """Check the texts of a batch of files."""
    faults = Faults()
    num_at_cuts = num_normalized = 0
    for task in tasks:
        if task.run.spans and (rules.decoder.is_close or _is_document(task.run)):
            at_cuts, is_normalized = _check_text(task, rules, faults)
            num_at_cuts += at_cuts
            num_normalized += is_normalized
        if task.kept is not None and task.location is not None:
            run = _with_valid_spans(task.run, task.kept)
            found = find_source_faults(task.kept, run, task.location, rules.decoder, notebooks=rules.notebooks)
            for message in found:
                faults.add("source", message, file=task.file, path=task.run.key.name)
    return TextFindings(num_at_cuts, num_normalized, faults)


def _check_text(task: TextTask, rules: TextRules, faults: Faults) -> tuple[int, bool]:
    """Check secrets, digest and line feeds of a run.

    Return the number of possible secrets next to a cut. Also return True if the digest differs, but may be right.
    """
    run, kept = task.run, task.kept
    is_document = _is_document(run)
    texts = [_text_of(span, rules.decoder) for span in run.spans]
    num_at_cuts = 0
    if rules.scans_secrets:
        spans = zip(run.spans, texts, strict=True)
        num_at_cuts = sum(_check_secrets(text, span, task, rules, faults) for span, text in spans)
    is_exact = is_document or rules.decoder.is_exact
    differs = is_exact and _differs_from_table(task, texts[0])
    is_normalized = differs and rules.decoder.uses_nfc and not is_document and _may_be_normalized(texts[0], kept)
    if differs and not is_normalized:
        if kept is None:
            message = f"the text of the {run.key.variant} variant does not match text_sha256 in {FILES}"
            faults.add("variants", message, file=task.file, path=run.key.name)
        else:
            subject = "the text" if is_document else "the text decoded from the ids"
            faults.add("ids", f"{subject} does not match text_sha256 in {FILES}", file=task.file, path=kept.name)
    if kept is None:
        return num_at_cuts, is_normalized
    valid_run = _with_valid_spans(run, kept)
    fault = (
        find_document_fault(valid_run, kept) if is_document else find_line_feed_fault(valid_run, kept, rules.decoder)
    )
    if fault is not None:
        row, message = fault
        faults.add("windows", message, file=task.file, row=row, path=kept.name)
    return num_at_cuts, is_normalized


def _text_of(span: TokenSpan, decoder: Decoder) -> bytes:
    return decoder.tokenizer.decode(span.ids) if span.text is None else span.text


def _differs_from_table(task: TextTask, text: bytes) -> bool:
    """Return True if the run is a complete file or variant, and files.jsonl records a different digest of its text."""
    record = task.kept or task.variant
    return (
        record is not None and _is_complete(task.run, record) and hashlib.sha256(text).hexdigest() != record.text_sha256
    )


def _may_be_normalized(text: bytes, kept: KeptFile | None) -> bool:
    """Return True if NFC may explain that a file differs from `text`, which was decoded from its ids.

    NFC turns few characters into ASCII, and makes each of them shorter. So if the text is ASCII, and is not shorter
    than the file, NFC has changed nothing. Redacted and respelled files have another size than their text.
    """
    if kept is None or kept.redactions or kept.respellings or not text.isascii():
        return True
    return len(text) < kept.bytes


def _is_complete(run: Run, record: KeptFile | VariantRow) -> bool:
    """Return True if the run contains all tokens of a file or variant: none is cut, and all its windows are in rows."""
    has_cuts = isinstance(record, KeptFile) and record.cuts
    return not has_cuts and [(one.start, one.end) for one in run.spans] == [(0, record.tokens)]


def _is_document(run: Run) -> bool:
    return bool(run.spans) and run.spans[0].text is not None


def _with_valid_spans(run: Run, kept: KeptFile) -> Run:
    """Return the run, or the run without spans if its file is rewritten for fill-in-the-middle and only partly drawn.

    The encoded pieces of a partly drawn file may have different tokens than the complete file.
    """
    return run._replace(spans=[]) if kept.is_rewritten and not _is_complete(run, kept) else run


def _check_secrets(text: bytes, span: TokenSpan, task: TextTask, rules: TextRules, faults: Faults) -> int:
    """Add a fault for each secret that is not next to a cut. Return the number of possible secrets next to a cut."""
    is_file_end = task.kept is None or span.end >= task.kept.tokens
    num_at_cuts = 0
    for kind, start, end in scan_for_secrets(text, emails=rules.emails):
        # The build scanned the complete text. Next to a cut, a truncated name or value may match differently.
        is_at_end = not is_file_end and end >= len(text) - LOOKAHEAD_BYTES
        if is_at_end or (span.start and start < LOOKBACK_BYTES):
            num_at_cuts += 1
            continue
        windows = task.run.windows
        first_line = int(windows[windows[:, START] == span.start][0, FIRST_LINE])
        line = first_line + text.count(b"\n", 0, start)
        faults.add("secrets", f"{kind} in line {line}", file=task.file, path=task.run.key.name)
    return num_at_cuts
