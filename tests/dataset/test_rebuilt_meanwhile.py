"""A dataset that is rebuilt while it is read: readers give rows of one build, or say that there is another."""

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
from gristmill.views.row import look_at
from support.builds import in_a_process, make
from support.source_trees import write_tree
from support.trained_tokenizers import roberta_like

NAMES = ("out", "other")
MOST_MOMENTS = 5
FORMATS = {"plain": {}, "zstd": {"compress": "zstd"}, "parquet": {"formats": ["parquet"]}, "mds": {"formats": ["mds"]}}


def unlike(seed):
    """A text that is no near-duplicate of another seed's, of about the same size."""
    words = random.Random(seed)
    return "".join(f"{word} = {word[::-1]}\n" for word in ("".join(words.choices("abcdefgh", k=9)) for _ in range(60)))


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """By format, two builds: of the same names, splits and sizes, so that files of one can be taken for the other's.

    Their vocabulary is small: a hundred processes load it.
    """
    tokenizer = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    tokenizer.write_text(roberta_like())

    def build(number, name):
        folder = tmp_path_factory.mktemp(f"{name}{number}")
        files = {f"{one}.py": unlike(f"{one}{number}") for one in "abcdefghij"}
        source = write_tree(folder / "source", files)
        sections = {"output": OutputConfig(**FORMATS[name]), "split": SplitConfig(shares="60/20/20")}
        sections["tokenizer"] = TokenizerConfig(name=str(tokenizer))
        make(source, folder / "out", **sections, run=RunConfig(workers=1, cache_bytes=0))
        return folder / "out"

    return {name: [build(number, name) for number in (1, 2)] for name in FORMATS}


@pytest.fixture
def copied(builds, tmp_path):
    """The first build in `out`, the second in `other`."""

    def copy(name="plain", where="."):
        return [Path(shutil.copytree(one, tmp_path / where / to)) for one, to in zip(builds[name], NAMES, strict=True)]

    return copy


def replace(out, other):
    """As a build does; what was there is gone then."""
    os.rename(out, out.with_name("away"))
    os.rename(other, out)
    shutil.rmtree(out.with_name("away"))


def all_rows(out):
    return [dict(row) for split in open_dataset(out).values() for row in split]


def rows_by_number(out):
    dataset = open_dataset(out)
    return [dict(dataset[split][number]) for split in dataset for number in reversed(range(len(dataset[split])))]


def checked(out):
    report = gristmill.check(out, workers=1)
    return report.ok, report.fingerprint


READERS = {
    "rows": all_rows,
    "rows by number": rows_by_number,
    "tokenizer": lambda out: open_dataset(out).tokenizer.definition.sha256,
    "check": checked,
    "show": lambda out: str(look_at(open_dataset(out), "train", 0)),
    "explain a file": lambda out: str(explain_file(out, "a.py")),
    "explain a row": lambda out: str(explain_row(out, "train", 0)),
    "diff": lambda out: str(gristmill.diff(out, Path(out).with_name("kept")).data),
    "report": lambda out: gristmill.report(out, out=Path(out).with_name("page.html")).read_text(),
    "export": lambda out: export(out, "npy", workers=1).content_sha256,
}


def read_and_replace(reader, out, other, last):
    """The dataset is replaced before its last file is opened -> what was read or said, and how many files were opened."""
    num_opened = 0
    is_replacing = False

    def look(event, arguments):
        nonlocal num_opened, is_replacing
        if event not in {"open", "os.listdir"} or is_replacing or isinstance(arguments[0], int):
            return  # Arrow opens files without an event, but looks into their folder before
        if os.fsdecode(arguments[0]).startswith(f"{out}/"):
            num_opened += 1
            if num_opened == last:
                is_replacing = True
                replace(out, other)
                is_replacing = False

    sys.addaudithook(look)
    try:
        found = READERS[reader](str(out))
    except GristmillError as error:
        found = error
    return found, num_opened


@pytest.mark.parametrize(
    ("reader", "name"),
    [*((reader, "plain") for reader in READERS), *(("rows", name) for name in FORMATS), ("rows by number", "zstd")],
)
def test_whatever_is_read_is_of_one_build(copied, tmp_path, reader, name):
    def whole(number):
        out, other = copied(name, f"whole{number}")
        shutil.copytree(out, out.with_name("kept"))
        if number:
            replace(out, other)
        return in_a_process(read_and_replace, reader, out, other, 0)

    (first, num_opened), (second, _) = whole(0), whole(1)
    assert first != second or reader == "tokenizer"
    said = 0
    moments = range(1, num_opened + 1)
    for last in random.Random(reader).sample(moments, min(num_opened, MOST_MOMENTS)):
        out, other = copied(name, str(last))
        shutil.copytree(out, out.with_name("kept"))
        found, _ = in_a_process(read_and_replace, reader, out, other, last)
        if isinstance(found, GristmillError):
            said += 1
            assert isinstance(found, DatasetError), found
            assert "open it again" in str(found) or "Export it again" in str(found)
        else:
            assert found in (first, second)
    assert said or reader == "tokenizer"


def test_rows_that_are_open_stay_and_others_are_refused(copied):
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


def test_more_formats_and_the_same_build_once_more_are_no_other_build(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    export(out, "npy", workers=1)
    same = shutil.copytree(out, out.with_name("same"))
    rows = [dict(row) for row in dataset["train"]]
    replace(out, same)
    assert [dict(row) for row in dataset["train"]] == rows


def test_a_dataset_that_is_gone_is_said_to_be(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    shutil.rmtree(out)
    with pytest.raises(DatasetError, match="there is no such folder"):
        list(dataset["train"])
    with pytest.raises(DatasetError, match="there is no such folder"):
        dataset["test"][0]


def test_a_data_file_that_is_gone_is_named(copied):
    out, _ = copied()
    dataset = open_dataset(out)
    rows = dataset["train"]
    (out / "train.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"cannot read .*train\.jsonl"):
        list(rows)
