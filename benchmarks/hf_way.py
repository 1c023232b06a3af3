"""The usual way with Hugging Face libraries: `datasets.map(batched=True)` with `tokenizers`, then `to_json`.

    python benchmarks/hf_way.py DATASET SOURCE OUT

Same files, tokenizer, windows and columns as the finished DATASET (but for line numbers, which it does not count).
"""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
from tokenizers import Tokenizer

from gristmill.formats.jsonl import COLUMNS


def main(dataset: str, source: str, out: str) -> None:
    tokenizer = Tokenizer.from_file(str(Path(dataset, "tokenizer.json")))
    tokenizer.encode_special_tokens = True
    rows = [json.loads(line) for line in Path(dataset, "files.jsonl").read_bytes().splitlines()]
    kept = [row for row in rows if row["status"] == "kept" and row["encoding"] == "utf-8"]

    def windows(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        encodings = tokenizer.encode_batch(batch["text"], add_special_tokens=False)
        for path, language, encoding in zip(batch["path"], batch["language"], encodings, strict=True):
            ids, start, shown = encoding.ids, 0, 0
            while True:
                end = min(start + 510, len(ids))
                row = ([0, *ids[start:end], 2], path, kept[0]["repo"], language, [1, 1], start, end - shown)
                for name, value in zip(COLUMNS, row, strict=True):
                    made[name].append(value)
                shown = end
                if end == len(ids):
                    break
                start += 254
        return made

    for split in ("train", "validation", "test"):
        members = [row for row in kept if row["split"] == split]
        texts = [Path(source, row["path"]).read_bytes().decode() for row in members]
        columns = {name: [row[name] for row in members] for name in ("path", "language")}
        table = datasets.Dataset.from_dict({**columns, "text": texts})
        mapped = table.map(windows, batched=True, remove_columns=["text"], load_from_cache_file=False)
        mapped.to_json(str(Path(out, f"{split}.jsonl")))


if __name__ == "__main__":
    main(*sys.argv[1:])
