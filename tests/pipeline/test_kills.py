"""Commands killed at any change to a file or folder can be run again. For kills of builds, see test_work_folder.py."""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import gristmill
from gristmill import OutputError, RunConfig, export
from gristmill.lab.comparison.comparison_folder import ComparisonFolder
from gristmill.lab.comparison.frozen import Frozen, FrozenFacts, FrozenWindow, digest_of
from gristmill.lab.training.metrics import Metrics
from gristmill.lab.training.run_folder import RunFacts, RunFolder
from gristmill.lab.vocabulary.location import TokenizerLocation, find_trained_splits
from gristmill.views.viewer.viewer_folder import ViewerFolder, delete_viewer_folder
from support.builds import count_changes, in_a_process, make, run_until_killed
from support.source_trees import write_tree


def each_kill(tmp_path, prepare, function, max_kills=100):
    """Kill `function` at many of its changes to files. After each kill, yield the argument of `function`.

    For each kill, `prepare` makes the argument in a new folder.
    """
    num_steps = in_a_process(count_changes, tmp_path / "counted", None, function, prepare(tmp_path / "counted"))
    steps = range(1, num_steps + 1)
    for step in sorted({*steps[:5], *random.Random(num_steps).sample(steps, min(num_steps, max_kills))}):
        prepared = prepare(tmp_path / f"{step}")
        run_until_killed(count_changes, tmp_path / f"{step}", step, function, prepared)
        yield prepared


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    source = write_tree(folder / "source", {f"{name}.py": f"def {name}(value):\n    return value\n" for name in "abc"})
    make(source, folder / "out", run=RunConfig(workers=1, cache_bytes=0))
    return folder / "out"


def export_streams(folder):
    export(folder, ["npy", "bin"], workers=1)


def test_killed_export_can_be_followed_by_an_export_or_a_build(tmp_path, dataset):
    def copy_dataset(folder):
        out = Path(shutil.copytree(dataset, folder / "out"))
        (out / "notes.txt").write_text("mine")
        return out

    expected = in_a_process(export_and_read, copy_dataset(tmp_path / "expected"))
    for out in each_kill(tmp_path, copy_dataset, export_streams, max_kills=6):
        again = Path(shutil.copytree(out, out.with_name("again")))
        assert in_a_process(export_and_read, again) == expected
        in_a_process(make, dataset.parent / "source", out)
        assert sorted(os.listdir(out)) == sorted([*os.listdir(dataset), "notes.txt"])
        assert gristmill.check(out).ok


def export_and_read(folder):
    export_streams(folder)
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def publish_tokenizer(out):
    location = TokenizerLocation.of(str(out))
    location.require_replaceable()
    with location.staged() as stage:
        digest = hashlib.sha256(b"new").hexdigest()
        facts = {"gristmill": "0", "sha256": digest, "splits_sha256": digest}
        texts = dict.fromkeys(("files.jsonl", "tokenizer.json", "tokenizer_config.json"), "new")
        write_tree(stage, {**texts, "vocabulary.json": json.dumps(facts)})
        location.publish(stage)


@pytest.mark.parametrize("name", ["tok", "tok.json"])
@pytest.mark.parametrize("has_earlier", [False, True])
def test_tokenizer_can_be_published_again_after_a_kill(tmp_path, name, has_earlier):
    def make_folder(folder):
        folder.mkdir()
        out = folder / name
        if has_earlier:
            publish_tokenizer(out)
            for path in TokenizerLocation.of(str(out)).files.values():
                path.write_text(path.read_text().replace("new", "old"))
        return out

    for out in each_kill(tmp_path, make_folder, publish_tokenizer):
        if find_trained_splits(str(out)) is not None:
            assert {
                path.read_text() for key, path in TokenizerLocation.of(str(out)).files.items() if "vocab" not in key
            } == {"new"}
        publish_tokenizer(out)
        assert find_trained_splits(str(out)) is not None
        assert not list(out.parent.glob("*.tmp"))


FACTS = RunFacts(gristmill="0", dataset="", dataset_sha256="", settings={}, versions={}, device="", command="")


def train(folder):
    """Write the files of a training run with two checkpoints."""
    run_folder = RunFolder(folder / "run")
    run_folder.begin(FACTS, run_folder.find_checkpoint(FACTS, resume=False))
    metrics = Metrics(run_folder.path)
    for step in (1, 2):
        run_folder.save_best_model(lambda to, text=f"model {step}": write_tree(to, {"weights": text, "config": text}))
        checkpoint = write_tree(run_folder.path / f"checkpoints/checkpoint-{step}", {"state": f"state {step}"})
        run_folder.seal(checkpoint, metrics)
    shutil.rmtree(run_folder.path / "checkpoints/checkpoint-1")


def test_killed_training_run_can_be_restarted_or_resumed(tmp_path):
    def make_folder(folder):
        folder.mkdir()
        return folder

    for folder in each_kill(tmp_path, make_folder, train):
        run_folder = RunFolder(folder / "run")
        checkpoint = run_folder.last_checkpoint()
        if checkpoint is None:
            train(folder)
        else:
            with pytest.raises(OutputError, match="--resume"):
                run_folder.find_checkpoint(FACTS, resume=False)
            run_folder.begin(FACTS, run_folder.find_checkpoint(FACTS, resume=True))
            step = checkpoint.name[-1]
            assert (checkpoint / "state").read_text() == f"state {step}"
            assert {path.read_text() for path in run_folder.model.iterdir()} == {f"model {step}"}
            assert all((one / "whole").is_file() for one in checkpoint.parent.iterdir())
            run_folder.release()


def compare(folder, *, resume=False):
    """Write the files that a comparison writes before its first training run."""
    window = FrozenWindow("repo", "a.py", 0, 2, np.array([1, 2], np.uint32))
    counts = dict.fromkeys(("files", "tokens", "windows", "window_length", "overlap", "tokens_before"), 1)
    digest = digest_of([window])
    facts = FrozenFacts(source=None, prefix=(), suffix=(), against=(), sha256=digest, **counts)
    ComparisonFolder(folder, resume=resume).keep(Frozen([window], facts))


def test_killed_comparison_can_be_restarted_or_resumed(tmp_path):
    def make_folder(folder):
        folder.mkdir()
        return folder / "compared"

    for folder in each_kill(tmp_path, make_folder, compare):
        compare(folder, resume=(folder / "test.json").is_file())
        assert Frozen.read(folder).windows


def write_and_forget_viewer_files(dataset):
    viewer_folder = ViewerFolder(dataset)
    viewer_folder.load_or_create_key()
    viewer_folder.create_unfinished("index-1").joinpath("rows").write_text("")
    viewer_folder.delete_other_indexes(keep="")
    delete_viewer_folder(dataset)


def test_files_of_a_killed_viewer_can_be_reused_and_deleted(tmp_path):
    def make_folder(folder):
        folder.mkdir()
        return folder / "dataset"

    for folder in each_kill(tmp_path, make_folder, write_and_forget_viewer_files):
        viewer_folder = ViewerFolder(folder)
        assert viewer_folder.note is None
        assert viewer_folder.load_or_create_key() == viewer_folder.load_or_create_key()
        delete_viewer_folder(folder)
        assert not os.listdir(folder.parent)
