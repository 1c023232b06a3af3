"""Every training window goes to one rank and one worker, and an interrupted loader resumes where it stopped."""

import json
import pickle
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill import (
    Config,
    ConfigError,
    MissingExtraError,
    OutputConfig,
    SamplingConfig,
    TokenizerConfig,
    VariantsConfig,
    build,
    open_dataset,
)
from gristmill.dataset.batches import Draw
from support.late_imports import Late, late
from support.trained_tokenizers import sentence_piece_bpe

torch = Late("torch")
(DataLoader,) = late("torch.utils.data", "DataLoader")
(StateReportingStream,) = late("support.stateful_streams", "StateReportingStream")
(process_rank,) = late("gristmill.dataset.torch_split", "process_rank")

# PyTorch warns if the machine has fewer cores than the test has workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def dataset(built):
    return open_dataset(built[0])


@pytest.fixture(scope="module")
def package(corpus):
    return corpus / "json"


@pytest.fixture
def small_blocks(monkeypatch):
    """Use small blocks, so that a split of a few hundred rows has many blocks."""
    monkeypatch.setattr("gristmill.dataset.torch_stream.BLOCK_ROWS", 8)


def built_from(source, out, **sections):
    build(Config(sources=[str(source)], out=str(out), **sections))
    return open_dataset(out)


def rows_of(items):
    return [item["row"] for item in items]


def are_equal_batches(left, right):
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(left, right, strict=True)
    )


def test_item_has_the_ids_of_its_row(dataset):
    windows = dataset.torch("train")
    assert len(windows) == len(dataset["train"])
    for index in (0, 17, -1):
        assert windows[index]["input_ids"].tolist() == dataset["train"][index]["input_ids"]
        assert set(windows[index]) == {"input_ids", "attention_mask"}
        assert windows[index]["attention_mask"].all()
    with pytest.raises(IndexError):
        windows[len(windows)]


def test_drawn_item_includes_epoch_position_and_row(dataset):
    item = dataset.torch("train")[Draw(2, 5, 17)]
    found = {name: item[name] for name in ("epoch", "position", "row", "fresh")}
    assert found == {"epoch": 2, "position": 5, "row": 17, "fresh": dataset["train"][17]["fresh"]}


def test_items_are_padded_to_the_window_length(dataset):
    windows = dataset.torch("test", pad="length", columns=["labels", "path"])
    short = next(index for index, row in enumerate(dataset["test"]) if len(row["input_ids"]) < 512)
    ids, item = dataset["test"][short]["input_ids"], windows[short]
    missing = 512 - len(ids)
    assert item["input_ids"].tolist() == ids + [1] * missing
    assert item["attention_mask"].tolist() == [1] * len(ids) + [0] * missing
    assert item["labels"].tolist() == ids + [-100] * missing
    assert item["path"] == dataset["test"][short]["path"]


def test_stored_padding_is_removed(dataset, corpus, tmp_path):
    padded = built_from(corpus, tmp_path / "padded", output=OutputConfig(pad=True))
    assert len(padded["test"]) == len(dataset["test"])
    for plain, stored in zip(dataset.torch("test"), padded.torch("test"), strict=True):
        assert torch.equal(plain["input_ids"], stored["input_ids"])
    again = padded.torch("test", pad="length")[0]
    assert len(again["input_ids"]) == 512


def test_all_tokens_of_foreign_rows_are_fresh(dataset, tmp_path):
    """The rows have the columns that `gristmill bench --keep` writes."""
    out = tmp_path / "kept"
    out.mkdir()
    manifest = json.loads((dataset.folder / "manifest.json").read_text())
    rows = [{"input_ids": row["input_ids"], "copy": 0} for row in dataset["test"]]
    (out / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (out / "manifest.json").write_text(json.dumps({**manifest, "columns": ["input_ids", "copy"]}))
    item = open_dataset(out).torch("test")[Draw(0, 0, 3)]
    assert item["fresh"] == len(rows[3]["input_ids"]) - 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_resumes_within_an_epoch(dataset, num_workers):
    windows = dataset.torch("validation", seed=4)
    collate = windows.masked_collator()
    complete = list(windows.loader(4, collate))
    loader = windows.loader(4, collate, num_workers=num_workers)
    seen, state = [], None
    for batch in loader:
        seen.append(batch)
        if len(seen) == 3:
            state = json.loads(json.dumps(loader.state_dict()))
    assert are_equal_batches(seen, complete)
    resumed = dataset.torch("validation", seed=4).loader(4, collate, num_workers=num_workers)
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert are_equal_batches(list(resumed), complete[3:])
    assert are_equal_batches(list(resumed), complete)
    resumed.set_epoch(1)
    assert not are_equal_batches(list(resumed), complete)


def test_state_at_the_end_of_an_epoch_has_no_batches_left(dataset):
    windows = dataset.torch("test")
    loader, resumed = (windows.loader(8, windows.causal_collator()) for _ in range(2))
    assert list(loader)
    resumed.load_state_dict(loader.state_dict())
    assert not list(resumed)
    resumed.set_epoch(1)
    assert len(list(resumed)) == len(resumed)


def test_state_after_set_epoch_is_at_the_beginning_of_that_epoch(dataset):
    windows = dataset.torch("validation", seed=4)
    loader = windows.loader(16, rows_of)
    list(loader)
    loader.set_epoch(1)
    state = loader.state_dict()
    again = windows.loader(16, rows_of)
    again.load_state_dict(state)
    assert list(again) == list(loader)
    assert len(list(again)) == len(loader)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("streaming", [False, True])
def test_loading_does_not_use_the_global_random_generator(dataset, num_workers, streaming):
    windows = dataset.torch("test", streaming=streaming)
    before = torch.random.get_rng_state()
    list(windows.loader(8, windows.masked_collator(), num_workers=num_workers))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_batches_across_epochs_are_full(dataset):
    windows = dataset.torch("test", rank=1, world_size=2)
    loader = windows.loader(8, list, across_epochs=True, epochs=None, num_batches=40)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [8] * 40
    assert {item["epoch"] for batch in batches for item in batch} > {0, 1}


def test_rows_are_drawn_by_their_weights(package, tmp_path):
    sampling = SamplingConfig(weights_only=True, weights={"decoder.py": 3})
    weighted = built_from(package, tmp_path / "weighted", sampling=sampling)
    windows = weighted.torch("train")
    weights = [row["weight"] for row in weighted["train"]]
    assert len(set(weights)) > 1
    counts = Counter(row for epoch in range(20) for row in windows.order.rows(epoch).tolist())
    streamed = weighted.torch("train", streaming=True)
    copies = Counter[int]()
    for epoch in range(20):
        streamed.set_epoch(epoch)
        items = list(streamed)
        assert len({item["position"] for item in items}) == len(items)
        copies.update(rows_of(items))
    mean = sum(weights) / len(weights)
    for row, weight in enumerate(weights):
        assert 20 * int(weight / mean) <= counts[row] <= 20 * (int(weight / mean) + 1)
        assert 20 * int(weight) <= copies[row] <= 20 * (int(weight) + 1)


def test_variants_are_left_out_on_request(package, tmp_path):
    variants = VariantsConfig(rates={"noise": 1.0})
    noisy = built_from(package, tmp_path / "noisy", variants=variants)
    plain = [number for number, row in enumerate(noisy["train"]) if not row["variant"]]
    assert 0 < len(plain) < len(noisy["train"])
    windows = noisy.torch("train", without=["noise"], columns=["input_ids", "variant"])
    assert len(windows) == len(plain)
    assert {item["variant"] for item in windows} == {""}
    assert sorted(windows.order.rows(0).tolist()) == plain
    assert sorted(rows_of(noisy.torch("train", without=["noise"], streaming=True))) == plain
    with_labels = noisy.torch("train", columns=["labels"])
    number = next(number for number, row in enumerate(noisy["train"]) if row["variant"])
    assert with_labels[number]["labels"].tolist() == noisy["train"][number]["labels"]
    with pytest.raises(ConfigError, match="noisy"):
        noisy.torch("train", without=["noisy"])


def test_compression_does_not_change_the_windows(dataset, corpus, tmp_path):
    output = OutputConfig(compress="zstd", shard_bytes=9_000_000)
    packed = built_from(corpus, tmp_path / "packed", output=output)
    assert len([name for name in packed.manifest.files if name.startswith("train")]) > 1
    plain, unpacked = dataset.torch("train"), packed.torch("train")
    collate = plain.causal_collator()
    assert are_equal_batches(
        list(plain.loader(16, collate, num_batches=9)), list(unpacked.loader(16, collate, num_batches=9, num_workers=1))
    )
    unpickled = pickle.loads(pickle.dumps(unpacked))
    assert torch.equal(unpickled[5]["input_ids"], plain[5]["input_ids"])
    streams = [one.torch("train", streaming=True) for one in (dataset, packed)]
    assert rows_of(streams[0]) == rows_of(streams[1])


def test_transformers_collator_accepts_the_items(dataset):
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(AutoTokenizer.from_pretrained(dataset.folder), mlm_probability=0.15)
    for pad in ("batch", "length"):
        batch = next(iter(DataLoader(dataset.torch("test", pad=pad), batch_size=4, collate_fn=collate)))
        assert set(batch) == {"input_ids", "attention_mask", "labels"}
    stream = dataset.torch("test", streaming=True, columns=["input_ids"])
    assert set(next(iter(DataLoader(stream, batch_size=4, collate_fn=collate)))) == {
        "input_ids",
        "attention_mask",
        "labels",
    }


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world_size=st.integers(1, 4), epoch=st.integers(0, 2))
def test_ranks_of_a_stream_together_cover_an_epoch(dataset, world_size, epoch):
    found = []
    for rank in range(world_size):
        stream = dataset.torch("validation", streaming=True, rank=rank, world_size=world_size)
        stream.set_epoch(epoch)
        found += rows_of(stream)
    assert sorted(found) == list(range(len(dataset["validation"])))


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_workers_of_a_stream_together_cover_an_epoch(dataset, num_workers):
    stream = dataset.torch("train", streaming=True, rank=1, world_size=2)
    rows = [row for batch in stream.loader(16, rows_of, num_workers=num_workers) for row in batch]
    assert sorted(rows) == sorted(rows_of(stream))
    assert len(set(rows)) == len(rows)


@pytest.mark.usefixtures("small_blocks")
def test_stream_is_shuffled_by_seed_and_epoch(dataset):
    stream = dataset.torch("validation", streaming=True)
    first = rows_of(stream)
    assert rows_of(stream) == first
    stream.set_epoch(1)
    assert rows_of(stream) != first
    assert sorted(rows_of(stream)) == sorted(first) == list(range(len(first)))
    assert rows_of(dataset.torch("validation", streaming=True, seed=1)) != first
    assert rows_of(dataset.torch("validation", streaming=True, shuffle=False)) == list(range(len(first)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("num_delivered", [0, 1, 50])
def test_stream_resumes_within_an_epoch(dataset, num_delivered, monkeypatch):
    monkeypatch.setattr("gristmill.dataset.torch_stream.POOL_BLOCKS", 2)
    complete_stream, stream, resumed = (dataset.torch("validation", streaming=True) for _ in range(3))
    complete_stream.set_epoch(3)
    complete = rows_of(complete_stream)
    stream.set_epoch(3)
    items = iter(stream)
    assert [next(items)["row"] for _ in range(num_delivered)] == complete[:num_delivered]
    resumed.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    resumed.set_epoch(3)
    assert rows_of(resumed) == complete[num_delivered:]
    assert rows_of(resumed) == complete


@pytest.mark.usefixtures("small_blocks")
def test_each_worker_of_a_stream_has_its_own_state(dataset, monkeypatch):
    """The split is so large that each worker reads several pools, each of several blocks."""
    monkeypatch.setattr("gristmill.dataset.torch_stream.POOL_BLOCKS", 3)
    num_rows = len(dataset["validation"])
    assert num_rows > 4 * 2 * 3 * 8
    # Forked workers inherit the patched constants.
    options = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "fork"}
    complete = list(DataLoader(StateReportingStream(dataset.torch("validation", streaming=True)), **options))
    assert sorted(row for _, row, _ in complete) == list(range(num_rows))
    num_delivered = num_rows // 2 + 1
    states = {worker: state for worker, _, state in complete[:num_delivered]}
    assert all(state["pool"] > 0 for state in states.values())
    rest = list(DataLoader(StateReportingStream(dataset.torch("validation", streaming=True), states), **options))
    for worker in range(2):
        later = [row for number, row, _ in complete[num_delivered:] if number == worker]
        assert [row for number, row, _ in rest if number == worker] == later


def test_state_of_another_worker_is_rejected(dataset):
    (*_, (_, _, state)) = DataLoader(
        StateReportingStream(dataset.torch("test", streaming=True)),
        batch_size=None,
        num_workers=2,
        generator=torch.Generator(),
    )
    stream = dataset.torch("test", streaming=True)
    stream.load_state_dict(state)
    with pytest.raises(ConfigError, match="same number of ranks and workers"):
        next(iter(stream))


def test_persistent_workers_see_the_new_epoch(dataset):
    stream = dataset.torch("test", streaming=True)
    loader = stream.loader(8, epochs_of, num_workers=1, persistent_workers=True)
    assert {epoch for batch in loader for epoch in batch} == {0}
    stream.set_epoch(5)
    assert {epoch for batch in loader for epoch in batch} == {5}


def epochs_of(items):
    return [item["epoch"] for item in items]


def test_rank_is_read_from_the_environment(monkeypatch):
    assert process_rank() == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert process_rank() == (2, 4)
    assert process_rank(0, 3) == (0, 3)
    for invalid in ((3, 3), (0, None)):
        with pytest.raises(ConfigError, match="rank"):
            process_rank(*invalid)


def test_rank_of_torch_distributed_takes_precedence(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        assert process_rank() == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_missing_torch_names_the_extra(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[train\]'"):
        dataset.torch("train")


@pytest.mark.parametrize(
    ("options", "message"), [({"columns": ["tokens"]}, "no column 'tokens'"), ({"pad": "max"}, "'batch' or 'length'")]
)
def test_invalid_option_is_rejected(dataset, options, message):
    with pytest.raises(ConfigError, match=message):
        dataset.torch("train", **options)


def test_without_a_padding_token_the_mask_marks_padding(package, tmp_path):
    (tmp_path / "tokenizer.json").write_text(sentence_piece_bpe())
    tokenizer = TokenizerConfig(name=str(tmp_path / "tokenizer.json"))
    unpadded = built_from(package, tmp_path / "out", tokenizer=tokenizer)
    assert unpadded.manifest.tokenizer.pad_id is None
    row = next(number for number, row in enumerate(unpadded["train"]) if len(row["input_ids"]) < 512)
    num_ids = len(unpadded["train"][row]["input_ids"])
    item = unpadded.torch("train", pad="length", columns=["labels"])[row]
    assert item["attention_mask"].sum() == num_ids
    assert item["input_ids"][num_ids:].tolist() == [0] * (512 - num_ids)
    assert item["labels"][num_ids:].tolist() == [-100] * (512 - num_ids)
    windows = unpadded.torch("train")
    assert len(list(windows.loader(8, windows.causal_collator()))) > 1
    with pytest.raises(ConfigError, match="no mask token"):
        windows.masked_collator()


@pytest.mark.parametrize("streaming", [False, True])
def test_empty_split_has_no_batches(tree, tmp_path, streaming):
    one_file = built_from(tree({"a.py": "x = 1\n" * 30}), tmp_path / "out")
    windows = one_file.torch("test", streaming=streaming)
    assert not list(windows.loader(8, windows.causal_collator(), num_workers=1))


def test_two_ranks_see_the_masks_of_one_rank(dataset):
    def masked(batch_size, **options):
        windows = dataset.torch("test", **options)
        return list(windows.loader(batch_size, windows.masked_collator(), across_epochs=True, epochs=2, drop_last=True))

    for complete, first, second in zip(
        masked(8), masked(4, rank=0, world_size=2), masked(4, rank=1, world_size=2), strict=True
    ):
        expected = sorted(labels[labels != -100].tolist() for labels in complete["labels"])
        found = sorted(labels[labels != -100].tolist() for part in (first, second) for labels in part["labels"])
        assert found == expected


def test_fresh_only_gives_every_token_one_label(dataset):
    windows = dataset.torch("test", shuffle=False)
    num_labels = sum(
        int((batch["labels"] != -100).sum()) for batch in windows.loader(16, windows.causal_collator(fresh_only=True))
    )
    assert num_labels == dataset.manifest.splits["test"].tokens
