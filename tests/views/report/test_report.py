"""`gristmill report`: its page and texts, output path and errors, comparison of two datasets, and notebook output."""

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
from gristmill.views.charts import Bars, Series, charts_json, compact_number, hover_text, label
from gristmill.views.notebook import dataset_html, manifest_html
from gristmill.views.report.facts import Certificate, Folder, Histogram, Leak, Share
from gristmill.views.report.gather import gather
from gristmill.views.report.page import Section, join_words, section_html, share_text, short_number
from gristmill.views.report.report import make_page, truncate_row
from gristmill.views.report.token_sections import tokens_section
from gristmill.views.report.two_datasets import section_from_diff
from gristmill.views.row import AFTER, overlap_notes, row_facts, view_row
from support.hostile_datasets import AWS_KEY, PICTURE, build_hostile, python_text, write_sources

MAX_PAGE_BYTES = 6_000_000
QUIET = gristmill.Progress(quiet=True)
ROWS = Section("rows", "Sample rows", "")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return build_hostile(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def facts(dataset):
    return gather(dataset, progress=QUIET)


@pytest.fixture(scope="module")
def page(dataset):
    return gristmill.report(dataset, progress=QUIET).read_text()


def section_text(facts, section):
    found = next(one for one in make_page(facts, None, ROWS).sections if one.id == section)
    return re.sub(r"<[^>]+>", "", " ".join(section_html(found)))


def test_report_has_the_same_bytes_at_any_path(dataset, page, tmp_path):
    again = gristmill.report(dataset, out=tmp_path / "again.html", progress=QUIET)
    assert again.read_text() == page == (dataset / REPORT).read_text()
    assert len(page.encode()) < MAX_PAGE_BYTES


def test_policy_allows_only_content_of_the_page(page):
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(r"<(?:link|img|iframe|object|base|form)\b", page.partition("<script")[0])


def test_page_contains_no_secret(page):
    assert AWS_KEY not in page


def test_empty_sections_have_a_message(facts):
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
    assert "No file was dropped as a duplicate" in section_text(bare, "duplicates")
    assert "No secrets were redacted" in section_text(bare, "secrets")
    assert "has no variants" in section_text(bare, "variants")
    assert [one.id for one in make_page(bare, None, ROWS).sections] == [
        one.id for one in make_page(facts, None, ROWS).sections
    ]


def test_several_sources_have_a_box_around_them(facts):
    other = Folder(id="other", parent="", name="other", files=1, tokens=7)
    boxes = tokens_section(msgspec.structs.replace(facts, folders=[*facts.folders, other])).figures[-1].chart
    parents = dict(zip(boxes.labels, boxes.parents, strict=True))
    assert parents["all sources"] == ""
    assert parents["other"] == parents["sources"] == boxes.ids[boxes.labels.index("all sources")]
    assert boxes.values[0] == facts.tokens + 7
    assert "all sources" not in tokens_section(facts).figures[-1].chart.labels


def test_caption_has_the_share_of_full_rows(facts):
    fill = Histogram(
        edges=[0.0, 0.95, 1.0], counts={Split.TRAIN: [1, 8], Split.TEST: [0, 1]}, median=1.0, mean=0.9, largest=1.0
    )
    text = section_text(msgspec.structs.replace(facts, fill=fill), "windows")
    assert "90.0% of the rows are at least 95% full. On average, rows are 90.0% full." in text


def test_packed_windows_and_rows_are_counted_separately(facts):
    packed = msgspec.structs.replace(facts, is_packed=True, rows=3, windows=8)
    headline = make_page(packed, None, ROWS).headlines[2]
    assert (headline.name, headline.figure) == ("rows", "3")
    assert "8 windows" in headline.note
    assert " The kept files give 8 windows in 3 rows." in section_text(packed, "files")
    assert " of the space. " in section_text(packed, "windows")
    assert "unused space" in section_text(packed, "windows")


def test_windows_are_described_by_kind(facts):
    text = section_text(
        msgspec.structs.replace(facts, windows=90, repeat_windows=20, variant_windows=30, num_without_windows=4),
        "files",
    )
    assert "from the kept files, including 20 repeated windows and 30 windows of variants" in text
    assert "Kept files without a drawn window: 4." in text
    assert "without a drawn window" not in section_text(facts, "files")
    text = section_text(msgspec.structs.replace(facts, num_tail_tokens=79), "windows")
    assert "Not in any window: 79 tokens at the ends of files" in text


@pytest.mark.parametrize(
    ("how", "num_benchmarks", "parts"),
    [
        ("off", 0, ["Decontamination was off"]),
        ("off", 1, ["Decontamination removed", "in spans shared with a benchmark."]),
        ("cut", 2, ["Decontamination removed", "in spans shared with another split or a benchmark."]),
        ("drop", 0, ["Decontamination removed", "in held-out windows that share spans with train."]),
    ],
)
def test_decontamination_is_described(facts, how, num_benchmarks, parts):
    changed = msgspec.structs.replace(facts, decontamination=how, num_benchmarks=num_benchmarks)
    assert all(part in section_text(changed, "splits") for part in parts)


def test_near_duplicates_kept_in_the_same_split_are_counted(facts):
    text = section_text(msgspec.structs.replace(facts, num_grouped=4), "duplicates")
    assert " of duplicates. " in text
    assert "Near-duplicates kept in the same split: 4 files." in text


def test_report_without_check_names_the_check_command(facts):
    assert facts.certificate is None
    assert "gristmill check DIR" in section_text(facts, "splits")


def test_failed_check_is_named(facts):
    failed = Certificate(
        is_ok=False,
        checks=[("leakage", "failed", "a span is in two splits"), ("ids", "ok", "fine")],
        leaks=[Leak(split=Split.TEST, l50=0.25, gram13=0.5)],
    )
    text = section_text(msgspec.structs.replace(facts, certificate=failed), "splits")
    assert "✗ Failed: leakage." in text
    assert "25.00%" in text


def test_file_that_is_not_a_report_is_not_replaced(dataset, tmp_path):
    (tmp_path / "notes.html").write_text("<p>mine</p>")
    with pytest.raises(OutputError, match="is not a report"):
        gristmill.report(dataset, out=tmp_path / "notes.html", progress=QUIET)
    with pytest.raises(OutputError, match="is a folder"):
        gristmill.report(dataset, out=tmp_path, progress=QUIET)
    with pytest.raises(OutputError, match="cannot write into"):
        gristmill.report(dataset, out=tmp_path / "notes.html/not/there.html", progress=QUIET)
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(OutputError, match="not a regular file"):
        gristmill.report(dataset, out=tmp_path / "pipe.html", progress=QUIET)
    assert (tmp_path / "notes.html").read_text() == "<p>mine</p>"


def test_folder_without_a_dataset_is_rejected(tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        gristmill.report(tmp_path, progress=QUIET)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "diff", "compare"])
def test_error_names_the_folder_that_is_not_a_dataset(dataset, tmp_path, capsys, command):
    (tmp_path / "a file").touch()
    (tmp_path / "empty").mkdir()
    reasons = {"nope": "there is no such folder", "a file": "it is a file", "empty": "it has no manifest.json"}
    options = ["--out", str(tmp_path / "compared")] if command == "compare" else []
    for name, reason in reasons.items():
        wrong = str(tmp_path / name)
        for folders in ((str(dataset), wrong), (wrong, str(dataset))):
            assert run([command, *folders, *options]) == 4
            assert capsys.readouterr().err == f"gristmill: {wrong!r} is not a dataset: {reason}.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "empty"]


def test_missing_folder_is_created_for_the_report(dataset, tmp_path):
    out = tmp_path / "new" / "er" / "r.html"
    assert gristmill.report(dataset, out=out, progress=QUIET) == out
    assert out.is_file()


def test_missing_plotly_error_has_the_install_command(dataset, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gristmill\[report\]'"):
        gristmill.report(dataset, progress=QUIET)
    source = write_sources(tmp_path / "sources")
    assert run(["build", str(source), "--out", str(tmp_path / "out"), "--report"]) == 2
    assert "gristmill[report]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_command_prints_the_path(dataset, tmp_path, capsys):
    out = str(tmp_path / "r.html")
    assert run(["report", str(dataset), "--out", out]) == 0
    assert out in capsys.readouterr().out
    assert run(["report", str(dataset), "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": out, "bytes": (tmp_path / "r.html").stat().st_size}
    assert run(["report", str(dataset), "--out", out, "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert run(["report", str(tmp_path)]) == DatasetError.exit_code


def test_build_writes_a_report(tmp_path, capsys):
    source = write_sources(tmp_path / "sources")
    assert run(["build", str(source), "--out", str(tmp_path / "out"), "--report"]) == 0
    assert (tmp_path / "out" / REPORT).is_file()
    assert f"\nreport   {tmp_path / 'out' / REPORT}\n" in capsys.readouterr().out
    assert run(["build", str(source), "--out", "s3://bucket/x", "--report"]) == 2
    assert "--report needs a local dataset" in capsys.readouterr().err


def test_two_datasets_are_compared_in_text_and_tables(dataset, tmp_path):
    shutil.copytree(dataset.parent / "sources", tmp_path / "sources")
    (tmp_path / "sources/native/more.c").unlink()
    (tmp_path / f"sources/{PICTURE}/added.py").write_text(python_text("added"))
    split = gristmill.SplitConfig(seed=1)
    config = gristmill.Config(sources=[str(tmp_path / "sources")], out=str(tmp_path / "new"), split=split)
    gristmill.build(config, QUIET)
    path = gristmill.report(dataset, tmp_path / "new", progress=QUIET)
    assert path == tmp_path / "new" / REPORT
    section = re.search(r'<section id="compared".*?</section>', path.read_text(), re.DOTALL)[0]
    text = re.sub(r"<[^>]+>", " ", section)
    assert "Compared with dataset" in text
    assert "sources/&lt;img src=x onerror=alert(1)&gt;/added.py" in text
    assert "sources/native/more.c" in text
    assert re.search(r"setting\s+split.seed\s+0\s+1", text)
    assert len(re.findall("<figure", section)) == len(re.findall("<table", section)) - 1 == 5
    assert str(tmp_path) not in path.read_text()


def test_similar_datasets_with_the_same_name_are_distinguishable(dataset, facts):
    nearly = msgspec.structs.replace(facts.fill, mean=facts.fill.mean - 0.004)
    section = section_from_diff(diff(dataset, dataset), msgspec.structs.replace(facts, fill=nearly), facts)
    assert section.title == "Compared with an earlier dataset"
    before, after = re.findall(r"[\d.]+%", section.figures[-1].caption)
    assert before != after


def test_comparison_warns_about_different_tokenizers(dataset, facts):
    same = diff(dataset, dataset)
    other = ValueChange(name="sha256", before="a", after="b")
    for changes in ([], [other]):
        section = section_from_diff(msgspec.structs.replace(same, is_same=False, tokenizer=changes), facts, facts)
        assert ("not comparable" in section.summary) == bool(changes)


def test_folder_without_a_dataset_cannot_be_compared(dataset, tmp_path):
    with pytest.raises(DatasetError, match="is not a dataset"):
        gristmill.report(tmp_path, dataset, out=tmp_path / "r.html", progress=QUIET)


def test_labels_are_escaped():
    assert label("<b>x</b> &lt; \u202e") == r"&lt;b&gt;x&lt;/b&gt; &amp;lt; \u202e"
    assert label("a" * 30 + "/" + "z.py", max_length=12) == "aaaaa…a/z.py"
    assert hover_text("<br>", "%{x}") == "&lt;br&gt;<br>%{x}"
    series = Series(name="</script>\u2028", values=[1], hints=[""])
    text = charts_json({"one": Bars(labels=["<!--"], series=[series])})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text)["charts"]["one"]["series"][0]["name"] == "</script>\u2028"


def test_numbers_are_formatted_for_readers():
    assert [compact_number(value) for value in (0, 512, 4096, 32768, 2_025_000)] == ["0", "512", "4.1k", "33k", "2.0M"]
    assert [share_text(part, 10_000) for part in (0, 1, 1234)] == ["0.0%", "<0.1%", "12.3%"]
    assert share_text(1, 0) == "0.0%"
    assert [short_number(value) for value in (16_485, 16_811_234, 2.5e9)] == ["16,485", "16.8 million", "2.50 billion"]
    assert (counted(1, "file"), counted(2, "process", "processes")) == ("1 file", "2 processes")
    assert [join_words(["a", "b", "c"][:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_long_row_is_truncated(dataset):
    view = view_row(gristmill.open_dataset(dataset), "train", 0)
    short = truncate_row(view, max_tokens=10)
    assert len(short.tokens) == 10
    assert max(stroke.token for stroke in short.strokes) == 9
    assert "first 10" in short.note
    assert truncate_row(view, max_tokens=len(view.tokens)) == view


def test_truncated_row_keeps_its_facts(dataset):
    view = view_row(gristmill.open_dataset(dataset), "train", 0)
    later = msgspec.structs.replace(view.windows[0], at=30, length=10, shared_after=10)
    tokens = [(index, flags | AFTER * (number >= 30)) for number, (index, flags) in enumerate(view.tokens)]
    packed = msgspec.structs.replace(view, num_windows=2, windows=[view.windows[0], later], tokens=tokens)
    short = truncate_row(packed, max_tokens=10)
    assert len(short.windows) == 1
    assert row_facts(short) == row_facts(packed)
    assert "2 windows" in row_facts(short)
    assert [flag for flag, _ in overlap_notes(packed)] == [AFTER]
    assert list(overlap_notes(short)) == []


def test_notebook_html_has_tables_and_no_script(dataset):
    opened = gristmill.open_dataset(dataset)
    html = opened._repr_html_()
    assert html == dataset_html(opened)
    assert opened.manifest._repr_html_() == manifest_html(opened.manifest)
    assert len(html) < 60_000
    assert "<script" not in html
    assert not re.search(r"\s(?:on\w+|style)=", html)
    assert all(text in re.sub("<[^>]+>", "", html) for text in ("dataset", "python", "near duplicate", "validation"))


def test_hostile_name_is_escaped_in_a_notebook(dataset):
    manifest = gristmill.open_dataset(dataset).manifest
    named = msgspec.structs.replace(manifest, tokens_by_language={"<img src=x>\u202e": {Split.TRAIN: 3}})
    assert r"&lt;img src=x&gt;\u202e" in named._repr_html_()


def test_page_with_many_licenses_is_small(facts):
    many = [Share(name=f"license {number}", files=1, tokens={Split.TRAIN: 1}) for number in range(20_000)]
    html = "".join(section_html(tokens_section(msgspec.structs.replace(facts, licenses=many))))
    assert len(html) < 500_000
    assert "19,000 more rows are not displayed." in html


def test_many_warnings_are_truncated(facts):
    notes = make_page(
        msgspec.structs.replace(facts, warnings=[f"note {number}" for number in range(50)]), None, ROWS
    ).notes
    assert (notes[0], notes[-1], len(notes)) == ("note 0", "The manifest lists 30 more warnings.", 21)


def test_notebook_html_with_many_languages_is_small(dataset):
    manifest = gristmill.open_dataset(dataset).manifest
    many = {f"language {number}": {Split.TRAIN: 1000 - number} for number in range(900)}
    html = msgspec.structs.replace(manifest, tokens_by_language=many)._repr_html_()
    assert "The 200 most frequent of 900 languages" in html
    assert len(html) < 60_000
