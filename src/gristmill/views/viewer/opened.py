"""What a viewer has open: the dataset and its index. A dataset that is built anew is opened anew."""

import os
import threading
from pathlib import Path

from gristmill.core.layout import MANIFEST
from gristmill.views.viewer.filters import Sieve
from gristmill.views.viewer.index import Index, Precedence
from gristmill.views.viewer.viewed_rows import ViewedDataset
from gristmill.views.viewer.viewer_folder import Keeping

Stamp = tuple[int, int, int]


class Viewed:
    def __init__(self, folder: Path, keeping: Keeping, precedence: Precedence) -> None:
        self.dataset = ViewedDataset(folder)
        self.index = Index(self.dataset, keeping, precedence)
        self.sieve = Sieve(self.index, self.dataset.numbering)


class Opened:
    """The dataset as it is now."""

    def __init__(self, folder: Path, keeping: Keeping) -> None:
        self._folder, self._keeping = folder, keeping
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self.precedence = Precedence()
        self._viewed = Viewed(folder, keeping, self.precedence)

    def start(self) -> None:
        self._viewed.index.start()

    def close(self) -> None:
        self._viewed.index.stop()

    def now(self) -> Viewed:
        """Raises DatasetError while a new one is not there, or damaged; a later one will do."""
        with self._lock:
            stamp = self._stamp_now()
            if stamp != self._stamp:
                viewed = Viewed(self._folder, self._keeping, self.precedence)
                self._viewed.index.stop()
                self._stamp, self._viewed = stamp, viewed
                viewed.index.start()
            return self._viewed

    def _stamp_now(self) -> Stamp | None:
        try:
            facts = os.stat(self._folder / MANIFEST)
        except OSError:
            return None
        return facts.st_ino, facts.st_size, facts.st_mtime_ns
