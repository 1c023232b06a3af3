"""The lower bound for one process: only read the files of the job, encode them with gigatoken and write windows.

python -m gristmill.lab.bench.scripts.floor JOB.json
"""

from pathlib import Path

import gigatoken
import numpy as np
import orjson

from gristmill.lab.bench.job import Phases, read_job, window_spans
from gristmill.tokenizers.definition import Definition

JSON_LINE = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def main() -> None:
    job = read_job()
    phases = Phases()
    with phases("load"):
        definition = Definition(name="tokenizer", json=Path(job.tokenizer).read_bytes(), config=b"{}")
        tokenizer = gigatoken.Tokenizer.from_json(definition.plain_json())
    prefix, suffix = np.array(job.prefix, np.uint32), np.array(job.suffix, np.uint32)
    with Path(job.out, "train.jsonl").open("wb") as stream:
        for number, file in enumerate(job.files, 1):
            with phases("scan"):
                text = Path(file.location).read_bytes()
            with phases("tokenize"):
                ids = tokenizer.encode(text)
            with phases("write"):
                for start, end in window_spans(len(ids), job):
                    row = {
                        "input_ids": np.concatenate((prefix, ids[start:end], suffix)),
                        "path": file.path,
                        "repo": file.repo,
                        "language": file.language,
                        "start": start,
                    }
                    stream.write(orjson.dumps(row, option=JSON_LINE))
            phases.report(number, len(job.files), "files")
    phases.write(job.out)


if __name__ == "__main__":
    main()
