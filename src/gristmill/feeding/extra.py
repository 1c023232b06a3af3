"""PyTorch is an extra: who needs it and has it not is told how to get it."""

from gristmill.errors import MissingExtraError


def require_torch() -> None:
    try:
        import torch  # noqa: F401, PLC0415 - slow to import, and not always there
    except ImportError:
        raise MissingExtraError("feeding a training needs PyTorch: pip install 'gristmill[train]'.") from None
