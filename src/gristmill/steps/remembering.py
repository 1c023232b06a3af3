"""What a build found out and the next one need not: kept in the work folder, with a digest, under a key.

Read back it is either what was written under the same key, or nothing.
"""

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gristmill.layout import write_atomically
from gristmill.plainfile import read_plain

Value = TypeVar("Value")


def remember(path: Path, key: str, value: Any, *, is_private: bool = False) -> None:
    """`is_private`: for nobody else's eyes; settings may hold a salt, or an address with a password in it."""
    content = msgspec.msgpack.encode((key, value))
    mode = 0o600 if is_private else 0o666
    write_atomically(path, (hashlib.sha256(content).digest(), content), mode, is_synced=False)


def recall(path: Path, key: str, kind: type[Value]) -> Value | None:
    try:
        content = read_plain(path)
        digest, content = content[:32], content[32:]
        if hashlib.sha256(content).digest() != digest:
            return None
        kept_key, value = msgspec.msgpack.decode(content, type=tuple[str, msgspec.Raw])
        return msgspec.msgpack.decode(value, type=kind) if kept_key == key else None
    except (OSError, msgspec.MsgspecError):
        return None
