"""Part of step 2: make variants of train files and keep those that are neither duplicates nor contaminated.

choose ─► rewrite (by a language model, optional) ─► vary ─► select
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from gristmill.cleaning.secrets import redact
from gristmill.config.settings import SecretsConfig, VariantsConfig
from gristmill.core.layout import write_atomically
from gristmill.core.partition import stable_groups
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
from gristmill.core.seeded_random import random_fraction, stable_hash
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.decontaminate import sides_of, tokenize_benchmarks
from gristmill.pipeline.map_documents import map_documents
from gristmill.pipeline.parts import IdReader, block_text, read_blocks
from gristmill.pipeline.variant_parts import Chosen, variants_in, vary
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.shared_spans import SPAN_TOKENS, span_keys
from gristmill.splits.span_join import SharedSpans, compare
from gristmill.variants.endpoint import Endpoint
from gristmill.variants.grammars import is_parsable
from gristmill.variants.rewrite import Rewriter, RewriteTask, Rewritten

if TYPE_CHECKING:
    from pathlib import Path

TOKENS_PER_TASK = 1 << 18
"""Approximate number of tokens in the documents of one task."""
CHECKED_AT_ONCE = 64
SEED_BITS = 31


def choose(documents: Iterable[PlacedDocument], config: VariantsConfig) -> tuple[list[Chosen], list[NoVariant]]:
    """Choose train files that have windows, by name and seed.

    Return the chosen files, and a NoVariant for each chosen variant that cannot be made.
    """
    chosen: list[Chosen] = []
    missing: list[NoVariant] = []
    for document in documents:
        if document.split is not Split.TRAIN or not document.num_windows:
            continue
        kinds = []
        for kind, rate in config.rates.items():
            if random_fraction(config.seed, "variant", kind, *document.key) > rate:
                continue
            why = _reason_against(document, kind)
            if why is None:
                kinds.append((kind, stable_hash(config.seed, kind, *document.key) >> (64 - SEED_BITS)))
            else:
                missing.append(NoVariant(*document.key, kind, why))
        if kinds:
            chosen.append(Chosen(document, tuple(kinds)))
    return chosen, missing


def _reason_against(document: PlacedDocument, kind: VariantKind) -> WhyNoVariant | None:
    if document.cuts:
        return WhyNoVariant.FILE_WAS_CUT
    if VARIANTS[kind].needs_grammar and not is_parsable(document.language):
        return WhyNoVariant.LANGUAGE_NOT_KNOWN
    return None


def make_tasks(chosen: Sequence[Chosen]) -> list[list[Chosen]]:
    return list(
        stable_groups(chosen, lambda one: one.document.path, lambda one: one.document.num_file_tokens, TOKENS_PER_TASK)
    )


def select_variants(
    context: Context,
    decision: Decision,
    parts: Sequence[str],
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> tuple[list[PlacedDocument], list[NoVariant]]:
    """Return the variants that are new and not contaminated. Also return the missing variants, each with the reason."""
    made: list[PlacedDocument] = []
    missing: list[NoVariant] = []
    files = {document.key: document for document in decision.kept}
    for part in parts:
        documents, failed = variants_in(context, part)
        made += (_with_file_facts(document, files[document.key]) for document in documents)
        missing += failed
    is_new = _are_texts_new(made, decision)
    contaminated = _find_contaminated(context, made, decision, benchmarks, map_tasks)
    kept = []
    for number, document in enumerate(made):
        assert document.variant is not None
        if not is_new[number]:
            missing.append(NoVariant(*document.key, document.variant.kind, WhyNoVariant.DUPLICATE))
        elif number in contaminated:
            missing.append(NoVariant(*document.key, document.variant.kind, WhyNoVariant.SHARES_SPAN))
        else:
            kept.append(document)
    return kept, missing


def _with_file_facts(variant: PlacedDocument, file: PlacedDocument) -> PlacedDocument:
    """Copy license, group and split from the file to its variant, because the variant may be from an earlier build."""
    names = ("license", "license_from", "group", "split", "moved_from")
    return msgspec.structs.replace(variant, **{name: getattr(file, name) for name in names})


def _are_texts_new(made: Sequence[PlacedDocument], decision: Decision) -> list[bool]:
    """Return, for each variant, whether its text differs from every kept or dropped file and every earlier variant."""
    digests = {document.text_sha256 for document in decision.kept}
    digests |= {drop.text_sha256 for drop in decision.drops if drop.text_sha256 is not None}
    are_new = []
    for document in made:
        are_new.append(document.text_sha256 not in digests)
        digests.add(document.text_sha256)
    return are_new


def _find_contaminated(
    context: Context,
    made: Sequence[PlacedDocument],
    decision: Decision,
    benchmarks: Sequence[Benchmark],
    map_tasks: MapFunction,
) -> set[int]:
    """Return the indices of the contaminated variants.

    A variant is contaminated if it contains a span of a held-out file or benchmark that its own file does not contain.
    """
    held_out = [document for document in decision.kept if document.split is not Split.TRAIN]
    others: list[AnyStoredText] = [*held_out, *tokenize_benchmarks(context, benchmarks)]
    if not made or not others:
        return set()
    sides = sides_of(context, "variants", others, made)
    found = compare(others, made, sides, map_tasks, cut="large")
    file_of = {document.key: document.before_rewriting() for document in decision.kept}
    candidates = [
        Candidate(index, made[index], file_of[made[index].key], shared)
        for index, shared in found.items()
        if shared.cuts
    ]
    runs = [candidates[at : at + CHECKED_AT_ONCE] for at in range(0, len(candidates), CHECKED_AT_ONCE)]
    return {index for indices in map_tasks(partial(find_new_shares, context), runs) for index in indices}


class Candidate(NamedTuple):
    """A variant with shared spans, and its file."""

    variant_index: int
    variant: PlacedDocument
    file: PlacedDocument
    shared: SharedSpans


def find_new_shares(context: Context, candidates: Sequence[Candidate]) -> list[int]:
    """Return the indices of the variants with a shared span that their own file does not contain."""
    indices = []
    with IdReader(context.prepared, context.tokenizer.vocab_size) as reader:
        for candidate in candidates:
            ids, file_ids = reader.ids_of(candidate.variant), reader.ids_of(candidate.file)
            starts = _shared_starts(candidate.shared)
            file_keys = span_keys(file_ids, np.arange(max(len(file_ids) - SPAN_TOKENS + 1, 0)))
            if not np.isin(span_keys(ids, starts), file_keys).all():
                indices.append(candidate.variant_index)
    return indices


def _shared_starts(shared: SharedSpans) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the start positions of the shared 50-grams that are inside cut ranges."""
    runs = np.frombuffer(shared.runs, np.int32).reshape(-1, 3)
    ranges = [np.arange(first, last + 1) for first, last, _ in runs.tolist()]
    starts = np.unique(np.concatenate([np.zeros(0, np.int64), *ranges]))
    is_inside = np.zeros(len(starts), np.bool_)
    for cut in shared.cuts:
        is_inside |= (starts >= cut.start) & (starts + SPAN_TOKENS <= cut.end)
    return starts[is_inside]


def with_variants(
    context: Context, decision: Decision, benchmarks: Sequence[Benchmark], runner: Runner, progress: Progress
) -> Decision:
    """Return the decision with variants of train files added."""
    config = context.config
    chosen, missing = choose(decision.kept, config.variants)
    model = None
    if any(VariantKind.REWRITE in dict(one.kinds) for one in chosen):
        chosen, model = _ask_model(context, chosen, progress)
    with progress.phase("vary", total=len(chosen)) as step:
        parts, failed = map_documents(
            context,
            partial(vary, context),
            make_tasks(chosen),
            runner,
            step,
            failure="could not be varied",
            skip="build without variants of this file",
        )
        variants, more = select_variants(context, decision, parts, benchmarks, runner.map)
    kinds_of = {one.document.key: one.kinds for one in chosen}
    missing += [NoVariant(*key, kind, WhyNoVariant.FAILED) for key in failed for kind, _ in kinds_of[key]]
    missing += more
    return msgspec.structs.replace(decision, variants=variants, no_variants=missing, variant_parts=parts, model=model)


def _ask_model(context: Context, chosen: Sequence[Chosen], progress: Progress) -> tuple[list[Chosen], str]:
    """Let the language model rewrite the files chosen for rewriting, and store each answer in a file.

    Return the chosen files with their answers, and the name of the model.
    """
    answers: dict[int, Path] = {}
    missing: dict[int, WhyNoVariant] = {}
    num_rewrites = sum(VariantKind.REWRITE in dict(one.kinds) for one in chosen)
    with progress.phase("rewrite", total=num_rewrites) as step, _make_rewriter(context) as rewriter:
        for task, result in rewriter.rewrite_all(_rewrite_tasks(context, chosen)):
            assert isinstance(task.key, int)
            if isinstance(result, Rewritten):
                name = hashlib.sha256(result.text).hexdigest()
                answers[task.key] = context.scratch / f"{name}.answer"
                write_atomically(answers[task.key], result.text, is_synced=False)
            else:
                missing[task.key] = result.why
            step.advance(1)
        model = rewriter.model
    answered = [
        one._replace(answer=answers.get(number), why_no_answer=missing.get(number, WhyNoVariant.NO_ANSWER))
        for number, one in enumerate(chosen)
    ]
    return answered, model


def _make_rewriter(context: Context) -> Rewriter:
    return Rewriter(
        Endpoint.from_config(context.config.rewrite), context.answers, partial(_without_secrets, context.config.secrets)
    )


def _without_secrets(config: SecretsConfig, text: str, language: str) -> str:
    """Redact secrets in a model's answer before it is stored. Return "" if a secret cannot be redacted."""
    redacted = redact(text.encode(), language, config)
    return "" if redacted is None else redacted.text.decode()


def _rewrite_tasks(context: Context, chosen: Sequence[Chosen]) -> Iterator[RewriteTask]:
    """Yield the rewrite tasks. The texts come from parts, so secrets are already redacted."""
    chosen_by_number = {number: one for number, one in enumerate(chosen) if VariantKind.REWRITE in dict(one.kinds)}
    files = [one.document.before_rewriting() for one in chosen_by_number.values()]
    blocks = read_blocks(context.prepared, files, context.tokenizer.vocab_size)
    for (number, one), (document, block) in zip(chosen_by_number.items(), blocks, strict=True):
        text = block_text(block, document.text_sha256, context.tokenizer)
        if text is not None:
            seed = dict(one.kinds)[VariantKind.REWRITE]
            yield RewriteTask(number, text, document.language, seed, context.config.rewrite.way)
