"""Comparing only changed texts gives the same result as comparing all texts."""

import random
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.config import Config
from gristmill.dedup.signatures import NO_BANDS, concatenate_ids
from gristmill.pipeline.context import Context
from gristmill.pipeline.decontaminate import COMPARED, compare_incrementally
from gristmill.pipeline.parts import FileKeys, Part, PartStore, ids_bytes, write_part
from gristmill.splits.shared_spans import find_anchors
from gristmill.splits.span_join import Sides, compare
from gristmill.tokenizers.tokenizer import load_tokenizer
from support.documents import document
from support.made_spans import VOCAB_SIZE, made_texts


class ComparisonFolder:
    """A work folder with texts. `compared` lists the numbers of held-out and train texts in each comparison."""

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
        """Write a new part with `texts`, a dict from name to ids. Return the document of each text."""
        blocks, stored = [], []
        self.num_parts += 1
        part = f"{self.num_parts}.part"
        for row, (name, ids) in enumerate(sorted(texts.items())):
            location = {"part": part, "part_offset": sum(map(len, blocks)), "part_row": row}
            stored.append(document(name, repo=side, text=str(ids), tokens=len(ids), **location))
            blocks.append(ids_bytes(np.array(ids, np.uint32), VOCAB_SIZE))
        anchors = find_anchors(*concatenate_ids([np.array(ids, np.uint16) for _, ids in sorted(texts.items())]))
        write_part(self.context.prepared / part, Part(blocks, NO_BANDS, anchors, (), (), (), (), FileKeys()))
        return stored

    def compare(self, held_out, train, *, include_trivial):
        self.compared.append((len(held_out), len(train)))
        sides = Sides(
            folder=self.context.scratch / f"{len(self.compared)}",
            store=PartStore(self.context.prepared, VOCAB_SIZE),
            parts=tuple({text.part for text in (*held_out, *train)}),
        )
        sides = msgspec.structs.replace(sides, min_distinct=1) if include_trivial else sides
        return compare(held_out, train, sides, map, cut="small")

    def run(self, held_out, train):
        small, large = self.store("held", held_out), self.store("train", train)
        return compare_incrementally(self.context, small, large, self.compare)


def with_random_changes(rng, texts, others):
    """Return a copy of `texts` in which a few texts are removed, added or changed."""
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
def test_result_after_random_changes_equals_a_full_comparison(tmp_path_factory, seed):
    rng = random.Random(seed)
    small, large = made_texts(rng)
    more_small, more_large = made_texts(rng)
    held_out = {f"{number:02d}": ids for number, ids in enumerate(small)}
    train = {f"{number:02d}": ids for number, ids in enumerate(large)}
    kept = ComparisonFolder(tmp_path_factory.mktemp("kept"))
    for _ in range(3):
        fresh = ComparisonFolder(tmp_path_factory.mktemp("fresh"))
        assert kept.run(held_out, train) == fresh.run(held_out, train)
        held_out = with_random_changes(rng, held_out, [*more_small, *small, *large])
        train = with_random_changes(rng, train, [*more_large, *small, *large])


def test_only_changed_texts_are_compared(tmp_path):
    rng = random.Random(1)
    texts = {f"{number:02d}": [rng.randrange(VOCAB_SIZE) for _ in range(200)] for number in range(40)}
    train = texts | {"shared": texts["03"]}
    folder = ComparisonFolder(tmp_path)
    held_out = {"a": texts["03"], "b": texts["04"], "c": [rng.randrange(VOCAB_SIZE) for _ in range(200)]}
    first = folder.run(held_out, train)
    assert folder.compared == [(3, 41)]
    assert folder.run(held_out, train) == first
    assert folder.compared == [(3, 41)], "texts were compared although none changed"
    folder.run(held_out, {**train, "04": texts["05"]})
    assert folder.compared[1:] == [(3, 1), (1, 41)], (
        "expected two comparisons: the changed train text with all held-out texts, and all train texts with the "
        "held-out text that lost its match"
    )
    folder.run(held_out, {**train, "04": texts["05"], "03": [7, *texts["03"]]})
    assert folder.compared[3:] == [(3, 1)], (
        "a held-out text was compared with all train texts, although the changed train text still contains its match"
    )


def test_damaged_record_of_comparisons_is_ignored(tmp_path):
    rng = random.Random(2)
    train = {"t": [rng.randrange(VOCAB_SIZE) for _ in range(300)]}
    folder = ComparisonFolder(tmp_path)
    first = folder.run({"h": train["t"][50:200]}, train)
    content = bytearray((tmp_path / COMPARED).read_bytes())
    content[-3] ^= 1
    (tmp_path / COMPARED).write_bytes(content)
    assert folder.run({"h": train["t"][50:200]}, train) == first
    assert folder.compared == [(1, 1), (1, 1)]
