"""Training on the CPU with a tiny model: learning, resuming, scoring and error messages."""

import http.server
import io
import json
import math
import os
import pickle
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import huggingface_hub.constants
import msgspec
import numpy as np
import pytest

from gristmill import (
    Config,
    ConfigError,
    DatasetError,
    InputError,
    OutputConfig,
    OutputError,
    SamplingConfig,
    WindowConfig,
    build,
    export,
    open_dataset,
)
from gristmill.config.config import TokenizerConfig
from gristmill.config.settings import VariantsConfig
from gristmill.core.errors import TrainingError
from gristmill.dataset.token_edges import TokenProperties
from gristmill.lab.training.metrics import Metric, evaluations_without_gain, read_metrics
from gristmill.lab.training.train_config import MIN_PATIENCE, PATIENCE_SHARE, Budget, TrainConfig
from support.builds import called, refusal
from support.environment import default_signals
from support.late_imports import Late, late
from support.short_trainings import losses, metrics_without_times, small_dataset, tiny_llama
from support.source_trees import ROOT

torch = Late("torch")
AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer = late(
    "transformers", "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoTokenizer"
)
Feeds, ScoredWindow = late("gristmill.lab.training.feeds", "Feeds", "ScoredWindow")
ModelRequirements, make_model, load_weights = late(
    "gristmill.lab.training.models", "ModelRequirements", "make_model", "load_weights"
)
(Heartbeat,) = late("gristmill.lab.training.monitor", "Heartbeat")
Objective, all_targets, score, select_targets = late(
    "gristmill.lab.training.objectives", "Objective", "all_targets", "score", "select_targets"
)
Run, dataset_digest, with_objective = late("gristmill.lab.training.run", "Run", "dataset_digest", "with_objective")
(train,) = late("gristmill.lab.training.train", "train")
(result_text,) = late("gristmill.lab.training.train_result", "result_text")
(learning_rate_share,) = late("gristmill.lab.training.trainer", "learning_rate_share")


pytestmark = pytest.mark.usefixtures("short_trainings", "without_curves")


@pytest.mark.parametrize("objective", ["mlm", "causal"])
@pytest.mark.usefixtures("with_curves")
def test_training_lowers_the_loss(small, tmp_path, objective):
    config = TrainConfig(objective=objective, tokens=40_000, batch_size=16, eval_every=30)
    logged = []
    result = train(small, tmp_path / "run", config, log=logged.append)
    validation, training = losses(tmp_path / "run"), losses(tmp_path / "run", "train")
    # An untrained model gives all 500 tokens about the same probability.
    assert validation[0] == pytest.approx(math.log(500), rel=0.1)
    assert validation[-1] < validation[0] - 0.8
    assert training[-1] < training[0] - 0.2
    assert result.test.loss < validation[0] - 0.8
    assert result.best.loss == min(validation)
    assert result.tokens == pytest.approx(40_000, rel=0.02)
    assert (result.best.bits_per_byte is None) == (objective == "mlm")
    # The remaining time is logged before the first evaluation.
    first = next(number for number, line in enumerate(logged) if line.split()[1:2] == ["30"])
    (estimate,) = [line for line in logged if " left for " in line]
    assert logged.index(estimate) < first
    assert re.search(r"about \d+ (s|min) left for \d+ steps: \S+ s per step, \S+ s per evaluation; less if", estimate)


@pytest.mark.parametrize("objective", ["mlm", "causal"])
def test_eight_windows_can_be_memorized(small, tmp_path, objective):
    dataset = open_dataset(small)
    model = make_model("tiny", objective, ModelRequirements(48, dataset.tokenizer.definition))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    trained = Objective(model, is_causal=objective == "causal")
    # The first token is not scored: without the tokens before it, a model cannot distinguish the eight windows.
    windows = [ScoredWindow(np.array(row["input_ids"]), len(row["input_ids"]) - 3) for row in dataset["train"][:8]]
    feeds = Feeds(dataset, TrainConfig(objective=objective), is_fixed_width=False)
    (batch,) = feeds.frozen(windows)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(120):
        optimizer.zero_grad()
        trained(**batch).backward()
        optimizer.step()
    found = score(trained, [batch], torch.device("cpu"), None)
    assert found.loss < 0.05
    assert found.accuracy == 1


@pytest.mark.usefixtures("with_curves")
def test_resumed_run_equals_an_uninterrupted_one(small, tmp_path):
    config = TrainConfig(
        objective="mlm", tokens=9_000, batch_size=16, eval_every=4, eval_windows=16, save_every=3, seed=3
    )
    train(small, tmp_path / "uninterrupted", config)

    def crash(line):
        if line.split()[1:2] == ["8"]:
            raise RuntimeError("power failure")

    with pytest.raises(RuntimeError, match="power"):
        train(small, tmp_path / "stopped", config, log=crash)
    assert not (tmp_path / "stopped/result.json").exists()
    train(small, tmp_path / "stopped", config, resume=True)
    assert metrics_without_times(tmp_path / "stopped") == metrics_without_times(tmp_path / "uninterrupted")
    assert not (tmp_path / "stopped/checkpoints").exists()
    models = [AutoModelForMaskedLM.from_pretrained(tmp_path / name / "model") for name in ("uninterrupted", "stopped")]
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert torch.equal(one, other)


def test_resume_works_after_an_export_but_not_on_other_rows(small, tmp_path):
    dataset = shutil.copytree(small, tmp_path / "dataset")
    config = TrainConfig(objective="causal", tokens=3_000, batch_size=16, eval_every=2, save_every=2)

    def crash(line):
        if line.split()[1:2] == ["4"]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(dataset, tmp_path / "run", config, log=crash)
    export(dataset, "bin", workers=1)
    logged = []
    train(dataset, tmp_path / "run", config, resume=True, log=logged.append)
    assert "resuming after step 2" in logged
    lines = (dataset / "train.jsonl").read_bytes().splitlines(keepends=True)
    (dataset / "train.jsonl").write_bytes(b"".join([*lines[1:], lines[0]]))
    with pytest.raises(ConfigError, match="was started on a different dataset than"):
        train(dataset, tmp_path / "run", config, resume=True)


def test_dataset_digest_covers_everything_a_training_run_reads(small, tmp_path):
    """Unlike the content digest in the manifest, this digest covers weights and labels. It is the same for all formats."""
    source = {
        "sources": [str(small.parent / "code")],
        "tokenizer": TokenizerConfig(name=str(small.parent / "tokenizer.json")),
        "window": WindowConfig(length=48, overlap=16),
        "variants": VariantsConfig(rates={"noise": 0.5}),
    }
    for name, weight, formats, compress in (
        ("plain", 2.0, ["jsonl"], "none"),
        ("other weight", 3.0, ["jsonl"], "none"),
        ("compressed", 2.0, ["jsonl", "bin"], "zstd"),
        ("another format", 2.0, ["bin"], "none"),
    ):
        sampling = SamplingConfig(weights={"json/*": weight}, weights_only=True)
        output = OutputConfig(formats=formats, compress=compress)
        build(Config(**source, out=str(tmp_path / name), sampling=sampling, output=output))
    datasets = [open_dataset(path) for path in sorted(tmp_path.iterdir()) if (path / "manifest.json").is_file()]
    assert len({dataset.manifest.content_sha256 for dataset in datasets}) == 1
    digests = {dataset.folder.name: dataset_digest(dataset) for dataset in datasets}
    assert digests["plain"] == digests["compressed"] == digests["another format"] != digests["other weight"]
    path = tmp_path / "plain/train.jsonl"
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    noisy = next(row for row in rows if row["variant"] == "noise")
    noisy["labels"][3] += 1
    path.write_bytes(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows))
    assert dataset_digest(open_dataset(tmp_path / "plain")) not in digests.values()


def test_signal_stops_after_the_current_step_and_saves_it(small, tmp_path):
    config = TrainConfig(objective="causal", tokens=8_000, batch_size=16, eval_every=4, eval_windows=16)
    logged = []

    def interrupt(line):
        logged.append(line)
        if line.split()[1:2] == ["4"]:
            os.kill(os.getpid(), signal.SIGINT)

    with default_signals(), pytest.raises(KeyboardInterrupt, match="with --resume to continue"):
        train(small, tmp_path / "run", config, log=interrupt)
    assert "stopping after this step. Press Ctrl-C again to stop at once." in logged
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["checkpoint-5"]
    train(small, tmp_path / "run", config, resume=True)
    train(small, tmp_path / "uninterrupted", config)
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(tmp_path / "uninterrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ignored_signal_does_not_stop_a_training_run(small, tmp_path, number):
    """A shell script starts background commands with SIGINT ignored, so that Ctrl-C stops only the script."""
    logged = []

    def interrupt(line):
        logged.append(line)
        os.kill(os.getpid(), number)

    earlier = signal.signal(number, signal.SIG_IGN)
    try:
        result = train(
            small, tmp_path / "run", TrainConfig(objective="causal", tokens=700, batch_size=16), log=interrupt
        )
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, earlier)
    assert logged
    assert result.tokens >= 700


def test_incomplete_checkpoint_is_not_used(small, tmp_path):
    config = TrainConfig(objective="mlm", tokens=6_000, batch_size=16, eval_every=100, save_every=3)
    train(small, tmp_path / "uninterrupted", config)

    def crash(line):
        if line.split()[1:2] == [str(Budget.of(config, *sizes(small)).steps)]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(small, tmp_path / "run", config, log=crash)
    checkpoints = sorted((tmp_path / "run/checkpoints").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
    (checkpoints[-1] / "whole").unlink()
    train(small, tmp_path / "run", config, resume=True)
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(tmp_path / "uninterrupted")


@pytest.mark.parametrize("early_stop", [0, 1])
def test_run_stopped_after_its_last_evaluation_trains_no_further(small, tmp_path, early_stop, monkeypatch):
    """The run is stopped after its last evaluation, before its result is written."""
    windows = [ScoredWindow(np.array(row["input_ids"]), row["fresh"]) for row in open_dataset(small)["test"]]
    rate = 0.5 if early_stop else 1e-3
    config = TrainConfig(
        objective="causal",
        tokens=4_000,
        batch_size=16,
        eval_every=1,
        eval_windows=16,
        save_every=1,
        early_stop=early_stop,
        learning_rate=rate,
    )
    uninterrupted = train(small, tmp_path / "uninterrupted", config, frozen=windows)
    with monkeypatch.context() as patched:
        patched.setattr("gristmill.lab.training.run.Run._test", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(small, tmp_path / "run", config, frozen=windows)
    assert "_AsyncWriterThread" not in {type(thread).__name__ for thread in threading.enumerate()}, (
        "the thread of TensorBoard's writer is still running"
    )
    result = train(small, tmp_path / "run", config, resume=True, frozen=windows)
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(tmp_path / "uninterrupted")
    assert (result.steps, result.stop_reason) == (uninterrupted.steps, "no_improvement" if early_stop else "budget")
    assert result.frozen == uninterrupted.frozen
    assert result.test.loss == uninterrupted.test.loss


def test_best_model_matches_the_curve_after_resuming_from_an_earlier_step(small, tmp_path):
    """The saved model is from a later step than the checkpoint."""
    config = TrainConfig(objective="mlm", tokens=8_000, batch_size=16, eval_every=2, eval_windows=16, save_every=4)

    def crash(line):
        if line.split()[1:2] == ["6"]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(small, tmp_path / "run", config, log=crash)
    shutil.rmtree(tmp_path / "run/model")  # as if the run was killed while replacing the model
    train(small, tmp_path / "run", config, resume=True)
    train(small, tmp_path / "uninterrupted", config)
    assert metrics_without_times(tmp_path / "run") == metrics_without_times(tmp_path / "uninterrupted")


def test_two_processes_train_like_one(tmp_path):
    """Start two processes with torchrun's launcher, as forks of a process that has loaded PyTorch.

    The last step has a single window, which two processes cannot share.
    """
    small = small_dataset(tmp_path, sampling=SamplingConfig(target_windows=161))
    num_windows, batch_size = sizes(small)[0], 16
    assert num_windows % batch_size == 1
    model = tiny_llama(tmp_path / "llama", small)
    code = """
        import sys
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch
        import gristmill.lab.training.train
        from gristmill.cli import main
        rendezvous = {"rdzv_backend": "static", "rdzv_endpoint": sys.argv[1], "rdzv_configs": {"rank": 0, "timeout": 100}}
        two = LaunchConfig(1, 1, nproc_per_node=2, start_method="fork", **rendezvous)
        assert elastic_launch(two, main.run)(sys.argv[2:]) == {0: 0, 1: 0}
    """
    start = [sys.executable, "-c", textwrap.dedent(code), f"127.0.0.1:{free_port()}"]
    words = ["train", small, "--out", tmp_path / "two", "--objective", "causal", "--model", model]
    options = ["--batch-size", "8", "--accumulate", "2", "--epochs", "1", "--eval-every", "99", "--lr", "1e-3"]
    done = subprocess.run(
        [*start, *map(str, words), *options, "--device", "cpu"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("trained ") == 1
    assert "Warning" not in done.stderr
    lines = read_metrics(tmp_path / "two")
    assert [line.step for line in lines if line.split == "validation"] == [0, math.ceil(num_windows / batch_size)]
    budget = {"tokens": sizes(small)[1], "batch_size": batch_size, "eval_every": 99, "learning_rate": 1e-3}
    train(small, tmp_path / "one", TrainConfig(objective="causal", model=str(model), **budget))
    for split in ("train", "validation"):
        assert losses(tmp_path / "two", split) == pytest.approx(losses(tmp_path / "one", split), rel=1e-5)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def sizes(folder):
    facts = open_dataset(folder).manifest.splits["train"]
    return facts.windows, facts.emitted_tokens


@pytest.mark.parametrize(
    "output", [OutputConfig(formats=["parquet"]), OutputConfig(compress="zstd")], ids=["parquet", "zstd"]
)
def test_test_split_is_scored_after_the_dataset_was_rebuilt(tmp_path, output):
    """Training reads the test split only after the last step."""
    folder = small_dataset(tmp_path, output=output)
    num_windows = len(open_dataset(folder)["test"])
    feeds = Feeds(open_dataset(folder), TrainConfig(objective="causal"), is_fixed_width=False)
    feeds.held_out("validation")
    (tmp_path / "code/json/new.py").write_text("x = 1\n" * 900)
    build(Config(sources=[str(tmp_path / "code")], out=str(folder), output=output))
    assert sum(len(batch["input_ids"]) for batch in feeds.held_out("test")) == num_windows > 0


def test_bits_per_byte_match_a_manual_computation(small):
    """A model with zero weights gives every token the same probability, which costs log2(vocabulary size) bits."""
    dataset = open_dataset(small)
    model = make_model("tiny", "causal", ModelRequirements(48, dataset.tokenizer.definition))
    for weights in model.parameters():
        torch.nn.init.zeros_(weights)
    feeds = Feeds(dataset, TrainConfig(objective="causal"), is_fixed_width=False)
    found = score(
        Objective(model, is_causal=True), feeds.held_out("validation"), torch.device("cpu"), feeds.bytes_by_id
    )
    files = [json.loads(line) for line in (small / "files.jsonl").read_bytes().splitlines()]
    held_out = [row for row in files if row["status"] == "kept" and row["split"] == "validation"]
    num_tokens = sum(row["tokens"] - row["cut_tokens"] for row in held_out)
    fresh_ids = [row["input_ids"][-1 - row["fresh"] : -1] for row in dataset["validation"]]
    num_bytes = sum(len(dataset.tokenizer.decode(ids)) for ids in fresh_ids)
    assert found.num_tokens.sum() == num_tokens == dataset.manifest.splits["validation"].tokens
    assert found.bits_per_byte == pytest.approx(num_tokens * math.log2(model.config.vocab_size) / num_bytes, rel=1e-6)
    if not any(row["cut_tokens"] for row in held_out):
        assert num_bytes == sum(row["bytes"] for row in held_out)


@pytest.mark.parametrize("objective", ["mlm", "causal"])
def test_scores_match_the_plain_model(small, objective):
    """The reference scores one window at a time, and computes the logits of all positions at once."""
    dataset = open_dataset(small)
    torch.manual_seed(0)
    model = make_model("tiny", objective, ModelRequirements(48, dataset.tokenizer.definition)).eval()
    feeds = Feeds(dataset, TrainConfig(objective=objective), is_fixed_width=False)
    found = score(
        Objective(model, is_causal=objective == "causal", max_logits_bytes=1 << 16),
        feeds.held_out("test"),
        torch.device("cpu"),
        None,
    )
    model.eval()
    collate = feeds._make_collator(fresh_only=True, seed=0)._collate
    windows = dataset.torch("test", shuffle=False)
    for number, draw in enumerate(windows.order.draws(0, range(min(20, len(windows))))):
        batch = collate([windows[draw]])
        with torch.no_grad():
            log_probabilities = model(input_ids=batch["input_ids"]).logits[0].log_softmax(-1)
        labels = batch["labels"][0]
        positions = [at for at in range(len(labels)) if labels[at] != -100]
        scores = [log_probabilities[at - 1 if objective == "causal" else at, labels[at]] for at in positions]
        assert found.num_tokens[number] == len(positions)
        assert found.nats[number] == pytest.approx(-float(sum(scores)), rel=1e-4, abs=1e-4)


def test_loss_computed_in_parts_equals_the_complete_loss(small):
    dataset = open_dataset(small)
    torch.manual_seed(0)
    model = make_model("tiny", "causal", ModelRequirements(48, dataset.tokenizer.definition)).eval()
    feeds = Feeds(dataset, TrainConfig(objective="causal", batch_size=8), is_fixed_width=False)
    batch = next(iter(feeds.batches(Budget.of(TrainConfig(epochs=1, batch_size=8), *sizes(small)), 0)))
    gradients = []
    for max_logits_bytes in (1 << 30, 1 << 14):
        model.zero_grad()
        loss = Objective(model, is_causal=True, max_logits_bytes=max_logits_bytes)(**batch)
        loss.backward()
        gradients.append((loss.detach(), model.transformer.wte.weight.grad.clone()))
    assert torch.allclose(gradients[0][0], gradients[1][0])
    assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-6)
    plain_loss = model(input_ids=batch["input_ids"], labels=labels_of(batch)).loss.detach()
    assert gradients[0][0] == pytest.approx(float(plain_loss), rel=1e-5)


def labels_of(batch):
    """Return the labels as transformers expects them: each at the position of its own token."""
    targets = batch["tokens"].view(batch["input_ids"].shape)
    return torch.nn.functional.pad(targets[:, :-1], (1, 0), value=-100)


def test_targets_select_the_predicted_positions():
    labels = torch.tensor([[-100, 5, -100, 7, -100, -100, -100, -100], [-100, -100, 9, -100, -100, -100, -100, -100]])
    masked, causal = select_targets(labels, is_causal=False), select_targets(labels, is_causal=True)
    assert [(int(at), int(token)) for at, token in zip(*masked, strict=True) if token != -100] == [
        (1, 5),
        (3, 7),
        (10, 9),
    ]
    assert [(int(at), int(token)) for at, token in zip(*causal, strict=True) if token != -100] == [
        (0, 5),
        (2, 7),
        (9, 9),
    ]
    assert len(set(masked.positions.tolist())) == len(masked.positions)
    assert all_targets(labels).tokens.tolist() == [5, -100, 7, -100, -100, -100, -100, -100, -100, 9] + [-100] * 6


@pytest.mark.parametrize(
    ("config", "steps", "epochs"),
    [
        (TrainConfig(epochs=3, batch_size=32), 10, 3),
        (TrainConfig(epochs=0.5, batch_size=32), 2, 0.64),
        (TrainConfig(tokens=1000, batch_size=10), 1, 0.1),
        (TrainConfig(batch_size=100), 200, 200),
        (TrainConfig(epochs=20, batch_size=30), 67, 20),
        (TrainConfig(epochs=20, batch_size=250), 8, 20),
        (TrainConfig(epochs=20.5, batch_size=30), 69, 20.7),
        (TrainConfig(epochs=20, batch_size=30, eval_every=7), 67, 20),
    ],
)
def test_budget_is_converted_to_steps(config, steps, epochs):
    budget = Budget.of(config, 100, 10_000)
    assert (budget.steps, budget.epochs) == (steps, epochs)
    assert budget.is_evaluated_at(steps)
    assert budget.num_evaluations == sum(map(budget.is_evaluated_at, range(1, steps + 1)))


def test_learning_rate_rises_from_the_first_step_and_decays_to_a_tenth():
    shares = [learning_rate_share(step, warmup=5, steps=100) for step in range(100)]
    assert shares[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert shares[5:] == sorted(shares[5:], reverse=True)
    assert shares[-1] == pytest.approx(0.1, abs=0.001)


def test_eval_windows_are_spread_evenly_over_validation(small, tmp_path):
    dataset = open_dataset(small)
    complete, part = (
        Feeds(dataset, TrainConfig(objective="causal", eval_windows=count), is_fixed_width=False)
        for count in (None, 20)
    )
    rows = [
        batch["input_ids"][number]
        for batch in complete.held_out("validation")
        for number in range(len(batch["input_ids"]))
    ]
    chosen = [
        batch["input_ids"][number] for batch in part.held_out("validation") for number in range(len(batch["input_ids"]))
    ]
    assert len(chosen) == 20
    for number, window in enumerate(chosen):
        assert torch.equal(window[:20], rows[number * len(rows) // 20][:20])
    assert len(part.held_out("test")) == len(complete.held_out("test"))


def test_heartbeat_logs_during_long_scoring(monkeypatch):
    logged = []
    monkeypatch.setattr("gristmill.lab.training.monitor.SECONDS_BETWEEN_BEATS", 0)
    assert list(Heartbeat(logged.append).over("ab", "scoring: batch")) == ["a", "b"]
    assert [line.strip() for line in logged] == ["scoring: batch 1 of 2", "scoring: batch 2 of 2"]


def test_recorded_seconds_never_decrease(small, tmp_path):
    train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=2_000, batch_size=16, eval_every=1))
    seconds = [line.seconds for line in read_metrics(tmp_path / "run")]
    assert seconds == sorted(seconds)


def test_evaluations_follow_each_epoch_or_a_number_of_steps():
    budget = Budget.of(TrainConfig(epochs=20, batch_size=30), 100, 10_000)
    evaluated = [step for step in range(1, budget.steps + 1) if budget.is_evaluated_at(step)]
    assert len(evaluated) == 20
    assert [int(budget.epoch_at(step)) for step in evaluated] == list(range(1, 21))
    every = Budget.of(TrainConfig(epochs=20, batch_size=30, eval_every=7), 100, 10_000)
    assert [step for step in range(1, 15) if every.is_evaluated_at(step)] == [7, 14]


@pytest.mark.parametrize("objective", ["mlm", "causal"])
def test_saved_model_loads_with_transformers(small, tmp_path, objective):
    result = train(small, tmp_path / "run", TrainConfig(objective=objective, tokens=4_000, batch_size=16, eval_every=9))
    auto = AutoModelForCausalLM if objective == "causal" else AutoModelForMaskedLM
    model = auto.from_pretrained(tmp_path / "run/model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run/model")
    assert tokenizer.model_max_length == 48
    assert tokenizer("def f(): pass")["input_ids"] == [
        0,
        *open_dataset(small).tokenizer.encode(b"def f(): pass").ids.tolist(),
        2,
    ]
    feeds = Feeds(open_dataset(small), TrainConfig(objective=objective), is_fixed_width=False)
    again = score(Objective(model, is_causal=objective == "causal"), feeds.held_out("test"), torch.device("cpu"), None)
    assert again.loss == pytest.approx(result.test.loss, rel=1e-6)


def test_training_starts_from_a_pretrained_model(small, tmp_path):
    train(small, tmp_path / "first", TrainConfig(objective="mlm", tokens=10_000, batch_size=16, eval_every=8))
    second = TrainConfig(objective="mlm", model=str(tmp_path / "first/model"), tokens=800, batch_size=16)
    train(small, tmp_path / "second", second)
    assert losses(tmp_path / "second")[0] == pytest.approx(min(losses(tmp_path / "first")), rel=1e-6)


def test_training_stops_early_without_improvement(small, tmp_path):
    config = TrainConfig(
        objective="mlm", tokens=100_000, batch_size=16, eval_every=1, eval_windows=16, early_stop=4, learning_rate=0.5
    )
    result = train(small, tmp_path / "run", config)
    found, budget = losses(tmp_path / "run"), Budget.of(config, *sizes(small))
    assert budget.warmup_steps + 4 <= result.steps < budget.steps / 2
    assert min(found[-4:]) > 0.999 * min(found[:-4])
    assert result.best.loss == min(found)
    reasons = [line.stop_reason for line in read_metrics(tmp_path / "run") if line.split == "validation"]
    assert reasons == [None] * (len(found) - 1) + ["no_improvement"]
    text = result_text(result, "run")
    assert "stopped  the validation loss no longer improved; --no-early-stop uses the complete budget" in text
    assert f"at epoch {result.best.epoch:.4g}: this model was saved" in text

    def crash(line):
        if line.split()[1:2] == [str(result.steps - 1)]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(small, tmp_path / "again", msgspec.structs.replace(config, save_every=1), log=crash)
    assert train(small, tmp_path / "again", config, resume=True).steps == result.steps
    assert metrics_without_times(tmp_path / "again") == metrics_without_times(tmp_path / "run")


def evaluations(*values, tokens=None):
    return [
        Metric(step=at, epoch=at, tokens=at, seconds=0, split="validation", loss=value)
        for at, value in zip(tokens or range(len(values)), values, strict=True)
    ]


def test_small_decreases_add_up_to_a_gain_and_the_warm_up_does_not_count():
    assert evaluations_without_gain(evaluations(5, 4, 3), 0) == 0
    assert evaluations_without_gain(evaluations(5, 3, 4, 3), 0) == 2
    assert evaluations_without_gain(evaluations(5, 3, 2.999, 2.998, 2.9975), 0) == 3
    assert evaluations_without_gain(evaluations(5, 3, 2.999, 2.998, 2.996), 0) == 0
    assert evaluations_without_gain(evaluations(5, 5, 5, 5, 5), 3) == 1
    assert evaluations_without_gain(evaluations(5, math.nan, math.nan), 0) == 2


@pytest.mark.parametrize(
    ("settings", "patience"),
    [({}, 20), ({"epochs": 20}, 10), ({"epochs": 3}, 10), ({"early_stop": 7}, 7), ({"early_stop": 0}, None)],
)
def test_patience_is_a_tenth_of_all_evaluations_but_at_least_ten(settings, patience):
    assert Budget.of(TrainConfig(batch_size=50, **settings), 100, 10_000).patience == patience


def recorded_runs():
    """Yield the runs of benchmarks/training, each with 41 to 43 evaluations over 100 to 400 epochs."""
    for path in sorted((ROOT / "benchmarks/training").glob("*.json")):
        yield from json.loads(path.read_text())["runs"]


@pytest.mark.parametrize("patience", [MIN_PATIENCE, math.ceil(PATIENCE_SHARE * 42)])
def test_early_stopping_loses_no_best_model_on_recorded_curves(patience):
    """Runs on copies or leaked files improve to the end and do not stop. All other runs stop after their best model."""
    num_stopped = 0
    for run in recorded_runs():
        tokens, values, _ = zip(*run["curve"], strict=True)
        lines = evaluations(*values, tokens=tokens)
        is_over = [evaluations_without_gain(lines[:end], tokens[-1] // 20) >= patience for end in range(1, len(values))]
        assert (True in is_over) == (run["dataset"] not in {"copies", "src-copies", "leaky"})
        if True in is_over:
            until_stop = values[: is_over.index(True) + 1]
            assert len(until_stop) < 0.65 * len(values)
            assert min(until_stop) == min(values)
            num_stopped += 1
    assert num_stopped == 24


@pytest.mark.usefixtures("with_curves")
def test_curves_are_readable_during_training(small, tmp_path):
    refreshes = []

    def read_page(line):
        page = tmp_path / "run/curves.html"
        if page.exists():
            refreshes.append('http-equiv="refresh"' in page.read_text())

    train(
        small,
        tmp_path / "run",
        TrainConfig(objective="causal", tokens=6_000, batch_size=16, eval_every=4),
        log=read_page,
    )
    assert refreshes
    assert all(refreshes)
    page = (tmp_path / "run/curves.html").read_text()
    assert 'http-equiv="refresh"' not in page
    assert "Bits per byte" in page
    ET.fromstring((tmp_path / "run/curves.svg").read_text())


@pytest.mark.usefixtures("with_curves")
def test_training_without_matplotlib_logs_the_install_command(small, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ("train", small, "--out", tmp_path / "run", "--objective", "causal", "--tokens", "1e3")
    done = called(*words)
    assert done.returncode == 0
    missing = "no curves: drawing curves needs matplotlib: pip install 'gristmill[train]'."
    assert [line for line in done.stderr.splitlines() if "pip install" in line] == [missing]
    assert losses(tmp_path / "run")
    assert (tmp_path / "run/result.json").exists()
    assert not list((tmp_path / "run").glob("curves*"))


def test_tensorboard_events_match_the_metrics(small, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(small, tmp_path / "run", TrainConfig(objective="causal", tokens=3_000, batch_size=16, eval_every=2))
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    recorded = [(event.step, event.value) for event in events.Scalars("loss/validation")]
    lines = [line for line in read_metrics(tmp_path / "run") if line.split == "validation"]
    assert [step for step, _ in recorded] == [line.step for line in lines]
    assert [loss for _, loss in recorded] == pytest.approx([line.loss for line in lines])


class ModelHub(http.server.ThreadingHTTPServer):
    """Fake Hub that serves the files of one model, with the headers that the client needs."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), HubAnswer)
        self.folder = folder


class HubAnswer(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(with_content=False)

    def do_GET(self):
        self.answer(with_content=True)

    def answer(self, *, with_content):
        repo, _, rest = self.path.strip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        path = self.server.folder / file
        is_found = (repo, revision) in {("org/model", "main"), ("gpt2", "c" * 40), ("gpt2", "v1")} and path.is_file()
        content = path.read_bytes() if is_found else b""
        self.send_response(200 if is_found else 404)
        for name, value in {
            "ETag": f'"{file}"',
            "X-Repo-Commit": "c" * 40,
            "X-Error-Code": "" if is_found else "EntryNotFound",
            "Content-Length": str(len(content)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(content)


def test_model_is_downloaded_from_the_hub(small, tmp_path, stopped, monkeypatch):
    server = ModelHub(stopped / "model")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DISABLE_SAFETENSORS_CONVERSION", "1")
    for name, value in {  # huggingface_hub reads the environment only when it is imported
        "ENDPOINT": address,
        "HUGGINGFACE_CO_URL_TEMPLATE": address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "home/hub"),
        "HF_HUB_DISABLE_TELEMETRY": True,
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    try:
        for number, name in enumerate(("org/model", "gpt2@v1")):
            folder = tmp_path / str(number)
            done = called("train", small, "--out", folder, "--model", name, "--tokens", "1e3", "--json")
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["model"] == name
            assert losses(folder)[0] == pytest.approx(losses(stopped)[1], rel=1e-6)
    finally:
        server.shutdown()
        server.server_close()
    cached = {
        path.parent.parent.parent.name for path in (tmp_path / "home/hub").glob("*/snapshots/*/model.safetensors")
    }
    assert cached == {"models--org--model", "models--gpt2"}


def test_curve_depends_only_on_the_seed(small, tmp_path):
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        config = TrainConfig(objective="causal", tokens=4_000, batch_size=16, seed=seed, eval_every=4, eval_windows=16)
        train(small, tmp_path / name, config)
    assert metrics_without_times(tmp_path / "one") == metrics_without_times(tmp_path / "again")
    assert losses(tmp_path / "one") != losses(tmp_path / "other")


def test_number_of_workers_does_not_change_the_curve(small, tmp_path):
    for workers in (0, 2):
        config = TrainConfig(objective="mlm", tokens=4_000, batch_size=16, workers=workers, eval_every=4)
        train(small, tmp_path / str(workers), config)
    assert metrics_without_times(tmp_path / "0") == metrics_without_times(tmp_path / "2")


def test_noisy_rows_are_excluded_from_training(small, tmp_path, tree):
    code = tree(
        {
            f"{name}.py": f"def {name}(value):\n    return value * {number}\n" * 30
            for number, name in enumerate("abcdefgh")
        }
    )
    build(
        Config(
            sources=[str(code)],
            out=str(tmp_path / "noisy"),
            tokenizer=TokenizerConfig(name=str(small.parent / "tokenizer.json")),
            window=WindowConfig(length=48, overlap=16),
            variants=VariantsConfig(rates={"noise": 1.0}),
        )
    )
    dataset = open_dataset(tmp_path / "noisy")
    clean = [row for row in dataset["train"] if row["variant"] != "noise"]
    assert len(clean) < len(dataset["train"])
    feeds = Feeds(dataset, TrainConfig(objective="mlm"), is_fixed_width=False)
    assert feeds.num_windows == len(clean)
    assert feeds.num_ids == sum(len(row["input_ids"]) for row in clean)


# Code in untrusted folders is never run.


class Bomb:
    """Object that creates a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def bombs(marker):
    """Return a bomb as a torch file and as a pickle."""
    stream = io.BytesIO()
    torch.save({"state": Bomb(marker)}, stream)
    return [stream.getvalue(), pickle.dumps(Bomb(marker))]


def test_pickle_bomb_runs_when_unpickled(tmp_path):
    for number, bomb in enumerate(bombs(tmp_path / "marker")):
        load = [lambda stream: torch.load(stream, weights_only=False), pickle.load][number]
        load(io.BytesIO(bomb))
        (tmp_path / "marker").rmdir()


@pytest.fixture(scope="module")
def stopped(small, tmp_path_factory):
    """Folder of a training run of 3 steps that was stopped after the second step."""
    folder = tmp_path_factory.mktemp("stopped") / "run"

    def crash(line):
        if line.split()[1:2] == ["2"]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(small, folder, STOPPED, log=crash)
    return folder


STOPPED = TrainConfig(objective="mlm", tokens=2_200, batch_size=16, eval_every=1, save_every=1)


def with_parts(stopped, folder, parts):
    """Copy a run and write files to its checkpoint, which is then marked as complete again."""
    shutil.copytree(stopped, folder)
    (checkpoint,) = (folder / "checkpoints").iterdir()
    sizes = json.loads((checkpoint / "whole").read_text())
    for name, content in parts.items():
        (checkpoint / name).unlink(missing_ok=True)
        (checkpoint / name).write_bytes(content)
        sizes[name] = len(content)
    (checkpoint / "whole").write_text(json.dumps(sizes))
    return folder


@pytest.mark.parametrize("form", [0, 1], ids=["torch", "pickle"])
def test_checkpoint_is_never_unpickled(small, tmp_path, stopped, form):
    bomb = bombs(tmp_path / "marker")[form]
    for part in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "losses.safetensors", "model.safetensors"):
        folder = with_parts(stopped, tmp_path / part, {part: bomb})
        with pytest.raises(DatasetError, match=r"^the checkpoint .*checkpoint-1' cannot be read: [^\n]*Delete it"):
            train(small, folder, STOPPED, resume=True)
    unread = ("training_args.bin", "scaler.pt", "pytorch_model.bin", "losses.pt", "optimizer.bin", "rng_state_0.pth")
    folder = with_parts(stopped, tmp_path / "unread", dict.fromkeys(unread, bomb))
    assert train(small, folder, STOPPED, resume=True).steps == 3
    assert not (tmp_path / "marker").exists()


def test_model_is_loaded_from_safetensors_only(small, tmp_path, stopped):
    needs = ModelRequirements(48, open_dataset(small).tokenizer.definition)
    folder = shutil.copytree(stopped / "model", tmp_path / "model")
    assert make_model(str(folder), "mlm", needs)
    (folder / "model.safetensors").unlink()
    plain_pickle = io.BytesIO()
    torch.save(make_model("tiny", "mlm", needs).state_dict(), plain_pickle)
    for weights in (plain_pickle.getvalue(), *bombs(tmp_path / "marker")):
        (folder / "pytorch_model.bin").write_bytes(weights)
        with pytest.raises(InputError, match="cannot load the model"):
            make_model(str(folder), "mlm", needs)
        with pytest.raises(OSError, match="safetensors"):
            load_weights(make_model("tiny", "mlm", needs), folder)
    assert not (tmp_path / "marker").exists()


def test_code_in_a_model_folder_is_not_run(small, tmp_path, stopped, monkeypatch):
    """The user is not asked for permission either. If asked, standard input would answer yes."""
    folder = shutil.copytree(stopped / "model", tmp_path / "model")
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'marker')!r})\nclass Evil: pass\n")
    (folder / "custom_generate").mkdir()
    shutil.copyfile(folder / "evil.py", folder / "custom_generate/generate.py")
    settings = json.loads((folder / "config.json").read_text())
    settings["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModelForMaskedLM": "evil.Evil"}
    settings["attn_implementation"] = settings["experts_implementation"] = "evil/kernel"
    for kind in ("evil", settings["model_type"]):
        (folder / "config.json").write_text(json.dumps({**settings, "model_type": kind}))
        monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\n"))
        words = ("train", small, "--out", tmp_path / kind, "--model", folder, "--objective", "mlm")
        done = called(*words, "--tokens", "700", "--batch-size", "16", "--quiet")
        assert not (tmp_path / "marker").exists()
        if kind == "evil":
            assert refusal(done)[0] == InputError.exit_code
            assert "contains custom code" in done.stderr
        else:
            assert (done.returncode, done.stderr) == (0, "")


# Failures are reported in one line.


@pytest.mark.usefixtures("with_curves")
def test_nan_loss_ends_the_run(small, tmp_path):
    config = TrainConfig(objective="mlm", tokens=60_000, batch_size=16, model=str(broken_model(small, tmp_path)))
    with pytest.raises(TrainingError, match=r"not finite at step 1: .*--learning-rate"):
        train(small, tmp_path / "run", config)


def broken_model(small, tmp_path):
    train(small, tmp_path / "before", TrainConfig(objective="mlm", tokens=500, batch_size=16))
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "before/model")
    torch.nn.init.constant_(model.lm_head.dense.weight, math.nan)
    folder = tmp_path / "before/model"
    model.save_pretrained(folder)
    return folder


def test_out_of_memory_error_suggests_a_smaller_batch(small, tmp_path, monkeypatch):
    """The model allocates more memory than any machine has."""
    config = TrainConfig(objective="mlm", tokens=60_000, batch_size=16)
    hidden = Objective._hidden_states

    def greedy(self, *arguments):
        torch.empty(1 << 50, dtype=torch.float64)
        return hidden(self, *arguments)

    monkeypatch.setattr("gristmill.lab.training.objectives.Objective._hidden_states", greedy)
    with pytest.raises(
        TrainingError, match=r"does not fit into memory\. Try --batch-size 8 --accumulate 2, or use a smaller --model\."
    ):
        train(small, tmp_path / "run", config)


def test_missing_gpu_is_reported(small, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("a GPU is available")
    with pytest.raises(ConfigError, match=r"no GPU found: .* Leave out --device cuda"):
        train(small, tmp_path / "run", TrainConfig(device="cuda"))


def test_model_with_a_different_tokenizer_is_rejected(small, tmp_path, built):
    train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=500, batch_size=16))
    with pytest.raises(
        ConfigError,
        match=r"tokenizer 'codebert' \(50,265 ids\), but the model .* has a different tokenizer \(500 ids\)",
    ):
        train(built[0], tmp_path / "other", TrainConfig(model=str(tmp_path / "run/model")))
    (tmp_path / "run/model/tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer in its folder"):
        train(built[0], tmp_path / "another", TrainConfig(model=str(tmp_path / "run/model")))


def test_windows_too_long_for_the_model_are_rejected(small, tmp_path):
    train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=500, batch_size=16))
    config = Config(
        sources=[str(small.parent / "code")],
        out=str(tmp_path / "longer"),
        tokenizer=TokenizerConfig(name=str(small.parent / "tokenizer.json")),
        window=WindowConfig(length=64, overlap=16),
    )
    build(config)
    with pytest.raises(
        ConfigError,
        match=r"takes up to 48 ids, but the dataset's windows have 64 ids\. Build the dataset with --window 48",
    ):
        train(tmp_path / "longer", tmp_path / "other", TrainConfig(objective="mlm", model=str(tmp_path / "run/model")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 2, "tokens": 5}, "--epochs 2 and --tokens 5 are both given"),
        ({"epochs": 0}, "--epochs must be above 0"),
        ({"batch_size": 0}, "--batch-size must be at least 1"),
        ({"mask_rate": 1.0}, "--mask-rate must be from 0.01 to 0.9"),
        ({"learning_rate": 2}, "--learning-rate must be above 0"),
        ({"objective": "seq2seq"}, "objective"),
        ({"seed": -1}, "--seed must be at least 0"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)


def test_unknown_model_is_rejected(small, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"no model '\./huge' found\. Use tiny, small, base, a folder, or a Hub id"):
        train(small, tmp_path / "run", TrainConfig(model="./huge"))
    server = ModelHub(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    missing = (
        r"the model 'huge' is neither one of tiny, small, base nor a folder, and its tokenizer cannot be loaded: "
        r"http://127\S+ has no tokenizer 'huge'"
    )
    with pytest.raises(InputError, match=missing):
        train(small, tmp_path / "run", TrainConfig(model="huge"))
    server.shutdown()
    server.server_close()


def test_failed_start_does_not_occupy_the_folder(small, tmp_path):
    with pytest.raises(ConfigError, match=r"no model '\./huge' found"):
        train(small, tmp_path / "run", TrainConfig(model="./huge"))
    assert not (tmp_path / "run").exists()

    def crash(line):
        if line.split()[1:2] == ["0"]:
            raise MemoryError

    with pytest.raises(TrainingError, match="Try --batch-size 32"):
        train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=500, batch_size=64), log=crash)
    train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=500, batch_size=32))


def test_damaged_model_is_reported(small, tmp_path):
    train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=500, batch_size=16))
    weights = tmp_path / "run/model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(InputError, match="cannot load the model"):
        train(small, tmp_path / "other", TrainConfig(objective="mlm", model=str(tmp_path / "run/model")))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "generation_config.json"])
def test_fifo_in_a_model_folder_is_rejected(small, tmp_path, name):
    model = tmp_path / "model"
    model.mkdir()
    for one in ("tokenizer.json", "tokenizer_config.json"):
        (model / one).write_bytes((small / one).read_bytes())
    os.mkfifo(model / name)
    with pytest.raises(InputError, match="not a regular file"):
        train(small, tmp_path / "run", TrainConfig(objective="mlm", model=str(model)))


def test_existing_folder_is_never_overwritten(small, tmp_path):
    config = TrainConfig(objective="mlm", tokens=500, batch_size=16)
    train(small, tmp_path / "run", config)
    with pytest.raises(OutputError, match="contains a finished training run"):
        train(small, tmp_path / "run", config)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="is not empty and contains no training run"):
        train(small, tmp_path / "mine", config)
    with pytest.raises(ConfigError, match="no training run to resume"):
        train(small, tmp_path / "new", config, resume=True)
    with pytest.raises(ConfigError, match="was started with --tokens 500, but would be resumed with --tokens 600"):
        train(small, tmp_path / "run", TrainConfig(objective="mlm", tokens=600, batch_size=16), resume=True)
    result = train(small, tmp_path / "run", config, resume=True)
    assert result.steps == 1


@pytest.mark.parametrize("words", [("train", "none"), ("compare", "none", "none"), ("compare", ".", "--test", "none")])
def test_missing_dataset_is_reported_before_pytorch_loads(small, words):
    code = """
        import sys
        from gristmill.cli import main
        code = main.run([*sys.argv[1:], "--out", "run"])
        assert not {"torch", "transformers"} & {*sys.modules}
        sys.exit(code)
    """
    start = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run([*start, *words], cwd=small, capture_output=True, text=True, timeout=100, check=False)
    assert refusal(done) == (DatasetError.exit_code, "'none' is not a dataset: there is no such folder.")
    assert not (small / "run").exists()


def test_dataset_without_validation_is_rejected(small, tmp_path, tree):
    code = tree({"a.py": "x = 1\n" * 50})
    build(Config(sources=[str(code)], out=str(tmp_path / "one")))
    with pytest.raises(DatasetError, match="has no windows in validation"):
        train(tmp_path / "one", tmp_path / "run")


@pytest.mark.parametrize(("preset", "objective"), [(None, "mlm"), ("mlm", "mlm"), ("causal", "causal")])
def test_preset_of_the_dataset_decides_the_objective(tmp_path, tree, preset, objective):
    code = tree({f"{name}.py": f"{name} = {number}\n" * 30 for number, name in enumerate("abcdefghijkl")})
    window = WindowConfig(length=32, pack="none")
    build(Config(sources=[str(code)], out=str(tmp_path / "dataset"), preset=preset, window=window))
    chosen = with_objective(TrainConfig(), open_dataset(tmp_path / "dataset"))
    assert chosen.objective == objective


def test_tokenizer_without_mask_token_trains_causally(tmp_path, tree):
    from support.trained_tokenizers import byte_level

    (tmp_path / "tokenizer.json").write_text(byte_level())
    code = tree(
        {
            f"{name}.py": f"def {name}(value):\n    return value * {number}\n" * 20
            for number, name in enumerate("abcdefghijkl")
        }
    )
    build(
        Config(
            sources=[str(code)],
            out=str(tmp_path / "dataset"),
            tokenizer=TokenizerConfig(name=str(tmp_path / "tokenizer.json")),
            window=WindowConfig(length=32, overlap=8, pack="none"),
        )
    )
    result = train(tmp_path / "dataset", tmp_path / "run", TrainConfig(tokens=2_000, batch_size=8))
    assert result.objective == "causal"
    # The first token of a file has no context, so it is not predicted. The end token is predicted.
    dataset = open_dataset(tmp_path / "dataset")
    feeds = Feeds(dataset, TrainConfig(objective="causal"), is_fixed_width=False)
    model = make_model("tiny", "causal", ModelRequirements(32, dataset.tokenizer.definition))
    found = score(
        Objective(model, is_causal=True), feeds.held_out("validation"), torch.device("cpu"), feeds.bytes_by_id
    )
    facts = dataset.manifest.splits["validation"]
    assert dataset.manifest.tokenizer.closing
    assert found.num_tokens.sum() == facts.tokens - facts.files + facts.files
    # The end token represents no bytes.
    files = [json.loads(line) for line in (tmp_path / "dataset/files.jsonl").read_bytes().splitlines()]
    held_out = [row for row in files if row["status"] == "kept" and row["split"] == "validation"]
    firsts = [row["input_ids"][:1] for row in dataset["validation"] if row["start"] == 0]
    num_first_bytes = sum(len(dataset.tokenizer.decode(ids)) for ids in firsts)
    assert found.num_bytes.sum() == sum(row["bytes"] for row in held_out) - num_first_bytes
    with pytest.raises(ConfigError, match="has no mask token"):
        train(tmp_path / "dataset", tmp_path / "masked", TrainConfig(objective="mlm", tokens=2_000))


def test_token_lengths_add_up_to_the_text(small):
    tokenizer = open_dataset(small).tokenizer
    text = Path(__file__).read_bytes()
    assert TokenProperties.of(tokenizer).num_bytes[tokenizer.encode(text).ids].sum() == len(text)


@pytest.mark.parametrize("part", ["optimizer.pt", "rng_state.pth", "model.safetensors"])
def test_checkpoint_with_a_missing_file_is_skipped(small, tmp_path, part):
    config = TrainConfig(objective="mlm", tokens=8_000, batch_size=16, eval_every=3, eval_windows=16, save_every=3)

    def crash(line):
        if line.split()[1:2] == ["9"]:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(small, tmp_path / "run", config, log=crash)
    (tmp_path / "run/checkpoints/checkpoint-6" / part).unlink()
    (tmp_path / "run/metrics.jsonl").unlink()
    logged = []
    train(small, tmp_path / "run", config, resume=True, log=logged.append)
    assert "resuming after step 3" in logged
    steps = [line.step for line in read_metrics(tmp_path / "run") if line.split == "validation"]
    assert steps == sorted(set(steps))
    assert steps[:4] == [0, 3, 6, 9]


def test_second_training_run_in_the_same_folder_is_rejected(small, tmp_path):
    config = TrainConfig(objective="mlm", tokens=2_000, batch_size=16)
    rejected = []

    def train_again(line):
        if line.split()[1:2] == ["0"]:
            with pytest.raises(OutputError, match="another training run is active"):
                train(small, tmp_path / "run", config)
            rejected.append(line)

    train(small, tmp_path / "run", config, log=train_again)
    assert rejected


@pytest.mark.usefixtures("with_curves")
def test_full_disk_is_reported_and_the_run_can_be_repeated(small, tmp_path):
    """A limit on the file size simulates a full disk. SIGXFSZ, the signal of this limit, is ignored."""
    words = ("train", small, "--out", tmp_path / "run", "--objective", "mlm", "--tokens", "3e3", "--save-every", "1")
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, limits[1]))
    try:
        done = called(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("gristmill: cannot ")
    assert "Traceback" not in done.stderr
    again = called(*words, "--quiet")
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.parametrize(("split", "number"), [("train", 99999), ("validation", 99999), ("validation", -5)])
def test_id_outside_the_vocabulary_is_reported(small, tmp_path, split, number):
    shutil.copytree(small, tmp_path / "damaged")
    path = tmp_path / "damaged" / f"{split}.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    row = json.loads(lines[-1])
    row["input_ids"][5] = number
    path.write_text("".join([*lines[:-1], json.dumps(row) + "\n"]))
    with pytest.raises(DatasetError, match=rf"row {len(lines) - 1} is damaged: .*{number}"):
        train(
            tmp_path / "damaged", tmp_path / "run", TrainConfig(objective="mlm", epochs=1, batch_size=64, eval_every=99)
        )


def test_dataset_folder_name_may_be_invalid_utf8(small, tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    shutil.copytree(small, os.fsdecode(folder))
    result = train(os.fsdecode(folder), tmp_path / "run", TrainConfig(objective="mlm", tokens=700, batch_size=16))
    assert result.dataset.endswith(r"/caf\xe9")
