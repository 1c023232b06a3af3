"""How often train goes over its tokens, and what variants there are: told in the manifest."""

from collections import Counter
from collections.abc import Iterator, Mapping

from gristmill.manifest import EpochFacts, VariantFacts
from gristmill.naming import counted
from gristmill.records import FileKey, PreparedDocument, Split, VariantKind, WhyNoVariant
from gristmill.sections import RewriteConfig, VariantsConfig
from gristmill.shaping.windows import WindowShape
from gristmill.steps.decide import Decision
from gristmill.steps.rows import windows_of

VARIANT_WORTH = 0.6
"""Of a copy: one with a tenth of its tokens changed repeats as much as that (Hernandez et al. 2022)."""


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
            tokens=sum(one.num_shown_tokens for one in made),
            missing=dict(sorted(missing.items())),
            model=decision.model if kind is VariantKind.REWRITE else None,
        )
    return facts


def variant_warnings(facts: Mapping[VariantKind, VariantFacts], rewrite: RewriteConfig) -> Iterator[str]:
    if rewrite.endpoint is not None and VariantKind.REWRITE not in facts:
        yield "the endpoint for rewriting is not used: nothing is to be rewritten. Try --variants rewrite=0.2."
    for kind, one in facts.items():
        unanswered = one.missing.get(WhyNoVariant.NO_ANSWER, 0)
        if unanswered:
            yield f"not rewritten, as no answer came: {counted(unanswered, 'file')}. The same command asks again."
        elif one.chosen and not one.made:
            why = ", ".join(f"{count:,} {why}" for why, count in one.missing.items())
            yield f"--variants {kind} has made nothing of {counted(one.chosen, 'file')}: {why}."


def epoch_facts(decision: Decision, shape: WindowShape) -> EpochFacts:
    """How often train goes over its tokens in one pass through the rows, a variant counted as VARIANT_WORTH."""
    train = [document for document in decision.kept if document.split is Split.TRAIN]
    varied: Counter[FileKey] = Counter()
    for one in decision.variants:
        varied[one.key] += _num_distinct(one)
    shown = sum(_epochs(one, shape) * (one.num_tokens - one.num_cut_tokens) for one in train)
    total = sum(one.num_tokens - one.num_cut_tokens for one in train)
    most = max(
        ((_in_effect(one, varied, shape), one.name) for one in train), key=lambda item: item[0], default=(0.0, "")
    )
    own, other = shown / max(total, 1), varied.total() / max(total, 1)
    return EpochFacts(
        shown=round(own, 6),
        varied=round(other, 6),
        effective=round(own + VARIANT_WORTH * other, 6),
        variant_worth=VARIANT_WORTH,
        most=round(most[0], 6),
        most_in=most[1],
    )


def _num_distinct(document: PreparedDocument) -> int:
    """Tokens that its windows show, each once: those of noise overlap as the file's own do."""
    variant = document.variant
    if variant is None or variant.is_text or not variant.places:
        return document.num_uncut_tokens
    covered = end = 0
    for start, stop in sorted(variant.places):
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return round(covered * document.num_windows / len(variant.places))


def _in_effect(document: PreparedDocument, varied: Mapping[FileKey, int], shape: WindowShape) -> float:
    num_tokens = max(document.num_tokens - document.num_cut_tokens, 1)
    return _epochs(document, shape) + VARIANT_WORTH * varied.get(document.key, 0) / num_tokens


def _epochs(document: PreparedDocument, shape: WindowShape) -> float:
    if document.draw is None:
        return 1.0
    num_windows = len(windows_of(document, shape)) if document.draw.extra else 1
    return document.draw.passes + document.draw.extra / num_windows
