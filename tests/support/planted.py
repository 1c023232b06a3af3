"""A copy of a dataset with a planted fault, and with digests that match the changed files."""

import hashlib
import json
import struct

import msgspec

from gristmill.checks.check import check
from gristmill.core.layout import CARDS, TOKENIZER, TOKENIZER_CONFIG


class Planted:
    """A copy of a dataset whose rows, files and manifest can be changed."""

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

    def long_file(self, split="train", min_windows=6):
        """Return the windows of a file that has at least `min_windows` windows and no cuts."""
        file = next(
            f for f in self.files if f["split"] == split and (f["windows"] or 0) >= min_windows and not f["cuts"]
        )
        return self.windows_of(file["path"], split)

    def cut_file(self):
        return next(file for file in self.files if file["status"] == "kept" and file["cuts"])

    def check(self, **options):
        """Write the changes with correct digests, check the dataset, and return the examples of the failed checks."""
        for split, rows in self.rows.items():
            self._write(f"{split}.jsonl", rows)
        self._write("files.jsonl", self.files)
        self.manifest["fingerprint"] = self._fingerprint()
        self.manifest["content_sha256"] = self._content() or self.manifest["content_sha256"]
        (self.folder / "manifest.json").write_text(json.dumps(self.manifest))
        for name in CARDS:  # the cards were generated from the original manifest
            (self.folder / name).unlink(missing_ok=True)
        report = check(self.folder, workers=1, **options)
        return {one.name: one.examples for one in report.checks if one.status == "failed"}

    def _content(self):
        """Return the content digest, computed independently of gristmill, or None if the rows are invalid."""
        content = hashlib.sha256()
        try:
            by_split = {self.manifest["files"][f"{name}.jsonl"]["split"]: rows for name, rows in self.rows.items()}
            for split in ("train", "validation", "test"):
                digests = b""
                for row in by_split[split]:
                    position = f"{split}\0{row['repo']}\0{row['path']}\0{row['start']}\0".encode()
                    digests += hashlib.sha256(position + _digested(row)).digest()[:16]
                content.update(hashlib.sha256(digests).digest())
        except (AttributeError, TypeError, LookupError, struct.error):
            return None
        return content.hexdigest()

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
    """Return the bytes of a row that are digested: the ids of a window without padding, or the text of a document."""
    if "input_ids" not in row:
        return row["text"].encode()
    ids = row["input_ids"]
    ids = ids[: sum(row.get("attention_mask", [1] * len(ids)))]
    return struct.pack(f"<{len(ids)}I", *ids)


def _line(row):
    """Encode a row as a line. If the row is a string, the string is the line."""
    if isinstance(row, str):
        return row.encode()
    try:
        return msgspec.json.encode(row)
    except OverflowError:  # a number that is too large, planted by a test
        return json.dumps(row, separators=(",", ":")).encode()


def require_only_failure(failed, check_name, row):
    """Assert that only this check failed and that its first example names the file of the row."""
    assert list(failed) == [check_name]
    assert f"{row['repo']}/{row['path']}" in failed[check_name][0]
