"""A copy of a dataset with a fault planted in it, digests and all."""

import hashlib
import json
import struct

import msgspec

from gristmill.checks.check import check
from gristmill.core.layout import CARDS, TOKENIZER, TOKENIZER_CONFIG


class Planted:
    """A copy of a dataset whose rows can be changed."""

    def __init__(self, folder):
        self.folder = folder
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.rows = {split: self._read(f"{split}.jsonl") for split in ("train", "validation", "test")}
        self.files = self._read("files.jsonl")

    def _read(self, name):
        return [msgspec.json.decode(line) for line in (self.folder / name).read_bytes().splitlines()]

    def file_of(self, row):
        return next(file for file in self.files if (file["repo"], file["path"]) == (row["repo"], row["path"]))

    def windows_of(self, path, split="train"):
        return [row for row in self.rows[split] if row["path"] == path]

    def long_file(self, split="train", least=6):
        """The windows of a file that has many and no cuts."""
        file = next(f for f in self.files if f["split"] == split and (f["windows"] or 0) >= least and not f["cuts"])
        return self.windows_of(file["path"], split)

    def cut_file(self):
        return next(file for file in self.files if file["status"] == "kept" and file["cuts"])

    def check(self, **options):
        """Written down and mended, then checked: the failed checks."""
        for split, rows in self.rows.items():
            self._write(f"{split}.jsonl", rows)
        self._write("files.jsonl", self.files)
        self.manifest["fingerprint"] = self._fingerprint()
        self.manifest["content_sha256"] = self._content() or self.manifest["content_sha256"]
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))
        for name in CARDS:  # told by the manifest that was
            (self.folder / name).unlink(missing_ok=True)
        report = check(self.folder, workers=1, **options)
        return {one.name: one.examples for one in report.checks if one.status == "failed"}

    def _content(self):
        """By the words of the reference; nothing where rows are no rows."""
        whole = hashlib.sha256()
        try:
            named = {self.manifest["files"][f"{name}.jsonl"]["split"]: rows for name, rows in self.rows.items()}
            for split in ("train", "validation", "test"):
                digests = b""
                for row in named[split]:
                    place = f"{split}\0{row['repo']}\0{row['path']}\0{row['start']}\0".encode()
                    digests += hashlib.sha256(place + _digested(row)).digest()[:16]
                whole.update(hashlib.sha256(digests).digest())
        except (AttributeError, TypeError, LookupError, struct.error):
            return None
        return whole.hexdigest()

    def _fingerprint(self):
        tokenizer = b"\0".join((self.folder / name).read_bytes() for name in (TOKENIZER, TOKENIZER_CONFIG))
        inputs = [
            self.manifest["settings"],
            hashlib.sha256(tokenizer).hexdigest(),
            self.manifest["gristmill"],
            self.manifest["files"]["files.jsonl"]["sha256"],
        ]
        return hashlib.sha256(msgspec.json.encode(inputs, order="deterministic")).hexdigest()

    def _write(self, name, rows):
        content = b"".join(_line(row) + b"\n" for row in rows)
        (self.folder / name).write_bytes(content)
        facts = self.manifest["files"][name]
        facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        if facts.get("rows") is not None:
            facts["rows"] = len(rows)


def _digested(row):
    """The ids of a window without padding, or the text of a document."""
    if "input_ids" not in row:
        return row["text"].encode()
    ids = row["input_ids"]
    ids = ids[: sum(row.get("attention_mask", [1] * len(ids)))]
    return struct.pack(f"<{len(ids)}I", *ids)


def _line(row):
    """A row, or what is said to be the line of one."""
    if isinstance(row, str):
        return row.encode()
    try:
        return msgspec.json.encode(row)
    except OverflowError:  # a number that is too large, which is what is tried
        return json.dumps(row, separators=(",", ":")).encode()


def named(failed, check_name, row):
    """That check is the only one, and its example names the file."""
    assert list(failed) == [check_name]
    assert f"{row['repo']}/{row['path']}" in failed[check_name][0]
