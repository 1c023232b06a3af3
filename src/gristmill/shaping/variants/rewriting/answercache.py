"""Answers that were paid for, one file each: `cache/3f/3fa9…` holds the digest of its content, a line feed, and that.

What is damaged is as if it were not there. Anybody may delete the folder: it costs the same requests again.
"""

import hashlib
from pathlib import Path

import msgspec

from gristmill.layout import write_atomically
from gristmill.plainfile import open_plain
from gristmill.shaping.variants.rewriting.answers import Reply

VERSION = b"gristmill answer 1\n"
MAX_FILE_BYTES = 64 << 20
"""Eight times what an answer may have: JSON writes a control character in six."""


class AnswerCache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, request: bytes) -> Reply | None:
        try:
            with open_plain(self._place(request)) as stream:
                digest, _, content = stream.read(MAX_FILE_BYTES).partition(b"\n")
        except OSError:
            return None
        if digest != hashlib.sha256(content).hexdigest().encode():
            return None
        try:
            return msgspec.json.decode(content, type=Reply)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def store(self, request: bytes, reply: Reply) -> None:
        place = self._place(request)
        content = msgspec.json.encode(reply)
        place.parent.mkdir(exist_ok=True)
        write_atomically(place, hashlib.sha256(content).hexdigest().encode() + b"\n" + content, is_synced=False)

    def _place(self, request: bytes) -> Path:
        name = hashlib.sha256(VERSION + request).hexdigest()
        return self.folder / name[:2] / name
