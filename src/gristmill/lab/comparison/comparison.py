"""Records of a finished comparison: datasets, runs with their curves, facts about the frozen test set, and verdicts.

All scores have the unit `Comparison.unit`, and a lower score is better. *Own validation* is the score on the validation
split of the dataset that a run was trained on. Own validation is too optimistic if it is far below the score on the
frozen test set.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset
from gristmill.lab.comparison.frozen import FrozenFacts, TrainOverlap
from gristmill.lab.comparison.statistics import Interval, Verdict, interval_of


class DatasetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Size of one dataset's train split, and the number of epochs in its budget."""

    name: str
    windows: int
    """Number of rows in train that a run trains on."""
    tokens: int
    """Number of content tokens in train, with each token of a file counted once."""
    ids: int
    """Number of token ids in the rows that a run trains on, including special tokens, without padding."""
    epochs: float
    """Number of epochs in the token budget."""
    padding: float
    """Share of padding if every window is padded to the full length."""
    fingerprint: str

    @classmethod
    def of(cls, dataset: Dataset, overlap: TrainOverlap, budget_tokens: int) -> "DatasetFacts":
        """Make the facts of a dataset. `overlap` has the name of the dataset and the size of its train split."""
        record = dataset.record
        capacity = overlap.windows * record.window_length
        return cls(
            name=overlap.name,
            windows=overlap.windows,
            tokens=record.splits[Split.TRAIN].tokens,
            ids=overlap.ids,
            epochs=budget_tokens / overlap.ids if overlap.ids else 0.0,
            padding=1 - overlap.ids / capacity if capacity else 0.0,
            fingerprint=record.fingerprint,
        )


class CurvePoint(msgspec.Struct, frozen=True, array_like=True):
    """Scores of one evaluation."""

    tokens: int
    """Number of tokens trained on up to this point."""
    validation: float | None
    """Score on the dataset's own validation split. None if it has no such split."""
    test: float
    """Score on the frozen test set."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of one dataset with one seed."""

    dataset: str
    seed: int
    curve: tuple[CurvePoint, ...]
    end: float
    """Score on the frozen test set at the end of the budget."""
    at_best_validation: float | None
    """Score on the frozen test set at the step with the best own validation. `gristmill train` saves the model of this
    step."""
    seconds: float
    tokens_per_second: float

    @property
    def own_validation(self) -> float | None:
        """Score on the dataset's own validation split at the end of the budget."""
        return self.curve[-1].validation if self.curve else None

    @property
    def off_by(self) -> float | None:
        """Own validation minus the score on the frozen test set. Below 0 if validation is too optimistic."""
        return None if self.own_validation is None else self.own_validation - self.end


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a finished comparison."""

    model: str
    unit: str
    budget_tokens: int | None
    """Token budget of every run. None if the budgets differ, because all runs train for the same number of epochs."""
    datasets: tuple[DatasetFacts, ...]
    runs: tuple[RunResult, ...]
    frozen: FrozenFacts
    verdicts: tuple[Verdict, ...]
    """Verdicts on the scores at the end of the budget."""
    verdicts_at_best: tuple[Verdict, ...]
    """Verdicts on the scores at the step with the best own validation of each run."""
    command: str
    """Shell command that repeats the comparison."""
    device: str
    versions: dict[str, str]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def runs_of(self, dataset: str) -> list[RunResult]:
        return [run for run in self.runs if run.dataset == dataset]


class ScoreIntervals(msgspec.Struct, frozen=True, kw_only=True):
    """Mean scores of one dataset over its seeds. A score is None if any run lacks it."""

    end: Interval
    at_best_validation: Interval | None
    own_validation: Interval | None
    off_by: Interval | None


def score_intervals(comparison: Comparison, dataset: str) -> ScoreIntervals:
    runs = comparison.runs_of(dataset)
    return ScoreIntervals(
        end=interval_of([run.end for run in runs]),
        at_best_validation=_interval([run.at_best_validation for run in runs]),
        own_validation=_interval([run.own_validation for run in runs]),
        off_by=_interval([run.off_by for run in runs]),
    )


def _interval(values: Sequence[float | None]) -> Interval | None:
    scores = [value for value in values if value is not None]
    return interval_of(scores) if scores and len(scores) == len(values) else None


def best_by_validation(curve: Sequence[CurvePoint]) -> CurvePoint | None:
    """Return the first point with the lowest own validation, or None if no point has a validation score."""
    points = [point for point in curve if point.validation is not None and not math.isnan(point.validation)]
    return min(points, key=lambda point: math.inf if point.validation is None else point.validation, default=None)


class Band(NamedTuple):
    """Mean curve with its confidence band. `low` and `high` are None for a single seed."""

    mean: list[float]
    low: list[float] | None
    high: list[float] | None


class MeanCurve(NamedTuple):
    """Curves of one dataset, averaged over its seeds."""

    dataset: str
    tokens: list[int]
    test: Band
    validation: Band | None


def mean_curves(comparison: Comparison) -> list[MeanCurve]:
    """Average the curves of each dataset over its seeds, at the token counts that all its runs have in common."""
    curves = []
    for facts in comparison.datasets:
        runs = [{point.tokens: point for point in run.curve} for run in comparison.runs_of(facts.name)]
        tokens = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
        points = [[run[count] for run in runs] for count in tokens]
        validation = [[run.validation for run in at_point if run.validation is not None] for at_point in points]
        has_validation = bool(validation) and all(len(values) == len(runs) for values in validation)
        test = _band([[run.test for run in at_point] for at_point in points])
        curves.append(MeanCurve(facts.name, tokens, test, _band(validation) if has_validation else None))
    return curves


def _band(values: Sequence[Sequence[float]]) -> Band:
    intervals = [interval_of(at_point) for at_point in values]
    means = [one.mean for one in intervals]
    halves = [one.half_width for one in intervals if one.half_width is not None]
    if len(halves) < len(means) or not means:
        return Band(means, None, None)
    low = [mean - half for mean, half in zip(means, halves, strict=True)]
    return Band(means, low, [mean + half for mean, half in zip(means, halves, strict=True)])
