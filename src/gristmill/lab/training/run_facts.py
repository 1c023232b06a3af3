"""What a training is, in words and for run.json."""

import hashlib
from importlib.metadata import version

import msgspec
import torch
from transformers import PreTrainedModel

from gristmill.core.manifest import require_windows
from gristmill.core.names import counted, path_text, printable
from gristmill.core.version import __version__
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.frame import Frame
from gristmill.lab.training.budget import Budget
from gristmill.lab.training.metrics import LEAST_GAIN
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.training.train_config import TrainConfig
from gristmill.lab.training.train_result import device_text
from gristmill.tokenizers.control_tokens import MASK_NAMES

PACKAGES = ("torch", "transformers", "accelerate", "numpy")


def with_objective(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """What nobody named: mlm where the tokenizer can mask."""
    require_windows(dataset.record, dataset.folder, "gristmill train")
    if config.objective is not None:
        return config
    can_mask = dataset.tokenizer.definition.named_id("mask_token", MASK_NAMES) is not None
    return msgspec.structs.replace(config, objective="mlm" if can_mask else "causal")


def facts_of(dataset: Dataset, config: TrainConfig, device: torch.device, command: str) -> RunFacts:
    return RunFacts(
        gristmill=__version__,
        dataset=path_text(str(dataset.folder)),
        dataset_sha256=digest_of(dataset),
        settings=msgspec.to_builtins(config),
        versions={name: version(name) for name in PACKAGES},
        device=device_text(device),
        command=path_text(command),
    )


def changed_versions(place: RunFolder, facts: RunFacts) -> list[str]:
    """Under other versions the curve may be another, from here on."""
    earlier = place.facts().versions
    return [
        f"note: begun with {name} {earlier.get(name)}, going on with {now}: the curve may differ from here on"
        for name, now in facts.versions.items()
        if earlier.get(name) != now
    ]


def digest_of(dataset: Dataset) -> str:
    """Digest all that a training reads: the tokenizer, how a window lies, and every row in its order.

    Rows are digested as JSON lines, which are the same in every format. The manifest's content_sha256 leaves out
    weights, labels, variants and which tokens are fresh.
    """
    tokenizer = dataset.record.tokenizer
    frame = [*Frame.of(dataset.record), tokenizer.sha256, tokenizer.prefix, tokenizer.suffix]
    digest = hashlib.sha256(msgspec.json.encode(frame))
    for split, rows in dataset.items():
        digest.update(f"\n{split} {len(rows)}\n".encode())
        for line in rows.lines():
            digest.update(line)
    return digest.hexdigest()


def shown_facts(
    dataset: Dataset, config: TrainConfig, budget: Budget, model: PreTrainedModel, device: torch.device
) -> list[tuple[str, str]]:
    windows, ids = budget.windows_per_epoch, budget.ids_per_epoch
    words = "masked tokens" if config.objective == "mlm" else "the next token"
    tokens, epochs = round(budget.epochs * ids), counted(f"{budget.epochs:.4g}", "epoch")
    return [
        ("dataset", f"{printable(str(dataset.folder))}: {counted(windows, 'window')}, {counted(ids, 'id')} an epoch"),
        ("model", f"{printable(config.model)}, {model.num_parameters():,} weights, learns to predict {words}"),
        ("budget", f"{counted(tokens, 'token')}: {epochs}, {counted(budget.steps, 'step')} of {config.batch_size}"),
        ("stop", _stop_text(budget)),
        ("seed", str(config.seed)),
        ("device", device_text(device)),
    ]


def _stop_text(budget: Budget) -> str:
    if budget.patience is None:
        return "at the end of the budget"
    return (
        f"once {counted(budget.patience, 'evaluation')} in a row lower the loss on validation by less than "
        f"{LEAST_GAIN:.1%} in all, or at the end of the budget"
    )
