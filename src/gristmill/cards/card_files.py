"""Write the cards of a dataset, README.md and croissant.json, and keep manual changes to them.

A card consists of parts: in README.md, the entries of its front matter and the text below; in croissant.json, the
properties. A part that differs from what gristmill wrote was changed manually and is kept. Parts from which programs
locate the data files are always generated.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.cards.croissant import croissant
from gristmill.cards.readme import readme
from gristmill.core.errors import DatasetError
from gristmill.core.layout import CROISSANT, README, is_unchanged_card, with_digest_line, write_atomically
from gristmill.core.manifest import Manifest, read_manifest
from gristmill.core.plain_files import read_plain

FRONT_MATTER = re.compile(rb"---\n(.*?)^---\n(.*)\Z", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(rb"^(?=[^\s#-])", re.MULTILINE)
"""Start of an entry in the front matter. A line that is indented or starts with # or - continues the previous entry."""


class CardFormat(NamedTuple):
    """Functions that split a card into parts and join parts into a card, and the names of the generated parts."""

    generated: frozenset[str]
    """Names of the parts that are always generated."""
    split: Callable[[bytes], dict[str, Any]]
    join: Callable[[dict[str, Any]], bytes]

    def merge(self, edited_card: bytes, old_card: bytes, new_card: bytes) -> bytes:
        """Apply manual changes to a new card.

        `old_card` is an earlier card as gristmill wrote it, and `edited_card` is the same card with manual changes.
        """
        edited_parts, old_parts, new_parts = map(self.split, (edited_card, old_card, new_card))
        if not edited_parts:
            return new_card
        changed_names = {
            name
            for name in {*edited_parts, *old_parts} - self.generated
            if edited_parts.get(name) != old_parts.get(name)
        }
        parts = {name: edited_parts.get(name) if name in changed_names else part for name, part in new_parts.items()}
        parts |= {name: edited_parts.get(name) for name in sorted(changed_names - new_parts.keys())}
        return self.join({name: part for name, part in parts.items() if part is not None})

    def find_outdated(self, found: bytes, expected: bytes) -> list[str]:
        """Return the names of the parts in `generated` that differ from the expected card."""
        found_parts, expected_parts = self.split(found), self.split(expected)
        return sorted(name for name in self.generated if found_parts.get(name) != expected_parts.get(name))


def _split_readme(card: bytes) -> dict[str, Any]:
    """Return the entries of the front matter, keyed by name, and the text below it, with an empty name as key."""
    found = FRONT_MATTER.match(card)
    if found is None:
        return {"": card}
    entries = [one for one in ENTRY.split(found[1]) if one]
    parts = {one.partition(b":")[0].strip().decode("utf-8", "replace"): one for one in entries}
    return {**parts, "": found[2]}


def _join_readme(parts: dict[str, Any]) -> bytes:
    front_matter = b"".join(part for name, part in parts.items() if name)
    return b"".join((b"---\n", front_matter, b"---\n", parts.get("", b"")))


def _split_croissant(card: bytes) -> dict[str, Any]:
    """Return the properties, keyed by name, or an empty dict if the card is damaged."""
    try:
        parts = json.loads(card)
    except (ValueError, RecursionError):
        return {}
    return parts if isinstance(parts, dict) else {}


def _join_croissant(parts: dict[str, Any]) -> bytes:
    return json.dumps(parts, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


CARD_FORMATS = {
    README: CardFormat(frozenset({"configs", "dataset_info"}), _split_readme, _join_readme),
    CROISSANT: CardFormat(
        frozenset({"@context", "conformsTo", "distribution", "recordSet", "sc:identifier"}),
        _split_croissant,
        _join_croissant,
    ),
}


# Cards of a build, merged with manual changes to the cards of an earlier build.


def card_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the content of each card, keyed by file name. Manifests that differ only in `run` give the same bytes."""
    return {README: with_digest_line(readme(manifest)), CROISSANT: croissant(manifest)}


def write_cards(manifest: Manifest, folder: Path, earlier: Path) -> list[str]:
    """Write the cards. Manual changes to the cards in `earlier`, the dataset that is being replaced, are kept.

    Returns a message for each card that has manual changes. The caller syncs the folder to disk.
    """
    notes = []
    for name, content in card_files(manifest).items():
        merged = _merge_earlier(name, earlier, content)
        if merged is not None:
            notes.append(f"kept the manual changes in {name} and regenerated the entries that describe the data files.")
        write_atomically(folder / name, content if merged is None else merged, is_synced=False)
    return notes


def _merge_earlier(name: str, earlier: Path, new_card: bytes) -> bytes | None:
    """Return the new card with the manual changes to the earlier card, or None if there are no manual changes."""
    path = earlier / name
    if not path.is_file() or (name == README and is_unchanged_card(path)):
        return None
    try:
        old_card = card_files(read_manifest(earlier))[name]
        edited_card = read_plain(path)
    except (OSError, DatasetError):
        return None
    if edited_card == old_card:
        return None
    return CARD_FORMATS[name].merge(edited_card, old_card, new_card)
