"""A real Chromium, driven headless: what a page does in it, what it asks the network for, what it complains about."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

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


def chromium_path() -> str | None:
    found = (shutil.which(name) for name in NAMES)
    return next(filter(None, found), None) or next(filter(os.path.isfile, PLACES), None)


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its sandbox does not run as root; the pages are our own.
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page, with all that it complained about and asked for."""

    def __init__(self, context: BrowserContext, own: str) -> None:
        self.page: Page = context.new_page()
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self._own = own
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        context.on("request", self._asked)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "trace", "assert"}:
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self._own, "data:", "blob:", "about:")):
            self.strangers.append(request.url)

    def violations(self) -> list[str]:
        """What axe-core finds, by WCAG 2.2 AA and its own best practice."""
        found = Axe().run(self.page, options=RULES).response["violations"]
        return [
            f"{one['id']}: {one['help']}: {', '.join(str(node['target']) for node in one['nodes'][:4])}"
            for one in found
        ]

    def is_quiet(self) -> bool:
        """Asserts it: nothing complained about, nothing asked of anybody else."""
        assert self.complaints == []
        assert self.strangers == []
        return True


@contextmanager
def watched(
    browser: Browser, own: str, *, viewport: dict[str, int] | None = None, dark: bool = False, **options: object
) -> Iterator[Watched]:
    """`own`: how the addresses begin that it may ask for: `http://127.0.0.1:8000/`, or `file:///tmp/report.html`."""
    context = browser.new_context(
        viewport=viewport or DESKTOP, color_scheme="dark" if dark else "light", reduced_motion="reduce", **options
    )
    context.set_default_timeout(10_000)
    try:
        yield Watched(context, own)
    finally:
        context.close()


def file_address(path: Path) -> str:
    return path.resolve().as_uri()
