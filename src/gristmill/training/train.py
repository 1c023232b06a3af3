"""train(): a dataset folder in, a trained model with its curves out. The whole flow on one screen."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import set_seed

from gristmill.dataset import Dataset, open_dataset
from gristmill.feeding.ranks import place_of
from gristmill.naming import printable
from gristmill.records import Split
from gristmill.training.budget import Budget
from gristmill.training.describing import facts_of, shown_facts, with_objective
from gristmill.training.faults import device_for, memory_explained
from gristmill.training.feeds import Feeds, Scored
from gristmill.training.metrics import Metric, Metrics
from gristmill.training.models import Frame, learning_rate_of, make_model, save_model
from gristmill.training.objectives import Objective, logits_bytes_on
from gristmill.training.result import FrozenScores, Result, device_text, read_result, write_result
from gristmill.training.runfolder import MODEL, RunFolder
from gristmill.training.scoring import Score, score
from gristmill.training.settings import TrainConfig
from gristmill.training.stopping import Stop
from gristmill.training.trainer import Rhythm, WindowTrainer, arguments_for, step_of
from gristmill.training.watching import Tell, Watch

SECONDS_BETWEEN_SAVES = 60


def train(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    resume: bool = False,
    tell: Tell = lambda _: None,
    command: str = "",
    frozen: Sequence[Scored] = (),
    keep_model: bool = True,
) -> Result:
    """`frozen`: further windows that each evaluation scores, beside validation. Without a model, no score on test."""
    dataset = open_dataset(folder)
    config = with_objective(config or TrainConfig(), dataset)
    device = device_for(config)
    run = RunFolder(out)
    checkpoint = run.claim(facts_of(dataset, config, device, command), resume=resume)
    if run.is_done():
        tell(f"{printable(str(run.path))} is done already.")
        return read_result(run.path)
    with memory_explained(config), Stop() as stop:
        training = Training(dataset, run, config, device, frozen, keep_model=keep_model)
        training.learn(checkpoint, tell, stop)
        if stop.is_wanted:
            tell("stopped; the same command with --resume goes on from here.")
            raise KeyboardInterrupt
        return training.finish()


class Training:
    """One run: what is trained, on what, and what was measured."""

    def __init__(
        self,
        dataset: Dataset,
        run: RunFolder,
        config: TrainConfig,
        device: torch.device,
        frozen: Sequence[Scored],
        *,
        keep_model: bool,
    ) -> None:
        self._dataset, self._run, self._config, self._device = dataset, run, config, device
        self._frozen, self._keeps_model = frozen, keep_model
        self._frozen_scores: FrozenScores | None = None
        self._is_writer = place_of().rank == 0
        self._feeds = Feeds(dataset, config, is_fixed_width=device.type == "cuda")
        self._budget = Budget.of(config, self._feeds.num_windows, self._feeds.num_ids)
        self._definition = dataset.tokenizer.definition
        set_seed(config.seed)
        frame = Frame(int(dataset.manifest.settings["window"]["length"]), self._definition)
        self._model = make_model(config.model, config.objective or "mlm", frame)
        is_causal = config.objective == "causal"
        self._objective = Objective(self._model, is_causal=is_causal, logits_bytes=logits_bytes_on(device)).to(device)
        if device.type == "cuda" and not config.is_compiled:
            self._objective.compile_loss()
        self._saved_at = time.perf_counter()

    def learn(self, checkpoint: Path | None, tell: Tell, stop: Stop) -> None:
        """Up to the last step, or as far as it gets."""
        first = None if checkpoint is None else step_of(checkpoint)
        self._metrics = Metrics(self._run.path, up_to_step=first, is_writer=self._is_writer)
        facts = shown_facts(self._dataset, self._config, self._budget, self._model, self._device)
        tell("\n".join(f"{name:<8} {text}" for name, text in facts))
        self._watch = Watch(self._run.path, self._metrics, self._budget, facts, tell, is_writer=self._is_writer)
        rate = (
            learning_rate_of(self._config.model) if self._config.learning_rate is None else self._config.learning_rate
        )
        trainer = WindowTrainer(
            self._objective,
            arguments_for(self._config, self._budget, rate, self._run.path, self._device),
            batches=lambda step: self._feeds.batches(self._budget, step),
            on_loss=self._watch.learnt,
            on_evaluation=self._evaluate,
            callback=Rhythm(self._budget, self._is_time_to_save, lambda: stop.is_wanted),
        )
        if first is None:
            self._evaluate(0)
        self._watch.start(first or 0)
        self._last_step = trainer.run(checkpoint)

    def finish(self) -> Result:
        """The best model by validation says once what it makes of test."""
        best = self._metrics.best
        assert best is not None
        test = self._test(best) if self._keeps_model and len(self._dataset[Split.TEST]) else None
        result = Result(
            dataset=str(self._dataset.folder),
            model=self._config.model,
            objective=self._config.objective or "mlm",
            seed=self._config.seed,
            parameters=self._model.num_parameters(),
            device=device_text(self._device),
            steps=self._last_step,
            epochs=self._budget.epoch_at(self._last_step),
            tokens=self._metrics.of("train")[-1].tokens,
            seconds=self._watch.seconds,
            tokens_per_second=self._metrics.tokens_per_second,
            last=self._metrics.of("validation")[-1],
            best=best,
            test=test,
            stopped_early=self._last_step < self._budget.steps,
            frozen=self._frozen_scores,
        )
        self._watch.draw(is_running=False)
        self._watch.close()
        if self._is_writer:
            write_result(result, self._run.path)
            self._run.drop_checkpoints()
        return result

    def _evaluate(self, step: int) -> bool:
        """-> whether it is time to stop, as nothing gets better."""
        found = [self._watch.measured(step, "validation", self._score_of(Split.VALIDATION))]
        if self._frozen:
            frozen = score(self._objective, self._feeds.frozen(self._frozen), self._device, self._feeds.bytes_by_id)
            found.append(self._watch.measured(step, "frozen", frozen))
            self._frozen_scores = FrozenScores.of(frozen)
        self._watch.evaluated(step, found)
        if self._keeps_model and self._metrics.best is found[0] and self._is_writer:
            self._keep_model()
        self._watch.go_on(step)
        patience = self._config.early_stop
        return patience is not None and self._metrics.evaluations_since_best >= patience

    def _test(self, best: Metric) -> Metric:
        kept = type(self._model).from_pretrained(self._run.path / MODEL)
        self._model.load_state_dict(kept.state_dict())
        told = self._watch.measured(best.step, "test", self._score_of(Split.TEST))
        self._metrics.add(told)
        return told

    def _keep_model(self) -> None:
        target, beside = self._run.path / MODEL, self._run.path / (MODEL + ".part")
        shutil.rmtree(beside, ignore_errors=True)
        save_model(self._model, self._definition, beside)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(beside, target)

    def _score_of(self, split: Split) -> Score:
        return score(self._objective, self._feeds.held_out(split), self._device, self._feeds.bytes_by_id)

    def _is_time_to_save(self, step: int, is_evaluated: bool) -> bool:
        if self._config.save_every is not None:
            return step % self._config.save_every == 0
        if place_of().world_size > 1:  # clocks differ, and all must save together
            return is_evaluated
        is_time = is_evaluated and time.perf_counter() - self._saved_at >= SECONDS_BETWEEN_SAVES
        self._saved_at = time.perf_counter() if is_time else self._saved_at
        return is_time
