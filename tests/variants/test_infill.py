"""The parts of fill-in-the-middle windows join to exactly the source, in both orders and for all characters."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gristmill import load_tokenizer
from gristmill.core.errors import ConfigError
from gristmill.core.records import FimForm, WhyNotRewritten
from gristmill.core.seeded_random import SeededRandom
from gristmill.tokenizers.control_tokens import FIM_NAMES
from gristmill.tokenizers.cuda.merge_tables import byte_characters
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.sentinels import fim_ids, require_fim_as_text
from gristmill.tokenizers.tokenizer import tokenizer_for
from gristmill.variants.grammars import parse
from gristmill.variants.infill import Infiller, InfillText, Sentinel
from gristmill.variants.middles import Shares, find_nodes
from support import trained_tokenizers as made
from support.made_code import made_module

PREFIX, MIDDLE, SUFFIX, END = 60_000, 60_001, 60_002, 60_003
SENTINELS = (PREFIX, MIDDLE, SUFFIX)
TOKENIZER = load_tokenizer()


def infiller(num_content=64, tokenizer=TOKENIZER, ids=SENTINELS, first_tokenizer=None, **overrides):
    prefix, middle, suffix = map(Sentinel, ids, (b"<fim_prefix>", b"<fim_middle>", b"<fim_suffix>"))
    settings = {"shares": Shares(0.5, 0.25, 0.25), "spm_share": 0.5, "max_middle_tokens": num_content // 2}
    return Infiller(
        encode=lambda part: tokenizer.encode(part).ids,
        decode=tokenizer.decode,
        decode_first=(first_tokenizer or tokenizer).decode,
        prefix=prefix,
        middle=middle,
        suffix=suffix,
        num_content=num_content,
        **{**settings, **overrides},
    )


def document(text, tokenizer=TOKENIZER, nodes=None):
    encoded = tokenizer.encode(text, with_starts=True)
    return InfillText(text, encoded.ids, encoded.starts, nodes)


def with_fim(tokenizer_json, **flags):
    """Add StarCoder's three fill-in-the-middle tokens to a tokenizer."""
    tree = json.loads(tokenizer_json)
    first_id = len(tree["model"]["vocab"])
    names = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True} | flags
    tree["added_tokens"] += [{"id": first_id + at, "content": name, **flags} for at, name in enumerate(names)]
    return Definition(name="with fim", json=json.dumps(tree).encode(), config=b"{}")


def split_parts(one, decode=TOKENIZER.decode):
    """Return prefix, middle and suffix of a window. A window that is not rewritten has only a prefix."""
    ids, window = one.ids, one.window
    assert len(ids) == window.num_ids
    if window.form is None:
        assert not np.isin(ids, SENTINELS).any()
        return decode(ids), b"", b""
    assert np.isin(ids, SENTINELS).sum() == 3
    assert ids[0] == PREFIX
    suffix, middle = (int(np.flatnonzero(ids == mark)[0]) for mark in (SUFFIX, MIDDLE))
    assert suffix < middle
    tail = ids[middle + 1 :]
    num_before = len(tail) - window.num_middle_tokens
    assert num_before == 0 or window.form is FimForm.SPM
    before = tail[:num_before] if window.form is FimForm.SPM else ids[1:suffix]
    assert window.form is FimForm.PSM or suffix == 1
    return decode(before), decode(tail[num_before:]), decode(ids[suffix + 1 : middle])


@given(st.text(min_size=1, max_size=400), st.integers(0, 99))
def test_windows_are_consecutive_and_join_to_the_source(text, seed):
    text = text.encode()
    made = infiller().infill(document(text), SeededRandom(seed))
    if isinstance(made, WhyNotRewritten):
        assert made is WhyNotRewritten.NO_MIDDLE
        return
    assert all(len(one.ids) <= 64 for one in made)
    assert all(one.window.form is not None for one in made[:-1])
    assert b"".join(b"".join(split_parts(one)) for one in made) == text
    edges = [edge for one in made for edge in (one.window.start, one.window.end)]
    assert edges[0] == 0
    assert edges[1:-1:2] == edges[2::2]
    assert edges[-1] == len(TOKENIZER.encode(text).ids)


@given(st.text(min_size=20, max_size=400), st.integers(0, 99), st.integers(1, 20))
def test_middle_respects_the_limit_and_is_not_blank(text, seed, max_tokens):
    made = infiller(max_middle_tokens=max_tokens).infill(document(text.encode()), SeededRandom(seed))
    for one in [] if isinstance(made, WhyNotRewritten) else made:
        if one.window.form is not None:
            _, middle, _ = split_parts(one)
            assert 1 <= one.window.num_middle_tokens <= max_tokens
            assert middle.strip()


@pytest.mark.parametrize(("share", "form"), [(0.0, FimForm.PSM), (1.0, FimForm.SPM)])
def test_spm_share_decides_the_order(share, form):
    made = infiller(spm_share=share).infill(document(made_module("a.py", 9_000).encode()), SeededRandom(1))
    assert {one.window.form for one in made} <= {form, None}
    assert sum(one.window.form is form for one in made) > 10


def test_end_token_follows_every_middle():
    made = infiller(end=Sentinel(END, b"<end>")).infill(document(made_module("a.py", 9_000).encode()), SeededRandom(1))
    for one in made:
        assert len(one.ids) <= 64
        assert (one.ids[-1] == END) == (one.window.form is not None)
        assert one.text.endswith(b"<end>") == (one.window.form is not None)


def test_middles_by_syntax_are_nodes():
    text = made_module("a.py", 9_000).encode()
    nodes = find_nodes(parse(text, "python"))
    spans = {text[start:end] for start, end in zip(nodes.starts.tolist(), nodes.ends.tolist(), strict=True)}
    made = infiller(200, shares=Shares(1, 0, 0)).infill(document(text, nodes=nodes), SeededRandom(1))
    by_syntax = [one for one in made if one.window.middle not in {None, "lines", "characters"}]
    assert len(by_syntax) > 0.8 * len(made)
    assert all(split_parts(one)[1] in spans for one in by_syntax)


TEXTS = st.lists(
    st.sampled_from(["get", "_version", " ", "  ", "\n", "\n    ", "x", "é", "😀", "return", "=", "'s", "12"])
).map("".join)


@pytest.mark.parametrize("tokenizer_json", [made.sentence_piece_bpe(), made.unigram(), made.byte_level(add_prefix_space=True)],
                         ids=["byte fallback", "Metaspace", "prefix space"])  # fmt: skip
@given(text=TEXTS, seed=st.integers(0, 99))
def test_no_space_is_added_at_a_cut(tokenizer_json, text, seed):
    """The tokenizer adds a space before each text, but not before the parts of a window."""
    definition = Definition(name="test", json=tokenizer_json.encode(), config=b"{}")
    assert definition.adds_prefix_space
    text, part_tokenizer, text_tokenizer = (
        text.encode(),
        tokenizer_for(definition.without_prefix_space),
        tokenizer_for(definition),
    )
    windows = infiller(40, part_tokenizer, first_tokenizer=text_tokenizer).infill(
        document(text, text_tokenizer), SeededRandom(seed)
    )
    if isinstance(windows, WhyNotRewritten):  # for example, if the vocabulary has no token for an emoji
        is_lossy = not part_tokenizer.decodes_exactly or not text_tokenizer.decodes_exactly
        assert is_lossy or windows is WhyNotRewritten.NO_MIDDLE
        return
    token_texts = {index: token for token, index in definition.ids_by_token.items()}
    for one in (one for one in windows if one.window.form is not None):
        tokens = ["" if index in SENTINELS else token_texts[index] for index in one.ids.tolist()]
        sentinels = [at for at, token in enumerate(tokens) if not token]
        assert len(sentinels) == 3
        before, after, middle = (
            tokens[1 : sentinels[1]],
            tokens[sentinels[1] + 1 : sentinels[2]],
            tokens[sentinels[2] + 1 :],
        )
        assert bytes_of([*before, *middle, *after], tokenizer_json) in text


def bytes_of(tokens, tokenizer_json):
    """Return the bytes of the vocabulary entries of tokens, without a decoder."""
    if "ByteLevel" in tokenizer_json:
        return bytes(byte_characters().index(one) for token in tokens for one in token)
    pieces = (bytes.fromhex(token[3:-1]) if token.startswith("<0x") else token.encode() for token in tokens)
    return b"".join(pieces).replace("▁".encode(), b" ")


@pytest.mark.parametrize(
    "tokenizer_json", [made.byte_level(), made.byte_level(nfc=True)], ids=["gigatoken", "tokenizers"]
)
@given(text=TEXTS, seed=st.integers(0, 99))
def test_text_of_a_row_encodes_to_its_ids(tokenizer_json, text, seed):
    definition = with_fim(tokenizer_json)
    require_fim_as_text(definition, fim_ids(definition), "--with-text")
    tokenizer, text = tokenizer_for(definition), text.encode()
    text_tokenizer = Tokenizer.from_str(definition.json.decode())
    filling = infiller(40, tokenizer, fim_ids(definition), with_text=True)
    made = filling.infill(document(text, tokenizer), SeededRandom(seed))
    for one in [] if isinstance(made, WhyNotRewritten) else made:
        if one.window.form is not None:
            assert text_tokenizer.encode(one.text.decode()).ids == one.ids.tolist()
            assert tokenizer.decode(one.ids) == one.text


@pytest.mark.parametrize("flag", ["lstrip", "rstrip", "single_word"])
def test_sentinels_that_cannot_be_written_as_text_are_refused_with_texts(flag):
    with pytest.raises(ConfigError, match=r"--with-text cannot be combined with --fim .*does not recognize its"):
        require_sentinels_as_text(with_fim(made.byte_level(), **{flag: True}), "--with-text")
    with pytest.raises(ConfigError, match=r"--rows documents cannot be combined with --fim .*adds a space before"):
        require_sentinels_as_text(with_fim(made.sentence_piece_bpe()), "--rows documents")


def require_sentinels_as_text(definition, option):
    require_fim_as_text(definition, fim_ids(definition), option)


def test_rows_with_text_have_about_the_requested_spm_share():
    """The tokenizer would often merge the prefix with the middle. In this case, a different middle is tried."""
    text = made_module("long.py", 60_000).encode()
    windows = infiller(128, with_text=True, shares=Shares(0, 0, 1)).infill(document(text), SeededRandom(1))
    assert 0.35 < sum(one.window.form is FimForm.SPM for one in windows) / len(windows) < 0.65


def test_file_with_an_inner_window_of_whitespace_is_not_rewritten():
    """If the file were rewritten, the end token of the window before the whitespace would end the file too early."""
    text = b"x = 1\n" * 40 + b"\n\t" * 300 + b"y = 2\n" * 40
    assert infiller().infill(document(text), SeededRandom(0)) is WhyNotRewritten.NO_MIDDLE


def test_lossy_tokenizer_is_detected():
    lossy = infiller()._replace(decode=lambda ids: TOKENIZER.decode(ids).lower())
    text = b"def F(X): return X + 1  # and so on, and so on, for long enough\n"
    assert lossy.infill(document(text), SeededRandom(0)) is WhyNotRewritten.TEXT_NOT_GIVEN_BACK


@pytest.mark.parametrize("names", FIM_NAMES, ids=lambda names: names[0])
def test_sentinels_are_found_by_the_names_of_known_models(names, tmp_path):
    tree = json.loads(made.byte_level())
    ids = range(1000, 1003)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tree["added_tokens"] += [
        {"id": index, "content": name, "special": True, **flags} for index, name in zip(ids, names, strict=True)
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tree))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert tuple(fim_ids(load_tokenizer(str(tmp_path)).definition)) == tuple(ids)
