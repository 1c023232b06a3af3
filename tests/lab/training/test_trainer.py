"""A step of several batches is the step of one that holds all their windows."""

import pytest

from gristmill import ConfigError, WindowConfig
from gristmill.lab.training.train_config import CAUSAL, CAUSAL_TRAINED, LORA, MASKED, TrainConfig
from support.late_imports import Late, late
from support.short_trainings import causal_dataset, losses, plain, tiny_llama

torch = Late("torch")
(AutoModelForCausalLM,) = late("transformers", "AutoModelForCausalLM")
(learning_rate_of,) = late("gristmill.lab.training.models", "learning_rate_of")
(train,) = late("gristmill.lab.training.train", "train")

pytestmark = pytest.mark.usefixtures("short_trainings", "undrawn")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("causal")


@pytest.fixture(scope="module", params=["none", "best-fit"])
def dataset(request, root):
    """Windows differ in length, so that means over batches are not means over tokens."""
    return causal_dataset(root, WindowConfig(length=64, overlap=0, pack=request.param))


def kept(folder):
    return AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()


def farthest(one, other):
    """The largest difference of two weights. Adam makes much of the rounding of a gradient that is nearly 0."""
    pairs = zip(kept(one).values(), kept(other).values(), strict=True)
    return max(float((first - second).abs().max()) for first, second in pairs)


def test_four_windows_twice_are_eight(dataset, root, tmp_path):
    """With a last step of fewer windows, and none of a whole batch."""
    model = tiny_llama(tmp_path / "llama", root / "tokenizer")
    settings = {"model": str(model), "epochs": 1, "learning_rate": 1e-3, "eval_every": 1000, "early_stop": 0}
    for name, size, accumulate in (("eight", 8, 1), ("four", 4, 2), ("three", 3, 3), ("nine", 9, 1)):
        config = TrainConfig(objective="causal", batch_size=size, accumulate=accumulate, **settings)
        result = train(dataset, tmp_path / name, config)
        assert result.steps == -(-result_windows(dataset) // (size * accumulate))
    for one, other in (("eight", "four"), ("nine", "three")):
        assert farthest(tmp_path / one, tmp_path / other) < 2e-4
        assert losses(tmp_path / one, "train") == pytest.approx(losses(tmp_path / other, "train"), rel=1e-5)
    assert farthest(tmp_path / "eight", tmp_path / "nine") > 2e-3


def result_windows(folder):
    return len((folder / "train.jsonl").read_text().splitlines())


def test_a_run_with_several_batches_a_step_goes_on_as_if_it_had_not_stopped(root, tmp_path):
    dataset = causal_dataset(root, WindowConfig(length=64, overlap=0, pack="none"))
    config = TrainConfig(
        objective="causal", epochs=0.5, batch_size=5, accumulate=3, eval_every=9, eval_windows=16, save_every=7
    )
    train(dataset, tmp_path / "whole", config)

    def crash(line):
        if line.split()[1:2] == ["9"]:
            raise RuntimeError("the power is out")

    with pytest.raises(RuntimeError, match="power"):
        train(dataset, tmp_path / "stopped", config, tell=crash)
    train(dataset, tmp_path / "stopped", config, resume=True)
    assert plain(tmp_path / "stopped") == plain(tmp_path / "whole")
    pairs = zip(kept(tmp_path / "whole").values(), kept(tmp_path / "stopped").values(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
    with pytest.raises(ConfigError, match="was begun with --accumulate 3, got 1"):
        train(dataset, tmp_path / "stopped", TrainConfig(objective="causal", epochs=0.5, batch_size=5), resume=True)


def test_defaults_go_by_what_is_trained():
    assert TrainConfig().recipe == TrainConfig(objective="mlm").recipe == MASKED
    assert TrainConfig(objective="causal").recipe == CAUSAL
    assert TrainConfig(objective="causal", model="org/model").recipe == CAUSAL_TRAINED
    assert TrainConfig(objective="causal", model="org/model", lora=True).recipe == LORA
    assert TrainConfig(objective="mlm", model="org/model").recipe.epochs == MASKED.epochs
    rates = [
        learning_rate_of(TrainConfig(objective=objective, model=model, lora=lora))
        for objective, model, lora in (
            ("mlm", "small", False),
            ("causal", "base", False),
            ("mlm", "org/model", False),
            ("causal", "org/model", False),
            ("causal", "org/model", True),
        )
    ]
    assert rates == [6e-4, 2e-4, 5e-5, 2e-5, 2e-4]
    assert learning_rate_of(TrainConfig(model="org/model", lora=True, learning_rate=1e-4)) == 1e-4
