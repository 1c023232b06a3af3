"""LoRA adapters and pretrained models from folders: training, saving, resuming and errors."""

import json
import shutil

import pytest

from gristmill import ConfigError, InputError, MissingExtraError, WindowConfig, open_dataset
from gristmill.lab.training.train_config import TrainConfig
from support.builds import called, refusal
from support.late_imports import Late, late
from support.short_trainings import causal_dataset, losses, metrics_without_times, tiny_llama

torch = Late("torch")
AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel = late(
    "transformers", "AutoModelForCausalLM", "AutoTokenizer", "GPT2Config", "GPT2LMHeadModel"
)
PeftModel, LoraConfig = late("peft", "PeftModel", "LoraConfig")
(Feeds,) = late("gristmill.lab.training.feeds", "Feeds")
Objective, score = late("gristmill.lab.training.objectives", "Objective", "score")
(train,) = late("gristmill.lab.training.train", "train")

pytestmark = pytest.mark.usefixtures("short_trainings", "without_curves")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("causal")


@pytest.fixture(scope="module")
def packed(root):
    return causal_dataset(root, WindowConfig(length=64, pack="best-fit"))


@pytest.fixture(scope="module")
def llama(root, packed):
    return tiny_llama(root / "llama", root / "tokenizer")


def lora(model, **settings):
    settings = {"tokens": 8_000, "batch_size": 8, "eval_every": 4, "learning_rate": 1e-2, **settings}
    return TrainConfig(model=str(model), lora=True, **settings)


@pytest.fixture(scope="module")
def adapted(packed, llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapted") / "run"
    logged = []
    train(packed, folder, lora(llama, lora_rank=4, lora_dropout=0.1, save_every=3), log=logged.append)
    return folder, logged


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # from peft
def test_trained_adapter_is_loaded_by_peft(packed, llama, adapted):
    folder, logged = adapted
    found = losses(folder)
    assert min(found) < found[0] - 0.3
    result = json.loads((folder / "result.json").read_text())
    files = {path.name for path in (folder / "model").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "tokenizer_config.json"} <= files
    assert "model.safetensors" not in files
    settings = json.loads((folder / "model/adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["lora_dropout"]) == (4, 32, 0.1)
    assert settings["base_model_name_or_path"] == str(llama)
    # By default, an adapter changes every linear layer except the output layer.
    projections = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert {name.rpartition(".")[2] for name in settings["target_modules"]} == projections
    assert settings["target_modules"] == sorted(settings["target_modules"])
    base = AutoModelForCausalLM.from_pretrained(llama)
    assert result["parameters"] == base.num_parameters() + result["adapter_parameters"]
    assert (
        f"{base.num_parameters():,} weights, and a LoRA adapter with {result['adapter_parameters']:,} weights, "
        in logged[0]
    )
    before = {name: weights.clone() for name, weights in base.state_dict().items()}
    model = PeftModel.from_pretrained(base, folder / "model").eval()
    feeds = Feeds(open_dataset(packed), TrainConfig(objective="causal"), is_fixed_width=False)
    again = score(Objective(model.get_base_model(), is_causal=True), feeds.held_out("test"), torch.device("cpu"), None)
    assert again.loss == pytest.approx(result["test"]["loss"], rel=1e-5)
    for name, weights in model.unload().state_dict().items():
        assert torch.equal(weights, before[name])
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert tokenizer("def f(): pass")["input_ids"]


def test_resumed_adapter_equals_an_uninterrupted_one(packed, llama, adapted, tmp_path):
    base = shutil.copytree(llama, tmp_path / "llama")
    config = lora(base, lora_rank=4, lora_dropout=0.1, save_every=3)

    def crash(line):
        if line.split()[1:2] == ["8"]:
            raise RuntimeError("power failure")

    with pytest.raises(RuntimeError, match="power"):
        train(packed, tmp_path / "run", config, log=crash)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    train(packed, tmp_path / "run", config, resume=True)
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(adapted[0])
    name = "model/adapter_model.safetensors"
    assert (tmp_path / "run" / name).read_bytes() == (adapted[0] / name).read_bytes()
    tiny_llama(base, llama, rms_norm_eps=1e-5, tie_word_embeddings=False, initializer_range=0.1)
    with pytest.raises(ConfigError, match="have changed since this adapter was trained"):
        train(packed, tmp_path / "other", config, resume=True)


def test_adapter_layers_can_be_named_and_gpt2_is_supported(packed, root, llama, tmp_path):
    train(packed, tmp_path / "two", lora(llama, tokens=1_000, lora_targets="q_proj, v_proj"))
    settings = json.loads((tmp_path / "two/model/adapter_config.json").read_text())
    assert sorted(settings["target_modules"]) == ["q_proj", "v_proj"]
    with pytest.raises(ConfigError, match=r"--lora-targets w_proj does not fit .*llama'"):
        train(packed, tmp_path / "none", lora(llama, lora_targets="w_proj"))
    assert not (tmp_path / "none").exists()
    gpt2 = tmp_path / "gpt2"
    config = GPT2Config(vocab_size=500, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2)
    GPT2LMHeadModel(config).save_pretrained(gpt2)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(root / "tokenizer" / name, gpt2 / name)
    train(packed, tmp_path / "gpt2-run", lora(gpt2))
    assert min(losses(tmp_path / "gpt2-run")) < losses(tmp_path / "gpt2-run")[0] - 0.1


def test_pretrained_weights_are_trained_without_an_adapter(packed, llama, tmp_path):
    config = TrainConfig(model=str(llama), tokens=8_000, batch_size=8, eval_every=4, learning_rate=1e-2)
    result = train(packed, tmp_path / "run", config)
    assert result.adapter_parameters is None
    assert min(losses(tmp_path / "run")) < losses(tmp_path / "run")[0] - 0.3
    assert (tmp_path / "run/model/model.safetensors").exists()


def test_tokenizer_error_names_the_differences(packed, llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "llama")
    definition = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = definition["model"]["vocab"]
    (one, two), spare = sorted(vocabulary, key=vocabulary.get)[300:302], max(vocabulary, key=vocabulary.get)

    def assert_rejected(message, **settings):
        with pytest.raises(ConfigError, match=message):
            train(packed, tmp_path / "run", lora(folder))

    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    assert_rejected(
        r"has a different tokenizer \(500 ids\): 2 tokens with a different id \(.* has id 30\d in the dataset and 30\d in the model"
    )
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    vocabulary["of_the_model"] = vocabulary.pop(spare)
    definition["model"]["merges"] = [pair for pair in definition["model"]["merges"] if "".join(pair) != spare]
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    assert_rejected(
        r"1 token only in the dataset \(.*\); 1 token only in the model \('of_the_model'\)\. Build the dataset with"
    )
    shutil.copyfile(llama / "tokenizer.json", folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<file_sep>"}))
    assert_rejected(r"the dataset's tokenizer ends texts with '<\|endoftext\|>', the model's with '<file_sep>'")
    (folder / "tokenizer.json").unlink()
    assert_rejected("has no tokenizer in its folder")


def test_pickled_weights_are_rejected(packed, llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "llama")
    (folder / "model.safetensors").unlink()
    torch.save(AutoModelForCausalLM.from_pretrained(llama).state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(
        InputError, match=r"its weights are pickled \(pytorch_model\.bin\).*Only safetensors are supported"
    ):
        train(packed, tmp_path / "run", lora(folder))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora": True}, "--lora requires a pretrained model, but 'tiny' starts with random weights"),
        ({"lora_rank": 8}, "--lora-rank requires --lora"),
        ({"lora": True, "model": "m", "lora_rank": 0}, "--lora-rank must be at least 1"),
        ({"lora": True, "model": "m", "lora_alpha": 0}, "--lora-alpha must be at least 1"),
        ({"lora": True, "model": "m", "lora_dropout": 1.0}, "--lora-dropout must be from 0 to 0.9"),
        ({"lora": True, "model": "m", "lora_targets": "q_proj,,"}, "--lora-targets must be all-linear or a comma"),
        ({"accumulate": 0}, "--accumulate must be at least 1"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)


def test_missing_peft_is_reported_with_the_install_command(packed, llama, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.core.extras.find_spec", lambda name: None if name == "peft" else object())
    done = called("train", packed, "--out", tmp_path / "run", "--model", llama, "--lora")
    assert refusal(done) == (MissingExtraError.exit_code, "--lora needs peft: pip install 'gristmill[lora]'.")


def test_lora_options_are_recorded_in_the_settings(packed, llama, tmp_path):
    words = ["--lora", "--lora-rank", "2", "--lora-alpha", "3", "--lora-dropout", "0.25", "--lora-targets", "q_proj"]
    budget = ["--tokens", "1e3", "--batch-size", "2", "--accumulate", "2", "--quiet"]
    done = called("train", packed, "--out", tmp_path / "run", "--model", llama, *words, *budget)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads((tmp_path / "run/run.json").read_text())
    assert (
        found["settings"]
        | {
            "lora": True,
            "lora_rank": 2,
            "lora_alpha": 3,
            "lora_dropout": 0.25,
            "lora_targets": "q_proj",
            "accumulate": 2,
        }
        == found["settings"]
    )
    assert found["versions"]["peft"]
