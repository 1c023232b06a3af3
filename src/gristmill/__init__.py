"""gristmill turns one's own source code into a training dataset for code models.

    import gristmill
    if __name__ == "__main__":
        gristmill.build(gristmill.Config(sources=["my-repo"], out="dataset"))
        rows = gristmill.open_dataset("dataset")["train"]

Importing this loads nothing heavy: the function that needs it does.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from gristmill.config import Config
from gristmill.errors import (
    ConfigError,
    DatasetError,
    GristmillError,
    InputError,
    MissingExtraError,
    OutputError,
    TokenizerError,
)
from gristmill.manifest import Manifest
from gristmill.progress import Progress
from gristmill.sections import (
    DuplicatesConfig,
    LicensesConfig,
    OutputConfig,
    RewriteConfig,
    RulesConfig,
    RunConfig,
    SamplingConfig,
    ScanConfig,
    SecretsConfig,
    SplitConfig,
    TablesConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
)

if TYPE_CHECKING:
    from gristmill.checking.result import Report
    from gristmill.dataset import Dataset
    from gristmill.explaining import Explanation
    from gristmill.planning.budget import Wanted
    from gristmill.planning.result import Plan
    from gristmill.tokenizing.tokenizer import Tokenizer

__version__ = "0.1.0"


def build(config: Config, progress: Progress | None = None) -> Manifest:
    """Source trees in, a dataset folder out. Whatever happens on the way, an earlier dataset in that place is whole."""
    from gristmill.pipeline import build  # noqa: PLC0415

    return build(config, progress)


def plan(config: Config, wanted: "Wanted | None" = None, progress: Progress | None = None) -> "Plan":
    """What would a build of this give, and cost? Nothing is built."""
    from gristmill.planning.plan import plan  # noqa: PLC0415

    return plan(config, wanted, progress)


def open_dataset(folder: str | os.PathLike[str]) -> "Dataset":
    """A finished dataset: iterate `dataset["train"]`, take its `len`, or a row by number."""
    from gristmill.dataset import open_dataset  # noqa: PLC0415

    return open_dataset(folder)


def check(
    folder: str | os.PathLike[str],
    sources: Sequence[str] = (),
    *,
    progress: Progress | None = None,
    workers: int | Literal["auto"] = "auto",
) -> "Report":
    """Is this dataset what it says it is? From its files alone, or compared with its sources too."""
    from gristmill.checking.check import check  # noqa: PLC0415

    return check(folder, sources, progress=progress, workers=workers)


def explain(folder: str | os.PathLike[str], path: str) -> "Explanation":
    """Why a file is in a dataset, out of it, or in its split; `path` may end with `:LINE`."""
    from gristmill.explaining import explain_file  # noqa: PLC0415

    return explain_file(folder, path)


def load_tokenizer(name: str = "codebert", *, cache_dir: str | None = None) -> "Tokenizer":
    """`codebert`, a tokenizer.json, a folder with one, or a Hub id (`org/name@revision`)."""
    from gristmill.tokenizing.tokenizer import load_tokenizer  # noqa: PLC0415

    return load_tokenizer(name, cache_dir=cache_dir)


__all__ = [
    "Config",
    "ConfigError",
    "DatasetError",
    "DuplicatesConfig",
    "GristmillError",
    "InputError",
    "LicensesConfig",
    "Manifest",
    "MissingExtraError",
    "OutputConfig",
    "OutputError",
    "Progress",
    "RewriteConfig",
    "RulesConfig",
    "RunConfig",
    "SamplingConfig",
    "ScanConfig",
    "SecretsConfig",
    "SplitConfig",
    "TablesConfig",
    "TokenizerConfig",
    "TokenizerError",
    "VariantsConfig",
    "WindowConfig",
    "__version__",
    "build",
    "check",
    "explain",
    "load_tokenizer",
    "open_dataset",
    "plan",
]
