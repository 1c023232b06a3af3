"""`gristmill show` prints a row on any terminal, and the content of a file cannot control the terminal."""

import json
import re
from itertools import pairwise

import msgspec
import pytest
from rich.cells import cell_len

from gristmill import open_dataset
from gristmill.cli import main
from gristmill.views.row import BEFORE, SPECIAL, RowView, view_row
from gristmill.views.row_text import row_text
from support.builds import called, refusal, run
from support.row_datasets import HOSTILE_NAME, make_packed, make_plain, make_varied, row_views

SIGNS = str.maketrans("", "", "│«»↵")
STYLE = re.compile(r"\x1b\[([0-9;]+)m")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return make_plain(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    return make_varied(tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return make_packed(tmp_path_factory.mktemp("packed"), "best-fit")


@pytest.fixture(autouse=True)
def default_colors(monkeypatch):
    """Remove the environment variables that control colors and width."""
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def printed(capsys, *words):
    assert main.run(["show", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_first_window_of_train_is_printed_by_default(plain, capsys):
    out = printed(capsys, plain)
    assert out == printed(capsys, plain, "--row", "0", "--split", "train") == printed(capsys, plain, "--row", "train:0")
    head, name, facts, *_ = filter(None, out.splitlines())
    assert head == "row train:0 of 13, 48 ids of at most 48"
    assert name == f"plain/{HOSTILE_NAME}"
    assert facts == "lines 1 to 2, python, 46 tokens from position 0, 46 fresh"


def test_bars_separate_tokens_and_lines_are_numbered_in_a_pipe(plain, capsys):
    number = next(number for number, row in enumerate(open_dataset(plain)["train"]) if row["path"] == "long.py")
    lines = printed(capsys, plain, "--row", number).splitlines()
    assert '1 <s>│"""│What│ long│ is│ for│."│""│↵' in [line.strip() for line in lines]
    body = lines[4 : lines.index("", 4)]
    assert [int(line[:2]) for line in body] == list(range(1, len(body) + 1))
    assert body[-1].endswith("│</s>")


def test_symbols_mark_the_overlap_with_adjacent_windows(plain, capsys):
    number = next(number for number, row in enumerate(open_dataset(plain)["train"]) if row["start"] > 40)
    out = printed(capsys, plain, "--row", number)
    body, foot = out.rsplit("\n\n", 1)
    assert (body.count("«"), body.count("»")) == (1, 1)
    assert len(re.findall("[│«]", body[: body.index("«") + 1])) == 13
    assert "up to «: 12 tokens shared with the previous window" in " ".join(foot.split())
    assert "from »: 12 tokens shared with the next window" in " ".join(foot.split())


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("width", [1, 40, 200])
def test_all_tokens_are_printed_within_the_width(plain, varied, packed, color, width):
    for view in [*row_views(plain), *row_views(varied)[::4], *row_views(packed)]:
        drawn = STYLE.sub("", row_text(view, color=color, width=width))
        assert all(line.isprintable() and cell_len(line) <= max(width, 20) for line in drawn.split("\n"))
        flat = re.sub(r"\s|\d", "", drawn.translate(SIGNS))
        for before, after in pairwise([0, *(window.at for window in view.windows[1:]), len(view.tokens)]):
            text = "".join(stroke.text for stroke in view.strokes if before <= stroke.token < after - 2)
            assert re.sub(r"\s|\d", "", text) in flat


def test_content_cannot_control_the_terminal(plain):
    dataset = open_dataset(plain)
    for number in range(2):
        view = view_row(dataset, "train", number)
        out = row_text(view, color=True, width=80, ids=True)
        assert set(STYLE.sub("", out)) & {"\x1b", "\x07", "\x9b", "\u202e", "\r", "\t", "\x00"} == set()
        assert set(";".join(STYLE.findall(out)).split(";")) <= {"0", "1", "2", "3", "4", "7", *map(str, range(31, 37))}
    assert "\\x1b" in row_text(view_row(dataset, "train", 0), color=False, width=80)


def test_every_second_token_is_underlined_and_overlap_is_faint(plain):
    view = view_row(open_dataset(plain), "train", 1)
    pieces = re.findall(r"\x1b\[([0-9;]+)m([^\x1b]*)\x1b\[0m", row_text(view, color=True, width=200))
    styles = {text: style.split(";") for style, text in pieces}
    for stroke in view.strokes:
        flags = view.tokens[stroke.token][1]
        if sum(one.text == stroke.text for one in view.strokes) == 1 and flags and "\n" not in stroke.text:
            assert ("4" in styles[stroke.text]) == bool(stroke.token % 2)
            assert ("2" in styles[stroke.text]) == bool(flags & BEFORE)
            assert ("7" in styles[stroke.text]) or not flags & SPECIAL


def test_colors_are_used_only_on_terminals_and_can_be_disabled(plain, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in printed(capsys, plain)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in printed(capsys, plain)
    assert "\x1b" not in printed(capsys, plain, "--no-color")
    assert "\x1b" not in printed(capsys, plain, "--no-color")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(capsys, plain)


def test_ids_follow_their_tokens(plain, capsys):
    row = open_dataset(plain)["train"][0]
    out = printed(capsys, plain, "--ids", "--no-color").rsplit("\n\n", 1)[0]
    assert [int(found) for found in re.findall(r"⟨(\d+)⟩", re.sub(r"\n +", "", out))] == row["input_ids"]
    assert "⟨50118⟩↵" in out


def test_json_output_is_the_row_and_quiet_prints_it_too(plain, capsys):
    out = printed(capsys, plain, "--row", "3", "--json")
    assert msgspec.json.decode(out, type=RowView) == view_row(open_dataset(plain), "train", 3)
    assert json.loads(out)["row"] == 3
    assert printed(capsys, plain, "-q") == printed(capsys, plain)
    assert printed(capsys, plain, "--row", "3", "--json", "-q") == out


def test_each_window_of_a_packed_row_has_a_heading(packed, capsys):
    rows = open_dataset(packed)["train"]
    number, row = next((number, row) for number, row in enumerate(rows) if len(row["segments"]) > 1)
    out = printed(capsys, packed, "--row", number)
    names = [f"packed/{one['path']}" for one in row["segments"]]
    assert [line for line in out.splitlines() if line.startswith("packed/")] == names
    assert f"{len(names)} windows" in out
    firsts = [block.split("\n")[2].split("│")[0] for block in out.split("\npacked/")[1:]]
    assert [first.split() for first in firsts] == [[str(one["lines"][0]), "<s>"] for one in row["segments"]]


@pytest.mark.parametrize("kind", ["rename", "noise"])
def test_variants_are_named_and_numbered_if_they_have_lines(varied, capsys, kind):
    number = next(number for number, row in enumerate(open_dataset(varied)["train"]) if row["variant"] == kind)
    out = printed(capsys, varied, "--row", number)
    assert f"variant {kind}" in " ".join(out.split())
    assert bool(re.search(r"^ ?\d+ <s>", out, re.MULTILINE)) == (kind == "rename")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--row", "99"), 3, "row 99 does not exist: train has 13 rows, numbered from 0."),
        (("--split", "test"), 3, "row 0 does not exist: test has no rows."),
        (("--row", "tset:1"), 3, "there is no split 'tset'. The splits are train, validation, test."),
        (("--row", "1.5"), 2, "a row must be a number, or a split and a number like test:12, got '1.5'."),
        (("--row", "test:1", "--split", "train"), 2, "name different splits"),
        (("3", "--row", "4"), 2, "'3' and --row 4 both name a row."),
        (("three",), 2, "a row must be a number, or a split and a number like test:12, got 'three'."),
        (("3", "4"), 2, "show does not take the argument '4'. Usage: gristmill show DIR [N | SPLIT:N] [options]"),
    ],
)
def test_missing_row_or_split_is_refused_in_one_line(plain, capsys, words, code, message):
    assert main.run(["show", str(plain), *words]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("row", ["3", "train:3"])
def test_row_can_be_given_as_an_argument(plain, capsys, row):
    assert printed(capsys, plain, row) == printed(capsys, plain, "--row", "3") != printed(capsys, plain)


def test_ascii_stream_gets_ascii_symbols(plain, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("COLUMNS", "40")
    done = run("show", plain)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "<s>|#| <|script|>" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 44
    assert refusal(called("show", plain / "nowhere"))[0] == 4
