from gristmill.dedup.clusters import separate_exact_duplicates
from support.documents import document


def test_first_of_equal_files_is_kept_and_the_others_are_its_copies():
    files = [document(path, text=text) for path, text in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x"))]
    kept, copies = separate_exact_duplicates(files)
    assert [one.path for one in kept] == ["a", "b"]
    assert {number: [copy.path for copy in found] for number, found in copies.items()} == {0: ["c", "d"]}
