"""Plans match the corresponding builds, for random documents and for every build option."""

import json
import random
import shlex
import shutil
import tempfile
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import gristmill
from gristmill.cli import main
from gristmill.config.config import Config
from gristmill.config.options import all_options
from gristmill.config.settings import RunConfig, SamplingConfig, ScanConfig, SplitConfig, VariantsConfig, WindowConfig
from gristmill.planning.overlap_choice import PlanOptions
from gristmill.planning.plan_result import Plan
from support.builds import called, in_a_process
from support.codebert_with import MARKERS, codebert_with
from support.source_trees import write_tree


def random_documents(seed):
    """Return texts of unique words and shared spans. Some texts have hardly one window of unique words."""
    rng = random.Random(seed)

    def words(kind, least, limit):
        return " ".join(f"{kind}{rng.randrange(10**6)}" for _ in range(rng.randrange(least, limit)))

    shared = [words("shared", 20, 60) for _ in range(3)]
    files = {}
    for number in range(12):
        unique_spans = [words("own", 1, rng.choice([8, 30, 90])) for _ in range(rng.randrange(1, 4))]
        shared_spans = [rng.choice(shared) for _ in unique_spans]
        files[f"{'ab'[number % 2]}/{number}.py"] = (
            "\n".join(chain(*zip(unique_spans, shared_spans, strict=True))) + "\n"
        )
    return files


def with_overlap(config, overlap, out):
    window = msgspec.structs.replace(config.window, overlap=overlap)
    return msgspec.structs.replace(config, window=window, out=str(out))


def assert_as_planned(plan, manifest, out):
    """Assert that a build has the counts that the plan gives for its overlap.

    At the picked overlap, also compare files, tokens, splits and variants.
    """
    overlap = manifest.settings["window"]["overlap"]
    one, splits = plan.at(overlap), manifest.splits
    assert one.windows == sum(facts.windows for facts in splits.values())
    planned = (one.train_windows, one.validation_windows, one.test_windows)
    assert planned == tuple(facts.windows for facts in splits.values())
    assert one.tokens == sum(facts.emitted_tokens for facts in splits.values())
    assert one.train_tokens == splits["train"].emitted_tokens
    rows = [row for split in gristmill.open_dataset(out).values() for row in split]
    if "variant" not in manifest.columns:
        content = sum(count_content_ids(row, manifest) for row in rows)
        fresh = sum(row.get("fresh", row.get("tokens")) for row in rows)
        assert one.redundancy == pytest.approx(content / max(1, fresh), abs=1e-4)
    if set(manifest.formats) == {"jsonl"} and manifest.settings["output"]["compress"] == "none":
        assert one.jsonl_bytes == sum(facts.bytes for facts in manifest.files.values() if facts.split)
    if overlap == plan.pick.overlap:
        assert (plan.found, plan.kept) == (manifest.counts.found, manifest.counts.kept)
        assert {one.reason: one.files for one in plan.removed} == manifest.counts.dropped_by_reason
        assert plan.distinct_tokens == sum(facts.tokens for facts in splits.values())
        assert plan.cut_tokens == sum(manifest.decontamination.tokens_cut.values())
        output = {split: (facts.files, facts.tokens, facts.share) for split, facts in splits.items()}
        assert {one.split: (one.files, one.tokens, one.share) for one in plan.splits} == output
        by_language = {name: sum(tokens.values()) for name, tokens in manifest.tokens_by_language.items()}
        assert {one.name: one.tokens for one in plan.languages} == by_language
        assert (plan.sampling, plan.variants) == (manifest.sampling, manifest.variants)
        assert plan.warnings == manifest.warnings


def count_content_ids(row, manifest):
    """Return the number of ids of a row, not counting special tokens and padding."""
    if manifest.has_documents:
        return row["tokens"]
    num_ids, facts = sum(row.get("attention_mask", [1] * len(row["input_ids"]))), manifest.tokenizer
    is_closed = bool(facts.closing) and row["input_ids"][num_ids - 1] == facts.closing[0]
    return num_ids - len(facts.prefix) - len(facts.suffix) - is_closed


sizes = st.one_of(
    st.just(SamplingConfig()),
    st.builds(SamplingConfig, max_windows=st.integers(1, 60), seed=st.integers(0, 9)),
    st.builds(SamplingConfig, target_windows=st.integers(1, 90), max_epochs=st.integers(1, 3)),
    st.builds(SamplingConfig, weights=st.just({"a/**": 3.0}), weights_only=st.booleans()),
)


windows = st.builds(
    WindowConfig,
    length=st.sampled_from([24, 40, 64]),
    overlap=st.integers(0, 20),
    tail=st.sampled_from(["keep", "shift", "drop"]),
    min_fresh=st.integers(1, 40),
)


@given(
    seed=st.integers(0, 10**6),
    window=windows,
    decontaminate=st.sampled_from(["drop", "cut", "train", "off"]),
    sampling=sizes,
)
@example(  # one file has no window at overlap 4, and one window at each of the other overlaps
    seed=7, window=WindowConfig(length=40, overlap=4, tail="shift"), decontaminate="drop", sampling=SamplingConfig()
)
@settings(max_examples=12, deadline=None)
def test_plan_of_random_documents_matches_builds_with_each_overlap(seed, window, decontaminate, sampling):
    with tempfile.TemporaryDirectory() as folder:
        config = Config(
            sources=[str(write_tree(Path(folder, "code"), random_documents(seed)))],
            out=f"{folder}/none",
            window=window,
            split=SplitConfig(shares="50/30/20", decontaminate=decontaminate),
            sampling=sampling,
            run=RunConfig(workers=1),
        )
        plan = gristmill.plan(config)
        for one in plan.overlaps:
            out = Path(folder, f"built-{one.overlap}")
            assert_as_planned(plan, gristmill.build(with_overlap(config, one.overlap, out)), out)


PLANNED = {
    "sizes": "--max-windows 150 --sample-seed 3 --pad --with-text --tail shift --window 128 --overlap 40",
    "target": "--target-windows 700 --max-epochs 3 --weights code --weight email/**=2 --decontaminate drop --format jsonl",
    "weights": "--weight logging/**=0.5 --weights-only --tail drop --compress none --split 70/20/10 --seed 5",
    "variants": "--variants rename,noise=0.9 --variants comments --variant-seed 4 --near-duplicates group --workers 1",
    "drawn variants": "--variants format,noise --max-windows 90 --decontaminate train --split-by directory",
    "files": "--include *.py --exclude json/ --language python --max-file-bytes 30000 --license-allow MIT,NOASSERTION "
    "--secrets drop --redact-emails --decontaminate-against {benchmark}",
    "splits": "--splits {earlier} --batch-bytes 50000 --cache-bytes 0 --skip-failed --task-seconds 99",
    "fresh": "--fresh-splits --tokenizer codebert --cache-dir {folder} --runner local --device cpu --out {folder}/other",
    "documents": "--rows documents --control-spellings drop --variants rename --max-windows 20",
    "causal": "--preset causal --pack none --special-tokens documents --end-token </s> --repo-order path "
    "--repo-order-seed 0",
    "fim": "--tokenizer {folder}/fim --fim 0.6 --fim-spm 0.2 --fim-middles lines,characters --fim-max-middle 60 "
    "--fim-seed 3 --pack none --overlap 0",
    "table": "--text-column code --path-column name --repo-column project --license-column terms --max-expansion 50",
    "no rewriting": "--rewrite-endpoint http://localhost:9/v1 --rewrite-model m "
    "--rewrite-concurrency 2 --rewrite-timeout 3 --rewrite-retries 1 --rewrite-max-tokens 99 --rewrite-context 4096",
}
"""Combinations of build options that a plan supports."""
REFUSED = {
    "--pack": "--pack repo",
    "--variants": "--variants rewrite --rewrite-endpoint http://localhost:9/v1",
}
"""Arguments that a plan rejects, keyed by the rejected option."""
UNTESTED_OPTIONS = {"--ray-address": "a cluster does not change rows, and a plan runs in local processes"}


def test_every_build_option_is_covered():
    tried = {word for line in PLANNED.values() for word in line.split() if word.startswith("--")}
    assert {option.flag for option in all_options()} == tried | set(UNTESTED_OPTIONS)


@pytest.fixture(scope="module")
def code(tmp_path_factory, corpus):
    """Source folder with files that give a few hundred windows."""
    root = tmp_path_factory.mktemp("planned") / "code"
    for folder in ("email", "json", "logging"):
        for path in sorted((corpus / folder).glob("*.py"))[:9]:
            (root / folder).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, root / folder / path.name)
    (root / "near.py").write_bytes((root / "json/encoder.py").read_bytes() + b"# and a line more\n")
    (root / "keys.py").write_text('token = "ghp_' + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5" + '"\n' * 2)
    return root


@pytest.fixture(scope="module")
def earlier(code, tmp_path_factory):
    out = tmp_path_factory.mktemp("earlier") / "dataset"
    gristmill.build(Config(sources=[str(code)], out=str(out), split=SplitConfig(seed=11, shares="60/20/20")))
    return out / "files.jsonl"


def run(capsys, *words):
    code = main.run([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("name", PLANNED)
def test_plan_matches_a_build_with_the_same_options(name, code, earlier, tmp_path):
    source, out = code, tmp_path / "out"
    benchmark = tmp_path / "benchmark.txt"
    benchmark.write_bytes((code / "email/charset.py").read_bytes())
    if name == "fim":
        codebert_with(MARKERS, tmp_path / "fim")
    if name == "table":
        source = tmp_path / "rows.jsonl"
        rows = [
            {"code": path.read_text(), "name": path.name, "project": "p", "terms": "MIT"}
            for path in code.glob("email/*")
        ]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = shlex.split(PLANNED[name].format(benchmark=benchmark, earlier=earlier, folder=tmp_path))
    named = [] if "--out" in words else ["--out", out]
    if name in CASES_WITH_PROCESSES:
        in_a_process(plan_and_build, [source, *named, *words], tmp_path)
    else:
        plan_and_build([source, *named, *words], tmp_path)


CASES_WITH_PROCESSES = {"variants", "drawn variants", "table"}
"""Cases that start workers. They run in a separate process without threads, in which forks are quick."""


def plan_and_build(words, folder):
    done = called("plan", *words, "--json")
    output = json.loads(done.stdout)
    assert (done.returncode, done.stderr.count("note:")) == (0, len(output["warnings"]))
    command = shlex.split(output.pop("command"))
    plan = msgspec.convert(output, Plan)
    for overlap in dict.fromkeys((plan.pick.overlap, plan.overlaps[-1].overlap)):
        built = folder / f"built-{overlap}"
        assert called(*command[1:], "--overlap", overlap, "--out", built, "--quiet").returncode == 0
        assert_as_planned(plan, gristmill.open_dataset(built).manifest, built)


@pytest.mark.parametrize("flag", REFUSED)
def test_unsupported_options_are_rejected_in_one_line(flag, code, tmp_path, capsys):
    done, text, error = run(capsys, "plan", code, "--out", tmp_path / "out", *REFUSED[flag].split())
    assert (done, text, error.count("\n")) == (2, "", 1)
    assert flag in error
    assert "Leave out" in error


@pytest.mark.parametrize("size", [{"max_windows": 100}, {"target_windows": 60}, {"target_windows": 1500}])
def test_all_numbers_of_a_plan_are_consistent_with_the_requested_size(code, tmp_path, capsys, size):
    ((name, count),) = size.items()
    words = (f"--{name.replace('_', '-')}", count, "--budget-tokens", 10**7, "--batch-size", 8)
    output = json.loads(run(capsys, "plan", code, "--out", tmp_path / "out", *words, "--json")[1])
    for one in output["overlaps"]:
        limit = (
            count if name == "max_windows" else one["train_windows"] + one["validation_windows"] + one["test_windows"]
        )
        assert one["windows"] == one["train_windows"] + one["validation_windows"] + one["test_windows"] <= limit
        assert one["epochs_for_budget"] == pytest.approx(10**7 / one["train_tokens"])
        assert one["steps_per_epoch"] == -(-one["train_windows"] // 8)
    picked = next(one for one in output["overlaps"] if one["overlap"] == output["pick"]["overlap"])
    text = run(capsys, "plan", code, "--out", tmp_path / "out", *words)[1]
    assert f"equals {picked['epochs_for_budget']:,.1f} epochs of this dataset" in text
    assert f"one epoch at overlap {picked['overlap']}: {picked['train_windows']:,} windows" in text


@pytest.mark.parametrize(
    ("size", "shares", "overlap"),
    [
        ({"max_windows": 50}, "85/10/5", 0),  # fewer windows than the files have without overlap
        ({"max_windows": 50}, "0/50/50", 0),
        ({"target_windows": 50}, "85/10/5", 0),
        ({"max_windows": 10_000}, "85/10/5", 256),  # more windows than the files have
        ({"target_windows": 10_000, "max_epochs": 20}, "85/10/5", 256),  # repeated windows are not overlap
    ],
)
def test_picked_overlap_does_not_displace_text(code, tmp_path, size, shares, overlap):
    sampling, split = SamplingConfig(**size), SplitConfig(shares=shares)
    plan = gristmill.plan(Config(sources=[str(code)], out=str(tmp_path / "none"), sampling=sampling, split=split))
    assert plan.pick.overlap == overlap
    assert any("more windows than requested" in reason for reason in plan.pick.why) == (overlap == 0)


def test_repeats_do_not_reduce_the_budget(code, tmp_path):
    """Four epochs are as many passes over the text as one epoch in which the text is repeated four times."""
    config = Config(sources=[str(code)], out=str(tmp_path / "none"), split=SplitConfig(shares="100/0/0"))
    unsampled = gristmill.plan(config).overlaps[0]
    options = PlanOptions(budget_tokens=4 * unsampled.train_tokens)
    sampling = SamplingConfig(target_windows=4 * unsampled.train_windows, max_epochs=9)
    repeated = gristmill.plan(msgspec.structs.replace(config, sampling=sampling), options)
    assert repeated.pick.overlap == gristmill.plan(config, options).pick.overlap == 256
    assert any("covers each token 4.0 times" in reason for reason in repeated.pick.why)


def complete_and_sampled(config):
    return gristmill.plan(config), gristmill.plan(config, PlanOptions(sample=15))


@pytest.mark.parametrize(
    "sections",
    [
        {"sampling": SamplingConfig(max_windows=200)},
        {"sampling": SamplingConfig(target_windows=900, max_epochs=9)},
        {"variants": VariantsConfig(rates={"rename": 0.5})},
    ],
)
def test_sample_is_scaled_to_the_requested_size(code, tmp_path, sections):
    config = Config(sources=[str(code)], out=str(tmp_path / "none"), scan=ScanConfig(include=["*.py"]), **sections)
    complete, sampled = (
        in_a_process(complete_and_sampled, config) if "variants" in sections else complete_and_sampled(config)
    )
    assert sampled.sample is not None
    for one, other in zip(sampled.overlaps, complete.overlaps, strict=True):
        assert one.windows == pytest.approx(other.windows, rel=0.25)
        assert one.train_windows == pytest.approx(other.train_windows, rel=0.25)
