"""The viewer's page in a real browser, by mouse and keyboard, compared with the dataset as Python reads it."""

import fnmatch
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from gristmill import Config, build, open_dataset
from gristmill.config.settings import SplitConfig, VariantsConfig, WindowConfig
from gristmill.core.names import printable
from gristmill.core.records import DropReason
from gristmill.dataset.dataset import Dataset
from gristmill.views.row import AFTER, BEFORE, SPECIAL, view_row
from support.browser import DESKTOP, PHONE, WatchedPage, watched
from support.builds import files_table
from support.source_trees import write_tree
from support.viewers import viewer

IMAGE = "<img src=x onerror=alert(1)>.py"
SCRIPT = "</script>.js"
BIDI = "a\u202eb.py"
WORDS = [
    "mill",
    "grain",
    "stone",
    "water",
    "wheel",
    "flour",
    "sack",
    "cart",
    "river",
    "bolt",
    "hopper",
    "crane",
    "damsel",
    "shoe",
    "vat",
    "rap",
    "quern",
    "sieve",
    "bran",
    "husk",
]

SHORT_LIST = "/?path=part21"
"""Address of a list with a few rows, which is drawn and checked faster than a page of fifty rows."""

RowId = tuple[str, int]


def _code(number: int, line: str) -> str:
    """Return lines of code that are unique to the number."""
    words = [WORDS[(number * 7 + step * (number + 3)) % len(WORDS)] for step in range(42)]
    return "\n".join(line.format(*words[3 * step : 3 * step + 3], 1000 * number + step) for step in range(14)) + "\n"


def _files() -> dict[str, str | bytes]:
    python, script = "def {0}_{3}({1}):\n    return {2} + {3}  # {1}", "let {0}{3} = {1}({3}, '{2}') // {0}"
    tree: dict[str, str | bytes] = {f"src/part{number}.py": _code(number, python) for number in range(8)}
    tree |= {
        f"web/part{number}.js": "// SPDX-License-Identifier: MIT\n" + _code(number, script) for number in range(20, 24)
    }
    tree |= {
        IMAGE: "# SPDX-License-Identifier: Apache-2.0\n"
        + _code(40, python)
        + 'x = "</script><script>alert(1)</script>"\n',
        SCRIPT: _code(41, script) + "// <img src=x onerror=alert(2)>\n",
        BIDI: _code(42, python) + "y = '\u202e\x1b[31m\u200b'  # QuernStone\n",
        "src/zcopy.py": _code(3, python),
        "src/empty.py": b"",
        "src/data.py": bytes(range(256)) * 4,
        "package-lock.json": '{"a": 1}\n',
    }
    return tree


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("viewed")
    build(
        Config(
            sources=[str(write_tree(folder / "repo", _files()))],
            out=str(folder / "dataset"),
            window=WindowConfig(length=96, overlap=24),
            split=SplitConfig(shares="60/20/20"),
            variants=VariantsConfig(rates={"noise": 0.3}),
        )
    )
    return open_dataset(folder / "dataset")


@pytest.fixture(scope="module")
def texts(dataset: Dataset) -> dict[RowId, str]:
    """The decoded text of each row."""
    facts, tokenizer = dataset.manifest.tokenizer, dataset.tokenizer
    content = slice(len(facts.prefix), -len(facts.suffix))
    return {
        (split, number): tokenizer.decode(row["input_ids"][content]).decode("utf-8", "replace")
        for split in dataset
        for number, row in enumerate(dataset[split])
    }


@pytest.fixture(scope="module")
def address(dataset: Dataset) -> Iterator[str]:
    """The address of a viewer, with its key."""
    with viewer(dataset.folder) as client:
        yield client.address


@contextmanager
def open_tab(chromium: Browser, address: str, at: str = "/", **options: object) -> Iterator[WatchedPage]:
    """Open a page at a path. The key in the address gives the tab a cookie."""
    base, key = address.split("?")
    with watched(chromium, base, **options) as tab:
        tab.page.goto(f"{base.rstrip('/')}{at}{'&' if '?' in at else '?'}{key}")
        wait_until_loaded(tab.page)
        yield tab
        assert tab.dialogs == []


def wait_until_loaded(page: Page) -> Page:
    page.wait_for_selector("main:not([aria-busy]) h1")
    return page


def navigate(page: Page, at: str) -> Page:
    """Change the address without loading the page again, as the back button does."""
    page.evaluate("at => { history.pushState({}, '', at); dispatchEvent(new PopStateEvent('popstate')) }", at)
    return wait_until_loaded(page)


def displayed_keys(page: Page) -> list[str]:
    return page.locator("main a.row-link").evaluate_all("links => links.map((link) => link.dataset.key)")


def all_keys(page: Page) -> list[str]:
    found = displayed_keys(page)
    while page.locator("a[rel=next]").count():
        page.locator("a[rel=next]").click()
        page.wait_for_function(
            "first => document.querySelector('main a.row-link')?.dataset.key !== first", arg=found[-50]
        )
        found += displayed_keys(page)
    return found


def matching_rows(dataset: Dataset, **filters: str) -> list[RowId]:
    table = files_table(dataset.folder)

    def passes(split: str, row: dict) -> bool:
        file, name = table[row["path"]], f"{row['repo']}/{row['path']}".lower()
        path = filters.get("path", "").lower()
        return all(
            (
                filters.get("split", split) == split,
                filters.get("language", file["language"]) == file["language"],
                filters.get("license", file["license"]) == file["license"],
                filters.get("variant") in {None, row.get("variant") or "none"},
                fnmatch.fnmatchcase(name, path) if "*" in path else path in name,
            )
        )

    return [(split, number) for split in dataset for number, row in enumerate(dataset[split]) if passes(split, row)]


def row_keys(rows: list[RowId]) -> list[str]:
    return [f"{split}:{row}" for split, row in rows]


def file_address(path: str) -> str:
    return "/file?" + urlencode({"repo": "repo", "path": path})


def test_every_row_is_listed_in_pages_of_fifty(chromium, address, dataset):
    with open_tab(chromium, address) as tab:
        expected = row_keys(matching_rows(dataset))
        assert len(expected) > 50
        assert tab.page.locator("h1").count() == 1
        expect(tab.page.locator("h2.subheading")).to_have_text(f"1–50 of {len(expected)} rows")
        assert all_keys(tab.page) == expected
        assert tab.page.url.endswith(f"?from={len(expected) // 50 * 50}")
        tab.page.go_back()
        expect(tab.page.locator("h2.subheading")).not_to_contain_text(f"–{len(expected)} of")
        assert tab.is_quiet()


FILTERS = [
    {"split": "test"},
    {"language": "javascript"},
    {"license": "MIT", "split": "train"},
    {"variant": "noise"},
    {"variant": "none", "language": "python"},
    {"path": "PART2"},
    {"path": "*/src/*3.py"},
    {"path": "<img"},
]


def test_filters_in_an_address_match_a_plain_scan(chromium, address, dataset):
    with open_tab(chromium, address, SHORT_LIST) as tab:
        for filters in FILTERS:
            page = navigate(tab.page, "/?" + urlencode(filters))
            expected = row_keys(matching_rows(dataset, **filters))
            assert expected, filters
            assert all_keys(page) == expected, filters
            for name, value in filters.items():
                assert page.locator(f"#filter-{name}").input_value() == value
        assert tab.is_quiet()


def test_filters_can_be_set_in_the_form_and_cleared(chromium, address, dataset):
    with open_tab(chromium, address) as tab:
        page = tab.page
        page.get_by_label("Language").select_option("javascript")
        expect(page.locator("h2.subheading")).to_contain_text(
            f"of {len(matching_rows(dataset, language='javascript'))} rows"
        )
        page.get_by_label("Path").fill("part21")
        number = len(matching_rows(dataset, language="javascript", path="part21"))
        expect(page.locator("h2.subheading")).to_contain_text(f"of {number} rows")
        assert page.evaluate("document.activeElement.name") == "path"
        assert page.url.endswith("/?language=javascript&path=part21")
        page.get_by_label("Path").fill("no such file")
        page.get_by_role("link", name="Clear filters").click()
        expect(page.locator("h2.subheading")).to_contain_text(f"of {len(matching_rows(dataset))} rows")
        assert page.get_by_label("Language").input_value() == ""
        assert tab.is_quiet()


SEARCHES = {"RETURN wheel": False, "QuernStone": True, "quernstone": True, "</script>": True}
"""Searched texts. The value is True if the case must match."""


def test_search_finds_and_highlights_every_match(chromium, address, texts):
    with open_tab(chromium, address) as tab:
        page = tab.page
        for word, is_exact in SEARCHES.items():
            pattern = re.compile(re.escape(word), 0 if is_exact else re.IGNORECASE)
            expected = [row for row, text in texts.items() for _ in pattern.findall(text)]
            assert bool(expected) == (word != "quernstone")
            page.keyboard.press("/")
            page.keyboard.type(word)
            page.get_by_label("Match case").set_checked(is_exact)
            page.get_by_role("button", name="Search").click()
            summary = re.compile(
                rf"^{len(expected)} hits? for “{re.escape(word)}”: {len(texts)} of {len(texts)} rows searched"
            )
            expect(page.locator("h2.subheading")).to_have_text(summary)
            assert displayed_keys(page) == row_keys(expected)
            assert all(pattern.fullmatch(text) for text in page.locator("mark").all_text_contents())
        assert tab.is_quiet()


def test_search_without_hits_displays_a_notice(chromium, address):
    with open_tab(chromium, address, "/?q=no+such+thing&language=python") as tab:
        expect(tab.page.locator(".notice")).to_contain_text("No window contains this text")
        tab.page.get_by_role("link", name="Clear filters").click()
        wait_until_loaded(tab.page)
        assert tab.page.url.endswith("/?q=no+such+thing")
        assert tab.is_quiet()


def test_hit_opens_its_row_with_the_match_highlighted(chromium, address):
    with open_tab(chromium, address, "/?q=QuernStone") as tab:
        tab.page.locator("a.row-link").first.click()
        wait_until_loaded(tab.page)
        assert tab.page.evaluate("[...CSS.highlights.get('searched')].map(String)") == ["QuernStone"]
        tab.page.keyboard.press("u")
        tab.page.wait_for_selector("mark")
        assert tab.page.url.endswith("/?q=QuernStone")
        assert tab.is_quiet()


def test_search_can_be_stopped_and_continued(chromium, address, dataset):
    with open_tab(chromium, address, "/dropped") as tab:
        page = tab.page
        more = re.compile(r"/api/search\?.*after=")
        page.route(more, lambda _: None)  # requests for more results are never answered

        def first(route: Route) -> None:
            answer = route.fetch().json()
            changed = {"next": "train:3:0", "searched": 3, "hits": answer["hits"][:1]}
            route.fulfill(json={**answer, **changed})

        page.route(re.compile(r"/api/search\?(?!.*after=)"), first)
        navigate(page, "/?q=return")
        expect(page.locator("h2.subheading")).to_contain_text("1 hit for “return” so far: 3 of")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("h2.subheading")).to_contain_text("stopped")
        page.unroute(more)
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("h2.subheading")).to_contain_text(
            f": {len(matching_rows(dataset))} of {len(matching_rows(dataset))} rows searched"
        )
        assert len(displayed_keys(page)) > 10


def test_keys_step_through_the_list_and_the_windows(chromium, address, dataset):
    first, second, third, *_ = row_keys(matching_rows(dataset, language="javascript"))
    with open_tab(chromium, address, "/?language=javascript") as tab:
        page = tab.page
        for key, focused in (
            ("j", first),
            ("j", second),
            ("ArrowDown", third),
            ("k", second),
            ("ArrowUp", first),
            ("j", second),
        ):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.dataset.key") == focused
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_be_focused()
        for key, displayed in (("j", third), ("k", second), ("k", first), ("ArrowRight", second)):
            page.keyboard.press(key)
            page.wait_for_url("**/row/" + displayed.replace(":", "/") + "?language=javascript")
            expect(page.locator(".facts").first).to_contain_text(f"{displayed} of")
        page.keyboard.press("u")
        page.wait_for_url("**/?language=javascript")
        expect(page.locator(f"a[data-key='{second}']")).to_be_focused()
        page.keyboard.press("f")
        expect(page.get_by_label("Split")).to_be_focused()
        assert tab.is_quiet()


def test_shortcuts_are_off_while_typing_and_help_opens_and_closes(chromium, address):
    with open_tab(chromium, address, SHORT_LIST) as tab:
        page = tab.page
        page.keyboard.press("/")
        page.keyboard.type("jukf?t/")
        assert page.locator("#q").input_value() == "jukf?t/"
        assert not page.locator("dialog").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        assert page.locator("dialog dt").all_inner_texts()[:2] == ["j k", "↓ ↑"]
        assert tab.violations() == []
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).not_to_be_visible()
        assert tab.is_quiet()


def test_every_control_can_be_reached_by_tab(chromium, address):
    controls = "[...document.querySelectorAll('a[href], button, input, select, [tabindex=\"0\"]')]"
    visible = f"{controls}.filter((one) => one.checkVisibility())"
    with open_tab(chromium, address, "/row/train/1") as tab:
        number = tab.page.evaluate(f"{visible}.length")
        assert number >= 10
        reached = []
        for _ in range(number):
            tab.page.keyboard.press("Tab")
            reached.append(tab.page.evaluate(f"{visible}.indexOf(document.activeElement)"))
        assert reached == list(range(number))
        assert tab.is_quiet()


def test_row_displays_its_tokens_and_overlaps(chromium, address, dataset):
    view = view_row(dataset, "train", 1)
    assert view.windows[0].shared_before > 0
    with open_tab(chromium, address, "/row/train/1") as tab:
        page = tab.page
        spans = page.locator(".code [data-token]").evaluate_all(
            "spans => spans.map((span) => [Number(span.dataset.token), span.textContent, [...span.classList]])"
        )
        drawn = {number: "" for number, _, _ in spans}
        for number, text, classes in spans:
            drawn[number] += text
            flags = view.tokens[number][1]
            assert ("special" in classes, "alternate" in classes) == (bool(flags & SPECIAL), number % 2 == 1)
            shared = {"before": flags & BEFORE, "after": flags & AFTER}
            both = flags & BEFORE and flags & AFTER
            assert set(classes) & {"before", "after", "both"} == (
                {"both"} if both else {n for n, on in shared.items() if on}
            )
        expected = dict.fromkeys(drawn, "")
        for stroke in view.strokes:
            expected[stroke.token] += stroke.text
        assert drawn == expected
        numbers = page.locator(".line[data-line]").evaluate_all(
            "lines => lines.map((line) => Number(line.dataset.line))"
        )
        first, last = view.windows[0].lines
        assert numbers == list(range(first, last + 1))
        expect(page.locator(".legend")).to_contain_text(f"previous window: {view.windows[0].shared_before} tokens")
        assert "bounds" in page.locator(".code").get_attribute("class")
        assert tab.is_quiet()


def test_token_id_is_displayed_by_pointer_and_arrow_keys(chromium, address, dataset):
    view = view_row(dataset, "train", 1)
    with open_tab(chromium, address, "/row/train/1") as tab:
        page, status = tab.page, tab.page.locator(".token-status")
        expect(status).to_contain_text("click a token and go to the next or previous one with → and ←")
        page.locator(".code [data-token='7']").first.hover()
        expect(status).to_contain_text(f"Token index 7 of {len(view.tokens)} tokens · id {view.tokens[7][0]} · ")
        page.locator(".code").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(status).to_contain_text(f"Token index 1 of {len(view.tokens)} tokens · id {view.tokens[1][0]} · ")
        expect(status).to_contain_text("also in the previous window")
        page.locator("h1").focus()
        page.locator(".code [data-token='7']").first.click()
        page.keyboard.press("ArrowRight")
        expect(status).to_contain_text(f"Token index 8 of {len(view.tokens)} tokens · id {view.tokens[8][0]} · ")
        assert "/row/train/1" in page.url
        assert tab.is_quiet()


def test_address_restores_the_same_state(chromium, address):
    with open_tab(chromium, address, "/row/train/2?language=python") as tab:
        tab.page.keyboard.press("t")
        tab.page.keyboard.press("w")
        assert tab.page.url.endswith("/row/train/2?language=python&tokens=0&wrap=0")
        copied = tab.page.url
    base = address.split("?")[0]
    with open_tab(chromium, address, "/" + copied.removeprefix(base)) as tab:
        assert "bounds" not in tab.page.locator(".code").get_attribute("class")
        assert "wrapped" not in tab.page.locator(".code").get_attribute("class")
        expect(tab.page.get_by_role("button", name="Token boundaries")).to_have_attribute("aria-pressed", "false")
        assert "train:2 " in tab.page.title()
        assert "key=" not in tab.page.url
        assert tab.is_quiet()


def test_going_back_restores_focus_and_scroll_position(chromium, address):
    with open_tab(chromium, address) as tab:
        page = tab.page
        link = page.locator("a.row-link").nth(30)
        key = link.get_attribute("data-key")
        link.click()
        wait_until_loaded(page)
        expect(page.locator("h1")).to_be_focused()
        page.go_back()
        expect(page.locator(f"a[data-key='{key}']")).to_be_focused()
        assert page.evaluate("scrollY") > 500
        assert tab.is_quiet()


def test_file_displays_its_windows_and_where_they_start(chromium, address, dataset):
    path = dataset["train"][0]["path"]
    file = files_table(dataset.folder)[path]
    expected = row_keys(matching_rows(dataset, path=f"repo/{path}"))
    with open_tab(chromium, address, file_address(path)) as tab:
        page = tab.page
        assert displayed_keys(page) == expected
        rows = [number for number, row in enumerate(dataset["train"]) if row["path"] == path and not row.get("variant")]
        assert page.locator(".gutter-link").all_text_contents() == [str(number) for number in rows]
        expect(page.locator(".status")).to_contain_text("Kept in train")
        text = "".join(page.locator(".code [data-token]").all_text_contents())
        assert text == (dataset.folder.parent / "repo" / path).read_text()
        lines = page.locator(".line[data-line]").evaluate_all("lines => lines.map((line) => Number(line.dataset.line))")
        assert lines == list(range(1, file["lines"] + 1))
        page.locator(".gutter-link").nth(1).click()
        page.wait_for_url(f"**/row/train/{rows[1]}")
        wait_until_loaded(page)
        page.get_by_role("link", name=f"repo/{path}").click()
        page.wait_for_url("**/file?*")
        assert tab.is_quiet()


def test_long_window_list_scrolls_only_vertically(chromium, address, dataset):
    with open_tab(chromium, address, file_address(dataset["train"][0]["path"]), viewport=PHONE) as tab:
        sizes = tab.page.locator(".window-links").evaluate(
            "list => { for (let one = 0; one < 40; one++) list.append(list.firstElementChild.cloneNode(true));"
            " return [list.scrollWidth - list.clientWidth, list.scrollHeight - list.clientHeight] }"
        )
        assert sizes[0] == 0 < sizes[1], sizes


def test_dropped_files_are_listed_with_their_reasons(chromium, address, dataset):
    table = [file for file in files_table(dataset.folder).values() if file["status"] == "dropped"]
    assert {"empty", "exact_duplicate", "binary"} <= {file["reason"] for file in table}
    with open_tab(chromium, address, "/dropped") as tab:
        page = tab.page
        assert displayed_keys(page) == [f"{file['repo']}/{file['path']}" for file in table]
        for file in table:
            row = page.locator("tr", has=page.locator(f"a[data-key='{file['repo']}/{file['path']}']"))
            expect(row.locator("td").first).to_have_text(file["reason"])
            expect(row).to_contain_text(file["detail"] or "")
        page.get_by_label("Reason").select_option("exact_duplicate")
        expect(page.locator("h2.subheading")).to_have_text("1–1 of 1 file")
        expect(page.locator(".results")).to_contain_text(DropReason.EXACT_DUPLICATE.meaning)
        page.get_by_role("link", name="repo/src/zcopy.py").click()
        page.wait_for_url("**/file?*")
        expect(page.locator(".status")).to_contain_text("Dropped as exact_duplicate")
        expect(page.locator(".facts").first).not_to_contain_text("Split")
        # The page formats sizes as the report and the terminal do.
        assert page.evaluate("import('/format.js').then((format) => format.bytes(36_800))") == "36.8 KB"
        page.keyboard.press("u")
        page.wait_for_url("**/dropped?reason=exact_duplicate")
        assert tab.is_quiet()


@pytest.mark.parametrize("path", [IMAGE, SCRIPT, BIDI])
def test_hostile_names_and_contents_are_displayed_as_text(chromium, address, dataset, texts, path):
    split, row = matching_rows(dataset, path=path, variant="none")[-1]
    with open_tab(chromium, address, f"/row/{split}/{row}") as tab:
        page = tab.page
        expect(page.locator("h1")).to_have_text(printable(path))
        assert printable(path) in page.title()
        drawn = "".join(page.locator(".code [data-token]:not(.special)").all_text_contents())
        text = texts[split, row]
        assert drawn == "".join(char if char.isprintable() or char in "\n\t" else printable(char) for char in text)
        name = quote(path)
        for at in (file_address(path), f"/?path={name}", "/?q=alert(1)", f"/?q={name}", f"/?language={name}"):
            navigate(page, at)
            assert page.locator("main img, main script, iframe").count() == 0
            assert not set(page.locator("body").inner_text()) & {"\u202e", "\x1b", "\u200b"}
        assert tab.is_quiet()


PAGES = {
    "windows": SHORT_LIST,
    "nothing": "/?path=no+such+file",
    "search": "/?q=quernstone",
    "row": "/row/train/1",
    "unprintable row": None,
    "file": file_address("src/part1.py"),
    "dropped": "/dropped",
    "dropped file": file_address("src/zcopy.py"),
}


@pytest.mark.parametrize(("viewport", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["wide, light", "narrow, dark"])
def test_pages_are_accessible_and_do_not_scroll_horizontally(chromium, address, dataset, viewport, dark):
    split, row = matching_rows(dataset, path=BIDI, variant="none")[-1]
    with open_tab(chromium, address, viewport=viewport, dark=dark) as tab:
        for name, at in PAGES.items():
            page = navigate(tab.page, at or f"/row/{split}/{row}")
            assert tab.violations() == [], name
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert page.locator("h1").count() == 1, name
            assert not re.search(r"\[object|undefined|NaN|\bnull\b", page.locator("body").inner_text()), name
        assert tab.is_quiet()


def test_page_waits_for_the_index_and_then_updates(chromium, address, dataset):
    with open_tab(chromium, address, "/dropped") as tab:
        waiting = {"index": {"is_ready": False, "fraction_done": 0.25, "error": None}}
        tab.page.route("**/api/windows?*", lambda route: route.fulfill(status=202, json=waiting))
        tab.page.get_by_role("link", name="Windows").click()
        expect(tab.page.locator(".notice")).to_contain_text("25%")
        tab.page.unroute("**/api/windows?*")
        expect(tab.page.locator("h2.subheading")).to_contain_text(f"of {len(matching_rows(dataset))} rows")
        assert tab.is_quiet()


ERROR_TEXTS = {
    None: "Start `gristmill view` again",
    (403, "no"): "Open the address that `gristmill view` printed",
    (409, json.dumps({"error": "row train:1 is damaged <b>"})): "row train:1 is damaged <b>",
}
"""Text that the page displays for each answer of the server. The answer None stands for no response."""


def make_handler(answer: tuple[int, str] | None) -> Callable[[Route], None]:
    def refuse(route: Route) -> None:
        if answer is None:
            route.abort()
        else:
            route.fulfill(status=answer[0], body=answer[1])

    return refuse


def test_errors_are_displayed_and_can_be_retried(chromium, address):
    with open_tab(chromium, address, "/dropped") as tab:
        for answer, text in ERROR_TEXTS.items():
            page = navigate(tab.page, SHORT_LIST)
            page.route("**/api/row?*", make_handler(answer))
            page.locator("a.row-link").first.click()
            expect(page.locator(".notice")).to_contain_text(text)
            expect(page.locator("h1")).to_be_focused()
            assert tab.violations() == []
            page.unroute("**/api/row?*")
            page.get_by_role("button", name="Try again").click()
            expect(page.locator(".code")).to_be_visible()
        assert tab.foreign_requests == []


def test_listed_row_omits_facts_that_are_unknown(chromium, address):
    """A packed row has one count of fresh tokens per window. Rows that no build made lack lines and fresh tokens."""

    def changed(route: Route) -> None:
        answer = route.fetch().json()
        packed, bare = answer["rows"][:2]
        packed["windows"] *= 2
        bare["windows"][0] |= {"lines": [0, 0], "fresh": 0}
        route.fulfill(json=answer)

    with open_tab(chromium, address, "/dropped") as tab:
        tab.page.route("**/api/windows?*", changed)
        tab.page.get_by_role("link", name="Windows").click()
        wait_until_loaded(tab.page)
        packed, bare, plain = tab.page.locator(".row-facts").all_inner_texts()[:3]
        assert "fresh" not in packed
        assert not re.search("fresh|line", bare)
        assert re.search(r"lines? [\d–]+\s.*\d+ ids, \d+ fresh", plain, re.DOTALL)


def test_keys_step_from_hit_to_hit_after_a_search(chromium, address, dataset, texts):
    hits = [row for row, text in texts.items() if "bran" in text.lower()]
    gaps = [number for number, row in enumerate(texts) if row not in hits]
    assert len(hits) > 3
    assert gaps, "every row contains the searched text, so the keys skip no row"
    with open_tab(chromium, address) as tab:
        page = tab.page
        page.keyboard.press("/")
        page.keyboard.type("bran")
        page.keyboard.press("Enter")
        expect(page.locator("h2.subheading")).to_contain_text("searched")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.dataset.key") == row_keys(hits)[0]
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_be_focused()
        steps = [*zip("j" * (len(hits) - 1), hits[1:], strict=True), *zip("kk", hits[-2:-4:-1], strict=True)]
        for key, (split, row) in steps:
            page.keyboard.press(key)
            page.wait_for_url(f"**/row/{split}/{row}?q=bran")
            expect(page.locator(".facts").first).to_contain_text(f"{split}:{row} of")
        page.get_by_role("button", name="Next hit").click()
        page.wait_for_url("**/row/{}/{}?q=bran".format(*hits[-2]))
        wait_until_loaded(page)
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**/row/{}/{}?q=bran".format(*hits[-1]))
        wait_until_loaded(page)
        page.keyboard.press("j")
        expect(page.locator("#announcer")).to_have_text("No more hits.")
        assert tab.is_quiet()
