"""Every file name in a dataset folder, and writing one so that its final name means complete."""

import os
from pathlib import Path

from gristmill.records import Split

MANIFEST = "manifest.json"
"""Written last: its presence means complete."""
FILES = "files.jsonl"
"""One line per scanned file: kept or dropped, and why."""
CHECK = "check.json"
"""What `gristmill check` found; of no account to the dataset."""
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def data_file_name(split: Split, index: int, count: int, *, compressed: bool) -> str:
    """`train.jsonl`, or `train-00003-of-00012.jsonl` where a split takes several files."""
    part = "" if count == 1 else f"-{index:05d}-of-{count:05d}"
    return f"{split}{part}.jsonl{'.zst' if compressed else ''}"


def is_dataset_folder(folder: Path) -> bool:
    """Whether it looks like one of ours; reading its manifest says for sure."""
    try:
        with (folder / MANIFEST).open("rb") as stream:
            return b'"gristmill"' in stream.read(200) and (folder / FILES).is_file()
    except OSError:
        return False


def write_atomically(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
