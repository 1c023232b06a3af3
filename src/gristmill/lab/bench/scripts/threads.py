"""The original with threads around the tokenizer, and a row a line instead of a list.

    python -m gristmill.lab.bench.scripts.threads JOB.json

The threads take turns, as `Tokenizer.encode` holds Python's lock: what this gains, it gains in writing
(benchmarks/bench.md).
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
    run(read_job(), tokenize=in_threads, write=write_jsonl)


def in_threads(tokenizer: Tokenizer, texts: list[str], _: Job, phases: Phases) -> list[list[int]]:
    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    ids_of_files = []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        for ids in pool.map(encode, texts):
            ids_of_files.append(ids)
            phases.at(len(ids_of_files), len(texts), "files")
    return ids_of_files


def write_jsonl(rows: list[Row], path: Path, tell: Callable[[], None]) -> None:
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
            tell()


if __name__ == "__main__":
    main()
