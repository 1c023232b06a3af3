"""Test that the list of slow tests names only existing tests, and that each folder has tests outside the list."""

import re

from support.source_trees import ROOT

TESTS = ROOT / "tests"
NAMES = [line for line in (TESTS / "slow.txt").read_text().splitlines() if not line.startswith("#")]


def test_every_name_is_an_existing_test():
    for name in NAMES:
        file, _, function = name.partition("::")
        assert (TESTS / file).is_file(), name
        assert not function or re.search(rf"^ *def {function}\(", (TESTS / file).read_text(), re.MULTILINE), name


def test_every_folder_has_quick_tests():
    files = {path.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    quick = {path for path in files if path.as_posix() not in NAMES}
    assert {path.parts[0] for path in quick} == {path.parts[0] for path in files}
