"""Test that browser.py reports the faults of a page, and that the next test gets a clean page."""

import pytest

from support.browser import DESKTOP, PHONE, file_address, watched


@pytest.fixture
def bad_page(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        "<!doctype html><html><head><meta charset='utf-8'><title>x</title></head><body><main><h1>x</h1>"
        "<img src='http://127.0.0.1:9/picture.png'><button></button>"
        "<script>console.error('complaint'); alert('look here'); localStorage.setItem('kept', '1')</script>"
        "</main></body></html>"
    )
    return file_address(path)


def test_errors_foreign_requests_dialogs_and_violations_are_reported(chromium, bad_page):
    with watched(chromium, bad_page) as seen:
        seen.page.goto(bad_page)
        assert seen.foreign_requests == ["http://127.0.0.1:9/picture.png"]
        assert any("complaint" in one for one in seen.console_errors)
        assert seen.dialogs == ["look here"]
        found = {one.partition(":")[0] for one in seen.violations()}
        assert found >= {"html-has-lang", "image-alt", "button-name"}
        with pytest.raises(AssertionError):
            seen.is_quiet()


def test_reused_page_has_no_state_of_its_last_use(chromium, bad_page, tmp_path):
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><title>other</title>")
    address = file_address(other)
    with watched(chromium, bad_page, viewport=PHONE, dark=True) as seen:
        first = seen.page
        first.route(address, lambda route: route.abort())
        first.goto(bad_page)
        first.emulate_media(media="print")
        first.context.add_cookies([{"name": "kept", "value": "1", "url": "http://127.0.0.1:9/"}])
    with watched(chromium, address) as seen:
        assert seen.page is first
        seen.page.goto(address)
        assert seen.page.viewport_size == DESKTOP
        assert seen.page.evaluate("localStorage.length") == 0
        assert not seen.page.evaluate(
            "matchMedia('print').matches || matchMedia('(prefers-color-scheme: dark)').matches"
        )
        assert seen.page.evaluate("matchMedia('(prefers-reduced-motion: reduce)').matches")
        assert seen.page.context.cookies() == []
        assert seen.is_quiet()


def test_page_of_a_failed_test_is_not_reused(chromium, bad_page):
    with pytest.raises(AssertionError), watched(chromium, bad_page) as seen:
        raise AssertionError
    assert seen.page.is_closed()
