from documents import document
from gristmill.grouping.duplicates import exact_duplicates


def test_the_first_in_path_order_stays_and_the_others_know_it():
    files = [document(path, text=text) for path, text in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "x"))]
    kept, twins = exact_duplicates(files)
    assert [one.path for one in kept] == ["a", "b"]
    assert [(one.path, twin.path) for one, twin in twins] == [("c", "a"), ("d", "a")]


def test_the_text_decides_not_the_bytes_of_the_file():
    kept, _ = exact_duplicates([document("a", text="x"), document("b", text="x", sha256="of another encoding")])
    assert [one.path for one in kept] == ["a"]
