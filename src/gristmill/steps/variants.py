"""Still step 2: which files of train get which variants, and which of those are real.

A variant that was made counts if no text of the corpus is the same, and if it shares no span of 50 tokens with a
held-out file, or a benchmark, that its own file does not share.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from gristmill.grouping.leakage import SPAN_TOKENS, span_keys
from gristmill.intake.benchmarks import Benchmark
from gristmill.progress import MapFunction
from gristmill.records import NoVariant, PreparedDocument, Split, VariantKind, WhyNoVariant
from gristmill.sections import VariantsConfig
from gristmill.shaping.chance import luck, number_of
from gristmill.shaping.neighbours import neighbours
from gristmill.shaping.variants.grammars import is_parsable
from gristmill.steps.blocks import IdReader
from gristmill.steps.compare import Shared, compare
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision
from gristmill.steps.decontaminate import sides_of, tokenized
from gristmill.steps.make_variants import Chosen
from gristmill.steps.vary import variants_in

CHOSEN_TOKENS = 1 << 18
"""Of the documents that one task varies."""
JUDGED_AT_ONCE = 64
SEED_BITS = 31
WITHOUT_GRAMMAR = frozenset({VariantKind.NOISE, VariantKind.FIM})


def choose(documents: Iterable[PreparedDocument], config: VariantsConfig) -> tuple[list[Chosen], list[NoVariant]]:
    """Of train, and of what is shown of it; and those for which it cannot be."""
    chosen: list[Chosen] = []
    missing: list[NoVariant] = []
    for document in documents:
        if document.split is not Split.TRAIN or not document.num_windows:
            continue
        kinds = []
        for kind, rate in config.rates.items():
            if luck(config.seed, "variant", kind, *document.key) > rate:
                continue
            why = _why_not(document, kind)
            if why is None:
                kinds.append((kind, number_of(config.seed, kind, *document.key) >> (64 - SEED_BITS)))
            else:
                missing.append(NoVariant(*document.key, kind, why))
        if kinds:
            chosen.append(Chosen(document, tuple(kinds)))
    return chosen, missing


def _why_not(document: PreparedDocument, kind: VariantKind) -> WhyNoVariant | None:
    if document.cuts:
        return WhyNoVariant.FILE_WAS_CUT
    if kind not in WITHOUT_GRAMMAR and not is_parsable(document.language):
        return WhyNoVariant.LANGUAGE_NOT_KNOWN
    return None


def tasks_for(chosen: Sequence[Chosen]) -> list[list[Chosen]]:
    return list(neighbours(chosen, lambda one: one.document.num_tokens, CHOSEN_TOKENS))


def real_variants(
    context: Context,
    decision: Decision,
    parts: Sequence[str],
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> tuple[list[PreparedDocument], list[NoVariant]]:
    """Of all that were made, those that count; and why the others do not."""
    made: list[PreparedDocument] = []
    missing: list[NoVariant] = []
    for part in parts:
        documents, failed = variants_in(context, part)
        made += documents
        missing += failed
    is_new = _are_new(made, decision)
    shares = _shares_span(context, made, decision, benchmarks, map_tasks)
    kept = []
    for number, document in enumerate(made):
        assert document.variant is not None
        if not is_new[number]:
            missing.append(NoVariant(*document.key, document.variant.kind, WhyNoVariant.DUPLICATE))
        elif number in shares:
            missing.append(NoVariant(*document.key, document.variant.kind, WhyNoVariant.SHARES_SPAN))
        else:
            kept.append(document)
    return kept, missing


def _are_new(made: Sequence[PreparedDocument], decision: Decision) -> list[bool]:
    """Neither the text of a file that was tokenized, kept or not, nor of a variant before it."""
    known = {document.text_sha256 for document in decision.kept}
    known |= {drop.text_sha256 for drop in decision.drops if drop.text_sha256 is not None}
    answers = []
    for document in made:
        answers.append(document.text_sha256 not in known)
        known.add(document.text_sha256)
    return answers


def _shares_span(
    context: Context,
    made: Sequence[PreparedDocument],
    decision: Decision,
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> set[int]:
    """Those, by number, that have a span of a held-out file or a benchmark which their own file has not."""
    held_out = [document for document in decision.kept if document.split is not Split.TRAIN]
    others = [*held_out, *tokenized(context, benchmarks)]
    if not made or not others:
        return set()
    sides = sides_of(context, "variants", others, made)
    found = compare(others, made, sides, map_tasks, cut="large")
    file_of = {document.key: document for document in decision.kept}
    suspects = [
        Suspect(number, made[number], file_of[made[number].key], shared)
        for number, shared in found.items()
        if shared.cuts
    ]
    runs = [suspects[at : at + JUDGED_AT_ONCE] for at in range(0, len(suspects), JUDGED_AT_ONCE)]
    return {number for guilty in map_tasks(partial(bringing_new, context), runs) for number in guilty}


class Suspect(NamedTuple):
    number: int
    variant: PreparedDocument
    file: PreparedDocument
    shared: Shared


def bringing_new(context: Context, suspects: Sequence[Suspect]) -> list[int]:
    guilty = []
    with IdReader(context.prepared, context.tokenizer.vocab_size) as reader:
        for one in suspects:
            ids, own = reader.ids_of(one.variant), reader.ids_of(one.file)
            starts = _shared_starts(one.shared)
            theirs = span_keys(own, np.arange(max(len(own) - SPAN_TOKENS + 1, 0)))
            if not np.isin(span_keys(ids, starts), theirs).all():
                guilty.append(one.number)
    return guilty


def _shared_starts(shared: Shared) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Of the 50-grams in ranges that count."""
    runs = np.frombuffer(shared.runs, np.int32).reshape(-1, 3)
    ranges = [np.arange(first, last + 1) for first, last, _ in runs.tolist()]
    starts = np.unique(np.concatenate([np.zeros(0, np.int64), *ranges]))
    counts = np.zeros(len(starts), np.bool_)
    for cut in shared.cuts:
        counts |= (starts >= cut.start) & (starts + SPAN_TOKENS <= cut.end)
    return starts[counts]
