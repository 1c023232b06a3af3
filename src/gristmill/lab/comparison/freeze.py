"""Build the frozen test set of a comparison: one test set for all datasets, without overlap with any train split.

    files held out in all   ─┐    remove near-        remove spans of 50 tokens       cut windows in
                             ├─►  duplicates of   ─►  that are also in train, and ─►  which each token
    or `test` of a test set ─┘    train files         remainders of under 32          is fresh once

The files of the test set are called frozen files. A token is fresh in the first window that contains it, and is scored
only there. The train splits are streamed. Only the frozen files and about thirty bytes of keys per frozen token are in
memory. For two train splits of the standard library with 14 million tokens each, this takes four seconds and 125 MB.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gristmill.core.errors import ConfigError
from gristmill.core.names import counted
from gristmill.core.progress import Progress, Step
from gristmill.core.records import Range, Split
from gristmill.dataset.dataset import Dataset
from gristmill.lab.comparison.frozen import MIN_TOKENS, Frozen, FrozenFacts, FrozenWindow, TrainOverlap, digest_of
from gristmill.lab.comparison.held_out import HeldOutFile, display_names, read_files_held_out_in_all, read_test_files
from gristmill.lab.comparison.train_scan import FrozenGrams, NearDuplicateFinder, TrainScan
from gristmill.splits.shared_spans import Flags
from gristmill.windows.cut import WindowShape, cut, cut_outside


def freeze(
    datasets: Sequence[Dataset], test: Dataset | None, progress: Progress, *, min_tokens: int = MIN_TOKENS
) -> Frozen:
    """Build the frozen test set from files that all datasets hold out, or from the test split of `test`.

    Raises ConfigError if the tokenizers differ or fewer than `min_tokens` tokens remain.
    """
    require_same_tokenizer([*datasets, *([] if test is None else [test])])
    num_rows = sum(len(dataset[Split.TRAIN]) for dataset in datasets)
    with progress.phase("freeze", total=num_rows, unit="windows") as step:
        files = read_files_held_out_in_all(datasets) if test is None else read_test_files(test)
        against, shared, near_duplicates = _compare_with_train(files, datasets, step)
    shape, length = _frozen_shape(datasets)
    windows = list(_windows(files, shared, near_duplicates, shape, datasets[0]))
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
        raise ConfigError(_too_few_tokens_message(facts, min_tokens, datasets[0]))
    return Frozen(windows, facts)


def require_same_tokenizer(datasets: Sequence[Dataset]) -> None:
    """Raise ConfigError unless all datasets have the same tokenizer and special tokens."""
    first = datasets[0]
    for other in datasets[1:]:
        one, two = first.record.tokenizer, other.record.tokenizer
        if (one.sha256, one.prefix, one.suffix) != (two.sha256, two.prefix, two.suffix):
            if one.sha256 == two.sha256:
                raise ConfigError(
                    f"datasets must have the same special tokens around a window to be compared, but those of "
                    f"{str(first.folder)!r} and {str(other.folder)!r} differ. Build one of them again with "
                    "--special-tokens or --preset."
                )
            raise ConfigError(
                f"datasets must have the same tokenizer to be compared, but {str(first.folder)!r} has {one.name!r} "
                f"({one.sha256[:12]}) and {str(other.folder)!r} has {two.name!r} ({two.sha256[:12]}). "
                "Build one of them again with --tokenizer."
            )


def _compare_with_train(
    files: Sequence[HeldOutFile], datasets: Sequence[Dataset], step: Step
) -> tuple[list[TrainOverlap], list[Flags], set[int]]:
    """Compare the frozen files with every train split. Returns three values:

    1. the overlap of each train split with the frozen files
    2. an array of flags for each span of the frozen files, True for tokens that also occur in a train split
    3. the indices of the frozen files that are near-duplicates of train files
    """
    grams = FrozenGrams([ids for file in files for _, ids in file.spans])
    finder = NearDuplicateFinder([np.concatenate([ids for _, ids in file.spans]) for file in files])
    shared = [np.zeros(len(ids), np.bool_) for file in files for _, ids in file.spans]
    near_duplicates: set[int] = set()
    against: list[TrainOverlap] = []
    for name, dataset in zip(display_names(datasets), datasets, strict=True):
        train = TrainScan(dataset, step.advance)
        shared_with_this, found = train.compare_with(grams, finder)
        against.append(
            TrainOverlap(
                name=name,
                windows=train.num_windows,
                ids=train.num_ids,
                span_tokens=sum(int(flags.sum()) for flags in shared_with_this),
                near_duplicate_files=len(found),
            )
        )
        near_duplicates |= found
        shared = [flags | new_flags for flags, new_flags in zip(shared, shared_with_this, strict=True)]
    return against, shared, near_duplicates


def _frozen_shape(datasets: Sequence[Dataset]) -> tuple[WindowShape, int]:
    """Return the shape of the frozen windows, and their length with special tokens.

    The length is the smallest window length of all datasets, so no model is scored on longer windows than it was
    trained on. The overlap is half of the length.
    """
    length = min(dataset.record.window_length for dataset in datasets)
    tokenizer = datasets[0].record.tokenizer
    num_content = length - len(tokenizer.prefix) - len(tokenizer.suffix)
    return WindowShape(num_content, min(length // 2, num_content - 1), "keep", 1), length


def _windows(
    files: Sequence[HeldOutFile],
    shared: Sequence[Flags],
    near_duplicates: set[int],
    shape: WindowShape,
    dataset: Dataset,
) -> Iterator[FrozenWindow]:
    tokenizer = dataset.record.tokenizer
    prefix, suffix = np.array(tokenizer.prefix, np.uint32), np.array(tokenizer.suffix, np.uint32)
    flags = iter(shared)
    for number, file in enumerate(files):
        for first, ids in file.spans:
            ranges = _ranges(next(flags))
            if number in near_duplicates:
                continue
            windows = cut_outside(len(ids), ranges, shape) if ranges else cut(len(ids), shape)
            for start, end, fresh in zip(*(column.tolist() for column in windows[:3]), strict=True):
                yield FrozenWindow(*file.key, first + start, fresh, np.concatenate((prefix, ids[start:end], suffix)))


def _ranges(flags: Flags) -> list[Range]:
    """Return the start and end of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    return [(start, end) for start, end in edges.reshape(-1, 2).tolist()]


def _too_few_tokens_message(facts: FrozenFacts, min_tokens: int, dataset: Dataset) -> str:
    tokenizer = dataset.record.tokenizer.name
    option = "" if tokenizer == "codebert" else f" --tokenizer {tokenizer}"
    num_removed = facts.tokens_before - facts.tokens
    origin = (
        "the files held out by all datasets have" if facts.source is None else f"the test split of {facts.source!r} has"
    )
    removed = f", and {num_removed:,} of them overlap with a train split" if num_removed else ""
    fewer = f". Or accept wide intervals with --min-test-tokens {facts.tokens}" if facts.tokens else ""
    return (
        f"the frozen test set has {counted(facts.tokens, 'token')} in {counted(facts.files, 'file')}, but "
        f"{min_tokens:,} are needed: {origin} {counted(facts.tokens_before, 'token')}{removed}. "
        "Test on other code with --test DATASET, which you can build with: "
        f"gristmill build OTHER-CODE --out held-out --split 0/0/100{option}{fewer}"
    )
