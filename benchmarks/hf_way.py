"""The usual way with Hugging Face libraries: `datasets.map(batched=True)` with `tokenizers`, then `to_json`.

    python benchmarks/hf_way.py DATASET SOURCE OUT

Same files, same tokenizer, same windows as the finished DATASET.
"""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
from tokenizers import Tokenizer


def main(dataset: str, source: str, out: str) -> None:
    tokenizer = Tokenizer.from_file(str(Path(dataset, "tokenizer.json")))
    tokenizer.encode_special_tokens = True
    rows = [json.loads(line) for line in Path(dataset, "files.jsonl").read_bytes().splitlines()]
    kept = [row for row in rows if row["status"] == "kept" and row["encoding"] == "utf-8"]

    def windows(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {"input_ids": [], "path": [], "start": []}
        for path, encoding in zip(
            batch["path"], tokenizer.encode_batch(batch["text"], add_special_tokens=False), strict=True
        ):
            ids, start = encoding.ids, 0
            while True:
                made["input_ids"].append([0, *ids[start : start + 510], 2])
                made["path"].append(path)
                made["start"].append(start)
                if start + 510 >= len(ids):
                    break
                start += 254
        return made

    for split in ("train", "validation", "test"):
        paths = [row["path"] for row in kept if row["split"] == split]
        texts = [Path(source, path).read_bytes().decode() for path in paths]
        table = datasets.Dataset.from_dict({"path": paths, "text": texts})
        mapped = table.map(windows, batched=True, remove_columns=["text"], load_from_cache_file=False)
        mapped.to_json(str(Path(out, f"{split}.jsonl")))


if __name__ == "__main__":
    main(*sys.argv[1:])
