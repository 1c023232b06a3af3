import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from gristmill.core.errors import MissingExtraError
from gristmill.core.extras import require_curves
from support.short_trainings import small_dataset


@pytest.fixture(scope="session")
def short_trainings() -> Iterator[None]:
    """`tiny` has two narrow layers here.

    And what is loaded by now is no garbage: at the end of each training Accelerate would look through all of PyTorch.
    """
    from gristmill.lab.training import models, train  # noqa: F401 - with all that a training loads

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(models.SIZES, "tiny", models.Size(layers=2, width=64, heads=2, learning_rate=2e-3))
        gc.collect()
        gc.freeze()
        yield
        gc.unfreeze()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings go as they do without matplotlib: a few steps take less time than their curves."""

    def missing() -> None:
        raise MissingExtraError("no test looks at these curves.")

    monkeypatch.setattr("gristmill.lab.training.monitor.require_curves", missing)


@pytest.fixture
def drawn(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves are drawn all the same."""
    monkeypatch.setattr("gristmill.lab.training.monitor.require_curves", require_curves)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few hundred short windows."""
    return small_dataset(tmp_path_factory.mktemp("small"))
