"""PyTorch is an extra: who needs it and has it not is told how to get it."""

import importlib.util

from gristmill.errors import MissingExtraError

NEEDED = {"torch": "PyTorch", "transformers": "transformers", "accelerate": "accelerate"}


def require_torch() -> None:
    try:
        import torch  # noqa: F401, PLC0415 - slow to import, and not always there
    except ImportError:
        raise MissingExtraError("feeding a training needs PyTorch: pip install 'gristmill[train]'.") from None


def require_training() -> None:
    """Before anything slow is imported."""
    for package, name in NEEDED.items():
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(f"training needs {name}: pip install 'gristmill[train]'.")
