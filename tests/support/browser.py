"""A real headless Chromium that records the console errors, dialogs and network requests of a page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, sync_playwright

EXECUTABLES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
MACOS_PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],  # listing the passed rules takes longer than checking them
}
AXE = Axe()


def chromium_path() -> str | None:
    found = (shutil.which(name) for name in EXECUTABLES)
    return next(filter(None, found), None) or next(filter(os.path.isfile, MACOS_PATHS), None)


class WatchedPage:
    """A page, with records of its console errors, dialogs and requests to other addresses."""

    def __init__(self, context: BrowserContext, own_address: str) -> None:
        context.set_default_timeout(10_000)
        self.page: Page = context.new_page()
        self.own_address = own_address
        self.console_errors: list[str] = []
        self.foreign_requests: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.console_errors.append(f"error: {error}"))
        self.page.on("dialog", self._on_dialog)
        context.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "trace", "assert"}:
            self.console_errors.append(f"{message.type}: {message.text}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.own_address, "data:", "blob:", "about:")):
            self.foreign_requests.append(request.url)

    def violations(self) -> list[str]:
        """Return the violations of WCAG 2.2 AA and of axe-core's best practices."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.axe_script)
        found = self.page.evaluate("rules => axe.run(rules).then((results) => results.violations)", RULES)
        return [
            f"{one['id']}: {one['help']}: {', '.join(str(node['target']) for node in one['nodes'][:4])}"
            for one in found
        ]

    def is_quiet(self) -> bool:
        """Return True. Fail if the page logged an error, requested a foreign address or opened a dialog."""
        assert self.console_errors == []
        assert self.foreign_requests == []
        assert self.dialogs == []
        return True

    def set_up(self, own_address: str, viewport: dict[str, int], *, dark: bool) -> None:
        self.own_address = own_address
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(media="null", color_scheme="dark" if dark else "light")

    def reset(self) -> None:
        """Remove all state of the page, so that the next test starts with a clean page."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.mouse.move(0, 0)
        self.page.evaluate(
            "() => { try { localStorage.clear(); sessionStorage.clear() } catch { /* the page has no storage */ } }"
        )
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        for recorded in (self.console_errors, self.foreign_requests, self.dialogs):
            recorded.clear()


_idle: dict[Browser, list[WatchedPage]] = {}
"""Pages for reuse. A new browser context takes 1.5 s, and a new address in an existing context takes 0.3 s."""


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work as root, and only our own pages are opened.
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        yield browser
        _idle.pop(browser, None)
        browser.close()


@contextmanager
def watched(
    browser: Browser, own_address: str, *, viewport: dict[str, int] = DESKTOP, dark: bool = False, **options: object
) -> Iterator[WatchedPage]:
    """Open a page that may request only addresses that begin with `own_address`.

    Examples of `own_address` are `http://127.0.0.1:8000/` and `file:///tmp/report.html`.
    """
    idle = _idle.setdefault(browser, [])
    page = (
        idle.pop()
        if idle and not options
        else WatchedPage(browser.new_context(reduced_motion="reduce", **options), own_address)
    )
    try:
        page.set_up(own_address, viewport, dark=dark)
        yield page
        page.reset()
    except BaseException:
        page.page.context.close()  # a page in an unknown state is not reused
        raise
    if options:
        page.page.context.close()
    else:
        idle.append(page)


def file_address(path: Path) -> str:
    return path.resolve().as_uri()
