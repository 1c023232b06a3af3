"""Sampling with --max-windows, --target-windows or weights draws the requested windows and records the result.

The sampled dataset passes `gristmill check`.
"""

import json
import re
from collections import Counter

import pytest

from gristmill import ConfigError, OutputConfig, RunConfig, SamplingConfig, SplitConfig, check, open_dataset
from gristmill.config.config import load_config
from gristmill.config.settings import VariantsConfig, WindowConfig
from gristmill.core.names import counted
from gristmill.pipeline.summary import language_lines, summary_json, summary_text
from support.builds import called, everything, files_table, make, refusal


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Three folders of different sizes, in two languages, without duplicates."""
    folder = tmp_path_factory.mktemp("sampled") / "project"
    for name, count, lines in (("src", 24, 90), ("docs", 12, 40), ("small", 2, 60)):
        for number in range(count):
            path = folder / name / f"part_{number}.{'md' if name == 'docs' else 'py'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            words = (
                f"{name}_{number}_{line} = fetch({line * 7919 % 1009}, '{name} {line * number}')"
                for line in range(lines)
            )
            path.write_text("\n".join(words) + "\n")
    return folder


def tokens_by_folder(out, split="train"):
    counts = Counter()
    for row in open_dataset(out)[split]:
        counts[row["path"].split("/")[0]] += len(row["input_ids"]) - 2
    return counts


def shares(counts):
    return {name: count / counts.total() for name, count in counts.items()}


@pytest.fixture(scope="module")
def unsampled(source, tmp_path_factory):
    """Dataset built without sampling."""
    out = tmp_path_factory.mktemp("unsampled") / "dataset"
    make(source, out)
    return out


def rows_of(out, split="train"):
    return list(open_dataset(out)[split])


def test_without_sampling_each_window_appears_once(unsampled):
    rows = [row for split in open_dataset(unsampled) for row in rows_of(unsampled, split)]
    assert len({(row["path"], row["start"]) for row in rows}) == len(rows)
    assert not {"repeat", "weight"} & set(rows[0])
    assert open_dataset(unsampled).manifest.sampling is None


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_max_windows_samples_splits_and_files_in_proportion_to_their_windows(source, unsampled, tmp_path, compress):
    unsampled_counts = {split: len(rows) for split, rows in open_dataset(unsampled).items()}
    max_windows = sum(unsampled_counts.values()) // 3
    sampling = SamplingConfig(max_windows=max_windows)
    make(source, tmp_path / "third", sampling=sampling, output=OutputConfig(compress=compress))
    third = {split: len(rows) for split, rows in open_dataset(tmp_path / "third").items()}
    assert sum(third.values()) == max_windows
    table, before = files_table(tmp_path / "third"), files_table(unsampled)
    for split, count in unsampled_counts.items():
        assert abs(third[split] - max_windows * count / sum(unsampled_counts.values())) < 1
        for row in table.values():
            if row["split"] == split and row["status"] == "kept":
                assert abs(row["windows"] - third[split] * before[row["path"]]["windows"] / count) < 1 + 1e-9
    assert {row["split"] for row in table.values()} == {row["split"] for row in before.values()}
    assert check(tmp_path / "third", [str(source)]).ok


def test_max_windows_above_the_total_keeps_all_windows(source, unsampled, tmp_path):
    make(source, tmp_path / "all", sampling=SamplingConfig(max_windows=10**9))
    files, manifest = everything(tmp_path / "all")
    assert files == everything(unsampled)[0]
    assert manifest["sampling"] is None


def test_sample_depends_on_the_seed_but_not_on_workers(source, tmp_path):
    for name, workers, seed in (("one", 1, 0), ("three", 3, 0), ("other", 1, 5)):
        config = {
            "sampling": SamplingConfig(max_windows=40, seed=seed),
            "run": RunConfig(workers=workers, batch_files=3),
        }
        make(source, tmp_path / name, **config)
    one, three, other = (everything(tmp_path / name)[0] for name in ("one", "three", "other"))
    assert one == three
    assert one["train.jsonl"] != other["train.jsonl"]


def test_weight_multiplies_the_natural_token_share_only_in_train(source, unsampled, tmp_path):
    out = tmp_path / "weighted"
    manifest = make(source, out, sampling=SamplingConfig(weights={"src/**": 2, "docs/**": 0.25}))
    before, after = shares(tokens_by_folder(unsampled)), shares(tokens_by_folder(out))
    weighted = {"src": 2 * before["src"], "docs": 0.25 * before["docs"], "small": before["small"]}
    for name, value in weighted.items():
        assert after[name] == pytest.approx(value / sum(weighted.values()), abs=0.02)
    assert len(rows_of(out)) == len(rows_of(unsampled))
    for split in ("validation", "test"):
        plain = [{**row, "repeat": 0} for row in rows_of(unsampled, split)]
        assert rows_of(out, split) == plain
    groups = {one.name: one for one in manifest.sampling.groups}
    assert groups["src/**"].realised_share == pytest.approx(after["src"], abs=1e-6)
    assert groups["src/**"].requested_share == pytest.approx(weighted["src"] / sum(weighted.values()), abs=1e-6)
    assert check(out, [str(source)]).ok


def test_repeats_are_numbered_and_no_window_repeats_within_an_epoch(source, unsampled, tmp_path):
    out = tmp_path / "repeated"
    sampling = SamplingConfig(weights={"small/**": 30}, max_epochs=3)
    manifest = make(source, out, sampling=sampling)
    rows = rows_of(out)
    keys = [(row["path"], row["start"], row["repeat"]) for row in rows]
    assert len(set(keys)) == len(keys)
    times = Counter((row["path"], row["start"]) for row in rows)
    for (path, start), count in times.items():
        assert {repeat for name, at, repeat in keys if (name, at) == (path, start)} == set(range(count))
    small = [count for (path, _), count in times.items() if path.startswith("small/")]
    assert set(small) == {3}
    assert max(row["repeat"] for row in rows) == manifest.sampling.groups[0].largest_repeat == 2
    assert all(row["fresh"] == 0 for row in rows if row["repeat"])
    warnings = [warning for warning in manifest.warnings if warning.startswith("small/**")]
    assert len(warnings) == 1
    assert "points less" in warnings[0]
    assert "--max-epochs" in warnings[0]
    assert check(out, [str(source)]).ok


def test_target_beyond_max_epochs_gives_a_warning_with_the_shortfall(source, unsampled, tmp_path):
    num_unsampled = len(rows_of(unsampled))
    manifest = make(source, tmp_path / "out", sampling=SamplingConfig(target_windows=5 * num_unsampled))
    assert len(rows_of(tmp_path / "out")) == 4 * num_unsampled
    assert any(f"({num_unsampled:,} fewer)" in warning for warning in manifest.warnings)


def test_files_with_weight_zero_are_kept_without_windows(source, tmp_path):
    make(source, tmp_path / "out", sampling=SamplingConfig(weights={"docs/**": 0}))
    assert "docs" not in tokens_by_folder(tmp_path / "out")
    rows = [row for row in files_table(tmp_path / "out").values() if row["path"].startswith("docs/")]
    train = [row for row in rows if row["split"] == "train"]
    assert train
    assert all((row["status"], row["windows"], row["draw"]) == ("kept", 0, [0, 0]) for row in train)
    assert all(row["left_tokens"] == row["tokens"] - row["cut_tokens"] for row in train)
    assert check(tmp_path / "out", [str(source)]).ok


@pytest.mark.parametrize("workers", [1, 2])
def test_weights_at_the_limit_are_written_with_any_number_of_workers(source, tmp_path, workers):
    sampling = SamplingConfig(weights={"small/**": 50}, weights_only=True)
    make(source, tmp_path / "out", sampling=sampling, run=RunConfig(workers=workers, batch_files=3))
    assert {row["weight"] for row in rows_of(tmp_path / "out") if row["path"].startswith("small/")} == {4.0}
    assert check(tmp_path / "out", [str(source)]).ok


def test_unused_weight_gives_a_warning_with_the_reason(source, tmp_path):
    sampling = SamplingConfig(weights={"nowhere/**": 3, "src/part_1*": 2, "src/**": 2})
    warnings = make(source, tmp_path / "out", sampling=sampling).warnings
    assert any("'nowhere/**' applies to no file of train: no file matches" in one for one in warnings)
    assert any(
        re.search(
            r"'src/part_1\*' applies to no file of train: a later --weight applies to the \d+ matching files", one
        )
        for one in warnings
    )


def test_sample_that_empties_a_split_gives_a_warning(source, tmp_path):
    warnings = make(source, tmp_path / "out", sampling=SamplingConfig(max_windows=3)).warnings
    assert any("was drawn, because too few windows were requested" in one for one in warnings)
    assert check(tmp_path / "out", [str(source)]).ok


def test_weights_only_writes_sampling_weights_for_the_trainer(source, unsampled, tmp_path):
    out = tmp_path / "out"
    manifest = make(source, out, sampling=SamplingConfig(weights={"src/**": 2}, weights_only=True))
    rows = rows_of(out)
    assert [{**row, "weight": 1.0} for row in rows_of(unsampled)] == [{**row, "weight": 1.0} for row in rows]
    drawn = Counter()
    for row in rows:
        drawn[row["path"].split("/")[0]] += row["weight"] * (len(row["input_ids"]) - 2)
    assert shares(drawn)["src"] == pytest.approx(manifest.sampling.groups[0].requested_share, abs=1e-5)
    assert sum(row["weight"] for row in rows) == pytest.approx(len(rows), rel=1e-4)
    assert {row["weight"] for row in rows_of(out, "test")} == {1.0}
    assert check(out, [str(source)]).ok


def test_rebuild_with_different_weights_equals_a_build_from_scratch(source, tmp_path):
    sampling = SamplingConfig(weights={"src/**": 2}, max_epochs=2)
    make(source, tmp_path / "one", split=SplitConfig(fresh=True))
    for weights in (None, sampling):
        make(
            source, tmp_path / "one", split=SplitConfig(fresh=True), sampling=weights or SamplingConfig(max_windows=50)
        )
    make(source, tmp_path / "two", split=SplitConfig(fresh=True), sampling=sampling)
    assert everything(tmp_path / "one") == everything(tmp_path / "two")


def test_command_line_weights_are_merged_into_those_of_the_configuration_file(tmp_path):
    toml = tmp_path / "gristmill.toml"
    toml.write_text(
        'sources = ["."]\nout = "out"\n[sampling]\npreset = "code"\n[sampling.weights]\n"b/**" = 1\n"a/**" = 2\n'
    )
    config = load_config({"sampling.weights": {"b/**": 3.0}}, toml)
    assert list(config.sampling.weights.items()) == [("a/**", 2.0), ("b/**", 3.0)]
    other = load_config({"sampling.weights": {"b/**": 3.0, "a/**": 2.0}}, toml)
    assert config.settings() != other.settings()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--weight", "src/**"], "--weight takes WHAT=N"),
        (["--weight", "=3"], "--weight takes WHAT=N"),
        (["--weight", "src/**=-1"], "must be from 0 to"),
        (["--weight", "src/**=nan"], "must be from 0 to"),
        (["--weight", "language:pyton=2"], "Did you mean 'python'"),
        (["--weight", "kind:tests=2"], "unknown kind 'kind'"),
        (["--weight", "code:test=2"], "code:tests"),
        (["--weights", "all"], "--weights must be one of code, got 'all'."),
        (["--weights-only"], "--weights-only needs weights"),
        (["--weights-only", "--weights", "code", "--target-windows", "5"], "--weights-only draws no windows"),
        (["--max-windows", "0"], "at least 1"),
        (["--max-windows", "5", "--target-windows", "5"], "Use one."),
        (["--max-epochs", "0"], "at least 1"),
        (["--max-epochs", "1.5"], "--max-epochs takes a whole number"),
    ],
)
def test_invalid_options_are_refused_in_one_line(source, tmp_path, words, part):
    code, line = refusal(called("build", source, "--out", tmp_path / "out", *words))
    assert code == 2
    assert part in line
    assert not (tmp_path / "out").exists()


def test_summary_shows_the_realized_weights(source, tmp_path):
    done = called("build", source, "--out", tmp_path / "out", "--weights", "code", "--weight", "small/**=100")
    assert done.returncode == 0
    (heading,) = [line for line in done.stdout.splitlines() if "realized" in line]
    assert all(word in heading for word in ("weight", "natural", "requested", "epochs", "max repeats"))
    assert "small/** has" in done.stderr
    summary = json.loads(called("build", source, "--out", tmp_path / "out", "--weights", "code", "--json").stdout)
    assert {one["name"]: one["weight"] for one in summary["sampling"]["groups"]}["code:source"] == 2


def test_sample_without_weights_has_one_line_in_the_summary(source, tmp_path):
    done = called("build", source, "--out", tmp_path / "out", "--max-windows", 30)
    assert re.search(r"sample   30 of \d+ windows, .* \(--sample-seed 0\)", done.stdout)
    assert "weights for train" not in done.stdout


@pytest.mark.parametrize(
    "sections",
    [
        {"sampling": SamplingConfig(max_windows=12)},
        {"sampling": SamplingConfig(target_windows=10, weights={"small/**": 0})},
        {"sampling": SamplingConfig(weights={"src/**": 0}), "variants": VariantsConfig(rates={"noise": 0.5})},
        {"sampling": SamplingConfig(max_windows=12), "window": WindowConfig(pack="best-fit")},
    ],
    ids=["sample", "target", "variants", "packed"],
)
def test_files_without_rows_are_not_counted_in_their_split(source, tmp_path, sections):
    manifest = make(source, tmp_path / "out", **sections)
    for split, facts in manifest.splits.items():
        rows = (segment for row in rows_of(tmp_path / "out", split) for segment in row.get("segments", [row]))
        files = {row["path"] for row in rows}
        assert facts.files == facts.groups == len(files)
    num_with_rows = sum(facts.files for facts in manifest.splits.values())
    assert num_with_rows < manifest.counts.kept
    num_without = manifest.counts.kept - num_with_rows
    summary, card = summary_text(manifest, "out"), (tmp_path / "out/README.md").read_text()
    assert f"{manifest.counts.kept} kept ({num_without} without a row), 0 dropped" in summary
    assert f"for training language models: {counted(num_with_rows, 'file')} from 1 source" in card
    assert f"Sampling selected no rows from {counted(num_without, 'kept file')}." in card
    assert f"Source code of {counted(num_with_rows, 'file')} as" in (tmp_path / "out/croissant.json").read_text()
    assert check(tmp_path / "out").ok


def test_summary_and_card_show_requested_and_actual_shares(source, unsampled, tmp_path):
    manifest = make(source, tmp_path / "out", sampling=SamplingConfig(target_windows=10))
    requested_and_actual = list(
        zip(["85.0%", "10.0%", "5.0%"], (f"{facts.share:.1%}" for facts in manifest.splits.values()), strict=True)
    )
    assert all(requested != actual for requested, actual in requested_and_actual)
    heading, *lines = summary_text(manifest, "out").splitlines()[:4]
    assert heading.split()[-2:] == ["requested", "actual"]
    assert [tuple(line.split()[-2:]) for line in lines] == requested_and_actual
    card = (tmp_path / "out/README.md").read_text()
    assert all(f"| {requested} | {actual} |" in card for requested, actual in requested_and_actual)
    assert json.loads(summary_json(manifest, "out"))["asked_shares"] == {"train": 0.85, "validation": 0.1, "test": 0.05}
    assert "without a row" not in summary_text(open_dataset(unsampled).manifest, "natural")


def test_summary_shows_the_languages_with_the_most_tokens(unsampled):
    manifest = open_dataset(unsampled).manifest
    python, markdown = (sum(manifest.tokens_by_language[name].values()) for name in ("python", "markdown"))
    (line,) = [line for line in summary_text(manifest, "out").splitlines() if line.startswith("language")]
    shares = [f"{tokens:,} ({tokens / (python + markdown):.1%})" for tokens in (python, markdown)]
    assert line == f"language python {shares[0]}, markdown {shares[1]}"


def test_summary_names_five_of_many_languages():
    tokens = {f"language-{number}": {"train": 100 - number, "test": 1} for number in range(8)} | {"none": {"train": 0}}
    (line,) = language_lines(tokens)
    assert line.startswith("language language-0 101 (12.9%), language-1 100 (12.8%), ")
    assert line.endswith("language-4 97 (12.4%), 3 others 285 (36.5%)")
    assert language_lines({}) == []


def test_pattern_named_like_a_preset_group_is_a_separate_group(source, tmp_path):
    sampling = SamplingConfig(preset="code", weights={"tests": 3, "docs": 2, "code:docs": 0.7})
    manifest = make(source, tmp_path / "out", sampling=sampling)
    assert sum(one.files for one in manifest.sampling.groups) == manifest.splits["train"].files
    assert sum(one.realised_share for one in manifest.sampling.groups) == pytest.approx(1, abs=1e-5)
    assert not [warning for warning in manifest.warnings if "fewer" in warning]
    assert check(tmp_path / "out").ok


def test_weight_zero_for_all_files_is_reported(source, tmp_path):
    manifest = make(source, tmp_path / "out", sampling=SamplingConfig(weights={"**": 0}))
    assert any("every file of train has weight 0" in warning for warning in manifest.warnings)
    assert check(tmp_path / "out").ok
    with pytest.raises(ConfigError, match="no window is left: every train file has weight 0"):
        make(source, tmp_path / "none", sampling=SamplingConfig(weights={"**": 0}), split=SplitConfig(shares="100/0/0"))


def test_target_for_an_empty_train_split_gives_a_warning(source, tmp_path):
    sampling = SamplingConfig(target_windows=100)
    manifest = make(source, tmp_path / "out", sampling=sampling, split=SplitConfig(shares="0/50/50"))
    assert any("(100 fewer): no file is in train" in warning for warning in manifest.warnings)
    assert check(tmp_path / "out").ok
