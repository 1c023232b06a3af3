"""One-line errors for failures of a training run: no GPU, too little memory or disk space, damaged checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from gristmill.core.errors import ConfigError, DatasetError, GristmillError, OutputError, TrainingError
from gristmill.core.names import counted
from gristmill.lab.training.processes import local_rank
from gristmill.lab.training.train_config import TrainConfig


def choose_device(config: TrainConfig) -> torch.device:
    """Return the configured device. The default is a GPU if available, otherwise the CPU.

    Raises ConfigError if a GPU is configured but missing.
    """
    if config.device == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
        return torch.device("cuda", local_rank())
    if config.device == "cuda":
        reason = "this PyTorch is built without CUDA" if torch.version.cuda is None else "the driver finds no GPU"
        raise ConfigError(f"no GPU found: {reason}. Leave out --device cuda to train on the CPU.")
    return torch.device("cpu")


@contextmanager
def explain_training_errors(config: TrainConfig, folder: Path) -> Iterator[None]:
    """Turn errors about memory, disk, workers and compilation into one-line errors with a remedy."""
    try:
        yield
    except MemoryError:
        raise TrainingError(_out_of_memory("memory", config)) from None
    except OSError as error:
        raise OutputError(
            f"cannot continue in {str(folder)!r}: {error.strerror or error}. Fix the problem, then use --resume to "
            "continue from the last checkpoint."
        ) from None
    except SafetensorError as error:
        raise OutputError(
            f"cannot write into {str(folder)!r}: {error}. Free some space, then use --resume to continue from the last "
            "checkpoint."
        ) from None
    except RuntimeError as error:
        explanation = _explanation(error, config)
        if explanation is None:
            raise
        raise explanation from None


@contextmanager
def explain_checkpoint_errors(checkpoint: str | Path | None) -> Iterator[None]:
    """Raise DatasetError if a part of a checkpoint is damaged or contains more than tensors and plain values."""
    try:
        yield
    except (GristmillError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - reading a damaged file may raise any error
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise DatasetError(
            f"the checkpoint {str(checkpoint)!r} cannot be read: {first}. Delete it, then use --resume to continue "
            "from the previous checkpoint."
        ) from None


def _explanation(error: RuntimeError, config: TrainConfig) -> TrainingError | None:
    """Return a one-line error for a known failure, or None for any other failure."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "CUDA out of memory" in text or "ALLOC_FAILED" in text:
        return TrainingError(_out_of_memory("GPU memory", config))
    if "can't allocate memory" in text or "DefaultCPUAllocator" in text:
        return TrainingError(_out_of_memory("memory", config))
    if "DataLoader worker" in text:
        return TrainingError(
            "a process that prefetches windows has died, probably because it ran out of memory. Try --workers 0."
        )
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        first = text.strip().partition("\n")[0]
        return TrainingError(f"torch.compile failed: {first}. Try --no-compile.")
    if "PytorchStreamWriter" in text or "iostream error" in text:
        first = text.partition("\n")[0].rstrip(".")
        return TrainingError(
            f"cannot write a checkpoint: {first}. If the disk is full, free some space. Then use --resume to continue "
            "from the last checkpoint."
        )
    return None


def _out_of_memory(memory: str, config: TrainConfig) -> str:
    smaller = max(1, config.batch_size // 2)
    times = config.accumulate * config.batch_size // smaller
    remedy = f"Try --batch-size {smaller} --accumulate {times}"
    remedy = remedy if smaller < config.batch_size else "Build the dataset with shorter windows (--window)"
    return (
        f"the model {config.model!r} with {counted(config.batch_size, 'window')} per batch does not fit into {memory}. "
        f"{remedy}, or use a smaller --model."
    )


def nan_loss_error(step: int, learning_rate: float) -> TrainingError:
    return TrainingError(
        f"the loss is not finite at step {step}: training diverged. "
        f"Try a lower learning rate: --learning-rate {learning_rate / 3:.1g}."
    )
