"""One run: a model, what it learns from, what is measured on the way, and how it ends."""

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
from gristmill.lab.training.feeds import Feeds, Scored
from gristmill.lab.training.metrics import LEAST_GAIN, Metric, Metrics, StopReason, evaluations_without_gain
from gristmill.lab.training.models import Learner, Needs, learning_rate_of, make_model
from gristmill.lab.training.monitor import Heartbeat, Tell, Watch
from gristmill.lab.training.objectives import Batch, Objective, Score, logits_bytes_on, score
from gristmill.lab.training.processes import Stop, Together
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.training.train_config import Budget, TrainConfig
from gristmill.lab.training.train_result import FrozenScores, Result, device_text, write_result
from gristmill.lab.training.trainer import Rhythm, WindowTrainer, arguments_for, step_of

# What a run is, in words and for run.json.

PACKAGES = ("torch", "transformers", "accelerate", "numpy")
LORA_PACKAGE = "peft"


def with_objective(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """Decide the objective if none is named: by the preset of the dataset, else by the tokenizer's mask token."""
    if dataset.record.packing is not None:
        if config.objective == "mlm":
            raise ConfigError(
                f"{str(dataset.folder)!r} was built with --pack: its rows hold several files and are for --objective "
                "causal. Build it with --pack none for mlm."
            )
        return msgspec.structs.replace(config, objective="causal")
    if config.objective is not None:
        return config
    is_causal = dataset.tokenizer.definition.mask_id is None
    if isinstance(dataset.record, Manifest):
        is_causal |= dataset.record.preset in {"causal", "fim"}
    return msgspec.structs.replace(config, objective="causal" if is_causal else "mlm")


def facts_of(dataset: Dataset, config: TrainConfig, device: torch.device, command: str) -> RunFacts:
    return RunFacts(
        gristmill=__version__,
        dataset=path_text(str(dataset.folder)),
        dataset_sha256=digest_of(dataset),
        settings=msgspec.to_builtins(config),
        versions={name: version(name) for name in (*PACKAGES, *((LORA_PACKAGE,) if config.lora else ()))},
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
    dataset: Dataset, config: TrainConfig, budget: Budget, learner: Learner, device: torch.device
) -> list[tuple[str, str]]:
    windows, ids = counted(budget.windows_per_epoch, row_word(dataset)), budget.ids_per_epoch
    words = "masked tokens" if config.objective == "mlm" else "the next token"
    tokens, epochs = round(budget.epochs * ids), counted(f"{budget.epochs:.4g}", "epoch")
    size = f"{config.batch_size}" + (f" x {config.accumulate}" if config.accumulate > 1 else "")
    adapter = learner.num_adapter_weights
    of_adapter = "" if adapter is None else f", and a LoRA adapter of {adapter:,}"
    num_own = learner.model.num_parameters() - (adapter or 0)
    return [
        ("dataset", f"{printable(str(dataset.folder))}: {windows}, {counted(ids, 'id')} an epoch"),
        ("model", f"{printable(config.model)}, {num_own:,} weights{of_adapter}, learns to predict {words}"),
        ("budget", f"{counted(tokens, 'token')}: {epochs}, {counted(budget.steps, 'step')} of {size}"),
        ("stop", _stop_text(budget)),
        ("seed", str(config.seed)),
        ("device", device_text(device)),
    ]


def row_word(dataset: Dataset) -> str:
    """A packed row holds several windows."""
    return "window" if dataset.record.packing is None else "row"


def _stop_text(budget: Budget) -> str:
    if budget.patience is None:
        return "at the end of the budget"
    return (
        f"once {counted(budget.patience, 'evaluation')} in a row lower the loss on validation by less than "
        f"{LEAST_GAIN:.1%} in all, or at the end of the budget"
    )


# The run itself.

SECONDS_BETWEEN_SAVES = 60


class Run:
    def __init__(
        self,
        dataset: Dataset,
        config: TrainConfig,
        together: Together,
        place: RunFolder,
        frozen: Sequence[Scored],
        *,
        keep_model: bool,
    ) -> None:
        """Whatever cannot be trained is refused here, before anything is written."""
        # Ours are the only lines.
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        set_verbosity_error()  # type: ignore[no-untyped-call]
        disable_progress_bar()  # type: ignore[no-untyped-call]
        self._dataset, self._config, self._together, self._place = dataset, config, together, place
        self._keeps_model = keep_model
        device = together.device
        self._feeds = Feeds(dataset, config, is_fixed_width=device.type == "cuda")
        self._frozen, self._num_frozen = (self._feeds.frozen(frozen) if frozen else None), len(frozen)
        self._frozen_scores: FrozenScores | None = None
        self._budget = Budget.of(config, self._feeds.num_windows, self._feeds.num_ids, together.world_size)
        set_seed(config.seed)
        self._needs = Needs(dataset.record.window_length, dataset.tokenizer.definition)
        model = make_model(config.model, config.objective or "mlm", self._needs)
        self._learner = Learner(model, config)
        self._objective = Objective(model, is_causal=config.objective == "causal", logits_bytes=logits_bytes_on(device))
        if not config.is_fresh:
            self._objective.check_head()
        if dataset.record.packing is not None and not self._objective.keeps_apart():
            raise ConfigError(
                f"the model {config.model!r} does not keep the files of a packed row apart: it ignores position_ids. "
                "Build the dataset with --pack none for it."
            )
        self._objective.to(device)
        if device.type == "cuda" and config.compiles_loss:
            self._objective.compile_loss()
        self._saved_at = time.perf_counter()
        self._closing = ExitStack()

    def learn(self, checkpoint: Path | None, tell: Tell, stop: Stop) -> None:
        """Up to the last step, or as far as it gets."""
        first = None if checkpoint is None else step_of(checkpoint)
        is_writer = self._together.is_first
        self._metrics = Metrics(self._place.path, checkpoint, is_writer=is_writer)
        facts = shown_facts(self._dataset, self._config, self._budget, self._learner, self._together.device)
        self._heartbeat = Heartbeat(tell)
        tell("\n".join(f"{name:<8} {text}" for name, text in [*facts, ("scoring", self._scoring_text())]))
        if first is not None:
            tell(f"going on after step {first:,}")
        self._watch = Watch(self._place.path, self._metrics, self._budget, facts, tell, is_writer=is_writer)
        self._closing.callback(self._watch.close)
        rate = learning_rate_of(self._config)
        trainer = WindowTrainer(
            self._objective,
            self._learner,
            arguments_for(self._config, self._budget, rate, self._place.path, self._together),
            together=self._together,
            accumulate=self._config.accumulate,
            warmup_steps=self._budget.warmup_steps,
            batches=lambda step: self._feeds.batches(self._budget, step),
            on_step=self._stepped,
            on_loss=self._learnt,
            on_evaluation=self._evaluate,
            on_save=lambda checkpoint: self._place.seal(checkpoint, self._metrics),
            callback=Rhythm(self._budget, self._is_time_to_save, lambda: self._together.any(stop.is_wanted)),
        )
        if first is None:
            self._evaluate(0)
        self._watch.start(first or 0)
        is_over = self._metrics.stop_reason is not None
        self._last_step = trainer.put_back(checkpoint) if checkpoint and is_over else trainer.run(checkpoint)

    def finish(self) -> Result:
        """The best model by validation says once what it makes of test."""
        best = self._metrics.best
        assert best is not None
        if self._frozen is not None and self._frozen_scores is None:
            # Stopped between the last evaluation and the result.
            self._frozen_scores = FrozenScores.of(self._score(self._frozen))
        self._together.wait()
        test = self._test(best) if self._keeps_model else None
        result = Result(
            dataset=path_text(str(self._dataset.folder)),
            model=self._config.model,
            objective=self._config.objective or "mlm",
            seed=self._config.seed,
            parameters=self._learner.model.num_parameters(),
            adapter_parameters=self._learner.num_adapter_weights,
            device=device_text(self._together.device),
            steps=self._last_step,
            epochs=self._budget.epoch_at(self._last_step),
            tokens=self._metrics.of("train")[-1].tokens,
            seconds=self._watch.seconds,
            tokens_per_second=self._metrics.tokens_per_second,
            last=self._metrics.of("validation")[-1],
            best=best,
            test=test,
            stop_reason=self._metrics.stop_reason or "budget",
            frozen=self._frozen_scores,
        )
        self._watch.draw(is_running=False)
        if self._together.is_first:
            write_result(result, self._place.path)
            self._place.drop_checkpoints()
        return result

    def close(self) -> None:
        """End TensorBoard's writer and its thread, also after a failure."""
        self._closing.close()

    def _scoring_text(self) -> str:
        """What each evaluation has to do: of a short run, it is most of the work."""
        num_windows = len(self._dataset[Split.VALIDATION])
        num_scored = min(num_windows, self._config.eval_windows or num_windows)
        validation = f"{counted(num_scored, row_word(self._dataset))} of validation"
        frozen = "" if self._frozen is None else f" and {counted(self._num_frozen, 'frozen one')}"
        evaluations = counted(self._budget.num_evaluations, "time")
        return f"{validation}{frozen}, before the first step and {evaluations} after it"

    def _learnt(self, step: int, loss: float, learning_rate: float) -> None:
        self._watch.learnt(step, self._together.mean(loss), learning_rate)

    def _stepped(self, step: int) -> None:
        left = self._watch.stepped(step)
        self._heartbeat.beat(f"step {step:,} of {self._budget.steps:,}{'' if left is None else f', about {left} left'}")

    def _evaluate(self, step: int) -> bool:
        """-> whether it is time to stop."""
        started_at = time.perf_counter()
        found = self._score(self._feeds.held_out(Split.VALIDATION))
        if not found.tokens.any():
            raise DatasetError(
                f"no token of validation in {str(self._dataset.folder)!r} would be scored: it has too few. "
                "Build it from more files, or with a larger share: --split 80/15/5."
            )
        line = self._watch.measured(step, "validation", found)
        lines = [msgspec.structs.replace(line, stop_reason=self._stop_reason(line))]
        if self._frozen is not None:
            frozen = self._score(self._frozen)
            self._frozen_scores = FrozenScores.of(frozen)
            lines.append(self._watch.measured(step, "frozen", frozen))
        self._watch.evaluated(step, lines)
        if self._keeps_model and self._together.is_first and self._metrics.best is lines[0]:
            self._place.keep_model(lambda folder: self._learner.save_with_tokenizer(self._needs, folder))
        self._watch.go_on(step, time.perf_counter() - started_at)
        return lines[0].stop_reason is not None

    def _stop_reason(self, line: Metric) -> StopReason | None:
        """A function of the evaluations alone, which each checkpoint has: a run that goes on stops at the same one."""
        if line.step >= self._budget.steps:
            return "budget"
        patience = self._budget.patience
        without_gain = evaluations_without_gain([*self._metrics.of("validation"), line], self._budget.warmup_steps)
        is_over = patience is not None and without_gain >= patience
        return "no_improvement" if self._together.of_first(is_over) else None

    def _test(self, best: Metric) -> Metric | None:
        if not self._place.model.is_dir():
            raise DatasetError(
                f"{str(self._place.model)!r} is gone, and with it the best model. Train into a new folder."
            )
        self._learner.load(self._place.model)
        found = self._score(self._feeds.held_out(Split.TEST))
        if not found.tokens.any():
            return None
        told = self._watch.measured(best.step, "test", found)
        self._metrics.add(told)
        return told

    def _score(self, batches: Sequence[Batch]) -> Score:
        shown = self._heartbeat.over(batches, "scoring: batch")
        return score(self._objective, shown, self._together.device, self._feeds.bytes_by_id)

    def _is_time_to_save(self, step: int, is_evaluated: bool) -> bool:
        if self._config.save_every is not None:
            return step % self._config.save_every == 0
        if not is_evaluated:
            return False
        now = time.perf_counter()
        is_time = self._together.of_first(now - self._saved_at >= SECONDS_BETWEEN_SAVES)
        self._saved_at = now if is_time else self._saved_at
        return is_time
