import json
from importlib import resources

import pytest
import zstandard

from gristmill import load_tokenizer
from gristmill.core.errors import TokenizerError
from gristmill.tokenizers.definition import Template
from gristmill.tokenizers.locate import BUNDLED_FILE, ROBERTA_TOKENS, locate
from support import trained_tokenizers as made

SAMPLE = b"def f(x):\n    return x  # <mask>\n"


@pytest.fixture(scope="module")
def model():
    packed = resources.files("gristmill.tokenizers").joinpath(BUNDLED_FILE).read_bytes()
    return json.loads(zstandard.decompress(packed))["model"]


def write_pair(folder, vocab, merges):
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    return folder


def test_codeberts_vocab_and_merges_load_as_codebert(tmp_path, model, codebert):
    folder = write_pair(tmp_path / "roberta", model["vocab"], model["merges"])
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.encode(SAMPLE).ids.tolist() == codebert.encode(SAMPLE).ids.tolist()
    assert tokenizer.definition.template == Template((0,), (2,))
    assert tokenizer.definition.pad_id == 1
    assert locate(str(folder)).name == "roberta"


def test_vocab_and_merges_without_robertas_tokens_load_as_gpt2(tmp_path, model):
    vocab = {token: index for token, index in model["vocab"].items() if token not in ROBERTA_TOKENS}
    merges = [merge for merge in model["merges"] if "".join(merge) in vocab]
    tokenizer = load_tokenizer(str(write_pair(tmp_path / "gpt2", vocab, merges)))
    assert tokenizer.definition.template == Template((), ())
    assert tokenizer.definition.control_ids == {vocab["<|endoftext|>"]}


def test_a_file_and_its_folder_load_the_same_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text(made.unigram())
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>", "tokenizer_class": "X"}')
    by_file, by_folder = locate(str(tmp_path / "tokenizer.json")), locate(str(tmp_path))
    assert by_file.json == by_folder.json == made.unigram().encode()
    assert by_file.config == by_folder.config


def test_a_tokenizer_file_may_have_any_name(tmp_path):
    (tmp_path / "mine.json").write_text(made.byte_level())
    assert locate(str(tmp_path / "mine.json")).name == "mine.json"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has neither tokenizer.json"),
        ({"tokenizer.json": "{"}, "damaged"),
        ({"tokenizer.json": made.byte_level(), "tokenizer_config.json": "["}, "tokenizer_config.json"),
        ({"vocab.json": "[]", "merges.txt": ""}, "vocab.json"),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, "does not produce a token"),
        ({"vocab.json": '{"a": 0}'}, "has neither tokenizer.json"),
    ],
)
def test_a_damaged_folder_is_an_error(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(TokenizerError, match=message):
        locate(str(tmp_path))


@pytest.mark.parametrize("name", ["./none/tokenizer.json", "a/b/c", "", "../none/x", "~nosuchuser/x", "n" * 5000])
def test_an_unknown_name_is_an_error(name):
    with pytest.raises(TokenizerError, match="there is no tokenizer"):
        locate(name)
