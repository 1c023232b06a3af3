"""transformers' Trainer, with our windows, our evaluation and one long epoch of steps.

The Trainer counts the whole run as one epoch: our batches go on over the ends of epochs and know by their number what
is in them, so that a run goes on in the middle of one as if it had never stopped. Order and masks hang on the seed
alone; the state of torch's generator, which dropout draws from, lies in the checkpoint.

The Trainer gets a list of one or several batches for each step. The loss is the mean over the predicted tokens of all
batches and processes, so that 2 batches of 4 windows give the same step as one of 8.
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
from gristmill.lab.training.faults import not_a_number, readable
from gristmill.lab.training.models import Learner
from gristmill.lab.training.objectives import Batch, Objective
from gristmill.lab.training.processes import Together
from gristmill.lab.training.run_folder import CHECKPOINTS
from gristmill.lab.training.train_config import Budget, TrainConfig

LAST_RATE_SHARE = 0.1
MOST_GRADIENT_NORM = 1.0
STEPS_BETWEEN_LOOKS = 20
"""Each look at the loss makes a GPU wait."""

LOSSES = "losses.safetensors"
"""In a checkpoint: what train's next line is the mean of."""


def arguments_for(config: TrainConfig, budget: Budget, learning_rate: float, out: Path, together: Together) -> Any:
    on_gpu = together.device.type == "cuda"
    return TrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        max_steps=budget.steps,
        per_device_train_batch_size=config.batch_size // together.world_size,
        learning_rate=learning_rate,
        weight_decay=config.recipe.weight_decay,
        adam_beta2=config.recipe.beta2,
        max_grad_norm=MOST_GRADIENT_NORM,
        seed=config.seed,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        torch_compile=on_gpu and config.is_compiled,
        optim="adamw_torch_fused",
        # Windows come, and the run is evaluated and saved, as ours say.
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


def rate_share(step: int, *, warmup: int, steps: int) -> float:
    """Of the highest rate, at a step counted from 0."""
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * (1 + math.cos(math.pi * min(1.0, done))) / 2


class WindowTrainer(Trainer):
    def __init__(
        self,
        objective: Objective,
        learner: Learner,
        arguments: Any,
        *,
        together: Together,
        accumulate: int,
        warmup_steps: int,
        batches: Callable[[int], DataLoader[Any]],
        on_step: Callable[[int], None],
        on_loss: Callable[[int, float, float], None],
        on_evaluation: Callable[[int], bool],
        on_save: Callable[[Path], None],
        callback: TrainerCallback,
    ) -> None:
        """`accumulate`: batches in a step; `batches`: from a step on.

        `on_evaluation` says whether to stop; `on_save` has the last word.
        """
        # Several GPUs are used by several processes (torchrun), never by one.
        arguments._n_gpu = min(1, arguments.n_gpu)  # noqa: SLF001
        self._warmup_steps = warmup_steps
        super().__init__(model=objective, args=arguments, callbacks=[callback])
        self.remove_callback(PrinterCallback)
        self._losses = _Losses()
        self._learner, self._together, self._accumulate = learner, together, accumulate
        self._batches, self._on_step = batches, on_step
        self._on_loss, self._on_evaluation, self._on_save = on_loss, on_evaluation, on_save

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Up, and down along a cosine. The Trainer's own begin with a step at rate 0, which is a step for nothing."""
        given: Any = self.optimizer if optimizer is None else optimizer
        of_steps = functools.partial(rate_share, warmup=self._warmup_steps, steps=num_training_steps)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(given, of_steps)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def get_train_dataloader(self) -> DataLoader[Any]:
        return _Steps(self._batches(self._first_step), self._accumulate, self.args.max_steps)  # type: ignore[return-value]

    def run(self, checkpoint: Path | None) -> int:
        """-> the step at which it ended."""
        self._first_step = 0 if checkpoint is None else step_of(checkpoint)
        self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        return self.state.global_step

    def put_back(self, checkpoint: Path) -> int:
        """As it was there, and no step further."""
        self._load_from_checkpoint(str(checkpoint))
        return step_of(checkpoint)

    def training_step(self, model: Any, inputs: list[Batch], *_: Any) -> torch.Tensor:  # type: ignore[override]
        """One step over all its batches -> the mean loss of a token."""
        num_told = self._together.mean_count(sum(int((batch["tokens"] != IGNORED_LABEL).sum()) for batch in inputs))
        parts = []
        for number, batch in enumerate(inputs, 1):
            is_last = number == len(inputs)  # processes exchange gradients once, with the last batch
            with nullcontext() if is_last else self.accelerator.no_sync(model):
                parts.append(super().training_step(model, {**batch, "num_told": num_told}))
        loss = torch.stack(parts).sum()
        self._losses.add(loss)
        step = self.state.global_step + 1
        self._on_step(step)
        if (loss.device.type == "cpu" or step % STEPS_BETWEEN_LOOKS == 0) and not bool(loss.isfinite()):
            raise not_a_number(step, self.args.learning_rate)
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
            raise not_a_number(self.state.global_step, self.args.learning_rate)
        self._on_loss(self.state.global_step, mean, logs["learning_rate"])

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        super()._save_checkpoint(*arguments, **named)
        if self.args.should_save:
            self._on_save(Path(str(self.args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")

    def _save(self, output_dir: str = "", *_: Any, **__: Any) -> None:  # type: ignore[override] # always given
        self._learner.save(Path(output_dir))
        safetensors.torch.save_file(self._losses.state(), Path(output_dir) / LOSSES)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *_: Any, **__: Any) -> None:
        checkpoint = Path(resume_from_checkpoint)
        with readable(checkpoint):
            self._learner.load(checkpoint)
            self._losses.load(safetensors.torch.load_file(checkpoint / LOSSES))

    # The Trainer reads these files with torch's `weights_only`, which builds tensors and plain values and runs no code.

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with readable(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with readable(checkpoint):
            super()._load_rng_state(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Nothing: bf16 needs none, so none of ours was saved."""


class _Losses:
    """Since the last line. The Trainer forgets its own when it stops: a run that goes on would tell another mean."""

    def __init__(self) -> None:
        self._sum: torch.Tensor | float = 0.0
        self._count = 0

    def add(self, loss: torch.Tensor) -> None:
        self._sum = self._sum + loss  # stays on the GPU: nobody waits for it
        self._count += 1

    def take_mean(self) -> float:
        mean = float(self._sum) / max(1, self._count)
        self._sum, self._count = 0.0, 0
        return mean

    def state(self) -> dict[str, torch.Tensor]:
        return {"sum": torch.as_tensor(self._sum).cpu(), "count": torch.tensor(self._count)}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        self._sum, self._count = state["sum"], int(state["count"])


class _Steps:
    """A loader as the Trainer wants it: a list of batches for each step, and the length of the run."""

    def __init__(self, loader: DataLoader[Any], accumulate: int, steps: int) -> None:
        self._loader, self._accumulate, self._steps = loader, accumulate, steps
        self.dataset, self.batch_size = loader.dataset, loader.batch_size

    def __iter__(self) -> Iterator[list[Batch]]:
        batches = iter(self._loader)
        while some := list(islice(batches, self._accumulate)):
            yield some

    def __len__(self) -> int:
        return self._steps


class Rhythm(TrainerCallback):
    """When a run is evaluated, saved and stopped."""

    def __init__(
        self, budget: Budget, is_time_to_save: Callable[[int, bool], bool], is_stopping: Callable[[], bool]
    ) -> None:
        self._budget, self._is_time_to_save, self._is_stopping = budget, is_time_to_save, is_stopping

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the Trainer's way to call
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
        """What the last step asked for is done."""
        control.should_log = control.should_evaluate = control.should_save = False
        return control


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
