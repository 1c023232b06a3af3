"""Write and read MDS and LitData with the libraries of these formats, in a separate process that runs all jobs.

Jobs for the libraries of trainers are in trainer_batches.py. readers.txt lists all these libraries. They are installed
into a separate folder of the environment, without most of their dependencies, which conflict with those of this
project.
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


def run_jobs(*jobs: dict[str, Any]) -> None:
    """Run jobs. A job is a call of a function below: {"do": "read_mds", "folder": …, "rows": …}."""
    if not READERS.is_dir():
        pytest.skip("the libraries in readers.txt are not installed. Run `make test`.")
    process = _reader_process()
    print(json.dumps(jobs, default=str), file=process.stdin, flush=True)
    error = process.stdout.readline()
    assert error, "the reader process died"
    assert json.loads(error) is None, json.loads(error)


@cache
def _reader_process() -> Any:
    """Start the reader process, once for all tests, because importing PyTorch and the two libraries takes seconds."""
    path = os.pathsep.join((str(READERS), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    from support.builds import running  # not imported in the reader process

    resources = ExitStack()
    atexit.register(resources.close)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return resources.enter_context(running([sys.executable, __file__], env=environment, **pipes))


@cache
def streaming() -> Any:
    """Import streaming.base without the package's __init__, which imports image datasets and torchvision."""
    spec = importlib.util.find_spec("streaming")
    assert spec is not None
    package = types.ModuleType("streaming")
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules["streaming"] = package
    return importlib.import_module("streaming.base")


def write_mds(rows: str, folder: str, columns: dict[str, str], size_limit: int) -> None:
    import numpy as np

    with streaming().MDSWriter(columns=columns, out=folder, size_limit=size_limit) as writer:
        for row in read_rows(rows):
            for name, encoding in columns.items():
                if encoding.startswith("ndarray:"):
                    row[name] = np.array(row[name], encoding.removeprefix("ndarray:"))
            writer.write(row)


def read_mds(folder: str, rows: str) -> None:
    # clean_stale_shared_memory is not called, because it would delete memory of other processes. This process leaves no
    # stale memory.
    dataset = streaming().StreamingDataset(local=folder, batch_size=1, shuffle=False)
    write_rows(rows, dataset, len(dataset))


def write_litdata(rows: str, folder: str, columns: dict[str, str], chunk_bytes: int) -> None:
    import torch
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(folder, chunk_bytes=chunk_bytes)
    for number, row in enumerate(read_rows(rows)):
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
    """Assert that LitData's loader collates padded rows into a batch without changing them."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(folder, shuffle=False)
    batch = next(iter(StreamingDataLoader(dataset, batch_size=4, num_workers=1)))
    assert batch["input_ids"].long().tolist() == [dataset[number]["input_ids"].tolist() for number in range(4)]


def read_rows(rows: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(rows).read_bytes().splitlines()]


def write_rows(path: str, dataset: Any, num_rows: int) -> None:
    """Read all rows by index and write them. Assert that iterating over the dataset gives the same rows."""
    by_number = [plain(dataset[number]) for number in range(num_rows)]
    in_order = [plain(row) for row in islice(dataset, num_rows + 1)]
    assert in_order == by_number
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in by_number))


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with arrays and tensors converted to lists."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}


def serve() -> None:
    """Run the jobs in each line of stdin, and answer with null or a traceback. The libraries print to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        error = None
        try:
            for job in json.loads(line):
                name = job.pop("do")
                (globals().get(name) or getattr(importlib.import_module("trainer_batches"), name))(**job)
        except Exception:  # noqa: BLE001 - the test that sent the job reports the error
            error = traceback.format_exc()
        print(json.dumps(error), file=answers, flush=True)


if __name__ == "__main__":
    serve()
