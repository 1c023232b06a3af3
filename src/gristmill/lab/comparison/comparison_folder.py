"""Folder of a comparison: its layout, and resuming a stopped comparison.

OUT/test.jsonl, test.json    the frozen test set; written first
OUT/runs/0-NAME-seed0/       one folder per training run
OUT/comparison.json          the complete result
OUT/comparison.md, .html, curves.svg    the result as pages and a chart; written last
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from gristmill.core.errors import ConfigError, OutputError
from gristmill.core.layout import UNFINISHED, write_atomically
from gristmill.core.names import printable
from gristmill.lab.comparison.comparison import Band, Comparison, mean_curves
from gristmill.lab.comparison.comparison_markdown import comparison_markdown
from gristmill.lab.comparison.comparison_text import (
    HEADINGS,
    budget_text,
    comparison_json,
    dataset_cells,
    frozen_text,
    notes,
)
from gristmill.lab.comparison.frozen import FACTS, Frozen, read_facts
from gristmill.views.curves import Line, Panel, Point
from gristmill.views.curves_html import curves_html
from gristmill.views.curves_svg import curves_svg
from gristmill.views.table import Table

# Curves of the score on the frozen test set and of each dataset's own validation, with bands over the seeds.

TITLE = "Which dataset trains the better model"


def comparison_svg(comparison: Comparison) -> str:
    return curves_svg(TITLE, f"{comparison.model}, {budget_text(comparison)}", make_panels(comparison))


def comparison_html(comparison: Comparison) -> str:
    facts = [
        *(("at the end", printable(verdict.text)) for verdict in comparison.verdicts),
        *(("at best validation", printable(verdict.text)) for verdict in comparison.verdicts_at_best),
        ("model", f"{printable(comparison.model)}, {budget_text(comparison)}"),
        ("test", frozen_text(comparison.frozen)),
        *(("note", printable(note)) for note in notes(comparison)),
        ("command", printable(comparison.command)),
    ]
    table = Table("Datasets", HEADINGS, [dataset_cells(facts, comparison) for facts in comparison.datasets])
    return curves_html(TITLE, facts, make_panels(comparison), [table], None)


def make_panels(comparison: Comparison) -> list[Panel]:
    curves = mean_curves(comparison)
    test = [_line(curve.dataset, curve.tokens, curve.test) for curve in curves]
    validation = [
        _line(curve.dataset, curve.tokens, curve.validation) for curve in curves if curve.validation is not None
    ]
    unit = comparison.unit
    return [
        Panel("Frozen test set", "tokens trained on", unit, test),
        Panel("Own validation", "tokens trained on", unit, validation),
    ]


def _line(name: str, tokens: Sequence[int], band: Band) -> Line:
    return Line(name, [Point(x, y) for x, y in zip(tokens, band.mean, strict=True)], band.low, band.high)


RUNS, JSON, MARKDOWN, HTML, CURVES = "runs", "comparison.json", "comparison.md", "comparison.html", "curves.svg"
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")


class ComparisonFolder:
    """Folder of one comparison."""

    def __init__(self, folder: str | os.PathLike[str], *, resume: bool) -> None:
        """Raise OutputError if files would be overwritten, or ConfigError if there is no comparison to resume."""
        self.path = Path(os.path.expanduser(folder))
        if resume and not (self.path / FACTS).is_file():
            raise ConfigError(f"no comparison to resume in {str(self.path)!r}. Leave out --resume.")
        try:
            if (
                not resume
                and self.path.exists()
                and (not self.path.is_dir() or any(map(_is_finished, self.path.iterdir())))
            ):
                advice = (
                    "Continue the comparison with --resume, or choose" if (self.path / FACTS).is_file() else "Choose"
                )
                raise OutputError(f"{str(self.path)!r} is not an empty folder. {advice} a new folder with --out.")
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None

    def keep(self, frozen: Frozen) -> None:
        """Write the frozen test set. Raises ConfigError if earlier runs used a different test set."""
        if (self.path / FACTS).is_file() and read_facts(self.path).sha256 != frozen.facts.sha256:
            raise ConfigError(
                f"the comparison in {str(self.path)!r} was started with a different test set: a dataset or --test has "
                "changed since then. Compare into a new folder."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            frozen.write(self.path)
            (self.path / RUNS).mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write into {str(self.path)!r}: {error.strerror}.") from None

    def run_folder(self, index: int, name: str, seed: int) -> Path:
        """Return the folder of a run. The index makes folders distinct if two dataset names give the same file name."""
        return self.path / RUNS / f"{index}-{UNSAFE_CHARACTERS.sub('-', name)}-seed{seed}"

    def write(self, comparison: Comparison) -> None:
        write_atomically(self.path / JSON, comparison_json(comparison).encode() + b"\n")
        write_atomically(self.path / CURVES, comparison_svg(comparison).encode())
        write_atomically(self.path / HTML, comparison_html(comparison).encode())
        write_atomically(self.path / MARKDOWN, comparison_markdown(comparison, CURVES).encode())


def _is_finished(path: Path) -> bool:
    """Return False for a temporary file that a killed comparison has left."""
    return not path.name.endswith(UNFINISHED)
