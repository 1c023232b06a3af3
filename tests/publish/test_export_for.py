"""Tests of exports for trainers: the library of each trainer reads the rows of the dataset from the exported folder."""

import json
import os
import pickle
import shutil
from itertools import accumulate, groupby, pairwise

import numpy as np
import pytest

from gristmill import (
    Config,
    ConfigError,
    DatasetError,
    FimConfig,
    OutputConfig,
    OutputError,
    SamplingConfig,
    SplitConfig,
    TokenizerConfig,
    VariantsConfig,
    WindowConfig,
    build,
    export_for,
    open_dataset,
)
from gristmill.cli.main import run
from gristmill.publish import trainer_files
from gristmill.publish.trainers import TRAINERS, InputKind
from support.codebert_with import MARKERS, codebert_with
from support.late_imports import Late
from support.library_readers import READERS, run_jobs
from support.made_code import made_module
from support.source_trees import write_tree
from support.trained_tokenizers import byte_level

parquet = Late("pyarrow.parquet")

LENGTH = 128
END = 0
"""Id of <|endoftext|> in the generated tokenizer."""
SECTIONS = {
    "packed": {"window": WindowConfig(length=LENGTH, pack="best-fit")},
    "whole": {"window": WindowConfig(length=LENGTH, pack="none")},
    "text": {"output": OutputConfig(rows="documents")},
}
DATASET_FOR = {InputKind.ROWS: "packed", InputKind.STREAM: "whole", InputKind.TEXT: "text"}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    sizes = [100, 200, 400, 1500] * 8
    files = {f"part{number}.py": made_module(f"part{number}.py", size) for number, size in enumerate(sizes)}
    return str(write_tree(tmp_path_factory.mktemp("source") / "repo", files))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(byte_level())
    return TokenizerConfig(name=str(path))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, source, tokenizer):
    """Folder with a dataset of each kind of rows."""
    folder = tmp_path_factory.mktemp("datasets")
    for name, sections in SECTIONS.items():
        build(Config(sources=[source], out=str(folder / name), tokenizer=tokenizer, **sections))
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory, datasets):
    """Folder with an export for each trainer."""
    folder = tmp_path_factory.mktemp("exported")
    for name, trainer in TRAINERS.items():
        export_for(datasets / DATASET_FOR[trainer.input_kind], name, folder / name)
    return folder


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def segments(row):
    """Return the ids of each segment of a row."""
    pairs = zip(row["segment_ids"], row["input_ids"], strict=True)
    return [[token for _, token in segment] for _, segment in groupby(pairs, key=lambda pair: pair[0])]


def labels(parts):
    return [label for part in parts for label in (-100, *part[1:])]


def documents(dataset, split):
    """Return the ids of each document of a split, with the end tokens."""
    rows = groupby(dataset[split], key=lambda row: row["path"])
    return [[token for row in document for token in row["input_ids"]] for _, document in rows]


def run_and_read(tmp_path, *jobs):
    run_jobs(*({**job, "answer": tmp_path / f"{number}.json"} for number, job in enumerate(jobs)))
    return [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(len(jobs))]


def test_trl_and_transformers_train_without_attention_across_documents(datasets, exported, tmp_path):
    rows = list(open_dataset(datasets / "packed")["train"])
    chosen = [number for number, row in enumerate(rows) if max(row["segment_ids"]) > 1][:3]
    parts = [segment for number in chosen for segment in segments(rows[number])]
    assert len(chosen) == 3
    model = str(tmp_path / "model")
    run_jobs({"do": "save_model", "folder": model, "tokenizer": exported / "trl/tokenizer", "length": LENGTH})
    by_script = {"do": "train_by_script", "model": model, "rows": chosen}
    trl, transformers, alone = run_and_read(
        tmp_path,
        {**by_script, "folder": exported / "trl"},
        {**by_script, "folder": exported / "transformers"},
        {"do": "logits_alone", "model": model, "sequences": parts},
    )
    expected = [logits for part in alone for logits in part]
    found = {"trl": [], "transformers": []}
    for number, batch, padded in zip(chosen, trl, transformers, strict=False):
        row, size = rows[number], len(rows[number]["input_ids"])
        assert batch["input_ids"] == [row["input_ids"]]
        assert batch["position_ids"] == [row["position_ids"]]
        assert batch["labels"] == [labels(segments(row))]
        assert "attention_mask" not in {**batch, **padded}
        assert padded["input_ids"][0] == row["input_ids"] + [END] * (LENGTH - size)
        assert padded["position_ids"][0] == row["position_ids"] + list(range(LENGTH - size))
        assert padded["labels"][0] == labels(segments(row)) + [-100] * (LENGTH - size)
        found["trl"] += batch["logits"][0]
        found["transformers"] += padded["logits"][0][:size]
    for logits in found.values():
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    together = trl[-1]
    assert together["input_ids"] == [[token for part in parts for token in part]]
    assert together["labels"] == [labels(parts)]
    np.testing.assert_allclose(together["logits"][0], expected, atol=1e-5)
    assert np.shape(transformers[-1]["input_ids"]) == (3, LENGTH)


def test_axolotl_packs_segments_without_attention_between_them(datasets, exported, tmp_path):
    [loaded] = run_and_read(tmp_path, {"do": "pack_with_axolotl", "folder": exported / "axolotl"})
    for split, result in loaded.items():
        parts = [part for row in open_dataset(datasets / "packed")[split] for part in segments(row)]
        assert [row["input_ids"] for row in result["rows"]] == parts
        assert [row["labels"] for row in result["rows"]] == [labels([part]) for part in parts]
        batch = result["batch"]
        assert batch["labels"] == [labels(parts[:4])]
        assert batch["position_ids"] == [[position for part in parts[:4] for position in range(len(part))]]
        assert batch["attention_mask"] == [[number for number, part in enumerate(parts[:4], 1) for _ in part]]


def test_litgpt_reads_blocks_of_the_stream(datasets, exported, tmp_path):
    [loaded] = run_and_read(tmp_path, {"do": "load_with_litgpt", "folder": exported / "litgpt", "length": 63})
    dataset = open_dataset(datasets / "whole")
    for name, split in (("train", "train"), ("val", "validation")):
        stream = [token for document in documents(dataset, split) for token in document]
        blocks = [stream[start : start + 64] for start in range(0, len(stream) - 63, 64)]
        assert sorted(loaded[name]) == sorted(blocks)
    assert loaded["val"] == blocks
    assert loaded["end_id"] == END


@pytest.mark.skipif(not (READERS / "megatron").is_dir(), reason="megatron-core has wheels for Linux only")
def test_megatron_resets_positions_and_attention_at_each_document(datasets, exported, tmp_path):
    [loaded] = run_and_read(tmp_path, {"do": "load_with_megatron", "folder": exported / "megatron", "length": 64})
    dataset = open_dataset(datasets / "whole")
    for split, result in zip(dataset, loaded, strict=True):
        assert result["documents"] == documents(dataset, split)
        for sample in result["samples"]:
            numbers = np.cumsum([0, *(token == END for token in sample["tokens"][:-1])])
            starts = [int(np.flatnonzero(numbers == number)[0]) for number in numbers]
            assert sample["position_ids"] == [index - start for index, start in enumerate(starts)]
            assert sample["labels"][:-1] == sample["tokens"][1:]
            # The token after an end token starts a new document and has no loss. The end token itself has a loss.
            assert sample["loss_mask"] == [float(token != END) for token in sample["tokens"]]
            is_visible = (numbers[:, None] == numbers) & np.tri(64, dtype=bool)
            assert np.array_equal(~np.array(sample["attention_mask"])[0], is_visible)
    assert sum(len(result["samples"]) for result in loaded) > 10


def test_torchtitan_restarts_positions_at_each_document(datasets, exported, tmp_path):
    import tokenizers

    [loaded] = run_and_read(tmp_path, {"do": "load_with_torchtitan", "folder": exported / "torchtitan", "length": 64})
    tokenizer = tokenizers.Tokenizer.from_file(str(exported / "torchtitan/tokenizer/tokenizer.json"))
    for split, samples in loaded.items():
        [path] = (exported / "torchtitan/data").glob(f"{split}-*")
        texts = parquet.read_table(path)["text"].to_pylist()
        assert sorted(texts) == sorted(row["text"] for row in open_dataset(datasets / "text")[split])
        parts = [[*tokenizer.encode(text).ids, END] for text in texts]
        stream = [(*pair, position) for part in parts for position, pair in enumerate(pairwise(part))]
        for number, sample in enumerate(samples):
            ids, targets, positions = zip(*stream[64 * number : 64 * (number + 1)], strict=True)
            assert (tuple(sample["input"]), tuple(sample["labels"])) == (ids, targets)
            assert [found == 0 for found in sample["positions"][1:]] == [expected == 0 for expected in positions[1:]]
        assert len(samples) == len(stream) // 64 > 0


def test_nanogpt_reads_a_stream_of_uint16(datasets, exported):
    dataset, folder = open_dataset(datasets / "whole"), exported / "nanogpt"
    for name, split in (("train", "train"), ("val", "validation")):
        stream = np.memmap(folder / f"{name}.bin", np.uint16, mode="r")
        assert stream.tolist() == [token for document in documents(dataset, split) for token in document]
    meta = pickle.loads((folder / "meta.pkl").read_bytes())
    assert meta["vocab_size"] == len(meta["itos"]) == 600
    assert "".join(meta["itos"][token] for token in [meta["stoi"][letter] for letter in "\nx = 1"]) == "\nx = 1"
    row = next(iter(dataset["train"]))
    text = dataset.tokenizer.decode(row["input_ids"][:50]).decode()
    assert "".join(meta["itos"][token] for token in row["input_ids"][:50]) == text
    settings = {}
    exec((folder / "config.py").read_text(), settings)
    assert (settings["dataset"], settings["block_size"]) == ("nanogpt", LENGTH)


def texts_of_rank(path, rank, num_ranks):
    """Return the texts that nanochat reads from a shard on one of n ranks: the texts of every n-th row group."""
    file = parquet.ParquetFile(path)
    groups = range(rank, file.num_row_groups, num_ranks)
    return [text for group in groups for text in file.read_row_group(group)["text"].to_pylist()]


def test_nanochat_uses_the_last_shard_for_validation(datasets, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_files, "FILE_CHARACTERS", 3_000)
    folder = export_for(datasets / "text", "nanochat", tmp_path / "out") / "base_data_climbmix"
    *train, validation = sorted(folder.iterdir())
    assert [path.name for path in (*train, validation)] == [f"shard_{n:05d}.parquet" for n in range(len(train) + 1)]
    assert len(train) > 2
    for split, paths in (("train", train), ("validation", [validation])):
        found = [text for path in paths for rank in range(2) for text in texts_of_rank(path, rank, 2)]
        expected = [row["text"] for row in open_dataset(datasets / "text")[split]]
        assert sorted(found) == sorted(expected)
        assert found != expected  # the export shuffles texts, because nanochat does not
    assert all(texts_of_rank(validation, rank, 2) for rank in range(2))


def test_many_files_contain_the_same_rows_as_one_file(datasets, exported, tmp_path, monkeypatch):
    import datasets as library

    monkeypatch.setattr(trainer_files, "FILE_IDS", 10 * LENGTH)
    monkeypatch.setattr(trainer_files, "ROWS_AT_ONCE", 3)
    out = export_for(datasets / "packed", "trl", tmp_path / "out")
    assert len(list((out / "data").glob("train-*"))) > 2
    many, one = (
        library.load_dataset(str(folder), cache_dir=str(tmp_path / "cache")) for folder in (out, exported / "trl")
    )
    assert {split: rows.to_dict() for split, rows in many.items()} == {
        split: rows.to_dict() for split, rows in one.items()
    }
    assert set(many) == {"train", "validation", "test"}
    rows = open_dataset(datasets / "packed")["train"]
    assert many["train"]["seq_lengths"][:] == [[*map(len, segments(row))] for row in rows]


@pytest.mark.parametrize("name", TRAINERS)
def test_same_dataset_gives_the_same_bytes_from_any_format(exported, source, tokenizer, tmp_path, name):
    kind = DATASET_FOR[TRAINERS[name].input_kind]
    output = {"rows": "documents"} if kind == "text" else {"pad": False}
    sections = {
        "window": SECTIONS[kind].get("window", WindowConfig()),
        "output": OutputConfig(formats="parquet", **output),
    }
    build(Config(sources=[source], out=str(tmp_path / "dataset"), tokenizer=tokenizer, **sections))
    export_for(tmp_path / "dataset", name, tmp_path / name)
    snippet = TRAINERS[name].snippet_name
    assert {**contents(tmp_path / name), snippet: b""} == {**contents(exported / name), snippet: b""}


def test_unpacked_windows_are_rows_of_one_segment(datasets, tmp_path):
    out = export_for(datasets / "whole", "trl", tmp_path / "out")
    table = parquet.read_table(out / "data/validation-00000-of-00001.parquet").to_pydict()
    rows = [row["input_ids"] for row in open_dataset(datasets / "whole")["validation"]]
    assert table == {
        "input_ids": rows,
        "labels": [labels([row]) for row in rows],
        "seq_lengths": [[len(row)] for row in rows],
    }


def test_tokenizer_is_exported_with_its_end_token(exported):
    for name, trainer in TRAINERS.items():
        assert (exported / name / "tokenizer/tokenizer.json").is_file() is trainer.has_tokenizer
    config = json.loads((exported / "megatron/tokenizer/tokenizer_config.json").read_text())
    assert (config["eos_token"], config["pad_token"]) == ("<|endoftext|>", "<|endoftext|>")


REFUSED = {
    "masked": ({}, "trl", "rows are for masked models.* Build the dataset with --preset causal"),
    "template": (
        {"window": WindowConfig(length=LENGTH, pack="best-fit", special_tokens="template")},
        "transformers",
        "--preset causal",
    ),
    "overlap": (
        {"window": WindowConfig(length=LENGTH, overlap=8, pack="none", special_tokens="documents")},
        "axolotl",
        "--preset causal",
    ),
    "noise": (
        {
            "variants": VariantsConfig(rates={"noise": 1}),
            "window": WindowConfig(length=LENGTH, overlap=0, pack="none", special_tokens="documents"),
        },
        "trl",
        "--variants noise",
    ),
    "weights": (
        {
            "sampling": SamplingConfig(weights={"part1*": 3}, weights_only=True),
            "window": WindowConfig(length=LENGTH, pack="none"),
        },
        "nanogpt",
        "Build the dataset without --weights-only",
    ),
    "weights of documents": (
        {
            "sampling": SamplingConfig(weights={"part1*": 3}, weights_only=True),
            "output": OutputConfig(rows="documents"),
        },
        "torchtitan",
        "Build the dataset without --weights-only",
    ),
    "fill in the middle": (
        {"output": OutputConfig(rows="documents"), "fim": FimConfig(rate=1)},
        "nanochat",
        "its own tokenizer, which has no fill-in-the-middle tokens. Build the dataset with --fim 0",
    ),
    "no end": (
        {"window": WindowConfig(length=LENGTH, pack="none", end_token="none")},
        "megatron",
        "the tokenizer has none. Build the dataset with --end-token NAME",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_a_trainer_would_misread_are_refused(source, tokenizer, tmp_path, case):
    sections, trainer, message = REFUSED[case]
    if case == "fill in the middle":
        sections = {"tokenizer": codebert_with(MARKERS, tmp_path / "tokenizer"), **sections}
    elif case not in {"masked", "noise"}:  # these cases need the mask token of CodeBERT, the default tokenizer
        sections = {"tokenizer": tokenizer, **sections}
    build(Config(sources=[source], out=str(tmp_path / "dataset"), **sections))
    with pytest.raises(DatasetError, match=message):
        export_for(tmp_path / "dataset", trainer)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("dataset-")] == []


def test_rows_of_the_wrong_kind_are_refused(datasets, tmp_path, monkeypatch):
    for kind, trainer, message in (
        (
            "packed",
            "nanochat",
            "the trainer reads text, but the rows are ids. Build the dataset with --rows documents.",
        ),
        ("text", "trl", "the trainer reads ids, but the rows are text. Build the dataset without --rows documents."),
        ("packed", "litgpt", "the rows are packed. Build the dataset with --preset causal --pack none."),
    ):
        with pytest.raises(DatasetError, match=message):
            export_for(datasets / kind, trainer, tmp_path / "out")
    monkeypatch.setitem(TRAINERS, "nanogpt", TRAINERS["nanogpt"]._replace(max_vocab_size=500))
    with pytest.raises(DatasetError, match="vocabularies of up to 500 tokens, but the tokenizer has 600"):
        export_for(datasets / "whole", "nanogpt", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_existing_or_unsuitable_output_folder_is_refused(datasets, tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(OutputError, match="already exists"):
        export_for(datasets / "packed", "trl", tmp_path / "mine")
    with pytest.raises(OutputError, match="is inside the dataset folder, which must hold only the dataset"):
        export_for(datasets / "packed", "trl", datasets / "packed/trl")
    with pytest.raises(ConfigError, match="a character that needs quoting in a trainer's configuration"):
        export_for(datasets / "packed", "trl", tmp_path / "my data")
    with pytest.raises(ConfigError, match=r"--for must be one of trl, transformers, .*, got keras"):
        export_for(datasets / "packed", "keras", tmp_path / "out")


def test_failed_export_leaves_no_files(datasets, tmp_path, monkeypatch):
    def die(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer_files, "_write_tables", die)
    with pytest.raises(OutputError, match="No space left on device"):
        export_for(datasets / "packed", "trl", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["train.jsonl", "tokenizer.json"])
def test_damaged_dataset_is_not_exported(datasets, tmp_path, name):
    shutil.copytree(datasets / "packed", tmp_path / "dataset")
    path = tmp_path / "dataset" / name
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(DatasetError, match=f"{name}' is damaged"):
        export_for(tmp_path / "dataset", "trl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["train.jsonl", "tokenizer_config.json"])
def test_named_pipe_instead_of_a_file_does_not_block(datasets, tmp_path, name):
    shutil.copytree(datasets / "packed", tmp_path / "dataset")
    (tmp_path / "dataset" / name).unlink()
    os.mkfifo(tmp_path / "dataset" / name)
    with pytest.raises(DatasetError, match=f"cannot read .*{name}"):
        export_for(tmp_path / "dataset", "trl", tmp_path / "out")


def test_command_prints_the_files_and_the_training_command(datasets, tmp_path, capsys, monkeypatch):
    shutil.copytree(datasets / "whole", tmp_path / "code")
    monkeypatch.chdir(tmp_path)
    assert run(["export", "code", "--for", "megatron"]) == 0
    out = capsys.readouterr().out
    assert (
        "train    torchrun pretrain_gpt.py $(cat code-megatron/args.txt)\npage     docs/trainers/megatron.md\n" in out
    )
    assert "--train-data-path code-megatron/train\n" in (tmp_path / "code-megatron/args.txt").read_text()
    assert run(["export", "code", "--for", "nanogpt", "--out", "data/code", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["files"]) == {"train.bin", "val.bin", "meta.pkl", "config.py"}
    assert (tmp_path / "data/code/config.py").read_text().startswith('dataset = "code"\n')
    assert run(["export", "code", "--for", "trl", "--format", "bin"]) == 2
    assert run(["export", "code", "--format", "bin", "--out", "elsewhere"]) == 2
    assert "Add --for TRAINER" in capsys.readouterr().err


def test_fill_in_the_middle_document_is_one_segment_with_its_end_token(source, tmp_path):
    chosen = codebert_with(MARKERS, tmp_path / "tokenizer", is_causal=True)
    build(Config(sources=[source], out=str(tmp_path / "fim"), tokenizer=chosen, preset="fim", fim=FimConfig(rate=1)))
    (path,) = (export_for(tmp_path / "fim", "trl") / "data").glob("train*.parquet")
    rows = parquet.read_table(path).to_pylist()
    stored = list(open_dataset(tmp_path / "fim")["train"])
    assert [row["input_ids"] for row in rows] == [row["input_ids"] for row in stored]
    for row, stored_row in zip(rows, stored, strict=True):
        assert row["seq_lengths"] == [len(list(segment)) for _, segment in groupby(stored_row["segment_ids"])]
        ends = list(accumulate(row["seq_lengths"]))
        rewritten = [end for end, segment in zip(ends, stored_row["segments"], strict=True) if segment["fim"]]
        assert rewritten
        assert {row["labels"][end - 1] for end in rewritten} == {50_265}, (
            "the end token of a fill-in-the-middle document must have a label"
        )


def test_split_without_rows_is_not_in_the_configuration(source, tokenizer, tmp_path):
    split = SplitConfig(shares="80/20/0")
    build(Config(sources=[source], out=str(tmp_path / "two"), tokenizer=tokenizer, split=split, **SECTIONS["whole"]))
    out = export_for(tmp_path / "two", "megatron")
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == [
        "args.txt",
        "train.bin",
        "train.idx",
        "valid.bin",
        "valid.idx",
    ]
    assert "--test-data-path" not in (out / "args.txt").read_text()
    named = export_for(tmp_path / "two", "axolotl", tmp_path / "test")
    assert (named / "config.yaml").read_text().count(f"path: {named}\n") == 2
    split = SplitConfig(shares="100/0/0")
    build(Config(sources=[source], out=str(tmp_path / "one"), tokenizer=tokenizer, split=split, **SECTIONS["packed"]))
    with pytest.raises(DatasetError, match="--for trl: validation has no rows"):
        export_for(tmp_path / "one", "trl")
