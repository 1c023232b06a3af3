import pytest

from support.format_roundtrip import BuiltDataset


@pytest.fixture(scope="session")
def built_tests(tmp_path_factory: pytest.TempPathFactory) -> BuiltDataset:
    """Dataset whose source is the tests folder of this project. Tests must not change the dataset."""
    return BuiltDataset.build_from_tests(tmp_path_factory.mktemp("tests") / "built")
