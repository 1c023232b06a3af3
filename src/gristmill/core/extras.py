"""Optional dependencies: raise with the install command if one is missing, before anything slow starts."""

from importlib.util import find_spec

from gristmill.core.errors import MissingExtraError

NAMES = {"torch": "PyTorch"}
"""Of packages that people call otherwise."""


def require(what: str, extra: str, *packages: str) -> None:
    """`require("a report", "report", "plotly")`"""
    for package in packages:
        if find_spec(package) is None:
            name = NAMES.get(package, package)
            raise MissingExtraError(f"{what} needs {name}: pip install 'gristmill[{extra}]'.")


def require_torch() -> None:
    require("feeding a training", "train", "torch")


def require_training() -> None:
    require("training", "train", "torch", "transformers", "accelerate")


def require_lora() -> None:
    require("--lora", "lora", "peft")


def require_report() -> None:
    require("a report", "report", "plotly")


def require_curves() -> None:
    require("drawing curves", "train", "matplotlib", "plotly")


def require_bench_chart() -> None:
    require("the chart of a benchmark", "bench", "matplotlib")
