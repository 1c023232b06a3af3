"""Spellings of control tokens: found, respelled and restored; each against a slow, obvious reference."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gristmill.cleaning.clean import clean_all
from gristmill.cleaning.control_spellings import Spellings, has_spelling, respell, restored, with_spellings
from gristmill.cleaning.rules import Limits
from gristmill.cleaning.secrets import find_secrets
from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig, RulesConfig
from gristmill.core.records import Document, DropReason, SourceFile
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES

SPELLINGS = Spellings((*KNOWN_SPELLINGS, "<s>", "</s>"), SPELLING_SHAPES)
PIECES = ("<", "|", ">", "<|", "|>", "<|endoftext|>", "fim_prefix", "<fim_prefix>", "endof", "text", "▁<PRE>", "[INST]")
MORE = (
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
PARTS = st.sampled_from((*PIECES, *MORE, "mask_1", "SPECIAL_1", "▁"))
texts = st.lists(PARTS, max_size=14).map("".join)


def spelled_in(text):
    """By Python's own regular expressions, over characters: every place, overlapping ones too."""
    shapes = [r"<\|[0-9A-Za-z_▁][0-9A-Za-z_.:/▁-]*\|>", "<｜[0-9A-Za-z_▁][0-9A-Za-z_.:/▁-]*｜>"]
    shapes += [r"<extra_id_[0-9]+>", r"<mask_[0-9]+>", r"<SPECIAL_[0-9]+>"]
    pattern = "|".join((*map(re.escape, SPELLINGS.names), *shapes))
    return {match.start() for match in re.finditer(f"(?=({pattern}))", text)}


@given(texts)
@example("<|end<|endoftext|>oftext|>")
@example("<|<|a|>|>")
@example("▁<PRE>▁<PRE>")
@example("<<SYS>>")
def test_a_respelled_text_spells_nothing_and_is_restored(text):
    done = respell(text.encode(), SPELLINGS)
    assert not spelled_in(done.text.decode())
    assert not has_spelling(done.text, SPELLINGS)
    assert restored(done.text, done.respellings) == text.encode()
    assert bool(done.respellings) == bool(spelled_in(text)) == has_spelling(text.encode(), SPELLINGS)
    assert len(done.text) == len(text.encode()) + len(done.respellings)
    for one in done.respellings:
        assert one.line == 1 + text.encode()[: one.at].count(b"\n")


@given(st.lists(texts, max_size=6))
def test_texts_that_hold_one_are_found_all_at_once(many):
    found = with_spellings([text.encode() for text in many], SPELLINGS)
    assert found == [number for number, text in enumerate(many) if spelled_in(text)]


@given(st.text(alphabet="ab< ", max_size=12))
def test_spellings_that_blanks_make_are_respelled_too(text):
    """Names that hold blanks, or begin with what a blank was put in front of."""
    odd = Spellings(("<a", "< a", " a<", "ab"), ())
    done = respell(text.encode(), odd)
    if done is not None:
        assert not has_spelling(done.text, odd)
        assert restored(done.text, done.respellings) == text.encode()


def test_a_token_of_one_character_cannot_be_respelled():
    assert respell(b"a~b", Spellings(("~",), ())) is None


@pytest.mark.parametrize(
    "text",
    ["a <| b |> c", "<|-|>", "x <|=|==|> y", "<||>", "<PRE>", "<mask>", "<filename>", "usage: f <name>", "<extra_id_>"],
)
def test_ordinary_code_is_left(text):
    assert not has_spelling(text.encode(), Spellings(KNOWN_SPELLINGS, SPELLING_SHAPES))


def test_a_long_text_is_respelled_in_one_round():
    text = b"<|im_start|> x\n" * 20_000
    done = respell(text, SPELLINGS)
    assert len(done.respellings) == 20_000
    assert (done.respellings[-1].line, done.respellings[-1].at) == (20_000, 15 * 19_999 + 1)


def cleaned(text, action="respell"):
    file = SourceFile(repo="r", path="a.py", location="/r/a.py", size=len(text))
    document = Document(file=file, text=text, encoding="utf-8", language="python", size=len(text), sha256="0" * 64)
    config = Config(sources=["."], out="o", output=OutputConfig(rows="documents", control_spellings=action))
    (answer,) = clean_all([document], config, Limits(RulesConfig()), SPELLINGS)
    return answer


def test_cleaning_respells_and_keeps_the_digest_of_the_file():
    answer = cleaned(b'END = "<|endoftext|>"\nprint(END)\n')
    assert answer.text == b'END = "< |endoftext|>"\nprint(END)\n'
    assert answer.sha256 == "0" * 64
    assert not answer.is_as_read
    assert [(one.spelling, one.line, one.at) for one in answer.respellings] == [("<|endoftext|>", 1, 8)]


def test_cleaning_drops_where_that_is_wanted():
    answer = cleaned(b'A = "<|a|> <|b|> <s> </s> <|a|>"\nprint(A)\n', "drop")
    assert answer.reason is DropReason.CONTROL_SPELLING
    assert answer.detail == "<|a|>, <|b|>, <s> and 1 more"


@given(
    st.lists(
        PARTS | st.sampled_from(["ghp_", "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8", "password=", '"', "'"]), max_size=9
    )
)
def test_no_secret_is_left_beside_a_respelling(parts):
    answer = cleaned(f"x = 1\ny = 2  # {''.join(parts)}\nprint(x, y)\n".encode())
    if isinstance(answer, Document):
        assert not find_secrets(answer.text)
        assert not has_spelling(answer.text, SPELLINGS)
