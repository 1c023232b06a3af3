"""Every kind of variant has a function that makes it, with the traits that VARIANTS declares."""

import pytest

from gristmill import VariantsConfig, load_tokenizer
from gristmill.core.records import VARIANTS, VariantKind, WhyNoVariant
from gristmill.tokenizers.sentinels import mask_id
from gristmill.variants.kinds import MAKERS, IndependentWindow, Original, VariantContext, make_variant
from gristmill.windows.cut import WindowShape
from support.made_code import made_module

TEXT = made_module("kinds.py", 4000).encode()
SHAPE = WindowShape(num_content=64, overlap=16, tail="keep", min_fresh=1)


@pytest.fixture(scope="module")
def context():
    return VariantContext(VariantsConfig(), load_tokenizer(), SHAPE)


@pytest.fixture
def original(context, tmp_path):
    answer = tmp_path / "answer"
    answer.write_bytes(TEXT + b"\n\ndef another():\n    return 1\n")
    return Original(text=TEXT, ids=context.tokenizer.encode(TEXT).ids, language="python", answer=answer)


def test_every_kind_has_a_maker():
    assert list(MAKERS) == list(VARIANTS)


@pytest.mark.parametrize("kind", VARIANTS)
def test_kind_makes_what_its_traits_declare(kind, original, context):
    made = make_variant(kind, original, context, seed=1)
    if VARIANTS[kind].makes == "text":
        assert isinstance(made, bytes)
        assert made != TEXT
    else:
        assert made
        assert all(isinstance(window, IndependentWindow) for window in made)
        assert all(0 <= window.file_range[0] < window.file_range[1] <= len(original.ids) for window in made)
        assert mask_id(context.tokenizer.definition) in {token for window in made for token in window.ids.tolist()}
    same = make_variant(kind, original, context, seed=1)
    assert repr(same) == repr(made)


@pytest.mark.parametrize("kind", [kind for kind, traits in VARIANTS.items() if traits.needs_grammar])
def test_text_too_deep_to_query_has_no_variant(kind, context):
    text = b"x = " + b"(" * 30_000 + b"1" + b")" * 30_000 + b"\n"
    deep = Original(text=text, ids=context.tokenizer.encode(text).ids, language="python")
    assert make_variant(kind, deep, context, seed=1) is WhyNoVariant.SYNTAX_ERRORS


def test_missing_answer_gives_no_rewrite(context):
    why = WhyNoVariant.TEXT_TOO_LONG
    unanswered = Original(text=TEXT, ids=context.tokenizer.encode(TEXT).ids, language="python", why_no_answer=why)
    assert make_variant(VariantKind.REWRITE, unanswered, context, seed=1) is why
