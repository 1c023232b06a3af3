"""Rows prepared for display: text and syntax of every token, and overlap with neighboring windows."""

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
    SPECIAL,
    UNPRINTABLE,
    RowView,
    overlap_notes,
    view_row,
    view_tokens,
    window_facts,
)
from gristmill.views.syntax import KINDS, MAX_BLOCK_LENGTH, MAX_TEXT_LENGTH, highlight
from gristmill.views.token_text import REPLACEMENT, decode_pieces, tokenizer_note
from support.foreign_datasets import made_foreign
from support.row_datasets import HOSTILE_NAME, HOSTILE_TEXT, code, make_packed, make_plain, make_varied, row_views
from support.trained_tokenizers import byte_level, sentence_piece_bpe, unigram, word_piece

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


def rows_with_views(folder):
    """Return (view, row) of each row of train."""
    return list(zip(row_views(folder), open_dataset(folder)["train"], strict=True))


@cache
def codebert_once():
    """Load the tokenizer once for hypothesis tests, which cannot use function fixtures."""
    return load_tokenizer("codebert")


def displayed(text):
    """Return the text as a view displays it, with escapes for unprintable characters."""
    return "".join(character if character in "\n\t" else printable(character) for character in text)


def text_of(view):
    special = {number for number, (_, flags) in enumerate(view.tokens) if flags & SPECIAL}
    return "".join(stroke.text for stroke in view.strokes if stroke.token not in special)


def load_definition(folder, definition):
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(definition)
    return load_tokenizer(str(folder))


@settings(deadline=None)
@given(ANY_TEXT)
def test_pieces_join_to_the_text(text):
    tokenizer = codebert_once()
    ids = tokenizer.encode(text.encode()).ids
    pieces = decode_pieces(ids, tokenizer)
    assert [piece.id for piece in pieces] == ids.tolist()
    assert "".join(piece.text for piece in pieces) == text
    assert not any(piece.is_special for piece in pieces)


@settings(deadline=None)
@given(st.lists(st.integers(0, 50_264), max_size=30))
def test_any_ids_have_one_piece_each_and_only_printable_text(ids):
    tokenizer = codebert_once()
    tokens, strokes = view_tokens(ids, tokenizer, "python", "a.py")
    assert [index for index, _ in tokens] == ids
    assert [stroke.token for stroke in strokes] == sorted(stroke.token for stroke in strokes)
    assert all(character.isprintable() or character in "\n\t" for stroke in strokes for character in stroke.text)
    control_ids = tokenizer.definition.control_ids
    runs = (list(run) for is_control, run in groupby(ids, key=control_ids.__contains__) if not is_control)
    texts = (tokenizer.decode(run).decode(errors="surrogateescape") for run in runs)
    text = "".join(piece.text for piece in decode_pieces(ids, tokenizer) if not piece.is_special)
    assert text == re.sub("[\udc80-\udcff]", REPLACEMENT, "".join(texts))


@settings(deadline=None)
@given(ANY_TEXT)
def test_strokes_join_to_the_text_with_escapes(text):
    tokenizer = codebert_once()
    _, strokes = view_tokens(tokenizer.encode(text.encode()).ids, tokenizer, "python", "a.py")
    assert "".join(stroke.text for stroke in strokes) == displayed(text)


def test_character_of_several_tokens_belongs_to_the_first(codebert):
    ids = codebert.encode("é🎉".encode()).ids.tolist()
    assert [piece.text for piece in decode_pieces(ids, codebert)] == ["é", "🎉", "", ""]
    assert [piece.text for piece in decode_pieces(ids[2:], codebert)] == [REPLACEMENT, REPLACEMENT]
    _, strokes = view_tokens(ids[2:], codebert, "", "")
    assert {stroke.kind for stroke in strokes} == {UNPRINTABLE}


def test_special_tokens_are_displayed_by_name(codebert):
    ids = [0, *codebert.encode(b"x</s>").ids.tolist(), 2, 1, 50_264]
    pieces = decode_pieces(ids, codebert)
    assert [piece.text for piece in pieces if piece.is_special] == ["<s>", "</s>", "<pad>", "<mask>"]
    assert "".join(piece.text for piece in pieces if not piece.is_special) == "x</s>"


@pytest.mark.parametrize(
    ("make_definition", "text", "expected"),
    [
        (word_piece, "def load(encoding):", " def load ( encoding ) :"),
        (unigram, "def  load", " def  load"),
        (sentence_piece_bpe, "def  f(é▁🎉)\n", " def  f(é 🎉)\n"),
        (lambda: byte_level(add_prefix_space=True), "def  f(é▁🎉)\n", " def  f(é▁🎉)\n"),
    ],
    ids=["word_piece", "unigram", "sentence_piece_bpe", "prefix_space"],
)
def test_lossy_tokenizers_display_vocabulary_entries(make_definition, text, expected, tmp_path):
    tokenizer = load_definition(tmp_path / "other", make_definition())
    pieces = decode_pieces(tokenizer.encode(text.encode()).ids, tokenizer)
    assert "".join(piece.text for piece in pieces) == expected
    assert len(pieces) > 3
    assert tokenizer_note(tokenizer) is not None


def test_unknown_text_is_a_special_token(tmp_path):
    tokenizer = load_definition(tmp_path / "other", word_piece())
    assert [tuple(piece) for piece in decode_pieces(tokenizer.encode("🎉".encode()).ids, tokenizer)] == [
        (1, "[UNK]", True)
    ]


def test_lossless_tokenizer_has_no_note(codebert):
    assert tokenizer_note(codebert) is None


@settings(deadline=None)
@given(ANY_TEXT, st.sampled_from(sorted(known_languages())))
def test_runs_of_syntax_join_to_the_text(text, language):
    runs = highlight(text, language, "a.b")
    assert "".join(part for _, part in runs) == text
    assert all(part and (kind in KINDS or not kind) for kind, part in runs)


def test_lexer_is_chosen_by_language_then_by_file_name():
    text = "def f(x):\n    return 'a', 1  # why\n"
    kinds = {part: kind for kind, part in highlight(text, "python", "x")}
    assert kinds | {"def": "keyword", "f": "name", "'a'": "string", "1": "number", "# why": "comment"} == kinds
    assert highlight(text, "text", "src/x.py") == highlight(text, "python", "")
    assert highlight(text, "jupyter", "") == highlight(text, "python", "")
    assert highlight(text, "text", "x.txt") == highlight(text, "no such language", "") == [("", text)]


def test_long_text_is_highlighted_in_blocks_and_longer_text_not_at_all():
    text = code("name", 4000)
    blocks = highlight(text[:MAX_TEXT_LENGTH], "python", "")
    assert len(text) > MAX_TEXT_LENGTH > 10 * MAX_BLOCK_LENGTH
    assert {kind for kind, _ in blocks} >= {"keyword", "number", "string"}
    assert [part for kind, part in blocks if kind == "string"] == ['"""What name is for."""']
    assert highlight(text, "python", "") == [("", text)]


@pytest.mark.parametrize("pattern", ["\n", " ", "/", "\n ", "#", "(", "a=", '"', "\\\n", "x\n "])
def test_repetitive_text_is_not_highlighted(pattern):
    text = (pattern * MAX_TEXT_LENGTH)[:MAX_TEXT_LENGTH]
    for language in ("c", "c#", "asm", "python", "awk"):
        kind, plain = highlight(text, language, "")[0]
        assert kind == ""
        assert len(plain) > MAX_TEXT_LENGTH - MAX_BLOCK_LENGTH  # the last block may be too short to be skipped


def test_view_has_all_facts_and_ids_of_the_row(plain):
    for number, (view, row) in enumerate(rows_with_views(plain)):
        (window,) = view.windows
        assert (view.split, view.row, view.num_rows, view.num_room) == ("train", number, 13, 48)
        assert [index for index, _ in view.tokens] == row["input_ids"]
        assert view.num_ids == len(row["input_ids"]) == window.length + 2
        assert {name: getattr(window, name) for name in ("repo", "path", "start", "fresh")}.items() <= row.items()
        assert view.tokens[0] == (0, SPECIAL)
        assert view.note is None


def test_hostile_text_is_escaped(plain):
    first, second = (view for view, row in rows_with_views(plain) if row["path"] == HOSTILE_NAME)
    assert displayed(HOSTILE_TEXT).startswith(text_of(first))
    assert displayed(HOSTILE_TEXT).endswith(text_of(second))
    assert "\\x1b[31mred" in text_of(first)
    assert "\\r\n\tindented" in text_of(second)
    assert {stroke.text for stroke in first.strokes if stroke.kind == UNPRINTABLE} >= {"\\x1b", "\\u202e"}


def test_overlaps_are_tokens_shared_with_neighboring_windows(plain, varied):
    for folder in (plain, varied):
        found = rows_with_views(folder)
        runs = defaultdict(list)
        for view, row in found:
            runs[row["path"], row.get("variant", ""), row.get("repeat", 0)].append(view)
        assert len(runs) > 2
        for (_, variant, _), run in runs.items():
            for before, view, after in zip([None, *run], run, [*run[1:], None], strict=False):
                is_alone = variant == "noise"
                assert shared(view, BEFORE) == (set() if is_alone else positions(view) & positions(before))
                assert shared(view, AFTER) == (set() if is_alone else positions(view) & positions(after))


def positions(view):
    """Return the file positions of the tokens in a view."""
    return set() if view is None else {view.windows[0].start + index for index in range(view.windows[0].length)}


def shared(view, flag):
    window = view.windows[0]
    return {window.start + index - window.at for index, (_, flags) in enumerate(view.tokens) if flags & flag}


def test_displayed_text_equals_the_text_column(varied):
    kinds = set()
    for view, row in rows_with_views(varied):
        kinds.add(row["variant"])
        assert view.num_ids == sum(row["attention_mask"])
        if row["variant"] != "noise":
            assert text_of(view) == row["text"]
    assert kinds == {"", "rename", "noise"}


def test_mask_tokens_are_special(varied):
    names = defaultdict(set)
    for view, row in rows_with_views(varied):
        special = {number for number, (_, flags) in enumerate(view.tokens) if flags & SPECIAL}
        names[row["variant"]] |= {stroke.text for stroke in view.strokes if stroke.token in special}
    assert names[""] == names["rename"] == {"<s>", "</s>"}
    assert names["noise"] == {"<s>", "</s>", "<mask>"}


def test_packed_windows_are_at_their_positions(packed):
    found = rows_with_views(packed)
    assert max(len(view.windows) for view, _ in found) > 1
    for view, row in found:
        for window, segment in zip(view.windows, row["segments"], strict=True):
            assert (window.path, window.at, window.length) == (segment["path"], segment["at"], segment["length"])
            assert window.shared_before == window.length - window.fresh
            flags = [flags for _, flags in view.tokens[window.at : window.at + window.length]]
            assert sum(bool(flag & BEFORE) for flag in flags) == window.shared_before
            assert not any(flag & SPECIAL for flag in flags)
    fresh_by_file = {window.path: 0 for view, _ in found for window in view.windows}
    for view, _ in found:
        for window in view.windows:
            fresh_by_file[window.path] += window.fresh
    assert fresh_by_file == {row["path"]: row["tokens"] for row in files(packed)}


def files(folder):
    return [json.loads(line) for line in (folder / "files.jsonl").read_bytes().splitlines()]


def test_row_not_made_by_a_build_may_lack_facts(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "other")
    made_foreign(folder)
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_bytes().splitlines()]
    bare = [{name: row[name] for name in ("input_ids", "repo", "path", "start")} for row in rows]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    view, full = (view_row(open_dataset(path), "train", 1) for path in (folder, plain))
    assert text_of(view) == text_of(full)
    assert (view.windows[0].path, view.windows[0].lines) == (HOSTILE_NAME, (0, 0))
    assert window_facts(view.windows[0]) == window_facts(full.windows[0])[2:3]
    assert list(overlap_notes(full))
    assert not list(overlap_notes(view))  # adjacent rows may be unrelated


def test_row_view_survives_a_json_round_trip(plain):
    view = view_row(open_dataset(plain), "train", 1)
    assert msgspec.json.decode(msgspec.json.encode(view), type=RowView) == view
    assert json.loads(msgspec.json.encode(view))["strokes"][0] == [0, "", "<s>"]


@pytest.mark.parametrize(
    ("split", "row", "message"),
    [
        ("train", 13, "row 13 does not exist: train has 13 rows, numbered from 0"),
        ("train", -1, "row -1 does not exist"),
        ("test", 0, "test has no rows"),
        ("tset", 0, "there is no split 'tset'. The splits are train, validation, test"),
    ],
)
def test_missing_row_is_rejected_with_the_existing_rows(plain, split, row, message):
    with pytest.raises(InputError, match=message):
        view_row(open_dataset(plain), split, row)


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
def test_damaged_row_is_reported(plain, tmp_path, damage):
    folder = shutil.copytree(plain, tmp_path / "damaged")
    lines = (folder / "train.jsonl").read_text().splitlines()
    lines[4] = json.dumps(damage(json.loads(lines[4])))
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DatasetError, match="damaged"):
        view_row(open_dataset(folder), "train", 4)
