"""Faults planted into datasets whose rows are documents, with their digests mended; and spellings found by two ways."""

import hashlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import Config, OutputConfig, SplitConfig, build
from gristmill.checks.check import check
from gristmill.checks.documents import spellings_in
from gristmill.cleaning.control_spellings import Spellings, has_spelling
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from support.planted import Planted, named
from support.source_trees import write_tree

SHARED = "".join(f"def shared_{word}(first):\n    return first.{word} + {word!r}\n\n" for word in "abcdefghijklmnop")


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("planted") / "repo"
    shutil.copytree(corpus / "json", root / "json")
    for name in range(14):
        own = "".join(f"value_{name}_{line} = compute({line}, {name * line})\n" for line in range(60))
        write_tree(root, {f"cut{name}.py": f"# {name}\n{own}\n{SHARED}\n{own[::-1]}\n"})
    return write_tree(root, {"end.py": 'END = "<|endoftext|>"\nprint(END)\n'})


@pytest.fixture(scope="module")
def good(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("good") / "dataset"
    split = SplitConfig(shares="60/20/20")
    build(Config(sources=[str(source)], out=str(out), output=OutputConfig(rows="documents"), split=split))
    return out


@pytest.fixture
def planted(good, tmp_path):
    return Planted(shutil.copytree(good, tmp_path / "dataset"))


def whole_row(planted):
    files = {file["path"]: file for file in planted.files}
    return next(row for row in planted.rows["train"] if not files[row["path"]]["cuts"] and row["tokens"] > 200)


def cut_rows(planted):
    files = {file["path"]: file for file in planted.files}
    return [
        (split, row)
        for split in ("validation", "test")
        for row in planted.rows[split]
        if files[row["path"]]["cuts"] and row["start"]
    ]


def test_the_dataset_is_good_before(planted):
    assert planted.check() == {}
    assert cut_rows(planted)


def test_a_text_that_was_changed(planted):
    row = whole_row(planted)
    row["text"] = row["text"].replace("e", "a", 1)
    assert "does not match text_sha256" in planted.check()["ids"][0]


def test_a_text_that_was_changed_with_its_digest_is_found_by_the_source(planted, source):
    row = whole_row(planted)
    row["text"] = row["text"].replace("e", "a", 1)
    planted.file_of(row)["text_sha256"] = hashlib.sha256(row["text"].encode()).hexdigest()
    failed = planted.check(sources=[str(source)])
    assert row["path"] in failed["source"][0]


def test_a_control_spelling_that_is_left(planted):
    row = next(row for rows in planted.rows.values() for row in rows if row["path"] == "end.py")
    row["text"] = row["text"].replace("< |", "<|")
    failed = planted.check()
    assert "spells the control token <|endoftext|>" in failed["special_tokens"][0]
    assert row["path"] in failed["special_tokens"][0]


def test_a_respelling_that_is_recorded_elsewhere(planted, source):
    file = next(file for file in planted.files if file["path"] == "end.py")
    file["respellings"][0]["at"] += 1
    failed = planted.check(sources=[str(source)])
    assert "no blank in line 1, where <|endoftext|> was respelled" in failed["windows"][0]
    assert "source" in failed


def test_a_missing_piece(planted):
    split, row = cut_rows(planted)[0]
    planted.rows[split].remove(row)
    facts = planted.manifest["splits"][split]
    facts["windows"] -= 1
    facts["emitted_tokens"] -= row["tokens"]
    planted.manifest["shards"][split] = [len(planted.rows[split])]
    failed = planted.check()
    assert {"files_table", "windows", "fresh"} <= set(failed)
    assert row["path"] in failed["windows"][0]


def test_a_piece_at_another_place(planted):
    _, row = cut_rows(planted)[0]
    row["start"] += 1
    assert row["path"] in planted.check()["windows"][0]


def test_a_piece_with_other_text_is_found_by_the_source(planted, source):
    _, row = cut_rows(planted)[0]
    row["text"] = row["text"].replace("1", "2", 1)
    failed = planted.check(sources=[str(source)])
    assert "is not in the source there" in failed["source"][0]


def test_tokens_that_the_text_has_not(planted):
    row = whole_row(planted)
    row["tokens"] += 1
    planted.manifest["splits"]["train"]["emitted_tokens"] += 1
    failed = planted.check()
    assert row["path"] in failed["windows"][0]
    planted.file_of(row)["tokens"] += 1
    failed = planted.check()
    assert f"tokens is {row['tokens']}, and its text has {row['tokens'] - 1}" in str(failed)


def test_lines_that_the_text_has_not(planted):
    row = whole_row(planted)
    row["lines"][1] += 1
    named(planted.check(), "windows", row)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda row: row.update(text=""), "it has no text"),
        (lambda row: row.update(text=7), "text is 7"),
        (lambda row: row.pop("tokens"), "columns "),
        (lambda row: row.update(input_ids=[1]), "columns "),
    ],
)
def test_a_row_that_is_none(planted, change, what):
    change(planted.rows["train"][3])
    assert what in planted.check()["schema"][0]


def test_a_secret_in_a_text(planted):
    row = whole_row(planted)
    row["text"] += "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8\n"
    assert "secrets" in planted.check()


def test_held_out_text_that_is_in_train_too(planted):
    """A train file's text in the place of a held-out one's, with all that is told of it."""
    row = whole_row(planted)
    files = {file["path"]: file for file in planted.files}
    other = next(one for one in planted.rows["validation"] if not files[one["path"]]["cuts"])
    other |= {name: row[name] for name in ("text", "lines", "tokens")}
    assert other["path"] in planted.check()["leakage"][0]


def test_a_split_without_jsonl_is_read_from_parquet(source, tmp_path):
    output = OutputConfig(rows="documents", formats=["parquet"])
    build(Config(sources=[str(source)], out=str(tmp_path / "out"), output=output))
    assert check(tmp_path / "out", [str(source)], workers=1).ok


PIECES = ("<", "|", ">", "<|", "|>", "<|endoftext|>", "fim_prefix", "<fim_prefix>", "end▁", "text", "▁<PRE>", "[INST]")
MORE = (
    "[",
    "]",
    "<｜",
    "｜>",
    "extra_id_",
    "0",
    " ",
    "\n",
    "-",
    "é",
    "🦀",
    "<s>",
    "<<SYS>>",
    "mask_1",
    "SPECIAL_7",
    "▁",
)


@given(st.lists(st.sampled_from((*PIECES, *MORE)), max_size=12).map("".join))
def test_check_finds_the_spellings_that_a_build_looks_for(text):
    names = (*KNOWN_SPELLINGS, "<s>")
    found = list(spellings_in(text.encode(), names))
    assert bool(found) == has_spelling(text.encode(), Spellings(names, SPELLING_SHAPES))
    assert all(name in text for name in found)
