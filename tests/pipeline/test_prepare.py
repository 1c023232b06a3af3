"""Batches of source files, and the parts prepared from the batches."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.config.config import Config
from gristmill.config.settings import OutputConfig, RunConfig, ScanConfig
from gristmill.core.records import DropReason, SourceFile
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import PartReader, read_blocks
from gristmill.pipeline.prepare import Batch, make_batches
from gristmill.pipeline.prepare import prepare as prepare_batch
from gristmill.sources.trees import scan
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from support import trained_tokenizers as made
from support.documents import documents_in
from support.source_trees import write_tree


def context(tmp_path, definition=None, **sections):
    return Context.of(Config(sources=["x"], out="y", **sections), definition or locate("codebert"), tmp_path)


def prepare(context, batch):
    """Prepare a batch and return a reader of its part."""
    return PartReader(context.prepared, prepare_batch(context, batch).part)


def blocks_of(context, batch):
    documents = documents_in(context.prepared, prepare_batch(context, batch).part)
    return list(read_blocks(context.prepared, documents, context.tokenizer.vocab_size))


def batch_of(root):
    return Batch(index=0, files=scan([str(root)], ScanConfig()).files)


def file(index, size):
    return SourceFile(repo="r", path=f"{index:04d}", location="", size=size)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100), st.integers(1, 10))
def test_batches_contain_all_files_in_order_and_respect_the_limits(sizes, batch_bytes, batch_files):
    files = [file(index, size) for index, size in enumerate(sizes)]
    made_batches = list(make_batches(files, RunConfig(batch_bytes=batch_bytes, batch_files=batch_files)))
    assert [member for batch in made_batches for member in batch.files] == files
    assert [batch.index for batch in made_batches] == list(range(len(made_batches)))
    for batch in made_batches:
        assert len(batch.files) <= (batch_files or len(files))
        assert len(batch.files) == 1 or sum(member.size for member in batch.files) <= batch_bytes


def test_part_contains_the_ids_of_the_tokenizer(tmp_path, tree, codebert):
    texts = {"a.py": "x = 1\n", "b.py": "y = '</s>'\n\n", "ü.py": "# größe 😀\r\n"}
    shared = context(tmp_path)
    batch = batch_of(tree(texts))
    prepared = prepare(shared, batch)
    assert [document.path for document in prepared.documents()] == sorted(texts)
    blocks = blocks_of(shared, batch)
    for (document, block), facts in zip(blocks, prepared.facts(), strict=True):
        text = texts[document.path].encode()
        assert block.ids.dtype == np.uint16
        assert codebert.decode(block.ids) == text
        assert document.num_tokens == len(block.ids)
        assert len(block.newline_tokens) == text.count(b"\n")
        assert block.text is None
        assert facts.num_lines == len(text.decode().split("\n")) - text.endswith(b"\n")


def test_part_contains_the_text_if_configured(tmp_path, tree):
    shared = context(tmp_path, output=OutputConfig(with_text=True))
    ((_, block),) = blocks_of(shared, batch_of(tree({"a.py": "# größe\n"})))
    assert block.text.utf8 == "# größe\n".encode()
    assert block.text.starts[-1] == len(block.text.utf8)


def test_large_vocabularies_use_32_bit_ids(tmp_path, tree):
    model = json.loads(made.byte_level())
    model["model"]["vocab"]["far"] = 100_000
    definition = Definition(name="far", json=json.dumps(model).encode(), config=b"{}")
    shared = context(tmp_path, definition)
    ((_, block),) = blocks_of(shared, batch_of(tree({"a.py": "x = 1\n"})))
    assert block.ids.dtype == np.uint32


def test_each_file_is_prepared_or_dropped(tmp_path, tree):
    root = tree({"a.py": "x", "empty.py": "", "b.bin": b"\0\1"})
    prepared = prepare(context(tmp_path), batch_of(root))
    assert len(prepared.documents()) == 1
    assert {drop.path: drop.reason for drop in prepared.drops()} == {
        "b.bin": DropReason.BINARY,
        "empty.py": DropReason.EMPTY,
    }


def test_text_without_tokens_is_dropped(tmp_path, tree):
    definition = Definition(name="wp", json=made.word_piece().encode(), config=b"{}")
    prepared = prepare(context(tmp_path, definition), batch_of(tree({"a.py": "\u200b\n", "b.py": "def"})))
    assert [(drop.path, drop.reason) for drop in prepared.drops()] == [("a.py", DropReason.NO_TOKENS)]


def test_file_with_an_encoded_control_token_is_dropped(tmp_path, tree, monkeypatch):
    from tokenizers import Tokenizer

    definition = Definition(name="u", json=made.unigram().encode(), config=b"{}")
    shared = context(tmp_path, definition)
    monkeypatch.setattr(shared.tokenizer, "_engine", Tokenizer.from_str(made.unigram()))
    prepared = prepare(shared, batch_of(tree({"a.py": "a <mask> b", "b.py": "def"})))
    assert [(drop.path, drop.reason) for drop in prepared.drops()] == [("a.py", DropReason.CONTROL_TOKEN)]
    assert [document.path for document in prepared.documents()] == ["b.py"]


def test_text_digest_does_not_depend_on_the_encoding(tmp_path):
    text = "größe = 1\n"
    root = write_tree(
        tmp_path / "r", {"a.py": text, "b.py": "\ufeff".encode() + text.encode(), "c.py": text.encode("utf-16")}
    )
    prepared = prepare(context(tmp_path), batch_of(root))
    assert len({document.text_sha256 for document in prepared.documents()}) == 1
    assert len({facts.sha256 for facts in prepared.facts()}) == 3


@pytest.mark.parametrize("text", ["x", "x\n", "x\ny", "\nx\n"])
def test_final_newline_does_not_begin_another_line(tmp_path, tree, text):
    (facts,) = prepare(context(tmp_path), batch_of(tree({"a.py": text}))).facts()
    assert facts.num_lines == len(text.splitlines())


def test_text_that_cannot_be_redacted_is_dropped(tmp_path, tree, monkeypatch):
    from gristmill.cleaning import secrets

    token = "gh" + "p_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    monkeypatch.setattr(secrets, "MAX_ROUNDS", 1)
    prepared = prepare(context(tmp_path), batch_of(tree({"a.py": f'x = "{token}"\n', "b.py": "y = 1\n"})))
    assert [(drop.path, drop.reason) for drop in prepared.drops()] == [("a.py", DropReason.HOLDS_SECRET)]
