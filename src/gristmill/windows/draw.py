"""How often each window of a corpus is shown, as sizes and weights ask for. Without any, each is shown once."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.config.settings import SamplingConfig
from gristmill.core.records import Draw, FileKey, PlacedDocument, Split
from gristmill.core.seeded_random import luck
from gristmill.windows.sampling import Sized, WeightedGroup, apportion, drawn_from, epochs_of
from gristmill.windows.weights import Rule, rule_for, rules_of

NUM_DIGITS = 6

Documents = Sequence[PlacedDocument]
Draws = dict[FileKey, Draw]


class Group(NamedTuple):
    """Files of train that one weight holds for, as they are by nature."""

    rule: Rule
    members: Documents
    epochs: float
    """That it is to be shown."""
    num_shadowed: int
    """Files that its rule matches, and a later one too."""

    @property
    def num_windows(self) -> int:
        return num_windows(self.members)


class Drawing(NamedTuple):
    draws: Draws
    """Of documents that are not shown just once."""
    weights: dict[FileKey, float]
    """With --weights-only, of documents whose rows weigh more or less than 1."""
    natural: dict[Split, int]
    """Windows there are, and are wanted."""
    wanted: dict[Split, int]
    groups: list[Group]
    """None where nobody asked for weights or a size of train."""

    def changed(self, documents: Documents) -> list[PlacedDocument]:
        """Those that are drawn or weighed, with that; their sizes are still those of all windows once."""
        return [
            msgspec.structs.replace(
                document, draw=self.draws.get(document.key), weight=self.weights.get(document.key, document.weight)
            )
            for document in documents
            if document.key in self.draws or document.key in self.weights
        ]


def draw(documents: Documents, config: SamplingConfig) -> Drawing | None:
    """None where all is as it is by nature."""
    members = {split: [document for document in documents if document.split is split] for split in Split}
    natural = {split: num_windows(own) for split, own in members.items()}
    wanted = _wanted(natural, config)
    if not documents or (wanted == natural and not config.is_weighted):
        return None
    groups = _groups(members[Split.TRAIN], wanted[Split.TRAIN], config)
    draws: Draws = {}
    for split, own in members.items():
        if config.draws and split is Split.TRAIN:
            for group, count in zip(groups, _counts(groups), strict=True):
                draws |= _draw(group.members, count, config.seed)
        elif wanted[split] != natural[split]:
            draws |= _draw(own, wanted[split], config.seed)
    weights = _weights(groups) if config.weights_only else {}
    return Drawing(draws, weights, natural, wanted, groups)


def _wanted(natural: Mapping[Split, int], config: SamplingConfig) -> dict[Split, int]:
    wanted = dict(natural)
    if config.max_windows is not None:
        lucks = [luck(config.seed, "split", split) for split in natural]
        wanted = dict(zip(natural, apportion(config.max_windows, list(natural.values()), lucks), strict=True))
    if config.target_windows is not None:
        wanted[Split.TRAIN] = config.target_windows
    return wanted


def _groups(train: Documents, wanted: int, config: SamplingConfig) -> list[Group]:
    if not (config.is_weighted or config.draws):
        return []
    rules = rules_of(config)
    members: dict[Rule, list[PlacedDocument]] = {rule: [] for rule in rules}
    for document in train:
        rule = rule_for(rules, document.repo, document.path, document.language)
        members.setdefault(rule, []).append(document)
    shadowed = {
        rule: sum(rule.matches(document.repo, document.path, document.language) for document in train)
        for rule, own in members.items()
        if not own
    }
    sizes = [WeightedGroup(rule.weight, num_windows(own)) for rule, own in members.items()]
    size = wanted if config.draws else sum(one.num_windows for one in sizes)
    epochs = epochs_of(sizes, size, config.max_epochs)
    return [
        Group(rule, own, one, shadowed.get(rule, 0)) for (rule, own), one in zip(members.items(), epochs, strict=True)
    ]


def _counts(groups: Sequence[Group]) -> list[int]:
    """Whole windows, as near as can be to each group's epochs, and together to all of them."""
    exact = [group.epochs * group.num_windows for group in groups]
    counts = [math.floor(one) for one in exact]
    by_rest = sorted(range(len(groups)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_rest[: round(sum(exact)) - sum(counts)]:
        counts[number] += 1
    return counts


def _draw(documents: Documents, count: int, seed: int) -> Draws:
    """Of those that are not shown just once."""
    files = [Sized(document.key, document.group, document.num_windows) for document in documents]
    draws = zip(files, drawn_from(files, count, seed), strict=True)
    return {file.key: one for file, one in draws if (one.passes, one.extra) != (1, 0)}


def _weights(groups: Sequence[Group]) -> dict[FileKey, float]:
    return {
        document.key: round(group.epochs, NUM_DIGITS)
        for group in groups
        for document in group.members
        if group.epochs != 1
    }


def num_windows(documents: Documents) -> int:
    return sum(document.num_windows for document in documents)
