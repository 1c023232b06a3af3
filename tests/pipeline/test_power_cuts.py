"""A power cut may lose all that was not synced: what takes its final name is on the disk, then its name, then old ones go.

`tools/cut_power.py` shows the same with a real file system, whose image is copied at every step of a build.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import gristmill
from gristmill import Config, DatasetError, OutputConfig, RunConfig, build, export, train_tokenizer
from gristmill.checks.rebuild import against_clean
from gristmill.core import layout
from gristmill.lab.training.metrics import Metrics
from gristmill.lab.training.run_folder import RunFolder
from gristmill.pipeline import work_folder as workspaces
from gristmill.pipeline.work_folder import Workspace
from support.builds import in_a_process
from support.source_trees import write_tree

GROWING = (".work", ".view", ".tmp", ".part")
"""Ends of folders in which nothing counts yet, or carries a digest: see `is_synced=False`."""
OF_THE_USER = "notes.txt"


class Law:
    """Watches this process's syncs, renames and deletions, and notes what a power cut could take from a folder."""

    def __init__(self, folder):
        self._folder = folder
        self.synced = {}
        """By file: when it was changed last, at its last sync."""
        self.unsynced_folders = {}
        """Folders in which a name is new, and the name."""
        self.named = []
        self.broken = []
        self._sync, self._exchange, law = os.fsync, Workspace._exchange, self

        def exchange(work):
            law._note_exchange(work)

        os.fsync, Workspace._exchange = self._note_sync, exchange
        if sys.platform == "darwin":  # where something else than fsync is called
            layout._sync = self._note_sync
        sys.addaudithook(self._look)

    def _note_sync(self, descriptor):
        self._sync(descriptor)
        facts = os.fstat(descriptor)
        self.synced[facts.st_ino] = facts.st_ctime_ns
        self.unsynced_folders.pop(facts.st_ino, None)

    def _note_exchange(self, work):
        self._take_name(work.dataset, work.target)
        self._exchange(work)
        self._note_new_name(work.target)
        self._note_new_name(work.dataset)

    def _look(self, event, arguments):
        if event == "os.rename":
            old, new = (Path(os.path.abspath(os.fsdecode(one))) for one in arguments[:2])
            if self._counts(new):
                self._take_name(old, new)
                self._note_new_name(new)
        elif event in {"os.remove", "os.rmdir", "shutil.rmtree"} and self.unsynced_folders:
            self.broken.append(f"{os.fsdecode(arguments[0])} is deleted before {self.unsynced_folders} are synced")
            self.unsynced_folders.clear()

    def _counts(self, name):
        if name.name == OF_THE_USER or not name.is_relative_to(self._folder):
            return False
        return not any(part.endswith(GROWING) for part in name.relative_to(self._folder).parts)

    def _take_name(self, old, new):
        self.named.append(new.name)
        inside = [old, *old.rglob("*")] if old.is_dir() else [old]
        states = {path: path.lstat() for path in inside if not path.is_symlink()}
        self.broken += [
            f"{new.name}: {path.name} is not synced"
            for path, facts in states.items()
            if self.synced.get(facts.st_ino) != facts.st_ctime_ns
        ]

    def _note_new_name(self, new):
        self.unsynced_folders[new.parent.stat().st_ino] = new.name


def under_the_law(folder, function, *arguments):
    """-> the names that were taken below the folder, and what was done too early."""
    law = Law(folder)
    function(*arguments)
    return law.named, law.broken + [f"{name} is not synced at the end" for name in law.unsynced_folders.values()]


@pytest.fixture(scope="module")
def config(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("cut")
    shutil.copytree(corpus / "json", root / "source")
    return Config(sources=[str(root / "source")], out=str(root / "out"), run=RunConfig(workers=1))


@pytest.fixture
def into(config, tmp_path):
    return lambda **sections: msgspec.structs.replace(config, out=str(tmp_path / "out"), **sections)


def without_exchange(config):
    """As on a file system on which two names cannot be exchanged at once."""
    workspaces.sys = type("sys", (), {"platform": "another"})
    build(config)


@pytest.mark.parametrize("builder", [build, without_exchange])
@pytest.mark.parametrize(
    "output",
    [{}, {"compress": "zstd", "shard_bytes": 50_000}, {"formats": ["jsonl", "parquet", "mds", "npy"]}],
    ids=["plain", "zstd", "formats"],
)
def test_a_dataset_is_on_the_disk_before_it_takes_its_place_and_there_before_the_earlier_one_goes(
    into, tmp_path, output, builder
):
    config = into(output=OutputConfig(**output))
    for _ in range(2):
        named, broken = in_a_process(under_the_law, tmp_path, builder, config)
        assert not broken
        assert set(named) == {"out"}
        (Path(config.out) / OF_THE_USER).write_text("mine")
    assert (Path(config.out) / OF_THE_USER).read_text() == "mine"


def export_twice(folder):
    export(folder, "npy", workers=1)
    export(folder, ["bin", "parquet"], workers=1)


def train_a_tokenizer_twice(config):
    for _ in range(2):
        train_tokenizer(config, 300)


def save_twice(folder):
    """A training's model and checkpoints; those before them are deleted."""
    place = RunFolder(folder)
    place.path.mkdir()
    metrics = Metrics(place.path)
    for step in (1, 2):
        place.keep_model(lambda beside: write_tree(beside, {"model.safetensors": "weights", "config.json": "{}"}))
        place.seal(write_tree(place.path / f"checkpoints/checkpoint-{step}", {"optimizer.pt": "state"}), metrics)
    shutil.rmtree(place.path / "checkpoints/checkpoint-1")
    assert place.last_checkpoint() == place.path / "checkpoints/checkpoint-2"


def test_what_is_added_to_a_dataset_is_on_the_disk_before_it_is_named(into, tmp_path):
    config = into()
    build(config)
    for function, expected in (
        (export_twice, {"npy", "bin", "parquet", "manifest.json", "README.md", "croissant.json"}),
        (gristmill.check, {"check.json"}),
        (gristmill.report, {"report.html"}),
    ):
        named, broken = in_a_process(under_the_law, tmp_path, function, config.out)
        assert not broken
        assert expected <= set(named)


def test_a_tokenizer_is_on_the_disk_before_it_takes_the_place_of_another(into, tmp_path):
    for name in ("tok", "tok.json"):
        config = msgspec.structs.replace(into(), out=str(tmp_path / name))
        named, broken = in_a_process(under_the_law, tmp_path, train_a_tokenizer_twice, config)
        assert not broken
        assert name in named


def test_a_model_and_a_checkpoint_are_on_the_disk_before_those_before_them_go(tmp_path):
    named, broken = in_a_process(under_the_law, tmp_path, save_twice, tmp_path / "run")
    assert not broken
    assert named.count("model") == 2
    assert named.count("whole") == 2


def upload(config):
    """To a folder of this machine, by its address; what lies here is deleted then."""
    os.chdir(Path(config.out).parent)
    law = Law(Path(config.out))
    build(msgspec.structs.replace(config, out=f"file://{config.out}"))
    return [path.name for path in Path(config.out).iterdir() if law.synced.get(path.stat().st_ino) is None]


def test_what_is_uploaded_to_a_folder_of_this_machine_is_on_the_disk_before_it_goes_here(into):
    config = into()
    assert in_a_process(upload, config) == []
    assert (Path(config.out) / "manifest.json").is_file()
    assert not (Path(config.out).parent / "out.work/dataset").exists()


def test_earlier_splits_that_a_cut_has_taken_are_missed(into):
    config = into()
    for _ in range(2):
        build(config)
    previous = Path(f"{config.out}.work/previous.jsonl")
    assert against_clean(config.out) == []
    previous.write_bytes(b"")
    with pytest.raises(DatasetError, match="has changed"):
        against_clean(config.out)
    previous.unlink()
    with pytest.raises(DatasetError, match="is missing"):
        against_clean(config.out)
