import itertools
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import tokenizers_made_here as made


def definition(text):
    return Definition(name="test", json=text.encode(), config=b"{}")


@pytest.mark.parametrize("text", [made.word_piece(), made.unigram()])
def test_models_that_the_fast_engine_refuses_are_served(text):
    tokenizer = tokenizer_for(definition(text))
    assert tokenizer.engine.startswith("tokenizers ")
    sample = "def loads(s):\n    return decode(s)\n"
    plain = Tokenizer.from_str(text).encode(sample, add_special_tokens=False)
    assert tokenizer.encode(sample.encode()).ids.tolist() == plain.ids


@pytest.mark.parametrize("text", [made.word_piece(), made.word_piece_on_spaces(), made.unigram(), made.byte_level()])
def test_control_tokens_in_text_stay_text(text):
    tokenizer = ReferenceTokenizer(definition(text))
    for sample in ("a [MASK] b", "[CLS] [SEP]", "x <mask> </s> y <s>", "<|endoftext|>", "[PAD]"):
        encoded = tokenizer.encode(sample.encode())
        assert len(encoded.ids)
        assert encoded.control_id is None
        assert not tokenizer.definition.control_ids.intersection(encoded.ids.tolist())


def test_the_trap_is_real():
    """Without our care the same text does become a control token: the test above can fail."""
    careless = Tokenizer.from_str(made.unigram())
    careless.encode_special_tokens = True
    assert careless.token_to_id("<mask>") in careless.encode("a <mask> b").ids


def test_a_control_token_that_slips_through_is_noticed():
    text = made.unigram()
    tokenizer = ReferenceTokenizer(definition(text))
    tokenizer._engine = Tokenizer.from_str(text)
    assert tokenizer.encode(b"a <mask> b").control_id == 4


def test_starts_are_byte_offsets():
    tokenizer = ReferenceTokenizer(definition(made.word_piece()))
    text = "né  = 'é€😀'\n\ndef x(): pass\n".encode()
    encoded = tokenizer.encode(text, with_starts=True)
    starts = encoded.starts.tolist()
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, len(text))
    assert b"".join(text[start:end] for start, end in itertools.pairwise(starts)) == text
    assert len(encoded.newline_tokens) == text.count(b"\n")
    assert encoded.newline_tokens.tolist() == sorted(encoded.newline_tokens.tolist())


def test_text_without_tokens():
    encoded = ReferenceTokenizer(definition(made.word_piece())).encode(b" \n ", with_starts=True)
    assert len(encoded.ids) == 0


def test_a_model_that_nobody_can_load_says_so():
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        ReferenceTokenizer(definition('{"model": {"type": "Novel", "vocab": {"a": 0}}}'))


def test_without_the_extra_the_install_line_is_said(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(made.word_piece())
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "import gristmill\n"
        "try: gristmill.load_tokenizer(sys.argv[1])\n"
        "except gristmill.MissingExtraError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "pip install 'gristmill[tokenizers]'" in answer.stdout
