"""The content digest of a dataset depends on every row, on the order of rows and on their splits."""

import numpy as np
import pytest

from gristmill.core.records import Split
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.content_digest import ContentDigest, row_digests

ROWS = [
    ("train", "r", "a.py", 0, [1, 2, 3]),
    ("train", "r", "a.py", 2, [3, 4]),
    ("train", "r", "b.py", 0, [5]),
    ("validation", "r", "c.py", 0, [1, 2, 3]),
    ("test", "s", "a.py", 0, [6, 70_000]),
]


def sha256_of(rows):
    content = ContentDigest()
    for split in Split:
        split_rows = [row for row in rows if row[0] == split]
        _, repos, paths, starts, ids = zip(*split_rows, strict=True) if split_rows else ((),) * 5
        columns = {"repo": list(repos), "path": list(paths), "start": np.array(starts, np.int64)}
        content.add(split, row_digests(split, WindowBatch(Ragged.of(ids, np.uint32), columns)))
    return content.sha256()


def change_row(number, **fields):
    names = ("split", "repo", "path", "start", "ids")
    rows = list(ROWS)
    rows[number] = tuple((dict(zip(names, rows[number], strict=True)) | fields).values())
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        change_row(0, ids=[1, 2, 9]),
        change_row(0, ids=[1, 2]),
        change_row(0, repo="q"),
        change_row(0, path="A.py"),
        change_row(1, start=1),
        change_row(2, split="test"),
        change_row(4, ids=[6, 70_001]),
        [ROWS[1], ROWS[0], *ROWS[2:]],
        ROWS[1:],
        [*ROWS, ROWS[0]],
        # The same ids, with a different boundary between the windows.
        [("train", "r", "a.py", 0, [1, 2]), ("train", "r", "a.py", 2, [3, 3, 4]), *ROWS[2:]],
        # The same bytes, with a different boundary between repository and path.
        change_row(0, repo="r\0a.py", path=""),
    ],
    ids=str,
)
def test_any_change_changes_the_digest(rows):
    assert sha256_of(rows) != sha256_of(ROWS)


def test_same_rows_have_the_same_digest():
    assert sha256_of(list(ROWS)) == sha256_of(ROWS)
    train_last = sorted(ROWS, key=lambda row: row[0] == "train")
    assert sha256_of(train_last) == sha256_of(ROWS), "the order in which splits are added must not matter"
