"""Test that no text is lost, repeated or changed if documents are cut for the GPU and the results are joined."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gristmill.tokenizers.cuda.chunks import cut_into_pieces, group_into_chunks
from gristmill.tokenizers.cuda.cuda_tokenizer import splice
from support.gpu_texts import REVEALING, definition_named, ids_by_reference, joined

DOCUMENTS = st.lists(
    st.lists(st.sampled_from([b"a", b"\n", b"x\ny", b" ", b"}\n(", b"\n\n", "é".encode(), b"7\n7"]), max_size=30).map(b"".join),
    max_size=8,
)  # fmt: skip
CUT = st.sampled_from(
    ["a", "é", "1", "'", "!", " ", "\t", "\n", "\r\n", "x\ny", "}\n\n", "\n'", "s\ns", "1\n23", "字\n"]
)


def pieces_in(documents, chunk_bytes):
    text, offsets = joined(documents)
    return text, offsets, cut_into_pieces(text, offsets, chunk_bytes)


@given(documents=DOCUMENTS, chunk_bytes=st.integers(1, 20))
def test_every_byte_is_in_exactly_one_piece(documents, chunk_bytes):
    text, offsets, pieces = pieces_in(documents, chunk_bytes)
    assert len(pieces.too_long) == len(pieces.offsets) - 1
    assert (pieces.offsets[0], pieces.offsets[-1]) == (0, len(text))
    assert (np.diff(pieces.offsets) >= 0).all()
    assert np.array_equal(pieces.offsets[pieces.first_pieces], offsets)


@given(documents=DOCUMENTS, chunk_bytes=st.integers(1, 20))
def test_a_piece_is_too_long_only_if_it_cannot_be_cut(documents, chunk_bytes):
    text, _, pieces = pieces_in(documents, chunk_bytes)
    assert np.array_equal(pieces.too_long, np.diff(pieces.offsets) > chunk_bytes)
    for piece in np.flatnonzero(pieces.too_long):
        begin = text[pieces.offsets[piece] : pieces.offsets[piece + 1]].tobytes()[: chunk_bytes + 1]
        assert not any(is_safe(begin, at) for at in range(1, chunk_bytes + 1))


@given(documents=DOCUMENTS, chunk_bytes=st.integers(1, 20))
def test_documents_are_cut_only_where_no_word_can_cross(documents, chunk_bytes):
    text, offsets, pieces = pieces_in(documents, chunk_bytes)
    for cut in set(pieces.offsets.tolist()) - set(offsets.tolist()):
        assert is_safe(text.tobytes(), cut)


def is_safe(text, at):
    """Return True if the position follows a line feed between two visible ASCII characters."""
    around = text[at - 2 : at + 1]
    return at >= 2 and len(around) == 3 and around[1:2] == b"\n" and all(0x20 < byte < 0x7F for byte in around[::2])


@given(documents=DOCUMENTS, chunk_bytes=st.integers(1, 20), max_documents=st.integers(1, 5))
def test_chunks_hold_every_piece_that_fits_once_and_in_order(documents, chunk_bytes, max_documents):
    _, _, pieces = pieces_in(documents, chunk_bytes)
    spans = list(group_into_chunks(pieces, chunk_bytes, max_documents))
    for first, end in spans:
        assert 0 < end - first <= max_documents
        assert pieces.offsets[end] - pieces.offsets[first] <= chunk_bytes
    held = [piece for first, end in spans for piece in range(first, end)]
    assert held == np.flatnonzero(~pieces.too_long).tolist()


def test_documents_that_fit_are_not_copied():
    _, offsets, pieces = pieces_in([b"abc", b"", b"de"], 3)
    assert pieces.offsets is offsets
    assert list(group_into_chunks(pieces, 5, 100)) == [(0, 3)]


def test_documents_may_start_inside_the_text():
    text = np.frombuffer(b"not used|x\ny\nz", np.uint8)
    pieces = cut_into_pieces(text, np.array([9, 14]), 3)
    assert pieces.offsets.tolist() == [9, 11, 14]
    assert pieces.first_pieces.tolist() == [0, 2]


@pytest.mark.parametrize("name", REVEALING)
@settings(max_examples=60, deadline=None)
@given(text=st.lists(CUT, min_size=3, max_size=25).map("".join), chunk_bytes=st.integers(3, 12))
def test_ids_of_pieces_equal_ids_of_the_document(name, text, chunk_bytes):
    content, _, pieces = pieces_in([text.encode()], chunk_bytes)
    assume(len(pieces.too_long) > 1)
    edges = pieces.offsets.tolist()
    parts = [content[start:end].tobytes() for start, end in pairwise(edges)]
    (expected,) = ids_by_reference(definition_named(name), [text.encode()])
    assert np.array_equal(np.concatenate(ids_by_reference(definition_named(name), parts)), expected)


@given(
    counts=st.lists(st.integers(0, 4), max_size=8),
    found=st.lists(st.lists(st.integers(100, 200), max_size=5), min_size=8, max_size=8),
    data=st.data(),
)
def test_splice_replaces_the_ids_of_missing_pieces(counts, found, data):
    missing = sorted(data.draw(st.sets(st.sampled_from(range(len(counts)))))) if counts else []
    offsets = np.cumsum([0, *counts])
    ids = np.arange(offsets[-1], dtype=np.uint16)
    spliced = splice(ids, offsets, missing, lambda number: np.array(found[number], np.uint32))
    by_piece = [
        found[at] if at in missing else ids[offsets[at] : offsets[at + 1]].tolist() for at in range(len(counts))
    ]
    assert spliced.ids.tolist() == [index for piece in by_piece for index in piece]
    assert spliced.offsets.tolist() == np.cumsum([0, *map(len, by_piece)]).tolist()
    assert spliced.ids.dtype == np.uint16
