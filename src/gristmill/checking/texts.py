"""What the windows of some files spell, looked at for secrets and compared with the source: a task for a process."""

from typing import NamedTuple

from gristmill.checking.result import Faults
from gristmill.checking.runs import FIRST_LINE, START, Run, Stretch
from gristmill.checking.secrets import secrets_in
from gristmill.checking.sources import differences
from gristmill.checking.spelling import Spelling
from gristmill.checking.tables import KeptFile
from gristmill.cleaning.secret_values import MAX_NAME_BYTES


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
