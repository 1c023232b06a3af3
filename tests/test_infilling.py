"""Fill in the middle: the parts rejoin to the source exactly, in both orders, whatever the characters."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import load_tokenizer
from gristmill.shaping.chance import Dice
from gristmill.shaping.variants.infilling import Infiller
from gristmill.tokenizing.sentinels import FIM_NAMES, fim_ids
from gristmill.tokenizing.task_tokens import FIM_NAMES
from made_code import made_module

PREFIX, MIDDLE, SUFFIX = 60_000, 60_001, 60_002
TOKENIZER = load_tokenizer()


def infiller(num_content=64):
    return Infiller(lambda part: TOKENIZER.encode(part).ids, TOKENIZER.decode, PREFIX, MIDDLE, SUFFIX, num_content)


def rejoined(ids):
    """The piece, and whether its suffix stood before its prefix."""
    assert np.isin(ids, [PREFIX, MIDDLE, SUFFIX]).sum() == 3
    suffix_at, middle_at = (int(np.flatnonzero(ids == mark)[0]) for mark in (SUFFIX, MIDDLE))
    assert ids[0] == PREFIX
    assert suffix_at < middle_at
    first, second, last = ids[1:suffix_at], ids[suffix_at + 1 : middle_at], ids[middle_at + 1 :]
    if suffix_at == 1:  # the prefix is empty, or stands before the middle
        return [TOKENIZER.decode(last) + TOKENIZER.decode(second), True]
    return [TOKENIZER.decode(first) + TOKENIZER.decode(last) + TOKENIZER.decode(second), False]


def pieces_of(text, seed, num_content=64):
    starts = TOKENIZER.encode(text, with_starts=True).starts
    made = infiller(num_content).infill(text, starts, Dice(seed))
    assert all(len(one.ids) <= num_content for one in made)
    return made


@given(st.text(min_size=20, max_size=400), st.integers(0, 99))
def test_the_parts_rejoin_to_the_source(text, seed):
    text = text.encode()
    made = pieces_of(text, seed)
    joined = b"".join(rejoined(one.ids)[0] for one in made)
    assert text.startswith(joined)
    num_tokens = len(TOKENIZER.encode(text).ids)
    assert num_tokens - (made[-1].place[1] if made else 0) < 8 or num_tokens < 8
    edges = [edge for one in made for edge in one.place]
    assert edges == sorted(edges)


def test_a_long_module_is_shown_whole_and_in_both_orders():
    text = made_module("long.py", 100_000).encode()
    made = pieces_of(text, 1, 510)
    joined = [rejoined(one.ids) for one in made]
    assert b"".join(piece for piece, _ in joined) == text
    backwards = sum(is_spm for _, is_spm in joined)
    assert 0.3 < backwards / len(joined) < 0.75


def test_a_tokenizer_that_does_not_give_the_text_back_is_found_out():
    lossy = infiller()._replace(decode=lambda ids: TOKENIZER.decode(ids).lower())
    text = b"def F(X): return X + 1  # and so on, and so on, for long enough\n"
    assert lossy.infill(text, TOKENIZER.encode(text, with_starts=True).starts, Dice(0)) is None


@pytest.mark.parametrize("names", FIM_NAMES, ids=lambda names: names[0])
def test_sentinels_go_by_the_names_that_models_give_them(names, tmp_path):
    definition = TOKENIZER.definition
    tree = json.loads(definition.json)
    ids = range(50_265, 50_268)
    tree["added_tokens"] += [
        {
            "id": index,
            "content": name,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index, name in zip(ids, names, strict=True)
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    (tmp_path / "tokenizer_config.json").write_bytes(definition.config)
    assert tuple(fim_ids(load_tokenizer(str(tmp_path)).definition)) == tuple(ids)
