"""A real Chromium, driven headless: what a page does in it, what it asks the network for, what it complains about."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],  # to tell all that passed takes longer than to look
}
AXE = Axe()


def chromium_path() -> str | None:
    found = (shutil.which(name) for name in NAMES)
    return next(filter(None, found), None) or next(filter(os.path.isfile, PLACES), None)


class Watched:
    """A page, with all that it complained about and asked for."""

    def __init__(self, context: BrowserContext, own: str) -> None:
        context.set_default_timeout(10_000)
        self.page: Page = context.new_page()
        self.own = own
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._interrupted)
        context.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "trace", "assert"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def _interrupted(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.own, "data:", "blob:", "about:")):
            self.strangers.append(request.url)

    def violations(self) -> list[str]:
        """What axe-core finds, by WCAG 2.2 AA and its own best practice."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.axe_script)
        found = self.page.evaluate("rules => axe.run(rules).then((results) => results.violations)", RULES)
        return [
            f"{one['id']}: {one['help']}: {', '.join(str(node['target']) for node in one['nodes'][:4])}"
            for one in found
        ]

    def is_quiet(self) -> bool:
        """Asserts it: nothing complained about, nothing asked of anybody else, nobody interrupted."""
        assert self.complaints == []
        assert self.strangers == []
        assert self.dialogs == []
        return True

    def turn_to(self, own: str, viewport: dict[str, int], *, dark: bool) -> None:
        self.own = own
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(media="null", color_scheme="dark" if dark else "light")

    def leave(self) -> None:
        """Nothing of what was looked at is left for the next address."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.mouse.move(0, 0)
        self.page.evaluate(
            "() => { try { localStorage.clear(); sessionStorage.clear() } catch { /* a page of none */ } }"
        )
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        for seen in (self.complaints, self.strangers, self.dialogs):
            seen.clear()


_idle: dict[Browser, list[Watched]] = {}
"""Pages that nobody looks at: another context takes a second and a half, another address in an old one a third."""


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its sandbox does not run as root; the pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        yield browser
        _idle.pop(browser, None)
        browser.close()


@contextmanager
def watched(
    browser: Browser, own: str, *, viewport: dict[str, int] = DESKTOP, dark: bool = False, **options: object
) -> Iterator[Watched]:
    """`own`: how the addresses begin that it may ask for: `http://127.0.0.1:8000/`, or `file:///tmp/report.html`."""
    idle = _idle.setdefault(browser, [])
    seen = idle.pop() if idle and not options else Watched(browser.new_context(reduced_motion="reduce", **options), own)
    try:
        seen.turn_to(own, viewport, dark=dark)
        yield seen
        seen.leave()
    except BaseException:
        seen.page.context.close()  # whoever comes next gets another
        raise
    if options:
        seen.page.context.close()
    else:
        idle.append(seen)


def file_address(path: Path) -> str:
    return path.resolve().as_uri()
