import pytest

from support.builds_read_back import Built


@pytest.fixture(scope="session")
def built_tests(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Dataset of this project's tests. Read-only."""
    return Built.of_tests(tmp_path_factory.mktemp("tests") / "built")
