"""Complete comparisons on the CPU: equal datasets get no verdict, and worse text is found to be worse."""

import json
import random
import re
import shutil
import xml.etree.ElementTree as ET

import msgspec
import pytest

from gristmill import Config, ConfigError, OutputError, Progress, TrainConfig, WindowConfig, build, export, open_dataset
from gristmill.config.config import TokenizerConfig
from gristmill.config.settings import SplitConfig, VariantsConfig
from gristmill.lab.comparison.freeze import freeze
from gristmill.lab.comparison.frozen import Frozen
from support.builds import called, refusal
from support.late_imports import late
from support.made_code import made_module
from support.short_trainings import causal_dataset, tiny_llama
from support.source_trees import write_tree
from support.trained_tokenizers import roberta_like

(compare,) = late("gristmill.lab.comparison.compare", "compare")

pytestmark = pytest.mark.usefixtures("short_trainings", "without_curves")
SETTINGS = TrainConfig(objective="causal", batch_size=16, eval_every=1000, eval_windows=16)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Build `clean`, `test`, and `shuffled`, which is `clean` with the characters of every second line shuffled."""
    root = tmp_path_factory.mktemp("datasets")
    (root / "tokenizer.json").write_text(roberta_like())
    write_tree(root / "clean-code", {f"m{number}.py": made_module(f"m{number}.py", 900) for number in range(20)})
    write_tree(root / "test-code", {f"t{number}.py": made_module(f"t{number}.py", 900) for number in range(5)})
    shutil.copytree(root / "clean-code", root / "shuffled-code")
    for path in sorted((root / "shuffled-code").rglob("*.py")):
        path.write_text(half_shuffled(path.read_text()))
    for name, shares in (("clean", "85/10/5"), ("shuffled", "85/10/5"), ("test", "0/0/100")):
        config = Config(
            sources=[str(root / f"{name}-code")],
            out=str(root / name),
            tokenizer=TokenizerConfig(name=str(root / "tokenizer.json")),
            window=WindowConfig(length=48, overlap=16),
            split=SplitConfig(shares=shares),
        )
        build(config)
    return root


def half_shuffled(text):
    chance = random.Random(0)
    lines = [list(line) for line in text.split("\n")]
    for line in lines[::2]:
        chance.shuffle(line)
    return "\n".join(map("".join, lines))


def test_equal_datasets_have_no_measurable_difference(datasets, tmp_path):
    shutil.copytree(datasets / "clean", tmp_path / "again")
    config = msgspec.structs.replace(SETTINGS, tokens=3_000)
    found = compare(
        [datasets / "clean", tmp_path / "again"],
        tmp_path / "out",
        config,
        seeds=2,
        test=datasets / "test",
        min_test_tokens=1000,
    )
    (verdict,) = found.verdicts
    assert verdict.better is None
    assert verdict.difference.mean == 0
    assert verdict.text.startswith("no measurable difference between clean and again")
    assert [run.end for run in found.runs_of("clean")] == [run.end for run in found.runs_of("again")]
    assert len({run.end for run in found.runs_of("clean")}) == 2  # different seeds give different results
    (early_stop,) = {json.loads(path.read_text())["settings"]["early_stop"] for path in tmp_path.rglob("run.json")}
    assert early_stop == 0  # early stopping would make the budgets differ


def test_half_shuffled_text_is_worse(datasets, tmp_path):
    config = msgspec.structs.replace(SETTINGS, tokens=24_000)
    folders = [datasets / "clean", datasets / "shuffled"]
    found = compare(folders, tmp_path / "out", config, test=datasets / "test", min_test_tokens=1000)
    (verdict,) = found.verdicts
    assert verdict.better == "clean"
    assert verdict.difference.mean < -verdict.difference.half_width < 0
    assert verdict.text.startswith("clean is better than shuffled by 0.")
    assert verdict.text.endswith(" bits per byte")
    assert {run.seed for run in found.runs} == {0, 1, 2}
    page = (tmp_path / "out/comparison.md").read_text()
    assert verdict.text in page
    assert verdict.text in (tmp_path / "out/comparison.html").read_text()
    ET.fromstring((tmp_path / "out/curves.svg").read_text())


def test_stopped_comparison_can_be_resumed(datasets, tmp_path):
    folders = [shutil.copytree(datasets / "clean", tmp_path / "clean"), datasets / "shuffled"]
    config = msgspec.structs.replace(SETTINGS, tokens=3_000)
    settings = {"seeds": 1, "test": datasets / "test", "min_test_tokens": 1000}
    uninterrupted = compare(folders, tmp_path / "uninterrupted", config, **settings)
    logged = []

    def stop(line):
        logged.append(line)
        if "run 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(folders, tmp_path / "out", config, log=stop, **settings)
    with pytest.raises(OutputError, match="Continue the comparison with --resume"):
        compare(folders, tmp_path / "out", config, **settings)
    export(folders[0], "bin", workers=1)  # an export does not change the rows
    again = compare(folders, tmp_path / "out", config, resume=True, **settings)
    assert [run.curve for run in again.runs] == [run.curve for run in uninterrupted.runs]
    with pytest.raises(ConfigError, match="a different test set"):
        compare(folders, tmp_path / "out", config, resume=True, **{**settings, "test": datasets / "clean"})


def test_mlm_is_scored_with_fixed_masks(datasets, tmp_path):
    config = TrainConfig(objective="mlm", batch_size=16, tokens=1_500, eval_every=30)
    shutil.copytree(datasets / "clean", tmp_path / "again")
    folders = [datasets / "clean", tmp_path / "again"]
    found = compare(folders, tmp_path / "out", config, seeds=1, test=datasets / "test", min_test_tokens=1000)
    assert found.unit == "nats per masked token"
    assert found.runs[0].end == found.runs[1].end


def test_budget_can_be_epochs_of_each_dataset(datasets, tmp_path):
    config = TrainConfig(objective="causal", batch_size=16, epochs=0.05, eval_every=100, eval_windows=16)
    folders = [datasets / "clean", datasets / "shuffled"]
    settings = {"seeds": 1, "test": datasets / "test", "min_test_tokens": 1000}
    equal = compare(folders, tmp_path / "equal", config, **settings)
    own = compare(folders, tmp_path / "own", config, budget="epochs", **settings)
    assert equal.budget_tokens == round(0.05 * equal.datasets[0].ids)
    assert own.budget_tokens is None
    assert [facts.epochs for facts in own.datasets] == pytest.approx([0.05, 0.05], rel=0.01)


def test_invalid_comparisons_are_rejected(datasets, tmp_path, built):
    clean, shuffled, out = datasets / "clean", datasets / "shuffled", tmp_path / "out"
    with pytest.raises(ConfigError, match="at least two datasets, got 1"):
        compare([clean], out)
    with pytest.raises(ConfigError, match="must have the same tokenizer"):
        compare([clean, built[0]], out)
    with pytest.raises(ConfigError, match="is given twice"):
        compare([clean, clean], out)
    with pytest.raises(ConfigError, match="Leave out early_stop"):
        compare([clean, shuffled], out, TrainConfig(early_stop=2))
    with pytest.raises(ConfigError, match="--min-test-tokens must be at least 1, got 0"):
        compare([clean, shuffled], out, min_test_tokens=0)
    code, line = refusal(called("compare", clean, shuffled, "--out", out))
    assert (code, "--test DATASET" in line) == (2, True)
    assert not out.exists()


@pytest.mark.usefixtures("with_curves")
def test_small_test_set_is_accepted_with_a_warning(datasets, tmp_path):
    options = ["--test", datasets / "test", "--min-test-tokens", "1e3", "--tokens", "1e3", "--seeds", "1"]
    words = ["compare", datasets / "clean", datasets / "shuffled", "--out", tmp_path / "out", *options]
    done = called(*words, "--objective", "causal", "--batch-size", "16", "--eval-every", "1000")
    assert done.returncode == 0
    note = r"the test set has [\d,]+ tokens in \d files, fewer than 100,000 tokens: intervals are wide"
    assert re.search(f"warning: {note}", done.stderr)
    assert re.search(note, done.stdout)
    assert re.search(note, (tmp_path / "out/comparison.md").read_text())


def test_untrained_rows_are_not_counted(datasets, tmp_path):
    config = Config(
        sources=[str(datasets / "clean-code")],
        out=str(tmp_path / "noisy"),
        tokenizer=TokenizerConfig(name=str(datasets / "tokenizer.json")),
        window=WindowConfig(length=48, overlap=16),
        variants=VariantsConfig(rates={"noise": 1.0}),
    )
    build(config)
    noisy = open_dataset(tmp_path / "noisy")
    frozen = freeze([noisy], open_dataset(datasets / "test"), Progress(), min_tokens=1)
    trained_on = [row["input_ids"] for row in noisy["train"] if row["variant"] != "noise"]
    assert len(trained_on) < len(noisy["train"])
    (facts,) = frozen.facts.against
    assert (facts.windows, facts.ids) == (len(trained_on), sum(map(len, trained_on)))


def test_packed_rows_can_be_compared_with_windows_of_single_files(tmp_path):
    """Both datasets are scored on the same frozen windows, in bits per byte."""
    rows = {
        name: causal_dataset(tmp_path, WindowConfig(length=64, pack=pack, overlap=0))
        for name, pack in (("packed", "best-fit"), ("plain", "none"))
    }
    found = compare(
        list(rows.values()),
        tmp_path / "out",
        TrainConfig(batch_size=4, accumulate=2, tokens=6_000, eval_every=1000, eval_windows=8),
        seeds=1,
        min_test_tokens=500,
    )
    assert (found.unit, found.model) == ("bits per byte", "tiny, causal")
    frozen = Frozen.read(tmp_path / "out")
    tokenizer = open_dataset(rows["packed"]).tokenizer
    scored = [frozen.fresh_ids(window) for window in frozen.windows]
    firsts = [
        ids[:1] for window, ids in zip(frozen.windows, scored, strict=True) if len(window.input_ids) == window.fresh
    ]
    num_bytes = sum(map(len, map(tokenizer.decode, scored))) - sum(map(len, map(tokenizer.decode, firsts)))
    results = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").rglob("result.json"))]
    assert [sum(result["frozen"]["weights"]) for result in results] == [num_bytes, num_bytes]
    ends = [sum(one["frozen"]["totals"]) / num_bytes for one in results]
    assert sorted(run.end for run in found.runs) == pytest.approx(sorted(ends), rel=1e-6)


def test_adapters_can_be_compared(tmp_path):
    rows = [causal_dataset(tmp_path, WindowConfig(length=64, pack="best-fit"), fim=rate) for rate in (0.0, 1.0)]
    model = tiny_llama(tmp_path / "llama", tmp_path / "tokenizer")
    config = TrainConfig(model=str(model), lora=True, batch_size=8, tokens=1_000, eval_windows=8)
    found = compare(rows, tmp_path / "out", config, seeds=1, min_test_tokens=500)
    assert found.model == f"{model}, causal, LoRA of rank 16"
    starts = [run.curve[0].test for run in found.runs]
    assert starts[0] == pytest.approx(starts[1], rel=1e-6)  # before the first step, an adapter changes nothing
    assert all(run.end < run.curve[0].test for run in found.runs)
