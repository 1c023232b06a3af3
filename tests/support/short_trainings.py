"""Datasets and a model for training runs that take a fraction of a second, and the metrics of a run."""

import shutil
from pathlib import Path
from typing import Any

import msgspec

from gristmill import Config, FimConfig, WindowConfig, build
from gristmill.config.config import TokenizerConfig
from gristmill.lab.training.metrics import read_metrics
from support.made_code import made_module
from support.source_trees import write_tree
from support.trained_tokenizers import roberta_like, starcoder_like

NUM_MODULES = 20
NUM_REPOS = 5


def small_dataset(root: Path, **sections: Any) -> Path:
    """Build a dataset with 785 windows in train, 86 in validation and 41 in test. The vocabulary has 500 tokens."""
    (root / "tokenizer.json").write_text(roberta_like())
    folders = ("http", "json")
    modules = {
        f"{folders[number % 2]}/m{number}.py": made_module(f"m{number}.py", 900) for number in range(NUM_MODULES)
    }
    config = Config(
        sources=[str(write_tree(root / "code", modules))],
        out=str(root / "dataset"),
        tokenizer=TokenizerConfig(name=str(root / "tokenizer.json")),
        window=WindowConfig(length=48, overlap=16),
        **sections,
    )
    build(config)
    return root / "dataset"


def causal_dataset(root: Path, window: WindowConfig, *, fim: float = 0.0) -> Path:
    """Build a dataset for a causal model, with a vocabulary of 500 tokens, from files shorter and longer than a window.

    If `window.special_tokens` is "template", the tokenizer is that of a masked model.
    """
    is_masked = window.special_tokens == "template"
    tokenizer = root / ("masked-tokenizer" if is_masked else "tokenizer")
    if not tokenizer.exists():
        for repo in range(NUM_REPOS):
            names = [f"m{repo}{number}.py" for number in range(40 // NUM_REPOS)]
            modules = {name: made_module(name, 30 + 90 * (number % 8)) for number, name in enumerate(names)}
            write_tree(root / f"repo{repo}", modules)
        definition = roberta_like() if is_masked else starcoder_like()
        write_tree(tokenizer, {"tokenizer.json": definition, "tokenizer_config.json": "{}"})
    config = Config(
        sources=[str(root / f"repo{number}") for number in range(NUM_REPOS)],
        out=str(root / f"{window.pack}-{window.overlap or 0}-{window.special_tokens}-{fim}"),
        tokenizer=TokenizerConfig(name=str(tokenizer)),
        window=window,
        fim=FimConfig(rate=fim),
    )
    build(config)
    return Path(config.out)


def tiny_llama(folder: Path, tokenizer: Path, **settings: Any) -> Path:
    """Save a tiny Llama model without dropout in `folder`, with the tokenizer from the folder `tokenizer`.

    The random weights are large, so that an adapter can change the predictions of the model.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    settings = {**sizes, "initializer_range": 0.2, **settings}
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=500, max_position_embeddings=64, **settings)
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    return folder


def metrics_without_times(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without the fields that contain times."""
    lines = [msgspec.to_builtins(line) for line in read_metrics(folder)]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def losses(folder: Path, split: str = "validation") -> list[float]:
    return [line.loss for line in read_metrics(folder) if line.split == split]
