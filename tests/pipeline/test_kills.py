"""Whatever is killed, at any change that it makes to a file or folder, can be run again; builds are in test_workspace."""

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
from gristmill.lab.vocabulary.location import Place, splits_beside
from gristmill.views.viewer.viewer_folder import Keeping, forget
from support.builds import count_changes, in_a_process, make, run_until_killed
from support.source_trees import write_tree


def each_kill(tmp_path, begin, function, most=100):
    """`function` takes what `begin` makes in a folder -> that, for each step at which it was killed."""
    num_steps = in_a_process(count_changes, tmp_path / "counted", None, function, begin(tmp_path / "counted"))
    steps = range(1, num_steps + 1)
    for step in sorted({*steps[:5], *random.Random(num_steps).sample(steps, min(num_steps, most))}):
        subject = begin(tmp_path / f"{step}")
        run_until_killed(count_changes, tmp_path / f"{step}", step, function, subject)
        yield subject


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    source = write_tree(folder / "source", {f"{name}.py": f"def {name}(value):\n    return value\n" for name in "abc"})
    make(source, folder / "out", run=RunConfig(workers=1, cache_bytes=0))
    return folder / "out"


def export_streams(folder):
    export(folder, ["npy", "bin"], workers=1)


def test_an_export_is_taken_up_by_another_and_by_a_build(tmp_path, dataset):
    def copied(folder):
        out = Path(shutil.copytree(dataset, folder / "out"))
        (out / "notes.txt").write_text("mine")
        return out

    expected = in_a_process(exported, copied(tmp_path / "expected"))
    for out in each_kill(tmp_path, copied, export_streams, most=6):
        again = Path(shutil.copytree(out, out.with_name("again")))
        assert in_a_process(exported, again) == expected
        in_a_process(make, dataset.parent / "source", out)
        assert sorted(os.listdir(out)) == sorted([*os.listdir(dataset), "notes.txt"])
        assert gristmill.check(out).ok


def exported(folder):
    export_streams(folder)
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def publish_tokenizer(out):
    place = Place.of(str(out))
    place.refuse_foreign()
    with place.staged() as stage:
        digest = hashlib.sha256(b"new").hexdigest()
        facts = {"gristmill": "0", "sha256": digest, "splits_sha256": digest}
        texts = dict.fromkeys(("files.jsonl", "tokenizer.json", "tokenizer_config.json"), "new")
        write_tree(stage, {**texts, "vocabulary.json": json.dumps(facts)})
        place.publish(stage)


@pytest.mark.parametrize("name", ["tok", "tok.json"])
@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_tokenizer_is_put_in_its_place_again(tmp_path, name, has_earlier):
    def begun(folder):
        folder.mkdir()
        out = folder / name
        if has_earlier:
            publish_tokenizer(out)
            for path in Place.of(str(out)).files.values():
                path.write_text(path.read_text().replace("new", "old"))
        return out

    for out in each_kill(tmp_path, begun, publish_tokenizer):
        if splits_beside(str(out)) is not None:
            assert {path.read_text() for key, path in Place.of(str(out)).files.items() if "vocab" not in key} == {"new"}
        publish_tokenizer(out)
        assert splits_beside(str(out)) is not None
        assert not list(out.parent.glob("*.tmp"))


FACTS = RunFacts(gristmill="0", dataset="", dataset_sha256="", settings={}, versions={}, device="", command="")


def train(folder):
    """What a training writes, two checkpoints long."""
    place = RunFolder(folder / "run")
    place.begin(FACTS, place.look(FACTS, resume=False))
    metrics = Metrics(place.path)
    for step in (1, 2):
        place.keep_model(lambda beside, text=f"model {step}": write_tree(beside, {"weights": text, "config": text}))
        checkpoint = write_tree(place.path / f"checkpoints/checkpoint-{step}", {"state": f"state {step}"})
        place.seal(checkpoint, metrics)
    shutil.rmtree(place.path / "checkpoints/checkpoint-1")


def test_a_training_begins_again_or_goes_on(tmp_path):
    def begun(folder):
        folder.mkdir()
        return folder

    for folder in each_kill(tmp_path, begun, train):
        place = RunFolder(folder / "run")
        checkpoint = place.last_checkpoint()
        if checkpoint is None:
            train(folder)
        else:
            with pytest.raises(OutputError, match="--resume"):
                place.look(FACTS, resume=False)
            place.begin(FACTS, place.look(FACTS, resume=True))
            step = checkpoint.name[-1]
            assert (checkpoint / "state").read_text() == f"state {step}"
            assert {path.read_text() for path in place.model.iterdir()} == {f"model {step}"}
            assert all((one / "whole").is_file() for one in checkpoint.parent.iterdir())
            place.release()


def compare(folder, *, resume=False):
    """What a comparison writes before its first training."""
    window = FrozenWindow("repo", "a.py", 0, 2, np.array([1, 2], np.uint32))
    counts = dict.fromkeys(("files", "tokens", "windows", "window_length", "overlap", "tokens_before"), 1)
    digest = digest_of([window])
    facts = FrozenFacts(source=None, prefix=(), suffix=(), against=(), sha256=digest, **counts)
    ComparisonFolder(folder, resume=resume).keep(Frozen([window], facts))


def test_a_comparison_begins_again_or_goes_on(tmp_path):
    def begun(folder):
        folder.mkdir()
        return folder / "compared"

    for folder in each_kill(tmp_path, begun, compare):
        compare(folder, resume=(folder / "test.json").is_file())
        assert Frozen.read(folder).windows


def look_and_forget(dataset):
    keeping = Keeping(dataset)
    keeping.key()
    keeping.unfinished("index-1").joinpath("rows").write_text("")
    keeping.clear(keep="")
    forget(dataset)


def test_what_a_viewer_keeps_is_used_again_and_cleaned(tmp_path):
    def begun(folder):
        folder.mkdir()
        return folder / "dataset"

    for folder in each_kill(tmp_path, begun, look_and_forget):
        keeping = Keeping(folder)
        assert keeping.note is None
        assert keeping.key() == keeping.key()
        forget(folder)
        assert not os.listdir(folder.parent)
