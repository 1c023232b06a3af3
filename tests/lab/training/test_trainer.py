"""A step of several accumulated batches equals a step of one large batch. Default recipes depend on objective and model."""

import pytest

from gristmill import ConfigError, WindowConfig
from gristmill.lab.training.train_config import CAUSAL, CAUSAL_PRETRAINED, LORA, MASKED, TrainConfig
from support.late_imports import Late, late
from support.short_trainings import causal_dataset, losses, metrics_without_times, tiny_llama

torch = Late("torch")
(AutoModelForCausalLM,) = late("transformers", "AutoModelForCausalLM")
(learning_rate_for,) = late("gristmill.lab.training.models", "learning_rate_for")
(train,) = late("gristmill.lab.training.train", "train")

pytestmark = pytest.mark.usefixtures("short_trainings", "without_curves")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("causal")


@pytest.fixture(scope="module", params=["none", "best-fit"])
def dataset(request, root):
    """A dataset whose windows differ in length, so that means over batches differ from means over tokens."""
    return causal_dataset(root, WindowConfig(length=64, overlap=0, pack=request.param))


def saved_weights(folder):
    return AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()


def max_difference(one, other):
    """Return the largest difference between the weights of two runs. Adam amplifies rounding errors of tiny gradients."""
    pairs = zip(saved_weights(one).values(), saved_weights(other).values(), strict=True)
    return max(float((first - second).abs().max()) for first, second in pairs)


def test_accumulated_batches_equal_one_large_batch(dataset, root, tmp_path):
    """The last step has fewer windows than the other steps."""
    model = tiny_llama(tmp_path / "llama", root / "tokenizer")
    settings = {"model": str(model), "epochs": 1, "learning_rate": 1e-3, "eval_every": 1000, "early_stop": 0}
    for name, size, accumulate in (("eight", 8, 1), ("four", 4, 2), ("three", 3, 3), ("nine", 9, 1)):
        config = TrainConfig(objective="causal", batch_size=size, accumulate=accumulate, **settings)
        result = train(dataset, tmp_path / name, config)
        assert result.steps == -(-num_train_rows(dataset) // (size * accumulate))
    for one, other in (("eight", "four"), ("nine", "three")):
        assert max_difference(tmp_path / one, tmp_path / other) < 2e-4
        assert losses(tmp_path / one, "train") == pytest.approx(losses(tmp_path / other, "train"), rel=1e-5)
    assert max_difference(tmp_path / "eight", tmp_path / "nine") > 2e-3


def num_train_rows(folder):
    return len((folder / "train.jsonl").read_text().splitlines())


def test_resumed_run_with_accumulation_equals_an_uninterrupted_one(root, tmp_path):
    dataset = causal_dataset(root, WindowConfig(length=64, overlap=0, pack="none"))
    config = TrainConfig(
        objective="causal", epochs=0.5, batch_size=5, accumulate=3, eval_every=9, eval_windows=16, save_every=7
    )
    train(dataset, tmp_path / "uninterrupted", config)

    def crash(line):
        if line.split()[1:2] == ["9"]:
            raise RuntimeError("power failure")

    with pytest.raises(RuntimeError, match="power"):
        train(dataset, tmp_path / "stopped", config, log=crash)
    train(dataset, tmp_path / "stopped", config, resume=True)
    assert metrics_without_times(tmp_path / "stopped") == metrics_without_times(tmp_path / "uninterrupted")
    pairs = zip(*(saved_weights(tmp_path / name).values() for name in ("uninterrupted", "stopped")), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
    with pytest.raises(ConfigError, match="was started with --accumulate 3, but would be resumed with --accumulate 1"):
        train(dataset, tmp_path / "stopped", TrainConfig(objective="causal", epochs=0.5, batch_size=5), resume=True)


def test_default_recipe_depends_on_objective_and_model():
    assert TrainConfig().recipe == TrainConfig(objective="mlm").recipe == MASKED
    assert TrainConfig(objective="causal").recipe == CAUSAL
    assert TrainConfig(objective="causal", model="org/model").recipe == CAUSAL_PRETRAINED
    assert TrainConfig(objective="causal", model="org/model", lora=True).recipe == LORA
    assert TrainConfig(objective="mlm", model="org/model").recipe.epochs == MASKED.epochs
    rates = [
        learning_rate_for(TrainConfig(objective=objective, model=model, lora=lora))
        for objective, model, lora in (
            ("mlm", "small", False),
            ("causal", "base", False),
            ("mlm", "org/model", False),
            ("causal", "org/model", False),
            ("causal", "org/model", True),
        )
    ]
    assert rates == [6e-4, 2e-4, 5e-5, 2e-5, 2e-4]
    assert learning_rate_for(TrainConfig(model="org/model", lora=True, learning_rate=1e-4)) == 1e-4
