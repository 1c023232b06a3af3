"""How near two documents are: measured over pairs that may be near-duplicates, and remembered by their texts."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from gristmill.grouping.clusters import Pair, jaccards
from gristmill.progress import MapFunction
from gristmill.records import PreparedDocument, StoredText
from gristmill.steps.blocks import IdReader
from gristmill.steps.context import Context
from gristmill.steps.neighbours import neighbours
from gristmill.steps.remembering import recall, remember

SIMILAR = "similar"
PAIR_TOKENS = 1 << 20
"""Of the documents in the pairs that one task measures."""


def similarities(
    context: Context, documents: Sequence[PreparedDocument], pairs: Collection[Pair], map_tasks: MapFunction
) -> Callable[[Pair], float]:
    """By number among the documents. Those of the pairs are measured now, others when they are asked for."""
    path = context.folder / SIMILAR
    before = recall(path, context.prepare_key, dict[bytes, float]) or {}
    names = {pair: _name(documents, pair) for pair in pairs}
    known = {pair: before[name] for pair, name in names.items() if name in before}
    missing = sorted(pair for pair in names if pair not in known)
    for measured in map_tasks(partial(measure, context), _tasks(documents, missing)):
        known |= measured
    remember(path, context.prepare_key, {names[pair]: value for pair, value in known.items()})

    def similarity(pair: Pair) -> float:
        if pair not in known:
            known.update(measure(context, {pair: (_place(documents[pair[0]]), _place(documents[pair[1]]))}))
        return known[pair]

    return similarity


def measure(context: Context, places: dict[Pair, tuple[StoredText, StoredText]]) -> dict[Pair, float]:
    place_of = {number: place for pair, both in places.items() for number, place in zip(pair, both, strict=True)}
    with IdReader(context.prepared, context.tokenizer.vocab_size) as reader:
        return jaccards(places, lambda number: reader.ids_of(place_of[number]))


def _tasks(
    documents: Sequence[PreparedDocument], pairs: Sequence[Pair]
) -> Iterator[dict[Pair, tuple[StoredText, StoredText]]]:
    def num_tokens(pair: Pair) -> int:
        return documents[pair[0]].num_tokens + documents[pair[1]].num_tokens

    for some in neighbours(pairs, num_tokens, PAIR_TOKENS):
        yield {pair: (_place(documents[pair[0]]), _place(documents[pair[1]])) for pair in some}


def _place(document: PreparedDocument) -> StoredText:
    """No more than it takes to read it."""
    return StoredText(
        repo="",
        path="",
        num_tokens=document.num_tokens,
        part=document.part,
        part_offset=document.part_offset,
        part_row=document.part_row,
    )


def _name(documents: Sequence[PreparedDocument], pair: Pair) -> bytes:
    return b"".join(sorted(bytes.fromhex(documents[number].text_sha256)[:16] for number in pair))
