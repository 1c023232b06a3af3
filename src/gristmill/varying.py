"""Variants of train files, over a runner: choose ─► rewrite (by a language model, if wanted) ─► vary ─► real ones."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gristmill.cleaning.secrets import redact
from gristmill.config import Config
from gristmill.errors import OutputError
from gristmill.intake.benchmarks import Benchmark
from gristmill.layout import write_atomically
from gristmill.progress import Progress, Step
from gristmill.records import FileKey, NoVariant, VariantKind, WhyNoVariant
from gristmill.runners.runner import Runner, TaskFailed
from gristmill.sections import SecretsConfig
from gristmill.shaping.variants.grammars import require_grammars
from gristmill.shaping.variants.rewriting.endpoint import Endpoint
from gristmill.shaping.variants.rewriting.rewriter import Rewriter, RewriteTask, Rewritten
from gristmill.steps.blocks import read_blocks
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision
from gristmill.steps.make_variants import Chosen, text_of
from gristmill.steps.variants import WITHOUT_GRAMMAR, choose, real_variants, tasks_for
from gristmill.steps.vary import vary
from gristmill.tokenizing.definition import Definition
from gristmill.tokenizing.sentinels import fim_ids, mask_id, require_spelled_fim

if TYPE_CHECKING:
    from pathlib import Path


def require_means(config: Config, definition: Definition) -> None:
    """Before any work is done: the grammars, the tokens and the endpoint that the variants need."""
    kinds = config.variants.rates
    if not WITHOUT_GRAMMAR.issuperset(kinds):
        require_grammars()
    if VariantKind.NOISE in kinds:
        mask_id(definition)
    if VariantKind.FIM in kinds:
        fim_ids(definition)
        if config.output.with_text:
            require_spelled_fim(definition)
    if VariantKind.REWRITE in kinds:
        _endpoint(config)


def with_variants(
    context: Context, decision: Decision, benchmarks: Sequence[Benchmark], runner: Runner, progress: Progress
) -> Decision:
    config = context.config
    chosen, missing = choose(decision.kept, config.variants)
    model = None
    if any(VariantKind.REWRITE in dict(one.kinds) for one in chosen):
        chosen, model = _with_answers(context, chosen, progress)
    with progress.phase("vary", total=len(chosen)) as step:
        parts, failed = _vary_all(context, chosen, runner, step)
        variants, more = real_variants(context, decision, parts, benchmarks, runner.map)
    missing += [*failed, *more]
    return msgspec.structs.replace(decision, variants=variants, no_variants=missing, variant_parts=parts, model=model)


def _vary_all(
    context: Context, chosen: Sequence[Chosen], runner: Runner, step: Step
) -> tuple[list[str], list[NoVariant]]:
    """The parts, in the order of the files. A file over which a worker dies or hangs is found by trying each alone."""
    waiting = tasks_for(chosen)
    parts: dict[FileKey, str] = {}
    missing: list[NoVariant] = []
    seconds = context.config.run.task_seconds
    # A grammar may run out of time or memory over a text that was made for that: never in this process.
    is_alone = (lambda _: True) if runner.workers == 1 else None
    while waiting:
        failed: list[list[Chosen]] = []
        for number, answer in runner.as_done(
            partial(vary, context), waiting, seconds_for=lambda _: seconds, is_alone=is_alone
        ):
            task = waiting[number]
            if isinstance(answer, TaskFailed):
                failed += [[one] for one in task] if len(task) > 1 else []
                missing += _without(context, task[0], answer.reason) if len(task) == 1 else []
                continue
            parts[task[0].document.key] = answer.part
            step.advance(answer.num_documents)
        waiting = failed
    return [part for _, part in sorted(parts.items())], missing


def _without(context: Context, chosen: Chosen, reason: str) -> list[NoVariant]:
    document = chosen.document
    if not context.config.run.skip_failed:
        raise OutputError(
            f"{document.name} could not be varied: {reason}. What is done is kept: run the same command again, with "
            "--skip-failed to do without its variants."
        )
    return [NoVariant(*document.key, kind, WhyNoVariant.FAILED) for kind, _ in chosen.kinds]


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
    return Rewriter(_endpoint(context.config), context.answers, partial(_without_secrets, context.config.secrets))


def _without_secrets(config: SecretsConfig, text: str, language: str) -> str:
    """Of what a model says: nothing else is kept, or sent on. What cannot be redacted is no answer."""
    redacted = redact(text.encode(), language, config)
    return "" if redacted is None else redacted.text.decode()


def _endpoint(config: Config) -> Endpoint:
    rewrite = config.rewrite
    assert rewrite.endpoint is not None, "the configuration requires one"
    return Endpoint(
        url=rewrite.endpoint,
        model=rewrite.model,
        timeout_seconds=rewrite.timeout_seconds,
        num_retries=rewrite.retries,
        concurrency=rewrite.concurrency,
        max_tokens=rewrite.max_tokens,
        context_tokens=rewrite.context_tokens,
    )


def _rewrite_tasks(context: Context, chosen: Sequence[Chosen]) -> Iterator[RewriteTask]:
    """Of texts that have been redacted: what a part holds is what was tokenized."""
    wanted = {number: one for number, one in enumerate(chosen) if VariantKind.REWRITE in dict(one.kinds)}
    blocks = read_blocks(context.prepared, [one.document for one in wanted.values()], context.tokenizer.vocab_size)
    for (number, one), (document, block) in zip(wanted.items(), blocks, strict=True):
        text = text_of(context, document, block)
        if text is not None:
            seed = dict(one.kinds)[VariantKind.REWRITE]
            yield RewriteTask(number, text, document.language, seed, context.config.rewrite.way)
