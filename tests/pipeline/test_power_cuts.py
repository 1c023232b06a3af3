"""Files are synced before they get their final name, and the name is synced before old files are deleted.

Otherwise a power cut could lose the files. `tools/cut_power.py` tests these rules on a real file system. The tool
copies the image of the file system at every step of a build.
"""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import gristmill
from gristmill import Config, DatasetError, OutputConfig, RunConfig, build, export, train_tokenizer
from gristmill.checks.rebuild import compare_with_clean_build
from gristmill.core import layout
from gristmill.lab.training.metrics import Metrics
from gristmill.lab.training.run_folder import RunFolder
from gristmill.pipeline import work_folder
from gristmill.pipeline.work_folder import Workspace
from support.builds import in_a_process
from support.source_trees import write_tree

UNFINISHED_SUFFIXES = (".work", ".view", ".tmp", ".part")
"""Suffixes of paths whose files are unfinished or contain a digest. Such files need no sync."""
USER_FILE = "notes.txt"


class SyncMonitor:
    """Monitor of syncs, renames and deletions in this process. `violations` lists the unsafe renames and deletions."""

    def __init__(self, folder):
        self._folder = folder
        self.synced = {}
        """Change time (ctime) of each file at its last sync, keyed by inode."""
        self.unsynced_folders = {}
        """Last new name in each unsynced folder, keyed by the inode of the folder."""
        self.final_names = []
        self.violations = []
        self._sync, self._exchange, monitor = os.fsync, Workspace._exchange, self

        def exchange(work):
            monitor._note_exchange(work)

        os.fsync, Workspace._exchange = self._note_sync, exchange
        if sys.platform == "darwin":  # on macOS, files are not synced with os.fsync
            layout._sync = self._note_sync
        sys.addaudithook(self._audit)

    def _note_sync(self, descriptor):
        self._sync(descriptor)
        facts = os.fstat(descriptor)
        self.synced[facts.st_ino] = facts.st_ctime_ns
        self.unsynced_folders.pop(facts.st_ino, None)

    def _note_exchange(self, work):
        self._require_synced(work.dataset, work.target)
        self._exchange(work)
        self._note_new_name(work.target)
        self._note_new_name(work.dataset)

    def _audit(self, event, arguments):
        if event == "os.rename":
            old, new = (Path(os.path.abspath(os.fsdecode(one))) for one in arguments[:2])
            if self._is_final(new):
                self._require_synced(old, new)
                self._note_new_name(new)
        elif event in {"os.remove", "os.rmdir", "shutil.rmtree"} and self.unsynced_folders:
            self.violations.append(
                f"{os.fsdecode(arguments[0])} is deleted before these new names are synced: {self.unsynced_folders}"
            )
            self.unsynced_folders.clear()

    def _is_final(self, name):
        if name.name == USER_FILE or not name.is_relative_to(self._folder):
            return False
        return not any(part.endswith(UNFINISHED_SUFFIXES) for part in name.relative_to(self._folder).parts)

    def _require_synced(self, old, new):
        self.final_names.append(new.name)
        paths = [old, *old.rglob("*")] if old.is_dir() else [old]
        states = {path: path.lstat() for path in paths if not path.is_symlink()}
        self.violations += [
            f"{new.name}: {path.name} is not synced"
            for path, facts in states.items()
            if self.synced.get(facts.st_ino) != facts.st_ctime_ns
        ]

    def _note_new_name(self, new):
        self.unsynced_folders[new.parent.stat().st_ino] = new.name


def with_sync_monitor(folder, function, *arguments):
    """Call `function`. Return the final names that the call gave to paths in `folder`, and the violations."""
    monitor = SyncMonitor(folder)
    function(*arguments)
    return monitor.final_names, monitor.violations + [
        f"{name} is not synced at the end" for name in monitor.unsynced_folders.values()
    ]


@pytest.fixture(scope="module")
def config(tmp_path_factory, corpus):
    root = tmp_path_factory.mktemp("cut")
    shutil.copytree(corpus / "json", root / "source")
    return Config(sources=[str(root / "source")], out=str(root / "out"), run=RunConfig(workers=1))


@pytest.fixture
def config_into(config, tmp_path):
    return lambda **sections: msgspec.structs.replace(config, out=str(tmp_path / "out"), **sections)


def build_without_exchange(config):
    """Build as on a file system that cannot exchange two names atomically."""
    work_folder.sys = type("sys", (), {"platform": "another"})
    build(config)


@pytest.mark.parametrize("builder", [build, build_without_exchange])
@pytest.mark.parametrize(
    "output",
    [{}, {"compress": "zstd", "shard_bytes": 50_000}, {"formats": ["jsonl", "parquet", "mds", "npy"]}],
    ids=["plain", "zstd", "formats"],
)
def test_dataset_is_synced_before_it_is_published_and_before_the_earlier_one_is_deleted(
    config_into, tmp_path, output, builder
):
    config = config_into(output=OutputConfig(**output))
    for _ in range(2):
        final_names, violations = in_a_process(with_sync_monitor, tmp_path, builder, config)
        assert not violations
        assert set(final_names) == {"out"}
        (Path(config.out) / USER_FILE).write_text("mine")
    assert (Path(config.out) / USER_FILE).read_text() == "mine"


def export_twice(folder):
    export(folder, "npy", workers=1)
    export(folder, ["bin", "parquet"], workers=1)


def train_a_tokenizer_twice(config):
    for _ in range(2):
        train_tokenizer(config, 300)


def save_twice(folder):
    """Save the model and a checkpoint of a training run twice, and delete the first checkpoint."""
    run_folder = RunFolder(folder)
    run_folder.path.mkdir()
    metrics = Metrics(run_folder.path)
    for step in (1, 2):
        run_folder.save_best_model(lambda to: write_tree(to, {"model.safetensors": "weights", "config.json": "{}"}))
        run_folder.seal(
            write_tree(run_folder.path / f"checkpoints/checkpoint-{step}", {"optimizer.pt": "state"}), metrics
        )
    shutil.rmtree(run_folder.path / "checkpoints/checkpoint-1")
    assert run_folder.last_checkpoint() == run_folder.path / "checkpoints/checkpoint-2"


def test_files_added_to_a_dataset_are_synced_before_they_are_renamed(config_into, tmp_path):
    config = config_into()
    build(config)
    for function, expected in (
        (export_twice, {"npy", "bin", "parquet", "manifest.json", "README.md", "croissant.json"}),
        (gristmill.check, {"check.json"}),
        (gristmill.report, {"report.html"}),
    ):
        final_names, violations = in_a_process(with_sync_monitor, tmp_path, function, config.out)
        assert not violations
        assert expected <= set(final_names)


def test_tokenizer_is_synced_before_it_replaces_an_earlier_one(config_into, tmp_path):
    for name in ("tok", "tok.json"):
        config = msgspec.structs.replace(config_into(), out=str(tmp_path / name))
        final_names, violations = in_a_process(with_sync_monitor, tmp_path, train_a_tokenizer_twice, config)
        assert not violations
        assert name in final_names


def test_model_and_checkpoint_are_synced_before_earlier_ones_are_deleted(tmp_path):
    final_names, violations = in_a_process(with_sync_monitor, tmp_path, save_twice, tmp_path / "run")
    assert not violations
    assert final_names.count("model") == 2
    assert final_names.count("whole") == 2


def upload(config):
    """Build into a file:// URL. The build uploads the dataset and deletes the local original.

    Return the names of uploaded files that are not synced.
    """
    os.chdir(Path(config.out).parent)
    monitor = SyncMonitor(Path(config.out))
    build(msgspec.structs.replace(config, out=f"file://{config.out}"))
    return [path.name for path in Path(config.out).iterdir() if monitor.synced.get(path.stat().st_ino) is None]


def test_upload_to_a_local_folder_is_synced_before_the_original_is_deleted(config_into):
    config = config_into()
    assert in_a_process(upload, config) == []
    assert (Path(config.out) / "manifest.json").is_file()
    assert not (Path(config.out).parent / "out.work/dataset").exists()


def test_previous_splits_lost_in_a_power_cut_are_reported(config_into):
    config = config_into()
    for _ in range(2):
        build(config)
    previous = Path(f"{config.out}.work/previous.jsonl")
    assert compare_with_clean_build(config.out) == []
    previous.write_bytes(b"")
    with pytest.raises(DatasetError, match="has changed"):
        compare_with_clean_build(config.out)
    previous.unlink()
    with pytest.raises(DatasetError, match="is missing"):
        compare_with_clean_build(config.out)
