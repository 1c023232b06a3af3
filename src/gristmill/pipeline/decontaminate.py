"""Part of step 2: decontamination.

--decontaminate decides where spans that occur in both train and held-out files are cut: in the held-out files, in
train, or nowhere. Spans that occur in both train and benchmarks are always cut from train.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain

import msgspec

from gristmill.core.manifest import BenchmarkFacts, Decontamination
from gristmill.core.names import counted
from gristmill.core.progress import MapFunction
from gristmill.core.records import AnyStoredText, Cut, Drop, DropReason, FileKey, PlacedDocument, Split, StoredText
from gristmill.dedup.signatures import NO_BANDS, Ids, concatenate_ids
from gristmill.pipeline.cache import read_cached, write_cached
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import measure_cached
from gristmill.pipeline.parts import FileKeys, Part, ids_bytes, write_part
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.shared_spans import SPAN_TOKENS, find_anchors
from gristmill.splits.span_history import CompareFunction, ComparisonRecord, Documents, update_comparison
from gristmill.splits.span_join import SharedSpans, Sides, compare

CUT_SIZES = "measured"
"""Name of the cache of the sizes of documents with cuts."""
COMPARED = "compared"
"""Name of the cache of the last comparison of held-out documents with train."""
BENCHMARKS = "../scratch/benchmarks.part"
"""Path of the part (file with token ids) that holds the benchmarks, relative to the folder of parts."""


def decontaminate(
    context: Context, decision: Decision, benchmarks: Sequence[Benchmark], map_tasks: MapFunction
) -> tuple[Decision, Decontamination]:
    """Cut shared spans, and drop documents that have no window left. Return the decision, and facts about the cuts."""
    how = context.config.split.decontaminate
    train = [document for document in decision.kept if document.split is Split.TRAIN]
    held_out = [document for document in decision.kept if document.split is not Split.TRAIN]
    cuts: dict[FileKey, tuple[Cut, ...]] = {}
    if how == "train" and held_out and train:
        found = compare(held_out, train, sides_of(context, "splits", held_out, train), map_tasks, cut="large")
        cuts = {train[number].key: shared.cuts for number, shared in found.items() if shared.cuts}
    elif how != "off" and held_out and train:
        ranges = compare_incrementally(context, held_out, train, partial(_compare_splits, context, map_tasks))
        cuts = {held_out[index].key: shared for index, shared in ranges.items()}
    texts = tokenize_benchmarks(context, benchmarks)
    found = {}
    if texts and train:
        found = compare(texts, train, sides_of(context, "benchmarks", texts, train), map_tasks, cut="large")
        for number, shared in found.items():
            key = train[number].key
            if shared.cuts:
                cuts[key] = _merge_cuts((*cuts.get(key, ()), *shared.cuts))
    against = _benchmark_facts(benchmarks, texts, (shared.cuts for shared in found.values()))
    return drop_cut_away(decision, _apply_cuts(context, decision, cuts, map_tasks), how, against)


def drop_cut_away(
    decision: Decision, documents: Sequence[PlacedDocument], how: str, against: list[BenchmarkFacts]
) -> tuple[Decision, Decontamination]:
    """Drop documents that have no window left. `documents` are the kept documents of the decision after the cuts."""
    kept = [document for document in documents if document.num_windows]
    cut_away = [document for document in documents if not document.num_windows]
    drops = [*decision.drops, *map(_contaminated_drop, cut_away)]
    facts = _decontamination_facts(decision, kept, how, against)
    return msgspec.structs.replace(decision, kept=kept, drops=drops, cut_away=cut_away), facts


def compare_incrementally(
    context: Context, held_out: Documents, train: Documents, compare: CompareFunction
) -> dict[int, tuple[Cut, ...]]:
    """Return the ranges that held-out documents share with train, keyed by index in `held_out`.

    Only documents that changed since the last build are compared.
    """
    path = context.folder / COMPARED
    before = read_cached(path, context.prepare_key, ComparisonRecord)
    with context.store.open() as reader:
        cuts, compared = update_comparison(before, held_out, train, compare, reader.ids_of)
    write_cached(path, context.prepare_key, compared)
    return cuts


def _compare_splits(
    context: Context, map_tasks: MapFunction, held_out: Documents, train: Documents, *, include_trivial: bool
) -> dict[int, SharedSpans]:
    if not include_trivial:
        return compare(held_out, train, sides_of(context, "splits", held_out, train), map_tasks, cut="small")
    sides = msgspec.structs.replace(sides_of(context, "any", held_out, train), min_distinct=1)
    # `compare` expects the smaller side first. The train documents may have fewer tokens than the held-out documents.
    if _num_tokens(train) < _num_tokens(held_out):
        return compare(train, held_out, sides, map_tasks, cut="large")
    return compare(held_out, train, sides, map_tasks, cut="small")


def _num_tokens(documents: Documents) -> int:
    return sum(document.num_tokens for document in documents)


def sides_of(context: Context, name: str, *sides: Iterable[AnyStoredText]) -> Sides:
    parts = dict.fromkeys(text.part for side in sides for text in side)
    return Sides(
        folder=context.scratch / name,
        store=context.store,
        parts=tuple(parts),
    )


def tokenize_benchmarks(context: Context, benchmarks: Sequence[Benchmark]) -> list[StoredText]:
    """Tokenize benchmarks and write them to a separate part."""
    texts: list[StoredText] = []
    tokenizer = context.tokenizer
    ids: list[Ids] = []
    blocks: list[bytes] = []
    offset = 0
    for benchmark in benchmarks:
        for number, versions in benchmark.texts.items():
            for text in versions:
                ids.append(tokenizer.encode(text).ids)
                blocks.append(ids_bytes(ids[-1], tokenizer.vocab_size))
                texts.append(
                    StoredText(
                        repo=benchmark.name,
                        path=f"#{number}",
                        num_tokens=len(ids[-1]),
                        part=BENCHMARKS,
                        part_offset=offset,
                        part_row=len(texts),
                    )
                )
                offset += len(blocks[-1])
    if texts:
        part = Part(
            blocks,
            NO_BANDS,
            find_anchors(*concatenate_ids(ids)),
            documents=(),
            facts=(),
            drops=(),
            renamed=(),
            keys=FileKeys(),
        )
        write_part(context.prepared / BENCHMARKS, part)
    return texts


def _merge_cuts(cuts: Iterable[Cut]) -> tuple[Cut, ...]:
    merged: list[Cut] = []
    for cut in sorted(cuts, key=lambda cut: (cut.start, cut.end)):
        if merged and cut.start <= merged[-1].end:
            merged[-1] = Cut(merged[-1].start, max(merged[-1].end, cut.end), merged[-1].shared_with)
        else:
            merged.append(cut)
    return tuple(merged)


def _apply_cuts(
    context: Context, decision: Decision, cuts: Mapping[FileKey, tuple[Cut, ...]], map_tasks: MapFunction
) -> list[PlacedDocument]:
    """Return the documents with their cuts and new sizes."""
    drops_windows = context.config.split.decontaminate == "drop"
    changed = [
        msgspec.structs.replace(
            document,
            cuts=cuts[document.key],
            drops_touched_windows=drops_windows and document.split is not Split.TRAIN,
        )
        for document in decision.kept
        if document.key in cuts
    ]
    changed_by_key = {
        document.key: document for document in measure_cached(context, changed, map_tasks, name=CUT_SIZES)
    }
    return [changed_by_key.get(document.key, document) for document in decision.kept]


def _contaminated_drop(document: PlacedDocument) -> Drop:
    detail = (
        f"{counted(document.num_tokens, 'token')}, but no window is left after cutting the spans that also occur "
        f"elsewhere, for example in {document.cuts[0].shared_with}"
    )
    return Drop.of(document, DropReason.CONTAMINATED, detail)


def _decontamination_facts(
    decision: Decision, kept: Sequence[PlacedDocument], how: str, against: list[BenchmarkFacts]
) -> Decontamination:
    before, files, tokens = (dict.fromkeys(Split, 0) for _ in range(3))
    num_uncut = {document.key: document.num_uncut_tokens for document in kept}
    for document in decision.kept:
        split = document.split
        num_cut = document.num_tokens - num_uncut.get(document.key, 0)
        before[split] += document.num_tokens
        files[split] += num_cut > 0
        tokens[split] += num_cut
    return Decontamination(how=how, files_cut=files, tokens_before=before, tokens_cut=tokens, against=against)


def _benchmark_facts(
    benchmarks: Sequence[Benchmark], texts: Sequence[AnyStoredText], cuts: Iterable[Iterable[Cut]]
) -> list[BenchmarkFacts]:
    benchmark_of = {text.name: text.repo for text in texts}
    long_enough = {text.name for text in texts if text.num_tokens >= SPAN_TOKENS}
    num_short = Counter(
        text.repo for text in {text.name: text for text in texts}.values() if text.name not in long_enough
    )
    num_cut: Counter[str] = Counter()
    for cut in chain.from_iterable(cuts):
        num_cut[benchmark_of[cut.shared_with]] += cut.end - cut.start
    return [
        BenchmarkFacts(
            name=benchmark.name,
            sha256=benchmark.sha256,
            texts=len(benchmark.texts),
            texts_too_short=num_short[benchmark.name],
            tokens_cut=num_cut[benchmark.name],
        )
        for benchmark in benchmarks
    ]
