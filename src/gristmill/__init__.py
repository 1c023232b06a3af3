"""gristmill turns one's own source code into a training dataset for code models.

    import gristmill
    if __name__ == "__main__":
        gristmill.build(gristmill.Config(sources=["my-repo"], out="dataset"))
        rows = gristmill.open_dataset("dataset")["train"]

Importing this loads nothing heavy: the function that needs it does.
"""

import importlib
from typing import TYPE_CHECKING, Any, Literal, overload

from gristmill.core.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from gristmill.checks.findings import Report
    from gristmill.config.config import Config
    from gristmill.config.settings import (
        DuplicatesConfig,
        FimConfig,
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
    from gristmill.core.errors import (
        ConfigError,
        DatasetError,
        DeviceError,
        GristmillError,
        InputError,
        MissingExtraError,
        NotOnGpuError,
        OutputError,
        TokenizerError,
        TrainingError,
    )
    from gristmill.core.manifest import Manifest
    from gristmill.core.progress import Progress
    from gristmill.dataset.dataset import Dataset
    from gristmill.lab.comparison.comparison import Comparison
    from gristmill.lab.training.train_config import TrainConfig
    from gristmill.lab.training.train_result import Result
    from gristmill.lab.vocabulary.vocabulary import Vocabulary
    from gristmill.lab.vocabulary.vocabulary_text import TokenizerTable
    from gristmill.planning.diff_result import Difference
    from gristmill.planning.explain import Explanation
    from gristmill.planning.overlap_choice import Wanted
    from gristmill.planning.plan_result import Plan
    from gristmill.publish.push_result import Push
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer
    from gristmill.tokenizers.cuda.id_batch import Batch
    from gristmill.tokenizers.tokenizer import Tokenizer

_HOMES = (
    "core.errors",
    "config.settings",
    "config.config",
    "core.manifest",
    "core.progress",
    "lab.training.train_config",
    "tokenizers.cuda.id_batch",
)
"""Where the classes live. They are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"gristmill.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'gristmill' has no attribute {name!r}")


def build(config: "Config", progress: "Progress | None" = None) -> "Manifest":
    """Source trees in, a dataset folder out. Whatever happens on the way, an earlier dataset in that place is whole."""
    from gristmill.pipeline.build import build  # noqa: PLC0415

    return build(config, progress)


def plan(config: "Config", wanted: "Wanted | None" = None, progress: "Progress | None" = None) -> "Plan":
    """What would a build of this give, and cost? Nothing is built."""
    from gristmill.planning.plan import plan  # noqa: PLC0415

    return plan(config, wanted, progress)


def train_tokenizer(
    config: "Config",
    size: int = 32_000,
    *,
    pattern: 'Literal["cl100k", "qwen2", "gpt2"]' = "cl100k",
    template: 'Literal["roberta", "none"]' = "roberta",
    progress: "Progress | None" = None,
) -> "Vocabulary":
    """A vocabulary of one's own, learnt from the train text of a build with this `config`, into `config.out`."""
    from gristmill.lab.vocabulary.train_tokenizer import train_tokenizer  # noqa: PLC0415

    return train_tokenizer(config, size, pattern=pattern, template=template, progress=progress)


def compare_tokenizers(
    config: "Config", names: "Sequence[str]" = (), *, progress: "Progress | None" = None
) -> "TokenizerTable":
    """How many tokens each of these tokenizers needs for the text that a build with this `config` would take."""
    from gristmill.lab.vocabulary.compare_tokenizers import compare_tokenizers  # noqa: PLC0415

    return compare_tokenizers(config, names, progress=progress)


def open_dataset(folder: "str | os.PathLike[str]") -> "Dataset":
    """A finished dataset: iterate `dataset["train"]`, take its `len`, or a row by number."""
    from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415

    return open_dataset(folder)


def check(
    folder: "str | os.PathLike[str]",
    sources: "Sequence[str]" = (),
    *,
    progress: "Progress | None" = None,
    workers: int | Literal["auto"] = "auto",
) -> "Report":
    """Is this dataset what it says it is? From its files alone, or compared with its sources too."""
    from gristmill.checks.check import check  # noqa: PLC0415

    return check(folder, sources, progress=progress, workers=workers)


def report(
    folder: "str | os.PathLike[str]",
    other: "str | os.PathLike[str] | None" = None,
    *,
    sources: "Sequence[str]" = (),
    out: "str | os.PathLike[str] | None" = None,
    progress: "Progress | None" = None,
) -> "Path":
    """Draw a dataset: one HTML file, in its folder or `out`. With `other`, draw that one, held against `folder`."""
    from gristmill.views.report.report import report  # noqa: PLC0415

    return report(folder, other, sources=sources, out=out, progress=progress)


def export(
    folder: "str | os.PathLike[str]",
    formats: "str | Sequence[str]",
    *,
    progress: "Progress | None" = None,
    workers: int | Literal["auto"] = "auto",
) -> "Manifest":
    """The same windows in further formats, beside those that are there: `parquet`, `arrow`, `bin`, `mds`, …"""
    from gristmill.publish.export import export  # noqa: PLC0415

    return export(folder, formats, progress=progress, workers=workers)


def export_for(
    folder: "str | os.PathLike[str]",
    trainer: str,
    out: "str | os.PathLike[str] | None" = None,
    *,
    progress: "Progress | None" = None,
) -> "Path":
    """The dataset as a trainer reads it, in a folder of its own: `trl`, `transformers`, `axolotl`, `megatron`, …"""
    from gristmill.publish.export_for import export_for  # noqa: PLC0415

    return export_for(folder, trainer, out, progress=progress)


def push(
    folder: "str | os.PathLike[str]",
    repo_id: str,
    *,
    upload: bool = False,
    private: bool = True,
    revision: str | None = None,
    message: str | None = None,
    formats: "Sequence[str] | None" = None,
    allow: "Collection[str]" = (),
    progress: "Progress | None" = None,
    workers: int | Literal["auto"] = "auto",
) -> "Push":
    """What would go to the Hugging Face Hub, and with `upload` goes; `allow` names gates that are not to refuse."""
    from gristmill.publish.push import push  # noqa: PLC0415

    return push(
        folder,
        repo_id,
        upload=upload,
        private=private,
        revision=revision,
        message=message,
        formats=formats,
        allow=allow,
        progress=progress,
        workers=workers,
    )


def train(
    folder: "str | os.PathLike[str]",
    out: "str | os.PathLike[str]",
    config: "TrainConfig | None" = None,
    *,
    resume: bool = False,
    log: "Callable[[str], None]" = lambda _: None,
) -> "Result":
    """Train a model on a dataset and write the best model, its curves and all metrics to `out`.

    `log` receives the progress lines, for example `log=print`.
    """
    from gristmill.core.extras import require_training  # noqa: PLC0415

    require_training()
    from gristmill.lab.training.train import train  # noqa: PLC0415

    return train(folder, out, config, resume=resume, log=log)


def compare(
    folders: "Sequence[str | os.PathLike[str]]",
    out: "str | os.PathLike[str]",
    config: "TrainConfig | None" = None,
    *,
    seeds: int = 3,
    test: "str | os.PathLike[str] | None" = None,
    budget: Literal["tokens", "epochs"] = "tokens",
    min_test_tokens: int | None = None,
    resume: bool = False,
    progress: "Progress | None" = None,
    log: "Callable[[str], None]" = lambda _: None,
) -> "Comparison":
    """Train the same model on each dataset and score all on one test set that is clean against every one of them."""
    from gristmill.core.extras import require_training  # noqa: PLC0415

    require_training()
    from gristmill.lab.comparison.compare import compare  # noqa: PLC0415

    return compare(
        folders,
        out,
        config,
        seeds=seeds,
        test=test,
        budget=budget,
        min_test_tokens=min_test_tokens,
        resume=resume,
        progress=progress,
        log=log,
    )


def explain(folder: "str | os.PathLike[str]", path: str) -> "Explanation":
    """Why a file is in a dataset, out of it, or in its split; `path` may end with `:LINE`."""
    from gristmill.planning.explain import explain_file  # noqa: PLC0415

    return explain_file(folder, path)


def diff(
    before: "str | os.PathLike[str]", after: "str | os.PathLike[str]", *, examples: int | None = 10
) -> "Difference":
    """What is not the same in two datasets; `examples`: how many files are named of each kind, None: all."""
    from gristmill.planning.diff import diff  # noqa: PLC0415

    return diff(before, after, examples=examples)


@overload
def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cuda"]
) -> "CudaTokenizer": ...


@overload
def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cpu", "cuda"] = "cpu"
) -> "Tokenizer": ...


def load_tokenizer(
    name: str = "codebert", *, cache_dir: str | None = None, device: Literal["cpu", "cuda"] = "cpu"
) -> "Tokenizer":
    """`codebert`, a tokenizer.json, a folder with one, or a Hub id (`org/name@revision`). Ids are equal on `cuda`."""
    from gristmill.tokenizers.tokenizer import load_tokenizer  # noqa: PLC0415

    return load_tokenizer(name, cache_dir=cache_dir, device=device)


__all__ = [
    "Batch",
    "Config",
    "ConfigError",
    "DatasetError",
    "DeviceError",
    "DuplicatesConfig",
    "FimConfig",
    "GristmillError",
    "InputError",
    "LicensesConfig",
    "Manifest",
    "MissingExtraError",
    "NotOnGpuError",
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
    "TrainConfig",
    "TrainingError",
    "VariantsConfig",
    "WindowConfig",
    "__version__",
    "build",
    "check",
    "compare",
    "compare_tokenizers",
    "diff",
    "explain",
    "export",
    "export_for",
    "load_tokenizer",
    "open_dataset",
    "plan",
    "push",
    "report",
    "train",
    "train_tokenizer",
]
