"""The four steps of a build give the same dataset as separate commands, with any number of shards in any order."""

import random
import re
import shutil
from contextlib import ExitStack

import msgspec
import pytest

from gristmill import Config, ConfigError, DatasetError, OutputConfig, RunConfig, SplitConfig, WindowConfig, build
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.pipeline.pieces import DataFiles
from gristmill.pipeline.separate_steps import Shard, decide_all, finish_all, prepare_shard, shape_shard
from gristmill.pipeline.work_folder import Workspace
from support.builds import (
    called,
    copy_with_work,
    everything,
    kill_this_process,
    make,
    parts,
    refusal,
    run,
    run_until_killed,
    started,
    work_folder_of,
)
from support.source_trees import write_tree

SMALL = RunConfig(workers=1, batch_bytes=30_000)


@pytest.fixture(scope="module")
def source(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("steps") / "stdlib"
    for package in ("importlib", "json", "logging"):
        shutil.copytree(corpus / package, root / package)
    return root


def config_for(source, out, compress="none", **sections):
    output = OutputConfig(compress=compress, shard_bytes=300_000)
    return Config(**{"sources": [str(source)], "out": str(out), "output": output, "run": SMALL, **sections})


@pytest.fixture(scope="module")
def expected(tmp_path_factory, source):
    folder = tmp_path_factory.mktemp("expected")
    for compress in ("none", "zstd"):
        build(config_for(source, folder / compress, compress))
    return {compress: everything(folder / compress) for compress in ("none", "zstd")}


def run_all_steps(config, num_prepare, num_shape):
    num_batches = sum(prepare_shard(config, Shard(number, num_prepare)) for number in range(1, num_prepare + 1))
    num_pieces = decide_all(config)
    num_rows = sum(shape_shard(config, Shard(number, num_shape)) for number in range(1, num_shape + 1))
    manifest = finish_all(config)
    assert num_rows == sum(facts.windows for facts in manifest.splits.values())
    assert num_batches > 5
    assert num_pieces > 3
    return manifest


@pytest.mark.parametrize("compress", ["none", "zstd"])
@pytest.mark.parametrize("counts", [(1, 1), (3, 2), (2, 100)])
def test_any_number_of_shards_gives_the_same_dataset_as_a_build(source, expected, tmp_path, compress, counts):
    run_all_steps(config_for(source, tmp_path / "out", compress), *counts)
    assert everything(tmp_path / "out") == expected[compress]
    assert compare_with_clean_build(tmp_path / "out") == []


def finish_and_die_at_a_piece(config):
    add = DataFiles.add
    num_added = 0

    def add_or_die(self, task, shaped):
        nonlocal num_added
        num_added += 1
        if num_added == 3:
            kill_this_process()
        add(self, task, shaped)

    DataFiles.add = add_or_die
    finish_all(config)


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_killed_finish_can_be_run_again(source, expected, tmp_path, compress):
    config = config_for(source, tmp_path / "out", compress)
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    run_until_killed(finish_and_die_at_a_piece, config)
    finish_all(config)
    assert everything(tmp_path / "out") == expected[compress]


def steps_with_prefixes(config):
    """Return the function of each step and the prefix of the shard files that the step writes, or None."""
    return [
        (lambda: [prepare_shard(config, Shard(number, 2)) for number in (1, 2)], "prepared"),
        (lambda: decide_all(config), None),
        (lambda: [shape_shard(config, Shard(number, 2)) for number in (1, 2)], "shaped"),
        (lambda: finish_all(config), None),
    ]


@pytest.mark.parametrize("step", ["prepared", "shaped"])
def test_shard_file_with_the_name_of_another_shard_is_refused(source, tmp_path, step):
    config = config_for(source, tmp_path / "out")
    folder = work_folder_of(tmp_path / "out") / "steps"
    with pytest.raises(DatasetError, match=r"shard 2/2 of (prepare|shape) is missing"):
        for run_step, prefix in steps_with_prefixes(config):
            run_step()
            if prefix == step:
                shutil.copyfile(folder / f"{step}-1-of-2", folder / f"{step}-2-of-2")


def test_temporary_file_of_a_killed_shard_is_ignored(source, expected, tmp_path):
    for run_step, prefix in steps_with_prefixes(config_for(source, tmp_path / "out")):
        run_step()
        if prefix:
            (work_folder_of(tmp_path / "out") / "steps" / f"{prefix}-1-of-9.123-2d4a4674.tmp").touch()
    assert everything(tmp_path / "out") == expected["none"]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_part_damaged_between_steps_is_refused_until_prepared_again(source, expected, tmp_path, number, damage):
    steps = [run_step for run_step, _ in steps_with_prefixes(config_for(source, tmp_path / "out"))]
    for run_step in steps[: number + 1]:
        run_step()
    part = min((work_folder_of(tmp_path / "out") / "prepared").iterdir())
    content = part.read_bytes()
    part.write_bytes({"flipped": bytes([content[0] ^ 1]) + content[1:]}.get(damage, content[: len(content) // 2]))
    if damage == "gone":
        part.unlink()
    with pytest.raises(DatasetError, match=r"is damaged or missing\. Run gristmill prepare again"):
        for run_step in steps[number + 1 :]:
            run_step()
    for run_step in (steps[0], *steps[number + 1 :]):
        run_step()
    assert everything(tmp_path / "out") == expected["none"]


def finish_and_die_before_retiring(config):
    Workspace._retire = kill_this_process
    finish_all(config)


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_finish_killed_during_the_exchange_loses_nothing(source, tmp_path, compress):
    out = tmp_path / "out"
    changed = shutil.copytree(source, tmp_path / "stdlib")
    config = config_for(changed, out, compress)
    build(config)
    (out / "notes.txt").write_text("mine")
    (changed / "json/new.py").write_text("new = 1\n" * 50)
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    run_until_killed(finish_and_die_before_retiring, config)
    assert (work_folder_of(out) / "dataset" / "notes.txt").exists()
    prepare_shard(config, Shard(1, 1))
    assert (out / "notes.txt").read_text() == "mine"
    if compress == "none":  # compressed pieces may have the same offsets, so finish may succeed
        with pytest.raises(DatasetError, match="Run gristmill decide, shape and finish again"):
            finish_all(config)
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    finish_all(config)
    assert compare_with_clean_build(out) == []
    assert not (work_folder_of(out) / "scratch").exists()


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_dataset_that_was_moved_away_is_shaped_again(source, expected, tmp_path, compress):
    config = config_for(source, tmp_path / "out", compress)
    build(config)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    build(config)
    assert everything(tmp_path / "out") == expected[compress]


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_shards_can_run_in_any_order_and_repeatedly(source, expected, tmp_path, compress):
    config = config_for(source, tmp_path / "out", compress)
    rng = random.Random(compress)
    for step, after in ((prepare_shard, decide_all), (shape_shard, finish_all)):
        numbers = [1, 2, 3, 4, *rng.choices([1, 2, 3, 4], k=3)]
        rng.shuffle(numbers)
        for number in numbers:
            step(config, Shard(number, 4))
        after(config)
    assert everything(tmp_path / "out") == expected[compress]


def test_steps_can_be_repeated_with_a_different_number_of_shards(source, expected, tmp_path):
    """The last run of each step determines the dataset."""
    config = config_for(source, tmp_path / "out")
    prepare_shard(config, Shard(1, 3))
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    shape_shard(config, Shard(2, 2))
    prepare_shard(config, Shard(1, 2))
    prepare_shard(config, Shard(2, 2))
    decide_all(config)
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    finish_all(config)
    assert everything(tmp_path / "out") == expected["none"]


@pytest.mark.parametrize("compress", ["none", "zstd"])
def test_shards_can_run_concurrently(source, expected, tmp_path, compress):
    config = config_for(source, tmp_path / "out", compress)

    def run_concurrently(step):
        with ExitStack() as stack:
            processes = [stack.enter_context(started(step, config, Shard(number, 3))) for number in (1, 2, 3, 3)]
            for process in processes:
                process.join(100)
                assert process.exitcode == 0

    run_concurrently(prepare_shard)
    decide_all(config)
    run_concurrently(shape_shard)
    finish_all(config)
    assert everything(tmp_path / "out") == expected[compress]


def test_commands_share_one_configuration_file(source, expected, tmp_path):
    (tmp_path / "settings.toml").write_text(
        f'sources = ["{source}"]\nout = "{tmp_path / "out"}"\n[output]\nshard_bytes = 300_000\n'
        "[run]\nworkers = 1\nbatch_bytes = 30_000\n"
    )
    for step in (("prepare", "--shard", "1/1"), ("decide",), ("shape", "--shard", "1/1"), ("finish",)):
        done = run(*step, "--config", tmp_path / "settings.toml", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
    assert everything(tmp_path / "out") == expected["none"]


def test_splits_of_an_earlier_dataset_are_kept(source, tmp_path):
    out = tmp_path / "out"
    make(source / "json", tmp_path / "json", run=SMALL)
    changed = shutil.copytree(source, tmp_path / "stdlib")
    build(config_for(changed, out, split=SplitConfig(seed=4)))
    write_tree(changed, {"new.py": "x = 1\n" * 40})
    copy_with_work(out, tmp_path / "built")
    build(config_for(changed, tmp_path / "built"))
    run_all_steps(config_for(changed, out), 2, 2)
    assert everything(out) == everything(tmp_path / "built")
    assert everything(out)[1]["previous_splits"] is not None


def test_build_after_the_steps_prepares_only_changed_files(source, tmp_path):
    changed, out = shutil.copytree(source, tmp_path / "stdlib"), tmp_path / "out"
    config = config_for(changed, out)
    run_all_steps(config, 2, 2)
    assert not (work_folder_of(out) / "steps").exists()
    parts_before = parts(out)
    path = changed / "json/decoder.py"
    path.write_bytes(path.read_bytes().replace(b"return", b"return ", 1))
    build(config)
    assert len(parts(out).items() - parts_before.items()) == 1
    assert compare_with_clean_build(out) == []
    assert compare_with_clean_build(out) == []


def test_steps_after_a_build_reuse_its_parts(source, tmp_path):
    config = config_for(source, tmp_path / "out")
    build(config)
    parts_before = parts(tmp_path / "out")
    run_all_steps(config, 2, 2)
    assert parts(tmp_path / "out") == parts_before


# Inconsistent shards, settings and sources.


def test_missing_shard_is_named(source, tmp_path):
    config = config_for(source, tmp_path / "out")
    with pytest.raises(
        DatasetError, match=r"^no results of gristmill prepare found\. First run gristmill prepare --shard 1/1 with"
    ):
        decide_all(config)
    prepare_shard(config, Shard(1, 3))
    prepare_shard(config, Shard(3, 3))
    with pytest.raises(
        DatasetError, match=r"^shard 2/3 of prepare is missing.* Run gristmill prepare --shard 2/3 with"
    ):
        decide_all(config)
    with pytest.raises(
        DatasetError,
        match=r"^no results of gristmill decide found for these settings\. First run gristmill decide with",
    ):
        shape_shard(config, Shard(1, 1))
    prepare_shard(config, Shard(2, 3))
    decide_all(config)
    with pytest.raises(
        DatasetError, match=r"^no results of gristmill shape found\. First run gristmill shape --shard 1/1 with"
    ):
        finish_all(config)
    shape_shard(config, Shard(2, 2))
    with pytest.raises(DatasetError, match=r"^shard 1/2 of shape is missing"):
        finish_all(config)
    shape_shard(config, Shard(1, 2))
    finish_all(config)


def test_shards_with_different_settings_are_refused(source, expected, tmp_path):
    config = config_for(source, tmp_path / "out")
    other = msgspec.structs.replace(config, window=WindowConfig(overlap=17))
    prepare_shard(config, Shard(1, 2))
    prepare_shard(other, Shard(2, 2))
    for one in (config, other):
        with pytest.raises(DatasetError, match="made with different settings or sources"):
            decide_all(one)
    prepare_shard(config, Shard(2, 2))
    decide_all(config)
    with pytest.raises(DatasetError, match="for these settings"):
        shape_shard(other, Shard(1, 1))
    shape_shard(config, Shard(1, 1))
    with pytest.raises(DatasetError, match="for these settings"):
        finish_all(other)
    finish_all(config)
    assert everything(tmp_path / "out") == expected["none"]


@pytest.mark.parametrize("step", [shape_shard, finish_all])
@pytest.mark.parametrize(
    "sections",
    [
        {"output": OutputConfig(compress="zstd", shard_bytes=300_000)},
        {"output": OutputConfig(shard_bytes=100_000)},
        {"split": SplitConfig(seed=9)},
        {"split": SplitConfig(shares="50/25/25")},
    ],
)
def test_settings_changed_after_decide_are_refused(source, expected, tmp_path, step, sections):
    config = config_for(source, tmp_path / "out")
    other = msgspec.structs.replace(config, **sections)
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    if step is finish_all:
        shape_shard(config, Shard(1, 1))
    with pytest.raises(DatasetError, match=r"First run gristmill \w+"):
        finish_all(other) if step is finish_all else shape_shard(other, Shard(1, 1))


def add_a_file(source):
    write_tree(source, {"new.py": "x = 1\n" * 9})


def remove_a_file(source):
    (source / "json/decoder.py").unlink()


def lengthen_a_file(source):
    (source / "json/decoder.py").write_text("x = 1\n" * 9)


@pytest.mark.parametrize("change", [add_a_file, remove_a_file, lengthen_a_file])
def test_source_that_changes_between_shards_is_refused(source, tmp_path, change):
    changed, out = shutil.copytree(source, tmp_path / "stdlib"), tmp_path / "out"
    config = config_for(changed, out)
    prepare_shard(config, Shard(1, 2))
    change(changed)
    prepare_shard(config, Shard(2, 2))
    with pytest.raises(DatasetError, match=r"^shard 1/2 of prepare .* different settings or sources"):
        decide_all(config)
    prepare_shard(config, Shard(1, 2))
    decide_all(config)
    shape_shard(config, Shard(1, 1))
    finish_all(config)
    make(changed, tmp_path / "built", output=config.output)
    assert everything(out) == everything(tmp_path / "built")


def test_source_changes_after_decide_have_no_effect(source, expected, tmp_path):
    """Files that are changed, added or deleted after decide do not change the dataset."""
    changed, out = shutil.copytree(source, tmp_path / "stdlib"), tmp_path / "out"
    config = config_for(changed, out)
    prepare_shard(config, Shard(1, 1))
    decide_all(config)
    (changed / "json/decoder.py").write_text("x = 1\n")
    shape_shard(config, Shard(1, 2))
    add_a_file(changed)
    shape_shard(config, Shard(2, 2))
    remove_a_file(changed)
    finish_all(config)
    assert everything(out) == expected["none"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/2", "a/b", "1/2/3", "", "1/ 2", "1.0/2", "/"])
def test_invalid_shard_is_refused(text):
    with pytest.raises(
        ConfigError, match=re.escape(f"--shard must be I/N with I from 1 to N, like 3/16, got {text!r}.")
    ):
        Shard.of(text)


def test_commands_report_errors_in_one_line(source, tmp_path):
    words = (source, "--out", tmp_path / "out", "--workers", 1)
    assert refusal(called("prepare", *words)) == (
        2,
        "prepare needs --shard I/N. Use --shard 1/1 to do this step on one machine.",
    )
    assert refusal(called("shape", *words, "--shard", "5/4"))[0] == 2
    code, line = refusal(called("decide", *words))
    assert (code, line) == (
        4,
        "no results of gristmill prepare found. First run gristmill prepare --shard 1/1 with the same sources and options.",
    )
    code, line = refusal(called("finish", *words))
    assert code == 4
    assert line == (
        "no results of gristmill decide found for these settings. First run gristmill decide with the same sources "
        "and options."
    )
    done = called("prepare", *words, "--shard", "1/1", "--json")
    assert (done.returncode, done.stdout) == (0, '{"batches": 1}\n')
    assert "decided" in called("decide", *words).stdout
    assert "shard 1/1 shaped" in called("shape", *words, "--shard", "1/1").stdout
    assert "dataset" in called("finish", *words).stdout
