"""Source distributions with tests, and a function that runs these tests after a change to the source."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from support.environment import USER_HOME

TIME_LIMIT_S = 120


class Sdist(NamedTuple):
    name: str
    version: str
    sha256: str
    package: str
    """Folder of the package, whose files are changed."""
    options: tuple[str, ...] = ()
    """Arguments of pytest."""

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.version}"


SDISTS = (
    Sdist("toolz", "1.0.0", "2c86e3d9a04798ac556793bced838816296a2f085017664e4995cb40a1047a02", "toolz", ("toolz",)),
    Sdist(
        "more-itertools",
        "10.5.0",
        "5482bfef7849c25dc3c6dd53a6173ae4795da2a41a80faea6700d9f5846c5da6",
        "more_itertools",
        ("tests",),
    ),
    # The conftest.py of boltons requires an older pytest.
    Sdist(
        "boltons",
        "24.1.0",
        "4a49b7d57ee055b83a458c8682a2a6f199d263a8aa517098bda9bab813554b87",
        "boltons",
        ("--noconftest", "tests"),
    ),
)


def outcomes(sdist: Sdist, vary: Callable[[bytes], bytes], cache: Path, work: Path) -> dict[str, str]:
    """Change the package with `vary`, run its tests, and return "passed", "skipped" or "failed" for each test.

    The archive is kept in `cache` and unpacked in `work`, which must be a new folder.
    """
    with tarfile.open(fetch(sdist, cache)) as archive:
        # Python 3.12 warns if no filter is given, and versions before 3.11.4 have no filters. Without a filter, the
        # archive is still safe, because its digest is known.
        archive.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    root = work / sdist.stem
    for path in sorted((root / sdist.package).rglob("*.py")):
        path.write_bytes(vary(path.read_bytes()))
    report = work / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *sdist.options]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no plugin is needed, and loading plugins takes a second
    done = subprocess.run(
        command, cwd=root, env=environment, timeout=TIME_LIMIT_S, capture_output=True, text=True, check=False
    )
    assert report.exists(), done.stdout + done.stderr
    return {
        f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in ET.parse(report).iter("testcase")
    }


def _outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def fetch(sdist: Sdist, cache: Path) -> Path:
    """Download the source distribution from the index that pip uses. `pip download` would also build it."""
    path = cache / f"{sdist.stem}.tar.gz"
    if not path.exists():
        page = f"{_index()}/{sdist.name}/"
        links = re.findall(r'href="([^"]+)"', _read(page).decode())
        names = {urllib.parse.urlsplit(link).path.rpartition("/")[2]: link for link in links}
        path.write_bytes(_read(urllib.parse.urljoin(page, names[path.name])))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sdist.sha256
    return path


def _index() -> str:
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    environment = {**os.environ, "HOME": USER_HOME}
    configured = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()
    return (os.environ.get("PIP_INDEX_URL") or configured or "https://pypi.org/simple").rstrip("/")


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()
