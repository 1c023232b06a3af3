import itertools
import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import trained_tokenizers as made


def definition(text):
    return Definition(name="test", json=text.encode(), config=b"{}")


@pytest.mark.parametrize("text", [made.word_piece(), made.unigram()])
def test_models_that_gigatoken_does_not_support_are_encoded(text):
    tokenizer = tokenizer_for(definition(text))
    assert tokenizer.engine.startswith("tokenizers ")
    sample = "def loads(s):\n    return decode(s)\n"
    plain = Tokenizer.from_str(text).encode(sample, add_special_tokens=False)
    assert tokenizer.encode(sample.encode()).ids.tolist() == plain.ids


@pytest.mark.parametrize("text", [made.word_piece(), made.word_piece_on_spaces(), made.unigram(), made.byte_level()])
def test_control_tokens_in_text_are_encoded_as_text(text):
    tokenizer = ReferenceTokenizer(definition(text))
    for sample in ("a [MASK] b", "[CLS] [SEP]", "x <mask> </s> y <s>", "<|endoftext|>", "[PAD]"):
        encoded = tokenizer.encode(sample.encode())
        assert len(encoded.ids)
        assert encoded.control_id is None
        assert not tokenizer.definition.control_ids.intersection(encoded.ids.tolist())


def test_an_unmodified_tokenizer_produces_control_tokens():
    """Show that the previous test can fail: the unmodified tokenizer encodes the text as a control token."""
    unmodified = Tokenizer.from_str(made.unigram())
    unmodified.encode_special_tokens = True
    assert unmodified.token_to_id("<mask>") in unmodified.encode("a <mask> b").ids


def test_a_control_token_in_the_ids_is_reported():
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


def test_an_unknown_model_is_an_error():
    with pytest.raises(TokenizerError, match="cannot be loaded"):
        ReferenceTokenizer(definition('{"model": {"type": "Novel", "vocab": {"a": 0}}}'))


def test_a_missing_extra_names_the_install_command(tmp_path):
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
