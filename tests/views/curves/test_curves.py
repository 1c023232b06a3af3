"""Curves: points land where they should, nothing breaks a picture, and a page is only ever itself."""

import base64
import hashlib
import itertools
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.errors import GristmillError
from gristmill.views.curves.chart import CURVES_HEAD, curves_svg
from gristmill.views.curves.frame import Box, frame_of
from gristmill.views.curves.labels import moved_apart
from gristmill.views.curves.lines import kept_indexes
from gristmill.views.curves.page import curves_html
from gristmill.views.curves.panel import Line, Mark, Panel, Point
from gristmill.views.curves.scale import Scale, linear_ticks, log_ticks, range_of, tick_step, with_room
from gristmill.views.numbers import log_tick_text, tick_texts, value_text
from gristmill.views.svg import shortened, text_width
from gristmill.views.table import Table, markdown_table
from gristmill.views.theme import BACKGROUND, DARK_BACKGROUND, DARK_LINE_COLOURS, LINE_COLOURS, MARKERS, Style

SVG = "{http://www.w3.org/2000/svg}"
NAN, INF = math.nan, math.inf
EVIL = "<img src=x onerror=alert(1)>\u202e\x07\"'&"

values = st.floats(-1e140, 1e140)
anything = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1e308, -1e308])


def line(*ys, name="train", **options):
    return Line(name, [Point(x, y) for x, y in enumerate(ys, 1)], **options)


def panel(*lines, **options):
    return Panel("Loss", "epoch", "nats", lines, **options)


def drawn(*panels):
    return ET.fromstring(curves_svg("Curves", "of a run", panels))


def curves(root):
    """The paths of lines, not of the legend's pieces, as lists of runs of places."""
    paths = [path for path in root.iter(f"{SVG}path") if path.get("stroke-width") in {"1.8", "1"}]
    paths = [path for path in paths if not path.get("d").endswith("h20")]
    return [[places(run) for run in path.get("d").split("M")[1:]] for path in paths]


def places(run):
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", run.split("h")[0])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_points_land_where_their_values_are():
    (run,) = curves(drawn(panel(line(0, 5, 10))))[0]
    (x1, y1), (x2, y2), (x3, y3) = run
    assert x1 < x2 < x3
    assert y1 > y2 > y3
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.11)
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.11)
    frame = frame_of(panel(line(0, 5, 10)), Box(0, 0, 400, 300))
    assert frame.at(1, 0) == (frame.box.left, frame.box.top + frame.box.height)
    assert frame.at(3, 10) == (frame.box.left + frame.box.width, frame.box.top)


def test_on_log_scales_equal_ratios_are_equally_far_apart():
    points = [Point(10, 0.001), Point(100, 0.1), Point(1000, 10)]
    (run,) = curves(drawn(panel(Line("train", points), log_x=True, log_y=True)))[0]
    for axis in (0, 1):
        first, second, third = (place[axis] for place in run)
        assert second - first == pytest.approx(third - second, abs=0.11)


def test_a_point_is_at_its_tick():
    scale = Scale(1, 100, 0, 200, log=True)
    assert [scale.at(value) for value in (1, 10, 100)] == [0, 100, 200]
    assert math.isnan(scale.at(0))


def test_a_band_runs_along_its_upper_edge_and_back_along_the_lower():
    banded = line(2, 3, 4, low=[1, 2, 3], high=[3, 4, 5])
    root = drawn(panel(banded))
    frame_lines = drawn(panel(banded, line(1, 2, 3, name="low", faint=True), line(3, 4, 5, name="high", faint=True)))
    (band,) = [path for path in root.iter(f"{SVG}path") if path.get("class") == "band"]
    shape = places(band.get("d").strip("Mz"))
    assert [x for x, _ in shape] == [x for x, _ in shape[:3]] + [x for x, _ in reversed(shape[:3])]
    ys = [y for _, y in shape]
    assert ys[5] - ys[0] == pytest.approx(ys[3] - ys[2], abs=0.11)
    assert ys[5] > ys[0] > ys[1] > ys[2]
    low, high = (run[0] for run in curves(frame_lines)[:2])
    assert [y for _, y in high] == pytest.approx(ys[:3], abs=0.11)
    assert [y for _, y in low] == pytest.approx(ys[:2:-1], abs=0.11)


def test_a_band_down_to_zero_ends_with_the_panel_on_a_log_scale():
    root = drawn(panel(line(1, 10, low=[0, -5], high=[2, 20]), log_y=True))
    (band,) = [path for path in root.iter(f"{SVG}path") if path.get("class") == "band"]
    assert "nan" not in band.get("d")
    assert len(places(band.get("d").strip("Mz"))) == 4


@pytest.mark.parametrize("edges", [{"low": [1.0]}, {"low": [1.0], "high": [2.0]}, {"high": [1.0, 2.0]}])
def test_a_band_that_does_not_fit_its_line_is_refused(edges):
    with pytest.raises(GristmillError, match="train"):
        line(1, 2, **edges)


def test_what_is_not_finite_is_a_gap():
    (runs,) = curves(drawn(panel(line(1, 2, NAN, 3, INF, 4, 5, -INF))))
    assert [len(run) for run in runs] == [2, 1, 2]
    (runs,) = curves(drawn(panel(line(1, 0, 10, -1), log_y=True)))
    assert [len(run) for run in runs] == [1, 1]


@pytest.mark.parametrize("lines", [(), (line(),), (line(NAN, INF),)])
def test_without_data_there_are_axes_and_nothing_yet(lines):
    root = drawn(panel(*lines, marks=[Mark("best", 3)]))
    assert "nothing yet" in texts(root)
    assert {"Loss", "nats", "epoch"} <= set(texts(root))


def test_no_panels_are_a_picture_too():
    assert texts(drawn()) == ["Curves", "of a run"]


def test_values_next_to_what_can_be_drawn_make_a_picture():
    line = Line("a", [Point(0.0, 1.0), Point(1.0, 3.175346365835159e-149)])
    text = curves_svg("t", "", [Panel("p", "x", "y", [line], log_y=True)])
    assert "nan" not in text


@given(st.lists(st.tuples(anything, anything, anything, anything), max_size=6), st.booleans(), st.booleans(), anything)
def test_any_numbers_make_a_picture(rows, log_x, log_y, at):
    one = Line("a", [Point(x, y) for x, y, _, _ in rows], [low for *_, low, _ in rows], [high for *_, high in rows])
    marks = [Mark("m", at), Mark("n", at, "y")]
    text = curves_svg("t", "", [Panel("p", "x", "y", [one], log_x=log_x, log_y=log_y, marks=marks)])
    ET.fromstring(text)
    assert not re.search(r"[ML ,](nan|inf|-inf)", text)


@given(values, values, st.integers(2, 12), st.booleans())
def test_ticks_ascend_within_the_range_and_are_few(one, other, most, whole):
    low, high = range_of([one, other], log=False)
    ticks = linear_ticks(low, high, most, whole=whole)
    assert all(low <= tick <= high for tick in ticks)
    assert all(before < after for before, after in itertools.pairwise(ticks))
    assert len(ticks) <= most
    assert not whole or all(tick == round(tick) for tick in ticks)
    if most > 3 and not whole:
        assert len(ticks) > 1
        assert len(set(tick_texts(ticks, tick_step(low, high, most)))) == len(ticks) or high - low < abs(high) / 1000


@given(st.floats(1e-140, 1e140), st.floats(1e-140, 1e140), st.integers(4, 12))
def test_log_ticks_ascend_within_the_range_and_are_few(one, other, most):
    low, high = range_of([one, other], log=True)
    ticks = log_ticks(low, high, most)
    assert all(low <= tick <= high for tick in ticks)
    assert all(before < after for before, after in itertools.pairwise(ticks))
    assert 2 <= len(ticks) <= most


@given(values, values)
def test_an_axis_holds_its_values_and_stays_above_zero_if_they_do(one, other):
    low, high = range_of([one, other], log=False)
    start, end = with_room(low, high, 6, log=False)
    assert start <= low < high <= end
    assert start >= 0 or low < 0


def test_ticks_are_those_people_would_choose():
    assert linear_ticks(0, 1, 6) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert linear_ticks(0.31, 0.64, 5) == [0.4, 0.5, 0.6]
    assert linear_ticks(1, 3, 9, whole=True) == [1, 2, 3]
    assert log_ticks(0.5, 20, 8) == [0.5, 1, 2, 5, 10, 20]
    assert log_ticks(1e-6, 1, 4) == [1e-6, 1e-4, 1e-2, 1]


def test_numbers_are_short_and_alike():
    assert tick_texts([0, 500_000, 1_000_000, 1_500_000], 500_000) == ["0", "0.5M", "1.0M", "1.5M"]
    assert tick_texts([0, 2500, 5000], 2500) == ["0", "2,500", "5,000"]
    assert tick_texts([10_000, 20_000], 10_000) == ["10k", "20k"]
    assert tick_texts([0.4, 0.45], 0.05) == ["0.40", "0.45"]
    assert tick_texts([0, 2e-5], 2e-5) == ["0", "2e-5"]
    assert [log_tick_text(tick) for tick in (1e-5, 0.02, 500, 2000, 1e7)] == ["1e-5", "0.02", "500", "2k", "10M"]
    assert [value_text(value) for value in (0.41234, 12345, 0, 2.5e-5, NAN)] == ["0.4123", "12,345", "0", "2.5e-5", "-"]


def test_thinning_keeps_ends_extremes_and_gaps():
    ys = [math.sin(index / 50) for index in range(10_000)]
    ys[1234], ys[7777], ys[5000] = 9.0, -9.0, NAN
    kept = kept_indexes([ys], 400)
    assert len(kept) <= 402
    assert {0, 1234, 5000, 7777, 9999} <= set(kept)
    assert kept == sorted(kept)
    assert kept_indexes([ys[:400]], 400) == list(range(400))


@given(st.lists(st.floats(-1, 1) | st.just(NAN), min_size=1, max_size=300), st.integers(4, 60))
def test_thinning_loses_no_extreme(ys, most):
    kept = [ys[index] for index in kept_indexes([ys], most)]
    shown = [y for y in ys if not math.isnan(y)]
    if shown:
        left = [y for y in kept if not math.isnan(y)]
        assert (min(left), max(left)) == (min(shown), max(shown))


def test_a_picture_of_many_points_stays_small_and_shows_the_spike():
    ys = [1 + 0.1 * math.sin(index) for index in range(20_000)]
    ys[7777] = 50.0
    banded = [line(*ys, name=f"run {number}", low=ys, high=ys) for number in range(4)]
    text = curves_svg("Curves", "", [panel(*banded)] * 2)
    assert len(text) < 150_000
    (run,) = curves(ET.fromstring(text))[0]
    assert min(y for _, y in run) < min(y for x, y in run[:100]) - 100


def test_the_same_input_gives_the_same_bytes():
    one, other = (curves_svg("Curves", "", [panel(line(1, 2), line(2, 1, name="validation"))]) for _ in range(2))
    assert one == other
    assert one.startswith(CURVES_HEAD)


def test_a_picture_is_told_in_words():
    root = drawn(panel(line(2.5, 0.5), line(2.6, 0.75, name="validation")))
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "Curves"
    assert "train from 2.500 to 0.5000; validation from 2.600 to 0.7500" in root.find(f"{SVG}desc").text


def test_a_name_looks_alike_in_every_panel_and_unlike_the_others():
    pair = (line(1, 2), line(2, 1, name="validation"))
    root = drawn(panel(*pair), panel(*reversed(pair)))
    colours = [group.get("color") for group in root.iter(f"{SVG}g") if group.findall(f"{SVG}path[@stroke-width='1.8']")]
    assert colours == [LINE_COLOURS[0], LINE_COLOURS[1], LINE_COLOURS[1], LINE_COLOURS[0]]
    looks = {(style.colour, style.marker, style.dash) for style in map(Style, range(24))}
    assert len(looks) == 24
    assert len(MARKERS) == len(LINE_COLOURS) == len(DARK_LINE_COLOURS)


def test_names_stand_at_line_ends_where_they_fit_and_else_in_a_legend():
    short = drawn(panel(line(1, 2), line(1, 2.01, name="validation")))
    at = {text.text: float(text.get("y")) for text in short.iter(f"{SVG}text")}
    assert abs(at["train"] - at["validation"]) >= 14
    many = drawn(panel(*(line(1, 2, name=f"line {number}") for number in range(40))))
    assert sum(text.startswith("line ") for text in texts(many)) == 40
    early = drawn(panel(line(1, 2), line(*range(1, 50), name="longer")))
    assert float(next(t for t in early.iter(f"{SVG}text") if t.text == "train").get("x")) < 100


def test_seeds_drawn_faint_share_the_name_of_their_mean():
    root = drawn(panel(line(1, 3, faint=True), line(1, 1, faint=True), line(1, 2)))
    assert texts(root).count("train") == 1
    assert len(curves(root)) == 3


@given(st.lists(st.floats(0, 300), min_size=1, max_size=20))
def test_labels_are_moved_apart_and_stay_inside(wanted):
    moved = moved_apart(sorted(wanted), 15, 0, 300)
    assert all(after - before >= 14.999 for before, after in itertools.pairwise(moved))
    assert moved[0] >= 0
    assert moved[-1] <= 300.001


def test_labels_with_room_stay_where_they_are():
    assert moved_apart([10, 50, 200], 15, 0, 300) == [10, 50, 200]
    assert moved_apart([100, 100], 20, 0, 300) == [90, 110]


def test_marks_stand_and_lie_at_their_values():
    marks = [Mark("best, epoch 2", 2), Mark("chance", 1.5, "y")]
    root = drawn(panel(line(1, 1.5, 2), marks=marks))
    (run,) = curves(root)[0]
    dashed = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray") == "3 3"]
    assert dashed[0].startswith(f"M{run[1][0]:.1f} ")
    assert f" {run[1][1]:.1f}H" in dashed[1]
    assert {"best, epoch 2", "chance"} <= set(texts(root))


def test_many_marks_leave_room_for_the_plot():
    frame = drawn(panel(line(*range(100)), marks=[Mark("a name of some length", 50 + at / 10) for at in range(30)]))
    (run,) = curves(frame)[0]
    assert run[0][1] - run[-1][1] > 100


def test_values_are_hints_under_the_mouse():
    hints = [title.text for title in drawn(panel(line(0.5, 0.25))).iter(f"{SVG}title")]
    assert hints[1:] == ["train: 0.5000 at epoch 1", "train: 0.2500 at epoch 2"]


def test_long_names_are_shortened_to_what_fits():
    assert shortened("short", 100) == "short"
    cut = shortened("a name " * 40, 200)
    assert cut.endswith("…")
    assert text_width(cut) <= 200
    assert text_width("データ") > text_width("abc")


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def named(self, wanted):
        return [attrs for tag, attrs in self.tags if tag == wanted]


def page(*, refresh=None, name="train", facts=(("model", "codebert"),)):
    tables = [Table("Final", ["dataset", "loss"], [[name, 0.5]])]
    return curves_html(f"Run of {name}", facts, [panel(line(2, 1, name=name))], tables, refresh)


def test_names_stay_text_in_pictures_and_pages():
    evil = Panel(EVIL, EVIL, EVIL, [line(1, 2, name=EVIL)], marks=[Mark(EVIL, 1), Mark(EVIL, 1, "y")])
    text = curves_svg(EVIL, EVIL, [evil])
    assert not {node.tag for node in ET.fromstring(text).iter()} & {f"{SVG}img", "img"}
    html = curves_html(EVIL, [(EVIL, EVIL)], [evil], [Table(EVIL, [EVIL], [[EVIL]])], None)
    parsed = Parsed(html)
    assert not parsed.named("img")
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)
    for made in (text, html):
        assert not any(char in made for char in "\u202e\x07")
    assert r"<img src=x onerror=alert(1)>\u202e\x07" in parsed.text


def test_a_page_refreshes_only_when_asked():
    assert not [meta for meta in Parsed(page()).named("meta") if meta.get("http-equiv") == "refresh"]
    (meta,) = [meta for meta in Parsed(page(refresh=30)).named("meta") if meta.get("http-equiv") == "refresh"]
    assert meta["content"] == "30"


def test_a_page_fetches_nothing_and_says_so():
    parsed = Parsed(page())
    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe", "object", "embed", "form", "a"}
    assert not any({"src", "href", "style", "srcset"} & set(attrs) for _, attrs in parsed.tags)
    (policy,) = [
        meta["content"] for meta in parsed.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    sheet = re.search(r"<style>(.*?)</style>", page(), re.DOTALL)[1]
    assert base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode() in policy
    assert "url(" not in sheet
    assert "@import" not in sheet


def test_a_page_has_facts_and_a_table_behind_each_chart():
    parsed = Parsed(page())
    assert all(word in parsed.text for word in ("model", "codebert", "Values of Loss", "Final"))
    assert len(parsed.named("details")) == len(parsed.named("figure")) == 1
    assert len(parsed.named("table")) == 2
    assert all(div.get("tabindex") == "0" for div in parsed.named("div") if div.get("class") == "scrolling")


def test_every_tag_of_a_page_is_closed():
    body = re.search(r"<body>.*</body>", page(name=EVIL), re.DOTALL)[0]
    ET.fromstring(body)


def test_a_table_is_markdown_with_numbers_at_the_right():
    table = Table("t", ["name", "loss", "share", "note"], [["a|b_c\n", 0.5, "85.7%", "x"], ["d", None, "≈9 ± 1%", "2"]])
    assert markdown_table(table).splitlines() == [
        "| name | loss | share | note |",
        "| :-- | --: | --: | :-- |",
        r"| a\|b\_c\\n | 0.5000 | 85.7% | x |",
        "| d | - | ≈9 ± 1% | 2 |",
    ]


def test_a_row_that_does_not_fit_its_table_is_refused():
    with pytest.raises(GristmillError, match="Row 2 of table 't' has 1 cells under 2 heads"):
        Table("t", ["a", "b"], [[1, 2], [1]])


# How colour-blind people see, in linear light (Machado, Oliveira and Fernandes 2009, in full strength).
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
CONES = ((0.41222, 0.53633, 0.05145), (0.2119, 0.6807, 0.1074), (0.0883, 0.28172, 0.62998))
OKLAB = ((0.21045, 0.79362, -0.00407), (1.978, -2.42859, 0.45059), (0.0259, 0.78277, -0.80868))


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def light_of(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour, matrix):
    cones = times(CONES, [max(0.0, part) for part in times(matrix, light_of(colour))])
    return times(OKLAB, [cone ** (1 / 3) for cone in cones])


def contrast(one, other):
    lights = sorted(0.05 + times([(0.2126, 0.7152, 0.0722)], light_of(colour))[0] for colour in (one, other))
    return lights[1] / lights[0]


@pytest.mark.parametrize(("colours", "ground"), [(LINE_COLOURS, BACKGROUND), (DARK_LINE_COLOURS, DARK_BACKGROUND)])
def test_colours_are_told_apart_by_everybody(colours, ground):
    assert all(contrast(colour, ground) >= 3 for colour in colours)
    for one, other in itertools.combinations(colours, 2):
        assert all(math.dist(seen(one, matrix), seen(other, matrix)) >= 0.09 for matrix in SEEN.values())
