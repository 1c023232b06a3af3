"""What gristmill report writes, where, and when it refuses; two datasets; what notebooks show."""

import json
import os
import re
import shutil
import sys

import msgspec
import pytest

import gristmill
from gristmill import DatasetError, MissingExtraError, OutputError
from gristmill.cli.main import run
from gristmill.core.layout import REPORT
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.planning.diff import diff
from gristmill.planning.diff_result import ValueChange
from gristmill.views.charts import Bars, Series, charts_json, compact, hint, label
from gristmill.views.notebook import dataset_html, manifest_html
from gristmill.views.report.facts import Certificate, Folder, Histogram, Leak, Share
from gristmill.views.report.gather import gather
from gristmill.views.report.page import Section, listed, section_html, share_text, short_number
from gristmill.views.report.report import page_of, shortened
from gristmill.views.report.token_sections import tokens_section
from gristmill.views.report.two_datasets import section_of
from gristmill.views.row import AFTER, look_at, row_facts, shared_words
from support.hostile_datasets import AWS_KEY, PICTURE, build_hostile, python_text, write_sources

LARGEST = 6_000_000
QUIET = gristmill.Progress(quiet=True)
ROWS = Section("rows", "What a model sees", "")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return build_hostile(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def facts(dataset):
    return gather(dataset, progress=QUIET)


@pytest.fixture(scope="module")
def page(dataset):
    return gristmill.report(dataset, progress=QUIET).read_text()


def told_in(facts, section):
    found = next(one for one in page_of(facts, None, ROWS).sections if one.id == section)
    return re.sub(r"<[^>]+>", "", " ".join(section_html(found)))


def test_the_same_dataset_gives_the_same_bytes_beside_it_or_elsewhere(dataset, page, tmp_path):
    again = gristmill.report(dataset, out=tmp_path / "again.html", progress=QUIET)
    assert again.read_text() == page == (dataset / REPORT).read_text()
    assert len(page.encode()) < LARGEST


def test_the_policy_allows_what_is_in_the_page_and_no_more(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(r"<(?:link|img|iframe|object|base|form)\b", page.partition("<script")[0])


def test_no_secret_is_in_it(page):
    assert AWS_KEY not in page


def test_sections_without_content_say_so(facts):
    bare = msgspec.structs.replace(
        facts,
        reasons=[],
        licenses=[],
        num_clusters=0,
        clusters=[],
        secrets={},
        secret_files=[],
        variants=[],
        seconds={},
    )
    assert "No file was dropped for being the same" in told_in(bare, "twins")
    assert "No secret was taken out" in told_in(bare, "secrets")
    assert "There are none" in told_in(bare, "variants")
    assert [one.id for one in page_of(bare, None, ROWS).sections] == [
        one.id for one in page_of(facts, None, ROWS).sections
    ]


def test_sources_are_in_a_box_that_leads_back_to_all_of_them(facts):
    other = Folder(id="other", parent="", name="other", files=1, tokens=7)
    boxes = tokens_section(msgspec.structs.replace(facts, folders=[*facts.folders, other])).figures[-1].chart
    parents = dict(zip(boxes.labels, boxes.parents, strict=True))
    assert parents["all sources"] == ""
    assert parents["other"] == parents["sources"] == boxes.ids[boxes.labels.index("all sources")]
    assert boxes.values[0] == facts.tokens + 7
    assert "all sources" not in tokens_section(facts).figures[-1].chart.labels


def test_how_many_rows_are_full_is_counted(facts):
    fill = Histogram(
        edges=[0.0, 0.95, 1.0], counts={Split.TRAIN: [1, 8], Split.TEST: [0, 1]}, median=1.0, mean=0.9, largest=1.0
    )
    told = told_in(msgspec.structs.replace(facts, fill=fill), "windows")
    assert "90.0% of the rows are 95% full and more; on average they are 90.0% full." in told


def test_windows_that_share_rows_are_not_taken_for_rows(facts):
    packed = msgspec.structs.replace(facts, is_packed=True, rows=3, windows=8)
    headline = page_of(packed, None, ROWS).headlines[2]
    assert (headline.name, headline.figure) == ("rows", "3")
    assert "8 windows" in headline.note
    assert ", as 8 windows in 3 rows." in told_in(packed, "files")
    assert "Of the room in train" in told_in(packed, "windows")
    assert "room that is left" in told_in(packed, "windows")


def test_windows_are_told_by_what_they_show(facts):
    told = told_in(msgspec.structs.replace(facts, windows=90, repeated=20, varied=30, num_undrawn=4), "files")
    assert "that show the kept files, 20 of them once more, 30 of them as variants" in told
    assert "Without a window, as none of theirs was drawn: 4." in told
    assert "Without a window" not in told_in(facts, "files")
    told = told_in(msgspec.structs.replace(facts, num_tail_tokens=79), "windows")
    assert "In no window, as too few are left at the end of their files: 79 tokens." in told


@pytest.mark.parametrize(
    ("how", "num_benchmarks", "said"),
    [
        ("off", 0, "Nobody looked for spans that two splits share."),
        ("off", 1, "Cut out, as a benchmark has it too: "),
        ("cut", 2, "Cut out, as another split or a benchmark has it too: "),
        ("drop", 0, "Left out, with what stands beside it in its window, as another split has it too: "),
    ],
)
def test_what_was_cut_is_told_by_where_it_was_looked_for(facts, how, num_benchmarks, said):
    looked_for = msgspec.structs.replace(facts, decontaminated=how, num_benchmarks=num_benchmarks)
    assert said in told_in(looked_for, "splits")


def test_near_duplicates_that_are_kept_are_told_beside_those_that_are_the_same(facts):
    told = told_in(msgspec.structs.replace(facts, num_grouped=4), "twins")
    assert "are the same as another: " in told
    assert "4 files that are nearly the same as another are kept, in its split." in told


def test_without_a_check_it_says_how_to_have_one(facts):
    assert facts.certificate is None
    assert "gristmill check DIR" in told_in(facts, "splits")


def test_a_failed_check_is_said_first(facts):
    failed = Certificate(
        is_ok=False,
        checks=[("leakage", "failed", "a span is in two splits"), ("ids", "ok", "fine")],
        leaks=[Leak(split=Split.TEST, l50=0.25, gram13=0.5)],
    )
    told = told_in(msgspec.structs.replace(facts, certificate=failed), "splits")
    assert "✗ Failed: leakage." in told
    assert "25.00%" in told


def test_a_file_that_is_no_report_is_not_replaced(dataset, tmp_path):
    (tmp_path / "notes.html").write_text("<p>mine</p>")
    with pytest.raises(OutputError, match="is no report"):
        gristmill.report(dataset, out=tmp_path / "notes.html", progress=QUIET)
    with pytest.raises(OutputError, match="is a folder"):
        gristmill.report(dataset, out=tmp_path, progress=QUIET)
    with pytest.raises(OutputError, match="cannot write into"):
        gristmill.report(dataset, out=tmp_path / "notes.html/not/there.html", progress=QUIET)
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(OutputError, match="not an ordinary file"):
        gristmill.report(dataset, out=tmp_path / "pipe.html", progress=QUIET)
    assert (tmp_path / "notes.html").read_text() == "<p>mine</p>"


def test_what_is_no_dataset_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        gristmill.report(tmp_path, progress=QUIET)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "diff", "compare"])
def test_of_several_folders_the_one_that_is_no_dataset_is_named(dataset, tmp_path, capsys, command):
    (tmp_path / "a file").touch()
    (tmp_path / "empty").mkdir()
    whys = {"nope": "there is no such folder", "a file": "it is a file", "empty": "it has no manifest.json"}
    words = ["--out", str(tmp_path / "compared")] if command == "compare" else []
    for name, why in whys.items():
        nope = str(tmp_path / name)
        for folders in ((str(dataset), nope), (nope, str(dataset))):
            assert run([command, *folders, *words]) == 4
            assert capsys.readouterr().err == f"gristmill: {nope!r} is not a dataset: {why}.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "empty"]


def test_a_new_folder_is_made_for_the_report(dataset, tmp_path):
    out = tmp_path / "new" / "er" / "r.html"
    assert gristmill.report(dataset, out=out, progress=QUIET) == out
    assert out.is_file()


def test_without_plotly_it_says_what_to_install(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[report\]'"):
        gristmill.report(dataset, progress=QUIET)
    source = write_sources(tmp_path / "sources")
    assert run(["build", str(source), "--out", str(tmp_path / "out"), "--report"]) == 2
    assert "gristmill[report]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_command_says_where_it_is(dataset, tmp_path, capsys):
    out = str(tmp_path / "r.html")
    assert run(["report", str(dataset), "--out", out]) == 0
    assert out in capsys.readouterr().out
    assert run(["report", str(dataset), "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": out, "bytes": (tmp_path / "r.html").stat().st_size}
    assert run(["report", str(dataset), "--out", out, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["report", str(tmp_path)]) == DatasetError.exit_code


def test_a_build_draws_it_too(tmp_path, capsys):
    source = write_sources(tmp_path / "sources")
    assert run(["build", str(source), "--out", str(tmp_path / "out"), "--report"]) == 0
    assert (tmp_path / "out" / REPORT).is_file()
    assert f"\nreport   {tmp_path / 'out' / REPORT}\n" in capsys.readouterr().out
    assert run(["build", str(source), "--out", "s3://bucket/x", "--report"]) == 2
    assert "--report needs a local dataset" in capsys.readouterr().err


def test_two_datasets_are_told_apart_in_words_and_tables(dataset, tmp_path):
    shutil.copytree(dataset.parent / "sources", tmp_path / "sources")
    (tmp_path / "sources/native/more.c").unlink()
    (tmp_path / f"sources/{PICTURE}/added.py").write_text(python_text("added"))
    split = gristmill.SplitConfig(seed=1)
    config = gristmill.Config(sources=[str(tmp_path / "sources")], out=str(tmp_path / "new"), split=split)
    gristmill.build(config, QUIET)
    path = gristmill.report(dataset, tmp_path / "new", progress=QUIET)
    assert path == tmp_path / "new" / REPORT
    section = re.search(r'<section id="compared".*?</section>', path.read_text(), re.DOTALL)[0]
    told = re.sub(r"<[^>]+>", " ", section)
    assert "Compared with dataset" in told
    assert "sources/&lt;img src=x onerror=alert(1)&gt;/added.py" in told
    assert "sources/native/more.c" in told
    assert re.search(r"setting\s+split.seed\s+0\s+1", told)
    assert len(re.findall("<figure", section)) == len(re.findall("<table", section)) - 1 == 5
    assert str(tmp_path) not in path.read_text()


def test_two_datasets_of_one_name_and_nearly_the_same_are_told_apart(dataset, facts):
    nearly = msgspec.structs.replace(facts.fill, mean=facts.fill.mean - 0.004)
    section = section_of(diff(dataset, dataset), msgspec.structs.replace(facts, fill=nearly), facts)
    assert section.title == "Compared with an earlier dataset"
    before, after = re.findall(r"[\d.]+%", section.figures[-1].told)
    assert before != after


def test_tokens_of_two_tokenizers_are_not_held_against_each_other(dataset, facts):
    same = diff(dataset, dataset)
    other = ValueChange(name="sha256", before="a", after="b")
    for changes in ([], [other]):
        section = section_of(msgspec.structs.replace(same, is_same=False, tokenizer=changes), facts, facts)
        assert ("do not compare" in section.told) == bool(changes)


def test_a_dataset_without_a_record_cannot_be_compared(dataset, tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        gristmill.report(tmp_path, dataset, out=tmp_path / "r.html", progress=QUIET)


def test_labels_are_only_ever_text():
    assert label("<b>x</b> &lt; \u202e") == r"&lt;b&gt;x&lt;/b&gt; &amp;lt; \u202e"
    assert label("a" * 30 + "/" + "z.py", longest=12) == "aaaaa…a/z.py"
    assert hint("<br>", "%{x}") == "&lt;br&gt;<br>%{x}"
    series = Series(name="</script>\u2028", values=[1], hints=[""])
    text = charts_json({"one": Bars(labels=["<!--"], series=[series])})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text)["charts"]["one"]["series"][0]["name"] == "</script>\u2028"


def test_numbers_read_well():
    assert [compact(value) for value in (0, 512, 4096, 32768, 2_025_000)] == ["0", "512", "4.1k", "33k", "2.0M"]
    assert [share_text(part, 10_000) for part in (0, 1, 1234)] == ["0.0%", "<0.1%", "12.3%"]
    assert share_text(1, 0) == "0.0%"
    assert [short_number(value) for value in (16_485, 16_811_234, 2.5e9)] == ["16,485", "16.8 million", "2.50 billion"]
    assert (counted(1, "file"), counted(2, "process", "processes")) == ("1 file", "2 processes")
    assert [listed(["a", "b", "c"][:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_a_long_row_is_shown_from_its_start(dataset):
    look = look_at(gristmill.open_dataset(dataset), "train", 0)
    short = shortened(look, most=10)
    assert len(short.tokens) == 10
    assert max(stroke.token for stroke in short.strokes) == 9
    assert "first 10" in short.note
    assert shortened(look, most=len(look.tokens)) == look


def test_a_row_that_is_cut_short_is_told_as_it_is(dataset):
    look = look_at(gristmill.open_dataset(dataset), "train", 0)
    later = msgspec.structs.replace(look.windows[0], at=30, length=10, shared_after=10)
    tokens = [(index, flags | AFTER * (number >= 30)) for number, (index, flags) in enumerate(look.tokens)]
    packed = msgspec.structs.replace(look, num_windows=2, windows=[look.windows[0], later], tokens=tokens)
    short = shortened(packed, most=10)
    assert len(short.windows) == 1
    assert row_facts(short) == row_facts(packed)
    assert "2 windows share it" in row_facts(short)
    assert [flag for flag, _ in shared_words(packed)] == [AFTER]
    assert list(shared_words(short)) == []


def test_notebooks_show_tables_without_a_script(dataset):
    opened = gristmill.open_dataset(dataset)
    html = opened._repr_html_()
    assert html == dataset_html(opened)
    assert opened.manifest._repr_html_() == manifest_html(opened.manifest)
    assert len(html) < 60_000
    assert "<script" not in html
    assert not re.search(r"\s(?:on\w+|style)=", html)
    assert all(text in re.sub("<[^>]+>", "", html) for text in ("dataset", "python", "near duplicate", "validation"))


def test_a_hostile_name_stays_a_name_in_a_notebook(dataset):
    manifest = gristmill.open_dataset(dataset).manifest
    named = msgspec.structs.replace(manifest, tokens_by_language={"<img src=x>\u202e": {Split.TRAIN: 3}})
    assert r"&lt;img src=x&gt;\u202e" in named._repr_html_()


def test_many_licences_stay_small_in_a_page(facts):
    many = [Share(name=f"licence {number}", files=1, tokens={Split.TRAIN: 1}) for number in range(20_000)]
    html = "".join(section_html(tokens_section(msgspec.structs.replace(facts, licenses=many))))
    assert len(html) < 500_000
    assert "19,000 more rows are not shown." in html


def test_of_many_warnings_the_first_are_told(facts):
    notes = page_of(
        msgspec.structs.replace(facts, warnings=[f"note {number}" for number in range(50)]), None, ROWS
    ).notes
    assert (notes[0], notes[-1], len(notes)) == ("note 0", "30 more are in the manifest.", 21)


def test_many_languages_stay_small_in_a_notebook(dataset):
    manifest = gristmill.open_dataset(dataset).manifest
    many = {f"language {number}": {Split.TRAIN: 1000 - number} for number in range(900)}
    html = msgspec.structs.replace(manifest, tokens_by_language=many)._repr_html_()
    assert "All 900 languages" in html
    assert len(html) < 60_000
