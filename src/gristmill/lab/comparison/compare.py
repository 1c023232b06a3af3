"""compare(): the same model on each dataset, with the same budget and seeds, scored on one frozen test set."""

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from gristmill.config.validation import at_least
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.names import printable
from gristmill.core.progress import Progress
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.dataset.token_edges import Vocabulary
from gristmill.lab.comparison.comparison import Comparison, CurvePoint, DatasetFacts, RunResult, best_by_validation
from gristmill.lab.comparison.comparison_folder import ComparisonFolder
from gristmill.lab.comparison.comparison_text import few_tokens
from gristmill.lab.comparison.freeze import freeze
from gristmill.lab.comparison.frozen import MIN_TOKENS, AgainstFacts, Frozen
from gristmill.lab.comparison.held_out import names_of
from gristmill.lab.comparison.statistics import DatasetScores, Floats, verdicts_of
from gristmill.lab.training.feeds import Scored
from gristmill.lab.training.metrics import Metric, read_metrics
from gristmill.lab.training.monitor import Tell
from gristmill.lab.training.run import with_objective
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.training.train import train
from gristmill.lab.training.train_config import NO_EARLY_STOP, TrainConfig

# How long each dataset is trained on: the same number of tokens, or the same number of its own epochs.

BudgetKind = Literal["tokens", "epochs"]
EVALUATIONS = 40
"""Of a run, evenly spaced: the curves of two datasets have the same points if they have the same budget."""


def tokens_of(config: TrainConfig, trains: Sequence[AgainstFacts], kind: BudgetKind) -> list[int]:
    """By dataset. Epochs of a budget of tokens are the first dataset's."""
    if config.tokens is not None:
        return [config.tokens] * len(trains)
    epochs = config.recipe.epochs if config.epochs is None else config.epochs
    own = [max(1, round(epochs * train.ids)) for train in trains]
    return own if kind == "epochs" else own[:1] * len(trains)


def config_of(config: TrainConfig, train: AgainstFacts, tokens: int, seed: int) -> TrainConfig:
    """Of one run, which spends its whole budget."""
    steps = max(1, round(tokens * train.windows / train.ids / config.windows_per_step))
    every = max(1, steps // EVALUATIONS) if config.eval_every is None else config.eval_every
    return msgspec.structs.replace(
        config, tokens=tokens, epochs=None, seed=seed, eval_every=every, early_stop=NO_EARLY_STOP
    )


FEWEST = 2
BITS = "bits per byte"
NATS = {"mlm": "nats a masked token", "causal": "nats a token"}


class Entrant(NamedTuple):
    """A dataset of the comparison."""

    number: int
    name: str
    dataset: Dataset
    shown: AgainstFacts
    """What was counted of its train split."""
    tokens: int
    """Its budget."""


class Done(NamedTuple):
    """A run, and for each frozen file what adds up to its score: totals over weights."""

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
    tell: Tell = lambda _: None,
    command: str = "",
    min_test_tokens: int | None = None,
) -> Comparison:
    """`budget`: all datasets get the same number of tokens, or each the same number of its own epochs.

    `min_test_tokens`: refuse a smaller test set; None: 100,000.
    """
    _require_comparable(folders, config, seeds)
    min_tokens = MIN_TOKENS if min_test_tokens is None else min_test_tokens
    at_least(1, "--min-test-tokens", min_tokens)
    datasets = [open_dataset(folder) for folder in folders]
    config = with_objective(config or TrainConfig(), datasets[0])
    place = ComparisonFolder(out, resume=resume)
    other = None if test is None else open_dataset(test)
    with ExitStack() as reading:
        for dataset in [*datasets, *([] if other is None else [other])]:
            reading.enter_context(dataset.edition.reading())
        frozen = freeze(datasets, other, progress or Progress(), min_tokens=min_tokens)
    place.keep(frozen)
    for line in few_tokens(frozen.facts):
        tell(f"warning: {line}")
    tokens = tokens_of(config, frozen.facts.against, budget)
    entrants = list(map(Entrant, range(len(datasets)), names_of(datasets), datasets, frozen.facts.against, tokens))
    done: list[Done] = []
    for seed, entrant in product(range(seeds), entrants):
        tell(f"\n{printable(entrant.name)}, seed {seed}: run {len(done) + 1} of {seeds * len(entrants)}")
        entrant.dataset.edition.require()
        run = RunFolder(place.run_folder(entrant.number, entrant.name, seed))
        done.append(_run(entrant, config_of(config, entrant.shown, entrant.tokens, seed), run, frozen, tell))
    comparison = _comparison(entrants, done, frozen, config, command)
    place.write(comparison)
    return comparison


def _comparison(
    entrants: Sequence[Entrant], done: Sequence[Done], frozen: Frozen, config: TrainConfig, command: str
) -> Comparison:
    unit, names, facts = _unit(entrants[0].dataset, config), [entrant.name for entrant in entrants], done[0].facts
    budgets = {entrant.tokens for entrant in entrants}
    return Comparison(
        model=f"{config.model}, {config.objective}" + (f", LoRA of rank {config.lora_rank}" if config.lora else ""),
        unit=unit,
        budget_tokens=budgets.pop() if len(budgets) == 1 else None,
        datasets=tuple(DatasetFacts.of(one.dataset, one.shown, one.tokens) for one in entrants),
        runs=tuple(one.result for name in names for one in done if one.result.dataset == name),
        frozen=frozen.facts,
        verdicts=tuple(verdicts_of(_scores(done, names), unit, done[0].weights)),
        verdicts_at_best=tuple(verdicts_of(_scores_at_best(done, names), unit)),
        command=command,
        device=facts.device,
        versions={"gristmill": facts.gristmill, **facts.versions},
    )


def _require_comparable(folders: Sequence[Any], config: TrainConfig | None, seeds: int) -> None:
    if len(folders) < FEWEST:
        raise ConfigError(f"compare takes two datasets or more, got {len(folders)}.")
    if seeds < 1:
        raise ConfigError(f"--seeds must be at least 1, got {seeds}; 3 give an interval.")
    if config is not None and (config.early_stop or config.seed):
        raise ConfigError("compare gives every run the same budget and seeds 0, 1, 2 …: leave out early_stop and seed.")


def _unit(dataset: Dataset, config: TrainConfig) -> str:
    has_bytes = config.objective == "causal" and Vocabulary.of(dataset.tokenizer).num_bytes is not None
    return BITS if has_bytes else NATS[config.objective or "mlm"]


def _run(entrant: Entrant, config: TrainConfig, run: RunFolder, frozen: Frozen, tell: Tell) -> Done:
    """One that was done before is taken as it is, and one that was stopped goes on."""
    result = train(
        entrant.dataset.folder,
        run.path,
        config,
        resume=run.can_go_on(),
        tell=tell,
        frozen=[Scored(window.input_ids, window.fresh) for window in frozen.windows],
        keep_model=False,
    )
    lines = read_metrics(run.path)
    curve = _curve(lines)
    if (
        result.frozen is None
        or len(result.frozen.totals) != len(frozen.windows)
        or not curve
        or lines[-1].step < result.steps
    ):
        raise DatasetError(f"the run in {str(run.path)!r} is damaged, or of something else. Delete it, and --resume.")
    best = best_by_validation(curve)
    files = frozen.file_numbers()
    found = RunResult(
        dataset=entrant.name,
        seed=config.seed,
        curve=curve,
        end=curve[-1].test,
        at_best_validation=None if best is None else best.test,
        seconds=result.seconds,
        tokens_per_second=result.tokens_per_second,
    )
    totals, weights = (np.bincount(files, np.array(one)) for one in (result.frozen.totals, result.frozen.weights))
    return Done(found, run.facts(), totals.astype(np.float64), weights.astype(np.float64))


def _curve(lines: Sequence[Metric]) -> tuple[CurvePoint, ...]:
    own = {line.step: _value(line) for line in lines if line.split == "validation"}
    return tuple(CurvePoint(line.tokens, own.get(line.step), _value(line)) for line in lines if line.split == "frozen")


def _value(line: Metric) -> float:
    return line.loss if line.bits_per_byte is None else line.bits_per_byte


def _scores(done: Sequence[Done], names: Sequence[str]) -> list[DatasetScores]:
    by_name = {name: [one for one in done if one.result.dataset == name] for name in names}
    return [
        DatasetScores(
            name,
            {one.result.seed: one.result.end for one in runs},
            {one.result.seed: one.totals for one in runs},
        )
        for name, runs in by_name.items()
    ]


def _scores_at_best(done: Sequence[Done], names: Sequence[str]) -> list[DatasetScores]:
    """Where each run's own validation was best, which is somewhere: every dataset has one."""
    scores = {(one.result.dataset, one.result.seed): _at_best(one.result) for one in done}
    return [DatasetScores(name, {seed: scores[name, seed] for of, seed in scores if of == name}) for name in names]


def _at_best(run: RunResult) -> float:
    return math.nan if run.at_best_validation is None else run.at_best_validation
