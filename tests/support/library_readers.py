"""Writes and reads MDS and LitData with their own libraries, in a process of its own that stays for the next jobs.

Jobs with the libraries of trainers are in trainer_batches. All of them are installed without their dependencies into a folder beside the environment's (readers.txt), since those
contradict this project's.
"""

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import traceback
import types
from contextlib import ExitStack
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

READERS = Path(sys.prefix) / "readers"


def ask(*jobs: dict[str, Any]) -> None:
    """Runs jobs, each a call of one of the functions below: {"do": "read_mds", "folder": …, "rows": …}."""
    if not READERS.is_dir():
        pytest.skip("the libraries of readers.txt are not installed: make test does it")
    process = _reader()
    print(json.dumps(jobs, default=str), file=process.stdin, flush=True)
    trouble = process.stdout.readline()
    assert trouble, "the process of the libraries died"
    assert json.loads(trouble) is None, json.loads(trouble)


@cache
def _reader() -> Any:
    """Imports of PyTorch and the two libraries take seconds: once for all tests."""
    path = os.pathsep.join((str(READERS), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    from support.builds import running  # the process of the libraries does without

    stays = ExitStack()
    atexit.register(stays.close)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return stays.enter_context(running([sys.executable, __file__], env=environment, **pipes))


@cache
def streaming() -> Any:
    """Without the package's __init__, which imports its image datasets and with them torchvision."""
    spec = importlib.util.find_spec("streaming")
    assert spec is not None
    package = types.ModuleType("streaming")
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules["streaming"] = package
    return importlib.import_module("streaming.base")


def write_mds(rows: str, folder: str, columns: dict[str, str], size_limit: int) -> None:
    import numpy as np

    with streaming().MDSWriter(columns=columns, out=folder, size_limit=size_limit) as writer:
        for row in told(rows):
            for name, encoding in columns.items():
                if encoding.startswith("ndarray:"):
                    row[name] = np.array(row[name], encoding.removeprefix("ndarray:"))
            writer.write(row)


def read_mds(folder: str, rows: str) -> None:
    # Not cleaned up with clean_stale_shared_memory: it would take that of other processes, and nothing is left here.
    dataset = streaming().StreamingDataset(local=folder, batch_size=1, shuffle=False)
    write_rows(rows, dataset, len(dataset))


def write_litdata(rows: str, folder: str, columns: dict[str, str], chunk_bytes: int) -> None:
    import torch
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(folder, chunk_bytes=chunk_bytes)
    for number, row in enumerate(told(rows)):
        for name, kind in columns.items():
            row[name] = torch.tensor(row[name], dtype=getattr(torch, kind)) if kind != "json" else json.dumps(row[name])
        writer[number] = row
    writer.done()
    writer.merge()


def read_litdata(folder: str, rows: str) -> None:
    from litdata import StreamingDataset

    dataset = StreamingDataset(folder, shuffle=False)
    write_rows(rows, dataset, len(dataset))


def collate_litdata(folder: str) -> None:
    """Rows that are padded come as a batch from the loader of the library, as they are."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(folder, shuffle=False)
    batch = next(iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1)))
    assert batch["input_ids"].long().tolist() == [dataset[number]["input_ids"].tolist() for number in range(4)]


def told(rows: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(rows).read_bytes().splitlines()]


def write_rows(path: str, dataset: Any, num_rows: int) -> None:
    """Read by number, and once more in the order of training."""
    by_number = [plain(dataset[number]) for number in range(num_rows)]
    in_order = [plain(row) for row in islice(dataset, num_rows + 1)]
    assert in_order == by_number
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in by_number))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Arrays and tensors as lists."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}


def serve() -> None:
    """Answers each line of jobs with null, or with what went wrong. Whatever the libraries print goes elsewhere."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        trouble = None
        try:
            for job in json.loads(line):
                name = job.pop("do")
                (globals().get(name) or getattr(importlib.import_module("trainer_batches"), name))(**job)
        except Exception:  # noqa: BLE001 - the test that asked is to say it
            trouble = traceback.format_exc()
        print(json.dumps(trouble), file=answers, flush=True)


if __name__ == "__main__":
    serve()
