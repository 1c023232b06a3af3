"""The dataset that a viewer displays, with its index. A rebuilt dataset is opened again."""

import os
import threading
from pathlib import Path

from gristmill.core.layout import MANIFEST
from gristmill.views.viewer.filters import FilterCache
from gristmill.views.viewer.index import Index, RequestPriority
from gristmill.views.viewer.viewer_dataset import ViewerDataset
from gristmill.views.viewer.viewer_folder import ViewerFolder

Stamp = tuple[int, int, int]
"""Inode, size and modification time of a manifest."""


class LoadedDataset:
    """One build of the dataset with its index and its filter results."""

    def __init__(self, folder: Path, viewer_folder: ViewerFolder, priority: RequestPriority) -> None:
        self.dataset = ViewerDataset(folder)
        self.index = Index(self.dataset, viewer_folder, priority)
        self.filter_cache = FilterCache(self.index, self.dataset.row_numbers)


class CurrentDataset:
    """The build that is currently in the dataset folder."""

    def __init__(self, folder: Path, viewer_folder: ViewerFolder) -> None:
        self._folder, self._viewer_folder = folder, viewer_folder
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self.priority = RequestPriority()
        self._loaded = LoadedDataset(folder, viewer_folder, self.priority)

    def start(self) -> None:
        self._loaded.index.start()

    def close(self) -> None:
        self._loaded.index.stop()

    def get(self) -> LoadedDataset:
        """Return the current build, after loading it if the manifest has changed.

        Raises DatasetError while the manifest is missing or damaged. The next call tries again.
        """
        with self._lock:
            stamp = self._read_stamp()
            if stamp != self._stamp:
                loaded = LoadedDataset(self._folder, self._viewer_folder, self.priority)
                self._loaded.index.stop()
                self._stamp, self._loaded = stamp, loaded
                loaded.index.start()
            return self._loaded

    def _read_stamp(self) -> Stamp | None:
        try:
            facts = os.stat(self._folder / MANIFEST)
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns
