"""What goes wrong in a training, said in one line each."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from gristmill.errors import ConfigError, TrainingError
from gristmill.training.settings import TrainConfig


def device_for(config: TrainConfig) -> torch.device:
    if config.device == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if config.device == "cuda":
        built_for = "this PyTorch is built without CUDA" if torch.version.cuda is None else "the driver shows none"
        raise ConfigError(f"there is no GPU: {built_for}. Leave out --device cuda to train on the CPU.")
    return torch.device("cpu")


@contextmanager
def memory_explained(config: TrainConfig) -> Iterator[None]:
    """Running out of it is no fault of ours, and there is a way out."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise TrainingError(_out_of_memory("the GPU's memory", config)) from None
    except MemoryError:
        raise TrainingError(_out_of_memory("memory", config)) from None
    except RuntimeError as error:
        if "can't allocate memory" not in str(error) and "DefaultCPUAllocator" not in str(error):
            raise
        raise TrainingError(_out_of_memory("memory", config)) from None


def _out_of_memory(what: str, config: TrainConfig) -> str:
    smaller = max(1, config.batch_size // 2)
    way = f"Try --batch-size {smaller}" if smaller < config.batch_size else "Try shorter windows (build --window)"
    return (
        f"the model {config.model!r} with {config.batch_size} windows a step does not fit into {what}. "
        f"{way}, or a smaller --model."
    )


def not_a_number(step: int, learning_rate: float) -> TrainingError:
    return TrainingError(
        f"the loss is not a number any more, at step {step}: the training has gone astray. "
        f"Try a lower rate: --learning-rate {learning_rate / 3:.1g}."
    )
