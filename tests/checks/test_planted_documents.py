"""Faults planted in datasets of document rows are reported. Build and check find the same control tokens in texts."""

import hashlib
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import Config, OutputConfig, SplitConfig, build
from gristmill.checks.check import check
from gristmill.checks.documents import find_control_tokens
from gristmill.cleaning.control_spellings import Spellings, has_spelling
from gristmill.tokenizers.control_tokens import KNOWN_SPELLINGS, SPELLING_SHAPES
from support.planted import Planted, require_only_failure
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


def complete_file_row(planted):
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


def test_unchanged_dataset_passes(planted):
    assert planted.check() == {}
    assert cut_rows(planted)


def test_changed_text_is_reported(planted):
    row = complete_file_row(planted)
    row["text"] = row["text"].replace("e", "a", 1)
    assert "does not match text_sha256" in planted.check()["ids"][0]


def test_changed_text_with_matching_digest_differs_from_source(planted, source):
    row = complete_file_row(planted)
    row["text"] = row["text"].replace("e", "a", 1)
    planted.file_of(row)["text_sha256"] = hashlib.sha256(row["text"].encode()).hexdigest()
    failed = planted.check(sources=[str(source)])
    assert row["path"] in failed["source"][0]


def test_control_token_in_text_is_reported(planted):
    row = next(row for rows in planted.rows.values() for row in rows if row["path"] == "end.py")
    row["text"] = row["text"].replace("< |", "<|")
    failed = planted.check()
    assert "text contains the control token <|endoftext|>" in failed["special_tokens"][0]
    assert row["path"] in failed["special_tokens"][0]


def test_respelling_at_wrong_position_is_reported(planted, source):
    file = next(file for file in planted.files if file["path"] == "end.py")
    file["respellings"][0]["at"] += 1
    failed = planted.check(sources=[str(source)])
    assert "line 1 has no space where the build inserted one into <|endoftext|>" in failed["windows"][0]
    assert "source" in failed


def test_missing_piece_is_reported(planted):
    split, row = cut_rows(planted)[0]
    planted.rows[split].remove(row)
    facts = planted.manifest["splits"][split]
    facts["windows"] -= 1
    facts["emitted_tokens"] -= row["tokens"]
    planted.manifest["shards"][split] = [len(planted.rows[split])]
    failed = planted.check()
    assert {"files_table", "windows", "fresh"} <= set(failed)
    assert row["path"] in failed["windows"][0]


def test_piece_at_wrong_position_is_reported(planted):
    _, row = cut_rows(planted)[0]
    row["start"] += 1
    assert row["path"] in planted.check()["windows"][0]


def test_changed_piece_differs_from_source(planted, source):
    _, row = cut_rows(planted)[0]
    row["text"] = row["text"].replace("1", "2", 1)
    failed = planted.check(sources=[str(source)])
    assert "differs from the source" in failed["source"][0]


def test_wrong_token_count_is_reported(planted):
    row = complete_file_row(planted)
    row["tokens"] += 1
    planted.manifest["splits"]["train"]["emitted_tokens"] += 1
    failed = planted.check()
    assert row["path"] in failed["windows"][0]
    planted.file_of(row)["tokens"] += 1
    failed = planted.check()
    assert f"tokens is {row['tokens']}, but the text has {row['tokens'] - 1} tokens" in str(failed)


def test_wrong_lines_are_reported(planted):
    row = complete_file_row(planted)
    row["lines"][1] += 1
    require_only_failure(planted.check(), "windows", row)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.update(text=""), "text is empty"),
        (lambda row: row.update(text=7), "text has the invalid value 7"),
        (lambda row: row.pop("tokens"), "columns "),
        (lambda row: row.update(input_ids=[1]), "columns "),
    ],
)
def test_invalid_row_is_reported(planted, change, message):
    change(planted.rows["train"][3])
    assert message in planted.check()["schema"][0]


def test_secret_in_text_is_reported(planted):
    row = complete_file_row(planted)
    row["text"] += "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8\n"
    assert "secrets" in planted.check()


def test_held_out_text_in_train_is_reported(planted):
    """Replace the text, lines and token count of a held-out row with those of a train row."""
    row = complete_file_row(planted)
    files = {file["path"]: file for file in planted.files}
    other = next(one for one in planted.rows["validation"] if not files[one["path"]]["cuts"])
    other |= {name: row[name] for name in ("text", "lines", "tokens")}
    assert other["path"] in planted.check()["leakage"][0]


def test_documents_without_jsonl_are_read_from_parquet(source, tmp_path):
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
def test_check_and_build_find_the_same_control_tokens(text):
    names = (*KNOWN_SPELLINGS, "<s>")
    found = list(find_control_tokens(text.encode(), names))
    assert bool(found) == has_spelling(text.encode(), Spellings(names, SPELLING_SHAPES))
    assert all(name in text for name in found)
