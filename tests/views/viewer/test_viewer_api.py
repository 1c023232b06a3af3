"""Answers of the viewer's API, compared with the rows of small datasets read in plain Python."""

import fnmatch
import json
import re
from itertools import product

import pytest

from gristmill import open_dataset
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, Split
from gristmill.dataset.dataset import split_windows
from gristmill.planning.explain import explain_file
from gristmill.views.viewer import search
from support.viewers import HOSTILE, SECTIONS, built, viewer


@pytest.fixture(scope="module", params=list(SECTIONS))
def stored(request, tmp_path_factory):
    """Build a dataset for each way of storing rows. Yield the folder of the dataset and a client of its viewer."""
    folder = built(tmp_path_factory.mktemp("stored"), request.param)
    with viewer(folder) as client:
        yield folder, client.indexed()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = built(tmp_path_factory.mktemp("plain"), "plain")
    with viewer(folder) as client:
        yield folder, client.indexed()


def read_files(folder):
    rows = map(json.loads, (folder / "files.jsonl").read_bytes().splitlines())
    return {(row["repo"], row["path"]): row for row in rows}


def read_windows(folder):
    """Yield (split, row number, window, file) of every window, in the order of the rows."""
    files = read_files(folder)
    dataset = open_dataset(folder)
    for split in Split:
        for number, row in enumerate(dataset[split]):
            for window in split_windows(row):
                yield split, number, window, files[window["repo"], window["path"]]


def name_matches(path, name):
    name, path = name.lower(), path.lower()
    if not set(path) & set("*?"):
        return path in name
    glob = path.replace("[", "[[]")
    ends = [name, *(name[at + 1 :] for at, char in enumerate(name) if char == "/")]
    return any(fnmatch.fnmatchcase(end, glob) for end in ends)


def matches_filters(fields, split, window, file):
    variant = window.get("variant", "")
    return all(
        (
            fields.get("split") in {None, split},
            fields.get("language") in {None, file["language"]},
            fields.get("license") in {None, file["license"]},
            fields.get("variant") in {None, variant or "none"},
            "path" not in fields or name_matches(fields["path"], f"{file['repo']}/{file['path']}"),
        )
    )


def matching_rows(folder, fields):
    return list(
        dict.fromkeys(
            (split, row) for split, row, *rest in read_windows(folder) if matches_filters(fields, split, *rest)
        )
    )


CHOICES = {
    "split": [None, "train", "test"],
    "language": [None, "python", "cobol"],
    "license": [None, "MIT", "NOASSERTION"],
    "variant": [None, "none", "rename", "noise"],
    "path": [None, "DEEP", "*/m0?.js", "[x]*", "rc/m1"],
}


def test_filters_match_a_plain_scan(stored):
    folder, client = stored
    everything = list(read_windows(folder))
    for number, choice in enumerate(product(*CHOICES.values())):
        fields = {name: value for name, value in zip(CHOICES, choice, strict=True) if value is not None}
        if set(fields) <= {"split"} or number % 3:
            continue
        expected = list(
            dict.fromkeys((split, row) for split, row, *rest in everything if matches_filters(fields, split, *rest))
        )
        found = client.found("/api/windows", count=200, **fields)
        assert found["total"] == len(expected), fields
        assert [(one["split"], one["row"]) for one in found["rows"]] == expected[:200], fields


def test_pages_cover_all_rows_of_all_splits(stored):
    folder, client = stored
    dataset = open_dataset(folder)
    expected = [(split, row) for split in Split for row in range(len(dataset[split]))]
    found = []
    while len(found) < len(expected):
        page = client.found("/api/windows", **{"from": len(found), "count": 90})
        assert page["total"] == len(expected)
        found += [(one["split"], one["row"]) for one in page["rows"]]
    assert found == expected
    assert client.found("/api/windows", **{"from": 10**9})["rows"] == []


def test_listed_rows_agree_with_the_dataset(stored):
    folder, client = stored
    dataset = open_dataset(folder)
    listed = client.found("/api/windows", split="train", count=200)["rows"]
    files = read_files(folder)
    for one in listed:
        row = dataset["train"][one["row"]]
        if "input_ids" in row:
            assert one["num_ids"] == sum(row.get("attention_mask", [1] * len(row["input_ids"])))
        else:
            assert one["num_ids"] == one["windows"][0]["fresh"] == row["tokens"]
        for listed_window, window in zip(one["windows"], split_windows(row), strict=True):
            for name in ("repo", "path", "language", "lines", "start", *(["fresh"] if "fresh" in row else [])):
                assert listed_window[name] == window[name]
            assert listed_window["variant"] == window.get("variant", "")
            assert listed_window["repeat"] == window.get("repeat", 0)
            assert listed_window["license"] == files[window["repo"], window["path"]]["license"]


def test_neighbors_match_the_filters(stored):
    folder, client = stored
    fields = {"split": "train", "language": "python", "path": "m"}
    rows = [row for _, row in matching_rows(folder, fields)]
    for before, row, after in zip([None, *rows], rows, [*rows[1:], None], strict=False):
        found = client.found("/api/row", row=row, **fields)
        assert (found["previous"] or {}).get("row") == before
        assert (found["next"] or {}).get("row") == after
        assert found["view"]["row"] == row
    between = next(row for row in range(rows[0] + 1, rows[-1]) if row not in rows)
    found = client.found("/api/row", row=between, **fields)
    assert found["previous"]["row"] < between < found["next"]["row"]


def matching_texts(folder, fields):
    """Yield split, row, window and text of the windows that match the filters."""
    dataset = open_dataset(folder)
    facts = dataset.manifest.tokenizer
    tokenizer = dataset.tokenizer
    for split, row, window, file in read_windows(folder):
        if matches_filters(fields, split, window, file):
            if "text" in window:
                yield split, row, window, window["text"]
                continue
            ids = window["input_ids"]
            if dataset.manifest.packing is None:
                num_ids = sum(window.get("attention_mask", [1] * len(ids)))
                ids = ids[len(facts.prefix) : num_ids - len(facts.suffix)]
            yield split, row, window, tokenizer.decode(ids).decode(errors="replace")


def expected_hits(folder, fields, text, *, is_exact):
    pattern = re.compile(re.escape(text), 0 if is_exact else re.IGNORECASE)
    for split, row, window, content in matching_texts(folder, fields):
        for match in pattern.finditer(content):
            is_unordered = window.get("variant") in INDEPENDENT_WINDOW_KINDS
            line = None if is_unordered else window["lines"][0] + content.count("\n", 0, match.start())
            yield split, row, window["path"], line, match[0]


def search_all(client, **fields):
    """Follow the cursors of a search until it is complete, and return all hits."""
    hits, after, total = [], None, None
    while True:
        found = client.found("/api/search", **fields, **({"after": after} if after else {}))
        assert total in {None, found["total"]}
        assert len(found["hits"]) <= 50
        hits += found["hits"]
        total, after = found["total"], found["next"]
        if after is None:
            assert found["searched"] == total
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


def test_search_finds_every_match(stored):
    folder, client = stored
    for text, fields in SEARCHES:
        filters = {name: value for name, value in fields.items() if name != "case"}
        expected = list(expected_hits(folder, filters, text, is_exact="case" in fields))
        found = search_all(client, q=text, **fields)
        assert [hit[:4] for hit in found] == [hit[:4] for hit in expected]
        assert bool(expected) == (text not in {"straSSe", "nowhere at all"})


def test_search_continues_after_its_time_limit(plain, monkeypatch):
    folder, client = plain
    monkeypatch.setattr(search, "MAX_SECONDS", 0)
    expected = list(expected_hits(folder, {"path": "lib"}, "value", is_exact=False))
    assert len(search_all(client, q="value", path="lib")) == len(expected) > 50


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_nearest_hit_is_found_from_any_row(plain, monkeypatch, seconds):
    folder, client = plain
    monkeypatch.setattr(search, "MAX_SECONDS", seconds)
    fields = {"q": "emit1", "path": "lib"}
    hits = [hit[:2] for hit in expected_hits(folder, {"path": "lib"}, "emit1", is_exact=False)]
    every = [(split, row) for split in Split for row in range(len(open_dataset(folder)[split]))]
    rank = {row: number for number, row in enumerate(every)}
    assert 2 < len(set(hits)) < len(every)
    for split, row in every[:: len(every) // 9]:
        own = rank[split, row]
        before = [hit for hit in hits if rank[hit] < own]
        after = [hit for hit in hits if rank[hit] > own]
        assert nearest(client, f"{split}:{row}:1", back=0, **fields) == (after[0] if after else (None, None))
        assert nearest(client, f"{split}:{row}:1", back=1, **fields) == (before[-1] if before else (None, None))


def nearest(client, cursor, **fields):
    while True:
        found = client.found("/api/nearest", cursor=cursor, **fields)
        if found["next"] is None:
            return found["split"], found["row"]
        cursor = found["next"]


def test_hit_has_its_line_number_in_the_file(plain, tmp_path):
    folder, client = plain
    source = folder.parent / "repo"
    for hit in client.found("/api/search", q="piece", path="src/m1")["hits"]:
        line = (source / hit["path"]).read_text().split("\n")[hit["line"] - 1]
        assert hit["before"][-10:] + hit["match"] + hit["after"][:5] in line


def test_file_page_has_all_windows_and_the_text(stored):
    folder, client = stored
    for (repo, path), file in read_files(folder).items():
        found = client.found("/api/file", repo=repo, path=path)
        assert found["file"]["status"] == file["status"]
        assert found["status_text"].startswith(file["status"])
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
        originals = {
            (one["row"], one["lines"][0]) for one in found["windows"] if not one["variant"] and not one["repeat"]
        }
        assert {(row, line) for _, row, line in found["starts"]} == originals
        if not found["num_tokens_left_out"]:
            text = (folder.parent / repo / path).read_text()
            displayed = "".join(text for _, kind, text in found["strokes"] if kind != "odd")
            assert displayed == text.replace("\u202e", "")


def test_file_page_has_the_start_of_each_window(plain):
    folder, client = plain
    dataset = open_dataset(folder)
    found = client.found("/api/file", repo="repo", path="src/m01.js")
    rows = dataset[found["file"]["split"]]
    assert len(found["starts"]) == len(found["windows"]) > 5
    for (index, row, line), window in zip(found["starts"], found["windows"], strict=True):
        assert (index, row, line) == (window["start"], window["row"], window["lines"][0])
        assert [one for one, _ in found["tokens"][index : index + 20]] == rows[row]["input_ids"][1:21]


def test_files_are_filtered_by_status_reason_and_path(plain):
    folder, client = plain
    table = read_files(folder).values()
    for fields in ({}, {"status": "kept"}, {"status": "dropped"}, {"reason": "empty"}, {"path": "M1"}, {"status": "kept", "path": "*.rs"}):  # fmt: skip
        expected = [
            row
            for row in table
            if fields.get("status") in {None, row["status"]}
            and fields.get("reason") in {None, row["reason"]}
            and ("path" not in fields or name_matches(fields["path"], f"{row['repo']}/{row['path']}"))
        ]
        found = client.found("/api/files", **fields)
        assert found["total"] == len(expected) > 0
        assert [one["path"] for one in found["files"]] == [row["path"] for row in expected]
        assert all(found["files"][0][name] == expected[0][name] for name in found["files"][0])
        second = client.found("/api/files", count=1, **fields, **{"from": 1})["files"]
        assert [one["path"] for one in second] == [row["path"] for row in expected[1:2]]


def test_dataset_lists_the_filter_choices(stored):
    folder, client = stored
    manifest = open_dataset(folder).manifest
    found = client.found("/api/dataset")
    table = read_files(folder).values()
    assert found["title"] == folder.name
    assert set(found["languages"]) == {row["language"] for row in table if row["status"] == "kept"}
    assert set(found["licenses"]) == {row["license"] for row in table if row["status"] == "kept"}
    assert {one["reason"]: one["files"] for one in found["reasons"]} == manifest.counts.dropped_by_reason
    assert found["splits"] == {split: facts.windows for split, facts in manifest.splits.items()}
    assert found["index"] == {"is_ready": True, "fraction_done": 1.0, "error": None}


def test_unprintable_characters_are_escaped(plain):
    _, client = plain
    found = client.found("/api/windows", path=HOSTILE)
    assert found["total"] > 0
    assert {one["windows"][0]["path"] for one in found["rows"]} == {HOSTILE}
    texts = [one["text"] for one in client.found("/api/windows", count=200)["rows"]]
    assert all(char.isprintable() or char in "\n\t" for text in texts for char in text)
    (hit,) = client.found("/api/search", q="\u202e", variant="none")["hits"][:1]
    assert hit["match"] == "\\u202e"
