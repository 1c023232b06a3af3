from documents import document
from gristmill.grouping.duplicates import drop_exact_duplicates
from gristmill.records import DropReason


def test_the_first_in_path_order_stays():
    first, other, again = document("a.py", text="x"), document("b.py", text="y"), document("c.py", text="x")
    kept, drops = drop_exact_duplicates([first, other, again])
    assert kept == [first, other]
    assert [(drop.path, drop.reason, drop.detail) for drop in drops] == [
        ("c.py", DropReason.EXACT_DUPLICATE, "same text as repo/a.py")
    ]
    assert drops[0].sha256 == again.sha256


def test_the_text_counts_not_its_encoding():
    plain, marked = document("a.py", text="x"), document("b.py", text="x", sha256="other bytes")
    assert drop_exact_duplicates([plain, marked])[0] == [plain]
