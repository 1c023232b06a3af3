"""Packed rows: a model learns from them, and is scored on them, as if each of their windows were alone."""

import itertools
import json

import msgspec
import pytest

from gristmill import ConfigError, DatasetError, WindowConfig, open_dataset
from gristmill.lab.training.train_config import Budget, TrainConfig
from support.late_imports import Late, late
from support.short_trainings import causal_dataset, losses, plain, tiny_llama

torch = Late("torch")
BloomConfig, BloomForCausalLM = late("transformers", "BloomConfig", "BloomForCausalLM")
(Feeds,) = late("gristmill.lab.training.feeds", "Feeds")
Needs, make_model = late("gristmill.lab.training.models", "Needs", "make_model")
Objective, score = late("gristmill.lab.training.objectives", "Objective", "score")
(train,) = late("gristmill.lab.training.train", "train")

pytestmark = pytest.mark.usefixtures("short_trainings", "undrawn")
END, SENTINELS = 0, {3, 4, 5}
"""Ids of starcoder_like."""
CAUSAL = TrainConfig(objective="causal", batch_size=8)
WINDOWS = {
    "best-fit": WindowConfig(length=64, pack="best-fit"),
    "overlap": WindowConfig(length=64, pack="best-fit", overlap=16),
    "template": WindowConfig(length=64, pack="best-fit", overlap=16, special_tokens="template"),
    "repo": WindowConfig(length=64, pack="repo"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("causal")


@pytest.fixture(scope="module")
def packed(root):
    return causal_dataset(root, WINDOWS["best-fit"])


@pytest.fixture(scope="module", params=[*WINDOWS, "fim", "repo-fim"])
def any_packed(request, root):
    if request.param.endswith("fim"):
        return causal_dataset(root, WINDOWS["best-fit" if request.param == "fim" else "repo"], fim=1.0)
    return causal_dataset(root, WINDOWS[request.param])


def models_for(dataset, root):
    """GPT-2's shape, as `tiny` has it, and a Llama from a folder."""
    needs = Needs(64, dataset.tokenizer.definition)
    torch.manual_seed(0)
    yield make_model("tiny", "causal", needs).eval()
    folder = root / f"llama-{dataset.folder.name}"
    yield make_model(str(folder if folder.exists() else tiny_llama(folder, dataset.folder)), "causal", needs).eval()


def groups_of(row):
    """The ids of each segment of a row, and which of them are fresh tokens of a file or end a document."""
    fresh = [False] * len(row["input_ids"])
    for one in row["segments"]:
        end = one["at"] + one["length"]
        fresh[end - one["fresh"] : end] = [True] * one["fresh"]
        if row["input_ids"][end : end + 1] == [END]:
            fresh[end] = True
    for group in range(1, max(row["segment_ids"]) + 1):
        places = [at for at, of in enumerate(row["segment_ids"]) if of == group]
        yield [row["input_ids"][at] for at in places], [fresh[at] for at in places]


def nats_alone(model, ids):
    """Of every token but the first, by the plain model."""
    model.eval()
    with torch.no_grad():
        words = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1)
    return [-float(words[at - 1, ids[at]]) for at in range(1, len(ids))]


def shows_several(rows, draws):
    return any(max(rows[draw.row]["segment_ids"]) > 1 for draw in draws)


def test_the_loss_of_packed_rows_is_that_of_their_windows_alone(any_packed, root):
    dataset = open_dataset(any_packed)
    rows = dataset["train"]
    feeds = Feeds(dataset, CAUSAL, is_fixed_width=False)
    assert feeds.num_ids == sum(len(row["input_ids"]) for row in rows)
    loader = feeds.batches(Budget.of(CAUSAL, feeds.num_windows, feeds.num_ids), 0)
    several = next(number for number in range(50) if shows_several(rows, loader.batches.batch(number)))
    shown = [rows[draw.row] for draw in loader.batches.batch(several)]
    batch = list(itertools.islice(loader, several + 1))[-1]
    for model in models_for(dataset, root):
        alone = [nat for row in shown for ids, _ in groups_of(row) for nat in nats_alone(model, ids)]
        with torch.no_grad():
            together = float(Objective(model, is_causal=True)(**batch))
        assert together == pytest.approx(sum(alone) / len(alone), rel=1e-5)


@pytest.mark.parametrize("is_fixed_width", [False, True])
def test_each_token_of_a_packed_file_is_scored_once_as_if_alone(any_packed, root, is_fixed_width):
    dataset = open_dataset(any_packed)
    feeds = Feeds(dataset, CAUSAL, is_fixed_width=is_fixed_width)
    for model in models_for(dataset, root):
        batches = feeds.held_out("validation")
        found = score(Objective(model, is_causal=True), batches, torch.device("cpu"), feeds.bytes_by_id)
        told = []
        for number, row in enumerate(dataset["validation"]):
            one = [
                (nat, ids[at])
                for ids, fresh in groups_of(row)
                for at, nat in enumerate(nats_alone(model, ids), 1)
                if fresh[at]
            ]
            assert found.nats[number] == pytest.approx(sum(nat for nat, _ in one), rel=1e-4, abs=1e-4)
            assert found.tokens[number] == len(one)
            told += [token for _, token in one]
        assert found.bytes.sum() == sum(len(dataset.tokenizer.decode([token])) for token in told if token)


def test_packed_files_are_scored_like_windows_of_one_file_each(root, packed):
    """Whatever the rows, the same tokens are told; only of what comes first in a window does a model know less."""
    alone = open_dataset(causal_dataset(root, WindowConfig(length=64, pack="none", overlap=0)))
    dataset = open_dataset(packed)
    (model, _) = models_for(dataset, root)
    found = []
    for one in (dataset, alone):
        feeds = Feeds(one, CAUSAL, is_fixed_width=False)
        found.append(
            score(Objective(model, is_causal=True), feeds.held_out("test"), torch.device("cpu"), feeds.bytes_by_id)
        )
    assert found[0].tokens.sum() == found[1].tokens.sum() > 0
    assert found[0].bits_per_byte == pytest.approx(found[1].bits_per_byte, rel=1e-6)
    facts = dataset.manifest.splits["test"]
    assert found[0].tokens.sum() == facts.tokens - dataset.manifest.packing["test"].segments + facts.files


@pytest.mark.parametrize("pack", ["none", "best-fit"])
def test_all_of_a_fill_in_the_middle_is_learnt(root, pack):
    """Sentinels and the end token too: a model has to say where the middle ends."""
    dataset = open_dataset(causal_dataset(root, WindowConfig(length=64, pack=pack, overlap=0), fim=1.0))
    collate = dataset.torch("train").causal_collator()
    windows = dataset.torch("train", shuffle=False)
    num_rewritten = 0
    for draw in windows.order.draws(0, range(len(windows))):
        row, batch = dataset["train"][draw.row], collate([windows[draw]])
        labels = batch["labels"][0].tolist()
        for one in row.get("segments", [{**row, "at": 0, "length": len(row["input_ids"])}]):
            if one["fim"]:
                num_rewritten += 1
                told = labels[one["at"] : one["at"] + one["length"]]
                ids = row["input_ids"][one["at"] : one["at"] + one["length"]]
                assert told[1:] == ids[1:]
                assert SENTINELS - {ids[0]} <= {*told}
                end = one["at"] + one["length"]
                assert END in labels[end - 1 : end + 1]
    assert num_rewritten


def test_a_training_on_packed_rows_learns_and_goes_on(packed, tmp_path):
    config = TrainConfig(tokens=30_000, batch_size=8, accumulate=2, eval_every=8, save_every=8)
    told = []
    result = train(packed, tmp_path / "whole", config, tell=told.append)
    assert result.objective == "causal"
    assert " rows, " in told[0]
    assert " steps of 8 x 2" in told[0]
    assert result.last.loss < losses(tmp_path / "whole")[0] - 0.5

    def crash(line):
        if line.split()[1:2] == ["16"]:
            raise RuntimeError("the power is out")

    with pytest.raises(RuntimeError, match="power"):
        train(packed, tmp_path / "stopped", config, tell=crash)
    train(packed, tmp_path / "stopped", config, resume=True)
    assert plain(tmp_path / "stopped") == plain(tmp_path / "whole")


def test_packed_rows_are_for_causal_models_that_keep_files_apart(packed, root, tmp_path):
    with pytest.raises(ConfigError, match=r"was built with --pack: .* are for --objective causal\."):
        train(packed, tmp_path / "run", TrainConfig(objective="mlm"))
    folder = tmp_path / "bloom"
    BloomForCausalLM(BloomConfig(vocab_size=500, hidden_size=32, n_layer=2, n_head=2)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((root / "tokenizer" / name).read_bytes())
    with pytest.raises(ConfigError, match="does not keep the files of a packed row apart: it ignores position_ids"):
        train(packed, tmp_path / "run", TrainConfig(model=str(folder)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [{"fresh": 99}, {"at": -1}, {"length": "x"}])
def test_segments_that_cannot_be_are_refused(packed, tmp_path, change):
    rows = [json.loads(line) for line in (packed / "validation.jsonl").read_text().splitlines()]
    item = open_dataset(packed).torch("validation")
    rows[0]["segments"][0].update(change)
    with pytest.raises(DatasetError, match="a row is damaged"):
        item._items.drawn(rows[0], item.order.draws(0, range(1))[0])


def test_settings_of_a_step_reach_the_budget():
    config = msgspec.structs.replace(CAUSAL, accumulate=3, epochs=2)
    assert Budget.of(config, 100, 1000).steps == 9
    assert Budget.of(config, 100, 1000).num_windows == 200
