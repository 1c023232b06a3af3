"""Still step 2: how often each window is shown. By nature, every one once, and nothing is done here."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.config import SamplingConfig
from gristmill.manifest import SamplingFacts, WeightFacts
from gristmill.progress import MapFunction
from gristmill.records import Draw, FileKey, PreparedDocument, Split
from gristmill.shaping.sampling import Sized, WeightedGroup, apportion, drawn_from, epochs_of, luck
from gristmill.shaping.weighting import Rule, rule_for, rules_of
from gristmill.steps.context import Context
from gristmill.steps.measuring import measure_again

DRAWN = "drawn"
NUM_DIGITS = 6
WORTH_SAYING = 0.005
"""Of train's tokens, between what was asked for and what came of it."""

Documents = Sequence[PreparedDocument]
Draws = dict[FileKey, Draw]


class _Group(NamedTuple):
    """Files of train that one weight holds for."""

    rule: Rule
    members: Documents
    epochs: float

    @property
    def num_windows(self) -> int:
        return _num_windows(self.members)

    @property
    def num_tokens(self) -> int:
        return _num_tokens(self.members)


def draw(
    context: Context, documents: Documents, map_tasks: MapFunction
) -> tuple[list[PreparedDocument], SamplingFacts | None]:
    """Documents with what is shown of them, and what came of the weights; None where all is as it is by nature."""
    config = context.config.sampling
    members = {split: [document for document in documents if document.split is split] for split in Split}
    natural = {split: _num_windows(own) for split, own in members.items()}
    wanted = _wanted(natural, config)
    if wanted == natural and not config.is_weighted:
        return list(documents), None
    groups = _groups(members[Split.TRAIN], wanted[Split.TRAIN], config)
    draws: Draws = {}
    for split, own in members.items():
        if config.draws and split is Split.TRAIN:
            for group, count in zip(groups, _counts(groups), strict=True):
                draws |= _draw(group.members, count, config.seed)
        elif wanted[split] != natural[split]:
            draws |= _draw(own, wanted[split], config.seed)
    weights = _weights(groups) if config.weights_only else {}
    changed = [
        msgspec.structs.replace(
            document, draw=draws.get(document.key), weight=weights.get(document.key, document.weight)
        )
        for document in documents
        if document.key in draws or document.key in weights
    ]
    again = {document.key: document for document in measure_again(context, changed, map_tasks, name=DRAWN)}
    drawn = [again.get(document.key, document) for document in documents]
    facts = SamplingFacts(
        natural_windows=natural,
        wanted_windows=wanted,
        groups={
            group.rule.group: facts
            for group, facts in _facts(groups, again, config)
            if facts.files or group.rule.group in config.weights
        },
    )
    return drawn, facts


def _wanted(natural: Mapping[Split, int], config: SamplingConfig) -> dict[Split, int]:
    wanted = dict(natural)
    if config.max_windows is not None:
        lucks = [luck(config.seed, "split", split) for split in natural]
        wanted = dict(zip(natural, apportion(config.max_windows, list(natural.values()), lucks), strict=True))
    if config.target_windows is not None and natural[Split.TRAIN]:
        wanted[Split.TRAIN] = config.target_windows
    return wanted


def _groups(train: Documents, num_windows: int, config: SamplingConfig) -> list[_Group]:
    rules = rules_of(config)
    members: dict[Rule, list[PreparedDocument]] = {rule: [] for rule in rules}
    for document in train:
        rule = rule_for(rules, document.repo, document.path, document.language)
        members.setdefault(rule, []).append(document)
    sizes = [WeightedGroup(rule.weight, _num_windows(own)) for rule, own in members.items()]
    size = num_windows if config.draws else sum(one.num_windows for one in sizes)
    epochs = epochs_of(sizes, size, config.max_epochs)
    return [_Group(rule, own, one) for (rule, own), one in zip(members.items(), epochs, strict=True)]


def _counts(groups: Sequence[_Group]) -> list[int]:
    """Whole windows, as near as can be to each group's epochs, and together to all of them."""
    exact = [group.epochs * group.num_windows for group in groups]
    counts = [math.floor(one) for one in exact]
    by_rest = sorted(range(len(groups)), key=lambda number: (counts[number] - exact[number], number))
    for number in by_rest[: round(sum(exact)) - sum(counts)]:
        counts[number] += 1
    return counts


def _draw(documents: Documents, num_windows: int, seed: int) -> Draws:
    """Of those that are not shown just once."""
    files = [Sized(document.key, document.group or "", document.num_windows) for document in documents]
    draws = zip(files, drawn_from(files, num_windows, seed), strict=True)
    return {file.key: one for file, one in draws if (one.passes, one.extra) != (1, 0)}


def _weights(groups: Sequence[_Group]) -> dict[FileKey, float]:
    return {
        document.key: round(group.epochs, NUM_DIGITS)
        for group in groups
        for document in group.members
        if group.epochs != 1
    }


def _facts(
    groups: Sequence[_Group], again: Mapping[FileKey, PreparedDocument], config: SamplingConfig
) -> Iterator[tuple[_Group, WeightFacts]]:
    """Of `--weights-only`: what a trainer that draws by the weights will see."""
    shown = [[again.get(document.key, document) for document in group.members] for group in groups]
    tokens = [
        group.epochs * group.num_tokens if config.weights_only else _num_tokens(own)
        for group, own in zip(groups, shown, strict=True)
    ]
    asked_for = sum(group.rule.weight * group.num_tokens for group in groups)
    for group, own, num_tokens in zip(groups, shown, tokens, strict=True):
        num_windows = group.num_windows
        epochs = group.epochs if config.weights_only else _num_windows(own) / max(num_windows, 1)
        yield (
            group,
            WeightFacts(
                weight=group.rule.weight,
                files=len(group.members),
                natural_windows=num_windows,
                natural_share=_share(group.num_tokens, sum(one.num_tokens for one in groups)),
                requested_share=_share(group.rule.weight * group.num_tokens, asked_for),
                realised_share=_share(num_tokens, sum(tokens)),
                windows=_num_windows(own),
                epochs=round(epochs, NUM_DIGITS),
                largest_repeat=max(math.ceil(round(epochs, NUM_DIGITS)) - 1, 0) if not config.weights_only else 0,
            ),
        )


def _share(part: float, whole: float) -> float:
    return round(part / whole, NUM_DIGITS) if whole else 0.0


def _num_windows(documents: Documents) -> int:
    return sum(document.num_windows for document in documents)


def _num_tokens(documents: Documents) -> int:
    return sum(document.num_shown_tokens for document in documents)


def sampling_warnings(facts: SamplingFacts | None, config: SamplingConfig) -> Iterator[str]:
    """What was asked for and cannot be, and by how much."""
    if facts is None:
        return
    wanted, drawn = facts.wanted_windows[Split.TRAIN], sum(group.windows for group in facts.groups.values())
    if config.draws and drawn < wanted:
        yield (
            f"train has {drawn:,} windows where {wanted:,} were asked for ({wanted - drawn:,} fewer): none is shown "
            f"more than {config.max_epochs:g} times (--max-epochs)."
        )
    for name, group in facts.groups.items():
        missing = group.requested_share - group.realised_share
        if not group.files and name in config.weights:
            yield f"--weight {name!r} is for no file of train: none matches, or a later one matches too."
        elif missing > WORTH_SAYING:
            yield (
                f"{name} has {group.realised_share:.1%} of train's tokens where {group.requested_share:.1%} were asked "
                f"for ({100 * missing:.1f} points less): its windows are shown {group.epochs:.1f} times, and "
                f"{config.max_epochs:g} is the most (--max-epochs)."
            )
