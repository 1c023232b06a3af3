import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers import control_tokens
from gristmill.tokenizers.definition import Definition, Template
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import trained_tokenizers as made

LLAMA_LIKE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
}


def definition(text, config="{}"):
    return Definition(name="test", json=text.encode(), config=config.encode())


def with_processor(processor):
    return definition(json.dumps({**json.loads(made.byte_level()), "post_processor": processor}))


@pytest.mark.parametrize(
    ("text", "template"),
    [
        (made.word_piece(), Template((2,), (3,))),
        (made.unigram(), Template((0,), (2,))),
        (made.byte_level(), Template((), ())),
    ],
)
def test_template_matches_the_post_processor(text, template):
    assert definition(text).template == template
    reference = Tokenizer.from_str(text)
    plain = reference.encode("x y", add_special_tokens=False).ids
    assert reference.encode("x y").ids == [*template.prefix, *plain, *template.suffix]


@pytest.mark.parametrize(
    "order", [[{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, LLAMA_LIKE]]
)
def test_template_of_a_sequence_of_post_processors(order):
    sequence = with_processor({"type": "Sequence", "processors": order})
    reference = Tokenizer.from_str(sequence.json.decode())
    plain = reference.encode("x y", add_special_tokens=False).ids
    template = sequence.template
    assert reference.encode("x y").ids == [*template.prefix, *plain, *template.suffix]
    assert template == Template((0,), ())


def test_template_with_several_tokens_on_each_side():
    tokenizer = Tokenizer.from_str(made.unigram())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> <mask> $A </s> </s>", special_tokens=[("<s>", 0), ("</s>", 2), ("<mask>", 4)]
    )
    assert definition(tokenizer.to_str()).template == Template((0, 4), (2, 2))


def test_an_unknown_post_processor_is_an_error():
    with pytest.raises(TokenizerError, match="'Novel'"):
        _ = with_processor({"type": "Novel"}).template


def test_the_unknown_token_is_no_control_token():
    assert definition(made.unigram()).control_ids == {0, 1, 2, 4}
    assert definition(made.word_piece()).control_ids == {0, 2, 3, 4}


def test_pad_token_is_configured_or_found_by_name():
    assert definition(made.word_piece()).pad_id == 0
    assert definition(made.unigram(), '{"pad_token": "</s>"}').pad_id == 2
    assert definition(made.unigram(), '{"pad_token": {"content": "<pad>"}}').pad_id == 1
    assert definition(made.byte_level()).pad_id is None


@pytest.mark.parametrize(
    "text",
    ["not json", "[]", "{}", '{"model": 5}', '{"model": {"vocab": 7}}', '{"model": {"vocab": {"a": "b"}}}',
     '{"model": {"vocab": {}}}', '{"model": {"vocab": [["a"]]}}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error(text):
    with pytest.raises(TokenizerError, match="damaged"):
        _ = definition(text).vocab_size


def test_template_tokens_are_control_tokens_even_if_unmarked():
    tree = json.loads(made.word_piece())
    tree["added_tokens"] = [token for token in tree["added_tokens"] if token["content"] not in {"[CLS]", "[SEP]"}]
    unmarked = definition(json.dumps(tree))
    assert {2, 3} <= unmarked.control_ids
    assert b'"[CLS]"' not in unmarked.plain_json()


FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize("base", [made.byte_level(), made.byte_level(nfc=True), made.word_piece()])
def test_plain_added_tokens_keep_their_ids(base):
    """Special and plain tokens alternate after the vocabulary, as in Qwen's files."""
    tree = json.loads(base)
    first = max(tree["model"]["vocab"].values()) + 1
    names = ["<|ctl0|>", "plain0", "<|ctl1|>", "plain1"]
    tree["added_tokens"] += [
        {"id": first + index, "content": name, **FLAGS, "special": "ctl" in name} for index, name in enumerate(names)
    ]
    text = json.dumps(tree)
    reference = Tokenizer.from_str(text)
    sample = "plain1 x plain0"
    expected = reference.encode(sample, add_special_tokens=False).ids
    assert first + 3 in expected
    assert tokenizer_for(definition(text)).encode(sample.encode()).ids.tolist() == expected
    hidden = tokenizer_for(definition(text)).encode(b"a <|ctl0|> b")
    assert hidden.control_id is None


PLAIN = ["        ", "plain", "<table>", "<unused7>", "<2mass>"]
CONTROL = [name for names in control_tokens._NAMES_BY_PURPOSE.values() for name in names if name not in {"<s>", "</s>"}]
CONTROL += ["<|fim_pad|>", "<|im_start|>", "<\uff5cUser\uff5c>", "<extra_id_7>"]


def with_added(base, names):
    """Add tokens that are not marked as special.

    `names` must begin with the plain tokens, because `tokenizers` numbers added tokens by position.
    """
    tree = json.loads(base)
    taken = tree["model"]["vocab"]
    taken = set(taken) if isinstance(taken, dict) else {token for token, _ in taken}
    first = len(taken)
    new = [name for name in names if name not in {token["content"] for token in tree["added_tokens"]} | taken]
    tree["added_tokens"] += [
        {"id": first + index, "content": name, **FLAGS, "special": False} for index, name in enumerate(new)
    ]
    return json.dumps(tree)


@pytest.fixture(
    scope="module",
    params=[made.byte_level(), made.byte_level(nfc=True), made.sentence_piece_bpe(), made.word_piece(), made.unigram()],
    ids=["byte level", "with NFC", "byte fallback", "WordPiece", "Unigram"],
)
def engines(request):
    """Return all engines for a tokenizer with plain and control tokens, and a reference with only the plain tokens."""
    complete = definition(with_added(request.param, [*PLAIN, *CONTROL]))
    oracle = ReferenceTokenizer(definition(with_added(request.param, PLAIN)))
    found = [engine for engine in (FastTokenizer.load(complete), ReferenceTokenizer(complete)) if engine is not None]
    return found, oracle


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*CONTROL, *PLAIN, "x = 1", " ", "\n", "é", '"', "def f"]), max_size=8).map("".join))
def test_control_tokens_are_encoded_as_text_and_plain_ones_as_tokens(engines, text):
    found, oracle = engines
    for engine in found:
        encoded = engine.encode(text)
        assert encoded.control_id is None
        assert encoded.ids.tolist() == oracle.encode(text).ids.tolist()


def test_every_engine_decodes_a_control_token_to_its_text(engines):
    for engine in engines[0]:
        for token in engine.definition.added_tokens:
            if token.content in CONTROL:
                assert token.id in engine.definition.control_ids
                assert engine.decode([token.id]) == token.content.encode()


def test_unmarked_tokens_with_other_names_are_text():
    for name in (*PLAIN, "<s>", "</s>", "<b>", "<code>", "\n\n", "[toxicity=0]", "foo", "<|", "|>", "<| |>", "a<|x|>"):
        assert not control_tokens.is_control_name(name)
    for name in CONTROL:
        assert control_tokens.is_control_name(name)


def test_html_strikethrough_is_not_the_end_token():
    """Gemma's vocabulary contains HTML tags such as </s>, but its end token is <eos>."""
    tree = json.loads(with_added(made.byte_level(), ["<s>", "</s>", "<eos>"]))
    tree["added_tokens"] = [
        {**token, "special": token["content"] == "<eos>"}
        for token in tree["added_tokens"]
        if token["content"] != "<|endoftext|>"
    ]
    gemma_like = definition(json.dumps(tree))
    assert gemma_like.end_id == gemma_like.id_of("<eos>")
    assert gemma_like.id_of("</s>") not in gemma_like.control_ids
    listed = definition(json.dumps(tree), '{"additional_special_tokens": [{"content": "<s>"}, "</s>"]}')
    assert {listed.id_of("<s>"), listed.id_of("</s>")} <= listed.control_ids
    named = definition(json.dumps(tree), '{"eos_token": "</s>"}')
    assert named.end_id == named.id_of("</s>")
    assert named.end_id in named.control_ids


@pytest.mark.parametrize(
    "change",
    [
        {"post_processor": {"type": "TemplateProcessing"}},
        {"post_processor": {}},
        {"post_processor": {"type": "RobertaProcessing", "cls": ["a", -1], "sep": ["b", 2]}},
        {"post_processor": {"type": "RobertaProcessing", "cls": ["a", 1 << 70], "sep": ["b", 2]}},
        {"padding": {}},
        {"padding": {"pad_id": "x"}},
        {"added_tokens": [{"id": -1, "content": "x", "special": True}]},
        {"added_tokens": [{"id": 1 << 40, "content": "x", "special": True}]},
        {"added_tokens": [{"content": "x"}]},
        {"added_tokens": {}},
        {"normalizer": []},
        {"normalizer": {"type": "Sequence"}},
        {"normalizer": {"type": "Sequence", "normalizers": 1}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [5]}},
        {"decoder": 3},
        {"decoder": {"type": "Sequence", "decoders": ["x"]}},
        {"model": {"type": "BPE", "vocab": {"a": 1 << 31}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 1 << 31}, "merges": []}, "added_tokens": []},
        {"model": {"type": "BPE", "vocab": {"a": -5}, "merges": []}},
    ],
)
def test_a_hostile_file_is_an_error(tmp_path, change):
    (tmp_path / "tokenizer.json").write_text(json.dumps({**json.loads(made.byte_level()), **change}))
    with pytest.raises(TokenizerError, match=r"damaged|does not support"):
        locate(str(tmp_path))


@pytest.mark.parametrize(
    "config", ['{"pad_token": ["x"]}', '{"additional_special_tokens": [["x"]]}', "\xff", "[" * 5000]
)
def test_a_hostile_configuration_is_an_error(tmp_path, config):
    (tmp_path / "tokenizer.json").write_text(made.byte_level())
    (tmp_path / "tokenizer_config.json").write_text(config, encoding="latin-1")
    with pytest.raises(TokenizerError, match="damaged"):
        locate(str(tmp_path))
