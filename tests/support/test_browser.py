"""The eyes of the tests: they must see what is wrong with a page."""

import pytest

from support.browser import file_address, watched


@pytest.fixture
def bad_page(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><html><head><meta charset='utf-8'><title>x</title></head><body><main><h1>x</h1>"
        "<img src='http://127.0.0.1:9/picture.png'><button></button>"
        "<script>console.error('complaint')</script></main></body></html>"
    )
    return file_address(path)


def test_complaints_strangers_and_barriers_are_seen(chromium, bad_page):
    with watched(chromium, bad_page) as seen:
        seen.page.goto(bad_page)
        assert seen.strangers == ["http://127.0.0.1:9/picture.png"]
        assert any("complaint" in one for one in seen.complaints)
        found = {one.partition(":")[0] for one in seen.violations()}
        assert found >= {"html-has-lang", "image-alt", "button-name"}
        with pytest.raises(AssertionError):
            seen.is_quiet()
