"""Rows have the same windows whether they are read by number, in order, or without ids."""

import json
import shutil

import msgspec
import numpy as np
import pytest

from gristmill import DatasetError, OutputConfig, VariantsConfig, WindowConfig, open_dataset
from gristmill.core.records import Split
from gristmill.dataset.row_windows import read_row, read_rows, read_windows
from support.builds import make

KINDS = {
    "plain": {},
    "padded": {"output": OutputConfig(pad=True)},
    "compressed": {"output": OutputConfig(compress="zstd")},
    "parquet": {"output": OutputConfig(formats=["parquet"])},
    "packed": {"window": WindowConfig(pack="best-fit")},
    "noisy": {"variants": VariantsConfig(rates={"noise": 0.5, "rename": 0.5})},
}


@pytest.fixture(scope="module", params=KINDS)
def dataset(request, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("rows") / "out"
    make(corpus / "json", out, **KINDS[request.param])
    return open_dataset(out)


def test_windows_are_equal_by_number_in_order_and_without_ids(dataset):
    prefix, suffix = (len(ids) for ids in (dataset.manifest.tokenizer.prefix, dataset.manifest.tokenizer.suffix))
    for split in Split:
        in_order, without_ids = list(read_rows(dataset, split)), list(read_windows(dataset, split))
        assert len(in_order) == len(without_ids) == len(dataset[split])
        for number, (row, row_windows, stored) in enumerate(zip(in_order, without_ids, dataset[split], strict=True)):
            by_number = read_row(dataset, split, number)
            num_ids = sum(stored["attention_mask"]) if "attention_mask" in stored else len(stored["input_ids"])
            assert row.ids.tolist() == by_number.ids.tolist() == stored["input_ids"][:num_ids]
            assert row.windows == by_number.windows == row_windows.windows
            assert len(row.ids) == row_windows.num_ids
            expected = stored.get("segments") or [{**stored, "at": prefix, "length": num_ids - prefix - suffix}]
            for window, one in zip(row.windows, expected, strict=True):
                fields = msgspec.structs.asdict(window)
                assert {name: one[name] for name in fields if name in one} == {
                    name: list(value) if name == "lines" else value for name, value in fields.items() if name in one
                }
                assert row.content(window).tolist() == stored["input_ids"][window.at : window.at + window.length]
            assert (row.ids_before_noise is not None) == (stored.get("variant") == "noise")
            if row.ids_before_noise is not None:
                labels = [label for label in stored["labels"] if label != -100]
                assert row.ids_before_noise.tolist() == labels[prefix : len(labels) - suffix]


@pytest.mark.parametrize("damage", [{"at": 5, "length": 1 << 40}, {"at": 0, "length": -1}, {"length": None}])
def test_windows_outside_their_row_are_reported_as_damage(corpus, tmp_path, damage):
    make(corpus / "json", tmp_path / "out", window=WindowConfig(pack="best-fit"))
    path = tmp_path / "out" / "train.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    row["segments"][0] |= damage
    path.write_text("".join([json.dumps(row) + "\n", *others]))
    dataset = open_dataset(tmp_path / "out")
    for read in (read_rows, read_windows):
        with pytest.raises(DatasetError, match=r"row train:0 in .* is damaged: "):
            list(read(dataset, Split.TRAIN))
    with pytest.raises(DatasetError, match=r"row train:0 in .* is damaged: "):
        read_row(dataset, "train", 0)


def test_damaged_row_is_named(corpus, tmp_path):
    make(corpus / "json", tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    lines = (tmp_path / "two" / "train.jsonl").read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"start":', b'"start":-')
    lines[3] = lines[3].replace(b'"start":-0', b'"start":-1')
    (tmp_path / "two" / "train.jsonl").write_bytes(b"".join(lines))
    dataset = open_dataset(tmp_path / "two")
    for read in (read_rows, read_windows):
        rows = read(dataset, Split.TRAIN)
        assert np.all([next(rows).windows for _ in range(3)])
        with pytest.raises(DatasetError, match=r"row train:3 in '.*two' is damaged: "):
            next(rows)
