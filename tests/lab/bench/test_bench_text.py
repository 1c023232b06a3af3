"""Rendered benchmark results: the numbers match, every method is listed, and no name can break a page."""

import json
import re
import xml.etree.ElementTree as ET

import msgspec
import pytest

from gristmill.lab.bench.bench_markdown import HEADING, bench_markdown
from gristmill.lab.bench.bench_result import PHASES, Bench, Corpus, Machine, MethodResult, Skipped
from gristmill.lab.bench.bench_svg import chart_svg
from gristmill.lab.bench.bench_text import bench_json, bench_text
from support.pictures import SVG, Picture

HOSTILE = "</text><script>|`[red]\n\x1b[2J&"


def method(name, seconds, **changes):
    phases = dict.fromkeys(PHASES, seconds / 8) | {"shape": None}
    defaults = {
        "name": name,
        "what": f"what {name} is",
        "seconds": seconds,
        "seconds_min": seconds,
        "seconds_max": seconds,
        "runs": 1,
        "phases": phases,
        "peak_mb": 321.0,
        "bytes": 150_000_000,
        "files": 2201,
        "windows": 60_000,
        "places": 60_000,
        "distinct": 0.999,
        "redundancy": 1.93,
        "padding": 0.0,
        "tokens_lost": 0,
        "tokens_left_out": 2345,
        "l50": 0.0,
    }
    return MethodResult(**{**defaults, **changes})


ORIGINAL = method(
    "original",
    136.0,
    phases={"load": 0.5, "scan": 1.5, "tokenize": 32.0, "shape": 9.0, "split": 1.0, "write": 90.0},
    bytes=1_500_000_000,
    windows=131_000,
    places=47_600,
    distinct=0.362,
    redundancy=3.67,
    padding=0.041,
    tokens_lost=120,
    tokens_left_out=0,
    l50=0.983,
)
THREADS = msgspec.structs.replace(
    ORIGINAL, name="threads", seconds=70.0, bytes=700_000_000, phases={**ORIGINAL.phases, "tokenize": 20.0, "write": 30}
)
GRISTMILL = method("gristmill", 2.0)
FLOOR = method("floor", 1.0, places=68_000, l50=None, bytes=190_000_000, redundancy=1.95)


def bench(*methods, **changes):
    defaults = {
        "methods": list(methods),
        "skipped": [],
        "corpus": Corpus(
            source="Lib", files=2201, bytes=34_000_000, tokens=17_000_000, withheld=3, tokenizer="codebert"
        ),
        "machine": Machine(platform="Linux x86_64", cores=2, memory_gb=15.6, python="3.11.9", versions={"numpy": "2"}),
        "command": "gristmill bench Lib",
    }
    return Bench(**{**defaults, **changes})


FULL = bench(
    ORIGINAL,
    THREADS,
    method("datasets", 5.0, scale=7.0, files=300),
    GRISTMILL,
    method("gristmill-no-rules", 1.75),
    method("gristmill-no-near-duplicates", 1.5, l50=0.0003),
    method("gristmill-plain", 1.25),
    method("gristmill-zstd", 2.5, bytes=75_000_000),
    FLOOR,
    skipped=[Skipped(name="batch", why="tokenizers is not installed: pip install 'gristmill[bench]'")],
)


def section(page, title):
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def line_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


# --- text ---


def test_text_names_every_method_in_each_table_and_fits_a_terminal():
    text = bench_text(FULL)
    assert max(map(len, text.splitlines())) <= 100
    for one in FULL.methods:
        assert sum(line.split()[:1] == [one.name] for line in text.splitlines()) == 3


def test_text_has_the_numbers_of_the_result():
    text = bench_text(FULL)
    assert line_of(text, "original").split() == ["original", "136", "1.0x", "321", "1.5", "GB"]
    assert line_of(text, "gristmill ").split() == ["gristmill", "2.00", "68x", "321", "150.0", "MB"]
    qualities = [line.split() for line in text.splitlines() if line.startswith("original")]
    assert qualities[1] == ["original", "131,000", "36.2%", "3.67", "4.1%", "120", "98.3%"]
    assert qualities[2] == ["original", "0.50", "1.50", "32.0", "9.00", "1.00", "90.0", "2.00"]
    floor = [line.split() for line in text.splitlines() if line.startswith("floor")]
    assert floor[1][-1] == "-"
    assert floor[2][4] == "-"


def test_sample_is_marked_scaled_and_noted():
    text = bench_text(FULL)
    assert line_of(text, "datasets").split() == ["datasets", "≈20.0", "≈6.8x", "321", "≈1.1", "GB"]
    assert "≈ datasets: measured on 300 of 2,201 files in 5.00 s, and scaled by bytes" in text
    assert "≈" not in bench_text(bench(ORIGINAL, GRISTMILL))


def test_skipped_method_is_listed_with_the_reason():
    for text in (bench_text(FULL), bench_markdown(FULL, "chart.svg").replace("\\", ""), chart_svg(FULL)):
        assert "batch: skipped, tokenizers is not installed: pip install" in text


def test_small_share_is_not_rounded_to_zero():
    line = [one for one in bench_text(FULL).splitlines() if one.startswith("gristmill-no-near-duplicates")][1]
    assert line.split()[-1] == "<0.1%"


def test_spread_appears_only_with_several_runs():
    assert "min - max" not in bench_text(FULL)
    several = bench(ORIGINAL, method("gristmill", 2.0, runs=3, seconds_min=1.9, seconds_max=2.25))
    assert "1.90 - 2.25" in bench_text(several)
    for text in (bench_text(several), bench_markdown(several, "chart.svg").lower()):
        assert "seconds are medians of 3 runs" in text


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (1, "each method ran once"),
        (2, "seconds are those of the slower of 2 runs"),
        (4, "seconds are those of the slower of the middle two of 4 runs"),
    ],
)
def test_notes_name_the_reported_run(runs, expected):
    result = bench(method("gristmill", 2.0, runs=runs))
    assert expected in bench_text(result)
    assert expected in bench_markdown(result, "chart.svg").lower()


def test_page_explains_a_rebuild():
    assert "an empty folder. All methods ran on all files.\n" in bench_markdown(bench(GRISTMILL), "c.svg")
    page = bench_markdown(bench(GRISTMILL, method("gristmill-rebuild", 0.5)), "c.svg")
    assert "Only `gristmill-rebuild` ran in the folder of an earlier build, whose time is not included." in page


def test_ratio_needs_the_original():
    result = bench(GRISTMILL)
    assert "-" in line_of(bench_text(result), "gristmill ").split()
    assert json.loads(bench_json(result))["methods"][0]["ratio"] is None
    assert "x<" not in chart_svg(result)


def test_control_characters_in_names_are_escaped():
    result = bench(method(HOSTILE, 1.0), skipped=[Skipped(name=HOSTILE, why=HOSTILE)])
    assert "\x1b" not in bench_text(result)
    assert "[red]" in bench_text(result)


# --- JSON ---


def test_json_has_the_complete_result_and_the_ratio():
    output = json.loads(bench_json(FULL))
    assert set(output) == {"methods", "skipped", "corpus", "machine", "command"}
    by_name = {one["name"]: one for one in output["methods"]}
    assert by_name["gristmill"]["ratio"] == 68.0
    assert by_name["datasets"]["seconds_for_all"] == 20.0
    assert by_name["floor"]["l50"] is None
    for one, given in zip(output["methods"], FULL.methods, strict=True):
        assert {name: one[name] for name in msgspec.to_builtins(given)} == msgspec.to_builtins(given)
    assert output["skipped"][0]["name"] == "batch"


# --- Markdown ---


def test_page_starts_with_the_heading_and_lists_every_method():
    page = bench_markdown(FULL, "charts/bench one.svg")
    assert page.splitlines()[0] == HEADING
    assert "`gristmill bench Lib`" in page
    assert "(charts/bench%20one.svg)" in page
    assert "numpy 2" in page
    for one in FULL.methods:
        assert f"- `{one.name}`: " in section(page, "Methods")
        assert f"| `{one.name}` |" in page


def test_step_cost_is_the_default_minus_the_build_without_it():
    steps = section(bench_markdown(FULL, "c.svg"), "Cost of each gristmill step")
    assert line_of(steps, "| `rules`").split(" | ")[1:3] == ["+0.25", "1.75"]
    assert line_of(steps, "| `near-duplicates`").split(" | ")[1] == "+0.50"
    assert "plain" not in steps
    assert "noise" not in steps
    assert "Cost of each" not in bench_markdown(bench(ORIGINAL, GRISTMILL), "c.svg")


def test_step_cost_smaller_than_the_spread_of_runs_is_marked_as_noise():
    noisy = method("gristmill-no-rules", 2.1, runs=3, seconds_min=2.05, seconds_max=2.2)
    quiet = method("gristmill-no-secrets", 1.5, runs=3, seconds_min=1.5, seconds_max=1.6)
    default = method("gristmill", 2.0, runs=3, seconds_min=1.95, seconds_max=2.1)
    steps = section(bench_markdown(bench(default, noisy, quiet), "c.svg"), "Cost of each gristmill step")
    assert line_of(steps, "| `rules`").split(" | ")[1] == "-0.10 (noise)"
    assert line_of(steps, "| `secrets`").split(" | ")[1] == "+0.45"
    assert "(noise): runs of the same build differ by more than this cost." in steps


def expectations_of(*methods):
    return section(bench_markdown(bench(*methods), "c.svg"), "Expectations and measurements")


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ((ORIGINAL, THREADS, GRISTMILL, FLOOR), ["8x from", "2-3x from", "Overlap 256", "40 % smaller"]),
        ((ORIGINAL, FLOOR), ["Overlap 256"]),
        ((ORIGINAL, GRISTMILL), ["40 % smaller"]),
        ((ORIGINAL, THREADS), ["8x from", "2-3x from", "40 % smaller"]),
        ((ORIGINAL,), []),
        ((THREADS, GRISTMILL, FLOOR), []),
    ],
)
def test_expectation_appears_only_if_its_methods_were_run(methods, expected):
    text = expectations_of(*methods)
    all_titles = ["8x from", "2-3x from", "Overlap 256", "40 % smaller"]
    assert [one for one in all_titles if one in text] == expected


def test_expectations_have_the_numbers_of_the_result():
    text = expectations_of(ORIGINAL, THREADS, GRISTMILL, FLOOR)
    assert (
        "Not true on this machine. Tokenizing took 32.0 s in `original` and 20.0 s with 8 threads on 2 cores: 1.6"
        in text
    )
    assert "took 90.0 s as indented JSON and 30.0 s as JSON Lines: 3.0 times as fast. Writing was 66% of the" in text
    assert "gave 47,600 windows before copying (`original`), and overlap 256 gave 68,000 (`floor`): 1.43 times" in text
    assert "each token 3.67 times, including copies. The rows of `floor` contain each token 1.95 times" in text
    assert "`original` wrote 1.5 GB, `threads` 700.0 MB (53% smaller), `gristmill` 150.0 MB (90% smaller)" in text


def test_expectation_that_holds_is_reported_as_true():
    fast = msgspec.structs.replace(THREADS, phases={**THREADS.phases, "tokenize": 3.0})
    fewer = msgspec.structs.replace(FLOOR, places=40_000)
    text = expectations_of(ORIGINAL, fast, fewer)
    assert "“8x from threads.”** True on this machine." in text
    assert ": 11 times as fast" in text
    assert "“Overlap 256 means fewer sequences.”** True on this machine." in text
    assert "16.0% fewer" in text


def test_expectation_that_is_reversed_is_reported():
    slow = msgspec.structs.replace(THREADS, phases={**THREADS.phases, "tokenize": 64.0, "write": 91}, bytes=3 * 10**9)
    text = expectations_of(ORIGINAL, slow)
    assert "2.0 times as long" in text
    assert "no noticeable difference" in text
    assert "**“40 % smaller.”** Not true on this machine." in text
    assert "(100% larger)" in text


def test_hostile_name_is_confined_to_its_cell():
    result = bench(
        method(HOSTILE, 1.0), corpus=msgspec.structs.replace(FULL.corpus, source=HOSTILE), command=f"bench {HOSTILE}"
    )
    page = bench_markdown(result, "a>b\n.svg")
    assert "\x1b" not in page
    for table_line in (line for line in page.splitlines() if line.startswith("|")):
        cells = table_line.replace("\\|", "").count("|")
        assert cells in {8, 9}
    assert "\n<script" not in page
    assert "(a%3Eb%0A.svg)" in page


# --- SVG ---


def test_chart_is_xml_with_its_own_background_and_names_every_method():
    chart = chart_svg(FULL)
    picture = Picture(chart)
    assert picture.root.tag == f"{SVG}svg"
    texts = picture.texts()
    assert {one.name for one in FULL.methods} <= set(texts)
    assert {*PHASES, "start", "2.00 s · 68x", "≈20.0 s · ≈6.8x", "136 s", "1.5 GB", "98.3%"} <= set(texts)
    ((background,),) = picture.shapes("card").values()
    assert max(x for x, _ in background) - min(x for x, _ in background) > 900
    assert all(address.startswith("#") for address in re.findall(r'href="([^"]*)"', chart))
    assert "url(http" not in chart


def test_everything_in_the_chart_is_inside_it():
    picture = Picture(chart_svg(FULL))
    width, height = picture.size
    shapes = picture.shapes(r"(ours|seconds|size|leakage|track)-.*")
    assert len(shapes) > 6 * len(FULL.methods)
    for runs in shapes.values():
        for run in runs:
            assert all(0 <= x <= width and 0 <= y <= height for x, y in run)
    for _, x, y in picture.text_positions():
        assert 0 < x < width
        assert 0 < y < height


def test_bars_are_in_proportion():
    picture = Picture(chart_svg(bench(ORIGINAL, GRISTMILL)))
    x_of = {text: x for text, x, _ in picture.text_positions()}
    start = x_of["seconds · times as fast"]
    assert (x_of["2.00 s · 68x"] - start - 6) * 68 == pytest.approx(x_of["136 s"] - start - 6, rel=0.02, abs=4)
    ends = [max(x for name, (run,) in picture.shapes(rf"seconds-{row}-.*").items() for x, _ in run) for row in (0, 1)]
    assert [end + 6 for end in ends] == pytest.approx([x_of["136 s"], x_of["2.00 s · 68x"]], abs=0.1)


@pytest.mark.parametrize("result", [bench(), bench(method(HOSTILE, 0.0, phases={}, bytes=0, l50=None, windows=0))])
def test_empty_and_extreme_results_are_rendered(result):
    root = ET.fromstring(chart_svg(result))
    assert "script" not in {element.tag.removeprefix(SVG) for element in root.iter()}
    assert bench_text(result)
    assert bench_markdown(result, "c.svg").startswith(HEADING)
    assert json.loads(bench_json(result))["corpus"]["files"] == 2201
