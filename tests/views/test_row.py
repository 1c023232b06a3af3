"""Rows as they can be drawn: every token, what it spells, its syntax, and what the neighbours show too."""

import json
import re
import shutil
from collections import defaultdict
from functools import cache
from itertools import groupby

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DatasetError, InputError, load_tokenizer, open_dataset
from gristmill.core.names import printable
from gristmill.sources.languages import known_languages
from gristmill.views.row import (
    AFTER,
    BEFORE,
    ODD,
    SPECIAL,
    RowLook,
    look_at,
    look_at_tokens,
    shared_words,
    window_facts,
)
from gristmill.views.syntax import KINDS, LONGEST_BLOCK, LONGEST_TEXT, syntax_of
from gristmill.views.token_text import STAND_IN, note_on, pieces_of
from support.foreign_datasets import made_foreign
from support.looked_at import EVIL, EVIL_TEXT, code, looks_of, make_packed, make_plain, make_varied
from support.tokenizers_made_here import byte_level, sentence_piece_bpe, unigram, word_piece

ANY_TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab \n\t\r\x00\x1b\u202eé日🎉▁")))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    return make_varied(tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module", params=["best-fit", "repo"])
def packed(request, tmp_path_factory):
    return make_packed(tmp_path_factory.mktemp("packed"), request.param)


def looks(folder):
    """Each with its row."""
    return list(zip(looks_of(folder), open_dataset(folder)["train"], strict=True))


@cache
def codebert_once():
    """For tests with many examples, which share no fixture."""
    return load_tokenizer("codebert")


def drawn(text):
    """As strokes write it."""
    return "".join(character if character in "\n\t" else printable(character) for character in text)


def text_of(look):
    special = {number for number, (_, flags) in enumerate(look.tokens) if flags & SPECIAL}
    return "".join(stroke.text for stroke in look.strokes if stroke.token not in special)


def tokenizer_of(folder, definition):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(definition)
    return load_tokenizer(str(folder))


@settings(deadline=None)
@given(ANY_TEXT)
def test_pieces_join_to_the_text(text):
    tokenizer = codebert_once()
    ids = tokenizer.encode(text.encode()).ids
    pieces = pieces_of(ids, tokenizer)
    assert [piece.id for piece in pieces] == ids.tolist()
    assert "".join(piece.text for piece in pieces) == text
    assert not any(piece.is_special for piece in pieces)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50_264), max_size=30))
def test_any_ids_have_a_piece_each_and_nothing_that_cannot_be_shown(ids):
    tokenizer = codebert_once()
    tokens, strokes = look_at_tokens(ids, tokenizer, "python", "a.py")
    assert [index for index, _ in tokens] == ids
    assert [stroke.token for stroke in strokes] == sorted(stroke.token for stroke in strokes)
    assert all(character.isprintable() or character in "\n\t" for stroke in strokes for character in stroke.text)
    control_ids = tokenizer.definition.control_ids
    runs = (list(run) for is_control, run in groupby(ids, key=control_ids.__contains__) if not is_control)
    texts = (tokenizer.decode(run).decode(errors="surrogateescape") for run in runs)
    shown = "".join(piece.text for piece in pieces_of(ids, tokenizer) if not piece.is_special)
    assert shown == re.sub("[\udc80-\udcff]", STAND_IN, "".join(texts))


@settings(deadline=None)
@given(ANY_TEXT)
def test_strokes_join_to_the_text_with_stand_ins(text):
    tokenizer = codebert_once()
    _, strokes = look_at_tokens(tokenizer.encode(text.encode()).ids, tokenizer, "python", "a.py")
    assert "".join(stroke.text for stroke in strokes) == drawn(text)


def test_a_character_in_two_windows_is_the_firsts(codebert):
    ids = codebert.encode("é🎉".encode()).ids.tolist()
    assert [piece.text for piece in pieces_of(ids, codebert)] == ["é", "🎉", "", ""]
    assert [piece.text for piece in pieces_of(ids[2:], codebert)] == [STAND_IN, STAND_IN]
    _, strokes = look_at_tokens(ids[2:], codebert, "", "")
    assert {stroke.kind for stroke in strokes} == {ODD}


def test_special_tokens_go_by_their_names(codebert):
    ids = [0, *codebert.encode(b"x</s>").ids.tolist(), 2, 1, 50_264]
    pieces = pieces_of(ids, codebert)
    assert [piece.text for piece in pieces if piece.is_special] == ["<s>", "</s>", "<pad>", "<mask>"]
    assert "".join(piece.text for piece in pieces if not piece.is_special) == "x</s>"


@pytest.mark.parametrize(
    ("made", "text", "shown"),
    [
        (word_piece, "def load(encoding):", " def load ( encoding ) :"),
        (unigram, "def  load", " def  load"),
        (sentence_piece_bpe, "def  f(é▁🎉)\n", " def  f(é 🎉)\n"),
        (lambda: byte_level(add_prefix_space=True), "def  f(é▁🎉)\n", " def  f(é▁🎉)\n"),
    ],
    ids=["word_piece", "unigram", "sentence_piece_bpe", "prefix_space"],
)
def test_tokenizers_that_lose_something_show_each_token_as_it_is_spelled(made, text, shown, tmp_path):
    tokenizer = tokenizer_of(tmp_path / "other", made())
    pieces = pieces_of(tokenizer.encode(text.encode()).ids, tokenizer)
    assert "".join(piece.text for piece in pieces) == shown
    assert len(pieces) > 3
    assert note_on(tokenizer) is not None


def test_unknown_text_is_a_special_token(tmp_path):
    tokenizer = tokenizer_of(tmp_path / "other", word_piece())
    assert [tuple(piece) for piece in pieces_of(tokenizer.encode("🎉".encode()).ids, tokenizer)] == [(1, "[UNK]", True)]


def test_a_tokenizer_that_gives_text_back_needs_no_note(codebert):
    assert note_on(codebert) is None


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from(sorted(known_languages())))
def test_runs_of_syntax_join_to_the_text(text, language):
    runs = syntax_of(text, language, "a.b")
    assert "".join(part for _, part in runs) == text
    assert all(part and (kind in KINDS or not kind) for kind, part in runs)


def test_syntax_goes_by_language_then_by_the_files_name():
    text = "def f(x):\n    return 'a', 1  # why\n"
    kinds = {part: kind for kind, part in syntax_of(text, "python", "x")}
    assert kinds | {"def": "keyword", "f": "name", "'a'": "string", "1": "number", "# why": "comment"} == kinds
    assert syntax_of(text, "text", "src/x.py") == syntax_of(text, "python", "")
    assert syntax_of(text, "jupyter", "") == syntax_of(text, "python", "")
    assert syntax_of(text, "text", "x.txt") == syntax_of(text, "no such language", "") == [("", text)]


def test_long_texts_are_read_in_blocks_and_longer_ones_not_at_all():
    text = code("name", 4000)
    blocks = syntax_of(text[:LONGEST_TEXT], "python", "")
    assert len(text) > LONGEST_TEXT > 10 * LONGEST_BLOCK
    assert {kind for kind, _ in blocks} >= {"keyword", "number", "string"}
    assert [part for kind, part in blocks if kind == "string"] == ['"""What name is for."""']
    assert syntax_of(text, "python", "") == [("", text)]


@pytest.mark.parametrize("pattern", ["\n", " ", "/", "\n ", "#", "(", "a=", '"', "\\\n", "x\n "])
def test_what_would_keep_a_lexer_busy_is_not_read(pattern):
    text = (pattern * LONGEST_TEXT)[:LONGEST_TEXT]
    for language in ("c", "c#", "asm", "python", "awk"):
        kind, unread = syntax_of(text, language, "")[0]
        assert kind == ""
        assert len(unread) > LONGEST_TEXT - LONGEST_BLOCK  # what is left over at the end is short


def test_a_row_is_told_and_drawn_in_full(plain):
    for number, (look, row) in enumerate(looks(plain)):
        (window,) = look.windows
        assert (look.split, look.row, look.num_rows, look.num_room) == ("train", number, 13, 48)
        assert [index for index, _ in look.tokens] == row["input_ids"]
        assert look.num_ids == len(row["input_ids"]) == window.length + 2
        assert {name: getattr(window, name) for name in ("repo", "path", "start", "fresh")}.items() <= row.items()
        assert look.tokens[0] == (0, SPECIAL)
        assert look.note is None


def test_hostile_text_is_only_text(plain):
    first, second = (look for look, row in looks(plain) if row["path"] == EVIL)
    assert drawn(EVIL_TEXT).startswith(text_of(first))
    assert drawn(EVIL_TEXT).endswith(text_of(second))
    assert "\\x1b[31mred" in text_of(first)
    assert "\\r\n\tindented" in text_of(second)
    assert {stroke.text for stroke in first.strokes if stroke.kind == ODD} >= {"\\x1b", "\\u202e"}


def test_overlaps_are_what_the_neighbours_show(plain, varied):
    for folder in (plain, varied):
        found = looks(folder)
        runs = defaultdict(list)
        for look, row in found:
            runs[row["path"], row.get("variant", ""), row.get("repeat", 0)].append(look)
        assert len(runs) > 2
        for (_, variant, _), run in runs.items():
            for before, look, after in zip([None, *run], run, [*run[1:], None], strict=False):
                is_alone = variant == "noise"
                assert shared(look, BEFORE) == (set() if is_alone else places(look) & places(before))
                assert shared(look, AFTER) == (set() if is_alone else places(look) & places(after))


def places(look):
    """Of its tokens, in the file."""
    return set() if look is None else {look.windows[0].start + index for index in range(look.windows[0].length)}


def shared(look, flag):
    window = look.windows[0]
    return {window.start + index - window.at for index, (_, flags) in enumerate(look.tokens) if flags & flag}


def test_the_text_of_a_row_is_the_text_that_a_build_wrote_beside_it(varied):
    kinds = set()
    for look, row in looks(varied):
        kinds.add(row["variant"])
        assert look.num_ids == sum(row["attention_mask"])
        if row["variant"] != "noise":
            assert text_of(look) == row["text"]
    assert kinds == {"", "rename", "noise"}


def test_masks_are_special(varied):
    names = defaultdict(set)
    for look, row in looks(varied):
        special = {number for number, (_, flags) in enumerate(look.tokens) if flags & SPECIAL}
        names[row["variant"]] |= {stroke.text for stroke in look.strokes if stroke.token in special}
    assert names[""] == names["rename"] == {"<s>", "</s>"}
    assert names["noise"] == {"<s>", "</s>", "<mask>"}


def test_windows_that_share_a_row_are_each_where_they_are(packed):
    found = looks(packed)
    assert max(len(look.windows) for look, _ in found) > 1
    for look, row in found:
        for window, told in zip(look.windows, row["segments"], strict=True):
            assert (window.path, window.at, window.length) == (told["path"], told["at"], told["length"])
            assert window.shared_before == window.length - window.fresh
            flags = [flags for _, flags in look.tokens[window.at : window.at + window.length]]
            assert sum(bool(flag & BEFORE) for flag in flags) == window.shared_before
            assert not any(flag & SPECIAL for flag in flags)
    by_file = {window.path: 0 for look, _ in found for window in look.windows}
    for look, _ in found:
        for window in look.windows:
            by_file[window.path] += window.fresh
    assert by_file == {row["path"]: row["tokens"] for row in files(packed)}


def files(folder):
    return [json.loads(line) for line in (folder / "files.jsonl").read_bytes().splitlines()]


def test_a_row_that_no_build_has_made_may_tell_less(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "other")
    made_foreign(folder)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_bytes().splitlines()]
    bare = [{name: row[name] for name in ("input_ids", "repo", "path", "start")} for row in rows]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    look, full = (look_at(open_dataset(place), "train", 1) for place in (folder, plain))
    assert text_of(look) == text_of(full)
    assert (look.windows[0].path, look.windows[0].lines) == (EVIL, (0, 0))
    assert window_facts(look.windows[0]) == window_facts(full.windows[0])[2:3]
    assert list(shared_words(full))
    assert not list(shared_words(look))  # the rows beside it may be there by chance


def test_a_look_is_json_that_can_be_read_back(plain):
    look = look_at(open_dataset(plain), "train", 1)
    assert msgspec.json.decode(msgspec.json.encode(look), type=RowLook) == look
    assert json.loads(msgspec.json.encode(look))["strokes"][0] == [0, "", "<s>"]


@pytest.mark.parametrize(
    ("split", "row", "said"),
    [
        ("train", 13, "train has 13 rows, counted from 0: there is no row 13"),
        ("train", -1, "there is no row -1"),
        ("test", 0, "test has no rows"),
        ("tset", 0, "there is no split 'tset': there are train, validation, test"),
    ],
)
def test_a_row_that_is_not_there_is_refused_with_what_there_is(plain, split, row, said):
    with pytest.raises(InputError, match=said):
        look_at(open_dataset(plain), split, row)


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row | {"input_ids": [0, 99_999, 2]},
        lambda row: row | {"input_ids": [0, -1, 2]},
        lambda row: row | {"input_ids": [0, 1 << 70, 2]},
        lambda row: row | {"input_ids": [0]},
        lambda row: row | {"input_ids": row["input_ids"] * 20},
        lambda row: row | {"input_ids": "abc"},
        lambda row: row | {"lines": [1]},
        lambda row: row | {"start": None},
        lambda row: row | {"segments": [{**row, "at": 5, "length": 1 << 40}]},
        lambda row: {},
        lambda row: [1, 2],
        lambda row: ["abc"],
    ],
)
def test_a_damaged_row_says_so(plain, tmp_path, damage):
    folder = shutil.copytree(plain, tmp_path / "damaged")
    lines = (folder / "train.jsonl").read_text().splitlines()
    lines[4] = json.dumps(damage(json.loads(lines[4])))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DatasetError, match="damaged"):
        look_at(open_dataset(folder), "train", 4)
