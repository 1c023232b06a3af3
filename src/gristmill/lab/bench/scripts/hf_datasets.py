"""The Hugging Face method: `datasets.map(batched=True)` with `tokenizers`, `train_test_split` on rows, and `to_json`.

    python -m gristmill.lab.bench.scripts.hf_datasets JOB.json

All data is in memory. The library stores its cache in the output folder of the job, and contacts no server.
"""

import os
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gristmill.lab.bench.job import Job, JobFile, Phases, read_job, window_spans

HELD_OUT_SHARE = 0.15
TEST_SHARE_OF_HELD_OUT = 1 / 3
MIN_ROWS_TO_SPLIT = 8
COLUMNS = ("input_ids", "path", "repo", "language", "start")

Columns = dict[str, list[Any]]


def main() -> None:
    job = read_job()
    restrict_environment(job)
    import datasets  # noqa: PLC0415 - the import reads the environment

    phases = Phases()
    with phases("load"):
        tokenizer = Tokenizer.from_file(job.tokenizer)
        tokenizer.encode_special_tokens = True  # encode "</s>" in a file as text
    with phases("scan"):
        table = datasets.Dataset.from_dict(read_columns(job.files, phases))
    with phases("tokenize"):
        rows = table.map(
            lambda batch, indices: cut_windows(batch, indices, tokenizer, job, phases),
            batched=True,
            with_indices=True,
            remove_columns=["text"],
            keep_in_memory=True,
            new_fingerprint="windows",  # without this, `map` hashes the tokenizer to find a cached result
        )
    with phases("split"):
        splits = split(rows)
    with phases("write"):
        for name, members in splits.items():
            members.to_json(str(Path(job.out, f"{name}.jsonl")))
    phases.write(job.out)


def restrict_environment(job: Job) -> None:
    """Keep the library out of the home folder and off the network, and limit its threads."""
    os.environ |= {
        "HF_HOME": str(Path(job.out, "cache")),
        "HF_DATASETS_CACHE": str(Path(job.out, "cache", "datasets")),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "RAYON_NUM_THREADS": str(job.workers),
    }


def read_columns(files: list[JobFile], phases: Phases) -> Columns:
    columns: Columns = {"text": [], "path": [], "repo": [], "language": []}
    for number, file in enumerate(files, 1):
        row = (Path(file.location).read_bytes().decode("utf-8"), file.path, file.repo, file.language)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        phases.report(number, len(files), "files")
    return columns


def cut_windows(batch: Columns, indices: list[int], tokenizer: Tokenizer, job: Job, phases: Phases) -> Columns:
    columns: Columns = {name: [] for name in COLUMNS}
    encodings = tokenizer.encode_batch(batch["text"], add_special_tokens=False)
    files = zip(encodings, batch["path"], batch["repo"], batch["language"], strict=True)
    for encoding, path, repo, language in files:
        ids = encoding.ids
        for start, end in window_spans(len(ids), job):
            row = ([*job.prefix, *ids[start:end], *job.suffix], path, repo, language, start)
            for name, value in zip(COLUMNS, row, strict=True):
                columns[name].append(value)
    phases.report(indices[-1] + 1, len(job.files), "files")
    return columns


def split(rows: Any) -> dict[str, Any]:
    """Split the rows 85/10/5. The library cannot make an empty split, so fewer than 8 rows are assigned by index."""
    if len(rows) < MIN_ROWS_TO_SPLIT:
        return {"train": rows.select(range(1)), "validation": rows.select(range(1, len(rows))), "test": rows.select([])}
    outer = rows.train_test_split(test_size=HELD_OUT_SHARE, seed=0, keep_in_memory=True)
    inner = outer["test"].train_test_split(test_size=TEST_SHARE_OF_HELD_OUT, seed=0, keep_in_memory=True)
    return {"train": outer["train"], "validation": inner["train"], "test": inner["test"]}


if __name__ == "__main__":
    main()
