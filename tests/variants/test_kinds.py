"""Every kind of variant has a maker, and makes what the table says."""

import pytest

from gristmill import VariantsConfig, load_tokenizer
from gristmill.core.records import VARIANTS, VariantKind, WhyNoVariant
from gristmill.tokenizers.sentinels import mask_id
from gristmill.variants.kinds import MAKERS, LoneWindow, Means, Original, make_variant
from gristmill.windows.cut import WindowShape
from support.made_code import made_module

TEXT = made_module("kinds.py", 4000).encode()
SHAPE = WindowShape(num_content=64, overlap=16, tail="keep", min_fresh=1)


@pytest.fixture(scope="module")
def means():
    return Means(VariantsConfig(), load_tokenizer(), SHAPE)


@pytest.fixture
def original(means, tmp_path):
    answer = tmp_path / "answer"
    answer.write_bytes(TEXT + b"\n\ndef another():\n    return 1\n")
    return Original(text=TEXT, ids=means.tokenizer.encode(TEXT).ids, language="python", answer=answer)


def test_every_kind_has_a_maker():
    assert list(MAKERS) == list(VARIANTS)


@pytest.mark.parametrize("kind", VARIANTS)
def test_a_kind_makes_what_the_table_says(kind, original, means):
    made = make_variant(kind, original, means, seed=1)
    if VARIANTS[kind].makes == "text":
        assert isinstance(made, bytes)
        assert made != TEXT
    else:
        assert made
        assert all(isinstance(window, LoneWindow) for window in made)
        assert all(0 <= window.place[0] < window.place[1] <= len(original.ids) for window in made)
        assert mask_id(means.tokenizer.definition) in {one for window in made for one in window.ids.tolist()}
    same = make_variant(kind, original, means, seed=1)
    assert repr(same) == repr(made)


@pytest.mark.parametrize("kind", [kind for kind, one in VARIANTS.items() if one.needs_grammar])
def test_a_text_too_deep_for_its_grammar_has_no_variant_by_it(kind, means):
    text = b"x = " + b"(" * 30_000 + b"1" + b")" * 30_000 + b"\n"
    deep = Original(text=text, ids=means.tokenizer.encode(text).ids, language="python")
    assert make_variant(kind, deep, means, seed=1) is WhyNoVariant.SYNTAX_ERRORS


def test_without_an_answer_there_is_no_rewrite(means):
    why = WhyNoVariant.TEXT_TOO_LONG
    lone = Original(text=TEXT, ids=means.tokenizer.encode(TEXT).ids, language="python", why_no_answer=why)
    assert make_variant(VariantKind.REWRITE, lone, means, seed=1) is why
