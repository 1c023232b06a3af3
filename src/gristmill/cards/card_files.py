"""What people have changed in a dataset's cards stays, and what readers go by is told anew all the same.

Each card has parts: README.md the entries of its head and the text below, croissant.json its properties. A part that is
not as it was written has been changed by hand and is kept, but for those by which programs find files.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.cards.croissant import croissant
from gristmill.cards.readme import readme
from gristmill.core.errors import DatasetError
from gristmill.core.layout import CROISSANT, README, is_as_sealed, sealed, write_atomically
from gristmill.core.manifest import Manifest, read_manifest
from gristmill.core.plain_files import read_plain

HEAD = re.compile(rb"---\n(.*?)^---\n(.*)\Z", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(rb"^(?=[^\s#-])", re.MULTILINE)
"""Where an entry of the head begins: what is indented or a dash belongs to the one above."""


class Parts(NamedTuple):
    """How a card falls into parts, and how it is put together again."""

    own: frozenset[str]
    """Those that are never anybody else's."""
    split: Callable[[bytes], dict[str, Any]]
    joined: Callable[[dict[str, Any]], bytes]

    def kept(self, edited: bytes, before: bytes, now: bytes) -> bytes:
        """`before`: as it was written; `now`: as it would be written today."""
        theirs, was, new = map(self.split, (edited, before, now))
        if not theirs:
            return now
        is_changed = {name for name in {*theirs, *was} - self.own if theirs.get(name) != was.get(name)}
        parts = {name: theirs.get(name) if name in is_changed else part for name, part in new.items()}
        parts |= {name: theirs.get(name) for name in sorted(is_changed - new.keys())}
        return self.joined({name: part for name, part in parts.items() if part is not None})

    def wrong(self, found: bytes, wanted: bytes) -> list[str]:
        """Own parts that are not as they should be."""
        theirs, ours = self.split(found), self.split(wanted)
        return sorted(name for name in self.own if theirs.get(name) != ours.get(name))


def _readme_parts(card: bytes) -> dict[str, Any]:
    """The entries of its head by name, and the text by none."""
    found = HEAD.match(card)
    if found is None:
        return {"": card}
    entries = [one for one in ENTRY.split(found[1]) if one]
    named = {one.partition(b":")[0].strip().decode("utf-8", "replace"): one for one in entries}
    return {**named, "": found[2]}


def _readme(parts: dict[str, Any]) -> bytes:
    head = b"".join(part for name, part in parts.items() if name)
    return b"".join((b"---\n", head, b"---\n", parts.get("", b"")))


def _croissant_parts(card: bytes) -> dict[str, Any]:
    """Its properties; none where it is damaged."""
    try:
        parts = json.loads(card)
    except (ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}


def _croissant(parts: dict[str, Any]) -> bytes:
    return json.dumps(parts, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


PARTS = {
    README: Parts(frozenset({"configs", "dataset_info"}), _readme_parts, _readme),
    CROISSANT: Parts(
        frozenset({"@context", "conformsTo", "distribution", "recordSet", "sc:identifier"}),
        _croissant_parts,
        _croissant,
    ),
}


# What lies beside a dataset's manifest for readers that know nothing of gristmill.


def card_files(manifest: Manifest) -> dict[str, bytes]:
    """By name; the same manifest but for its `run`, the same bytes."""
    return {README: sealed(readme(manifest)), CROISSANT: croissant(manifest)}


def write_cards(manifest: Manifest, folder: Path, earlier: Path) -> list[str]:
    """With what was changed by hand in those of the dataset that is replaced. -> What to tell of that.

    The folder is synced as a whole before it counts.
    """
    notes = []
    for name, content in card_files(manifest).items():
        kept = _kept(name, earlier, content)
        if kept is not None:
            notes.append(f"what was changed by hand in {name} stays; its entries for loaders and files are new.")
        write_atomically(folder / name, content if kept is None else kept, is_synced=False)
    return notes


def _kept(name: str, earlier: Path, now: bytes) -> bytes | None:
    """None where nobody has changed anything."""
    path = earlier / name
    if not path.is_file() or (name == README and is_as_sealed(path)):
        return None
    try:
        before = card_files(read_manifest(earlier))[name]
        edited = read_plain(path)
    except (OSError, DatasetError):
        return None
    if edited == before:
        return None
    return PARTS[name].kept(edited, before, now)
