"""A row as HTML, in pages and notebooks: escaped, accessible, and still usable as a dict."""

import copy
import json
import pickle
import shutil
from html.parser import HTMLParser

import orjson
import pytest

from gristmill import DatasetError, open_dataset
from gristmill.views.row import AFTER, BEFORE, SPECIAL, view_row
from gristmill.views.row_html import ROW_STYLE, row_html
from support.browser import file_address, watched
from support.row_datasets import make_packed, make_plain, row_views


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return make_packed(tmp_path_factory.mktemp("packed"), "best-fit")


class Page(HTMLParser):
    """Parsed HTML: all tags with their attributes, and the text in the <pre>."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "pre" in self.open:
            self.text += data


def test_html_contains_the_text_of_the_row(plain, packed):
    for view in [*row_views(plain), *row_views(packed)]:
        page = Page(row_html(view))
        assert page.text == "".join(stroke.text for stroke in view.strokes)
        assert page.open == []


def test_html_has_only_harmless_tags(plain, packed):
    for view in [*row_views(plain), *row_views(packed)]:
        tags = Page(row_html(view)).tags
        assert {tag for tag, _ in tags} == {"section", "p", "b", "pre", "span"}
        assert {name for _, attributes in tags for name in attributes} <= {"class", "title"}


def test_every_token_has_its_id_and_marks(plain):
    for view in row_views(plain):
        tokens = {}
        for _, attributes in Page(row_html(view)).tags:
            number, colon, index = attributes.get("title", "").partition(": id ")
            if colon:
                tokens[int(number)] = int(index), set(attributes.get("class", "").split())
        with_text = {stroke.token for stroke in view.strokes}
        assert tokens.keys() == with_text
        for number, (index, classes) in tokens.items():
            flags = view.tokens[number][1]
            marks = {SPECIAL: "special", BEFORE: "before", AFTER: "after"}
            expected = {name for flag, name in marks.items() if flags & flag}
            assert index == view.tokens[number][0]
            assert classes == expected | ({"second"} if number % 2 else set())


def test_packed_windows_are_separate_blocks(packed):
    view = next(view for view in row_views(packed) if len(view.windows) > 1)
    blocks = [attributes for _, attributes in Page(row_html(view)).tags if attributes.get("class") == "window"]
    assert [one["title"] for one in blocks] == [f"{window.repo}/{window.path}" for window in view.windows]


def test_style_applies_only_to_the_row():
    rules = [line for line in ROW_STYLE.splitlines() if line]
    for rule in rules:
        selectors = rule.removeprefix("@media screen and (prefers-color-scheme:dark){").split("{")[0].split(",")
        assert all(".gristmill-row" in one for one in selectors), rule
    assert "url(" not in ROW_STYLE
    assert "<" not in ROW_STYLE


def test_no_accessibility_violations_in_light_and_dark(plain, packed, tmp_path, chromium):
    rows = "".join(map(row_html, [*row_views(plain)[:3], *row_views(packed)[:2]]))
    path = tmp_path / "rows.html"
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rows</title><style>{ROW_STYLE}</style>'
        f"</head><body><main><h1>Rows</h1>{rows}</main></body></html>"
    )
    backgrounds = []
    for dark in (False, True):
        with watched(chromium, file_address(path), dark=dark) as seen:
            seen.page.goto(file_address(path))
            assert seen.violations() == []
            assert seen.is_quiet()
            style = "getComputedStyle(document.querySelector('.gristmill-row pre')).backgroundColor"
            backgrounds.append(seen.page.evaluate(style))
            seen.page.evaluate("document.body.dataset.jpThemeLight = 'false'")
            backgrounds.append(seen.page.evaluate(style))
            fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert seen.page.evaluate(fits)
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(31, 30, 27)", "rgb(31, 30, 27)", "rgb(31, 30, 27)"]


def test_row_behaves_like_a_dict(plain):
    rows = open_dataset(plain)["train"]
    row, plain_row = rows[1], dict(rows[1])
    assert row == plain_row
    assert repr(row) == repr(plain_row)
    assert json.dumps(row) == json.dumps(plain_row)
    assert orjson.dumps(row) == orjson.dumps(plain_row)
    for copied in (pickle.loads(pickle.dumps(row)), copy.deepcopy(row), copy.copy(row), rows[0:3][1], list(rows)[1]):
        assert copied == plain_row
        assert copied._repr_html_() == row._repr_html_()


def test_notebook_html_of_a_row_includes_its_style(plain):
    rows = open_dataset(plain)["train"]
    html = rows[1]._repr_html_()
    assert html == f"<style>{ROW_STYLE}</style>\n{row_html(view_row(open_dataset(plain), 'train', 1))}"
    assert rows.padded()[1]._repr_html_() == rows[-12]._repr_html_() == html


def test_changed_row_or_row_of_a_deleted_dataset_is_a_plain_table(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "moved")
    row = open_dataset(folder)["train"][0]
    changed = row | {"input_ids": [0, 2]}
    shutil.rmtree(folder)
    other = open_dataset(plain)["train"][0]
    other["input_ids"] = [0, 2]
    for one in (row, other, type(row)(changed)):
        page = Page(one._repr_html_())
        assert {tag for tag, _ in page.tags} == {"table", "tr", "th", "td"}
        assert "&lt;img src=x onerror=alert(1)&gt;.py" in one._repr_html_()


def test_line_that_is_not_an_object_is_a_damaged_row(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "damaged")
    lines = (folder / "train.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "train.jsonl").write_bytes(b"".join([b'["abc"]\n', *lines[1:]]))
    with pytest.raises(DatasetError, match="damaged"):
        open_dataset(folder)["train"][0]
