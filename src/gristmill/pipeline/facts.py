"""Numbers and warnings that the manifest records about a decision.

gristmill plan uses the same functions to predict the numbers of a build.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gristmill.config.settings import FimConfig, RewriteConfig, SamplingConfig, SplitConfig, VariantsConfig
from gristmill.core.layout import FILES
from gristmill.core.manifest import (
    Decontamination,
    EpochFacts,
    FimFacts,
    SamplingFacts,
    SplitFacts,
    VariantFacts,
    WeightFacts,
)
from gristmill.core.names import counted
from gristmill.core.records import (
    VARIANTS,
    Drop,
    DropReason,
    FileKey,
    FimForm,
    MiddleKind,
    PlacedDocument,
    Reason,
    Split,
    VariantKind,
    WhyNoVariant,
)
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import num_natural_windows
from gristmill.windows.cut import WindowShape
from gristmill.windows.draw import NUM_DIGITS, Drawing, Group, num_windows

MIN_SHARE_DEVIATION = 0.01
"""A build that keeps earlier splits warns if a split's share of all tokens differs from the requested share by more
than this."""
MIN_CUT_SHARE = 1 / 3
"""A build warns if more than this share of a held-out split's tokens is cut."""
MAX_FILES_NAMED = 5
"""Maximum number of files that a warning lists."""
MIN_WEIGHT_DEVIATION = 0.005
"""A build warns if a weight group's share of train's tokens is lower than requested by more than this."""

Documents = Sequence[PlacedDocument]


# Splits.


def split_facts(decision: Decision) -> dict[Split, SplitFacts]:
    members: dict[Split, list[PlacedDocument]] = {split: [] for split in Split}
    for document in decision.kept:
        members[document.split].append(document)
    variants: dict[Split, Sequence[PlacedDocument]] = {split: [] for split in Split} | {Split.TRAIN: decision.variants}
    with_variants = {document.key for document in decision.variants if document.num_windows}
    num_tokens = {split: sum([one.num_uncut_tokens for one in documents]) for split, documents in members.items()}
    facts = {}
    for split, documents in members.items():
        with_rows = [one for one in documents if one.num_windows or (with_variants and one.key in with_variants)]
        facts[split] = SplitFacts(
            files=len(with_rows),
            groups=len({document.group for document in with_rows}),
            windows=sum([document.num_windows for document in (*documents, *variants[split])]),
            tokens=num_tokens[split],
            emitted_tokens=sum([document.num_emitted_tokens for document in (*documents, *variants[split])]),
            share=round(num_tokens[split] / sum(num_tokens.values()), 6),
        )
    return facts


def tokens_by_language(decision: Decision) -> dict[str, dict[Split, int]]:
    """Count the tokens of each language by split. The language with the most tokens comes first."""
    tokens: dict[str, dict[Split, int]] = {}
    for document in decision.kept:
        by_split = tokens.get(document.language)
        if by_split is None:
            by_split = tokens[document.language] = dict.fromkeys(Split, 0)
        by_split[document.split] += document.num_uncut_tokens
    return dict(sorted(tokens.items(), key=lambda item: (-sum(item[1].values()), item[0])))


def split_warnings(
    config: SplitConfig,
    decision: Decision,
    decontamination: Decontamination,
) -> Iterator[str]:
    """Yield warnings about moved files, large cuts, short benchmark texts and split sizes."""
    all_files: Sequence[PlacedDocument | Drop] = (*decision.kept, *decision.drops)
    moved = sorted((file.repo, file.path, file.moved_from) for file in all_files if file.moved_from is not None)
    if moved:
        named = ", ".join(f"{repo}/{path} from {split}" for repo, path, split in moved[:MAX_FILES_NAMED])
        yield (
            f"{counted(len(moved), 'file')} moved to the split of related files: "
            f"{named}{', …' if len(moved) > MAX_FILES_NAMED else ''} (see moved_from in {FILES})."
        )
    yield from _cut_warnings(decision, decontamination)
    for one in decontamination.against:
        if 2 * one.texts_too_short > one.texts:
            yield (
                f"{one.texts_too_short:,} of {counted(one.texts, 'text')} in the benchmark {one.name} cannot be found "
                "in train, because they are shorter than 50 tokens, the minimum length of a shared span."
            )
    before = decontamination.tokens_before
    filled = {document.split for document in decision.kept}
    for split, fraction in config.fractions().items():
        share = before[split] / sum(before.values())
        if fraction and split not in filled:
            why = (
                "files stay in their earlier splits"
                if decision.previous
                else f"there are too few files ({counted(len(decision.kept), 'file')})"
            )
            if before[split]:
                yield (
                    f"{split} is empty: no window of its {before[split]:,} tokens was left after cutting spans that "
                    "also occur elsewhere."
                )
            else:
                yield f"{split} is empty instead of having {fraction:.0%} of the tokens: {why}."
        elif decision.previous and abs(share - fraction) > MIN_SHARE_DEVIATION:
            yield (
                f"{split} has {share:.1%} of the tokens instead of the requested {fraction:.1%}, because files stay in "
                "their earlier splits. Use --fresh-splits to ignore the earlier splits."
            )


def _cut_warnings(decision: Decision, facts: Decontamination) -> Iterator[str]:
    """Warn if much of a held-out split is also in train, and name the files with the largest cuts."""
    for split, num_cut in facts.tokens_cut.items():
        if split is Split.TRAIN or num_cut <= MIN_CUT_SHARE * facts.tokens_before[split]:
            continue
        members = [document for document in decision.kept if document.split is split]
        worst = sorted(members, key=lambda document: (-document.num_cut_tokens, document.key))[:MAX_FILES_NAMED]
        named = ", ".join(f"{document.name} ({document.num_cut_tokens:,})" for document in worst if document.cuts)
        contaminated = [
            drop for drop in decision.drops if drop.reason is DropReason.CONTAMINATED and drop.split is split
        ]
        largest = f" Largest cuts, in tokens: {named}." if named else ""
        dropped = f" Dropped completely: {counted(len(contaminated), 'file')}." if contaminated else ""
        yield (
            f"{num_cut / facts.tokens_before[split]:.0%} of {split}'s tokens were cut, because of spans that also "
            f"occur in train.{largest}{dropped} Exclude these files, or try --split-by directory."
        )


# Weights and sizes, requested and realized, including variants.


class _GroupTokens(NamedTuple):
    """Documents of a weight group after sampling, and the tokens in their rows and in the rows of their variants."""

    documents: Documents
    num_tokens: float
    num_variant_tokens: float

    @property
    def num_all_tokens(self) -> float:
        return self.num_tokens + self.num_variant_tokens


def sampling_facts(drawing: Drawing | None, decision: Decision, config: SamplingConfig) -> SamplingFacts | None:
    if drawing is None:
        return None
    documents_by_key = {document.key: document for document in decision.kept}
    variant_tokens: Counter[FileKey] = Counter()
    for one in decision.variants:
        variant_tokens[one.key] += one.num_window_tokens
    group_tokens = [_count_group_tokens(group, documents_by_key, variant_tokens, config) for group in drawing.groups]
    windows = dict.fromkeys(Split, 0)
    for document in decision.kept:
        windows[document.split] += document.num_windows
    weight_names = {*config.weights}
    return SamplingFacts(
        natural_windows=drawing.natural,
        wanted_windows=drawing.requested,
        windows=windows,
        groups=[
            facts
            for facts in _weight_facts(drawing.groups, group_tokens, config)
            if facts.files or facts.name in weight_names
        ],
    )


def _count_group_tokens(
    group: Group,
    documents_by_key: Mapping[FileKey, PlacedDocument],
    variant_tokens: Mapping[FileKey, int],
    config: SamplingConfig,
) -> _GroupTokens:
    """Count the tokens of a group. With --weights-only, count a token as often as a trainer samples it on average."""
    documents = [documents_by_key.get(document.key, document) for document in group.members]
    times = group.epochs if config.weights_only else 1
    num_variant_tokens = sum(variant_tokens.get(document.key, 0) for document in group.members)
    return _GroupTokens(documents, times * _num_tokens(documents), times * num_variant_tokens)


def _weight_facts(
    groups: Sequence[Group], group_tokens: Sequence[_GroupTokens], config: SamplingConfig
) -> Iterator[WeightFacts]:
    natural = [_num_tokens(group.members) for group in groups]
    requested = [group.rule.weight * count for group, count in zip(groups, natural, strict=True)]
    num_realized = sum(one.num_all_tokens for one in group_tokens)
    for index, (group, tokens) in enumerate(zip(groups, group_tokens, strict=True)):
        count = num_windows(tokens.documents)
        yield WeightFacts(
            name=group.rule.group,
            weight=group.rule.weight,
            files=len(group.members),
            natural_windows=group.num_windows,
            natural_share=_share(natural[index], sum(natural)),
            requested_share=_share(requested[index], sum(requested)),
            realised_share=_share(tokens.num_all_tokens, num_realized),
            windows=count,
            epochs=round(group.epochs if config.weights_only else count / max(group.num_windows, 1), NUM_DIGITS),
            shadowed_files=group.num_shadowed,
            largest_repeat=max(
                (_num_passes(document) - 1 for document in tokens.documents if document.num_windows), default=0
            ),
        )


def _num_passes(document: PlacedDocument) -> int:
    return 1 if document.draw is None else document.draw.passes + bool(document.draw.extra)


def _num_tokens(documents: Documents) -> int:
    return sum(document.num_window_tokens for document in documents)


def _share(part: float, total: float) -> float:
    return round(part / total, NUM_DIGITS) if total else 0.0


def sampling_warnings(facts: SamplingFacts | None, config: SamplingConfig, *, has_variants: bool) -> Iterator[str]:
    """Yield a warning, with the difference, for each requested size or weight that is not reached."""
    if facts is None:
        return
    wanted, drawn = facts.wanted_windows[Split.TRAIN], facts.windows[Split.TRAIN]
    if drawn < wanted:
        fewer = f"{counted(drawn, 'window')} instead of the requested {wanted:,} ({wanted - drawn:,} fewer)"
        yield f"train has {fewer}: {_reason_for_few_windows(facts, config)}."
    for split, count in facts.windows.items():
        if not count and facts.wanted_windows[split] == 0 < facts.natural_windows[split]:
            windows = counted(facts.natural_windows[split], "window")
            yield f"{split} is empty: it had {windows}, but none was drawn, because too few windows were requested."
    for group in facts.groups:
        missing = group.requested_share - group.realised_share
        if not group.files:
            overridden = f"a later --weight applies to the {counted(group.shadowed_files, 'matching file')}"
            why = overridden if group.shadowed_files else "no file matches"
            yield f"--weight {group.name!r} applies to no file of train: {why}."
        elif missing > MIN_WEIGHT_DEVIATION:
            yield (
                f"{group.name} has {group.realised_share:.1%} of train's tokens instead of the requested "
                f"{group.requested_share:.1%} ({100 * missing:.1f} points less): "
                f"{_gap_reason(group, config, has_variants=has_variants)}."
            )


def _reason_for_few_windows(facts: SamplingFacts, config: SamplingConfig) -> str:
    if not facts.natural_windows[Split.TRAIN]:
        return "no file is in train"
    if not any(group.weight for group in facts.groups if group.files):
        return "every file of train has weight 0"
    needed = math.ceil(facts.wanted_windows[Split.TRAIN] / facts.natural_windows[Split.TRAIN])
    missing = (
        f"would have to occur {counted(needed, 'time')}"
        if needed > config.max_epochs
        else "some weight groups have too few files"
    )
    most = counted(config.max_epochs, "time")
    return f"a window may occur at most {most} (--max-epochs), but {missing}. Try --variants"


def _gap_reason(group: WeightFacts, config: SamplingConfig, *, has_variants: bool) -> str:
    if group.epochs >= config.max_epochs:
        return f"each of its windows already occurs {counted(config.max_epochs, 'time')}, the limit of --max-epochs"
    return "variants add tokens to other groups" if has_variants else "there are too few windows to divide exactly"


# Variants, fill-in-the-middle and epochs.

VARIANT_WORTH = 0.6
"""Weight of a variant in effective epochs. An exact copy has weight 1.

The value is for a copy with a tenth of its tokens changed (Hernandez et al. 2022).
"""


def variant_facts(decision: Decision, config: VariantsConfig) -> dict[VariantKind, VariantFacts]:
    facts = {}
    for kind, rate in config.rates.items():
        made = [one for one in decision.variants if one.variant is not None and one.variant.kind is kind]
        missing = Counter(one.why for one in decision.no_variants if one.kind is kind)
        facts[kind] = VariantFacts(
            rate=rate,
            chosen=len(made) + missing.total(),
            made=len(made),
            windows=sum(one.num_windows for one in made),
            tokens=sum(one.num_window_tokens for one in made),
            missing=dict(sorted(missing.items())),
            model=decision.model if VARIANTS[kind].needs_model else None,
        )
    return facts


def fim_facts(decision: Decision, config: FimConfig) -> FimFacts | None:
    if not config.is_enabled:
        return None
    rewritten = [one for one in decision.kept if one.fim is not None]
    windows = [window for one in rewritten if one.fim is not None for window in one.fim.windows]
    forms, middles = Counter(one.form for one in windows), Counter(one.middle for one in windows)
    missing = Counter(one.why for one in decision.not_rewritten)
    return FimFacts(
        rate=config.rate or 0.0,
        chosen=len(rewritten) + missing.total(),
        rewritten=len(rewritten),
        forms={form: forms[form] for form in FimForm},
        middles={kind: middles[kind] for kind in MiddleKind if middles[kind]},
        plain=forms[None],
        missing=dict(sorted(missing.items())),
    )


def fim_warnings(facts: FimFacts | None) -> Iterator[str]:
    if facts is not None and facts.chosen and not facts.rewritten:
        yield f"--fim rewrote 0 of {counted(facts.chosen, 'chosen file')}: {_reasons_text(facts.missing.items())}."


def variant_warnings(facts: Mapping[VariantKind, VariantFacts], rewrite: RewriteConfig) -> Iterator[str]:
    if rewrite.endpoint is not None and VariantKind.REWRITE not in facts:
        yield "the endpoint for rewriting is not used: --variants does not include rewrite. Try --variants rewrite=0.2."
    for kind, one in facts.items():
        unanswered = one.missing.get(WhyNoVariant.NO_ANSWER, 0)
        if unanswered:
            yield (
                f"{counted(unanswered, 'file')} not rewritten: the language model did not answer. "
                "Run the same command to ask again."
            )
        elif one.chosen and not one.made:
            yield (
                f"--variants {kind} made no variant of {counted(one.chosen, 'chosen file')}: "
                f"{_reasons_text(one.missing.items())}."
            )


def _reasons_text(counts: Iterable[tuple[Reason, int]]) -> str:
    """Return each reason with its count and meaning: `2 no_middle (the file is too short)`."""
    return ", ".join(f"{count:,} {why} ({why.meaning})" for why, count in counts)


def epoch_facts(decision: Decision, shape: WindowShape) -> EpochFacts:
    """Compute how often one pass over the rows shows the tokens of train. A variant has weight VARIANT_WORTH."""
    train = [document for document in decision.kept if document.split is Split.TRAIN]
    variant_tokens: Counter[FileKey] = Counter()
    for one in decision.variants:
        variant_tokens[one.key] += _num_distinct(one)
    num_shown = sum(_epochs(one, shape) * (one.num_file_tokens - one.num_cut_tokens) for one in train)
    total = sum(one.num_file_tokens - one.num_cut_tokens for one in train)
    most = max(
        ((_effective_epochs(one, variant_tokens, shape), one.name) for one in train),
        key=lambda item: item[0],
        default=(0.0, ""),
    )
    file_epochs, variant_epochs = num_shown / max(total, 1), variant_tokens.total() / max(total, 1)
    return EpochFacts(
        shown=round(file_epochs, 6),
        varied=round(variant_epochs, 6),
        effective=round(file_epochs + VARIANT_WORTH * variant_epochs, 6),
        variant_worth=VARIANT_WORTH,
        most=round(most[0], 6),
        most_in=most[1],
    )


def _num_distinct(document: PlacedDocument) -> int:
    """Count the file tokens in a document's windows, each token once. Windows with noise may overlap."""
    variant = document.variant
    if variant is None or variant.is_text or not variant.file_ranges:
        return document.num_uncut_tokens
    covered = end = 0
    for start, stop in sorted(variant.file_ranges):
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return round(covered * document.num_windows / len(variant.file_ranges))


def _effective_epochs(document: PlacedDocument, variant_tokens: Mapping[FileKey, int], shape: WindowShape) -> float:
    num_tokens = max(document.num_file_tokens - document.num_cut_tokens, 1)
    return _epochs(document, shape) + VARIANT_WORTH * variant_tokens.get(document.key, 0) / num_tokens


def _epochs(document: PlacedDocument, shape: WindowShape) -> float:
    if document.draw is None:
        return 1.0
    num_windows = num_natural_windows(document, shape) if document.draw.extra else 1
    return document.draw.passes + document.draw.extra / num_windows
