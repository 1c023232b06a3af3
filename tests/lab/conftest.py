import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.core.errors import MissingExtraError
from gristmill.core.extras import require_curves
from support.short_trainings import small_dataset


@pytest.fixture(scope="session")
def short_trainings() -> Iterator[None]:
    """Give the model `tiny` two narrow layers, and exclude loaded modules from garbage collection.

    Accelerate collects garbage at the end of each training run. Without the exclusion, the collection would scan all objects of
    PyTorch.
    """
    from gristmill.lab.training import models, train  # noqa: F401 - imports everything that a training run needs

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(models.SIZES, "tiny", models.Size(layers=2, width=64, heads=2, learning_rate=2e-3))
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()


@pytest.fixture
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train as if matplotlib were missing, because drawing curves takes longer than a few steps."""

    def missing() -> None:
        raise MissingExtraError("no test reads these curves.")

    monkeypatch.setattr("gristmill.lab.training.monitor.require_curves", missing)


@pytest.fixture
def with_curves(without_curves: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw curves even in modules that use `without_curves`."""
    monkeypatch.setattr("gristmill.lab.training.monitor.require_curves", require_curves)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with a few hundred short windows."""
    return small_dataset(tmp_path_factory.mktemp("small"))
