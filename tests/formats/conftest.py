import pytest

from support.format_roundtrip import BuiltDataset


@pytest.fixture(scope="session")
def built_tests(tmp_path_factory: pytest.TempPathFactory) -> BuiltDataset:
    """Dataset built from this project's tests. Tests must not change it."""
    return BuiltDataset.build_from_tests(tmp_path_factory.mktemp("tests") / "built")
