"""A comparison's folder: what lies in it, and going on with one that was stopped.

OUT/test.jsonl, test.json    the frozen test set; written first
OUT/runs/0-NAME-seed0/       a training each
OUT/comparison.json          all that was found
OUT/comparison.md, .html, curves.svg    the same for people; written last
"""

import os
import re
from pathlib import Path

from gristmill.comparing.curves import comparison_html, comparison_svg
from gristmill.comparing.frozen import FACTS, Frozen, read_facts
from gristmill.comparing.markdown import comparison_markdown
from gristmill.comparing.result import Comparison
from gristmill.comparing.telling import comparison_json
from gristmill.errors import ConfigError, OutputError
from gristmill.layout import UNFINISHED, write_atomically

RUNS, JSON, MARKDOWN, HTML, CURVES = "runs", "comparison.json", "comparison.md", "comparison.html", "curves.svg"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class ComparisonFolder:
    def __init__(self, folder: str | os.PathLike[str], *, resume: bool) -> None:
        """Before anything slow happens: what must not be written over is refused."""
        self.path = Path(os.path.expanduser(folder))
        if resume and not (self.path / FACTS).is_file():
            raise ConfigError(f"there is no comparison to go on with in {str(self.path)!r}. Leave out --resume.")
        try:
            if not resume and self.path.exists() and (not self.path.is_dir() or any(map(_counts, self.path.iterdir()))):
                way = "Go on with it by --resume, or name" if (self.path / FACTS).is_file() else "Name"
                raise OutputError(f"{str(self.path)!r} is not empty. {way} a new folder with --out.")
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None

    def keep(self, frozen: Frozen) -> None:
        """What was frozen before must be the same now: else the runs that are done were scored on something else."""
        if (self.path / FACTS).is_file() and read_facts(self.path).sha256 != frozen.facts.sha256:
            raise ConfigError(
                f"{str(self.path)!r} was begun with another test set: a dataset has changed since. "
                "Compare into a new folder."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            frozen.write(self.path)
            (self.path / RUNS).mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None

    def run_folder(self, number: int, name: str, seed: int) -> Path:
        """By the dataset's number too: two names may be spelled alike in files."""
        return self.path / RUNS / f"{number}-{UNSAFE.sub('-', name)}-seed{seed}"

    def write(self, comparison: Comparison) -> None:
        write_atomically(self.path / JSON, comparison_json(comparison).encode() + b"\n")
        write_atomically(self.path / CURVES, comparison_svg(comparison).encode())
        write_atomically(self.path / HTML, comparison_html(comparison).encode())
        write_atomically(self.path / MARKDOWN, comparison_markdown(comparison, CURVES).encode())


def _counts(path: Path) -> bool:
    """Not so what a comparison that was killed before it froze anything has left."""
    return not path.name.endswith(UNFINISHED)
