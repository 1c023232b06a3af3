"""Tests of the division of a split into shares. One task writes one share."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.formats import format as formats
from gristmill.formats.format import get_format
from gristmill.formats.shares import divide_documents_into_shares, divide_into_shares
from support.made_batches import plain_schema

WIDE = plain_schema(length=512)
ANY_FORMAT = pytest.mark.parametrize("name", FORMATS)


def shares(name, counts, files=None, schema=WIDE):
    return list(divide_documents_into_shares(name, Split.TRAIN, schema, files or [sum(counts)], counts))


@ANY_FORMAT
@settings(max_examples=50, deadline=None)
@given(files=st.lists(st.lists(st.integers(1, 90), min_size=1), max_size=4))
def test_every_document_is_in_exactly_one_share(name, files):
    schema = plain_schema(length=1 << 20)
    counts = [count for documents in files for count in documents]
    found = shares(name, counts, [sum(documents) for documents in files] or [0], schema)
    assert [index for _, some in found for index in range(len(counts))[some]] == list(range(len(counts)))
    for number, (share, some) in enumerate(found):
        assert share.num_rows == sum(counts[some]) > 0
        assert share.first == sum(counts[: some.start])
        assert (share.number, share.num_shares) == (number, len(found))
    if get_format(name).join is None:
        assert {sum(documents) for documents in files[:1]} <= {share.stop for share, _ in found}


@ANY_FORMAT
@given(counts=st.lists(st.integers(1, 9000), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_shares_by_rows_equal_shares_by_documents(name, counts):
    firsts = [0, *accumulate(counts)]
    by_rows = divide_into_shares(
        name, Split.TRAIN, WIDE, [sum(counts)], lambda row: min(one for one in firsts if one >= row)
    )
    assert by_rows == [share for share, _ in shares(name, counts)]


@pytest.mark.parametrize(
    ("name", "num_rows", "num_tasks"),
    [
        ("jsonl", 200_000, 1),
        ("bin", 200_000, 98),
        ("mds", 200_000, 98),
        ("parquet", 200_000, 12),
        ("arrow", 200_000, 12),
        ("parquet", 2_000_000, 32),
        ("arrow", 20_000, 1),
        ("bin", 1_000, 1),
    ],
)
def test_large_split_is_divided_into_many_tasks(name, num_rows, num_tasks):
    assert len(shares(name, [1] * num_rows)) == num_tasks


def test_files_have_no_more_rows_than_jsonl_files():
    found = shares("parquet", [100] * 1000, [40_000, 60_000], plain_schema(length=8))
    assert [share.num_rows for share, _ in found] == [40_000, 60_000]
    assert formats.rows_per_file(WIDE, 32 * 100_000) == 100_000


def test_long_document_is_not_divided():
    found = shares("bin", [10, 50_000, 10])
    assert [share.num_rows for share, _ in found] == [50_010, 10]
