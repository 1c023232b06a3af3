"""If a dataset is rebuilt during reading, readers return the rows of a single build or raise an error."""

import os
import pickle
import random
import shutil
import sys
from pathlib import Path

import pytest

import gristmill
from gristmill import (
    DatasetError,
    GristmillError,
    OutputConfig,
    RunConfig,
    SplitConfig,
    TokenizerConfig,
    export,
    open_dataset,
)
from gristmill.planning.explain import explain_file, explain_row
from gristmill.views.row import view_row
from support.builds import in_a_process, make
from support.source_trees import write_tree
from support.trained_tokenizers import roberta_like

NAMES = ("out", "other")
MAX_MOMENTS = 5
FORMATS = {"plain": {}, "zstd": {"compress": "zstd"}, "parquet": {"formats": ["parquet"]}, "mds": {"formats": ["mds"]}}


def distinct_text(seed):
    """Return a text of fixed size. Texts of different seeds are not near-duplicates."""
    words = random.Random(seed)
    return "".join(f"{word} = {word[::-1]}\n" for word in ("".join(words.choices("abcdefgh", k=9)) for _ in range(60)))


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Build two datasets per format with the same names, splits and sizes, so that a reader could mix up their files.

    The vocabulary is small because a hundred processes load it.
    """
    tokenizer = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    tokenizer.write_text(roberta_like())

    def build(number, name):
        folder = tmp_path_factory.mktemp(f"{name}{number}")
        files = {f"{one}.py": distinct_text(f"{one}{number}") for one in "abcdefghij"}
        source = write_tree(folder / "source", files)
        sections = {"output": OutputConfig(**FORMATS[name]), "split": SplitConfig(shares="60/20/20")}
        sections["tokenizer"] = TokenizerConfig(name=str(tokenizer))
        make(source, folder / "out", **sections, run=RunConfig(workers=1, cache_bytes=0))
        return folder / "out"

    return {name: [build(number, name) for number in (1, 2)] for name in FORMATS}


@pytest.fixture
def copied(builds, tmp_path):
    """Return a function that copies the first build to `out` and the second build to `other`."""

    def copy(name="plain", where="."):
        return [Path(shutil.copytree(one, tmp_path / where / to)) for one, to in zip(builds[name], NAMES, strict=True)]

    return copy


def replace(out, other):
    """Replace `out` with `other` as a build does, and delete the old dataset."""
    os.rename(out, out.with_name("away"))
    os.rename(other, out)
    shutil.rmtree(out.with_name("away"))


def all_rows(out):
    return [dict(row) for split in open_dataset(out).values() for row in split]


def rows_by_number(out):
    dataset = open_dataset(out)
    return [dict(dataset[split][number]) for split in dataset for number in reversed(range(len(dataset[split])))]


def check_result(out):
    report = gristmill.check(out, workers=1)
    return report.ok, report.fingerprint


READERS = {
    "rows": all_rows,
    "rows by number": rows_by_number,
    "tokenizer": lambda out: open_dataset(out).tokenizer.definition.sha256,
    "check": check_result,
    "show": lambda out: str(view_row(open_dataset(out), "train", 0)),
    "explain a file": lambda out: str(explain_file(out, "a.py")),
    "explain a row": lambda out: str(explain_row(out, "train", 0)),
    "diff": lambda out: str(gristmill.diff(out, Path(out).with_name("kept")).data),
    "report": lambda out: gristmill.report(out, out=Path(out).with_name("page.html")).read_text(),
    "export": lambda out: export(out, "npy", workers=1).content_sha256,
}


def read_and_replace(reader, out, other, replace_at):
    """Run a reader, and replace the dataset when the reader opens file number `replace_at`. 0 means never.

    Return the result or the error of the reader, and the number of files that the reader opened.
    """
    num_opened = 0
    is_replacing = False

    def audit(event, arguments):
        nonlocal num_opened, is_replacing
        # Include os.listdir, because Arrow lists the folder and then opens files without an audit event.
        if event not in {"open", "os.listdir"} or is_replacing or isinstance(arguments[0], int):
            return
        if os.fsdecode(arguments[0]).startswith(f"{out}/"):
            num_opened += 1
            if num_opened == replace_at:
                is_replacing = True
                replace(out, other)
                is_replacing = False

    sys.addaudithook(audit)
    try:
        found = READERS[reader](str(out))
    except GristmillError as error:
        found = error
    return found, num_opened


@pytest.mark.parametrize(
    ("reader", "name"),
    [*((reader, "plain") for reader in READERS), *(("rows", name) for name in FORMATS), ("rows by number", "zstd")],
)
def test_every_reader_returns_one_build_or_fails(copied, tmp_path, reader, name):
    def read_unreplaced(number):
        out, other = copied(name, f"unreplaced{number}")
        shutil.copytree(out, out.with_name("kept"))
        if number:
            replace(out, other)
        return in_a_process(read_and_replace, reader, out, other, 0)

    (first, num_opened), (second, _) = read_unreplaced(0), read_unreplaced(1)
    assert first != second or reader == "tokenizer"
    num_errors = 0
    moments = range(1, num_opened + 1)
    for replace_at in random.Random(reader).sample(moments, min(num_opened, MAX_MOMENTS)):
        out, other = copied(name, str(replace_at))
        shutil.copytree(out, out.with_name("kept"))
        found, _ = in_a_process(read_and_replace, reader, out, other, replace_at)
        if isinstance(found, GristmillError):
            num_errors += 1
            assert isinstance(found, DatasetError), found
            assert "open it again" in str(found) or "Export it again" in str(found)
        else:
            assert found in (first, second)
    assert num_errors or reader == "tokenizer"


def test_open_file_remains_readable_and_other_reads_are_rejected(copied):
    out, other = copied()
    dataset = open_dataset(out)
    before = dict(dataset["train"][0])
    replace(out, other)
    assert dict(dataset["train"][0]) == before
    for read in (
        lambda: dataset["test"][0],
        lambda: list(dataset["train"]),
        lambda: dataset.tokenizer,
        lambda: pickle.loads(pickle.dumps(dataset["train"]))[0],
    ):
        with pytest.raises(DatasetError, match=r"rebuilt while it was being read: open it again"):
            read()
    assert dict(open_dataset(out)["train"][0]) != before


def test_rows_remain_readable_after_an_export_or_an_identical_build(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    export(out, "npy", workers=1)
    same = shutil.copytree(out, out.with_name("same"))
    rows = [dict(row) for row in dataset["train"]]
    replace(out, same)
    assert [dict(row) for row in dataset["train"]] == rows


def test_deleted_dataset_is_reported(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    shutil.rmtree(out)
    with pytest.raises(DatasetError, match="there is no such folder"):
        list(dataset["train"])
    with pytest.raises(DatasetError, match="there is no such folder"):
        dataset["test"][0]


def test_deleted_data_file_is_named(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    rows = dataset["train"]
    (out / "train.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"cannot read .*train\.jsonl"):
        list(rows)
