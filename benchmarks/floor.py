"""The floor: a bare script that reads the same files, encodes with gigatoken and writes the same windows, and no more.

    python benchmarks/floor.py DATASET SOURCE OUT

Which files, and which of them, it takes from a finished DATASET, so that it has nothing to find or decide.
"""

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import gigatoken
import numpy as np
import orjson
import zstandard

import gristmill


def main(dataset: str, source: str, out: str) -> None:
    packed = Path(gristmill.__file__).parent / "tokenizing/bundled/codebert.json.zst"
    tree = json.loads(zstandard.decompress(packed.read_bytes()))
    tree["added_tokens"] = []
    tokenizer = gigatoken.Tokenizer.from_json(json.dumps(tree))
    rows = [json.loads(line) for line in Path(dataset, "files.jsonl").read_bytes().splitlines()]
    os.makedirs(out, exist_ok=True)
    head, foot = np.array([0], np.uint32), np.array([2], np.uint32)
    with ExitStack() as stack:
        names = ("train", "validation", "test")
        streams = {name: stack.enter_context(Path(out, f"{name}.jsonl").open("wb")) for name in names}
        for row in rows:
            if row["status"] != "kept" or row["encoding"] != "utf-8":
                continue
            ids = tokenizer.encode(Path(source, row["path"]).read_bytes())
            start = 0
            while True:
                window = {
                    "input_ids": np.concatenate((head, ids[start : start + 510], foot)),
                    "path": row["path"],
                    "repo": row["repo"],
                    "language": row["language"],
                    "lines": [1, 1],
                    "start": start,
                    "fresh": 510,
                }
                streams[row["split"]].write(
                    orjson.dumps(window, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
                )
                if start + 510 >= len(ids):
                    break
                start += 254


if __name__ == "__main__":
    main(*sys.argv[1:])
