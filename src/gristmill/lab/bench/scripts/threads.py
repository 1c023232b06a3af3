"""The script original.py with threads for the tokenizer, and with JSON Lines output.

    python -m gristmill.lab.bench.scripts.threads JOB.json

The threads do not run in parallel, because `Tokenizer.encode` holds the GIL. This script is faster than original.py
only because it writes faster (benchmarks/bench.md).
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenizers import Tokenizer

from gristmill.lab.bench.job import Job, Phases, read_job
from gristmill.lab.bench.scripts.original import Row, run

NUM_THREADS = 8


def main() -> None:
    run(read_job(), tokenize=encode_in_threads, write=write_jsonl)


def encode_in_threads(tokenizer: Tokenizer, texts: list[str], _: Job, phases: Phases) -> list[list[int]]:
    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    ids_of_files = []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for ids in pool.map(encode, texts):
            ids_of_files.append(ids)
            phases.report(len(ids_of_files), len(texts), "files")
    return ids_of_files


def write_jsonl(rows: list[Row], path: Path, on_row: Callable[[], None]) -> None:
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
            on_row()


if __name__ == "__main__":
    main()
