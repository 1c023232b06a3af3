"""Every file name in a dataset folder, and writing one so that its final name means complete."""

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from gristmill.plainfile import open_plain, read_plain
from gristmill.records import Split

MANIFEST = "manifest.json"
"""Written last: its presence means complete."""
FILES = "files.jsonl"
"""One line per scanned file: kept or dropped, and why."""
CHECK = "check.json"
"""What `gristmill check` found; of no account to the dataset."""
REPORT = "report.html"
"""What `gristmill report` drew of it; of no account either, and gone with the next build."""
REPORT_MARK = '<meta name="generator" content="gristmill report">'
README = "README.md"
CROISSANT = "croissant.json"
"""Both are told from the manifest, which does not list them: people edit a README."""
CARDS = (README, CROISSANT)
SEAL = b"<!-- written by gristmill; sha256 of the lines above: %b -->\n"
UNFINISHED = ".tmp"
EXPORTING = ".export-"
"""Where another format grows, in the dataset's folder."""
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def data_file_name(split: Split, index: int, count: int, *, compressed: bool) -> str:
    """`train.jsonl`, or `train-00003-of-00012.jsonl` where a split takes several files."""
    part = "" if count == 1 else f"-{index:05d}-of-{count:05d}"
    return f"{split}{part}.jsonl{'.zst' if compressed else ''}"


def sealed(card: bytes) -> bytes:
    """With a last line by which it is known whether somebody has changed it."""
    return card + SEAL % hashlib.sha256(card).hexdigest().encode()


def is_as_sealed(path: Path) -> bool:
    """Whether it is a card of ours that nobody has changed."""
    try:
        content = read_plain(path) if path.is_file() else b""
    except OSError:
        return False
    return sealed(content[: content.rfind(SEAL[:20])]) == content


def is_report(path: Path) -> bool:
    """Whether it is a page that `gristmill report` has drawn; OSError where it cannot be read."""
    with open_plain(path) as stream:
        return REPORT_MARK.encode() in stream.read(2000)


def is_dataset_folder(folder: Path) -> bool:
    """Whether it looks like one of ours; reading its manifest says for sure."""
    try:
        with open_plain(folder / MANIFEST) as stream:
            return b'"gristmill"' in stream.read(200) and (folder / FILES).is_file()
    except OSError:
        return False


def can_hold_files(folder: Path) -> bool:
    """True if the folder, or else the nearest one above it that exists, can be written to."""
    if str(folder).startswith("~"):  # expanded already, so it is nobody's home
        return False
    nearest = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    effective = os.access in os.supports_effective_ids
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=effective)


def write_atomically(path: Path, content: bytes | Iterable[bytes], mode: int = 0o666) -> None:
    """Whoever else writes the same at the same time, on this machine or another, does so under another name."""
    beside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as stream:
            stream.writelines([content] if isinstance(content, bytes) else content)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
