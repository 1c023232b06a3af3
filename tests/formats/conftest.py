import pytest

from support.format_roundtrip import BuiltDataset


@pytest.fixture(scope="session")
def built_tests(tmp_path_factory: pytest.TempPathFactory) -> BuiltDataset:
    """A dataset of this project's tests: only to be read."""
    return BuiltDataset.build_from_tests(tmp_path_factory.mktemp("tests") / "built")
