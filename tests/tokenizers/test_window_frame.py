"""Test the special ids around windows with the tokenizers of each model family."""

import json

import pytest

from gristmill.config.settings import WindowConfig
from gristmill.core.errors import ConfigError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.window_frame import fim_frame, window_frame
from support import trained_tokenizers as made
from support.real_tokenizers import tokenizer_path

DOCUMENTS = WindowConfig(special_tokens="documents")
FAMILIES = {
    "qwen2_5": (None, "<|endoftext|>"),
    "qwen3": (None, "<|endoftext|>"),
    "llama2": ("<s>", "</s>"),
    "llama3": ("<|begin_of_text|>", "<|end_of_text|>"),
    "deepseek_v3": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "gemma2": ("<bos>", "<eos>"),
    "gpt4o": (None, "<|endoftext|>"),
    "mistral_nemo": ("<s>", "</s>"),
}


def definition_of(name):
    if not tokenizer_path(name).exists():
        pytest.skip(f"the tokenizer {name} is missing. 'make test' downloads it.")
    return Definition(name=name, json=tokenizer_path(name).read_bytes(), config=b"{}")


@pytest.mark.parametrize("name", FAMILIES)
def test_documents_begin_and_end_as_the_family_was_trained(name):
    definition = definition_of(name)
    begin, end = FAMILIES[name]
    frame = window_frame(DOCUMENTS, definition)
    assert frame.prefix == (() if begin is None else (definition.id_of(begin),))
    assert frame.suffix == ()
    assert frame.closing == (definition.id_of(end),)
    assert frame.end_id == definition.id_of(end)


def test_an_instruct_tokenizer_ends_documents_like_its_base_model():
    definition = definition_of("qwen2_5")
    instruct = Definition(
        name="instruct", json=definition.json, config=json.dumps({"eos_token": "<|im_end|>"}).encode()
    )
    assert window_frame(DOCUMENTS, instruct).closing == (definition.id_of("<|endoftext|>"),)


def test_the_end_token_is_configurable():
    definition = definition_of("qwen2_5")
    named = WindowConfig(special_tokens="documents", end_token="<|im_end|>")
    assert window_frame(named, definition).closing == (definition.id_of("<|im_end|>"),)
    none = WindowConfig(special_tokens="documents", end_token="none")
    assert window_frame(none, definition) == ((), (), (), None)
    with pytest.raises(ConfigError, match=r"has no such token.*Try --end-token none, or one of its special tokens"):
        window_frame(WindowConfig(special_tokens="documents", end_token="<end>"), definition)
    with pytest.raises(ConfigError, match="has this token only as ordinary text"):
        window_frame(WindowConfig(special_tokens="documents", end_token="the"), definition)


def test_the_template_of_a_masked_model_is_around_every_window():
    definition = Definition(name="masked", json=made.word_piece().encode(), config=b"{}")
    frame = window_frame(WindowConfig(special_tokens="template"), definition)
    assert (frame.prefix, frame.suffix, frame.closing) == (*definition.template, ())


FIM_FAMILIES = {
    # Columns: (prefix, middle, suffix) tokens, end token, share of SPM. Source: the paper or model card of each family.
    "StarCoder 2": (("<fim_prefix>", "<fim_middle>", "<fim_suffix>"), "<|endoftext|>", 0.5),
    "Qwen coder": (("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"), "<|endoftext|>", 0.0),
    "CodeGemma": (("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"), "<|file_separator|>", 0.0),
    "DeepSeek coder": (("<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜fim▁hole｜>"), "<｜end▁of▁sentence｜>", 0.0),
    "Code Llama": (("▁<PRE>", "▁<MID>", "▁<SUF>"), "▁<EOT>", 0.5),
}


@pytest.mark.parametrize("family", FIM_FAMILIES)
def test_fim_tokens_depend_on_the_family(family):
    names, end, spm_share = FIM_FAMILIES[family]
    eos = "</s>" if family == "Code Llama" else "<eos>" if family == "CodeGemma" else end
    definition = with_tokens(*dict.fromkeys((*names, end, eos)))
    frame = fim_frame(DOCUMENTS, definition)
    assert (frame.prefix, frame.middle, frame.suffix) == tuple(map(definition.id_of, names))
    assert frame.spm_share == spm_share
    has_fim_end = end != eos
    assert frame.closes is not has_fim_end
    assert frame.end == (definition.id_of(end) if has_fim_end else None)
    in_text = fim_frame(DOCUMENTS, definition, has_documents=True)
    assert (in_text.end, in_text.closes) == (frame.end, False)
    in_repository = fim_frame(WindowConfig(special_tokens="documents", pack="repo"), definition)
    assert (in_repository.end, in_repository.closes) == (definition.id_of(end), False)


def with_tokens(*names):
    tree = json.loads(made.byte_level())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] = [
        {"id": index, "content": name, "special": True, **flags} for index, name in enumerate(names, 1000)
    ]
    return Definition(name="made here", json=json.dumps(tree).encode(), config=b"{}")
