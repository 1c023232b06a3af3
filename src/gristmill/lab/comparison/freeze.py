"""Makes the frozen test set: one for all datasets of a comparison, and clean against the train split of every one.

    files held out in all   ─┐
                             ├─► less near-duplicates of train ─► less spans of 50 that a train has ─► windows, each
    or a test set's `test`  ─┘   files                            too; stretches of 32 and more stay   token fresh once

Train is streamed; in memory are the frozen files and, per token of them, some thirty bytes of keys. Two train splits
of the standard library, 14 million tokens each, take four seconds and 125 MB.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gristmill.core.errors import ConfigError
from gristmill.core.names import counted
from gristmill.core.progress import Progress, Step
from gristmill.core.records import Range, Split
from gristmill.dataset.dataset import Dataset
from gristmill.lab.comparison.frozen import MIN_TOKENS, AgainstFacts, Frozen, FrozenFacts, FrozenWindow, digest_of
from gristmill.lab.comparison.held_out import HeldOutFile, files_of_test, held_out_in_all, names_of
from gristmill.lab.comparison.train_side import FrozenSpans, TrainText, Twins
from gristmill.splits.shared_spans import Flags
from gristmill.windows.cut import WindowShape, cut, cut_without


def freeze(
    datasets: Sequence[Dataset], test: Dataset | None, progress: Progress, *, min_tokens: int = MIN_TOKENS
) -> Frozen:
    require_same_tokenizer([*datasets, *([] if test is None else [test])])
    num_rows = sum(len(dataset[Split.TRAIN]) for dataset in datasets)
    with progress.phase("freeze", total=num_rows, unit="windows") as step:
        files = held_out_in_all(datasets) if test is None else files_of_test(test)
        against, shared, twins = _compared(files, datasets, step)
    shape, length = _shape(datasets)
    windows = list(_windows(files, shared, twins, shape, datasets[0]))
    facts = FrozenFacts(
        source=None if test is None else test.folder.name,
        files=len({window.file for window in windows}),
        tokens=sum(window.fresh for window in windows),
        windows=len(windows),
        window_length=length,
        overlap=shape.overlap,
        prefix=datasets[0].record.tokenizer.prefix,
        suffix=datasets[0].record.tokenizer.suffix,
        tokens_before=sum(file.num_tokens for file in files),
        against=tuple(against),
        sha256=digest_of(windows),
    )
    if facts.tokens < min_tokens:
        raise ConfigError(_too_few(facts, min_tokens, datasets[0]))
    return Frozen(windows, facts)


def require_same_tokenizer(datasets: Sequence[Dataset]) -> None:
    """Ids of two tokenizers are not the same task."""
    first = datasets[0]
    for other in datasets[1:]:
        one, two = first.record.tokenizer, other.record.tokenizer
        if (one.sha256, one.prefix, one.suffix) != (two.sha256, two.prefix, two.suffix):
            if one.sha256 == two.sha256:
                raise ConfigError(
                    f"datasets are compared only with the same special tokens around a window: those of "
                    f"{str(first.folder)!r} and {str(other.folder)!r} differ. Build one of them again with "
                    "--special-tokens, or --preset."
                )
            raise ConfigError(
                f"datasets are compared only by the same tokenizer: {str(first.folder)!r} has {one.name!r} "
                f"({one.sha256[:12]}), {str(other.folder)!r} has {two.name!r} ({two.sha256[:12]}). "
                "Build one of them again with --tokenizer."
            )


def _compared(
    files: Sequence[HeldOutFile], datasets: Sequence[Dataset], step: Step
) -> tuple[list[AgainstFacts], list[Flags], set[int]]:
    """By dataset what was found; of each frozen stretch the tokens that are in any train; near-duplicates' numbers."""
    spans = FrozenSpans([ids for file in files for _, ids in file.stretches])
    twins = Twins([np.concatenate([ids for _, ids in file.stretches]) for file in files])
    in_any = [np.zeros(len(ids), np.bool_) for file in files for _, ids in file.stretches]
    all_twins: set[int] = set()
    against: list[AgainstFacts] = []
    for name, dataset in zip(names_of(datasets), datasets, strict=True):
        train = TrainText(dataset, step.advance)
        in_this, found = train.compared_with(spans, twins)
        against.append(
            AgainstFacts(
                name=name,
                windows=train.num_windows,
                ids=train.num_ids,
                span_tokens=sum(int(flags.sum()) for flags in in_this),
                near_duplicate_files=len(found),
            )
        )
        all_twins |= found
        in_any = [known | flags for known, flags in zip(in_any, in_this, strict=True)]
    return against, in_any, all_twins


def _shape(datasets: Sequence[Dataset]) -> tuple[WindowShape, int]:
    """The smallest window of all, as none of the models has seen more than its own at once; and half of it again."""
    length = min(dataset.record.window_length for dataset in datasets)
    tokenizer = datasets[0].record.tokenizer
    num_content = length - len(tokenizer.prefix) - len(tokenizer.suffix)
    return WindowShape(num_content, min(length // 2, num_content - 1), "keep", 1), length


def _windows(
    files: Sequence[HeldOutFile], shared: Sequence[Flags], twins: set[int], shape: WindowShape, dataset: Dataset
) -> Iterator[FrozenWindow]:
    tokenizer = dataset.record.tokenizer
    prefix, suffix = np.array(tokenizer.prefix, np.uint32), np.array(tokenizer.suffix, np.uint32)
    flags = iter(shared)
    for number, file in enumerate(files):
        for first, ids in file.stretches:
            ranges = _ranges(next(flags))
            if number in twins:
                continue
            windows = cut_without(len(ids), ranges, shape) if ranges else cut(len(ids), shape)
            for start, end, fresh in zip(*(column.tolist() for column in windows[:3]), strict=True):
                yield FrozenWindow(*file.key, first + start, fresh, np.concatenate((prefix, ids[start:end], suffix)))


def _ranges(flags: Flags) -> list[Range]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(start, end) for start, end in edges.reshape(-1, 2).tolist()]


def _too_few(facts: FrozenFacts, min_tokens: int, dataset: Dataset) -> str:
    tokenizer = dataset.record.tokenizer.name
    option = "" if tokenizer == "codebert" else f" --tokenizer {tokenizer}"
    taken = facts.tokens_before - facts.tokens
    where = "that all datasets hold out" if facts.source is None else f"of the test split of {facts.source!r}"
    out = f", {taken:,} are out for what some train split has" if taken else ""
    fewer = f". Or take these, with wide intervals: --min-test-tokens {facts.tokens}" if facts.tokens else ""
    return (
        f"the frozen test set has {counted(facts.tokens, 'token')} in {counted(facts.files, 'file')}, and "
        f"{min_tokens:,} are needed: of {counted(facts.tokens_before, 'token')} {where}{out}. "
        "Name other code with --test DATASET, made by: "
        f"gristmill build OTHER-CODE --out held-out --split 0/0/100{option}{fewer}"
    )
