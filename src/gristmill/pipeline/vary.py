"""Variants of train files, over a runner: choose ─► rewrite (by a language model, if wanted) ─► vary ─► real ones."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from gristmill.cleaning.secrets import redact
from gristmill.config.settings import SecretsConfig, VariantsConfig
from gristmill.core.layout import write_atomically
from gristmill.core.partition import steady_neighbours
from gristmill.core.progress import MapFunction, Progress
from gristmill.core.records import (
    VARIANTS,
    AnyStoredText,
    NoVariant,
    PlacedDocument,
    Split,
    VariantKind,
    WhyNoVariant,
)
from gristmill.core.seeded_random import luck, number_of
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.decontaminate import sides_of, tokenized
from gristmill.pipeline.over_documents import over_documents
from gristmill.pipeline.parts import IdReader, read_blocks, text_of
from gristmill.pipeline.variant_parts import Chosen, variants_in, vary
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.shared_spans import SPAN_TOKENS, span_keys
from gristmill.splits.span_join import Shared, compare
from gristmill.variants.endpoint import Endpoint
from gristmill.variants.grammars import is_parsable
from gristmill.variants.rewrite import Rewriter, RewriteTask, Rewritten

if TYPE_CHECKING:
    from pathlib import Path


# Still step 2: which files of train get which variants, and which of those are real.

CHOSEN_TOKENS = 1 << 18
"""Of the documents that one task varies."""
JUDGED_AT_ONCE = 64
SEED_BITS = 31


def choose(documents: Iterable[PlacedDocument], config: VariantsConfig) -> tuple[list[Chosen], list[NoVariant]]:
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


def _why_not(document: PlacedDocument, kind: VariantKind) -> WhyNoVariant | None:
    if document.cuts:
        return WhyNoVariant.FILE_WAS_CUT
    if VARIANTS[kind].needs_grammar and not is_parsable(document.language):
        return WhyNoVariant.LANGUAGE_NOT_KNOWN
    return None


def tasks_for(chosen: Sequence[Chosen]) -> list[list[Chosen]]:
    return list(
        steady_neighbours(
            chosen, lambda one: one.document.path, lambda one: one.document.num_file_tokens, CHOSEN_TOKENS
        )
    )


def real_variants(
    context: Context,
    decision: Decision,
    parts: Sequence[str],
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> tuple[list[PlacedDocument], list[NoVariant]]:
    """Of all that were made, those that count; and why the others do not."""
    made: list[PlacedDocument] = []
    missing: list[NoVariant] = []
    files = {document.key: document for document in decision.kept}
    for part in parts:
        documents, failed = variants_in(context, part)
        made += (_beside(document, files[document.key]) for document in documents)
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


def _beside(variant: PlacedDocument, file: PlacedDocument) -> PlacedDocument:
    """A variant with what this build knows of its file: an earlier build may have made its part."""
    known = ("license", "license_from", "group", "split", "moved_from")
    return msgspec.structs.replace(variant, **{name: getattr(file, name) for name in known})


def _are_new(made: Sequence[PlacedDocument], decision: Decision) -> list[bool]:
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
    made: Sequence[PlacedDocument],
    decision: Decision,
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> set[int]:
    """Those, by number, that have a span of a held-out file or a benchmark which their own file has not."""
    held_out = [document for document in decision.kept if document.split is not Split.TRAIN]
    others: list[AnyStoredText] = [*held_out, *tokenized(context, benchmarks)]
    if not made or not others:
        return set()
    sides = sides_of(context, "variants", others, made)
    found = compare(others, made, sides, map_tasks, cut="large")
    file_of = {document.key: document.as_file() for document in decision.kept}
    suspects = [
        Suspect(number, made[number], file_of[made[number].key], shared)
        for number, shared in found.items()
        if shared.cuts
    ]
    runs = [suspects[at : at + JUDGED_AT_ONCE] for at in range(0, len(suspects), JUDGED_AT_ONCE)]
    return {number for guilty in map_tasks(partial(bringing_new, context), runs) for number in guilty}


class Suspect(NamedTuple):
    number: int
    variant: PlacedDocument
    file: PlacedDocument
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


def with_variants(
    context: Context, decision: Decision, benchmarks: Sequence[Benchmark], runner: Runner, progress: Progress
) -> Decision:
    config = context.config
    chosen, missing = choose(decision.kept, config.variants)
    model = None
    if any(VariantKind.REWRITE in dict(one.kinds) for one in chosen):
        chosen, model = _with_answers(context, chosen, progress)
    with progress.phase("vary", total=len(chosen)) as step:
        parts, failed = over_documents(context, partial(vary, context), tasks_for(chosen), runner, step)
        variants, more = real_variants(context, decision, parts, benchmarks, runner.map)
    kinds_of = {one.document.key: one.kinds for one in chosen}
    missing += [NoVariant(*key, kind, WhyNoVariant.FAILED) for key in failed for kind, _ in kinds_of[key]]
    missing += more
    return msgspec.structs.replace(decision, variants=variants, no_variants=missing, variant_parts=parts, model=model)


def _with_answers(context: Context, chosen: Sequence[Chosen], progress: Progress) -> tuple[list[Chosen], str]:
    """With what the language model makes of those that are to be rewritten, in a file each; and its name."""
    answers: dict[int, Path] = {}
    missing: dict[int, WhyNoVariant] = {}
    wanted = sum(VariantKind.REWRITE in dict(one.kinds) for one in chosen)
    with progress.phase("rewrite", total=wanted) as step, _rewriter(context) as rewriter:
        for task, outcome in rewriter.rewrite_all(_rewrite_tasks(context, chosen)):
            assert isinstance(task.key, int)
            if isinstance(outcome, Rewritten):
                name = hashlib.sha256(outcome.text).hexdigest()
                answers[task.key] = context.scratch / f"{name}.answer"
                write_atomically(answers[task.key], outcome.text, is_synced=False)
            else:
                missing[task.key] = outcome.why
            step.advance(1)
        model = rewriter.model
    answered = [
        one._replace(answer=answers.get(number), why_no_answer=missing.get(number, WhyNoVariant.NO_ANSWER))
        for number, one in enumerate(chosen)
    ]
    return answered, model


def _rewriter(context: Context) -> Rewriter:
    return Rewriter(
        Endpoint.of(context.config.rewrite), context.answers, partial(_without_secrets, context.config.secrets)
    )


def _without_secrets(config: SecretsConfig, text: str, language: str) -> str:
    """Of what a model says: nothing else is kept, or sent on. What cannot be redacted is no answer."""
    redacted = redact(text.encode(), language, config)
    return "" if redacted is None else redacted.text.decode()


def _rewrite_tasks(context: Context, chosen: Sequence[Chosen]) -> Iterator[RewriteTask]:
    """Of texts that have been redacted: what a part holds is what was tokenized."""
    wanted = {number: one for number, one in enumerate(chosen) if VariantKind.REWRITE in dict(one.kinds)}
    files = [one.document.as_file() for one in wanted.values()]
    blocks = read_blocks(context.prepared, files, context.tokenizer.vocab_size)
    for (number, one), (document, block) in zip(wanted.items(), blocks, strict=True):
        text = text_of(block, document.text_sha256, context.tokenizer)
        if text is not None:
            seed = dict(one.kinds)[VariantKind.REWRITE]
            yield RewriteTask(number, text, document.language, seed, context.config.rewrite.way)
