"""Curves as SVG and HTML: positions of points, unusual values and names, and self-contained pages."""

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.errors import GristmillError
from gristmill.views.curves import Line, Mark, Panel, Point, thin_indexes
from gristmill.views.curves_html import curves_html
from gristmill.views.curves_svg import CURVES_HEAD, curves_svg
from gristmill.views.svg import shorten_text, text_width
from gristmill.views.table import Table
from gristmill.views.theme import LINE_COLORS
from support.browser import file_address, watched
from support.pictures import SVG, Picture

NAN, INF = math.nan, math.inf
EVIL = "<img src=x onerror=alert(1)>\u202e\x07\"'& $x^2$ \\frac _"

any_float = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308])


def line(*ys, name="train", **options):
    return Line(name, [Point(x, y) for x, y in enumerate(ys, 1)], **options)


def panel(*lines, **options):
    return Panel("Loss", "epoch", "nats", lines, **options)


def drawn(*panels):
    return Picture(curves_svg("Curves", "of a run", panels))


def curve(picture, number=0, panel=0):
    return picture.shapes(rf"panel-{panel}-line-{number}")[f"panel-{panel}-line-{number}"]


# --- the picture ---


def test_points_are_drawn_at_their_values():
    ((x1, y1), (x2, y2), (x3, y3)) = curve(drawn(panel(line(0, 5, 10))))[0]
    assert x1 < x2 < x3
    assert y1 > y2 > y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.01)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.01)


def test_log_scales_draw_equal_ratios_at_equal_distances():
    points = [Point(10, 0.001), Point(100, 0.1), Point(1000, 10)]
    picture = drawn(panel(Line("train", points), log_x=True, log_y=True))
    (run,) = curve(picture)
    for axis in (0, 1):
        first, second, third = (point[axis] for point in run)
        assert second - first == pytest.approx(third - second, abs=0.01)
    assert {"epoch, log scale", "nats, log scale"} <= set(picture.texts())


@pytest.mark.parametrize("log", [False, True])
def test_point_is_drawn_at_its_tick(log):
    picture = drawn(panel(Line("train", [Point(1, 1), Point(10, 10), Point(100, 100)]), log_x=log, log_y=log))
    (run,) = curve(picture)
    tick = [(x, y) for text, x, y in picture.text_positions() if text == "100"]
    assert any(x == pytest.approx(run[-1][0], abs=0.01) for x, _ in tick), tick
    assert any(abs(y - run[-1][1]) < 6 for _, y in tick), tick


def test_integer_values_have_integer_ticks_and_no_negative_axis():
    picture = drawn(panel(line(0.01, 0.5, 0.02)))
    assert {"1", "2", "3"} <= set(picture.texts())
    assert not any(text.startswith("-") or text == "1.5" for text in picture.texts())


def test_band_follows_its_upper_and_lower_edge():
    banded = line(2, 3, 4, low=[1, 2, 3], high=[3, 4, 5])
    edges = line(1, 2, 3, name="low"), line(3, 4, 5, name="high")
    picture = drawn(panel(banded, *edges))
    ((shape,),) = picture.shapes("panel-0-band-0").values()
    (low,), (high,) = curve(picture, 1), curve(picture, 2)
    assert shape[:6] == [*high, *reversed(low)]


def test_band_down_to_zero_ends_at_smallest_value_on_log_scale():
    picture = drawn(panel(line(1, 10, low=[0, -5], high=[2, 20]), log_y=True))
    ((shape,),) = picture.shapes("panel-0-band-0").values()
    (run,) = curve(picture)
    assert [y for _, y in shape[2:4]] == pytest.approx([run[0][1]] * 2)


@pytest.mark.parametrize("edges", [{"low": [1.0]}, {"low": [1.0], "high": [2.0]}, {"high": [1.0, 2.0]}])
def test_band_with_a_different_length_than_its_line_is_rejected(edges):
    with pytest.raises(GristmillError, match="train"):
        line(1, 2, **edges)


def test_values_that_are_not_finite_are_gaps_and_single_points_are_dots():
    picture = drawn(panel(line(1, 2, NAN, 3, INF, 4, 5, -INF, faint=True)))
    assert [len(run) for run in curve(picture) if len(run) > 1] == [2, 2]
    assert len(picture.marker_positions("panel-0-line-0-dots")) == 1
    picture = drawn(panel(line(1, 0, 10, -1), log_y=True))
    assert [run for run in curve(picture) if len(run) > 1] == []
    assert len(picture.marker_positions("panel-0-line-0-dots")) == 2


@pytest.mark.parametrize("lines", [(), (line(),), (line(NAN, INF),)])
def test_panel_without_data_has_axes_and_a_note(lines):
    texts = drawn(panel(*lines, marks=[Mark("best", 3)])).texts()
    assert {"Loss", "nats", "epoch", "no data yet"} <= set(texts)


def test_picture_without_panels_has_titles_only():
    assert drawn().texts() == ["Curves", "of a run"]


def test_values_at_the_limit_of_the_log_scale_make_a_picture():
    line = Line("a", [Point(0.0, 1.0), Point(1.0, 3.175346365835159e-149)])
    text = curves_svg("t", "", [Panel("p", "x", "y", [line], log_y=True)])
    assert "nan" not in text


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(any_float, any_float, any_float, any_float), max_size=6), st.booleans(), st.booleans(), any_float
)
def test_any_numbers_make_a_picture(rows, log_x, log_y, at):
    one = Line("a", [Point(x, y) for x, y, _, _ in rows], [low for *_, low, _ in rows], [high for *_, high in rows])
    marks = [Mark("m", at), Mark("n", at, "y")]
    text = curves_svg("t", "", [Panel("p", "x", "y", [one], log_x=log_x, log_y=log_y, marks=marks)])
    ET.fromstring(text)
    assert not re.search(r"[ML ,\"](nan|inf|-inf)", text)


def test_thinning_keeps_ends_extremes_and_gaps():
    ys = [math.sin(index / 50) for index in range(10_000)]
    ys[1234], ys[7777], ys[5000] = 9.0, -9.0, NAN
    kept = thin_indexes([ys], 400)
    assert len(kept) <= 402
    assert {0, 1234, 5000, 7777, 9999} <= set(kept)
    assert kept == sorted(kept)
    assert thin_indexes([ys[:400]], 400) == list(range(400))


@given(st.lists(st.floats(-1, 1) | st.just(NAN), min_size=1, max_size=300), st.integers(4, 60))
def test_thinning_loses_no_extreme(ys, most):
    kept = [ys[index] for index in thin_indexes([ys], most)]
    finite = [y for y in ys if not math.isnan(y)]
    if finite:
        kept_finite = [y for y in kept if not math.isnan(y)]
        assert (min(kept_finite), max(kept_finite)) == (min(finite), max(finite))


def test_picture_of_many_points_is_small_and_shows_the_spike():
    ys = [1 + 0.1 * math.sin(index) for index in range(20_000)]
    ys[7777] = 50.0
    banded = [line(*ys, name=f"run {number}", low=ys, high=ys) for number in range(4)]
    text = curves_svg("Curves", "", [panel(*banded)] * 2)
    assert len(text) < 300_000
    (run,) = curve(Picture(text))
    assert min(y for _, y in run) < min(y for x, y in run[:100]) - 100


def test_same_input_gives_same_bytes_in_every_process(tmp_path):
    """The result does not depend on the user's matplotlibrc, and pyplot is not imported."""
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\nlines.linewidth: 9\nbackend: pdf\n")
    script = (
        "from gristmill.views.curves import *; from gristmill.views.curves_svg import curves_svg; import sys;"
        "lines = [Line('train \u30c7', [Point(1, 2), Point(2, 1)]), Line('validation', [Point(1, 3)])];"
        "sys.stdout.buffer.write(curves_svg('Curves', 'x', [Panel('Loss', 'epoch', 'nats', lines)]).encode());"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", script], cwd=folder, capture_output=True, check=True
        ).stdout
        for folder in (tmp_path, "/")
    ]
    lines = [Line("train \u30c7", [Point(1, 2), Point(2, 1)]), Line("validation", [Point(1, 3)])]
    expected = curves_svg("Curves", "x", [Panel("Loss", "epoch", "nats", lines)])
    assert [output.decode() for output in outputs] == [expected, expected]
    assert expected.startswith(CURVES_HEAD)
    assert "<dc:date>" not in expected


def test_drawing_does_not_change_matplotlib_settings():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    drawn(panel(line(1, 2)))
    assert dict(mpl.rcParams) == before


def test_picture_has_a_title_and_a_description():
    root = drawn(panel(line(2.5, 0.5), line(2.6, 0.75, name="validation"))).root
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "Curves"
    assert "train from 2.500 to 0.5000; validation from 2.600 to 0.7500" in root.find(f"{SVG}desc").text


def test_line_has_the_same_color_in_every_panel():
    pair = (line(1, 2), line(2, 1, name="validation"))
    picture = drawn(panel(*pair), panel(*reversed(pair)))
    names = ["panel-0-line-0", "panel-0-line-1", "panel-1-line-1", "panel-1-line-0", "legend-0", "legend-1"]
    colors = [re.search(r"stroke: (#\w+)", picture.style(name))[1] for name in names]
    assert colors == [LINE_COLORS[0], LINE_COLORS[1]] * 3


def test_legend_has_every_name_once_inside_the_picture():
    many = drawn(panel(*(line(1, 2, name=f"line {number}") for number in range(40))))
    assert sum(text.startswith("line ") for text in many.texts()) == 40
    places = [(x, y) for text, x, y in many.text_positions() if text.startswith("line ")]
    assert len(set(places)) == 40
    assert all(0 < x < many.size[0] and 0 < y < many.size[1] for x, y in places)
    (run,) = curve(many)
    assert run[0][1] - run[-1][1] > 100


def test_faint_lines_share_the_legend_entry_of_their_mean():
    picture = drawn(panel(line(1, 3, faint=True), line(1, 1, faint=True), line(1, 2)))
    assert picture.texts().count("train") == 1
    assert len(picture.shapes(r"panel-0-line-\d")) == 3


def test_marks_are_drawn_at_their_values():
    marks = [Mark("best, epoch 2", 2), Mark("chance", 1.5, "y")]
    picture = drawn(panel(line(1, 1.5, 2), marks=marks))
    (run,) = curve(picture)
    (vertical,), (horizontal,) = (picture.shapes(f"panel-0-mark-{axis}-0")[f"panel-0-mark-{axis}-0"] for axis in "xy")
    assert {x for x, _ in vertical} == {run[1][0]}
    assert {y for _, y in horizontal} == {run[1][1]}
    assert {"best, epoch 2", "chance"} <= set(picture.texts())


def test_many_marks_do_not_shrink_the_plot_or_overlap_their_names():
    marks = [Mark("a name of some length", 50 + at / 10) for at in range(30)]
    picture = drawn(panel(line(*range(100)), marks=marks))
    (run,) = curve(picture)
    assert run[0][1] - run[-1][1] > 100
    assert len(picture.shapes(r"panel-0-mark-x-\d+")) == 30
    assert picture.texts().count("a name of some length") == 1


def test_long_names_are_cut_to_the_width():
    assert shorten_text("short", 100) == "short"
    cut = shorten_text("a name " * 40, 200)
    assert cut.endswith("…")
    assert text_width(cut) <= 200
    assert text_width("データ") > text_width("abc")


# --- the page ---


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def attributes(self, name):
        return [attrs for tag, attrs in self.tags if tag == name]


def page(*, refresh=None, name="train", facts=(("model", "codebert"),), **options):
    tables = [Table("Final", ["dataset", "loss"], [[name, 0.5]])]
    return curves_html(f"Run of {name}", facts, [panel(line(2, 1, name=name), **options)], tables, refresh)


def chart_data(html):
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)[1])


def test_hostile_names_remain_text_in_pictures_and_pages():
    evil = Panel(EVIL, EVIL, EVIL, [line(1, 2, name=EVIL)], marks=[Mark(EVIL, 1), Mark(EVIL, 1, "y")])
    text = curves_svg(EVIL, EVIL, [evil])
    picture = Picture(text)
    assert {node.tag for node in picture.root.iter()} & {f"{SVG}img", "img"} == set()
    assert any("<img src=x onerror=alert(1)>\\u202e" in text and "$x^2$" in text for text in picture.texts())
    html = curves_html(EVIL, [(EVIL, EVIL)], [evil], [Table(EVIL, [EVIL], [[EVIL]])], None)
    parsed = Parsed(html)
    assert not parsed.attributes("img")
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)
    before_data = html[: html.index('id="charts"')]
    for output in (text, before_data, json.dumps(chart_data(html), ensure_ascii=False)):
        assert not any(char in output for char in "\u202e\x07")
    assert r"<img src=x onerror=alert(1)>\u202e\x07" in parsed.text
    (curve,) = chart_data(html)["charts"]["chart-panel-0"]["curves"]
    assert curve["name"].startswith("&lt;img src=x")


def test_page_reloads_only_if_requested():
    assert not [meta for meta in Parsed(page()).attributes("meta") if meta.get("http-equiv") == "refresh"]
    (meta,) = [meta for meta in Parsed(page(refresh=30)).attributes("meta") if meta.get("http-equiv") == "refresh"]
    assert meta["content"] == "30"


def test_page_loads_nothing_and_its_policy_forbids_loading():
    html = page()
    parsed = Parsed(html)
    assert not {tag for tag, _ in parsed.tags} & {"link", "img", "iframe", "object", "embed", "form", "a"}
    assert not any({"src", "href", "style", "srcset"} & set(attrs) for _, attrs in parsed.tags)
    (policy,) = [
        meta["content"] for meta in parsed.attributes("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    sheet = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 3
    for text in (sheet, *scripts):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert "url(" not in sheet
    assert "@import" not in sheet


def test_page_has_facts_and_a_table_for_each_chart():
    parsed = Parsed(page())
    assert all(word in parsed.text for word in ("model", "codebert", "Table: Loss", "Final"))
    assert len(parsed.attributes("details")) == len(parsed.attributes("figure")) == 1
    assert len(parsed.attributes("table")) == 2
    assert all(div.get("tabindex") == "0" for div in parsed.attributes("div") if div.get("class") == "scrolling")


def test_every_tag_of_the_page_is_closed():
    assert Parsed(page(name=EVIL)).open == []


def test_page_data_has_gaps_bands_and_thinned_points():
    ys = [1.0, NAN, INF, *range(5000)]
    html = curves_html("t", [], [panel(line(*ys, low=ys, high=ys))], [], None)
    (curve,) = chart_data(html)["charts"]["chart-panel-0"]["curves"]
    assert len(curve["xs"]) <= 602
    assert None in curve["ys"]
    assert len(curve["bands"]) == 2
    assert max(filter(None, curve["ys"])) == 4999


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_browser_draws_curves_without_accessibility_violations(chromium, tmp_path, dark):
    marks = [Mark("best, epoch 2", 2), Mark(EVIL, 1.5, "y")]
    lines = [line(2, 1, 1.5, name=EVIL), line(3, 2, 1, name="validation", low=[2, 1, 0.5], high=[4, 3, 2])]
    panels = [panel(*lines, marks=marks, log_x=log, log_y=log) for log in (False, True)]
    path = tmp_path / "curves.html"
    path.write_text(curves_html("Run", [("model", EVIL)], [*panels, panel()], [], None))
    with watched(chromium, file_address(path), dark=dark) as seen:
        seen.page.goto(file_address(path))
        seen.page.wait_for_selector("html[data-drawn]")
        for chart in ("#chart-panel-0", "#chart-panel-1"):
            assert seen.page.locator(f"{chart} .scatterlayer .js-line").count() >= 2
            words = seen.page.eval_on_selector_all(f"{chart} text", "all => all.map(one => one.textContent)")
            assert any("<img src=x" in word for word in words)
            assert "best, epoch 2" in words
            lines = seen.page.eval_on_selector_all(
                f"{chart} .shapelayer path", "all => all.map(one => one.getBoundingClientRect().x)"
            )
            names = seen.page.locator(f"{chart} .annotation", has_text="best, epoch 2").bounding_box()
            point = seen.page.locator(f"{chart} .scatterlayer .trace:last-child .point").nth(1)
            middle = point.bounding_box()["x"] + point.bounding_box()["width"] / 2
            assert lines[0] == pytest.approx(middle, abs=2)
            assert names["x"] + names["width"] / 2 == pytest.approx(middle, abs=3)
            point.hover(force=True)
            seen.page.wait_for_selector(f"{chart} .hoverlayer text")
            assert "validation: 2 at epoch 2" in seen.page.text_content(f"{chart} .hoverlayer")
        assert "no data yet" in seen.page.inner_text("#chart-panel-2")
        assert seen.violations() == []
        assert seen.is_quiet()
