"""A run's measurements as curves, with what is known of it at the top."""

from collections.abc import Sequence

from gristmill.drawing.panel import Line, Mark, Panel, Point
from gristmill.drawing.table import Table
from gristmill.training.metrics import Metric

MOST_ROWS = 300
NAMES = {"train": "train", "validation": "validation", "frozen": "frozen test"}


def panels_of(lines: Sequence[Metric], best: Metric | None) -> list[Panel]:
    """The loss, and what else is measured."""
    marks = () if best is None else (Mark(f"best, epoch {best.epoch:.3g}", best.epoch),)
    panels = [_panel("Loss", "nats a token", lines, "loss", marks)]
    if any(line.bits_per_byte is not None for line in lines):
        panels.append(_panel("Bits per byte", "bits", lines, "bits_per_byte", marks))
    panels.append(_panel("Accuracy", "share of tokens told right", lines, "accuracy", marks))
    return panels


def _panel(title: str, unit: str, lines: Sequence[Metric], name: str, marks: Sequence[Mark]) -> Panel:
    drawn = []
    for split, label in NAMES.items():
        points = [
            Point(line.epoch, value)
            for line in lines
            if line.split == split and (value := getattr(line, name)) is not None
        ]
        if points:
            drawn.append(Line(label, points, faint=split == "train"))
    return Panel(title, "epochs", unit, drawn, marks=tuple(marks))


def table_of(lines: Sequence[Metric]) -> Table:
    """The last ones; metrics.jsonl has all."""
    rows = [
        (
            f"{line.epoch:.2f}",
            f"{line.step:,}",
            f"{line.tokens:,}",
            line.split,
            f"{line.loss:.4f}",
            "" if line.bits_per_byte is None else f"{line.bits_per_byte:.4f}",
            "" if line.accuracy is None else f"{line.accuracy:.1%}",
        )
        for line in lines[-MOST_ROWS:]
    ]
    return Table("Measurements", ("epoch", "step", "tokens", "split", "loss", "bits/byte", "accuracy"), rows)
