"""compare(): train the same model on each dataset, with the same budget and seeds, and score it on one test set."""

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from gristmill.config.validation import require_at_least
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.names import printable
from gristmill.core.progress import Progress
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.dataset.token_edges import TokenProperties
from gristmill.lab.comparison.comparison import Comparison, CurvePoint, DatasetFacts, RunResult, best_by_validation
from gristmill.lab.comparison.comparison_folder import ComparisonFolder
from gristmill.lab.comparison.comparison_text import small_test_warnings
from gristmill.lab.comparison.freeze import freeze
from gristmill.lab.comparison.frozen import MIN_TOKENS, Frozen, TrainOverlap
from gristmill.lab.comparison.held_out import display_names
from gristmill.lab.comparison.statistics import DatasetScores, Floats, compare_pairs
from gristmill.lab.training.feeds import ScoredWindow
from gristmill.lab.training.metrics import Metric, read_metrics
from gristmill.lab.training.monitor import Log
from gristmill.lab.training.run import with_objective
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.training.train import train
from gristmill.lab.training.train_config import NO_EARLY_STOP, TrainConfig

# Budgets: either all datasets get the same number of tokens, or all datasets get the same number of epochs.

BudgetKind = Literal["tokens", "epochs"]
EVALUATIONS = 40
"""Approximate number of evaluations in a run, at equal intervals."""


def token_budgets(config: TrainConfig, trains: Sequence[TrainOverlap], kind: BudgetKind) -> list[int]:
    """Return the token budget of each dataset. With kind `tokens`, all datasets get the budget of the first dataset."""
    if config.tokens is not None:
        return [config.tokens] * len(trains)
    epochs = config.recipe.epochs if config.epochs is None else config.epochs
    budgets = [max(1, round(epochs * train.ids)) for train in trains]
    return budgets if kind == "epochs" else budgets[:1] * len(trains)


def run_config(config: TrainConfig, train: TrainOverlap, tokens: int, seed: int) -> TrainConfig:
    """Return the configuration of one run. Early stopping is disabled, so that all runs use their complete budget."""
    steps = max(1, round(tokens * train.windows / train.ids / config.windows_per_step))
    every = max(1, steps // EVALUATIONS) if config.eval_every is None else config.eval_every
    return msgspec.structs.replace(
        config, tokens=tokens, epochs=None, seed=seed, eval_every=every, early_stop=NO_EARLY_STOP
    )


MIN_DATASETS = 2
BITS = "bits per byte"
NATS = {"mlm": "nats per masked token", "causal": "nats per token"}


class ComparedDataset(NamedTuple):
    """One dataset in the comparison."""

    dataset_index: int
    name: str
    dataset: Dataset
    train: TrainOverlap
    """Size of the train split, and its overlap with the frozen test set."""
    budget_tokens: int
    """Number of tokens to train on in each run."""


class FinishedRun(NamedTuple):
    """A finished run. Its score is the sum of `totals` over all test files, divided by the sum of `weights`."""

    result: RunResult
    facts: RunFacts
    totals: Floats
    weights: Floats


def compare(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    seeds: int = 3,
    test: str | os.PathLike[str] | None = None,
    budget: BudgetKind = "tokens",
    resume: bool = False,
    progress: Progress | None = None,
    log: Log = lambda _: None,
    command: str = "",
    min_test_tokens: int | None = None,
) -> Comparison:
    """Train the same model on each dataset with several seeds, and score all runs on one frozen test set.

    The test set consists of the files that all datasets hold out, or of the test split of the dataset `test`. With the
    budget `tokens`, all runs train on the same number of tokens. With `epochs`, all runs train for the same number of
    epochs, so a larger dataset gets more tokens. A test set with fewer than `min_test_tokens` tokens (default 100,000)
    raises ConfigError. `log` receives the progress lines, and `command` is recorded in the result. `resume` continues a
    stopped comparison.
    """
    _require_comparable(folders, config, seeds)
    min_tokens = MIN_TOKENS if min_test_tokens is None else min_test_tokens
    require_at_least(1, "--min-test-tokens", min_tokens)
    datasets = [open_dataset(folder) for folder in folders]
    config = with_objective(config or TrainConfig(), datasets[0])
    comparison_folder = ComparisonFolder(out, resume=resume)
    test_dataset = None if test is None else open_dataset(test)
    with ExitStack() as reading:
        for dataset in [*datasets, *([] if test_dataset is None else [test_dataset])]:
            reading.enter_context(dataset.edition.guard_reading())
        frozen = freeze(datasets, test_dataset, progress or Progress(), min_tokens=min_tokens)
    comparison_folder.keep(frozen)
    for line in small_test_warnings(frozen.facts):
        log(f"warning: {line}")
    tokens = token_budgets(config, frozen.facts.against, budget)
    compared = list(
        map(ComparedDataset, range(len(datasets)), display_names(datasets), datasets, frozen.facts.against, tokens)
    )
    finished: list[FinishedRun] = []
    for seed, one in product(range(seeds), compared):
        log(f"\n{printable(one.name)}, seed {seed}: run {len(finished) + 1} of {seeds * len(compared)}")
        one.dataset.edition.require_unchanged()
        run = RunFolder(comparison_folder.run_folder(one.dataset_index, one.name, seed))
        finished.append(_run(one, run_config(config, one.train, one.budget_tokens, seed), run, frozen, log))
    comparison = _make_comparison(compared, finished, frozen, config, command)
    comparison_folder.write(comparison)
    return comparison


def _make_comparison(
    compared: Sequence[ComparedDataset],
    finished: Sequence[FinishedRun],
    frozen: Frozen,
    config: TrainConfig,
    command: str,
) -> Comparison:
    unit, names, facts = _unit(compared[0].dataset, config), [one.name for one in compared], finished[0].facts
    budgets = {one.budget_tokens for one in compared}
    return Comparison(
        model=f"{config.model}, {config.objective}" + (f", LoRA of rank {config.lora_rank}" if config.lora else ""),
        unit=unit,
        budget_tokens=budgets.pop() if len(budgets) == 1 else None,
        datasets=tuple(DatasetFacts.of(one.dataset, one.train, one.budget_tokens) for one in compared),
        runs=tuple(one.result for name in names for one in finished if one.result.dataset == name),
        frozen=frozen.facts,
        verdicts=tuple(compare_pairs(_scores(finished, names), unit, finished[0].weights)),
        verdicts_at_best=tuple(compare_pairs(_scores_at_best(finished, names), unit)),
        command=command,
        device=facts.device,
        versions={"gristmill": facts.gristmill, **facts.versions},
    )


def _require_comparable(folders: Sequence[Any], config: TrainConfig | None, seeds: int) -> None:
    if len(folders) < MIN_DATASETS:
        raise ConfigError(f"compare needs at least two datasets, got {len(folders)}.")
    if seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {seeds}. Use --seeds 3 to get intervals.")
    if config is not None and (config.early_stop or config.seed):
        raise ConfigError(
            "compare trains every run to the end of its budget, with the seeds 0, 1, and so on. Leave out early_stop "
            "and seed."
        )


def _unit(dataset: Dataset, config: TrainConfig) -> str:
    has_bytes = config.objective == "causal" and TokenProperties.of(dataset.tokenizer).num_bytes is not None
    return BITS if has_bytes else NATS[config.objective or "mlm"]


def _run(compared: ComparedDataset, config: TrainConfig, run: RunFolder, frozen: Frozen, log: Log) -> FinishedRun:
    """Train on one dataset with one seed. A stopped run is resumed. For a finished run, only the result is read."""
    result = train(
        compared.dataset.folder,
        run.path,
        config,
        resume=run.is_resumable(),
        log=log,
        frozen=[ScoredWindow(window.input_ids, window.fresh) for window in frozen.windows],
        save_best_model=False,
    )
    lines = read_metrics(run.path)
    curve = _curve(lines)
    if (
        result.frozen is None
        or len(result.frozen.totals) != len(frozen.windows)
        or not curve
        or lines[-1].step < result.steps
    ):
        raise DatasetError(
            f"the run in {str(run.path)!r} is damaged or from a different comparison. Delete this folder, then use "
            "--resume."
        )
    best = best_by_validation(curve)
    files = frozen.file_numbers()
    run_result = RunResult(
        dataset=compared.name,
        seed=config.seed,
        curve=curve,
        end=curve[-1].test,
        at_best_validation=None if best is None else best.test,
        seconds=result.seconds,
        tokens_per_second=result.tokens_per_second,
    )
    totals, weights = (np.bincount(files, np.array(one)) for one in (result.frozen.totals, result.frozen.weights))
    return FinishedRun(run_result, run.facts(), totals.astype(np.float64), weights.astype(np.float64))


def _curve(lines: Sequence[Metric]) -> tuple[CurvePoint, ...]:
    validation = {line.step: _value(line) for line in lines if line.split == "validation"}
    return tuple(
        CurvePoint(line.tokens, validation.get(line.step), _value(line)) for line in lines if line.split == "frozen"
    )


def _value(line: Metric) -> float:
    return line.loss if line.bits_per_byte is None else line.bits_per_byte


def _scores(finished: Sequence[FinishedRun], names: Sequence[str]) -> list[DatasetScores]:
    by_name = {name: [one for one in finished if one.result.dataset == name] for name in names}
    return [
        DatasetScores(
            name,
            {one.result.seed: one.result.end for one in runs},
            {one.result.seed: one.totals for one in runs},
        )
        for name, runs in by_name.items()
    ]


def _scores_at_best(finished: Sequence[FinishedRun], names: Sequence[str]) -> list[DatasetScores]:
    """Return the score of each run at the step with the best score on its own validation split."""
    scores = {(one.result.dataset, one.result.seed): _at_best(one.result) for one in finished}
    return [
        DatasetScores(name, {seed: scores[name, seed] for dataset, seed in scores if dataset == name}) for name in names
    ]


def _at_best(run: RunResult) -> float:
    return math.nan if run.at_best_validation is None else run.at_best_validation
