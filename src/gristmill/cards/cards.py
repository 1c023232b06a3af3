"""What lies beside a dataset's manifest for readers that know nothing of gristmill."""

import os
from pathlib import Path

from gristmill.cards.croissant import FIRST_VERSION, croissant
from gristmill.cards.readme import readme
from gristmill.layout import CROISSANT, README, is_as_sealed, sealed, write_atomically
from gristmill.manifest import Manifest


def card_files(manifest: Manifest, version: str = FIRST_VERSION) -> dict[str, bytes]:
    """By name; the same manifest but for its `run`, the same bytes."""
    return {README: sealed(readme(manifest)), CROISSANT: croissant(manifest, version)}


def write_cards(manifest: Manifest, folder: Path, earlier: Path) -> list[str]:
    """But for a README that somebody has written or changed where the dataset goes: it stays. -> What to tell."""
    is_somebodys = os.path.lexists(earlier / README) and not is_as_sealed(earlier / README)
    for name, content in card_files(manifest).items():
        if name != README or not is_somebodys:
            write_atomically(folder / name, content)
    return [f"{README} was changed by hand, and stays as it is. Remove it to have a new one."] if is_somebodys else []
