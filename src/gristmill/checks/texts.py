"""What the windows spell, file by file over processes: secrets, the digest and lines of files.jsonl, and the source."""

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from gristmill.checks.documents import wrong_document
from gristmill.checks.file_rows import FileKey, FilesTable, KeptFile
from gristmill.checks.findings import Faults, Verdict, Verdicts
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import END, FIRST_LINE, LAST_LINE, ROW, START, Run, Stretch, Table
from gristmill.checks.secrets import LOOK_AHEAD_BYTES, LOOK_BACK_BYTES, secrets_in
from gristmill.checks.source_texts import differences, location_of
from gristmill.checks.spelling import Spelling
from gristmill.checks.windows_by_file import Rows
from gristmill.core.files_table import VariantRow
from gristmill.core.layout import FILES
from gristmill.core.names import counted
from gristmill.core.records import WITH_LABELS
from gristmill.runners.local import LocalRunner

# The `lines` of windows and files against the line feeds in their tokens (`windows`).

Fault = tuple[int, str]
"""The row, and what is wrong there."""


def wrong_line_feeds(run: Run, file: KeptFile, spelling: Spelling) -> Fault | None:
    line = 1
    for stretch in run.stretches:
        windows = _windows_of(run, stretch)
        if not len(windows):
            return None  # its windows are not where they should be, and said to be
        base = int(windows[0, FIRST_LINE]) if stretch.start else 1
        if base < line:
            return int(windows[0, ROW]), f"it begins in line {base}, and what stands before it ends in {line}"
        num_line_feeds = spelling.num_line_feeds(stretch.ids)
        fault = _wrong_window(windows, stretch, base + num_line_feeds.cumsum() - num_line_feeds)
        if fault is not None:
            return fault
        line = base + int(num_line_feeds.sum())
        if stretch.end == file.tokens:
            num_lines = line - spelling.tokenizer.decode(stretch.ids[-1:]).endswith(b"\n")
            if num_lines != file.lines:
                return int(windows[-1, ROW]), f"its file ends in line {num_lines}, not {file.lines}"
    return None


def _windows_of(run: Run, stretch: Stretch) -> Table:
    starts, ends = run.windows[:, START], run.windows[:, END]
    return run.windows[(starts >= stretch.start) & (ends <= stretch.end) & (starts < ends)]


def _wrong_window(windows: Table, stretch: Stretch, lines: Table) -> Fault | None:
    """`lines`: on which each token of the stretch begins."""
    first, last = lines[windows[:, START] - stretch.start], lines[windows[:, END] - 1 - stretch.start]
    is_wrong = (windows[:, FIRST_LINE] != first) | (windows[:, LAST_LINE] != last)
    if not is_wrong.any():
        return None
    at = int(np.argmax(is_wrong))
    said = windows[at, [FIRST_LINE, LAST_LINE]].tolist()
    return int(windows[at, ROW]), f"lines {said[0]} to {said[1]}, its line feeds say {first[at]} to {last[at]}"


TOKENS_PER_TASK = 1 << 18


class TextRules(NamedTuple):
    spelling: Spelling
    looks_for_secrets: bool
    emails: bool
    notebooks: str


class TextTask(NamedTuple):
    run: Run
    file: str
    """The data file that the run is in."""
    kept: KeptFile | None
    """Its row in files.jsonl."""
    location: str | None
    """In the source, if that is to be compared."""
    variant: VariantRow | None = None
    """What files.jsonl tells of it, if it is one."""


class TextFindings(NamedTuple):
    num_at_cuts: int
    """What looks like a secret only where a cut has taken away what stands beside it."""
    faults: Faults


class Texts(NamedTuple):
    rows: Rows
    table: FilesTable
    settings: Settings
    folders: dict[str, str]
    """Of the sources, by repo."""

    @property
    def num_tasks(self) -> int:
        """Files, and their variants, but for noise."""
        variants = (placed for runs in self.rows.variants.values() for placed in runs)
        return len(self.rows.by_file) + len([one for one in variants if one.run.key.variant not in WITH_LABELS])

    def check(self, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]) -> Verdicts:
        secrets = self.settings.secrets
        why_no_secrets = self._why_no_secrets()
        spelling, notebooks = self.settings.spelling, self.settings.notebooks
        rules = TextRules(spelling, why_no_secrets is None, secrets.emails, notebooks)
        if secrets.action != "keep":
            self._check_names(secrets.emails, faults)
        num_at_cuts = num_compared = 0
        if rules.spelling.is_close or self.folders or self.settings.rules.has_documents:
            tasks = list(self._tasks(faults))
            num_compared = sum(task.location is not None for batch in tasks for task in batch)
            for batch, found in zip(tasks, runner.map(partial(read_texts, rules), tasks), strict=True):
                faults.merge(found.faults)
                num_at_cuts += found.num_at_cuts
                advance(len(batch))
        if self.folders and not num_compared:
            repos = ", ".join(sorted({repo for repo, _ in self.table.kept}))
            faults.add("source", f"this dataset is not of these sources: it is of {repos}")
        at_cuts = f"; {num_at_cuts:,} more at the edge of a cut may be ones" if num_at_cuts else ""
        looked = Verdict(
            f"{counted(len(self.rows.by_file), 'file')}{at_cuts}",
            "reported" if at_cuts else "ok",
            {"at_cuts": num_at_cuts},
        )
        compared = Verdict(f"{num_compared:,} of {counted(len(self.table.kept), 'file')} compared")
        return {
            "secrets": looked if why_no_secrets is None else Verdict(why_no_secrets, "skipped"),
            "source": compared if self.folders else Verdict("no source was given", "skipped"),
        }

    def _check_names(self, emails: bool, faults: Faults) -> None:
        """A name is in rows, tables and pages. It is given as a number, since the name is the secret."""
        for number, (repo, path) in enumerate(sorted((*self.table.kept, *self.table.dropped)), 1):
            for found in secrets_in(f"{repo}/{path}".encode(), emails=emails):
                faults.add("secrets", f"{found.kind} in the name of the file", file=FILES, row=number)

    def _why_no_secrets(self) -> str | None:
        """None where they are looked for: in what the ids spell or, row by row, in the column of texts."""
        settings = self.settings
        if settings.secrets.action == "keep":
            return "--secrets keep"
        if settings.spelling.is_close or "text" in settings.rules.columns:
            return None
        return settings.no_tokenizer or "this tokenizer does not give the text back"

    def _variant_row(self, key: FileKey, kind: str) -> VariantRow | None:
        file = self.table.kept.get(key)
        return next((row for row in file.variants if row.kind == kind), None) if file is not None else None

    def _tasks(self, faults: Faults) -> Iterator[list[TextTask]]:
        """Files in batches; a source file that cannot be is a fault."""
        batch, size = list[TextTask](), 0
        for key, runs in self.rows.by_file.items():
            folder = self.folders.get(key[0])
            location = location_of(folder, key[1]) if folder is not None else None
            if folder is not None and location is None:
                faults.add("source", "its path leads out of the source", path="/".join(key))
            for run, file, _ in runs:
                if run.repeat:  # the same once more, as has been seen
                    continue
                batch.append(TextTask(run, file, self.table.kept.get(key), location))
                size += sum(len(stretch.ids) for stretch in run.stretches)
            for run, file, _ in self.rows.variants.get(key, ()):
                if run.key.variant not in WITH_LABELS:
                    row = self._variant_row(key, run.key.variant)
                    batch.append(TextTask(run, file, None, None, row))
                    size += sum(len(stretch.ids) for stretch in run.stretches)
            if size >= TOKENS_PER_TASK:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def read_texts(rules: TextRules, tasks: list[TextTask]) -> TextFindings:
    faults = Faults()
    num_at_cuts = 0
    for task in tasks:
        if task.run.stretches and (rules.spelling.is_close or _is_document(task.run)):
            num_at_cuts += _check_spelled(task, rules, faults)
        if task.kept is not None and task.location is not None:
            run = _with_places(task.run, task.kept)
            found = differences(task.kept, run, task.location, rules.spelling, notebooks=rules.notebooks)
            for what in found:
                faults.add("source", what, file=task.file, path=task.run.key.name)
    return TextFindings(num_at_cuts, faults)


def _check_spelled(task: TextTask, rules: TextRules, faults: Faults) -> int:
    """Secrets, digest and line feeds; how many may be secrets at the edge of a cut."""
    run, kept = task.run, task.kept
    is_document = _is_document(run)
    texts = [_text_of(stretch, rules.spelling) for stretch in run.stretches]
    num_at_cuts = 0
    if rules.looks_for_secrets:
        stretches = zip(run.stretches, texts, strict=True)
        num_at_cuts = sum(_find_secrets(text, stretch, task, rules, faults) for stretch, text in stretches)
    is_exact = is_document or rules.spelling.is_exact
    if task.variant is not None and is_exact:
        _check_variant(task, task.variant, texts[0], faults)
    if kept is None:
        return num_at_cuts
    if is_exact and _is_whole(run, kept) and hashlib.sha256(texts[0]).hexdigest() != kept.text_sha256:
        what = "its text" if is_document else "what its ids spell"
        faults.add("ids", f"{what} does not match text_sha256 in {FILES}", file=task.file, path=kept.name)
    placed = _with_places(run, kept)
    wrong = wrong_document(placed, kept) if is_document else wrong_line_feeds(placed, kept, rules.spelling)
    if wrong is not None:
        row, what = wrong
        faults.add("windows", what, file=task.file, row=row, path=kept.name)
    return num_at_cuts


def _text_of(stretch: Stretch, spelling: Spelling) -> bytes:
    return spelling.tokenizer.decode(stretch.ids) if stretch.text is None else stretch.text


def _check_variant(task: TextTask, variant: VariantRow, text: bytes, faults: Faults) -> None:
    stretches = task.run.stretches
    if [(one.start, one.end) for one in stretches] != [(0, variant.tokens)]:
        return  # not all of it was drawn
    if hashlib.sha256(text).hexdigest() != variant.text_sha256:
        what = f"the text of its {variant.kind} does not match text_sha256 in {FILES}"
        faults.add("variants", what, file=task.file, path=task.run.key.name)


def _is_document(run: Run) -> bool:
    return bool(run.stretches) and run.stretches[0].text is not None


def _with_places(run: Run, kept: KeptFile) -> Run:
    """Without stretches if the tokens of fill in the middle are not the file's, as not all of it was drawn."""
    return run._replace(stretches=[]) if kept.is_rewritten and not _is_whole(run, kept) else run


def _is_whole(run: Run, kept: KeptFile) -> bool:
    """Nothing was cut out of it, and no tail dropped."""
    return not kept.cuts and [(one.start, one.end) for one in run.stretches] == [(0, kept.tokens)]


def _find_secrets(text: bytes, stretch: Stretch, task: TextTask, rules: TextRules, faults: Faults) -> int:
    """A fault for each; how many more there are that touch the edge of a cut."""
    is_whole_end = task.kept is None or stretch.end >= task.kept.tokens
    num_at_cuts = 0
    for kind, start, end in secrets_in(text, emails=rules.emails):
        # The build judged the whole text: a name that a cut has halved, or a value that it ends, looks otherwise here.
        is_at_end = not is_whole_end and end >= len(text) - LOOK_AHEAD_BYTES
        if is_at_end or (stretch.start and start < LOOK_BACK_BYTES):
            num_at_cuts += 1
            continue
        windows = task.run.windows
        first_line = int(windows[windows[:, START] == stretch.start][0, FIRST_LINE])
        line = first_line + text.count(b"\n", 0, start)
        faults.add("secrets", f"{kind} in line {line}", file=task.file, path=task.run.key.name)
    return num_at_cuts
