"""What a viewer answers, held against all rows of small datasets read by plain Python."""

import fnmatch
import json
import re
from itertools import product

import pytest

from gristmill import open_dataset
from gristmill.core.records import BY_THEMSELVES, Split
from gristmill.dataset.dataset import windows_in
from gristmill.planning.explain import explain_file
from gristmill.views.viewer import search
from support.viewers import HOSTILE, WAYS, built, viewer


@pytest.fixture(scope="module", params=list(WAYS))
def viewed(request, tmp_path_factory):
    """Each way of storing rows: the folder, and somebody who asks."""
    folder = built(tmp_path_factory.mktemp("viewed"), request.param)
    with viewer(folder) as asking:
        yield folder, asking.indexed()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = built(tmp_path_factory.mktemp("plain"), "plain")
    with viewer(folder) as asking:
        yield folder, asking.indexed()


def files_of(folder):
    rows = map(json.loads, (folder / "files.jsonl").read_bytes().splitlines())
    return {(row["repo"], row["path"]): row for row in rows}


def windows_of(folder):
    """(split, row, window, file) of every window, in order."""
    files = files_of(folder)
    dataset = open_dataset(folder)
    for split in Split:
        for number, row in enumerate(dataset[split]):
            for window in windows_in(row):
                yield split, number, window, files[window["repo"], window["path"]]


def named(path, name):
    name, path = name.lower(), path.lower()
    if not set(path) & set("*?"):
        return path in name
    glob = path.replace("[", "[[]")
    ends = [name, *(name[at + 1 :] for at, char in enumerate(name) if char == "/")]
    return any(fnmatch.fnmatchcase(end, glob) for end in ends)


def passes(fields, split, window, file):
    variant = window.get("variant", "")
    return all(
        (
            fields.get("split") in {None, split},
            fields.get("language") in {None, file["language"]},
            fields.get("license") in {None, file["license"]},
            fields.get("variant") in {None, variant or "none"},
            "path" not in fields or named(fields["path"], f"{file['repo']}/{file['path']}"),
        )
    )


def rows_that_pass(folder, fields):
    return list(dict.fromkeys((split, row) for split, row, *rest in windows_of(folder) if passes(fields, split, *rest)))


CHOICES = {
    "split": [None, "train", "test"],
    "language": [None, "python", "cobol"],
    "license": [None, "MIT", "NOASSERTION"],
    "variant": [None, "none", "rename", "noise"],
    "path": [None, "DEEP", "*/m0?.js", "[x]*", "rc/m1"],
}


def test_filters_and_all_their_combinations(viewed):
    folder, asking = viewed
    everything = list(windows_of(folder))
    for number, chosen in enumerate(product(*CHOICES.values())):
        fields = {name: value for name, value in zip(CHOICES, chosen, strict=True) if value is not None}
        if set(fields) <= {"split"} or number % 3:
            continue
        expected = list(dict.fromkeys((split, row) for split, row, *rest in everything if passes(fields, split, *rest)))
        found = asking.found("/api/windows", count=200, **fields)
        assert found["total"] == len(expected), fields
        assert [(one["split"], one["row"]) for one in found["rows"]] == expected[:200], fields


def test_pages_go_through_all_rows_of_all_splits(viewed):
    folder, asking = viewed
    dataset = open_dataset(folder)
    expected = [(split, row) for split in Split for row in range(len(dataset[split]))]
    found = []
    while len(found) < len(expected):
        page = asking.found("/api/windows", **{"from": len(found), "count": 90})
        assert page["total"] == len(expected)
        found += [(one["split"], one["row"]) for one in page["rows"]]
    assert found == expected
    assert asking.found("/api/windows", **{"from": 10**9})["rows"] == []


def test_a_row_of_the_list_tells_what_the_dataset_does(viewed):
    folder, asking = viewed
    dataset = open_dataset(folder)
    listed = asking.found("/api/windows", split="train", count=200)["rows"]
    files = files_of(folder)
    for one in listed:
        row = dataset["train"][one["row"]]
        if "input_ids" in row:
            assert one["num_ids"] == sum(row.get("attention_mask", [1] * len(row["input_ids"])))
        else:
            assert one["num_ids"] == one["windows"][0]["fresh"] == row["tokens"]
        for shown, window in zip(one["windows"], windows_in(row), strict=True):
            for name in ("repo", "path", "language", "lines", "start", *(["fresh"] if "fresh" in row else [])):
                assert shown[name] == window[name]
            assert shown["variant"] == window.get("variant", "")
            assert shown["repeat"] == window.get("repeat", 0)
            assert shown["license"] == files[window["repo"], window["path"]]["license"]


def test_neighbours_are_those_that_pass(viewed):
    folder, asking = viewed
    fields = {"split": "train", "language": "python", "path": "m"}
    rows = [row for _, row in rows_that_pass(folder, fields)]
    for before, row, after in zip([None, *rows], rows, [*rows[1:], None], strict=False):
        found = asking.found("/api/row", row=row, **fields)
        assert (found["previous"] or {}).get("row") == before
        assert (found["next"] or {}).get("row") == after
        assert found["look"]["row"] == row
    between = next(row for row in range(rows[0] + 1, rows[-1]) if row not in rows)
    found = asking.found("/api/row", row=between, **fields)
    assert found["previous"]["row"] < between < found["next"]["row"]


def texts_of(folder, fields):
    """(split, row, window, text) of windows that pass."""
    dataset = open_dataset(folder)
    facts = dataset.manifest.tokenizer
    tokenizer = dataset.tokenizer
    for split, row, window, file in windows_of(folder):
        if passes(fields, split, window, file):
            if "text" in window:
                yield split, row, window, window["text"]
                continue
            ids = window["input_ids"]
            if dataset.manifest.packing is None:
                num_ids = sum(window.get("attention_mask", [1] * len(ids)))
                ids = ids[len(facts.prefix) : num_ids - len(facts.suffix)]
            yield split, row, window, tokenizer.decode(ids).decode(errors="replace")


def hits_of(folder, fields, text, *, is_exact):
    pattern = re.compile(re.escape(text), 0 if is_exact else re.IGNORECASE)
    for split, row, window, content in texts_of(folder, fields):
        for match in pattern.finditer(content):
            is_by_itself = window.get("variant") in BY_THEMSELVES
            line = None if is_by_itself else window["lines"][0] + content.count("\n", 0, match.start())
            yield split, row, window["path"], line, match[0]


def searched(asking, **fields):
    """All answers, one after the other."""
    hits, after, of = [], None, None
    while True:
        found = asking.found("/api/search", **fields, **({"after": after} if after else {}))
        assert of in {None, found["of"]}
        assert len(found["hits"]) <= 50
        hits += found["hits"]
        of, after = found["of"], found["next"]
        if after is None:
            assert found["searched"] == of
            return [(hit["split"], hit["row"], hit["path"], hit["line"], hit["match"]) for hit in hits]


SEARCHES = (
    ("gamma4", {}),
    ("KELVIN", {"language": "python"}),
    ("straSSe", {}),
    ("sharp", {"variant": "none", "path": "src/*"}),
    ("emit1", {"split": "train", "case": "1"}),
    ("\n", {"path": HOSTILE}),
    ("数据3", {"license": "MIT"}),
    ("nowhere at all", {}),
)


def test_a_search_finds_all_there_is(viewed):
    folder, asking = viewed
    for text, fields in SEARCHES:
        filters = {name: value for name, value in fields.items() if name != "case"}
        expected = list(hits_of(folder, filters, text, is_exact="case" in fields))
        found = searched(asking, q=text, **fields)
        assert [hit[:4] for hit in found] == [hit[:4] for hit in expected]
        assert bool(expected) == (text not in {"straSSe", "nowhere at all"})


def test_a_search_that_runs_out_of_time_goes_on_where_it_was(plain, monkeypatch):
    folder, asking = plain
    monkeypatch.setattr(search, "SECONDS", 0)
    expected = list(hits_of(folder, {"path": "lib"}, "value", is_exact=False))
    assert len(searched(asking, q="value", path="lib")) == len(expected) > 50


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_from_any_row_the_nearest_hit_is_found(plain, monkeypatch, seconds):
    folder, asking = plain
    monkeypatch.setattr(search, "SECONDS", seconds)
    fields = {"q": "emit1", "path": "lib"}
    hits = [hit[:2] for hit in hits_of(folder, {"path": "lib"}, "emit1", is_exact=False)]
    every = [(split, row) for split in Split for row in range(len(open_dataset(folder)[split]))]
    rank = {place: number for number, place in enumerate(every)}
    assert 2 < len(set(hits)) < len(every)
    for split, row in every[:: len(every) // 9]:
        own = rank[split, row]
        before = [place for place in hits if rank[place] < own]
        behind = [place for place in hits if rank[place] > own]
        assert nearest(asking, f"{split}:{row}:1", back=0, **fields) == (behind[0] if behind else (None, None))
        assert nearest(asking, f"{split}:{row}:1", back=1, **fields) == (before[-1] if before else (None, None))


def nearest(asking, beside, **fields):
    while True:
        found = asking.found("/api/near", beside=beside, **fields)
        if found["next"] is None:
            return found["split"], found["row"]
        beside = found["next"]


def test_a_line_of_a_hit_is_that_line_of_the_file(plain, tmp_path):
    folder, asking = plain
    source = folder.parent / "repo"
    for hit in asking.found("/api/search", q="piece", path="src/m1")["hits"]:
        line = (source / hit["path"]).read_text().split("\n")[hit["line"] - 1]
        assert hit["before"][-10:] + hit["match"] + hit["after"][:5] in line


def test_a_file_page_has_all_its_windows_and_its_text(viewed):
    folder, asking = viewed
    for (repo, path), file in files_of(folder).items():
        found = asking.found("/api/file", repo=repo, path=path)
        assert found["file"]["status"] == file["status"]
        assert found["told"].startswith(file["status"])
        explained = explain_file(folder, f"{repo}/{path}")
        expected = [(one.row, one.start, one.fresh, one.repeat, one.variant or "") for one in explained.windows]
        listed = [
            (f"{one['split']}:{one['row']}", one["start"], one["fresh"], one["repeat"], one["variant"])
            for one in found["windows"]
        ]
        assert sorted(listed) == sorted(expected)
        if file["status"] == "dropped":
            assert (found["windows"], found["tokens"], found["num_tokens_left_out"]) == ([], [], 0)
            continue
        assert len(found["tokens"]) + found["num_tokens_left_out"] == file["tokens"]
        if not found["num_tokens_left_out"]:
            text = (folder.parent / repo / path).read_text()
            shown = "".join(text for _, kind, text in found["strokes"] if kind != "odd")
            assert shown == text.replace("\u202e", "")


def test_edges_are_where_windows_begin(plain):
    folder, asking = plain
    dataset = open_dataset(folder)
    found = asking.found("/api/file", repo="repo", path="src/m01.js")
    rows = dataset[found["file"]["split"]]
    assert len(found["edges"]) == len(found["windows"]) > 5
    for (index, row), window in zip(found["edges"], found["windows"], strict=True):
        assert (index, row) == (window["start"], window["row"])
        assert [one for one, _ in found["tokens"][index : index + 20]] == rows[row]["input_ids"][1:21]


def test_dropped_files_by_reason_and_path(plain):
    folder, asking = plain
    table = files_of(folder).values()
    for fields in ({}, {"status": "kept"}, {"status": "dropped"}, {"reason": "empty"}, {"path": "M1"}, {"status": "kept", "path": "*.rs"}):  # fmt: skip
        expected = [
            row
            for row in table
            if fields.get("status") in {None, row["status"]}
            and fields.get("reason") in {None, row["reason"]}
            and ("path" not in fields or named(fields["path"], f"{row['repo']}/{row['path']}"))
        ]
        found = asking.found("/api/files", **fields)
        assert found["total"] == len(expected) > 0
        assert [one["path"] for one in found["files"]] == [row["path"] for row in expected]
        assert all(found["files"][0][name] == expected[0][name] for name in found["files"][0])
        second = asking.found("/api/files", count=1, **fields, **{"from": 1})["files"]
        assert [one["path"] for one in second] == [row["path"] for row in expected[1:2]]


def test_the_dataset_tells_what_there_is_to_choose_from(viewed):
    folder, asking = viewed
    manifest = open_dataset(folder).manifest
    found = asking.found("/api/dataset")
    table = files_of(folder).values()
    assert found["title"] == folder.name
    assert set(found["languages"]) == {row["language"] for row in table if row["status"] == "kept"}
    assert set(found["licenses"]) == {row["license"] for row in table if row["status"] == "kept"}
    assert {one["reason"]: one["files"] for one in found["reasons"]} == manifest.counts.dropped_by_reason
    assert found["splits"] == {split: facts.windows for split, facts in manifest.splits.items()}
    assert found["index"] == {"is_ready": True, "share": 1.0, "error": None}


def test_names_from_a_repository_are_only_ever_text(plain):
    _, asking = plain
    found = asking.found("/api/windows", path=HOSTILE)
    assert found["total"] > 0
    assert {one["windows"][0]["path"] for one in found["rows"]} == {HOSTILE}
    texts = [one["text"] for one in asking.found("/api/windows", count=200)["rows"]]
    assert all(char.isprintable() or char in "\n\t" for text in texts for char in text)
    (hit,) = asking.found("/api/search", q="\u202e", variant="none")["hits"][:1]
    assert hit["match"] == "\\u202e"
