"""Optional dependencies of training: raise with the install command if one is missing, before anything slow starts."""

from importlib.util import find_spec

from gristmill.core.errors import MissingExtraError

TRAINING = {"torch": "PyTorch", "transformers": "transformers", "accelerate": "accelerate"}


def require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtraError("feeding a training needs PyTorch: pip install 'gristmill[train]'.")


def require_training() -> None:
    for package, name in TRAINING.items():
        if find_spec(package) is None:
            raise MissingExtraError(f"training needs {name}: pip install 'gristmill[train]'.")
