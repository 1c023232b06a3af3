"""What lies beside a dataset's manifest for readers that know nothing of gristmill."""

from pathlib import Path

from gristmill.cards.croissant import croissant
from gristmill.cards.keeping import PARTS
from gristmill.cards.readme import readme
from gristmill.errors import DatasetError
from gristmill.layout import CROISSANT, README, is_as_sealed, sealed, write_atomically
from gristmill.manifest import Manifest, read_manifest
from gristmill.plainfile import read_plain


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
