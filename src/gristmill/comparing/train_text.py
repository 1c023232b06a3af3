"""A dataset's train split as it streams past, once: the frozen side looks at it, and its ids are counted."""

from collections.abc import Callable, Iterable, Iterator

from gristmill.comparing.reading import ShownWindow, windows_of
from gristmill.comparing.spans import FrozenSpans
from gristmill.comparing.stretches import REACH, Stretch, stretches_of, with_seams
from gristmill.comparing.twins import Twins
from gristmill.dataset import Dataset
from gristmill.grouping.leakage import Flags
from gristmill.manifest import BUILD
from gristmill.records import Split
from gristmill.training.settings import LEFT_OUT


class TrainText:
    def __init__(self, dataset: Dataset, advance: Callable[[int], None]) -> None:
        self._dataset, self._advance = dataset, advance
        self._is_by_file = dataset.manifest.made_by == BUILD
        self.num_windows = self.num_ids = 0

    def compared_with(self, spans: FrozenSpans, twins: Twins) -> tuple[list[Flags], set[int]]:
        """Of each frozen stretch the tokens that train has too, and which frozen files have a near-duplicate here.

        Where a file's rows do not stand together there is no document to compare: only spans are looked for.
        """
        found: set[int] = set()
        stretches: Iterable[Stretch] = stretches_of(self._counted())
        if self._is_by_file:
            stretches = twins.watching(stretches, found)
        if self._dataset.manifest.settings["window"]["overlap"] < REACH:
            stretches = with_seams(stretches, is_by_file=self._is_by_file)
        return spans.shared_with(stretch.ids for stretch in stretches), found

    def _counted(self) -> Iterator[ShownWindow]:
        for window in windows_of(self._dataset, Split.TRAIN, self._advance):
            if window.text.variant not in LEFT_OUT:  # nor are they trained on
                self.num_windows += window.num_ids > 0
                self.num_ids += window.num_ids
            yield window
