"""What people have today: a plain script, one file at a time, and JSON with an indent.

    python -m gristmill.lab.bench.scripts.original JOB.json

1. walk the tree and read the files; what is no UTF-8 is ignored, and a carriage return is lost
2. tokenize one file after the other
3. cut windows of 512 ids that overlap by 128, pad them all to 512
4. copy windows until there are 2.75 times as many, with another number in their metadata
5. shuffle the windows, copies and all, and split them 85/10/5
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
"""Test gets the rest."""

Row = dict[str, Any]
Tokenize = Callable[[Tokenizer, list[str], Job, Phases], list[list[int]]]
Write = Callable[[list[Row], Path, Callable[[], None]], None]
"""The last one is called for each row."""


def main() -> None:
    run(read_job(), tokenize=one_at_a_time, write=write_json)


def run(job: Job, *, tokenize: Tokenize, write: Write) -> None:
    """The whole script; its faster relatives tokenize and write differently."""
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
            phases.at(number, len(files), "files")
        expand(rows, job.expand_to)
    with phases("split"):
        splits = split(rows)
    with phases("write"):
        numbers = count(1)
        for name, members in splits.items():
            write(members, Path(job.out, name), lambda: phases.at(next(numbers), len(rows), "rows"))
    phases.write(job.out)


def find_files(job: Job) -> list[JobFile]:
    wanted = {file.location: file for file in job.files}
    root = Path(job.root)
    found = [wanted[str(path)] for path in (root, *root.rglob("*")) if str(path) in wanted]
    return sorted(found, key=lambda file: file.path)


def read_files(files: list[JobFile], phases: Phases) -> list[str]:
    texts = []
    for file in files:
        texts.append(Path(file.location).read_text(encoding="utf-8", errors="ignore"))
        phases.at(len(texts), len(files), "files")
    return texts


def one_at_a_time(tokenizer: Tokenizer, texts: list[str], _: Job, phases: Phases) -> list[list[int]]:
    ids_of_files = []
    for text in texts:
        ids_of_files.append(tokenizer.encode(text, add_special_tokens=False).ids)
        phases.at(len(ids_of_files), len(texts), "files")
    return ids_of_files


def cut(file: JobFile, ids: list[int], job: Job) -> Iterator[Row]:
    """Windows of one file, each padded to the full length."""
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


def expand(rows: list[Row], wanted: int | None) -> None:
    """More windows by copying those there are, in turn."""
    num_natural = len(rows)
    target = math.ceil(EXPANSION * num_natural) if wanted is None else wanted
    if num_natural:
        for number in range(num_natural, target):
            rows.append({**rows[number % num_natural], "copy": number // num_natural})


def split(rows: list[Row]) -> dict[str, list[Row]]:
    random.Random(0).shuffle(rows)  # noqa: S311 - as such scripts do
    train_end = int(len(rows) * SHARES["train"])
    validation_end = train_end + int(len(rows) * SHARES["validation"])
    return {"train": rows[:train_end], "validation": rows[train_end:validation_end], "test": rows[validation_end:]}


def write_json(rows: list[Row], path: Path, tell: Callable[[], None]) -> None:
    with path.with_suffix(".json").open("w", encoding="utf-8") as stream:
        json.dump(Told(rows, tell), stream, indent=2)


class Told(list[Row]):
    """A list that tells when it is looped over: json.dump takes minutes for one."""

    def __init__(self, rows: list[Row], tell: Callable[[], None]) -> None:
        super().__init__(rows)
        self._tell = tell

    def __iter__(self) -> Iterator[Row]:
        for row in super().__iter__():
            yield row
            self._tell()


if __name__ == "__main__":
    main()
