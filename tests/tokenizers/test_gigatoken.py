"""Compare gigatoken with `tokenizers` on every code point, on random text and on real files."""

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from support import trained_tokenizers as made
from support.gpu_texts import NOT_UTF8, SCALARS, ids_by_reference

CONTROL_TEXTS = ["</s>", "<mask>", "<s>x</s>", " <mask> ", "<|endoftext|>", "<pad><unk>"]
PATTERNS = {
    "gpt2": None,
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def definition(text):
    return Definition(name="test", json=text.encode(), config=b"{}")


@pytest.fixture(scope="module")
def oracle(codebert):
    return ReferenceTokenizer(codebert.definition)


def assert_same(fast, oracle, text: bytes):
    ours, reference = fast.encode(text, with_starts=True), oracle.encode(text, with_starts=True)
    assert ours.ids.tolist() == reference.ids.tolist()
    return ours, reference


def test_codebert_runs_on_the_fast_engine(codebert):
    assert codebert.engine.startswith("gigatoken ")


def test_every_code_point_in_context(codebert):
    """Test all code points of planes 0 to 3, and every 16th code point of the other planes, which are mostly unassigned.

    test_patterns.py tests where each character is split from its neighbors.
    """
    chosen = [*SCALARS[:0x40000], *SCALARS[0x40000::16]]
    for at in range(0, len(chosen), 20_000):
        text = "".join(f"a{one}b {one}\n" for one in chosen[at : at + 20_000]).encode()
        (expected,) = ids_by_reference(codebert.definition, [text])
        assert np.array_equal(codebert.encode(text).ids, expected)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60))
def test_random_text(codebert, oracle, text):
    assert_same(codebert, oracle, text.encode())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*CONTROL_TEXTS, "'s", "'LL", " ", "  ", "\n", "\t", "\r\n", "x", "é", "123", "_"])).map(
        "".join
    )
)
def test_awkward_text(codebert, oracle, text):
    assert_same(codebert, oracle, text.encode())


def test_real_files(codebert, oracle, own_files):
    for file in own_files[::8]:
        text = file.read_bytes()
        ours, reference = assert_same(codebert, oracle, text)
        assert ours.newline_tokens.tolist() == reference.newline_tokens.tolist()


@pytest.mark.parametrize("text", CONTROL_TEXTS)
def test_control_tokens_in_text_are_encoded_as_text(codebert, text):
    ids = codebert.encode(text.encode()).ids
    assert not codebert.definition.control_ids.intersection(ids.tolist())
    assert codebert.decode(ids) == text.encode()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_token_starts_cut_the_text_into_its_tokens(codebert, text):
    utf8 = text.encode()
    encoded = codebert.encode(utf8, with_starts=True)
    starts = encoded.starts.tolist()
    assert starts[0] == 0
    assert starts[-1] == len(utf8)
    pieces = [utf8[start:end] for start, end in itertools.pairwise(starts)]
    assert pieces == [codebert.decode([index]) for index in encoded.ids.tolist()]
    newlines = [index for index, piece in enumerate(pieces) for _ in range(piece.count(b"\n"))]
    assert encoded.newline_tokens.tolist() == newlines


@pytest.mark.parametrize("name", PATTERNS)
def test_other_byte_level_tokenizers(name, own_files):
    text = made.byte_level(PATTERNS[name])
    fast = FastTokenizer.load(definition(text))
    assert fast is not None
    oracle = ReferenceTokenizer(definition(text))
    for file in own_files[::25]:
        assert_same(fast, oracle, file.read_bytes())
    assert_same(fast, oracle, "a <|endoftext|> b's 12345 éß\r\n\n  x".encode())


def test_sentence_piece_with_literal_meta_spaces():
    text = made.sentence_piece_bpe()
    fast, oracle = FastTokenizer.load(definition(text)), ReferenceTokenizer(definition(text))
    assert fast is not None
    for sample in ("def  f(x):\n\treturn 'é€😀'  </s>\n", " ▁ a▁b ▁▁", "", "\n\n", "▁x", "x" * 50):
        utf8 = sample.encode()
        ours, reference = assert_same(fast, oracle, utf8)
        assert ours.starts[-1] == len(utf8)
        assert ours.newline_tokens.tolist() == reference.newline_tokens.tolist()
        assert fast.decode(ours.ids) == utf8 or "▁" in sample


def test_sentence_piece_with_added_tokens_and_a_split_that_finds_nothing():
    """As in Gemma, ▁ replaces spaces before the text is split at spaces, and some added tokens are plain text."""
    tree = json.loads(made.sentence_piece_bpe())
    tree["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    tree["pre_tokenizer"] = split
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    vocabulary = tree["model"]["vocab"]
    for content in ("<unused0>", "\n\n", "▁▁"):
        index = vocabulary.setdefault(content, len(vocabulary))
        tree["added_tokens"].append({"id": index, "content": content, **flags})
    text = json.dumps(tree)
    fast, oracle = FastTokenizer.load(definition(text)), ReferenceTokenizer(definition(text))
    for sample in ("a  b\n\n\nc", "<unused0> x<unused0>", "▁▁ ▁ x▁▁▁", "\n\n\n\n", " <unused0>\n", "é▁▁\n\n"):
        ours, reference = assert_same(fast, oracle, sample.encode())
        assert ours.starts[-1] == len(sample.encode())
        assert ours.newline_tokens.tolist() == reference.newline_tokens.tolist()


@pytest.mark.parametrize(
    "text",
    [
        made.word_piece(),
        made.unigram(),
        made.byte_level(add_prefix_space=True),
        made.byte_level(r"\d"),
        json.dumps({**json.loads(made.byte_level()), "added_tokens": [
            {"id": 600, "content": "foo", "single_word": True, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}]}),
        json.dumps({**json.loads(made.byte_level()), "added_tokens": [
            {"id": 600 + index, "content": "ab"[index] * 5, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": bool(index), "special": False} for index in range(2)]}),
        json.dumps({**json.loads(made.byte_level()), "added_tokens": [
            {"id": 600, "content": "a", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}]}),
        json.dumps({**json.loads(made.byte_level()), "model": {
            **json.loads(made.byte_level())["model"], "end_of_word_suffix": "</w>"}}),
    ],
)  # fmt: skip
def test_unsupported_tokenizers_are_left_to_the_reference(text):
    assert FastTokenizer.load(definition(text)) is None


def test_plain_added_tokens_are_kept():
    tree = json.loads(made.byte_level())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    tree["added_tokens"].append({"id": 600, "content": "        ", **flags})
    text = json.dumps(tree)
    fast, oracle = FastTokenizer.load(definition(text)), ReferenceTokenizer(definition(text))
    ours, _ = assert_same(fast, oracle, b"if x:\n                return y\n")
    assert 600 in ours.ids.tolist()


@pytest.fixture(
    scope="module",
    params=["gigatoken, bytes", "gigatoken, byte fallback", "tokenizers, bytes", "tokenizers, WordPiece"],
)
def engine(request, codebert):
    kind, model = request.param.split(", ")
    makers = {"byte fallback": made.sentence_piece_bpe, "WordPiece": made.word_piece}
    chosen = definition(makers[model]()) if model in makers else codebert.definition
    return FastTokenizer.load(chosen) if kind == "gigatoken" else ReferenceTokenizer(chosen)


@pytest.mark.parametrize("kind", NOT_UTF8)
def test_invalid_utf8_is_rejected_before_encoding(engine, kind):
    with pytest.raises(
        TokenizerError, match=r"accepts only valid Unicode: byte \d+ \(0x..\) is not valid UTF-8 \(.*Decode"
    ):
        engine.encode(NOT_UTF8[kind], with_starts=True)
    with pytest.raises(TokenizerError, match=r"^document 1: the tokenizer"):
        engine.encode_many([b"x", NOT_UTF8[kind], b"y"])


def test_a_string_is_encoded_as_its_utf8(engine):
    for text in ("größe = '😀'\n", "", "x"):
        found, expected = engine.encode(text, with_starts=True), engine.encode(text.encode(), with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found, expected, strict=True))
        assert np.array_equal(engine.encode_many([text])[0].ids, expected.ids)


def test_surrogates_and_other_types_are_rejected(engine):
    with pytest.raises(TokenizerError, match=r"character 1 \(U\+D800\) is a surrogate, which UTF-8 cannot encode"):
        engine.encode("x\ud800")
    with pytest.raises(TokenizerError, match="accepts bytes or str, not bytearray"):
        engine.encode(bytearray(b"x"))
    with pytest.raises(TokenizerError, match=r"^document 0: .* not int"):
        engine.encode_many([1])


def test_long_documents(codebert, oracle):
    random.seed(1)
    for text in (b"a" * 200_000, b" " * 100_000, b"\n" * 100_000, random.randbytes(30_000).hex().encode()):
        assert_same(codebert, oracle, text)
