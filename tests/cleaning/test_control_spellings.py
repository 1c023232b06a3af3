"""Tests that spellings of control tokens are found, changed and restored, compared with a slow reference."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gristmill.cleaning.clean import clean_all
from gristmill.cleaning.control_spellings import Spellings, has_spelling, indices_with_spellings, respell, restore
from gristmill.cleaning.rules import Limits
from gristmill.cleaning.secrets import find_secrets
from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig, RulesConfig
from gristmill.core.records import Document, DropReason, SourceFile
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES

SPELLINGS = Spellings((*KNOWN_SPELLINGS, "<s>", "</s>"), SPELLING_SHAPES)
PIECES = ("<", "|", ">", "<|", "|>", "<|endoftext|>", "fim_prefix", "<fim_prefix>", "endof", "text", "▁<PRE>", "[INST]")
MORE_PIECES = (
    "[",
    "]",
    "<｜",
    "｜>",
    "begin▁of▁sentence",
    "extra_id_",
    "0",
    " ",
    "\n",
    "a",
    "é",
    "🦀",
    "</s>",
    "<s>",
    "<<SYS>>",
)
PARTS = st.sampled_from((*PIECES, *MORE_PIECES, "mask_1", "SPECIAL_1", "▁"))
texts = st.lists(PARTS, max_size=14).map("".join)


def find_spellings(text):
    """Find all spellings, including overlapping ones, with the `re` module. Return their offsets."""
    shapes = [r"<\|[0-9A-Za-z_▁][0-9A-Za-z_.:/▁-]*\|>", "<｜[0-9A-Za-z_▁][0-9A-Za-z_.:/▁-]*｜>"]
    shapes += [r"<extra_id_[0-9]+>", r"<mask_[0-9]+>", r"<SPECIAL_[0-9]+>"]
    pattern = "|".join((*map(re.escape, SPELLINGS.names), *shapes))
    return {match.start() for match in re.finditer(f"(?=({pattern}))", text)}


@given(texts)
@example("<|end<|endoftext|>oftext|>")
@example("<|<|a|>|>")
@example("▁<PRE>▁<PRE>")
@example("<<SYS>>")
def test_respelled_text_has_no_spelling_and_can_be_restored(text):
    respelled = respell(text.encode(), SPELLINGS)
    assert not find_spellings(respelled.text.decode())
    assert not has_spelling(respelled.text, SPELLINGS)
    assert restore(respelled.text, respelled.respellings) == text.encode()
    assert bool(respelled.respellings) == bool(find_spellings(text)) == has_spelling(text.encode(), SPELLINGS)
    assert len(respelled.text) == len(text.encode()) + len(respelled.respellings)
    for one in respelled.respellings:
        assert one.line == 1 + text.encode()[: one.at].count(b"\n")


@given(st.lists(texts, max_size=6))
def test_texts_with_spellings_are_found_in_a_batch(texts_in_batch):
    found = indices_with_spellings([text.encode() for text in texts_in_batch], SPELLINGS)
    assert found == [number for number, text in enumerate(texts_in_batch) if find_spellings(text)]


@given(st.text(alphabet="ab< ", max_size=12))
def test_spellings_created_by_inserted_spaces_are_respelled(text):
    """A space inserted into the spelling `<a` makes `< a`, which is also a spelling."""
    overlapping = Spellings(("<a", "< a", " a<", "ab"), ())
    respelled = respell(text.encode(), overlapping)
    if respelled is not None:
        assert not has_spelling(respelled.text, overlapping)
        assert restore(respelled.text, respelled.respellings) == text.encode()


def test_one_character_token_cannot_be_respelled():
    assert respell(b"a~b", Spellings(("~",), ())) is None


@pytest.mark.parametrize(
    "text",
    ["a <| b |> c", "<|-|>", "x <|=|==|> y", "<||>", "<PRE>", "<mask>", "<filename>", "usage: f <name>", "<extra_id_>"],
)
def test_ordinary_code_has_no_spelling(text):
    assert not has_spelling(text.encode(), Spellings(KNOWN_SPELLINGS, SPELLING_SHAPES))


def test_many_spellings_are_respelled():
    text = b"<|im_start|> x\n" * 20_000
    respelled = respell(text, SPELLINGS)
    assert len(respelled.respellings) == 20_000
    assert (respelled.respellings[-1].line, respelled.respellings[-1].at) == (20_000, 15 * 19_999 + 1)


def clean_text(text, action="respell"):
    file = SourceFile(repo="r", path="a.py", location="/r/a.py", size=len(text))
    document = Document(file=file, text=text, encoding="utf-8", language="python", size=len(text), sha256="0" * 64)
    config = Config(sources=["."], out="o", output=OutputConfig(rows="documents", control_spellings=action))
    (result,) = clean_all([document], config, Limits(RulesConfig()), SPELLINGS)
    return result


def test_cleaning_respells_and_keeps_the_file_digest():
    result = clean_text(b'END = "<|endoftext|>"\nprint(END)\n')
    assert result.text == b'END = "< |endoftext|>"\nprint(END)\n'
    assert result.sha256 == "0" * 64
    assert not result.is_unmodified
    assert [(one.spelling, one.line, one.at) for one in result.respellings] == [("<|endoftext|>", 1, 8)]


def test_cleaning_drops_texts_with_spellings_if_configured():
    result = clean_text(b'A = "<|a|> <|b|> <s> </s> <|a|>"\nprint(A)\n', "drop")
    assert result.reason is DropReason.CONTROL_SPELLING
    assert result.detail == "<|a|>, <|b|>, <s> and 1 more"


@given(
    st.lists(
        PARTS | st.sampled_from(["ghp_", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8", "password=", '"', "'"]), max_size=9
    )
)
def test_no_secret_is_left_after_respelling(parts):
    result = clean_text(f"x = 1\ny = 2  # {''.join(parts)}\nprint(x, y)\n".encode())
    if isinstance(result, Document):
        assert not find_secrets(result.text)
        assert not has_spelling(result.text, SPELLINGS)
