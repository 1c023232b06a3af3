"""The script original.py with `encode_batch` for 16 files at a time in several processes, and with JSON Lines output.

python -m gristmill.lab.bench.scripts.encode_batch JOB.json
"""

import os
from concurrent.futures import ProcessPoolExecutor

from tokenizers import Tokenizer

from gristmill.lab.bench.job import Job, Phases, read_job
from gristmill.lab.bench.scripts.original import run
from gristmill.lab.bench.scripts.threads import write_jsonl

FILES_PER_BATCH = 16

_worker_tokenizer: list[Tokenizer] = []


def main() -> None:
    run(read_job(), tokenize=encode_in_processes, write=write_jsonl)


def encode_in_processes(tokenizer: Tokenizer, texts: list[str], job: Job, phases: Phases) -> list[list[int]]:
    batches = [texts[first : first + FILES_PER_BATCH] for first in range(0, len(texts), FILES_PER_BATCH)]
    ids_of_files: list[list[int]] = []
    # A forked worker inherits the tokenizer. A spawned worker gets a pickled copy.
    with ProcessPoolExecutor(job.workers, initializer=start_worker, initargs=(tokenizer,)) as pool:
        for batch in pool.map(encode_batch, batches):
            ids_of_files += batch
            phases.report(len(ids_of_files), len(texts), "files")
    return ids_of_files


def start_worker(tokenizer: Tokenizer) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes already run in parallel
    _worker_tokenizer.append(tokenizer)


def encode_batch(texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in _worker_tokenizer[0].encode_batch(texts, add_special_tokens=False)]


if __name__ == "__main__":
    main()
