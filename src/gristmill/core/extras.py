"""Optional dependencies. A missing package raises an error with the install command before anything slow starts."""

from importlib.util import find_spec

from gristmill.core.errors import MissingExtraError

DISPLAY_NAMES = {"torch": "PyTorch"}
"""Names of packages in messages, if different from the import name."""


def require(feature: str, extra: str, *packages: str) -> None:
    """Raise MissingExtraError if a package is missing: `require("a report", "report", "plotly")`."""
    for package in packages:
        if find_spec(package) is None:
            name = DISPLAY_NAMES.get(package, package)
            raise MissingExtraError(f"{feature} needs {name}: pip install 'gristmill[{extra}]'.")


def require_torch() -> None:
    require("loading training batches", "train", "torch")


def require_training() -> None:
    require("training", "train", "torch", "transformers", "accelerate")


def require_lora() -> None:
    require("--lora", "lora", "peft")


def require_report() -> None:
    require("a report", "report", "plotly")


def require_curves() -> None:
    require("drawing curves", "train", "matplotlib", "plotly")


def require_bench_chart() -> None:
    require("a benchmark chart", "bench", "matplotlib")
