import pytest

from gristmill.core.errors import InputError
from gristmill.sources.addresses import resolve_sources
from support.source_trees import write_tree


def test_sources_with_the_same_name_get_unique_names(tmp_path):
    names = ["x/src", "y/src", "z/src~2"]
    roots = [write_tree(tmp_path / name, {"a.py": name}) for name in names]
    assert [source.repo for source in resolve_sources(list(map(str, roots)))] == ["src", "src~2", "src~2~2"]


def test_single_files_in_one_folder_are_one_source(tree):
    root = tree({"a.py": "a", "b.py": "b"})
    (source,) = resolve_sources([str(root / "a.py"), str(root / "b.py")])
    assert (source.repo, source.only_files) == ("repo", ("a.py", "b.py"))


@pytest.mark.parametrize("names", [["none"], [""], ["a.py/x"]])
def test_missing_source_is_refused(tree, monkeypatch, names):
    monkeypatch.chdir(tree({"a.py": "a"}))
    with pytest.raises(InputError, match="does not exist"):
        resolve_sources(names)


@pytest.mark.parametrize("names", [[".", "../repo"], ["a.py", "./a.py"]])
def test_repeated_source_is_refused(tree, monkeypatch, names):
    monkeypatch.chdir(tree({"a.py": "a"}))
    with pytest.raises(InputError, match="given twice"):
        resolve_sources(names)
