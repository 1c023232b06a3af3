"""What the windows spell, file by file over processes: no secrets in it, and the source where it is given."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from gristmill.checking.files import Rows
from gristmill.checking.result import Faults, Verdict, Verdicts
from gristmill.checking.runs import FIRST_LINE, START, Run, Stretch
from gristmill.checking.secrets import secrets_in
from gristmill.checking.settings import Settings
from gristmill.checking.sources import differences, location_of
from gristmill.checking.spelling import Spelling
from gristmill.checking.tables import FilesTable, KeptFile
from gristmill.cleaning.secret_values import MAX_NAME_BYTES
from gristmill.runners.local import LocalRunner

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

    def check(self, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]) -> Verdicts:
        secrets = self.settings.secrets
        why_no_secrets = "--secrets keep" if secrets.action == "keep" else self._why_not_spelled()
        rules = TextRules(self.settings.spelling, why_no_secrets is None, secrets.emails, self.settings.notebooks)
        num_at_cuts = num_compared = 0
        if rules.looks_for_secrets or self.folders:
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
            f"{len(self.rows.by_file):,} files{at_cuts}", "reported" if at_cuts else "ok", {"at_cuts": num_at_cuts}
        )
        compared = Verdict(f"{num_compared:,} of {len(self.table.kept):,} files compared")
        return {
            "secrets": looked if why_no_secrets is None else Verdict(why_no_secrets, "skipped"),
            "source": compared if self.folders else Verdict("no source was given", "skipped"),
        }

    def _why_not_spelled(self) -> str | None:
        if self.settings.no_tokenizer is not None:
            return self.settings.no_tokenizer
        return None if self.settings.spelling.is_close else "this tokenizer does not give the text back"

    def _tasks(self, faults: Faults) -> Iterator[list[TextTask]]:
        """Files in batches; a source file that cannot be is a fault."""
        batch, size = list[TextTask](), 0
        for key, runs in self.rows.by_file.items():
            folder = self.folders.get(key[0])
            location = location_of(folder, key[1]) if folder is not None else None
            if folder is not None and location is None:
                faults.add("source", "its path leads out of the source", path="/".join(key))
            for run, file, _ in runs:
                batch.append(TextTask(run, file, self.table.kept.get(key), location))
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
        if rules.looks_for_secrets:
            num_at_cuts += sum(_find_secrets(stretch, task, rules, faults) for stretch in task.run.stretches)
        if task.kept is not None and task.location is not None:
            found = differences(task.kept, task.run, task.location, rules.spelling, notebooks=rules.notebooks)
            for what in found:
                faults.add("source", what, file=task.file, path=task.run.key.name)
    return TextFindings(num_at_cuts, faults)


def _find_secrets(stretch: Stretch, task: TextTask, rules: TextRules, faults: Faults) -> int:
    """A fault for each; how many more there are that touch the edge of a cut."""
    text = rules.spelling.tokenizer.decode(stretch.ids)
    is_whole_end = task.kept is None or stretch.end >= task.kept.tokens
    num_at_cuts = 0
    for kind, start, end in secrets_in(text, emails=rules.emails):
        # The build judged the whole text: a name that a cut has halved, or a value that it ends, looks otherwise here.
        if (stretch.start and start < MAX_NAME_BYTES) or (not is_whole_end and end >= len(text) - 1):
            num_at_cuts += 1
            continue
        windows = task.run.windows
        first_line = int(windows[windows[:, START] == stretch.start][0, FIRST_LINE])
        line = first_line + text.count(b"\n", 0, start)
        faults.add("secrets", f"{kind} in line {line}", file=task.file, path=task.run.key.name)
    return num_at_cuts
