"""Fill in the middle: the parts rejoin to the source exactly, in both orders, whatever the characters."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gristmill import load_tokenizer
from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import Dice
from gristmill.tokenizers.control_tokens import FIM_NAMES
from gristmill.tokenizers.cuda.merge_tables import byte_characters
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import fim_ids, require_spelled_fim
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.variants.infill import Infiller, Sentinel
from support import tokenizers_made_here as made
from support.made_code import made_module

PREFIX, MIDDLE, SUFFIX = 60_000, 60_001, 60_002
TOKENIZER = load_tokenizer()


def infiller(num_content=64, tokenizer=TOKENIZER, ids=(PREFIX, MIDDLE, SUFFIX), *, with_text=False):
    names = (b"<fim_prefix>", b"<fim_middle>", b"<fim_suffix>")
    sentinels = map(Sentinel, ids, names)
    return Infiller(lambda part: tokenizer.encode(part).ids, tokenizer.decode, *sentinels, num_content, with_text)


def with_fim(spelled, **flags):
    """Any tokenizer, with StarCoder's three tokens behind its vocabulary."""
    tree = json.loads(spelled)
    first = len(tree["model"]["vocab"])
    names = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True} | flags
    tree["added_tokens"] += [{"id": first + at, "content": name, **flags} for at, name in enumerate(names)]
    return Definition(name="with fim", json=json.dumps(tree).encode(), config=b"{}")


def rejoined(ids):
    """The piece, and whether its suffix stood before its prefix."""
    assert np.isin(ids, [PREFIX, MIDDLE, SUFFIX]).sum() == 3
    suffix_at, middle_at = (int(np.flatnonzero(ids == mark)[0]) for mark in (SUFFIX, MIDDLE))
    assert ids[0] == PREFIX
    assert suffix_at < middle_at
    first, second, last = ids[1:suffix_at], ids[suffix_at + 1 : middle_at], ids[middle_at + 1 :]
    if suffix_at == 1:  # the prefix is empty, or stands before the middle
        return [TOKENIZER.decode(last) + TOKENIZER.decode(second), True]
    return [TOKENIZER.decode(first) + TOKENIZER.decode(last) + TOKENIZER.decode(second), False]


def pieces_of(text, seed, num_content=64):
    starts = TOKENIZER.encode(text, with_starts=True).starts
    made = infiller(num_content).infill(text, starts, Dice(seed))
    assert all(len(one.ids) <= num_content for one in made)
    return made


@given(st.text(min_size=20, max_size=400), st.integers(0, 99))
def test_the_parts_rejoin_to_the_source(text, seed):
    text = text.encode()
    made = pieces_of(text, seed)
    joined = b"".join(rejoined(one.ids)[0] for one in made)
    assert text.startswith(joined)
    num_tokens = len(TOKENIZER.encode(text).ids)
    assert num_tokens - (made[-1].place[1] if made else 0) < 8 or num_tokens < 8
    edges = [edge for one in made for edge in one.place]
    assert edges == sorted(edges)


TEXTS = st.lists(
    st.sampled_from(["get", "_version", " ", "  ", "\n", "\n    ", "x", "é", "😀", "return", "=", "'s", "12"])
).map("".join)


@pytest.mark.parametrize("spelled", [made.sentence_piece_bpe(), made.unigram(), made.byte_level(add_prefix_space=True)],
                         ids=["byte fallback", "Metaspace", "prefix space"])  # fmt: skip
@given(text=TEXTS, seed=st.integers(0, 99))
def test_no_blank_is_put_at_a_cut(spelled, text, seed):
    """By a tokenizer that puts one before a text: the tokens of each part spell it, and nothing else."""
    definition = Definition(name="test", json=spelled.encode(), config=b"{}")
    assert definition.puts_blank_before_text
    text, parts = text.encode(), tokenizer_for(definition.continuing)
    starts = tokenizer_for(definition).encode(text, with_starts=True).starts
    pieces = infiller(40, parts).infill(text, starts, Dice(seed))
    if pieces is None:  # an emoji, say, that a vocabulary without bytes does not have
        assert not parts.gives_text_back
        return
    spell = {index: token for token, index in definition.ids_by_token.items()}
    for one in pieces:
        words = ["" if index in (PREFIX, MIDDLE, SUFFIX) else spell[index] for index in one.ids.tolist()]
        marks = [at for at, word in enumerate(words) if not word]
        assert len(marks) == 3
        first, second, last = words[1 : marks[1]], words[marks[1] + 1 : marks[2]], words[marks[2] + 1 :]
        assert bytes_of([*first, *last, *second], spelled) in text


def bytes_of(words, spelled):
    """As the vocabulary has them, and by no decoder."""
    if "ByteLevel" in spelled:
        return bytes(byte_characters().index(one) for word in words for one in word)
    pieces = (bytes.fromhex(word[3:-1]) if word.startswith("<0x") else word.encode() for word in words)
    return b"".join(pieces).replace("▁".encode(), b" ")


@pytest.mark.parametrize("spelled", [made.byte_level(), made.byte_level(nfc=True)], ids=["gigatoken", "tokenizers"])
@given(text=TEXTS, seed=st.integers(0, 99))
def test_the_text_of_a_row_is_what_the_tokenizer_makes_its_ids_of(spelled, text, seed):
    definition = with_fim(spelled)
    require_spelled_fim(definition)
    tokenizer, text = tokenizer_for(definition), text.encode()
    starts = tokenizer.encode(text, with_starts=True).starts
    whole = Tokenizer.from_str(definition.json.decode())
    for one in infiller(40, tokenizer, fim_ids(definition), with_text=True).infill(text, starts, Dice(seed)):
        assert whole.encode(one.text.decode()).ids == one.ids.tolist()
        assert tokenizer.decode(one.ids) == one.text


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_sentinels_that_a_text_does_not_spell_are_refused_with_texts(flag):
    with pytest.raises(ConfigError, match=r"--with-text does not go with --variants fim .*does not find its tokens"):
        require_spelled_fim(with_fim(made.byte_level(), **{flag: True}))
    with pytest.raises(ConfigError, match="puts a blank before each part"):
        require_spelled_fim(with_fim(made.sentence_piece_bpe()))


def test_a_long_module_is_shown_whole_and_in_both_orders():
    text = made_module("long.py", 100_000).encode()
    made = pieces_of(text, 1, 510)
    joined = [rejoined(one.ids) for one in made]
    assert b"".join(piece for piece, _ in joined) == text
    backwards = sum(is_spm for _, is_spm in joined)
    assert 0.3 < backwards / len(joined) < 0.75


def test_a_tokenizer_that_does_not_give_the_text_back_is_found_out():
    lossy = infiller()._replace(decode=lambda ids: TOKENIZER.decode(ids).lower())
    text = b"def F(X): return X + 1  # and so on, and so on, for long enough\n"
    assert lossy.infill(text, TOKENIZER.encode(text, with_starts=True).starts, Dice(0)) is None


@pytest.mark.parametrize("names", FIM_NAMES, ids=lambda names: names[0])
def test_sentinels_go_by_the_names_that_models_give_them(names, tmp_path):
    tree = json.loads(made.byte_level())
    ids = range(1000, 1003)
    tree["added_tokens"] += [
        {
            "id": index,
            "content": name,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for index, name in zip(ids, names, strict=True)
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert tuple(fim_ids(load_tokenizer(str(tmp_path)).definition)) == tuple(ids)
