"""Windows reach a training: each once, to one rank and worker, and again from where it stopped."""

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
(place_of,) = late("gristmill.dataset.torch_split", "place_of")

# Workers are tested on any machine, also on one with fewer cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def dataset(built):
    return open_dataset(built[0])


@pytest.fixture(scope="module")
def package(corpus):
    return corpus / "json"


@pytest.fixture
def small_blocks(monkeypatch):
    """A split of some hundred rows has as many blocks as one of thousands."""
    monkeypatch.setattr("gristmill.dataset.torch_stream.BLOCK_ROWS", 8)


def built_from(source, out, **sections):
    build(Config(sources=[str(source)], out=str(out), **sections))
    return open_dataset(out)


def rows_of(items):
    return [item["row"] for item in items]


def same(left, right):
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(left, right, strict=True)
    )


def test_an_item_has_the_ids_of_its_row(dataset):
    windows = dataset.torch("train")
    assert len(windows) == len(dataset["train"])
    for index in (0, 17, -1):
        assert windows[index]["input_ids"].tolist() == dataset["train"][index]["input_ids"]
        assert set(windows[index]) == {"input_ids", "attention_mask"}
        assert windows[index]["attention_mask"].all()
    with pytest.raises(IndexError):
        windows[len(windows)]


def test_a_drawn_item_says_which_it_is(dataset):
    item = dataset.torch("train")[Draw(2, 5, 17)]
    found = {name: item[name] for name in ("epoch", "position", "row", "fresh")}
    assert found == {"epoch": 2, "position": 5, "row": 17, "fresh": dataset["train"][17]["fresh"]}


def test_padding_to_the_window(dataset):
    windows = dataset.torch("test", pad="length", columns=["labels", "path"])
    short = next(index for index, row in enumerate(dataset["test"]) if len(row["input_ids"]) < 512)
    ids, item = dataset["test"][short]["input_ids"], windows[short]
    missing = 512 - len(ids)
    assert item["input_ids"].tolist() == ids + [1] * missing
    assert item["attention_mask"].tolist() == [1] * len(ids) + [0] * missing
    assert item["labels"].tolist() == ids + [-100] * missing
    assert item["path"] == dataset["test"][short]["path"]


def test_stored_padding_is_taken_off(dataset, corpus, tmp_path):
    padded = built_from(corpus, tmp_path / "padded", output=OutputConfig(pad=True))
    assert len(padded["test"]) == len(dataset["test"])
    for plain, stored in zip(dataset.torch("test"), padded.torch("test"), strict=True):
        assert torch.equal(plain["input_ids"], stored["input_ids"])
    again = padded.torch("test", pad="length")[0]
    assert len(again["input_ids"]) == 512


def test_rows_of_other_makers_have_no_fresh_tokens_to_tell(dataset, tmp_path):
    """As `gristmill bench --keep` leaves them."""
    out = tmp_path / "kept"
    out.mkdir()
    manifest = json.loads((dataset.folder / "manifest.json").read_text())
    rows = [{"input_ids": row["input_ids"], "copy": 0} for row in dataset["test"]]
    (out / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (out / "manifest.json").write_text(json.dumps({**manifest, "columns": ["input_ids", "copy"]}))
    item = open_dataset(out).torch("test")[Draw(0, 0, 3)]
    assert item["fresh"] == len(rows[3]["input_ids"]) - 2


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_resumes_in_the_middle_of_an_epoch(dataset, num_workers):
    windows = dataset.torch("validation", seed=4)
    collate = windows.masked_collator()
    whole = list(windows.loader(4, collate))
    loader = windows.loader(4, collate, num_workers=num_workers)
    seen, state = [], None
    for batch in loader:
        seen.append(batch)
        if len(seen) == 3:
            state = json.loads(json.dumps(loader.state_dict()))
    assert same(seen, whole)
    resumed = dataset.torch("validation", seed=4).loader(4, collate, num_workers=num_workers)
    resumed.load_state_dict(state)
    resumed.set_epoch(0)
    assert same(list(resumed), whole[3:])
    assert same(list(resumed), whole)
    resumed.set_epoch(1)
    assert not same(list(resumed), whole)


def test_a_state_at_the_end_of_an_epoch_has_nothing_left(dataset):
    windows = dataset.torch("test")
    loader, resumed = (windows.loader(8, windows.causal_collator()) for _ in range(2))
    assert list(loader)
    resumed.load_state_dict(loader.state_dict())
    assert not list(resumed)
    resumed.set_epoch(1)
    assert len(list(resumed)) == len(resumed)


def test_a_state_between_two_epochs_is_at_the_beginning_of_the_second(dataset):
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
def test_loading_takes_nothing_from_the_global_generator(dataset, num_workers, streaming):
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


def test_ids_weigh_as_much_as_their_rows_say(package, tmp_path):
    sampling = SamplingConfig(weights_only=True, weights={"decoder.py": 3})
    weighted = built_from(package, tmp_path / "weighted", sampling=sampling)
    windows = weighted.torch("train")
    weights = [row["weight"] for row in weighted["train"]]
    assert len(set(weights)) > 1
    shown = Counter(row for epoch in range(20) for row in windows.order.rows(epoch).tolist())
    streamed = weighted.torch("train", streaming=True)
    copies = Counter[int]()
    for epoch in range(20):
        streamed.set_epoch(epoch)
        items = list(streamed)
        assert len({item["position"] for item in items}) == len(items)
        copies.update(rows_of(items))
    mean = sum(weights) / len(weights)
    for row, weight in enumerate(weights):
        assert 20 * int(weight / mean) <= shown[row] <= 20 * (int(weight / mean) + 1)
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


def test_compressed_windows_are_the_same(dataset, corpus, tmp_path):
    output = OutputConfig(compress="zstd", shard_bytes=9_000_000)
    packed = built_from(corpus, tmp_path / "packed", output=output)
    assert len([name for name in packed.manifest.files if name.startswith("train")]) > 1
    plain, unpacked = dataset.torch("train"), packed.torch("train")
    collate = plain.causal_collator()
    assert same(
        list(plain.loader(16, collate, num_batches=9)), list(unpacked.loader(16, collate, num_batches=9, num_workers=1))
    )
    travelled = pickle.loads(pickle.dumps(unpacked))
    assert torch.equal(travelled[5]["input_ids"], plain[5]["input_ids"])
    streams = [one.torch("train", streaming=True) for one in (dataset, packed)]
    assert rows_of(streams[0]) == rows_of(streams[1])


def test_the_collator_of_transformers_takes_the_items(dataset):
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
def test_ranks_of_a_stream_share_out_an_epoch(dataset, world_size, epoch):
    found = []
    for rank in range(world_size):
        stream = dataset.torch("validation", streaming=True, rank=rank, world_size=world_size)
        stream.set_epoch(epoch)
        found += rows_of(stream)
    assert sorted(found) == list(range(len(dataset["validation"])))


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_workers_of_a_stream_share_out_an_epoch(dataset, num_workers):
    stream = dataset.torch("train", streaming=True, rank=1, world_size=2)
    rows = [row for batch in stream.loader(16, rows_of, num_workers=num_workers) for row in batch]
    assert sorted(rows) == sorted(rows_of(stream))
    assert len(set(rows)) == len(rows)


@pytest.mark.usefixtures("small_blocks")
def test_a_stream_is_shuffled_by_seed_and_epoch(dataset):
    stream = dataset.torch("validation", streaming=True)
    first = rows_of(stream)
    assert rows_of(stream) == first
    stream.set_epoch(1)
    assert rows_of(stream) != first
    assert sorted(rows_of(stream)) == sorted(first) == list(range(len(first)))
    assert rows_of(dataset.torch("validation", streaming=True, seed=1)) != first
    assert rows_of(dataset.torch("validation", streaming=True, shuffle=False)) == list(range(len(first)))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("num_shown", [0, 1, 50])
def test_a_stream_resumes_in_the_middle_of_an_epoch(dataset, num_shown, monkeypatch):
    monkeypatch.setattr("gristmill.dataset.torch_stream.POOL_BLOCKS", 2)
    whole_stream, stream, resumed = (dataset.torch("validation", streaming=True) for _ in range(3))
    whole_stream.set_epoch(3)
    whole = rows_of(whole_stream)
    stream.set_epoch(3)
    shown = iter(stream)
    assert [next(shown)["row"] for _ in range(num_shown)] == whole[:num_shown]
    resumed.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    resumed.set_epoch(3)
    assert rows_of(resumed) == whole[num_shown:]
    assert rows_of(resumed) == whole


@pytest.mark.usefixtures("small_blocks")
def test_each_worker_of_a_stream_has_a_state_of_its_own(dataset, monkeypatch):
    """Each has several pools of several blocks."""
    monkeypatch.setattr("gristmill.dataset.torch_stream.POOL_BLOCKS", 3)
    num_rows = len(dataset["validation"])
    assert num_rows > 4 * 2 * 3 * 8
    options = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "fork"}  # which sees what is patched
    whole = list(DataLoader(StateReportingStream(dataset.torch("validation", streaming=True)), **options))
    assert sorted(row for _, row, _ in whole) == list(range(num_rows))
    num_shown = num_rows // 2 + 1
    states = {worker: state for worker, _, state in whole[:num_shown]}
    assert all(state["pool"] > 0 for state in states.values())
    rest = list(DataLoader(StateReportingStream(dataset.torch("validation", streaming=True), states), **options))
    for worker in range(2):
        later = [row for by, row, _ in whole[num_shown:] if by == worker]
        assert [row for by, row, _ in rest if by == worker] == later


def test_a_state_of_another_worker_is_refused(dataset):
    (*_, (_, _, state)) = DataLoader(
        StateReportingStream(dataset.torch("test", streaming=True)),
        batch_size=None,
        num_workers=2,
        generator=torch.Generator(),
    )
    stream = dataset.torch("test", streaming=True)
    stream.load_state_dict(state)
    with pytest.raises(ConfigError, match="as many ranks and workers"):
        next(iter(stream))


def test_workers_that_live_on_hear_of_the_epoch(dataset):
    stream = dataset.torch("test", streaming=True)
    loader = stream.loader(8, epochs_of, num_workers=1, persistent_workers=True)
    assert {epoch for batch in loader for epoch in batch} == {0}
    stream.set_epoch(5)
    assert {epoch for batch in loader for epoch in batch} == {5}


def epochs_of(items):
    return [item["epoch"] for item in items]


def test_the_rank_is_found_in_the_environment(monkeypatch):
    assert place_of() == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert place_of() == (2, 4)
    assert place_of(0, 3) == (0, 3)
    for wrong in ((3, 3), (0, None)):
        with pytest.raises(ConfigError, match="rank"):
            place_of(*wrong)


def test_the_rank_of_torch_distributed_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        assert place_of() == (0, 1)
    finally:
        torch.distributed.destroy_process_group()


def test_without_torch_the_extra_is_named(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[train\]'"):
        dataset.torch("train")


@pytest.mark.parametrize(
    ("options", "message"), [({"columns": ["tokens"]}, "no column 'tokens'"), ({"pad": "max"}, "'batch' or 'length'")]
)
def test_a_wrong_option_is_refused_in_one_line(dataset, options, message):
    with pytest.raises(ConfigError, match=message):
        dataset.torch("train", **options)


def test_without_a_padding_token_padding_is_told_by_the_mask_alone(package, tmp_path):
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
def test_a_split_without_windows_has_no_batches(tree, tmp_path, streaming):
    one_file = built_from(tree({"a.py": "x = 1\n" * 30}), tmp_path / "out")
    windows = one_file.torch("test", streaming=streaming)
    assert not list(windows.loader(8, windows.causal_collator(), num_workers=1))


def test_two_ranks_see_the_masks_that_one_sees(dataset):
    def masked(batch_size, **place):
        windows = dataset.torch("test", **place)
        return list(windows.loader(batch_size, windows.masked_collator(), across_epochs=True, epochs=2, drop_last=True))

    for whole, first, second in zip(
        masked(8), masked(4, rank=0, world_size=2), masked(4, rank=1, world_size=2), strict=True
    ):
        expected = sorted(labels[labels != -100].tolist() for labels in whole["labels"])
        found = sorted(labels[labels != -100].tolist() for part in (first, second) for labels in part["labels"])
        assert found == expected


def test_every_token_of_a_file_is_asked_for_once(dataset):
    windows = dataset.torch("test", shuffle=False)
    num_asked = sum(
        int((batch["labels"] != -100).sum()) for batch in windows.loader(16, windows.causal_collator(fresh_only=True))
    )
    assert num_asked == dataset.manifest.splits["test"].tokens
