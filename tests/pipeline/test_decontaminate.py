"""Comparing what has changed gives what comparing all gives."""

import random
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.config import Config
from gristmill.dedup.signatures import NO_BANDS, end_to_end
from gristmill.pipeline.context import Context
from gristmill.pipeline.decontaminate import COMPARED, compare_incrementally
from gristmill.pipeline.parts import FileKeys, Part, PartStore, ids_bytes, write_part
from gristmill.splits.shared_spans import anchors_of
from gristmill.splits.span_join import Sides, compare
from gristmill.tokenizers.tokenizer import load_tokenizer
from support.documents import document
from support.made_spans import VOCAB_SIZE, made_texts


class Bench:
    """A work folder, and texts in it."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("prepared", "scratch"):
            (self.folder / name).mkdir(parents=True)
        config = Config(sources=["x"], out="y")
        key = load_tokenizer().definition.key
        keys = {"tokenizer_key": key, "prepare_key": "key"}
        self.context = Context(config=config, folder=self.folder, **keys, keeps_text=False)
        self.num_parts = 0
        self.compared = []

    def store(self, side, texts):
        """By name: the ids."""
        blocks, stored = [], []
        self.num_parts += 1
        part = f"{self.num_parts}.part"
        for row, (name, ids) in enumerate(sorted(texts.items())):
            place = {"part": part, "part_offset": sum(map(len, blocks)), "part_row": row}
            stored.append(document(name, repo=side, text=str(ids), tokens=len(ids), **place))
            blocks.append(ids_bytes(np.array(ids, np.uint32), VOCAB_SIZE))
        anchors = anchors_of(*end_to_end([np.array(ids, np.uint16) for _, ids in sorted(texts.items())]))
        write_part(self.context.prepared / part, Part(blocks, NO_BANDS, anchors, (), (), (), (), FileKeys()))
        return stored

    def compare(self, held_out, train, *, is_any):
        self.compared.append((len(held_out), len(train)))
        sides = Sides(
            folder=self.context.scratch / f"{len(self.compared)}",
            store=PartStore(self.context.prepared, VOCAB_SIZE),
            parts=tuple({text.part for text in (*held_out, *train)}),
        )
        sides = msgspec.structs.replace(sides, min_distinct=1) if is_any else sides
        return compare(held_out, train, sides, map, cut="small")

    def run(self, held_out, train):
        small, large = self.store("held", held_out), self.store("train", train)
        return compare_incrementally(self.context, small, large, self.compare)


def changed(rng, texts, others):
    """A few gone, a few new, a few altered."""
    texts = dict(texts)
    for _ in range(rng.randrange(3)):
        match rng.randrange(3):
            case 0 if len(texts) > 1:
                del texts[rng.choice(sorted(texts))]
            case 1:
                texts[f"{rng.randrange(100):02d}"] = rng.choice(others)
            case _:
                name = rng.choice(sorted(texts))
                at = rng.randrange(len(texts[name]) + 1)
                texts[name] = [*texts[name][:at], rng.randrange(500), *texts[name][at:]]
    return texts


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**40))
def test_after_any_changes_the_result_is_that_of_comparing_all(tmp_path_factory, seed):
    rng = random.Random(seed)
    small, large = made_texts(rng)
    more_small, more_large = made_texts(rng)
    held_out = {f"{number:02d}": ids for number, ids in enumerate(small)}
    train = {f"{number:02d}": ids for number, ids in enumerate(large)}
    kept = Bench(tmp_path_factory.mktemp("kept"))
    for _ in range(3):
        fresh = Bench(tmp_path_factory.mktemp("fresh"))
        assert kept.run(held_out, train) == fresh.run(held_out, train)
        held_out = changed(rng, held_out, [*more_small, *small, *large])
        train = changed(rng, train, [*more_large, *small, *large])


def test_only_what_changed_is_compared(tmp_path):
    rng = random.Random(1)
    texts = {f"{number:02d}": [rng.randrange(VOCAB_SIZE) for _ in range(200)] for number in range(40)}
    train = texts | {"shared": texts["03"]}
    bench = Bench(tmp_path)
    held_out = {"a": texts["03"], "b": texts["04"], "c": [rng.randrange(VOCAB_SIZE) for _ in range(200)]}
    first = bench.run(held_out, train)
    assert bench.compared == [(3, 41)]
    assert bench.run(held_out, train) == first
    assert bench.compared == [(3, 41)], "nothing changed, nothing compared"
    bench.run(held_out, {**train, "04": texts["05"]})
    assert bench.compared[1:] == [(3, 1), (1, 41)], "with what is new in train; with all, the one whose twin is gone"
    bench.run(held_out, {**train, "04": texts["05"], "03": [7, *texts["03"]]})
    assert bench.compared[3:] == [(3, 1)], "a twin that has only changed is followed by itself"


def test_what_is_remembered_is_believed_only_whole(tmp_path):
    rng = random.Random(2)
    train = {"t": [rng.randrange(VOCAB_SIZE) for _ in range(300)]}
    bench = Bench(tmp_path)
    first = bench.run({"h": train["t"][50:200]}, train)
    content = bytearray((tmp_path / COMPARED).read_bytes())
    content[-3] ^= 1
    (tmp_path / COMPARED).write_bytes(content)
    assert bench.run({"h": train["t"][50:200]}, train) == first
    assert bench.compared == [(1, 1), (1, 1)]
