"""Training and scoring treat each window of a packed row as if it were alone in the row."""

import itertools
import json

import msgspec
import pytest

from gristmill import ConfigError, DatasetError, WindowConfig, open_dataset
from gristmill.lab.training.train_config import Budget, TrainConfig
from support.late_imports import Late, late
from support.short_trainings import causal_dataset, losses, metrics_without_times, tiny_llama

torch = Late("torch")
BloomConfig, BloomForCausalLM = late("transformers", "BloomConfig", "BloomForCausalLM")
(Feeds,) = late("gristmill.lab.training.feeds", "Feeds")
ModelRequirements, make_model = late("gristmill.lab.training.models", "ModelRequirements", "make_model")
Objective, score = late("gristmill.lab.training.objectives", "Objective", "score")
(train,) = late("gristmill.lab.training.train", "train")

pytestmark = pytest.mark.usefixtures("short_trainings", "without_curves")
END, SENTINELS = 0, {3, 4, 5}
"""Special ids of the starcoder_like tokenizer."""
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
    """Yield the model `tiny`, which has the shape of GPT-2, and a Llama from a folder."""
    needs = ModelRequirements(64, dataset.tokenizer.definition)
    torch.manual_seed(0)
    yield make_model("tiny", "causal", needs).eval()
    folder = root / f"llama-{dataset.folder.name}"
    yield make_model(str(folder if folder.exists() else tiny_llama(folder, dataset.folder)), "causal", needs).eval()


def segments_of(row):
    """Yield the ids of each segment and, for each id, whether it is a fresh token or the end token of a document."""
    fresh = [False] * len(row["input_ids"])
    for one in row["segments"]:
        end = one["at"] + one["length"]
        fresh[end - one["fresh"] : end] = [True] * one["fresh"]
        if row["input_ids"][end : end + 1] == [END]:
            fresh[end] = True
    for group in range(1, max(row["segment_ids"]) + 1):
        positions = [at for at, segment in enumerate(row["segment_ids"]) if segment == group]
        yield [row["input_ids"][at] for at in positions], [fresh[at] for at in positions]


def nats_alone(model, ids):
    """Return the loss of every token but the first, in nats, if the row contains only these ids."""
    model.eval()
    with torch.no_grad():
        log_probabilities = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1)
    return [-float(log_probabilities[at - 1, ids[at]]) for at in range(1, len(ids))]


def has_several_segments(rows, draws):
    return any(max(rows[draw.row]["segment_ids"]) > 1 for draw in draws)


def test_loss_of_packed_rows_equals_that_of_separate_windows(any_packed, root):
    dataset = open_dataset(any_packed)
    rows = dataset["train"]
    feeds = Feeds(dataset, CAUSAL, is_fixed_width=False)
    assert feeds.num_ids == sum(len(row["input_ids"]) for row in rows)
    loader = feeds.batches(Budget.of(CAUSAL, feeds.num_windows, feeds.num_ids), 0)
    packed_batch = next(number for number in range(50) if has_several_segments(rows, loader.batches.batch(number)))
    drawn = [rows[draw.row] for draw in loader.batches.batch(packed_batch)]
    batch = list(itertools.islice(loader, packed_batch + 1))[-1]
    for model in models_for(dataset, root):
        alone = [nat for row in drawn for ids, _ in segments_of(row) for nat in nats_alone(model, ids)]
        with torch.no_grad():
            packed = float(Objective(model, is_causal=True)(**batch))
        assert packed == pytest.approx(sum(alone) / len(alone), rel=1e-5)


@pytest.mark.parametrize("is_fixed_width", [False, True])
def test_each_token_of_a_packed_row_is_scored_once_as_in_a_separate_window(any_packed, root, is_fixed_width):
    dataset = open_dataset(any_packed)
    feeds = Feeds(dataset, CAUSAL, is_fixed_width=is_fixed_width)
    for model in models_for(dataset, root):
        batches = feeds.held_out("validation")
        found = score(Objective(model, is_causal=True), batches, torch.device("cpu"), feeds.bytes_by_id)
        scored = []
        for number, row in enumerate(dataset["validation"]):
            expected = [
                (nat, ids[at])
                for ids, fresh in segments_of(row)
                for at, nat in enumerate(nats_alone(model, ids), 1)
                if fresh[at]
            ]
            assert found.nats[number] == pytest.approx(sum(nat for nat, _ in expected), rel=1e-4, abs=1e-4)
            assert found.num_tokens[number] == len(expected)
            scored += [token for _, token in expected]
        assert found.num_bytes.sum() == sum(len(dataset.tokenizer.decode([token])) for token in scored if token)


def test_packed_rows_are_scored_like_windows_of_single_files(root, packed):
    """The same tokens are predicted from packed and from separate windows."""
    alone = open_dataset(causal_dataset(root, WindowConfig(length=64, pack="none", overlap=0)))
    dataset = open_dataset(packed)
    (model, _) = models_for(dataset, root)
    found = []
    for one in (dataset, alone):
        feeds = Feeds(one, CAUSAL, is_fixed_width=False)
        found.append(
            score(Objective(model, is_causal=True), feeds.held_out("test"), torch.device("cpu"), feeds.bytes_by_id)
        )
    assert found[0].num_tokens.sum() == found[1].num_tokens.sum() > 0
    assert found[0].bits_per_byte == pytest.approx(found[1].bits_per_byte, rel=1e-6)
    facts = dataset.manifest.splits["test"]
    assert found[0].num_tokens.sum() == facts.tokens - dataset.manifest.packing["test"].segments + facts.files


@pytest.mark.parametrize("pack", ["none", "best-fit"])
def test_all_tokens_of_fill_in_the_middle_are_predicted(root, pack):
    """Sentinels and the end token are predicted too, because a model must predict where the middle ends."""
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
                predicted = labels[one["at"] : one["at"] + one["length"]]
                ids = row["input_ids"][one["at"] : one["at"] + one["length"]]
                assert predicted[1:] == ids[1:]
                assert SENTINELS - {ids[0]} <= {*predicted}
                end = one["at"] + one["length"]
                assert END in labels[end - 1 : end + 1]
    assert num_rewritten


def test_training_on_packed_rows_can_be_resumed(packed, tmp_path):
    config = TrainConfig(tokens=30_000, batch_size=8, accumulate=2, eval_every=8, save_every=8)
    logged = []
    result = train(packed, tmp_path / "uninterrupted", config, log=logged.append)
    assert result.objective == "causal"
    assert " rows, " in logged[0]
    assert " steps of 2 batches of 8 rows" in logged[0]
    assert result.last.loss < losses(tmp_path / "uninterrupted")[0] - 0.5

    def crash(line):
        if line.split()[1:2] == ["16"]:
            raise RuntimeError("power failure")

    with pytest.raises(RuntimeError, match="power"):
        train(packed, tmp_path / "stopped", config, log=crash)
    train(packed, tmp_path / "stopped", config, resume=True)
    assert metrics_without_times(tmp_path / "stopped") == metrics_without_times(tmp_path / "uninterrupted")


def test_packed_rows_require_a_causal_model_that_separates_files(packed, root, tmp_path):
    with pytest.raises(ConfigError, match=r"was built with --pack: .* requires --objective causal\."):
        train(packed, tmp_path / "run", TrainConfig(objective="mlm"))
    folder = tmp_path / "bloom"
    BloomForCausalLM(BloomConfig(vocab_size=500, hidden_size=32, n_layer=2, n_head=2)).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((root / "tokenizer" / name).read_bytes())
    with pytest.raises(ConfigError, match="does not separate the files of a packed row: it ignores position_ids"):
        train(packed, tmp_path / "run", TrainConfig(model=str(folder)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [{"fresh": 99}, {"at": -1}, {"length": "x"}])
def test_invalid_segments_are_rejected(packed, tmp_path, change):
    rows = [json.loads(line) for line in (packed / "validation.jsonl").read_text().splitlines()]
    item = open_dataset(packed).torch("validation")
    rows[0]["segments"][0].update(change)
    with pytest.raises(DatasetError, match="a row is damaged"):
        item._items.make_drawn_item(rows[0], item.order.draws(0, range(1))[0])


def test_budget_uses_the_accumulate_setting():
    config = msgspec.structs.replace(CAUSAL, accumulate=3, epochs=2)
    assert Budget.of(config, 100, 1000).steps == 9
    assert Budget.of(config, 100, 1000).num_windows == 200
