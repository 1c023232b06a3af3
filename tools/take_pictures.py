"""Take screenshots of the report and the viewer for docs/pictures, with the installed Chromium or Chrome.

python tools/take_pictures.py demo     # `make demo` builds the dataset in the folder demo
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1280, "height": 900},
    "phone": {"width": 390, "height": 844},
}
WAIT_MS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("dataset", type=Path)
    folder = parser.parse_args().dataset
    PICTURES.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "gristmill", "report", folder, "--quiet"], check=True)
    with sync_playwright() as playwright, run_viewer(folder) as address:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        report = (folder / "report.html").resolve().as_uri()
        take_picture(browser, "report", report)
        take_picture(browser, "report-charts", report + "#tokens", is_dark=True)
        take_picture(browser, "viewer", address, then="row/train/3000")
        take_picture(browser, "viewer-list", address, then="?language=python&path=asyncio", is_dark=True)
        browser.close()


@contextmanager
def run_viewer(folder: Path) -> Iterator[str]:
    """Run the viewer and yield its address."""
    command = [sys.executable, "-m", "gristmill", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "http://" in line)
            yield re.findall(r"http://\S+", line)[0]
        finally:
            process.terminate()


def take_picture(browser: Browser, name: str, address: str, *, then: str | None = None, is_dark: bool = False) -> None:
    """Save a screenshot in each of SIZES. `then` is a path in the viewer to open after the address."""
    for size, viewport in SIZES.items():
        context = browser.new_context(viewport=viewport, color_scheme="dark" if is_dark else "light")
        page = context.new_page()
        page.goto(address)
        if then is not None:
            page.goto(re.sub(r"\?.*", "", address) + then)
        page.wait_for_timeout(WAIT_MS)
        page.screenshot(path=PICTURES / f"{name}-{size}.png")
        context.close()


if __name__ == "__main__":
    main()
