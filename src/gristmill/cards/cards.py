"""What lies beside a dataset's manifest for readers that know nothing of gristmill."""

from gristmill.cards.croissant import FIRST_VERSION, croissant
from gristmill.cards.readme import readme
from gristmill.layout import CROISSANT, README
from gristmill.manifest import Manifest


def card_files(manifest: Manifest, version: str = FIRST_VERSION) -> dict[str, bytes]:
    """By name; the same manifest but for its `run`, the same bytes."""
    return {README: readme(manifest), CROISSANT: croissant(manifest, version)}
