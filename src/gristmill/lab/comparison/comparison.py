"""What a finished comparison is: datasets, runs with their curves, the frozen test set's facts, verdicts.

Scores are in `unit`, lower is better, and a run's own validation is in the same unit as its frozen score: how far the
two are apart is how wrong that validation is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset
from gristmill.lab.comparison.frozen import AgainstFacts, FrozenFacts
from gristmill.lab.comparison.statistics import Interval, Verdict, interval_of


class DatasetFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    windows: int
    """Rows of train."""
    tokens: int
    """Distinct content tokens of train."""
    ids: int
    """In all its rows: special tokens count, padding does not."""
    epochs: float
    """That the budget means: how often each row is shown."""
    padding: float
    """Share of padding where every window is padded to the full length."""
    fingerprint: str

    @classmethod
    def of(cls, dataset: Dataset, against: AgainstFacts, budget_tokens: int) -> "DatasetFacts":
        """`against`: what was counted when train streamed past the frozen test set."""
        record = dataset.record
        room = against.windows * record.window_length
        return cls(
            name=against.name,
            windows=against.windows,
            tokens=record.splits[Split.TRAIN].tokens,
            ids=against.ids,
            epochs=budget_tokens / against.ids if against.ids else 0.0,
            padding=1 - against.ids / room if room else 0.0,
            fingerprint=record.fingerprint,
        )


class CurvePoint(msgspec.Struct, frozen=True, array_like=True):
    tokens: int
    """Trained on until here."""
    validation: float | None
    """The dataset's own; None where it has none."""
    test: float
    """The frozen one."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    dataset: str
    seed: int
    curve: tuple[CurvePoint, ...]
    end: float
    """On the frozen test set, once the budget is spent."""
    at_best_validation: float | None
    """On the frozen test set, where its own validation was best: what somebody who goes by that would keep."""
    seconds: float
    tokens_per_second: float

    @property
    def own_validation(self) -> float | None:
        """At the end."""
        return self.curve[-1].validation if self.curve else None

    @property
    def off_by(self) -> float | None:
        """How much its own validation is above the frozen score; below 0: it promises too much."""
        return None if self.own_validation is None else self.own_validation - self.end


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    unit: str
    budget_tokens: int | None
    """For each run; None: each dataset had as many epochs of its own."""
    datasets: tuple[DatasetFacts, ...]
    runs: tuple[RunResult, ...]
    frozen: FrozenFacts
    verdicts: tuple[Verdict, ...]
    """Once the budget is spent."""
    verdicts_at_best: tuple[Verdict, ...]
    """Where each run's own validation was best."""
    command: str
    """As a user would type it, to repeat it."""
    device: str
    versions: dict[str, str]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def runs_of(self, dataset: str) -> list[RunResult]:
        return [run for run in self.runs if run.dataset == dataset]


class DatasetScoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Over the seeds of one dataset; None where its runs do not say."""

    end: Interval
    at_best_validation: Interval | None
    own_validation: Interval | None
    off_by: Interval | None


def scores_of(comparison: Comparison, dataset: str) -> DatasetScoreFacts:
    runs = comparison.runs_of(dataset)
    return DatasetScoreFacts(
        end=interval_of([run.end for run in runs]),
        at_best_validation=_interval([run.at_best_validation for run in runs]),
        own_validation=_interval([run.own_validation for run in runs]),
        off_by=_interval([run.off_by for run in runs]),
    )


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return interval_of(known) if known and len(known) == len(values) else None


def best_by_validation(curve: Sequence[CurvePoint]) -> CurvePoint | None:
    """The first of the points whose own validation is lowest."""
    known = [point for point in curve if point.validation is not None and not math.isnan(point.validation)]
    return min(known, key=lambda point: math.inf if point.validation is None else point.validation, default=None)


class Band(NamedTuple):
    mean: list[float]
    low: list[float] | None
    high: list[float] | None
    """None: one seed."""


class MeanCurve(NamedTuple):
    """Over the seeds of one dataset."""

    dataset: str
    tokens: list[int]
    test: Band
    validation: Band | None


def curves_of(comparison: Comparison) -> list[MeanCurve]:
    """At the points that all runs of a dataset have."""
    curves = []
    for facts in comparison.datasets:
        runs = [{point.tokens: point for point in run.curve} for run in comparison.runs_of(facts.name)]
        tokens = sorted(set.intersection(*(set(run) for run in runs))) if runs else []
        points = [[run[at] for run in runs] for at in tokens]
        own = [[point.validation for point in here if point.validation is not None] for here in points]
        has_own = bool(own) and all(len(values) == len(runs) for values in own)
        test = _band([[point.test for point in here] for here in points])
        curves.append(MeanCurve(facts.name, tokens, test, _band(own) if has_own else None))
    return curves


def _band(values: Sequence[Sequence[float]]) -> Band:
    intervals = [interval_of(here) for here in values]
    means = [one.mean for one in intervals]
    halves = [one.half_width for one in intervals if one.half_width is not None]
    if len(halves) < len(means) or not means:
        return Band(means, None, None)
    low = [mean - half for mean, half in zip(means, halves, strict=True)]
    return Band(means, low, [mean + half for mean, half in zip(means, halves, strict=True)])
