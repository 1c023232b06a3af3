"""A dataset on which a training takes a fraction of a second, and what a training measured."""

from pathlib import Path
from typing import Any

import msgspec

from gristmill import Config, WindowConfig, build
from gristmill.config.config import TokenizerConfig
from gristmill.lab.training.metrics import read_metrics
from support.made_code import made_module
from support.source_trees import write_tree
from support.tokenizers_made_here import roberta_like

NUM_MODULES = 20


def small_dataset(root: Path, **sections: Any) -> Path:
    """785 windows to train on, 86 in validation, 41 in test; a vocabulary of 500."""
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


def plain(folder: Path) -> list[dict[str, Any]]:
    """What was measured, but for clocks."""
    lines = [msgspec.to_builtins(line) for line in read_metrics(folder)]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def losses(folder: Path, split: str = "validation") -> list[float]:
    return [line.loss for line in read_metrics(folder) if line.split == split]
