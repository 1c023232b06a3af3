"""The report in a browser: charts, console messages, accessibility, and escaping of names."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import gristmill
from support.browser import PHONE, file_address, watched
from support.hostile_datasets import FOLDERS, PICTURE, TEMPLATE, build_hostile

DRAWN = "html[data-drawn]"
SECTIONS = ["files", "tokens", "windows", "duplicates", "splits", "secrets", "variants", "seconds", "rows", "repeat"]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    dataset = build_hostile(tmp_path_factory.mktemp("hostile"))
    gristmill.check(dataset, progress=gristmill.Progress(quiet=True))
    return file_address(gristmill.report(dataset))


@pytest.fixture(scope="module")
def opened(chromium, address):
    """Open the report on a desktop in light mode. A test that changes the page must restore the page."""
    with watched(chromium, address) as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector(DRAWN)
        yield seen


def texts(page, selector):
    return page.eval_on_selector_all(selector, "all => all.map(one => one.textContent)")


def test_every_chart_is_drawn_without_network_access(opened):
    marks = opened.page.eval_on_selector_all(
        ".chart",
        "all => all.map(one => [one.id, one.querySelectorAll('svg.main-svg .point path, svg.main-svg .slice path').length])",
    )
    names = ("funnel", "reasons", "languages", "licenses", "folders", "fill", "lengths", "redundancy", "splits-shares")
    assert {f"chart-{name}" for name in (*names, "secrets-kinds", "phases")} == {element_id for element_id, _ in marks}
    assert all(count > 0 for _, count in marks), marks
    assert opened.is_quiet()


def test_each_chart_has_a_title_a_caption_and_a_table(opened):
    figures = opened.page.eval_on_selector_all(
        "figure",
        "all => all.map(one => ['h3', 'figcaption p', '.chart[role=img][aria-label]', 'details table tbody tr']"
        ".map(what => one.querySelectorAll(what).length))",
    )
    assert figures
    assert all(counts[:3] == [1, 1, 1] and counts[3] > 0 for counts in figures), figures


def test_names_are_displayed_literally(opened):
    drawn = texts(opened.page, "#chart-folders text")
    assert all(any(folder in text for text in drawn) for folder in FOLDERS), drawn
    page = opened.page.text_content("main")
    for name in (f"{PICTURE}/empty.py", "sources/<", r"a\u202eb.py", "second <script>alert(1)<script>.py"):
        assert name in page, name
    assert "\u202e" not in page
    assert opened.page.locator("main img, main script, main b:text('bold'), svg b").count() == 0


@pytest.mark.parametrize("folder", [PICTURE, TEMPLATE])
def test_hover_texts_display_names_literally(opened, folder):
    opened.page.locator("#chart-folders .slice").filter(has_text=folder).first.hover()
    opened.page.wait_for_selector("#chart-folders .hoverlayer text")
    assert f"sources/{folder}" in "".join(texts(opened.page, "#chart-folders .hoverlayer text"))
    opened.page.mouse.move(0, 0)
    assert opened.is_quiet()


def test_path_above_an_opened_folder_is_visible_and_leads_back(opened):
    chart = opened.page.locator("#chart-folders")
    opened.page.evaluate(
        "Plotly.restyle('chart-folders', { level: document.getElementById('chart-folders').data[0].ids[1] })"
    )
    path = chart.locator(".pathbar").filter(has_text="sources")
    assert chart.bounding_box()["y"] <= path.bounding_box()["y"]
    path.dispatch_event("click")
    path.wait_for(state="detached")
    assert opened.is_quiet()


def test_bars_have_hover_texts(opened):
    opened.page.evaluate("Plotly.Fx.hover('chart-languages', [{curveNumber: 0, pointNumber: 0}])")
    text = "".join(texts(opened.page, "#chart-languages .hoverlayer text"))
    assert re.search(r"python.*train: [\d,]+ tokens", text), text
    opened.page.evaluate("Plotly.Fx.unhover('chart-languages')")


def test_keyboard_reaches_contents_tables_and_collapsed_sections(opened):
    page = opened.page
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#files figure summary")
    page.keyboard.press("Enter")
    assert page.locator("#files figure details").first.get_attribute("open") is not None
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.scrolling[role=region][aria-label]')")
    page.focus("#files figure summary")
    page.keyboard.press("Enter")
    hrefs = page.eval_on_selector_all("nav a", "all => all.map(one => one.getAttribute('href').slice(1))")
    assert hrefs == SECTIONS
    assert all(page.locator(f"#{name}").count() == 1 for name in hrefs)


def test_changed_lines_are_marked_by_sign_and_element(opened):
    row = opened.page.locator("#duplicates tr").filter(has=opened.page.locator("del")).first
    assert row.locator("td").all_text_contents()[1::3] == ["\N{MINUS SIGN}", "+"]
    assert "value * 3 +" in row.locator("del").text_content()
    assert "value * 4 -" in row.locator("ins").text_content()


def test_colors_follow_the_system_and_printing_is_light(opened):
    def text_color():
        return opened.page.eval_on_selector("#chart-reasons .ytick text", "one => getComputedStyle(one).fill")

    def num_open():
        return opened.page.locator("details.values[open]").count()

    light, num_open_before = text_color(), num_open()
    opened.page.emulate_media(color_scheme="dark")
    opened.page.wait_for_function(
        "old => getComputedStyle(document.querySelector('#chart-reasons .ytick text')).fill !== old", arg=light
    )
    opened.page.emulate_media(color_scheme="dark", media="print")
    opened.page.wait_for_function(
        "old => getComputedStyle(document.querySelector('#chart-reasons .ytick text')).fill === old", arg=light
    )
    assert num_open() == opened.page.locator("details.values").count() > num_open_before
    assert all(opened.page.locator(f"#{name} h2").is_visible() for name in SECTIONS)
    assert opened.page.evaluate("document.querySelector('#chart-fill .main-svg').getAttribute('width')") == "660"
    opened.page.emulate_media(color_scheme="light", media="screen")
    opened.page.wait_for_function(
        "count => document.querySelectorAll('details.values[open]').length === count", arg=num_open_before
    )
    assert text_color() == light
    assert opened.is_quiet()


def test_no_accessibility_violations(opened):
    assert opened.violations() == []


def test_phone_needs_no_horizontal_scrolling(chromium, address):
    """Start in dark mode, because the desktop page is tested in light mode."""
    with watched(chromium, address, viewport=PHONE, dark=True) as seen:
        seen.page.goto(address)
        seen.page.wait_for_selector(DRAWN)
        assert seen.violations() == []
        color = "getComputedStyle(document.querySelector('#chart-reasons .ytick text')).fill"
        drawn = seen.page.evaluate(color)
        for scheme in ("dark", "light"):
            seen.page.emulate_media(color_scheme=scheme)
            seen.page.wait_for_function(f"([old, isOld]) => ({color} === old) === isOld", arg=[drawn, scheme == "dark"])
            assert seen.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            widths = seen.page.eval_on_selector_all(
                ".chart", "all => all.map(one => [one.scrollWidth, one.clientWidth])"
            )
            assert all(inner <= outer for inner, outer in widths), widths
        assert seen.is_quiet()


def test_tables_work_without_javascript(chromium, address):
    with watched(chromium, address, java_script_enabled=False) as seen:
        seen.page.goto(address)
        assert "need JavaScript" in seen.page.locator("noscript").inner_text()
        assert not seen.page.locator(".chart").first.is_visible()
        seen.page.locator("#tokens summary").first.click()
        assert seen.page.locator("#tokens td", has_text="python").first.is_visible()


def test_notebook_html_has_no_accessibility_violations(chromium, address, tmp_path):
    dataset = gristmill.open_dataset(Path(unquote(urlsplit(address).path)).parent)
    head = "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>x</title></head>"
    page = tmp_path / "notebook.html"
    page.write_text(f"{head}<body><main><h1>x</h1>{dataset._repr_html_()}</main></body></html>")
    for dark in (False, True):
        with watched(chromium, file_address(page), dark=dark) as seen:
            seen.page.goto(file_address(page))
            assert seen.page.locator("svg rect").first.bounding_box()["width"] == 120
            assert seen.violations() == []
            assert seen.is_quiet()
