"""Rows that gristmill did not build are read from any supported format and converted to a dataset."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DatasetError, open_dataset
from gristmill.core.records import Split
from gristmill.dataset import foreign
from gristmill.dataset.foreign import convert_rows, find_data_files, read_raw_rows
from gristmill.dataset.row_windows import read_rows, read_windows

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["\n  },\n  {", '"\n  }\n]', "}, {", "\\n", "é/ü\u2028.py", "\x00\x1b["]
)
VALUES = TEXTS | st.integers(-(2**40), 2**40) | st.lists(st.integers(0, 70_000), max_size=5)
FLAT_ROWS = st.lists(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4), max_size=6)


@settings(deadline=None, max_examples=150)
@given(rows=FLAT_ROWS, block=st.integers(1, 40), as_ascii=st.booleans())
def test_json_list_gives_the_rows_of_json_load(rows, block, as_ascii):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign, "BLOCK_BYTES", block)
        path = Path(folder, "train.json")
        with path.open("w", encoding="utf-8") as stream:
            json.dump(rows, stream, indent=2, ensure_ascii=as_ascii)
        assert [json.loads(row) for row in read_raw_rows(path)] == json.loads(path.read_bytes()) == rows


def test_data_files_of_a_split_are_found_in_every_format(tmp_path):
    names = ["train.json", "train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "train.jsonl.zst"]
    for name in [*names, "trained.json", "phases.json", "test.jsonl", "train.txt"]:
        (tmp_path / name).touch()
    (tmp_path / "cache").mkdir()
    assert {path.name for path in find_data_files(tmp_path, Split.TRAIN)} == set(names)
    assert [path.name for path in find_data_files(tmp_path, Split.TEST)] == ["test.jsonl"]
    assert find_data_files(tmp_path, Split.VALIDATION) == []


def test_foreign_rows_are_converted_with_renamed_columns(codebert, tmp_path):
    """The rows contain no path, so each row is a separate text."""
    rows = [codebert.encode(b"name = %d\n" % number * 40).ids.tolist() for number in range(30)]
    rows = [[0, *ids, 2] for ids in rows]
    for name in ("foreign", "out"):
        (tmp_path / name).mkdir()
    foreign_rows = [{"tokens": ids, "quality": 0.5} for ids in rows]
    (tmp_path / "foreign" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in foreign_rows))
    convert_rows(
        tmp_path / "foreign",
        tmp_path / "out",
        codebert.definition,
        made_by="other-tool",
        renamed={"tokens": "input_ids"},
    )
    dataset = open_dataset(tmp_path / "out")
    assert [row["input_ids"] for row in dataset["train"]] == rows
    assert (len(dataset["validation"]), dataset.record.columns) == (0, ["input_ids", "quality"])
    for read in (read_rows, read_windows):
        found = [(window.at, window.length) for row in read(dataset, Split.TRAIN) for window in row.windows]
        assert found == [(1, len(ids) - 2) for ids in rows]
    assert (tmp_path / "foreign" / "train.jsonl").exists()
    assert dataset.record.window_length == max(map(len, rows))


def test_row_longer_than_the_window_is_rejected(codebert, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"input_ids": [0, 5, 6, 2]}\n')
    (tmp_path / "out").mkdir()
    with pytest.raises(DatasetError, match="a row has 4 ids, but window_length is 3"):
        convert_rows(tmp_path, tmp_path / "out", codebert.definition, made_by="other-tool", window_length=3)
