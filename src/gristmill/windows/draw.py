"""Decide how often each window is in the dataset, by the requested size and weights. The default is once."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.config.settings import SamplingConfig
from gristmill.core.records import Draw, FileKey, PlacedDocument, Split
from gristmill.core.seeded_random import random_fraction
from gristmill.windows.sampling import FileSize, WeightedGroup, apportion, draw_from_files, group_epochs
from gristmill.windows.weights import Rule, last_matching_rule, weight_rules

NUM_DIGITS = 6

Documents = Sequence[PlacedDocument]
Draws = dict[FileKey, Draw]


class Group(NamedTuple):
    """Train files with one weight, before sampling."""

    rule: Rule
    members: Documents
    epochs: float
    """Number of times that train should contain each of its windows, on average."""
    num_shadowed: int
    """For a rule without files, the number of files that match it but also a later rule."""

    @property
    def num_windows(self) -> int:
        return num_windows(self.members)


class Drawing(NamedTuple):
    """Draws and weights of all documents."""

    draws: Draws
    """Draws of documents whose windows do not all have exactly one row."""
    weights: dict[FileKey, float]
    """With --weights-only, weights of documents whose weight is not 1."""
    natural: dict[Split, int]
    """Number of windows before sampling."""
    requested: dict[Split, int]
    """Number of windows to draw."""
    groups: list[Group]
    """Empty if neither weights nor a size of train are configured."""

    def with_draws(self, documents: Documents) -> list[PlacedDocument]:
        """Return the documents with a draw or weight, with it set. Their sizes still count each window once."""
        return [
            msgspec.structs.replace(
                document, draw=self.draws.get(document.key), weight=self.weights.get(document.key, document.weight)
            )
            for document in documents
            if document.key in self.draws or document.key in self.weights
        ]


def draw(documents: Documents, config: SamplingConfig) -> Drawing | None:
    """Draw windows by the requested sizes and weights. Return None if each window has one row."""
    members = {split: [document for document in documents if document.split is split] for split in Split}
    natural = {split: num_windows(split_members) for split, split_members in members.items()}
    wanted = _wanted(natural, config)
    if not documents or (wanted == natural and not config.is_weighted):
        return None
    groups = _groups(members[Split.TRAIN], wanted[Split.TRAIN], config)
    draws: Draws = {}
    for split, split_members in members.items():
        if config.draws and split is Split.TRAIN:
            for group, count in zip(groups, _counts(groups), strict=True):
                draws |= _draw(group.members, count, config.seed)
        elif wanted[split] != natural[split]:
            draws |= _draw(split_members, wanted[split], config.seed)
    weights = _weights(groups) if config.weights_only else {}
    return Drawing(draws, weights, natural, wanted, groups)


def _wanted(natural: Mapping[Split, int], config: SamplingConfig) -> dict[Split, int]:
    wanted = dict(natural)
    if config.max_windows is not None:
        random_numbers = [random_fraction(config.seed, "split", split) for split in natural]
        wanted = dict(zip(natural, apportion(config.max_windows, list(natural.values()), random_numbers), strict=True))
    if config.target_windows is not None:
        wanted[Split.TRAIN] = config.target_windows
    return wanted


def _groups(train: Documents, wanted: int, config: SamplingConfig) -> list[Group]:
    if not (config.is_weighted or config.draws):
        return []
    rules = weight_rules(config)
    members: dict[Rule, list[PlacedDocument]] = {rule: [] for rule in rules}
    for document in train:
        rule = last_matching_rule(rules, document.repo, document.path, document.language)
        members.setdefault(rule, []).append(document)
    shadowed = {
        rule: sum(rule.matches(document.repo, document.path, document.language) for document in train)
        for rule, matching in members.items()
        if not matching
    }
    sizes = [WeightedGroup(rule.weight, num_windows(matching)) for rule, matching in members.items()]
    size = wanted if config.draws else sum(one.num_windows for one in sizes)
    epochs = group_epochs(sizes, size, config.max_epochs)
    return [
        Group(rule, matching, one, shadowed.get(rule, 0))
        for (rule, matching), one in zip(members.items(), epochs, strict=True)
    ]


def _counts(groups: Sequence[Group]) -> list[int]:
    """Return the number of windows to draw from each group, rounded such that the sum is right."""
    exact = [group.epochs * group.num_windows for group in groups]
    counts = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(groups)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_remainder[: round(sum(exact)) - sum(counts)]:
        counts[number] += 1
    return counts


def _draw(documents: Documents, count: int, seed: int) -> Draws:
    """Return the draws of documents whose windows do not all have exactly one row."""
    files = [FileSize(document.key, document.group, document.num_windows) for document in documents]
    draws = zip(files, draw_from_files(files, count, seed), strict=True)
    return {file.key: one for file, one in draws if (one.passes, one.extra) != (1, 0)}


def _weights(groups: Sequence[Group]) -> dict[FileKey, float]:
    return {
        document.key: round(group.epochs, NUM_DIGITS)
        for group in groups
        for document in group.members
        if group.epochs != 1
    }


def num_windows(documents: Documents) -> int:
    """Return the total number of windows of the documents."""
    return sum(document.num_windows for document in documents)
