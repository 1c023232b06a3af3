"""Decisions about documents: splits of the earlier build, keys of near-duplicates, and pieces of data files."""

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from gristmill.config.config import Config
from gristmill.config.settings import DuplicatesConfig, OutputConfig, SplitConfig
from gristmill.core.errors import InputError
from gristmill.core.records import Split
from gristmill.formats.jsonl import PIECE_BYTES
from gristmill.pipeline import decide
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import deduplicate_and_split
from gristmill.pipeline.pieces import make_pieces
from gristmill.splits.previous import read_previous_splits
from support.documents import document, placed


def config(tmp_path, **split):
    near = DuplicatesConfig(near="keep")  # the documents of these tests have no ids to compare
    return Config(sources=["x"], out=str(tmp_path / "out"), split=SplitConfig(**split), duplicates=near)


def decision_for(documents, config):
    folder = Path(config.out)
    return deduplicate_and_split(
        Context(config=config, folder=folder, tokenizer_key="", prepare_key="", keeps_text=False), documents, map
    )


def splits(decision):
    return {document.path: document.split for document in decision.kept}


def previous_file(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_pieces_cover_each_split_without_gap_or_overlap():
    documents = [
        placed(document(f"{index:04d}", row_bytes=1 + index * 7919 % 3_000_000), list(Split)[index % 3])
        for index in range(300)
    ]
    pieces = list(make_pieces(documents, OutputConfig(shard_bytes=20_000_000)))
    for split in Split:
        members = [member for piece in pieces if piece.split is split for member in piece.documents]
        assert members == [member for member in documents if member.split is split]
    for name in {piece.file for piece in pieces}:
        offset = 0
        for piece in (piece for piece in pieces if piece.file == name):
            assert piece.offset == offset
            assert piece.num_bytes == sum(member.num_row_bytes for member in piece.documents)
            assert len(piece.documents) == 1 or piece.num_bytes <= PIECE_BYTES
            offset += piece.num_bytes
        assert offset <= 20_000_000
    assert any("-of-" in piece.file for piece in pieces)


def test_single_file_has_a_plain_name_and_an_empty_split_has_no_file():
    pieces = list(make_pieces([placed(document("a"), Split.TRAIN)], OutputConfig()))
    assert [piece.file for piece in pieces] == ["train.jsonl"]
    pieces = list(make_pieces([placed(document("a"), Split.TEST)], OutputConfig(compress="zstd")))
    assert [piece.file for piece in pieces] == ["test.jsonl.zst"]


def test_band_keys_are_the_same_from_memory_and_from_a_file(tmp_path, monkeypatch):
    keys = {f"{part}.part": np.arange(32 * 3, dtype=np.uint64).reshape(3, 32) + 1000 * part for part in range(4)}
    documents = [
        msgspec.structs.replace(document(f"{part}-{row}"), part=part, part_row=row) for part in keys for row in (0, 2)
    ]
    context = Context(config=config(tmp_path), folder=tmp_path, tokenizer_key="", prepare_key="", keeps_text=False)
    context.scratch.mkdir()
    tables = SimpleNamespace(pop_bands=keys.__getitem__)
    in_memory = list(decide._band_keys(context, documents, tables))
    assert [column.tolist() for column in in_memory] == np.concatenate(
        [one[[0, 2]] for one in keys.values()]
    ).T.tolist()
    monkeypatch.setattr(decide, "MAX_BAND_BYTES", 1024)
    assert np.array_equal(in_memory, list(decide._band_keys(context, documents, tables)))


def test_without_an_earlier_build_there_are_no_previous_splits(tmp_path):
    assert read_previous_splits(config(tmp_path))[1] is None


def test_splits_of_the_output_folder_are_kept(tmp_path):
    previous_file(tmp_path / "out/files.jsonl", [{"repo": "repo", "path": "a.py", "split": "test", "more": 1}])
    decision = decision_for([document("a.py")], config(tmp_path))
    assert splits(decision) == {"a.py": Split.TEST}
    assert decision.previous.num_files_kept_in_place == 1
    assert splits(decision_for([document("a.py")], config(tmp_path, fresh=True))) == {"a.py": Split.TRAIN}


def test_given_splits_file_takes_precedence_over_the_output_folder(tmp_path):
    previous_file(tmp_path / "out/files.jsonl", [{"repo": "repo", "path": "a.py", "split": "test"}])
    given = previous_file(tmp_path / "old.jsonl", [{"repo": "repo", "path": "a.py", "split": "validation"}])
    assert splits(decision_for([document("a.py")], config(tmp_path, previous=str(given)))) == {"a.py": Split.VALIDATION}


def test_dropped_files_of_the_earlier_build_have_no_previous_split(tmp_path):
    previous_file(tmp_path / "out/files.jsonl", [{"repo": "repo", "path": "a.py", "split": None, "text_sha256": "x"}])
    assert decision_for([document("a.py")], config(tmp_path)).previous.num_files_kept_in_place == 0


@pytest.mark.parametrize("content", ["nonsense", '{"repo": 5}\n', '{"repo":"r","path":"p","split":"fourth"}\n'])
def test_invalid_splits_file_is_refused(tmp_path, content):
    path = tmp_path / "old.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=r"not the files\.jsonl of an earlier build"):
        decision_for([document("a.py")], config(tmp_path, previous=str(path)))


def test_missing_splits_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the splits of the earlier build"):
        decision_for([document("a.py")], config(tmp_path, previous=str(tmp_path / "none")))
