"""Compare gigatoken with `tokenizers` for Qwen, DeepSeek, Llama, Gemma, GPT-4o and Mistral NeMo."""

import random

import numpy as np
import pytest

from gristmill import load_tokenizer
from gristmill.cleaning.control_spellings import Spellings, respell, restore
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from support.real_tokenizers import NAMES, tokenizer_path

PIECES = [
    *"aZ7! '\n\t\r.,_-▁é字か각²€😀\u200b\u00a0\u0301\u0300",
    *("'s", "'LL", "\r\n", "    ", "\n\n\n", "▁▁", "https://", "e\u0301", "Å", "\u212b"),
    *(
        "<s>",
        "</s>",
        "<unk>",
        "<|endoftext|>",
        "<|im_end|>",
        "<|fim_prefix|>",
        "<unused1>",
        "[@BOS@]",
        "<2mass>",
        "<table>",
    ),
]


@pytest.fixture(scope="module", params=NAMES)
def engines(request):
    path = tokenizer_path(request.param)
    if not path.exists():
        pytest.skip(f"the tokenizer {request.param} is missing. 'make test' downloads it.")
    fast = load_tokenizer(str(path))
    return fast, ReferenceTokenizer(fast.definition)


def assert_same(engines, text):
    fast, reference = engines
    ours, expected = fast.encode(text, with_starts=True), reference.encode(text)
    assert np.array_equal(ours.ids, expected.ids)
    assert np.array_equal(ours.newline_tokens, expected.newline_tokens)
    assert ours.control_id is expected.control_id is None
    assert ours.starts[0] == 0
    assert ours.starts[-1] == len(text)
    assert (np.diff(ours.starts) >= 0).all()
    return ours


def test_gigatoken_supports_the_tokenizer(engines):
    assert engines[0].engine.startswith("gigatoken ")


def test_files(engines, own_files):
    for file in own_files[::80]:
        text = file.read_bytes()
        ours = assert_same(engines, text)
        if engines[0].decodes_exactly:
            assert engines[0].decode(ours.ids) == text


def test_random_texts(engines):
    pick = random.Random(1)
    for _ in range(200):
        assert_same(engines, "".join(pick.choices(PIECES, k=pick.randrange(40))).encode())


def test_a_trainer_finds_no_special_token_in_respelled_text(engines):
    """Encode with the unmodified tokenizer, as trainers do. HTML tags are respelled only if the tokenizer has them."""
    tokenizers = pytest.importorskip("tokenizers")
    definition = engines[0].definition
    unmodified = tokenizers.Tokenizer.from_str(definition.json.decode())
    spellings = definition.control_spellings
    is_special = {token.id for token in definition.added_tokens if token.content in spellings}
    text = " ".join(spellings) + "".join(spellings) + "".join(f"{name[:-1]}{name}{name[1:]}" for name in spellings)
    assert is_special & set(unmodified.encode(text, add_special_tokens=False).ids)
    done = respell(text.encode(), Spellings((*KNOWN_SPELLINGS, *spellings), SPELLING_SHAPES))
    assert not is_special & set(unmodified.encode(done.text.decode(), add_special_tokens=False).ids)
    assert restore(done.text, done.respellings) == text.encode()
    with_known_names = respell(text.encode(), Spellings(KNOWN_SPELLINGS, SPELLING_SHAPES))
    left = set(unmodified.encode(with_known_names.text.decode(), add_special_tokens=False).ids) & is_special
    assert {unmodified.id_to_token(one) for one in left} <= {"<s>", "</s>", "<unk>", "<mask>"}
