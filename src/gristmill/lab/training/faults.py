"""What goes wrong in a training, said in one line each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError

from gristmill.core.errors import ConfigError, DatasetError, GristmillError, OutputError, TrainingError
from gristmill.core.names import counted
from gristmill.lab.training.processes import local_rank
from gristmill.lab.training.train_config import TrainConfig


def device_for(config: TrainConfig) -> torch.device:
    if config.device == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank())
        return torch.device("cuda", local_rank())
    if config.device == "cuda":
        built_for = "this PyTorch is built without CUDA" if torch.version.cuda is None else "the driver shows none"
        raise ConfigError(f"there is no GPU: {built_for}. Leave out --device cuda to train on the CPU.")
    return torch.device("cpu")


@contextmanager
def explained(config: TrainConfig, folder: Path) -> Iterator[None]:
    """Running out of memory or disk is no fault of ours, and there is a way out."""
    try:
        yield
    except MemoryError:
        raise TrainingError(_out_of_memory("memory", config)) from None
    except OSError as error:
        raise OutputError(
            f"cannot go on in {str(folder)!r}: {error.strerror or error}. Once that is mended, --resume goes on from "
            "the last checkpoint."
        ) from None
    except SafetensorError as error:
        raise OutputError(f"cannot write into {str(folder)!r}: {error}. Make room; --resume goes on.") from None
    except RuntimeError as error:
        found = _explanation(error, config)
        if found is None:
            raise
        raise found from None


@contextmanager
def readable(checkpoint: str | Path | None) -> Iterator[None]:
    """Say so where a part of a checkpoint is damaged, or is something else than tensors and plain values."""
    try:
        yield
    except (GristmillError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - what is wrong in a file may show anywhere in what reads it
        first = str(error).strip().partition("\n")[0].rstrip(".")
        raise DatasetError(
            f"the checkpoint {str(checkpoint)!r} cannot be read: {first}. Delete it: --resume goes on from the one "
            "before, if there is one."
        ) from None


def _explanation(error: RuntimeError, config: TrainConfig) -> TrainingError | None:
    """In one line, if it is one of those that happen."""
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or "CUDA out of memory" in text or "ALLOC_FAILED" in text:
        return TrainingError(_out_of_memory("the GPU's memory", config))
    if "can't allocate memory" in text or "DefaultCPUAllocator" in text:
        return TrainingError(_out_of_memory("memory", config))
    if "DataLoader worker" in text:
        return TrainingError(
            "a process that read windows ahead has died, of too little memory perhaps. Try --workers 0."
        )
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        first = text.strip().partition("\n")[0]
        return TrainingError(f"torch.compile failed: {first}. Try --no-compile.")
    if "PytorchStreamWriter" in text or "iostream error" in text:
        return TrainingError(f"cannot write a checkpoint: {text.partition(chr(10))[0]}. Is the disk full?")
    return None


def _out_of_memory(what: str, config: TrainConfig) -> str:
    smaller = max(1, config.batch_size // 2)
    times = config.accumulate * config.batch_size // smaller
    way = f"Try --batch-size {smaller} --accumulate {times}"
    way = way if smaller < config.batch_size else "Try shorter windows (build --window)"
    return (
        f"the model {config.model!r} with {counted(config.batch_size, 'window')} at once does not fit into {what}. "
        f"{way}, or a smaller --model."
    )


def not_a_number(step: int, learning_rate: float) -> TrainingError:
    return TrainingError(
        f"the loss is not a number any more, at step {step}: the training has gone astray. "
        f"Try a lower rate: --learning-rate {learning_rate / 3:.1g}."
    )
