"""compare(): the same model on each dataset, with the same budget and seeds, scored on one frozen test set."""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gristmill.comparing.budgets import BudgetKind, config_of, tokens_of
from gristmill.comparing.folder import ComparisonFolder
from gristmill.comparing.freezing import MIN_TOKENS, freeze
from gristmill.comparing.frozen import Frozen
from gristmill.comparing.names import names_of
from gristmill.comparing.result import Comparison, CurvePoint, DatasetFacts, RunResult, best_by_validation
from gristmill.comparing.statistics import DatasetScores, Floats, verdicts_of
from gristmill.dataset import Dataset, open_dataset
from gristmill.errors import ConfigError
from gristmill.feeding.vocabulary import Vocabulary
from gristmill.naming import printable
from gristmill.progress import Progress
from gristmill.training.describing import with_objective
from gristmill.training.feeds import Scored
from gristmill.training.metrics import Metric, read_metrics
from gristmill.training.runfolder import RunFolder
from gristmill.training.settings import TrainConfig
from gristmill.training.train import train
from gristmill.training.watching import Tell

FEWEST = 2
BITS = "bits per byte"
NATS = {"mlm": "nats a masked token", "causal": "nats a token"}


class Done(NamedTuple):
    """A run, and for each frozen file what adds up to its score: totals over weights."""

    result: RunResult
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
    min_test_tokens: int = MIN_TOKENS,
) -> Comparison:
    """`budget`: all datasets get the same number of tokens, or each the same number of its own epochs."""
    if len(folders) < FEWEST or seeds < 1:
        raise ConfigError(f"compare takes two datasets or more and a seed at least, got {len(folders)} and {seeds}.")
    datasets = [open_dataset(folder) for folder in folders]
    config = with_objective(config or TrainConfig(), datasets[0])
    place = ComparisonFolder(out, resume=resume)
    other = None if test is None else open_dataset(test)
    frozen = freeze(datasets, other, progress or Progress(), min_tokens=min_test_tokens)
    place.keep(frozen)
    trains, names = frozen.facts.against, names_of(datasets)
    tokens = tokens_of(config, trains, budget)
    unit = _unit(datasets[0], config)
    done: list[Done] = []
    for seed in range(seeds):
        for name, dataset, shown, its_tokens in zip(names, datasets, trains, tokens, strict=True):
            tell(f"\n{printable(name)}, seed {seed}: run {len(done) + 1} of {seeds * len(datasets)}")
            its_config = config_of(config, shown, its_tokens, seed)
            done.append(_run(name, dataset, its_config, place=place, frozen=frozen, tell=tell))
    facts = RunFolder(place.run_folder(names[0], 0)).facts()
    comparison = Comparison(
        model=f"{config.model}, {config.objective}",
        unit=unit,
        budget_tokens=tokens[0] if len(set(tokens)) == 1 else None,
        datasets=tuple(map(DatasetFacts.of, datasets, trains, tokens)),
        runs=tuple(one.result for name in names for one in done if one.result.dataset == name),
        frozen=frozen.facts,
        verdicts=tuple(verdicts_of(_scores(done, names), unit, done[0].weights)),
        verdicts_at_best=tuple(verdicts_of(_scores_at_best(done, names), unit)),
        command=command,
        device=facts.device,
        versions={"gristmill": facts.gristmill, **facts.versions},
    )
    place.write(comparison)
    return comparison


def _unit(dataset: Dataset, config: TrainConfig) -> str:
    has_bytes = config.objective == "causal" and Vocabulary.of(dataset.tokenizer).num_bytes is not None
    return BITS if has_bytes else NATS[config.objective or "mlm"]


def _run(
    name: str, dataset: Dataset, config: TrainConfig, *, place: ComparisonFolder, frozen: Frozen, tell: Tell
) -> Done:
    """One that was done before is taken as it is, and one that was stopped goes on."""
    folder = place.run_folder(name, config.seed)
    windows = [Scored(window.input_ids, window.fresh) for window in frozen.windows]
    result = train(
        dataset.folder,
        folder,
        config,
        resume=folder.is_dir(),
        tell=tell,
        frozen=windows,
        keep_model=False,
    )
    assert result.frozen is not None
    curve = _curve(read_metrics(folder))
    best = best_by_validation(curve)
    files = frozen.file_numbers()
    run = RunResult(
        dataset=name,
        seed=config.seed,
        curve=curve,
        end=curve[-1].test,
        at_best_validation=None if best is None else best.test,
        seconds=result.seconds,
        tokens_per_second=result.tokens_per_second,
    )
    totals, weights = (np.bincount(files, np.array(one)) for one in (result.frozen.totals, result.frozen.weights))
    return Done(run, totals.astype(np.float64), weights.astype(np.float64))


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
    scores = {(one.result.dataset, one.result.seed): one.result.at_best_validation or math.nan for one in done}
    return [DatasetScores(name, {seed: scores[name, seed] for of, seed in scores if of == name}) for name in names]
