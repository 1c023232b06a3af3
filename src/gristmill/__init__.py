"""Turn your own source code into a training dataset for code models.

    import gristmill
    if __name__ == "__main__":
        gristmill.build(gristmill.Config(sources=["my-repo"], out="dataset"))
        rows = gristmill.open_dataset("dataset")["train"]

Every error that these functions raise on purpose is a `GristmillError`. Importing gristmill takes milliseconds, because
each function imports the libraries that it needs.
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
    from gristmill.planning.overlap_choice import PlanOptions
    from gristmill.planning.plan_result import Plan
    from gristmill.publish.push_result import PushResult
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer
    from gristmill.tokenizers.cuda.id_batch import Batch
    from gristmill.tokenizers.tokenizer import Tokenizer

_HOMES = (
    "core.errors",
    "config.settings",
    "config.config",
    "core.manifest",
    "core.progress",
    "planning.overlap_choice",
    "lab.training.train_config",
    "tokenizers.cuda.id_batch",
)
"""Modules of the public classes, imported on first access."""


def __getattr__(name: str) -> Any:
    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"gristmill.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module 'gristmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def build(config: "Config", progress: "Progress | None" = None) -> "Manifest":
    """Build a dataset from `config.sources` into the folder `config.out`, and return its manifest.

    A local dataset appears in `config.out` in one step, when it is complete. If `config.out` is an address such as
    `s3://bucket/dataset`, the manifest is uploaded last, so a dataset without a manifest is incomplete. If the build
    fails or is killed, an earlier dataset in `config.out` is unchanged, and the next build into `config.out` reuses the
    completed work.

        config = gristmill.Config(sources=["my-repo"], out="dataset")
        manifest = gristmill.build(config, gristmill.Progress(quiet=False))
        print(manifest.splits["train"].windows, "windows in train")
    """
    from gristmill.pipeline.build import build  # noqa: PLC0415

    return build(config, progress)


def plan(config: "Config", options: "PlanOptions | None" = None, progress: "Progress | None" = None) -> "Plan":
    """Estimate the rows, size, time and epochs of a build with `config`, without building it.

    The plan runs the first steps of the build, but writes nothing to `config.out`.

        config = gristmill.Config(sources=["my-repo"], out="dataset")
        plan = gristmill.plan(config, gristmill.PlanOptions(epochs=200, sequences=11_000))
        for overlap in plan.overlaps:
            print(overlap.overlap, overlap.windows)
    """
    from gristmill.planning.plan import plan  # noqa: PLC0415

    return plan(config, options, progress)


def train_tokenizer(
    config: "Config",
    size: int = 32_000,
    *,
    pattern: 'Literal["cl100k", "qwen2", "gpt2"]' = "cl100k",
    template: 'Literal["roberta", "none"]' = "roberta",
    progress: "Progress | None" = None,
) -> "Vocabulary":
    """Train a byte-level BPE tokenizer on the train split of a build with `config`, and write it to `config.out`.

    `size` is the number of tokens in the vocabulary. `pattern` selects the regular expression that splits text into
    words. `template` selects the special tokens around a sequence.

        gristmill.train_tokenizer(gristmill.Config(sources=["my-repo"], out="tokenizer"), size=2_000)
    """
    from gristmill.lab.vocabulary.train_tokenizer import train_tokenizer  # noqa: PLC0415

    return train_tokenizer(config, size, pattern=pattern, template=template, progress=progress)


def compare_tokenizers(
    config: "Config", names: "Sequence[str]" = (), *, progress: "Progress | None" = None
) -> "TokenizerTable":
    """Count the tokens that each tokenizer needs for the files of a build with `config`.

    Without `names`, use the tokenizer of the dataset if `config.sources` is a dataset, and `codebert` otherwise.

        config = gristmill.Config(sources=["my-repo"], out="dataset")
        table = gristmill.compare_tokenizers(config, ["codebert", "tokenizer"])
        print({one.name: one.bytes_per_token for one in table.tokenizers})
    """
    from gristmill.lab.vocabulary.compare_tokenizers import compare_tokenizers  # noqa: PLC0415

    return compare_tokenizers(config, names, progress=progress)


def open_dataset(folder: "str | os.PathLike[str]") -> "Dataset":
    """Open the dataset in `folder` for reading.

    `dataset["train"]` is a sequence of rows: iterate over it, take its length, or index it. Raises `DatasetError` if
    `folder` is not a dataset.

        rows = gristmill.open_dataset("dataset")["train"]
        print(len(rows), rows[0]["path"], rows[0]["input_ids"][:8])
    """
    from gristmill.dataset.dataset import open_dataset  # noqa: PLC0415

    return open_dataset(folder)


def check(
    folder: "str | os.PathLike[str]",
    sources: "Sequence[str]" = (),
    *,
    progress: "Progress | None" = None,
    workers: int | Literal["auto"] = "auto",
) -> "Report":
    """Verify the dataset in `folder`, write the result to `check.json` in this folder, and return the result.

    Without `sources`, the check reads only the files of the dataset. With `sources`, it also compares the rows with the
    source files. A failed check is a finding in the result, not an exception. Raises `DatasetError` if `folder` has no
    readable manifest.

        report = gristmill.check("dataset")
        print(report.ok, report["leakage"].summary)
    """
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
    """Write an HTML report of the dataset in `folder`, and return its path.

    With `other`, report on the dataset in `other` and compare it with the dataset in `folder`. `sources` are the
    folders from which the report reads dropped near-duplicates, to show how they differ from kept files. The default is
    the sources of the build, if they still exist. `out` defaults to `report.html` in the folder of the reported
    dataset.

        path = gristmill.report("dataset")
    """
    from gristmill.views.report.report import report  # noqa: PLC0415

    return report(folder, other, sources=sources, out=out, progress=progress)


def export(
    folder: "str | os.PathLike[str]",
    formats: "str | Sequence[str]",
    *,
    progress: "Progress | None" = None,
    workers: int | Literal["auto"] = "auto",
) -> "Manifest":
    """Add formats (`parquet`, `arrow`, `bin`, `mds`, …) to the dataset in `folder`, and return its new manifest.

    Formats that the dataset already has are not changed.

        gristmill.export("dataset", ["bin", "mds"])
    """
    from gristmill.publish.export import export  # noqa: PLC0415

    return export(folder, formats, progress=progress, workers=workers)


def export_for(
    folder: "str | os.PathLike[str]",
    trainer: str,
    out: "str | os.PathLike[str] | None" = None,
    *,
    progress: "Progress | None" = None,
) -> "Path":
    """Write the dataset in the layout that a trainer reads (`trl`, `transformers`, `axolotl`, `megatron`, …).

    Returns the new folder. `out` defaults to `folder` with the name of the trainer appended, as in `dataset-trl`.

        gristmill.build(gristmill.Config(sources=["my-repo"], out="causal", preset="causal"))
        folder = gristmill.export_for("causal", "transformers")
    """
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
) -> "PushResult":
    """Check a dataset for publication and, with `upload=True`, upload it to the Hugging Face Hub.

    Without `upload`, nothing is sent. `formats` limits the upload to these formats. `allow` names the safety checks to
    override: `check`, `secrets`, `licenses` or `paths`. If another safety check fails, nothing is uploaded and no
    exception is raised: the result records the failure.

        result = gristmill.push("dataset", "yourname/my-code", upload=True)
        print(result.commit or [gate.why for gate in result.gates])
    """
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
    """Train a model on a dataset. Write the best checkpoint, the metrics and the loss curves to `out`.

    `resume` continues an interrupted training run in `out`. `log` is called with each line of progress, as in
    `log=print`. Raises `TrainingError` if training diverges.

        config = gristmill.TrainConfig(model="tiny", epochs=20)
        result = gristmill.train("dataset", "run", config, log=print)
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
    """Train the same model on each dataset, and compare the losses on one test set without files of train splits.

    `seeds` is the number of training runs per dataset. `test` is the dataset whose test split is used. By default, the
    test set consists of the files that all datasets hold out. `budget` gives every run the same number of tokens, or
    the same number of epochs. A test set with fewer than `min_test_tokens` tokens (default: 100,000) raises an error.
    `log` is called with each line of progress, as in `log=print`.

        comparison = gristmill.compare(["dataset", "dataset-2"], "comparison", seeds=3, log=print)
        print(comparison.verdicts)
    """
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
    """Explain why a file was kept or dropped, how its split was chosen, and which rows contain it.

    `path` is a path as in `files.jsonl`, optionally followed by `:LINE`.

        explanation = gristmill.explain("dataset", "src/main.py:30")
        print(explanation.file.status, explanation.file.split, len(explanation.windows))
    """
    from gristmill.planning.explain import explain_file  # noqa: PLC0415

    return explain_file(folder, path)


def diff(
    before: "str | os.PathLike[str]", after: "str | os.PathLike[str]", *, examples: int | None = 10
) -> "Difference":
    """Compare two datasets by their `manifest.json` and `files.jsonl`.

    `examples` is the number of files to name for each kind of change, or None for all.

        difference = gristmill.diff("dataset", "dataset-2")
        print(difference.is_same, difference.why)
    """
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
    """Load a tokenizer.

    `name` is `codebert`, a `tokenizer.json`, a folder that contains one, or a Hugging Face Hub id
    (`org/name@revision`). The devices `cpu` and `cuda` give the same ids. Raises `NotOnGpuError` if the tokenizer
    cannot run on `cuda`.

        tokenizer = gristmill.load_tokenizer("codebert")
        ids = tokenizer.encode("def add(a, b):").ids
    """
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
    "PlanOptions",
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
