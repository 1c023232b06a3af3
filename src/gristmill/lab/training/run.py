"""One training run: set up the model and its batches, train with evaluations and checkpoints, write the result."""

import hashlib
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import msgspec
import torch
from transformers import set_seed
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text, printable
from gristmill.core.records import Split
from gristmill.core.version import __version__
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.frame import Frame
from gristmill.lab.training.feeds import Feeds, ScoredWindow
from gristmill.lab.training.metrics import MIN_GAIN, Metric, Metrics, StopReason, evaluations_without_gain
from gristmill.lab.training.models import Learner, ModelRequirements, learning_rate_for, make_model
from gristmill.lab.training.monitor import Heartbeat, Log, RunMonitor
from gristmill.lab.training.objectives import Batch, Objective, Score, logits_bytes_limit, score
from gristmill.lab.training.processes import ProcessGroup, StopSignal
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.training.train_config import Budget, TrainConfig
from gristmill.lab.training.train_result import FrozenScores, Result, device_text, write_result
from gristmill.lab.training.trainer import RunSchedule, WindowTrainer, checkpoint_step, training_arguments

# Description of a run, for run.json and for the log.

PACKAGES = ("torch", "transformers", "accelerate", "numpy")
LORA_PACKAGE = "peft"


def with_objective(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """Return the configuration with an objective. If none is configured, the dataset determines the objective.

    The default is `causal` for packed rows, for the presets `causal` and `fim`, and for tokenizers without a mask
    token, otherwise `mlm`. Raises ConfigError if `mlm` is configured for packed rows.
    """
    if dataset.record.packing is not None:
        if config.objective == "mlm":
            raise ConfigError(
                f"{str(dataset.folder)!r} was built with --pack: its rows hold several files, which requires "
                "--objective causal. For --objective mlm, build the dataset with --pack none."
            )
        return msgspec.structs.replace(config, objective="causal")
    if config.objective is not None:
        return config
    is_causal = dataset.tokenizer.definition.mask_id is None
    if isinstance(dataset.record, Manifest):
        is_causal |= dataset.record.preset in {"causal", "fim"}
    return msgspec.structs.replace(config, objective="causal" if is_causal else "mlm")


def make_run_facts(dataset: Dataset, config: TrainConfig, device: torch.device, command: str) -> RunFacts:
    return RunFacts(
        gristmill=__version__,
        dataset=path_text(str(dataset.folder)),
        dataset_sha256=dataset_digest(dataset),
        settings=msgspec.to_builtins(config),
        versions={name: version(name) for name in (*PACKAGES, *((LORA_PACKAGE,) if config.lora else ()))},
        device=device_text(device),
        command=path_text(command),
    )


def version_notes(run_folder: RunFolder, facts: RunFacts) -> list[str]:
    """Return a note for each package whose version has changed since the run started."""
    earlier = run_folder.facts().versions
    return [
        f"note: the run was started with {name} {earlier.get(name)} and is resumed with {current}. The "
        "results may change slightly."
        for name, current in facts.versions.items()
        if earlier.get(name) != current
    ]


def dataset_digest(dataset: Dataset) -> str:
    """Return the SHA-256 of everything that a run reads: the tokenizer, the window layout and all rows in stored order.

    Rows are hashed as JSON lines, which are the same in every format. The manifest's content_sha256 is not used,
    because it does not cover weights, labels, variants or numbers of fresh tokens.
    """
    tokenizer = dataset.record.tokenizer
    frame = [*Frame.of(dataset.record), tokenizer.sha256, tokenizer.prefix, tokenizer.suffix]
    digest = hashlib.sha256(msgspec.json.encode(frame))
    for split, rows in dataset.items():
        digest.update(f"\n{split} {len(rows)}\n".encode())
        for line in rows.lines():
            digest.update(line)
    return digest.hexdigest()


def run_summary(
    dataset: Dataset, config: TrainConfig, budget: Budget, learner: Learner, device: torch.device
) -> list[tuple[str, str]]:
    """Return pairs of a label and a text that describe the run."""
    windows, ids = counted(budget.windows_per_epoch, row_noun(dataset)), budget.ids_per_epoch
    targets = "masked tokens" if config.objective == "mlm" else "the next token"
    tokens, epochs = round(budget.epochs * ids), counted(f"{budget.epochs:.4g}", "epoch")
    batch = counted(config.batch_size, row_noun(dataset))
    size = batch if config.accumulate == 1 else f"{config.accumulate} batches of {batch}"
    adapter = learner.num_adapter_weights
    adapter_text = "" if adapter is None else f", and a LoRA adapter with {adapter:,} weights"
    num_base = learner.model.num_parameters() - (adapter or 0)
    return [
        ("dataset", f"{printable(str(dataset.folder))}: {windows}, {counted(ids, 'id')} per epoch"),
        ("model", f"{printable(config.model)}, {num_base:,} weights{adapter_text}, learns to predict {targets}"),
        ("budget", f"{counted(tokens, 'token')}: {epochs}, {counted(budget.steps, 'step')} of {size}"),
        ("stop", _stop_text(budget)),
        ("seed", str(config.seed)),
        ("device", device_text(device)),
    ]


def row_noun(dataset: Dataset) -> str:
    """Return "window", or "row" for packed rows, which can hold windows of several files."""
    return "window" if dataset.record.packing is None else "row"


def _stop_text(budget: Budget) -> str:
    if budget.patience is None:
        return "at the end of the budget"
    return (
        f"after {counted(budget.patience, 'evaluation')} in a row that lower the validation loss by less than "
        f"{MIN_GAIN:.1%} in total, or at the end of the budget"
    )


SECONDS_BETWEEN_SAVES = 60


class Run:
    """One training run in its folder."""

    def __init__(
        self,
        dataset: Dataset,
        config: TrainConfig,
        processes: ProcessGroup,
        run_folder: RunFolder,
        frozen: Sequence[ScoredWindow],
        *,
        save_best_model: bool,
    ) -> None:
        """Load the model and open the dataset. Raises before any file is written if the training cannot start."""
        # Print only gristmill's progress lines.
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        set_verbosity_error()  # type: ignore[no-untyped-call]
        disable_progress_bar()  # type: ignore[no-untyped-call]
        self._dataset, self._config, self._processes, self._run_folder = dataset, config, processes, run_folder
        self._keeps_model = save_best_model
        device = processes.device
        self._feeds = Feeds(dataset, config, is_fixed_width=device.type == "cuda")
        self._frozen, self._num_frozen = (self._feeds.frozen(frozen) if frozen else None), len(frozen)
        self._frozen_scores: FrozenScores | None = None
        self._budget = Budget.of(config, self._feeds.num_windows, self._feeds.num_ids, processes.world_size)
        set_seed(config.seed)
        self._requirements = ModelRequirements(dataset.record.window_length, dataset.tokenizer.definition)
        model = make_model(config.model, config.objective or "mlm", self._requirements)
        self._learner = Learner(model, config)
        self._objective = Objective(
            model, is_causal=config.objective == "causal", max_logits_bytes=logits_bytes_limit(device)
        )
        if not config.is_fresh:
            self._objective.check_head()
        if dataset.record.packing is not None and not self._objective.isolates_segments():
            raise ConfigError(
                f"the model {config.model!r} does not separate the files of a packed row: it ignores position_ids. "
                "Build the dataset with --pack none."
            )
        self._objective.to(device)
        if device.type == "cuda" and config.compiles_loss:
            self._objective.compile_loss()
        self._saved_at = time.perf_counter()
        self._closing = ExitStack()

    def train(self, checkpoint: Path | None, log: Log, stop: StopSignal) -> None:
        """Train from the checkpoint or from the beginning, until the last step, an early stop or a signal."""
        first = None if checkpoint is None else checkpoint_step(checkpoint)
        is_writer = self._processes.is_first
        self._metrics = Metrics(self._run_folder.path, checkpoint, is_writer=is_writer)
        facts = run_summary(self._dataset, self._config, self._budget, self._learner, self._processes.device)
        self._heartbeat = Heartbeat(log)
        log("\n".join(f"{name:<8} {text}" for name, text in [*facts, ("scoring", self._scoring_text())]))
        if first is not None:
            log(f"resuming after step {first:,}")
        self._monitor = RunMonitor(self._run_folder.path, self._metrics, self._budget, facts, log, is_writer=is_writer)
        self._closing.callback(self._monitor.close)
        rate = learning_rate_for(self._config)
        trainer = WindowTrainer(
            self._objective,
            self._learner,
            training_arguments(self._config, self._budget, rate, self._run_folder.path, self._processes),
            processes=self._processes,
            accumulate=self._config.accumulate,
            warmup_steps=self._budget.warmup_steps,
            batches=lambda step: self._feeds.batches(self._budget, step),
            on_step=self._on_step,
            on_loss=self._on_loss,
            on_evaluation=self._evaluate,
            on_save=lambda checkpoint: self._run_folder.seal(checkpoint, self._metrics),
            callback=RunSchedule(self._budget, self._is_time_to_save, lambda: self._processes.any(stop.is_requested)),
        )
        if first is None:
            self._evaluate(0)
        self._monitor.start(first or 0)
        is_over = self._metrics.stop_reason is not None
        self._last_step = trainer.restore(checkpoint) if checkpoint and is_over else trainer.run(checkpoint)

    def finish(self) -> Result:
        """Score the saved model on the test split, if a model is saved, and write the result."""
        best = self._metrics.best
        assert best is not None
        if self._frozen is not None and self._frozen_scores is None:
            # The run was stopped between its last evaluation and its result. This process has scored nothing yet.
            self._frozen_scores = FrozenScores.of(self._score(self._frozen))
        self._processes.wait()
        test = self._test(best) if self._keeps_model else None
        result = Result(
            dataset=path_text(str(self._dataset.folder)),
            model=self._config.model,
            objective=self._config.objective or "mlm",
            seed=self._config.seed,
            parameters=self._learner.model.num_parameters(),
            adapter_parameters=self._learner.num_adapter_weights,
            device=device_text(self._processes.device),
            steps=self._last_step,
            epochs=self._budget.epoch_at(self._last_step),
            tokens=self._metrics.of("train")[-1].tokens,
            seconds=self._monitor.seconds,
            tokens_per_second=self._metrics.tokens_per_second,
            last=self._metrics.of("validation")[-1],
            best=best,
            test=test,
            stop_reason=self._metrics.stop_reason or "budget",
            frozen=self._frozen_scores,
        )
        self._monitor.draw(is_running=False)
        if self._processes.is_first:
            write_result(result, self._run_folder.path)
            self._run_folder.drop_checkpoints()
        return result

    def close(self) -> None:
        """Close the TensorBoard writer and its thread. Call this after a failure, too."""
        self._closing.close()

    def _scoring_text(self) -> str:
        """Describe which windows are scored and how often, because a short run spends most of its time on scoring."""
        num_windows = len(self._dataset[Split.VALIDATION])
        num_scored = min(num_windows, self._config.eval_windows or num_windows)
        validation = f"{counted(num_scored, row_noun(self._dataset))} of validation"
        frozen = "" if self._frozen is None else f" and {counted(self._num_frozen, 'frozen window')}"
        evaluations = counted(self._budget.num_evaluations, "time")
        return f"{validation}{frozen}, before the first step and {evaluations} after it"

    def _on_loss(self, step: int, loss: float, learning_rate: float) -> None:
        self._monitor.record_train_loss(step, self._processes.mean(loss), learning_rate)

    def _on_step(self, step: int) -> None:
        left = self._monitor.record_step(step)
        self._heartbeat.beat(f"step {step:,} of {self._budget.steps:,}{'' if left is None else f', about {left} left'}")

    def _evaluate(self, step: int) -> bool:
        """Score the held-out windows and save the model if it is the best so far. Return True to stop the training."""
        started_at = time.perf_counter()
        found = self._score(self._feeds.held_out(Split.VALIDATION))
        if not found.num_tokens.any():
            raise DatasetError(
                f"{str(self._dataset.folder)!r} has too few tokens in validation: no token would be scored. "
                "Build it from more files, or with a larger share for validation, for example --split 80/15/5."
            )
        line = self._monitor.make_metric(step, "validation", found)
        lines = [msgspec.structs.replace(line, stop_reason=self._stop_reason(line))]
        if self._frozen is not None:
            frozen = self._score(self._frozen)
            self._frozen_scores = FrozenScores.of(frozen)
            lines.append(self._monitor.make_metric(step, "frozen", frozen))
        self._monitor.record_evaluation(step, lines)
        if self._keeps_model and self._processes.is_first and self._metrics.best is lines[0]:
            self._run_folder.save_best_model(
                lambda folder: self._learner.save_with_tokenizer(self._requirements, folder)
            )
        self._monitor.restart_clock(step, time.perf_counter() - started_at)
        return lines[0].stop_reason is not None

    def _stop_reason(self, line: Metric) -> StopReason | None:
        """Return the reason to stop, or None.

        The reason depends only on the evaluations. Every checkpoint contains them, so a resumed run stops at the same
        step.
        """
        if line.step >= self._budget.steps:
            return "budget"
        patience = self._budget.patience
        without_gain = evaluations_without_gain([*self._metrics.of("validation"), line], self._budget.warmup_steps)
        is_over = patience is not None and without_gain >= patience
        return "no_improvement" if self._processes.first_decides(is_over) else None

    def _test(self, best: Metric) -> Metric | None:
        if not self._run_folder.model.is_dir():
            raise DatasetError(f"the best model {str(self._run_folder.model)!r} is missing. Train into a new folder.")
        self._learner.load(self._run_folder.model)
        found = self._score(self._feeds.held_out(Split.TEST))
        if not found.num_tokens.any():
            return None
        metric = self._monitor.make_metric(best.step, "test", found)
        self._metrics.add(metric)
        return metric

    def _score(self, batches: Sequence[Batch]) -> Score:
        reported = self._heartbeat.over(batches, "scoring: batch")
        return score(self._objective, reported, self._processes.device, self._feeds.bytes_by_id)

    def _is_time_to_save(self, step: int, is_evaluated: bool) -> bool:
        if self._config.save_every is not None:
            return step % self._config.save_every == 0
        if not is_evaluated:
            return False
        now = time.perf_counter()
        is_time = self._processes.first_decides(now - self._saved_at >= SECONDS_BETWEEN_SAVES)
        self._saved_at = now if is_time else self._saved_at
        return is_time
