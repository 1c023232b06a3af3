"""The Trainer of transformers, adapted to gristmill's windows and evaluations.

The Trainer treats the complete run as one epoch. Batches continue across epoch boundaries, and the index of a batch
determines its contents, so a run resumed in the middle of an epoch continues as if it had never stopped. The order of
windows and the masks depend only on the seed. Checkpoints contain the state of torch's generator, which dropout uses.

For each step, the Trainer gets a list of one or more batches. The loss is the mean over the predicted tokens of all
batches and processes, so 2 batches of 4 windows give the same step as one batch of 8.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from gristmill.core.columns import IGNORED_LABEL
from gristmill.lab.training.faults import explain_checkpoint_errors, nan_loss_error
from gristmill.lab.training.models import Learner
from gristmill.lab.training.objectives import Batch, Objective
from gristmill.lab.training.processes import ProcessGroup
from gristmill.lab.training.run_folder import CHECKPOINTS
from gristmill.lab.training.train_config import Budget, TrainConfig

FINAL_RATE_SHARE = 0.1
MAX_GRADIENT_NORM = 1.0
STEPS_BETWEEN_LOSS_CHECKS = 20
"""Reading the loss makes the CPU wait for the GPU, so the loss is not checked after every step."""

LOSSES = "losses.safetensors"
"""File in a checkpoint with the sum and the number of the losses since the last train line in metrics.jsonl."""


def training_arguments(
    config: TrainConfig, budget: Budget, learning_rate: float, out: Path, processes: ProcessGroup
) -> Any:
    on_gpu = processes.device.type == "cuda"
    return TrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        max_steps=budget.steps,
        per_device_train_batch_size=config.batch_size // processes.world_size,
        learning_rate=learning_rate,
        weight_decay=config.recipe.weight_decay,
        adam_beta2=config.recipe.beta2,
        max_grad_norm=MAX_GRADIENT_NORM,
        seed=config.seed,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        torch_compile=on_gpu and config.is_compiled,
        optim="adamw_torch_fused",
        # WindowTrainer and RunSchedule control batches, evaluations and checkpoints.
        ignore_data_skip=True,
        logging_strategy="no",
        eval_strategy="no",
        save_strategy="no",
        save_total_limit=2,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
        log_level="error",
        log_level_replica="error",
        ddp_find_unused_parameters=False,
    )


def learning_rate_share(step: int, *, warmup: int, steps: int) -> float:
    """Return the learning rate at a step, counted from 0, as a share of its peak."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return FINAL_RATE_SHARE + (1 - FINAL_RATE_SHARE) * (1 + math.cos(math.pi * min(1.0, done))) / 2


class WindowTrainer(Trainer):
    """Trainer that uses callbacks for batches, losses, evaluations and checkpoints."""

    def __init__(
        self,
        objective: Objective,
        learner: Learner,
        arguments: Any,
        *,
        processes: ProcessGroup,
        accumulate: int,
        warmup_steps: int,
        batches: Callable[[int], DataLoader[Any]],
        on_step: Callable[[int], None],
        on_loss: Callable[[int, float, float], None],
        on_evaluation: Callable[[int], bool],
        on_save: Callable[[Path], None],
        callback: TrainerCallback,
    ) -> None:
        """Create a trainer. `batches` returns the batches from a given step on, and a step takes `accumulate` batches.

        `on_evaluation` returns True to stop the training. `on_save` is called after a checkpoint is written.
        """
        # Each process uses one GPU. Several GPUs need several processes (torchrun).
        arguments._n_gpu = min(1, arguments.n_gpu)  # noqa: SLF001
        self._warmup_steps = warmup_steps
        super().__init__(model=objective, args=arguments, callbacks=[callback])
        self.remove_callback(PrinterCallback)
        self._losses = _LossMean()
        self._learner, self._processes, self._accumulate = learner, processes, accumulate
        self._batches, self._on_step = batches, on_step
        self._on_loss, self._on_evaluation, self._on_save = on_loss, on_evaluation, on_save

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Create a linear warm-up with cosine decay. The Trainer's own schedules waste the first step at rate 0."""
        chosen: Any = self.optimizer if optimizer is None else optimizer
        share = functools.partial(learning_rate_share, warmup=self._warmup_steps, steps=num_training_steps)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(chosen, share)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def get_train_dataloader(self) -> DataLoader[Any]:
        return _StepLoader(self._batches(self._first_step), self._accumulate, self.args.max_steps)  # type: ignore[return-value]

    def run(self, checkpoint: Path | None) -> int:
        """Train, optionally from a checkpoint, and return the last step."""
        self._first_step = 0 if checkpoint is None else checkpoint_step(checkpoint)
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return self.state.global_step

    def restore(self, checkpoint: Path) -> int:
        """Load a checkpoint without training further, and return its step."""
        self._load_from_checkpoint(str(checkpoint))
        return checkpoint_step(checkpoint)

    def training_step(self, model: Any, inputs: list[Batch], *_: Any) -> torch.Tensor:  # type: ignore[override]
        """Accumulate the gradients of one step over its batches and return the mean loss per token."""
        num_predicted = self._processes.mean_count(
            sum(int((batch["tokens"] != IGNORED_LABEL).sum()) for batch in inputs)
        )
        parts = []
        for number, batch in enumerate(inputs, 1):
            is_last = number == len(inputs)  # processes exchange gradients once per step
            with nullcontext() if is_last else self.accelerator.no_sync(model):
                parts.append(super().training_step(model, {**batch, "num_predicted": num_predicted}))
        loss = torch.stack(parts).sum()
        self._losses.add(loss)
        step = self.state.global_step + 1
        self._on_step(step)
        if (loss.device.type == "cpu" or step % STEPS_BETWEEN_LOSS_CHECKS == 0) and not bool(loss.isfinite()):
            raise nan_loss_error(step, self.args.learning_rate)
        return loss

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return model(**inputs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        if self._on_evaluation(self.state.global_step):
            self.control.should_training_stop = True
        return {}

    def log(self, logs: dict[str, float], *_: Any) -> None:
        if "loss" not in logs:
            return
        mean = self._losses.take_mean()
        if not math.isfinite(mean):
            raise nan_loss_error(self.state.global_step, self.args.learning_rate)
        self._on_loss(self.state.global_step, mean, logs["learning_rate"])

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        super()._save_checkpoint(*arguments, **named)
        if self.args.should_save:
            self._on_save(Path(str(self.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")

    def _save(self, output_dir: str = "", *_: Any, **__: Any) -> None:  # type: ignore[override]
        self._learner.save(Path(output_dir))
        safetensors.torch.save_file(self._losses.state(), Path(output_dir) / LOSSES)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *_: Any, **__: Any) -> None:
        checkpoint = Path(resume_from_checkpoint)
        with explain_checkpoint_errors(checkpoint):
            self._learner.load(checkpoint)
            self._losses.load(safetensors.torch.load_file(checkpoint / LOSSES))

    # The Trainer reads the optimizer, scheduler and generator states with torch's `weights_only`, which loads only
    # tensors and plain values and runs no code.

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with explain_checkpoint_errors(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with explain_checkpoint_errors(checkpoint):
            super()._load_rng_state(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Do nothing: bf16 needs no scaler, so no checkpoint contains one."""


class _LossMean:
    """Mean loss since the last train line in metrics.jsonl. Checkpoints contain the sum and the number of the losses.

    The Trainer's own mean loss is not saved in checkpoints, so a resumed run would report a different mean.
    """

    def __init__(self) -> None:
        self._sum: torch.Tensor | float = 0.0
        self._count = 0

    def add(self, loss: torch.Tensor) -> None:
        self._sum = self._sum + loss  # the sum stays on the GPU, so adding does not wait for the GPU
        self._count += 1

    def take_mean(self) -> float:
        mean = float(self._sum) / max(1, self._count)
        self._sum, self._count = 0.0, 0
        return mean

    def state(self) -> dict[str, torch.Tensor]:
        return {"sum": torch.as_tensor(self._sum).cpu(), "count": torch.tensor(self._count)}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        self._sum, self._count = state["sum"], int(state["count"])


class _StepLoader:
    """Loader that yields a list of batches for each step. Its length is the number of steps in the run."""

    def __init__(self, loader: DataLoader[Any], accumulate: int, steps: int) -> None:
        self._loader, self._accumulate, self._steps = loader, accumulate, steps
        self.dataset, self.batch_size = loader.dataset, loader.batch_size

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self._loader)
        while step_batches := list(islice(batches, self._accumulate)):
            yield step_batches

    def __len__(self) -> int:
        return self._steps


class RunSchedule(TrainerCallback):
    """Callback that decides after each step whether to evaluate, save or stop."""

    def __init__(
        self, budget: Budget, is_time_to_save: Callable[[int, bool], bool], is_stopping: Callable[[], bool]
    ) -> None:
        self._budget, self._is_time_to_save, self._is_stopping = budget, is_time_to_save, is_stopping

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer's signature
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> TrainerControl:
        step = state.global_step
        is_evaluated = self._budget.is_evaluated_at(step)
        control.should_log = control.should_evaluate = is_evaluated
        control.should_save = self._is_time_to_save(step, is_evaluated)
        if self._is_stopping():
            control.should_save = control.should_training_stop = True
        return control

    def on_epoch_end(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,
        **_: Any,
    ) -> TrainerControl:
        """Clear the requests of the last step, because the Trainer would repeat them."""
        control.should_log = control.should_evaluate = control.should_save = False
        return control


def checkpoint_step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
