"""The viewer's page in a real browser: what it shows against the dataset as Python reads it, by mouse and by keyboard."""

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
from gristmill.views.row import AFTER, BEFORE, SPECIAL, look_at
from support.browser import DESKTOP, PHONE, WatchedPage, watched
from support.builds import files_table
from support.source_trees import write_tree
from support.viewers import viewer

IMAGE = "<img src=x onerror=alert(1)>.py"
SCRIPT = "</script>.js"
TURNED = "a\u202eb.py"
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

FEW = "/?path=part21"
"""A list of a few rows: fifty take a while to draw and to look through."""

Place = tuple[str, int]


def _code(number: int, line: str) -> str:
    """Some lines, unlike those of any other number."""
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
        TURNED: _code(42, python) + "y = '\u202e\x1b[31m\u200b'  # QuernStone\n",
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
def texts(dataset: Dataset) -> dict[Place, str]:
    """What each row spells."""
    facts, tokenizer = dataset.manifest.tokenizer, dataset.tokenizer
    content = slice(len(facts.prefix), -len(facts.suffix))
    return {
        (split, number): tokenizer.decode(row["input_ids"][content]).decode("utf-8", "replace")
        for split in dataset
        for number, row in enumerate(dataset[split])
    }


@pytest.fixture(scope="module")
def address(dataset: Dataset) -> Iterator[str]:
    """With the key in it."""
    with viewer(dataset.folder) as asking:
        yield asking.address


@contextmanager
def opened(chromium: Browser, address: str, at: str = "/", **options: object) -> Iterator[WatchedPage]:
    """A page at this place, with the key as a cookie."""
    own, key = address.split("?")
    with watched(chromium, own, **options) as seen:
        seen.page.goto(f"{own.rstrip('/')}{at}{'&' if '?' in at else '?'}{key}")
        settled(seen.page)
        yield seen
        assert seen.dialogs == []


def settled(page: Page) -> Page:
    page.wait_for_selector("main:not([aria-busy]) h1")
    return page


def to(page: Page, at: str) -> Page:
    """Like going back to it, which is quicker than to load it."""
    page.evaluate("at => { history.pushState({}, '', at); dispatchEvent(new PopStateEvent('popstate')) }", at)
    return settled(page)


def keys_shown(page: Page) -> list[str]:
    return page.locator("main a.row-link").evaluate_all("links => links.map((link) => link.dataset.key)")


def all_keys(page: Page) -> list[str]:
    found = keys_shown(page)
    while page.locator("a[rel=next]").count():
        page.locator("a[rel=next]").click()
        page.wait_for_function(
            "first => document.querySelector('main a.row-link')?.dataset.key !== first", arg=found[-50]
        )
        found += keys_shown(page)
    return found


def rows_of(dataset: Dataset, **filters: str) -> list[Place]:
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


def named(places: list[Place]) -> list[str]:
    return [f"{split}:{row}" for split, row in places]


def file_place(path: str) -> str:
    return "/file?" + urlencode({"repo": "repo", "path": path})


def test_every_row_is_listed_fifty_at_a_time(chromium, address, dataset):
    with opened(chromium, address) as seen:
        expected = named(rows_of(dataset))
        assert len(expected) > 50
        assert seen.page.locator("h1").count() == 1
        expect(seen.page.locator("h2.told")).to_have_text(f"1–50 of {len(expected)} rows")
        assert all_keys(seen.page) == expected
        assert seen.page.url.endswith(f"?from={len(expected) // 50 * 50}")
        seen.page.go_back()
        expect(seen.page.locator("h2.told")).not_to_contain_text(f"–{len(expected)} of")
        assert seen.is_quiet()


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


def test_filters_in_an_address_find_what_python_finds(chromium, address, dataset):
    with opened(chromium, address, FEW) as seen:
        for filters in FILTERS:
            page = to(seen.page, "/?" + urlencode(filters))
            expected = named(rows_of(dataset, **filters))
            assert expected, filters
            assert all_keys(page) == expected, filters
            for name, value in filters.items():
                assert page.locator(f"#filter-{name}").input_value() == value
        assert seen.is_quiet()


def test_filters_are_chosen_in_the_form_and_cleared(chromium, address, dataset):
    with opened(chromium, address) as seen:
        page = seen.page
        page.get_by_label("Language").select_option("javascript")
        expect(page.locator("h2.told")).to_contain_text(f"of {len(rows_of(dataset, language='javascript'))} rows")
        page.get_by_label("Path").fill("part21")
        number = len(rows_of(dataset, language="javascript", path="part21"))
        expect(page.locator("h2.told")).to_contain_text(f"of {number} rows")
        assert page.evaluate("document.activeElement.name") == "path"
        assert page.url.endswith("/?language=javascript&path=part21")
        page.get_by_label("Path").fill("nothing is named so")
        page.get_by_role("link", name="Clear the filters").click()
        expect(page.locator("h2.told")).to_contain_text(f"of {len(rows_of(dataset))} rows")
        assert page.get_by_label("Language").input_value() == ""
        assert seen.is_quiet()


SEARCHES = {"RETURN wheel": False, "QuernStone": True, "quernstone": True, "</script>": True}
"""Whether case is to match."""


def test_search_finds_every_match_and_marks_it(chromium, address, texts):
    with opened(chromium, address) as seen:
        page = seen.page
        for word, is_exact in SEARCHES.items():
            pattern = re.compile(re.escape(word), 0 if is_exact else re.IGNORECASE)
            expected = [place for place, text in texts.items() for _ in pattern.findall(text)]
            assert bool(expected) == (word != "quernstone")
            page.keyboard.press("/")
            page.keyboard.type(word)
            page.get_by_label("Match case").set_checked(is_exact)
            page.get_by_role("button", name="Search").click()
            told = re.compile(
                rf"^{len(expected)} hits? for “{re.escape(word)}”: {len(texts)} of {len(texts)} rows searched"
            )
            expect(page.locator("h2.told")).to_have_text(told)
            assert keys_shown(page) == named(expected)
            assert all(pattern.fullmatch(text) for text in page.locator("mark").all_text_contents())
        assert seen.is_quiet()


def test_a_search_that_finds_nothing_says_so(chromium, address):
    with opened(chromium, address, "/?q=no+such+thing&language=python") as seen:
        expect(seen.page.locator(".notice")).to_contain_text("No window has it")
        seen.page.get_by_role("link", name="Clear the filters").click()
        settled(seen.page)
        assert seen.page.url.endswith("/?q=no+such+thing")
        assert seen.is_quiet()


def test_a_hit_opens_its_row_with_the_match_marked(chromium, address):
    with opened(chromium, address, "/?q=QuernStone") as seen:
        seen.page.locator("a.row-link").first.click()
        settled(seen.page)
        assert seen.page.evaluate("[...CSS.highlights.get('searched')].map(String)") == ["QuernStone"]
        seen.page.keyboard.press("u")
        seen.page.wait_for_selector("mark")
        assert seen.page.url.endswith("/?q=QuernStone")
        assert seen.is_quiet()


def test_a_search_can_be_stopped_and_gone_on_with(chromium, address, dataset):
    with opened(chromium, address, "/dropped") as seen:
        page = seen.page
        more = re.compile(r"/api/search\?.*after=")
        page.route(more, lambda _: None)  # it never answers

        def first(route: Route) -> None:
            answer = route.fetch().json()
            far = {"next": "train:3:0", "searched": 3, "hits": answer["hits"][:1]}
            route.fulfill(json={**answer, **far})

        page.route(re.compile(r"/api/search\?(?!.*after=)"), first)
        to(page, "/?q=return")
        expect(page.locator("h2.told")).to_contain_text("1 hit for “return” so far: 3 of")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("h2.told")).to_contain_text("stopped")
        page.unroute(more)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("h2.told")).to_contain_text(
            f": {len(rows_of(dataset))} of {len(rows_of(dataset))} rows searched"
        )
        assert len(keys_shown(page)) > 10


def test_keys_walk_the_list_and_the_windows(chromium, address, dataset):
    first, second, third, *_ = named(rows_of(dataset, language="javascript"))
    with opened(chromium, address, "/?language=javascript") as seen:
        page = seen.page
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
        for key, shown in (("j", third), ("k", second), ("k", first), ("ArrowRight", second)):
            page.keyboard.press(key)
            page.wait_for_url("**/row/" + shown.replace(":", "/") + "?language=javascript")
            expect(page.locator(".facts").first).to_contain_text(f"{shown}, of")
        page.keyboard.press("u")
        page.wait_for_url("**/?language=javascript")
        expect(page.locator(f"a[data-key='{second}']")).to_be_focused()
        page.keyboard.press("f")
        expect(page.get_by_label("Split")).to_be_focused()
        assert seen.is_quiet()


def test_no_key_acts_while_typing_and_help_opens_and_closes(chromium, address):
    with opened(chromium, address, FEW) as seen:
        page = seen.page
        page.keyboard.press("/")
        page.keyboard.type("jukf?t/")
        assert page.locator("#q").input_value() == "jukf?t/"
        assert not page.locator("dialog").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        assert page.locator("dialog dt").all_inner_texts()[:2] == ["j k", "↓ ↑"]
        assert seen.violations() == []
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).not_to_be_visible()
        assert seen.is_quiet()


def test_every_control_is_reached_by_tab(chromium, address):
    controls = "[...document.querySelectorAll('a[href], button, input, select, [tabindex=\"0\"]')]"
    shown = f"{controls}.filter((one) => one.checkVisibility())"
    with opened(chromium, address, "/row/train/1") as seen:
        number = seen.page.evaluate(f"{shown}.length")
        assert number >= 10
        reached = []
        for _ in range(number):
            seen.page.keyboard.press("Tab")
            reached.append(seen.page.evaluate(f"{shown}.indexOf(document.activeElement)"))
        assert reached == list(range(number))
        assert seen.is_quiet()


def test_a_row_shows_its_tokens_and_what_neighbours_share(chromium, address, dataset):
    look = look_at(dataset, "train", 1)
    assert look.windows[0].shared_before > 0
    with opened(chromium, address, "/row/train/1") as seen:
        page = seen.page
        spans = page.locator(".code [data-token]").evaluate_all(
            "spans => spans.map((span) => [Number(span.dataset.token), span.textContent, [...span.classList]])"
        )
        drawn = {number: "" for number, _, _ in spans}
        for number, text, classes in spans:
            drawn[number] += text
            flags = look.tokens[number][1]
            assert ("special" in classes, "alternate" in classes) == (bool(flags & SPECIAL), number % 2 == 1)
            shared = {"before": flags & BEFORE, "after": flags & AFTER}
            both = flags & BEFORE and flags & AFTER
            assert set(classes) & {"before", "after", "both"} == (
                {"both"} if both else {n for n, on in shared.items() if on}
            )
        spelled = dict.fromkeys(drawn, "")
        for stroke in look.strokes:
            spelled[stroke.token] += stroke.text
        assert drawn == spelled
        numbers = page.locator(".line[data-line]").evaluate_all(
            "lines => lines.map((line) => Number(line.dataset.line))"
        )
        first, last = look.windows[0].lines
        assert numbers == list(range(first, last + 1))
        expect(page.locator(".legend")).to_contain_text(f"window before: {look.windows[0].shared_before} tokens")
        assert "bounds" in page.locator(".code").get_attribute("class")
        assert seen.is_quiet()


def test_a_token_tells_its_id_under_the_pointer_and_by_arrow_keys(chromium, address, dataset):
    look = look_at(dataset, "train", 1)
    with opened(chromium, address, "/row/train/1") as seen:
        page, status = seen.page, seen.page.locator(".token-status")
        expect(status).to_contain_text("click on one and walk on with → and ←")
        page.locator(".code [data-token='7']").first.hover()
        expect(status).to_contain_text(f"Token 7 of {len(look.tokens)} · id {look.tokens[7][0]} · ")
        page.locator(".code").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(status).to_contain_text(f"Token 1 of {len(look.tokens)} · id {look.tokens[1][0]} · ")
        expect(status).to_contain_text("also in the window before")
        page.locator("h1").focus()
        page.locator(".code [data-token='7']").first.click()
        page.keyboard.press("ArrowRight")
        expect(status).to_contain_text(f"Token 8 of {len(look.tokens)} · id {look.tokens[8][0]} · ")
        assert "/row/train/1" in page.url
        assert seen.is_quiet()


def test_an_address_opens_the_same_state_elsewhere(chromium, address):
    with opened(chromium, address, "/row/train/2?language=python") as seen:
        seen.page.keyboard.press("t")
        seen.page.keyboard.press("w")
        assert seen.page.url.endswith("/row/train/2?language=python&tokens=0&wrap=0")
        copied = seen.page.url
    own = address.split("?")[0]
    with opened(chromium, address, "/" + copied.removeprefix(own)) as seen:
        assert "bounds" not in seen.page.locator(".code").get_attribute("class")
        assert "wrapped" not in seen.page.locator(".code").get_attribute("class")
        expect(seen.page.get_by_role("button", name="Token boundaries")).to_have_attribute("aria-pressed", "false")
        assert "train:2 " in seen.page.title()
        assert "key=" not in seen.page.url
        assert seen.is_quiet()


def test_going_back_finds_the_same_place(chromium, address):
    with opened(chromium, address) as seen:
        page = seen.page
        link = page.locator("a.row-link").nth(30)
        key = link.get_attribute("data-key")
        link.click()
        settled(page)
        expect(page.locator("h1")).to_be_focused()
        page.go_back()
        expect(page.locator(f"a[data-key='{key}']")).to_be_focused()
        assert page.evaluate("scrollY") > 500
        assert seen.is_quiet()


def test_a_file_shows_all_its_windows_and_where_they_begin(chromium, address, dataset):
    path = dataset["train"][0]["path"]
    file = files_table(dataset.folder)[path]
    expected = named(rows_of(dataset, path=f"repo/{path}"))
    with opened(chromium, address, file_place(path)) as seen:
        page = seen.page
        assert keys_shown(page) == expected
        own = [number for number, row in enumerate(dataset["train"]) if row["path"] == path and not row.get("variant")]
        assert page.locator(".gutter-link").all_text_contents() == [str(number) for number in own]
        expect(page.locator(".verdict")).to_contain_text("Kept in train")
        text = "".join(page.locator(".code [data-token]").all_text_contents())
        assert text == (dataset.folder.parent / "repo" / path).read_text()
        lines = page.locator(".line[data-line]").evaluate_all("lines => lines.map((line) => Number(line.dataset.line))")
        assert lines == list(range(1, file["lines"] + 1))
        page.locator(".gutter-link").nth(1).click()
        page.wait_for_url(f"**/row/train/{own[1]}")
        settled(page)
        page.get_by_role("link", name=f"repo/{path}").click()
        page.wait_for_url("**/file?*")
        assert seen.is_quiet()


def test_many_windows_of_a_file_are_a_list_that_scrolls_down_not_sideways(chromium, address, dataset):
    with opened(chromium, address, file_place(dataset["train"][0]["path"]), viewport=PHONE) as seen:
        sizes = seen.page.locator(".window-links").evaluate(
            "list => { for (let one = 0; one < 40; one++) list.append(list.firstElementChild.cloneNode(true));"
            " return [list.scrollWidth - list.clientWidth, list.scrollHeight - list.clientHeight] }"
        )
        assert sizes[0] == 0 < sizes[1], sizes


def test_dropped_files_are_told_with_their_reasons(chromium, address, dataset):
    table = [file for file in files_table(dataset.folder).values() if file["status"] == "dropped"]
    assert {"empty", "exact_duplicate", "binary"} <= {file["reason"] for file in table}
    with opened(chromium, address, "/dropped") as seen:
        page = seen.page
        assert keys_shown(page) == [f"{file['repo']}/{file['path']}" for file in table]
        for file in table:
            row = page.locator("tr", has=page.locator(f"a[data-key='{file['repo']}/{file['path']}']"))
            expect(row.locator("td").first).to_have_text(file["reason"])
            expect(row).to_contain_text(file["detail"] or "")
        page.get_by_label("Reason").select_option("exact_duplicate")
        expect(page.locator("h2.told")).to_have_text("1–1 of 1 file")
        expect(page.locator(".results")).to_contain_text(DropReason.EXACT_DUPLICATE.meaning)
        page.get_by_role("link", name="repo/src/zcopy.py").click()
        page.wait_for_url("**/file?*")
        expect(page.locator(".verdict")).to_contain_text("Dropped, exact_duplicate")
        expect(page.locator(".facts").first).not_to_contain_text("Split")
        # As in the report and in the terminal.
        assert page.evaluate("import('/telling.js').then((telling) => telling.bytes(36_800))") == "36.8 KB"
        page.keyboard.press("u")
        page.wait_for_url("**/dropped?reason=exact_duplicate")
        assert seen.is_quiet()


@pytest.mark.parametrize("path", [IMAGE, SCRIPT, TURNED])
def test_hostile_names_and_contents_are_only_text(chromium, address, dataset, texts, path):
    split, row = rows_of(dataset, path=path, variant="none")[-1]
    with opened(chromium, address, f"/row/{split}/{row}") as seen:
        page = seen.page
        expect(page.locator("h1")).to_have_text(printable(path))
        assert printable(path) in page.title()
        drawn = "".join(page.locator(".code [data-token]:not(.special)").all_text_contents())
        text = texts[split, row]
        assert drawn == "".join(char if char.isprintable() or char in "\n\t" else printable(char) for char in text)
        name = quote(path)
        for at in (file_place(path), f"/?path={name}", "/?q=alert(1)", f"/?q={name}", f"/?language={name}"):
            to(page, at)
            assert page.locator("main img, main script, iframe").count() == 0
            assert not set(page.locator("body").inner_text()) & {"\u202e", "\x1b", "\u200b"}
        assert seen.is_quiet()


PAGES = {
    "windows": FEW,
    "nothing": "/?path=nothing+is+named+so",
    "search": "/?q=quernstone",
    "row": "/row/train/1",
    "odd row": None,
    "file": file_place("src/part1.py"),
    "dropped": "/dropped",
    "dropped file": file_place("src/zcopy.py"),
}


@pytest.mark.parametrize(("viewport", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["wide, light", "narrow, dark"])
def test_no_page_has_barriers_or_scrolls_sideways(chromium, address, dataset, viewport, dark):
    split, row = rows_of(dataset, path=TURNED, variant="none")[-1]
    with opened(chromium, address, viewport=viewport, dark=dark) as seen:
        for name, at in PAGES.items():
            page = to(seen.page, at or f"/row/{split}/{row}")
            assert seen.violations() == [], name
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            assert page.locator("h1").count() == 1, name
            assert not re.search(r"\[object|undefined|NaN|\bnull\b", page.locator("body").inner_text()), name
        assert seen.is_quiet()


def test_a_page_waits_for_the_index_and_goes_on_by_itself(chromium, address, dataset):
    with opened(chromium, address, "/dropped") as seen:
        waiting = {"index": {"is_ready": False, "share": 0.25, "error": None}}
        seen.page.route("**/api/windows?*", lambda route: route.fulfill(status=202, json=waiting))
        seen.page.get_by_role("link", name="Windows").click()
        expect(seen.page.locator(".notice")).to_contain_text("25 %")
        seen.page.unroute("**/api/windows?*")
        expect(seen.page.locator("h2.told")).to_contain_text(f"of {len(rows_of(dataset))} rows")
        assert seen.is_quiet()


REFUSALS = {
    None: "Start `gristmill view` again",
    (403, "no"): "Open the address that `gristmill view` printed",
    (409, json.dumps({"error": "row train:1 is damaged <b>"})): "row train:1 is damaged <b>",
}
"""What the server answers, if it does, and what is said of it."""


def refusing(answer: tuple[int, str] | None) -> Callable[[Route], None]:
    def refuse(route: Route) -> None:
        if answer is None:
            route.abort()
        else:
            route.fulfill(status=answer[0], body=answer[1])

    return refuse


def test_what_cannot_be_shown_is_a_plain_sentence_and_can_be_tried_again(chromium, address):
    with opened(chromium, address, "/dropped") as seen:
        for answer, told in REFUSALS.items():
            page = to(seen.page, FEW)
            page.route("**/api/row?*", refusing(answer))
            page.locator("a.row-link").first.click()
            expect(page.locator(".notice")).to_contain_text(told)
            expect(page.locator("h1")).to_be_focused()
            assert seen.violations() == []
            page.unroute("**/api/row?*")
            page.get_by_role("button", name="Try again").click()
            expect(page.locator(".code")).to_be_visible()
        assert seen.foreign_requests == []


def test_a_row_of_the_list_says_no_more_than_it_is_told(chromium, address):
    """Where windows share a row, what is fresh in the first of them is not of the row's ids; and some rows tell less."""

    def changed(route: Route) -> None:
        answer = route.fetch().json()
        shared, bare = answer["rows"][:2]
        shared["windows"] *= 2
        bare["windows"][0] |= {"lines": [0, 0], "fresh": 0}
        route.fulfill(json=answer)

    with opened(chromium, address, "/dropped") as seen:
        seen.page.route("**/api/windows?*", changed)
        seen.page.get_by_role("link", name="Windows").click()
        settled(seen.page)
        shared, bare, plain = seen.page.locator(".row-facts").all_inner_texts()[:3]
        assert "fresh" not in shared
        assert not re.search("fresh|line", bare)
        assert re.search(r"lines? [\d–]+\s.*\d fresh of \d+ ids", plain, re.DOTALL)


def test_after_a_search_the_keys_go_from_hit_to_hit(chromium, address, dataset, texts):
    hits = [place for place, text in texts.items() if "bran" in text.lower()]
    gaps = [number for number, place in enumerate(texts) if place not in hits]
    assert len(hits) > 3
    assert gaps, "some row must be skipped"
    with opened(chromium, address) as seen:
        page = seen.page
        page.keyboard.press("/")
        page.keyboard.type("bran")
        page.keyboard.press("Enter")
        expect(page.locator("h2.told")).to_contain_text("searched")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.dataset.key") == named(hits)[0]
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_be_focused()
        walk = [*zip("j" * (len(hits) - 1), hits[1:], strict=True), *zip("kk", hits[-2:-4:-1], strict=True)]
        for key, (split, row) in walk:
            page.keyboard.press(key)
            page.wait_for_url(f"**/row/{split}/{row}?q=bran")
            expect(page.locator(".facts").first).to_contain_text(f"{split}:{row}, of")
        page.get_by_role("button", name="Next hit").click()
        page.wait_for_url("**/row/{}/{}?q=bran".format(*hits[-2]))
        settled(page)
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**/row/{}/{}?q=bran".format(*hits[-1]))
        settled(page)
        page.keyboard.press("j")
        expect(page.locator("#announcer")).to_have_text("There is no further hit.")
        assert seen.is_quiet()
