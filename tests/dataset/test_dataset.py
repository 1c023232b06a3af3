import json
import pickle
import re
import shutil

import pytest

from gristmill import Config, DatasetError, OutputConfig, TokenizerError, build, open_dataset
from gristmill.dataset.dataset import split_windows
from gristmill.views.viewer import index as viewer_index


@pytest.fixture(scope="module", params=["none", "zstd"])
def dataset(request, tmp_path_factory, corpus):
    out = tmp_path_factory.mktemp("dataset") / "out"
    output = OutputConfig(compress=request.param, shard_bytes=9_000_000)
    build(Config(sources=[str(corpus)], out=str(out), output=output))
    return open_dataset(out)


def test_rows_are_read_in_order_by_number_and_by_slice(dataset):
    rows = dataset["train"]
    in_order = list(rows)
    assert len(rows) == len(in_order) == dataset.manifest.splits["train"].windows
    for index in (0, 1, len(rows) // 2, len(rows) - 1, -1, -len(rows)):
        assert rows[index] == in_order[index]
    assert rows[5:8] == in_order[5:8]
    assert rows[::-500] == in_order[::-500]


def test_row_number_out_of_range_raises_index_error(dataset):
    for index in (len(dataset["train"]), -len(dataset["train"]) - 1):
        with pytest.raises(IndexError):
            dataset["train"][index]


def test_splits_are_a_mapping(dataset):
    assert list(dataset) == ["train", "validation", "test"]
    assert {split: len(rows) for split, rows in dataset.items()} == {
        split: facts.windows for split, facts in dataset.manifest.splits.items()
    }
    with pytest.raises(KeyError, match="train, validation, test"):
        dataset["dev"]


def test_padded_rows_have_the_window_length_and_a_mask(dataset):
    for plain, padded in zip(dataset["test"], dataset["test"].padded(), strict=True):
        num_ids = len(plain["input_ids"])
        assert len(padded["input_ids"]) == len(padded["attention_mask"]) == 512
        assert padded["input_ids"][:num_ids] == plain["input_ids"]
        assert set(padded["input_ids"][num_ids:]) <= {1}
        assert sum(padded["attention_mask"]) == num_ids


def test_repr_lists_the_splits(dataset):
    assert "train: " in repr(dataset)


def test_dataset_includes_its_tokenizer(dataset):
    row = dataset["train"][0]
    assert dataset.tokenizer.decode(row["input_ids"][1:-1])


def test_folder_without_a_dataset_is_rejected(tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        open_dataset(tmp_path)
    with pytest.raises(DatasetError, match="is not a dataset"):
        open_dataset(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "damaged"),
        ("[]", "damaged"),
        ("{}", "not a dataset"),
        ('{"format": 3, "gristmill": "0"}', "damaged"),
        ('{"gristmill": "0"}', "format None"),
        ('{"format": 99, "gristmill": "9"}', "format 99"),
        ("\xff", "damaged"),
    ],
)
def test_damaged_manifest_is_reported(tmp_path, content, message):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r'"kept": \d+', f'"kept": {10**400}', "a number of more than 63 bits"),
        (
            r'"seconds": {',
            '"seconds": {' + "".join(f'"k{number}": 1, ' for number in range(1001)),
            "more than 1,000 phases or kinds of secrets",
        ),
        (r'"rows": \d+', '"rows": 9000000000000000000', "whose name or number of rows is impossible"),
    ],
)
def test_manifest_with_impossible_values_is_rejected(built, tmp_path, old, new, message):
    content = (built[0] / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(re.sub(old, new, content, count=1))
    with pytest.raises(DatasetError, match=message):
        open_dataset(tmp_path)


def test_data_file_with_an_impossible_name_is_missing(built, tmp_path):
    """Opening the split fails, but the viewer can still compute the stamp of the dataset."""
    content = (built[0] / "manifest.json").read_text().replace('"test.jsonl": ', r'"test\u0000": ')
    (tmp_path / "manifest.json").write_text(content)
    dataset = open_dataset(tmp_path)
    with pytest.raises(DatasetError, match="is missing"):
        dataset["test"]
    assert viewer_index._dataset_stamp(tmp_path, dataset.manifest)


def test_windows_outside_their_row_are_rejected():
    segment = {"path": "a", "repo": "b", "at": 0, "length": 3}
    assert split_windows({"segments": [segment], "input_ids": [1, 2, 3]}) == [{**segment, "input_ids": [1, 2, 3]}]
    with pytest.raises(DatasetError, match=r"a row is damaged: .* the windows exceed the 3 ids of the row"):
        split_windows({"segments": [segment] * 2, "input_ids": [1, 2, 3]})


def test_missing_or_broken_data_file_is_reported(built, tmp_path):
    copy = shutil.copytree(built[0], tmp_path / "copy")
    (copy / "train.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"train\.jsonl is missing"):
        open_dataset(copy)["train"]
    lines = (copy / "test.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "test.jsonl").write_bytes(b"".join([lines[0][:-20] + b"\n", *lines[1:]]))
    with pytest.raises(DatasetError, match=r"row test:0 in .* is damaged: it is not a JSON object"):
        open_dataset(copy)["test"][0]


def test_padded_dataset_is_not_padded_twice(corpus, tmp_path):
    build(Config(sources=[str(corpus / "json")], out=str(tmp_path / "out"), output=OutputConfig(pad=True)))
    rows = open_dataset(tmp_path / "out")["train"]
    assert list(rows) == list(rows.padded())


def test_rows_can_be_pickled(dataset):
    rows = dataset["train"]
    first = rows[0]
    assert pickle.loads(pickle.dumps(rows))[0] == first


def test_rows_are_opened_once(dataset):
    assert dataset["train"] is dataset["train"]


def test_file_truncated_at_a_line_end_is_detected(built, tmp_path):
    copy = shutil.copytree(built[0], tmp_path / "copy")
    lines = (copy / "test.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "test.jsonl").write_bytes(b"".join(lines[:-3]))
    with pytest.raises(DatasetError, match="rows, but the manifest records"):
        list(open_dataset(copy)["test"])
    (copy / "test.jsonl").write_bytes(b"")
    with pytest.raises(DatasetError, match="0 rows"):
        open_dataset(copy)["test"][0]


def test_rows_can_be_read_with_json_alone(built):
    with (built[0] / "train.jsonl").open() as stream:
        assert json.loads(next(stream)) == open_dataset(built[0])["train"][0]


def test_damaged_tokenizer_is_reported(built, tmp_path):
    copy = shutil.copytree(built[0], tmp_path / "copy")
    (copy / "tokenizer.json").write_text(
        '{"model": {"vocab": {"a": 0}}, "post_processor": {"type": "TemplateProcessing"}}'
    )
    with pytest.raises(TokenizerError, match="damaged"):
        _ = open_dataset(copy).tokenizer


def test_dataset_can_be_pickled(built):
    dataset = open_dataset(built[0])
    sent = pickle.loads(pickle.dumps(dataset))
    assert sent.manifest == dataset.manifest
    assert sent["test"][0] == dataset["test"][0]
