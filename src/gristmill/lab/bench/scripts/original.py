"""A typical plain script: one file at a time, and indented JSON.

    python -m gristmill.lab.bench.scripts.original JOB.json

1. walk the tree and read the files, ignoring bytes that are not UTF-8 and losing carriage returns
2. tokenize one file after the other
3. cut windows of 512 ids that overlap by 128, and pad them all to 512
4. append numbered copies of the windows until there are 2.75 times as many
5. shuffle the windows, including copies, and split them 85/10/5
6. json.dump each split as one list
"""

import json
import math
import random
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gristmill.lab.bench.job import Job, JobFile, Phases, read_job

WINDOW_LENGTH = 512
OVERLAP = 128
EXPANSION = 2.75
SHARES = {"train": 0.85, "validation": 0.10}
"""Share of the rows in each split. The test split gets the rest."""

Row = dict[str, Any]
Tokenize = Callable[[Tokenizer, list[str], Job, Phases], list[list[int]]]
Write = Callable[[list[Row], Path, Callable[[], None]], None]
"""Function that writes rows to a path, and calls its last argument after each row."""


def main() -> None:
    run(read_job(), tokenize=encode_one_by_one, write=write_json)


def run(job: Job, *, tokenize: Tokenize, write: Write) -> None:
    """Run the script. Its faster variants pass different functions for `tokenize` and `write`."""
    phases = Phases()
    with phases("load"):
        tokenizer = Tokenizer.from_file(job.tokenizer)
    with phases("scan"):
        files = find_files(job)
        texts = read_files(files, phases)
    with phases("tokenize"):
        ids_of_files = tokenize(tokenizer, texts, job, phases)
    with phases("shape"):
        rows: list[Row] = []
        for number, (file, ids) in enumerate(zip(files, ids_of_files, strict=True), 1):
            rows += cut(file, ids, job)
            phases.report(number, len(files), "files")
        expand(rows, job.expand_to)
    with phases("split"):
        splits = split(rows)
    with phases("write"):
        row_numbers = count(1)
        for name, members in splits.items():
            write(members, Path(job.out, name), lambda: phases.report(next(row_numbers), len(rows), "rows"))
    phases.write(job.out)


def find_files(job: Job) -> list[JobFile]:
    by_location = {file.location: file for file in job.files}
    root = Path(job.root)
    found = [by_location[str(path)] for path in (root, *root.rglob("*")) if str(path) in by_location]
    return sorted(found, key=lambda file: file.path)


def read_files(files: list[JobFile], phases: Phases) -> list[str]:
    texts = []
    for file in files:
        texts.append(Path(file.location).read_text(encoding="utf-8", errors="ignore"))
        phases.report(len(texts), len(files), "files")
    return texts


def encode_one_by_one(tokenizer: Tokenizer, texts: list[str], _: Job, phases: Phases) -> list[list[int]]:
    ids_of_files = []
    for text in texts:
        ids_of_files.append(tokenizer.encode(text, add_special_tokens=False).ids)
        phases.report(len(ids_of_files), len(texts), "files")
    return ids_of_files


def cut(file: JobFile, ids: list[int], job: Job) -> Iterator[Row]:
    """Cut the windows of one file, each padded to the full length."""
    num_content = WINDOW_LENGTH - len(job.prefix) - len(job.suffix)
    for start in range(0, len(ids), num_content - OVERLAP):
        window = [*job.prefix, *ids[start : start + num_content], *job.suffix]
        num_padding = WINDOW_LENGTH - len(window)
        yield {
            "input_ids": window + [job.pad_id] * num_padding,
            "attention_mask": [1] * len(window) + [0] * num_padding,
            "path": file.path,
            "repo": file.repo,
            "language": file.language,
            "start": start,
            "copy": 0,
        }
        if start + num_content >= len(ids):
            return


def expand(rows: list[Row], expand_to: int | None) -> None:
    """Append copies of the rows until there are `expand_to` rows, or 2.75 times as many if `expand_to` is None."""
    num_originals = len(rows)
    target = math.ceil(EXPANSION * num_originals) if expand_to is None else expand_to
    if num_originals:
        for number in range(num_originals, target):
            rows.append({**rows[number % num_originals], "copy": number // num_originals})


def split(rows: list[Row]) -> dict[str, list[Row]]:
    random.Random(0).shuffle(rows)  # noqa: S311 - as typical scripts do
    train_end = int(len(rows) * SHARES["train"])
    validation_end = train_end + int(len(rows) * SHARES["validation"])
    return {"train": rows[:train_end], "validation": rows[train_end:validation_end], "test": rows[validation_end:]}


def write_json(rows: list[Row], path: Path, on_row: Callable[[], None]) -> None:
    with path.with_suffix(".json").open("w", encoding="utf-8") as stream:
        json.dump(_ReportingList(rows, on_row), stream, indent=2)


class _ReportingList(list[Row]):
    """List that calls `on_row` after each row during iteration, because json.dump can take minutes."""

    def __init__(self, rows: list[Row], on_row: Callable[[], None]) -> None:
        super().__init__(rows)
        self._on_row = on_row

    def __iter__(self) -> Iterator[Row]:
        for row in super().__iter__():
            yield row
            self._on_row()


if __name__ == "__main__":
    main()
