"""The settings that a manifest tells of, as a configuration again."""

from typing import Any

import msgspec

from gristmill.config import Config
from gristmill.errors import ConfigError, DatasetError
from gristmill.manifest import Manifest

ELSEWHERE = "URL"
"""In place of an address that no manifest tells."""


def config_of(manifest: Manifest) -> Config:
    """Without what it does not tell: sources, where the dataset went, and how the work was done."""
    try:
        tree: dict[str, Any] = {name: dict(section) for name, section in manifest.settings.items()}
        tree["sampling"]["weights"] = dict(tree["sampling"]["weights"])  # pairs, since their order counts
        tree["rewrite"]["endpoint"] = ELSEWHERE
        return msgspec.convert({**tree, "sources": ["."], "out": "."}, Config)
    except (LookupError, TypeError, ValueError, msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(f"the manifest is damaged: its settings: {error}. Build the dataset again.") from None
