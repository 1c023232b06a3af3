"""Decide how often each window is in the dataset, from the requested size and weights. The default is once."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.config.settings import SamplingConfig
from gristmill.core.records import Draw, FileKey, PlacedDocument, Split
from gristmill.core.seeded_random import random_fraction
from gristmill.windows.sampling import FileToSample, WeightedGroup, apportion, draw_from_files, group_epochs
from gristmill.windows.weights import Rule, last_matching_rule, weight_rules

NUM_DIGITS = 6

Documents = Sequence[PlacedDocument]
Draws = dict[FileKey, Draw]


class Group(NamedTuple):
    """A group of train files with the same weight, before sampling."""

    rule: Rule
    members: Documents
    epochs: float
    """Number of times that train should contain each window of the group, on average."""
    num_shadowed: int
    """If the group has no files: the number of files that match its rule, but also a later rule, which takes
    precedence."""

    @property
    def num_windows(self) -> int:
        return num_windows(self.members)


class Drawing(NamedTuple):
    """Draws and weights of all documents."""

    draws: Draws
    """Draws by file. A file has no entry if each of its windows has exactly one row."""
    weights: dict[FileKey, float]
    """With --weights-only, weights by file. A file has no entry if its weight is 1."""
    natural: dict[Split, int]
    """Number of windows in each split before sampling."""
    requested: dict[Split, int]
    """Number of windows to draw for each split."""
    groups: list[Group]
    """Groups of train files by weight. Empty if neither weights nor a target size of train are set."""

    def with_draws(self, documents: Documents) -> list[PlacedDocument]:
        """Return the documents that have a draw or a weight, with these fields set. Row counts are not updated."""
        return [
            msgspec.structs.replace(
                document, draw=self.draws.get(document.key), weight=self.weights.get(document.key, document.weight)
            )
            for document in documents
            if document.key in self.draws or document.key in self.weights
        ]


def draw(documents: Documents, config: SamplingConfig) -> Drawing | None:
    """Draw windows by the requested sizes and weights. Return None if no weight is set and each window gets one row."""
    members = {split: [document for document in documents if document.split is split] for split in Split}
    natural = {split: num_windows(split_members) for split, split_members in members.items()}
    requested = _requested_windows(natural, config)
    if not documents or (requested == natural and not config.is_weighted):
        return None
    groups = _groups(members[Split.TRAIN], requested[Split.TRAIN], config)
    draws: Draws = {}
    for split, split_members in members.items():
        if config.draws and split is Split.TRAIN:
            for group, count in zip(groups, _counts(groups), strict=True):
                draws |= _draw(group.members, count, config.seed)
        elif requested[split] != natural[split]:
            draws |= _draw(split_members, requested[split], config.seed)
    weights = _weights(groups) if config.weights_only else {}
    return Drawing(draws, weights, natural, requested, groups)


def _requested_windows(natural: Mapping[Split, int], config: SamplingConfig) -> dict[Split, int]:
    requested = dict(natural)
    if config.max_windows is not None:
        random_numbers = [random_fraction(config.seed, "split", split) for split in natural]
        counts = apportion(config.max_windows, list(natural.values()), random_numbers)
        requested = dict(zip(natural, counts, strict=True))
    if config.target_windows is not None:
        requested[Split.TRAIN] = config.target_windows
    return requested


def _groups(train: Documents, requested: int, config: SamplingConfig) -> list[Group]:
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
    size = requested if config.draws else sum(one.num_windows for one in sizes)
    epochs = group_epochs(sizes, size, config.max_epochs)
    return [
        Group(rule, matching, one, shadowed.get(rule, 0))
        for (rule, matching), one in zip(members.items(), epochs, strict=True)
    ]


def _counts(groups: Sequence[Group]) -> list[int]:
    """Return the number of windows to draw from each group. The counts add up to the rounded total."""
    exact = [group.epochs * group.num_windows for group in groups]
    counts = [math.floor(one) for one in exact]
    by_remainder = sorted(range(len(groups)), key=lambda index: (counts[index] - exact[index], index))
    for index in by_remainder[: round(sum(exact)) - sum(counts)]:
        counts[index] += 1
    return counts


def _draw(documents: Documents, count: int, seed: int) -> Draws:
    """Return the draws by file. A file has no entry if each of its windows has exactly one row."""
    files = [FileToSample(document.key, document.group, document.num_windows) for document in documents]
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
