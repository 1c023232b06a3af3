import pytest

from support.format_roundtrip import BuiltDataset


@pytest.fixture(scope="session")
def built_tests(tmp_path_factory: pytest.TempPathFactory) -> BuiltDataset:
    """Dataset of this project's tests. Read-only."""
    return BuiltDataset.build_from_tests(tmp_path_factory.mktemp("tests") / "built")
